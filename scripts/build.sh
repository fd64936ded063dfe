#!/usr/bin/env bash
# Builds into build/ with the release preset, and, where Debian's libraries for arm64 are, the runtime for AArch64 into
# build-aarch64/; CI=true turns warnings into errors.
#
# usage: build.sh [target ...]
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

options=()
if [[ ${CI:-} == true ]]; then
  options=(-DTRAINC_WERROR=ON)
fi
if [[ ! -f build/build.ninja || ${#options[@]} -gt 0 ]]; then
  cmake --preset release "${options[@]}"
fi
ninja -C build "$@"
if [[ $# -eq 0 && -f /usr/aarch64-linux-gnu/include/stdlib.h ]]; then
  [[ -f build-aarch64/build.ninja && ${#options[@]} -eq 0 ]] || cmake --preset aarch64 "${options[@]}"
  ninja -C build-aarch64
fi
