"""The tables of bench/results: a file per part of check.py, with a section per CPU, each of one commit of the code. A part may be measured
on several CPUs, some rows on each: a section has the rows of its CPU."""
import os
import re
import subprocess
from dataclasses import dataclass

import audit
from common import BUILD, ROOT, target_cpu

FOLDER = os.path.join(ROOT, "bench", "results")
CODE = ("lib", "include", "runtime", "tools")  # what a table speaks of
OF_TORCH = (*CODE, "python")
HEADER = "| figure | value | bar | |"


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()


def commit():
    """That of the work tree; rows and tables that stand in it meanwhile are no change."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if changed else "")


def code(revision="HEAD", folders=CODE):
    """What the folders hold at a revision, as one word; that of the work tree is another if it differs."""
    trees = git("rev-parse", *(f"{revision}:{folder}" for folder in folders)).split()
    changed = revision == "HEAD" and git("status", "--porcelain", "--", *folders)
    return "-".join(tree[:8] for tree in trees) + ("-dirty" if changed else "")


def not_built():
    """What the build folder has to do before its programs are those of the work tree; nothing if that is so."""
    last = (subprocess.run(["ninja", "-C", BUILD, "-n"], capture_output=True, text=True).stdout.strip().splitlines() or ["no build"])[-1]
    return "" if "no work to do" in last else last


def cpu_field(name):
    with open("/proc/cpuinfo") as f:
        return next(line.split(":", 1)[1].strip() for line in f if line.startswith(name))


def family():
    """Who made the CPU, and its vector units: machines of one family run the same code, with the same bits."""
    flags = cpu_field("flags").split()
    units = [name for name, flag in (("AVX2", "avx2"), ("AVX-512", "avx512f"), ("AVX512-BF16", "avx512_bf16"), ("AMX", "amx_tile"))
             if flag in flags]
    vendor = dict(GenuineIntel="Intel", AuthenticAMD="AMD").get(cpu_field("vendor_id"), cpu_field("vendor_id"))
    return f"{vendor}, {' '.join(units)}"


def cpu():
    """The family and the generation: the times of two machines compare if these are the same."""
    vendor, units = family().split(", ")
    return f"{vendor} {target_cpu()}, {units}"


def machine():
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cpu_field('model name')}, {len(os.sched_getaffinity(0))} CPUs, {gibibytes:.0f} GiB"


def sections(report):
    """{heading: table} of a report, by CPU: its rows, and who ran against whom."""
    found = {}
    for of in dict.fromkeys(r["cpu"] for r in report["rows"]):
        rows = {r["name"]: r for r in report["rows"] if r["cpu"] == of}
        commits = {c: [name for name, r in rows.items() if r["commit"] == c] for c in dict.fromkeys(r["commit"] for r in rows.values())}
        machines, versions = (dict.fromkeys(r[fact] for r in rows.values()) for fact in ("machine", "versions"))
        lines = [f"## {of}", "", f"Commit {report['commit']}, {report['date']}. {'; '.join(machines)}.", f"{'; '.join(versions)}.",
                 *(f"Commit {c[:7]}, of the same code: {', '.join(names)}." for c, names in commits.items() if c != report["commit"]),
                 "", HEADER, "|---|---|---|---|"]
        for name, r in rows.items():
            cells = (f"{r['figure']} (`{name}`)", r["value"], r["bar"], r["status"])
            lines.append("| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in cells) + " |")
        found[lines[0]] = "\n".join([*lines, *audit.table(rows)])
    return found


def path_of(part):
    return os.path.join(FOLDER, f"{part}.md")


def split(text):
    """(what stands above the sections, {heading: section})."""
    head, *rest = re.split(r"^(?=## )", text, flags=re.M)
    return head, {s.splitlines()[0]: s.rstrip("\n") for s in rest}


def write(part, report):
    with open(path_of(part)) as f:
        head, written = split(f.read())
    written |= sections(report)
    with open(path_of(part), "w") as f:
        f.write(head + "\n\n".join(written.values()) + "\n")


@dataclass
class Table:
    """A section of a file: its rows' statuses and bars by name, and the lines of its audit."""
    cpu: str
    commit: str
    statuses: dict
    bars: dict
    sides: list  # dicts by audit.COLUMNS


def read(part):
    """The Tables of the code as it is."""
    with open(path_of(part)) as f:
        _, written = split(f.read())
    tables = [parse(heading.removeprefix("## "), text) for heading, text in written.items()]
    return [t for t in tables if code(t.commit) == code()]


def parse(cpu, text):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    statuses, bars = ({re.search(r"\(`([\w-]+)`\)$", cells[0])[1]: cells[i] for cells in rows if cells[0].endswith("`)")} for i in (-1, -2))
    sides = [dict(zip(audit.COLUMNS, cells)) for cells in rows if len(cells) == len(audit.COLUMNS)][1:]
    return Table(cpu, re.search(r"^Commit (\S+),", text, re.M)[1], statuses, bars, sides)
