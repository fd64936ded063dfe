#!/usr/bin/env bash
# Builds into build/ with the release preset; CI=true turns warnings into errors.
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
