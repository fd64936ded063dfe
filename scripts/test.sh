#!/usr/bin/env bash
# Sets up, builds and runs all tests; says which were skipped and why; the last line is "N passed, N failed".
#
# usage: test.sh [lit option or path under build/test ...]
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/setup.sh --test
scripts/setup.sh --torch & # while the compiler builds
torch=$!
scripts/build.sh
wait $torch || echo "test.sh: PyTorch could not be installed: tests of what needs it are skipped"

results=build/test/results.json
rm -f $results
[[ $# -gt 0 ]] || set -- build/test
status=0
/usr/lib/llvm-22/bin/lit -sv -j2 -o $results "$@" || status=$?
[[ -f $results ]] || die "lit failed before it ran a test"
python3 - $results <<'END' || status=1
import collections, json, sys

with open(sys.argv[1]) as f:
    tests = json.load(f)["tests"]
for test in tests:
    if test["code"] in ("UNSUPPORTED", "SKIPPED"):
        why = " ".join(test["output"].split()) or test["code"].lower()
        print(f"skipped {test['name'].split(' :: ')[-1]}: {why}")
codes = collections.Counter(test["code"] for test in tests)
passed = codes["PASS"] + codes["FLAKYPASS"]
failed = sum(codes[c] for c in ("FAIL", "XPASS", "UNRESOLVED", "TIMEOUT"))
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0 or passed == 0)
END
exit $status
