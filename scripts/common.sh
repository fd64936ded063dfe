# shellcheck shell=bash
# Sourced by the other scripts: strict mode, the repository as working folder, a clean environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # either one slows OpenBLAS

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}
