#!/usr/bin/env bash
# Generates the reference of operations and passes from TableGen into build/docs, as Markdown.
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/build.sh docs
ls build/docs/*.md
