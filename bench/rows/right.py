"""Rows on what outside engineers found, on the tables of bench/results, and on what CI runs."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import results
from common import ENVIRONMENT, ROOT, Failed, last_line
from rows import Outcome, judge
from rows.passes import lit_codes

PARTS = ("core", "passes", "ranks", "cpu", "cuda", "mesh")
FIRST_FAMILY = "Intel, AVX2 AVX-512 AVX512-BF16 AMX"  # where every row was ok at 1a720a8

# Findings.

FINDINGS = os.path.join(ROOT, "bench", "findings")
# What must have a row in bench/findings: the sections of the review by letter and number.
EXPECTED = {
    "B": ["cause", "i", "ii", "iii", "iv"],
    "C": [str(i) for i in range(1, 10)],
    "D": [f"{letter}{i}" for letter, count in zip("ABCDEF", (7, 3, 5, 4, 8, 10)) for i in range(1, count + 1)] + ["U1", "U2", "U3", "U4", "U5"],
    "E": [f"C{i}" for i in range(1, 10)] + [f"E{i}" for i in range(1, 13)] + ["pack", "cleanliness"],
}


def read_findings():
    """{'section finding': [tests] or the reason}."""
    found = {}
    for path in sorted(glob.glob(os.path.join(FINDINGS, "*.md"))):
        with open(path) as f:
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in f if line.startswith("|")][2:]
        section = os.path.basename(path)[0]
        for finding, _, test in rows:
            key = f"{section} {finding.split(':')[0].split()[0]}"
            tests = re.findall(r"(?:test|bench)/[\w./-]+", test) if not test.startswith("reason:") else test
            if isinstance(tests, str) or isinstance(found.get(key), str):
                found.setdefault(key, tests)
            else:
                found[key] = found.get(key, []) + tests
    return found


def findings(folder):
    found = read_findings()
    missing = [f"{section} {name}" for section, names in EXPECTED.items() for name in names if f"{section} {name}" not in found]
    bad = [f"{key}: no test and no reason" for key, tests in found.items() if not tests]
    named = sorted({test for tests in found.values() if isinstance(tests, list) for test in tests})
    bad += [f"{test} does not exist" for test in named if not os.path.exists(os.path.join(ROOT, test))]
    codes = lit_codes([os.path.join(ROOT, test) for test in named if test.startswith("test/")
                       and os.path.exists(os.path.join(ROOT, test))])
    bad += [f"{name}: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS", "UNSUPPORTED")]
    unsupported = sum(code == "UNSUPPORTED" for code in codes.values())
    reasons = sum(isinstance(tests, str) for tests in found.values())
    return judge(not missing and not bad, "; ".join([
        f"{len(found)} findings: {len(found) - reasons} mended, {reasons} answered; {len(codes)} tests, {len(bad)} bad,"
        f" {unsupported} that this machine cannot run", *([f"no row for {', '.join(missing)}"] if missing else []), *bad[:6]]))


# Tables.

def known_as_short(part, row):
    """Whether docs/Status.md says that a row is short on this family: a line with `PART` `ROW` and the family."""
    with open(os.path.join(ROOT, "docs", "Status.md")) as f:
        return any(f"`{part}` `{row}`" in line and results.family() in line for line in f)


def measured_again(part, row):
    """The status of a row, measured now."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "again.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "check.py"), part, "--only", row, "--json", path],
                       stdout=subprocess.DEVNULL)
        with open(path) as f:
            return json.load(f)["rows"][row]["status"]


def tables(folder):
    """One row of each table, drawn by the commit's hash, is measured again; it must not be worse than the table says."""
    family, bad, again, commits = results.family(), [], [], set()
    draw = int(results.git("rev-parse", "HEAD")[:8], 16)
    for part in PARTS:
        table = results.read(part)
        if not table:
            bad.append(f"{part}: no table of {family}")
            continue
        commits.add(table.commit)
        if results.code(table.commit) != results.code():
            bad.append(f"{part}: {' '.join(results.CODE)} changed since {table.commit}")
            continue
        for row, status in table.statuses.items():
            if status == "short" and (family == FIRST_FAMILY or not known_as_short(part, row)):
                bad.append(f"{part} {row} is short")
        row = list(table.statuses)[draw % len(table.statuses)]
        status = measured_again(part, row)
        again.append(f"{part} {row}: {status}")
        if status == "short" and table.statuses[row] != "short":
            bad.append(f"{part} {row} is short when measured again")
    if len(commits) > 1:
        bad.append(f"measured at {len(commits)} commits")
    return judge(not bad, "; ".join([f"{len(PARTS)} tables of {family}; measured again: {', '.join(again) or 'none'}", *bad]))


# Audit.

def precision_of(side):
    """The type of the products, which must be that of all sides."""
    return side["precision"].split()[0].strip(",")


def audit(folder):
    bad, compared = [], 0
    for part in PARTS:
        table = results.read(part)
        if not table:
            bad.append(f"{part}: no table of {results.family()}")
            continue
        groups = {}
        for side in table.sides:
            groups.setdefault((side["row"], side["workload and data"], precision_of(side)), []).append(side)
        for (row, workload, _), sides in groups.items():
            compared += 1
            if len({side["threads"] for side in sides}) > 1:
                bad.append(f"{part} {row}, {workload.split(':')[0]}: threads differ: "
                           + ", ".join(f"{side['side']} {side['threads']}" for side in sides))
            if any(not side["settings"] for side in sides):
                bad.append(f"{part} {row}: a side without version and settings")
        ours = {key for key, sides in groups.items() if any(side["side"] == "trainc" for side in sides)}
        bad += [f"{part} {row}: {precision} of {workload.split(':')[0]} without trainc" for row, workload, precision in groups
                if (row, workload, precision) not in ours and any(s["side"].startswith(("torch", "jax"))
                                                                  for s in groups[row, workload, precision])
                and part != "ranks"]
    return judge(not bad and compared, "; ".join([f"{compared} comparisons: workload, versions, settings, precision, threads and data"
                                                  " are printed beside the tables; all sides of each have the same threads and"
                                                  " type of products", *bad[:6]]))


# CI.

MINUTES = 60


def ci(folder):
    """In a clean clone of HEAD, without ccache. Its .venv is made anew; Debian packages may be there."""
    clone = os.path.join(folder, "clone")
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    start = time.perf_counter()
    try:
        done = subprocess.run(["bash", ".ci/run"], cwd=clone, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=5400, env={**ENVIRONMENT, "CCACHE_DISABLE": "1"})
    except subprocess.TimeoutExpired as e:
        raise Failed(f".ci/run: no end after {e.timeout / 60:.0f} minutes") from None
    minutes, last = (time.perf_counter() - start) / 60, (done.stdout.strip().splitlines() or ["no output"])[-1]
    if done.returncode:
        return Outcome(f"exit {done.returncode} after {minutes:.0f} minutes: {last}; {last_line(done.stdout)}", "short")
    return judge(minutes <= MINUTES, f"{last}, {minutes:.0f} minutes on {len(os.sched_getaffinity(0))} CPUs")
