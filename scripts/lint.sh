#!/usr/bin/env bash
# Checks the format of all C and C++ files; --fix corrects it. --includes checks instead that every source of the built
# tree compiles without precompiled headers.
#
# usage: lint.sh [--fix|--includes]
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
'') action=(--dry-run --Werror) ;;
--fix) action=(-i) ;;
--includes) exec python3 test/Project/includes.py . build --all ;;
*) die "unknown option $1 (usage: lint.sh [--fix|--includes])" ;;
esac
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.cpp' '*.h' '*.hpp' |
  xargs -0 -r clang-format-22 "${action[@]}"
