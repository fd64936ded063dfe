"""Timing compilations, in turns."""
import time

from common import run


def time_compilations(commands, rounds):
    """{side: [milliseconds of each round]} of {side: command}; a round before these only warms up."""
    times = {side: [] for side in commands}
    for turn in range(rounds + 1):
        for side, command in commands.items():
            begin = time.perf_counter()
            run(command)
            if turn:
                times[side].append((time.perf_counter() - begin) * 1e3)
    return times
