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
from pass_tests import lit_codes
from rows import Outcome, judge

PARTS = ("core", "passes", "ranks", "cpu", "cuda", "mesh")
FIRST = "1a720a8"  # where every row was ok, on a CPU with AMX
NEEDS_A_DEVICE = {("cuda", "gpu")}  # rows that cannot run everywhere

# Findings.

FINDINGS = os.path.join(ROOT, "bench", "findings")
# What must have a row there, by section of the review; a section may have several files (D-files.md).
EXPECTED = {
    "B": ["cause", "i", "ii", "iii", "iv"],
    "C": [str(i) for i in range(1, 10)],
    "D": [*(f"{letter}{i}" for letter, count in zip("ABCDEF", (7, 3, 5, 4, 8, 10)) for i in range(1, count + 1)),
          "user: folder of another run", "user: scalars", "user: `--eval` of random weights", "C headers", "`--memory-report -o m.so`"],
    "E": [*(f"C{i}" for i in range(1, 10)), *(f"E{i}" for i in range(1, 13)), "pack", "cleanliness"],
}


def names_of(section, finding):
    """What of EXPECTED a row is about: its first words, or more of them between commas; else its own text."""
    parts = [finding, *re.split(r", ", finding)]
    return [name for name in EXPECTED.get(section, []) if any(re.match(re.escape(name) + r"(?![\w])", part) for part in parts)] or [finding]


def read_findings():
    """{(section, name): ([tests], whether a reason is given)}."""
    found = {}
    for path in sorted(glob.glob(os.path.join(FINDINGS, "*.md"))):
        with open(path) as f:
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in f if line.startswith("|")][2:]
        section = os.path.basename(path)[0]
        for finding, *_, test in rows:
            for name in names_of(section, finding):
                tests, reason = found.get((section, name), ([], False))
                found[section, name] = tests + re.findall(r"test/[\w./-]+\.\w+", test), reason or "reason:" in test
    return found


def needs_hardware(test):
    """Whether a test asks for a CPU or a device that not every machine has."""
    with open(os.path.join(ROOT, "test", test)) as f:
        return bool(re.search(r"REQUIRES:.*\b(amx|cuda-device|cublaslt|nccl-library)\b", f.read()))


def findings(folder):
    found = read_findings()
    missing = [f"{section} {name}" for section, names in EXPECTED.items() for name in names if (section, name) not in found]
    bad = [f"{section} {name}: no test and no reason" for (section, name), (tests, reason) in found.items() if not tests and not reason]
    named = sorted({test for tests, _ in found.values() for test in tests})
    absent = [test for test in named if not os.path.exists(os.path.join(ROOT, test))]
    codes = lit_codes([os.path.join(ROOT, test) for test in named if test not in absent])
    bad += [f"{test} does not exist" for test in absent]
    bad += [f"{name}: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS", "UNSUPPORTED")]
    bad += [f"{len(codes)} results of {len(named) - len(absent)} tests"] * (len(codes) != len(named) - len(absent))
    unsupported = [name.split(" :: ")[-1] for name, code in codes.items() if code == "UNSUPPORTED"]
    bad += [f"{name} has not run, and needs no hardware" for name in unsupported if not needs_hardware(name)]
    mended = sum(bool(tests) for tests, _ in found.values())
    return judge(not missing and not bad, "; ".join([
        f"{len(found)} findings: {mended} with tests, {len(found) - mended} answered by a reason; {len(codes)} tests; this machine cannot run:"
        f" {', '.join(unsupported) or 'none'}", *([f"no row for {', '.join(missing)}"] if missing else []), *bad[:8]]))


# Tables.

def known_as_short(part, row, cpu):
    """Whether docs/Status.md says that a row is short on a CPU: a line with `PART` `ROW` and "is short on CPU:"."""
    with open(os.path.join(ROOT, "docs", "Status.md")) as f:
        return any(f"`{part}` `{row}` is short on {cpu}:" in line for line in f)


def is_good(part, row, cpu, status):
    """Whether a status may stand in a table: what is short on a CPU with AMX, where every row was ok once, may not."""
    if status.startswith("cannot run here"):
        return (part, row) in NEEDS_A_DEVICE
    return status == "ok" or not cpu.endswith(" AMX") and known_as_short(part, row, cpu)


def measured_again(part, row):
    """The status of a row, measured now."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "again.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "check.py"), part, "--only", row, "--json", path],
                       stdout=subprocess.DEVNULL)
        with open(path) as f:
            return json.load(f)["rows"][0]["status"]


def tables(folder):
    """Each row counts on each CPU that it was measured on. One row of each part, drawn by the commit's hash, is measured again."""
    import check  # which makes the rows
    bad, again, of, amx = [], [], [], []
    draw, here = int(results.git("rev-parse", "HEAD")[:8], 16), results.cpu()
    for part in PARTS:
        found, bars = results.read(part), {row.name: row.bar.replace("|", "/") for row in check.ROWS[part]()}
        of += [f"{part}: {len(table.statuses)} rows of {table.cpu} ({table.commit[:7]})" for table in found]
        amx += [part for table in found if table.cpu.endswith(" AMX")]
        missing = bars.keys() - {row for table in found for row in table.statuses}
        if missing:
            bad.append(f"{part}: {', '.join(sorted(missing))}: not measured since {' '.join(results.CODE)} changed")
        for table in found:
            bad += [f"{part} {row} is {status} on {table.cpu}" for row, status in table.statuses.items()
                    if not is_good(part, row, table.cpu, status)]
            bad += [f"{part} {row}: another bar than in the table of {table.cpu}" for row, bar in table.bars.items() if bar != bars.get(row)]
        row = list(bars)[draw % len(bars)]
        status = measured_again(part, row)
        again.append(f"{part} {row}: {status}")
        if not is_good(part, row, here, status):
            bad.append(f"{part} {row} is {status} when measured again")
    if len(amx) < len(PARTS):
        of.append(f"not measured again where every row was ok at {FIRST}, on AMX: {', '.join(part for part in PARTS if part not in amx)}")
    return judge(not bad, "; ".join([*of, f"measured again: {', '.join(again) or 'none'}", *bad]))


# Audit.

REFERENCE = "f64"  # what both sides' numbers are compared with


def precision_of(side):
    """The type of the products, which must be that of all sides; that of the residual stream is printed."""
    return side["precision"].split()[0].strip(",")


def audit(folder):
    bad, compared = [], 0
    for part in PARTS:
        found, groups = results.read(part), {}
        if not found:
            bad.append(f"{part}: no table of the code as it is")
        for side in (side for table in found for side in table.sides):
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
                if (row, workload, precision) not in ours and precision != REFERENCE and part != "ranks"
                and any(s["side"].startswith(("torch", "jax")) for s in groups[row, workload, precision])]
    return judge(not bad and compared, "; ".join([f"{compared} comparisons: workload, versions, settings, precision, threads and data"
                                                  " are printed beside the tables; all sides of each have the same threads and"
                                                  " type of products", *bad[:6]]))


# CI.

MINUTES = 60


def ci(folder):
    """In a clean clone of HEAD, without ccache. Its .venv is made anew; Debian packages may be there."""
    clone = os.path.join(folder, "clone")
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    start, cores = time.perf_counter(), sorted(os.sched_getaffinity(0))[:2]
    try:
        done = subprocess.run(["taskset", "-c", ",".join(map(str, cores)), "bash", ".ci/run"], cwd=clone, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=5400, env={**ENVIRONMENT, "CCACHE_DISABLE": "1"})
    except subprocess.TimeoutExpired as e:
        raise Failed(f".ci/run: no end after {e.timeout / 60:.0f} minutes") from None
    minutes, last = (time.perf_counter() - start) / 60, (done.stdout.strip().splitlines() or ["no output"])[-1]
    if done.returncode:
        failed = [line.split(" :: ")[-1] for line in done.stdout.splitlines() if line.startswith("FAIL: ")]
        return Outcome(f"exit {done.returncode} after {minutes:.0f} minutes: {last}; {', '.join(failed) or last_line(done.stdout)}", "short")
    return judge(minutes <= MINUTES, f"{last}, {minutes:.0f} minutes on {len(cores)} CPUs")
