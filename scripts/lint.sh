#!/usr/bin/env bash
# Checks the format of all C and C++ files; --fix corrects it.
#
# usage: lint.sh [--fix]
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
'') action=(--dry-run --Werror) ;;
--fix) action=(-i) ;;
*) die "unknown option $1 (usage: lint.sh [--fix])" ;;
esac
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.cpp' '*.h' '*.hpp' |
  xargs -0 -r clang-format-22 "${action[@]}"
