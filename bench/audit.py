"""Who takes part in a measurement: what each side runs, in which version, with which settings, precision, threads and data.

Programs say it of themselves when they are ready to be timed; check.py prints it below the table.
"""
import os
from dataclasses import dataclass

from common import run, tool
from workloads import ALL_WORKLOADS, describe

COLUMNS = ("row", "side", "settings", "precision", "threads", "workload and data")
_sides = []


def start():
    """Forgets the sides of the last row."""
    _sides.clear()


def sides():
    """[[side, settings, precision, threads, workload and data]] of this row, each once."""
    return [list(side) for side in dict.fromkeys(_sides)]


def note(side, settings, precision, threads, workload):
    _sides.append((side, settings, precision, str(threads), workload))


@dataclass(frozen=True)
class Ours:
    """What a program of trainc runs, which does not say it of itself; `options` are those of the compiler beside its defaults."""
    workload: str
    bf16: bool = False
    options: tuple = ()
    wide: bool = False  # in bf16: with the residual stream in f32

    def note(self, side, threads):
        version = run([tool("trainc"), "--version"]).stdout.strip().splitlines()[0]
        precision = "bf16" if self.bf16 else "f32"
        if self.bf16 and ALL_WORKLOADS[self.workload].kind == "gpt":
            precision += f", residual stream in {'f32' if self.wide else 'bf16'}"
        note(side, " ".join([version, *self.options]), precision, threads, describe(self.workload))


def note_program(side, answer, ours):
    """Notes a program by the line that it prints when it is ready; `ours` is what it runs if it is no peer. The limit is not noted."""
    about = answer["ready"]
    if isinstance(about, dict) and "settings" in about:
        note(side, about["settings"], about["precision"], about["threads"], about["data"])
    elif ours and side != "limit":
        threads = answer.get("threads") or len(os.sched_getaffinity(0))
        ours.note(side, threads)


def table(rows):
    """The lines of the table of rows {name: result}; none if no row has sides."""
    lines = [(name, *side) for name, result in rows.items() for side in result.get("sides", [])]
    if not lines:
        return []
    return ["", "Who ran against whom:", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS),
            *("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)]
