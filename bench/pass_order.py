"""The order of the passes: which follow each other, and why some of these cannot change places. Descriptions in Passes.td say that:
"Runs after `a` and `b`: the reason."
"""
import re

from common import run, tool
from pass_tests import table_files

PIPELINES = [[], ["--mesh=data=2"], ["--target=cuda"], ["--target=cuda", "--mesh=data=2"]]
NAMES = r"`[\w-]+`(?:(?:, | and )`[\w-]+`)*"


def phases(*options):
    """The arguments of the passes of each phase, in their order."""
    return [line.split() for line in run([tool("trainc"), "--print-passes", *options, "-"]).stdout.splitlines()]


def pairs(*options):
    """Those that follow each other in a phase."""
    return [pair for phase in phases(*options) for pair in zip(phase, phase[1:])]


def reasons():
    """{(a pass, the next one): why they cannot change places}."""
    found = {}
    for _, text in table_files("Passes.td"):
        for name, body in re.findall(r':\s*Pass<"([^"]+)".*?let description = \[\{(.*?)\}\];', text, re.S):
            for before, reason in re.findall(rf"Runs after ({NAMES}):\s*([^.]+)\.", " ".join(body.split())):
                found |= {(first, name): reason for first in re.findall(r"`([\w-]+)`", before)}
    return found


def swappable(*options):
    """The pairs without such a reason."""
    known = reasons()
    return [pair for pair in pairs(*options) if pair not in known]


def swap(pair):
    """The options by which two passes change places; they do, or it is an error."""
    return [f"--swap-passes={','.join(pair)}"]


def stale():
    """Reasons of passes that do not follow each other."""
    return sorted(set(reasons()) - {pair for options in PIPELINES for pair in pairs(*options)})
