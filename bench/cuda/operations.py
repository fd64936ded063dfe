"""Every op and its gradient on a GPU against JAX: operations.py FOLDER TYPE.

FOLDER has for each op OP.TYPE.so.xz, a module as test/Integration/gradients.py makes it, and OP.TYPE.npz, its operands and what JAX
says of results and gradients. Prints {op: [largest error, case, that of the processor's code]} or {op: text} as JSON.
"""
import glob
import json
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]

import numpy as np  # noqa: E402

from carried import unpacked  # noqa: E402
from common import RUNTIME_LIBRARY  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402


def distance(got, want):
    return float(np.linalg.norm(np.asarray(got, np.float64) - want) / (np.linalg.norm(want) or 1.0))


def errors(runtime, library, values):
    """{case number: error}"""
    cases = sorted({name.split(":")[0] for name in values}, key=int)

    def of(case, kind):
        start = f"{case}:{kind}:"
        return {name[len(start):]: values[name] for name in values if name.startswith(start)}

    result = {}
    with Trainer(runtime, library, device=b"cuda") as trainer:
        for case in cases:
            for name, value in of(case, "parameter").items():
                trainer.write(name, value)
            trainer.bind(f"f{case}", **of(case, "input"))
            trainer.bind("step", **of(case, "input"), **of(case, "weights"))
        for _ in range(2):
            trainer.step()
        scale = trainer.scalar("read_scale")
        for case in cases:
            gradients = {name: trainer.read(name, "gradient").astype(np.float64) * scale for name in of(case, "parameter")}
            found = [distance(trainer.eval(f"f{case}")["r"], of(case, "result")["r"])]
            found += [distance(gradients[name], want) for name, want in of(case, "gradient").items()]
            result[case] = float(np.max(found))
    return result


def main():
    folder, element = sys.argv[1:3]
    runtime, results = Runtime(RUNTIME_LIBRARY), {}
    with open(os.path.join(folder, "cases.json")) as f:
        known = json.load(f)  # {op.type: [[name of a case, the processor's error]]}
    for path in sorted(glob.glob(os.path.join(folder, f"*.{element}.npz"))):
        op = os.path.basename(path)[:-len(".npz")]
        try:
            with np.load(path) as values, unpacked(os.path.join(folder, op + ".so")) as library:
                found = errors(runtime, library, dict(values))
        except Error as e:
            results[op] = str(e)
            continue
        worst = max(found, key=lambda case: found[case] if found[case] == found[case] else float("inf"))
        name, cpu = known[op][int(worst)]
        results[op] = [found[worst], name, cpu]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
