"""The parts of the suite for GPUs that check: test programs, losses, ops, conversion of the state."""
import json
import os
import sys
import tempfile

import catalog
from carried import FOLDER, packed
from common import PEERS, Failed, farthest, last_line, run
from timing import Served

BARS = {"f32": dict(loss=1e-4, norm=1e-4), "bf16": dict(loss=1e-2, norm=5e-2)}
LIMIT = 280  # seconds of a program
HERE = os.path.dirname(os.path.abspath(__file__))


#===----------------------------------------------------------------------===#
# losses
#===----------------------------------------------------------------------===#

def loss_rows(kit):
    return {a.name: a for a in catalog.losses(kit.size)}


def reference(workload):
    """In f64; None where there is none."""
    with open(os.path.join(PEERS, "reference_losses.json")) as f:
        known = json.load(f)["workloads"].get(workload)
    return dict(loss=known["loss_f64"], norm=known["gradient_norm_f64"]) if known else packed()["expected"].get(workload)


def measure_losses(kit, artifact):
    with tempfile.TemporaryDirectory() as folder, kit.library(artifact) as library, \
            Served("trainc", kit.ours(artifact, library), folder, LIMIT) as served:
        ready = served.answer()["ready"]
    got = {key: ready[key] for key in ("loss", "norm")}
    cpu, want = packed()["expected"].get(f"cpu:{artifact.name}"), reference(artifact.workload)
    if not cpu:
        raise Failed("the pack has no losses of the processor")
    if ready["device"] == "cpu":
        raise Failed("ran on the processor")
    row = dict(element=artifact.element, got=got, to_cpu={k: farthest(got[k], cpu[k]) for k in got})
    if want:
        row["to_f64"] = {k: farthest(got[k], want[k]) for k in got}
        row["cpu_to_f64"] = {k: farthest(cpu[k], want[k]) for k in got}
    return row


LOSS_COLUMNS = ["loss, norm to the reference in f64", "the processor's", "to the processor's", "bar"]


def loss_cells(row):
    bars = BARS[row["element"]]
    errors = [row[k] for k in ("to_f64", "to_cpu") if k in row]
    texts = [f"{row[k]['loss']:.1e}, {row[k]['norm']:.1e}" if k in row else "-" for k in ("to_f64", "cpu_to_f64", "to_cpu")]
    return [*texts, f"{bars['loss']:.0e}, {bars['norm']:.0e}"], all(e[k] <= bars[k] for e in errors for k in bars)


#===----------------------------------------------------------------------===#
# tests: programs of test/Runtime/cuda that need this device
#===----------------------------------------------------------------------===#

def test_rows(kit):
    """{name: words of the command}; in a dry run those that the driver of tests can do, too."""
    return {name: words for name, (words, fakes) in packed()["tests"].items() if fakes or not kit.dry}


def measure_test(_, words):
    try:
        done = run([os.path.join(FOLDER, "build", "tests", word) for word in words], timeout=LIMIT, check=False,
                   cwd=os.path.join(FOLDER, "build", "tests"))
    except OSError as e:
        raise Failed(str(e)) from None
    return dict(code=done.returncode, output=(done.stdout + done.stderr)[-2000:])


TEST_COLUMNS = ["exit status", "last words"]


def test_cells(row):
    return [str(row["code"]), last_line(row["output"]) if row["output"].strip() else "-"], row["code"] == 0


#===----------------------------------------------------------------------===#
# products and determinism: programs of the same folder, with more to do
#===----------------------------------------------------------------------===#

def program(name, *words):
    done = run([os.path.join(FOLDER, "build", "tests", name), *map(str, words)], timeout=LIMIT, check=False)
    return dict(code=done.returncode, output=(done.stdout + done.stderr)[-8000:])


def product_rows(kit):
    return catalog.TIMED[kit.size]


def measure_products(_, words):
    row = program("products-times", *words)
    return row | dict(text=row["output"])


def repeated_rows(kit):
    return {f"{a.name}, {steps} steps": (a, steps) for a, steps in
            zip(catalog.repeated(kit.size), catalog.REPEATED[kit.size].values())}


def measure_repeated(kit, what):
    artifact, steps = what
    with kit.library(artifact) as library:
        return program("determinism", library, steps)


#===----------------------------------------------------------------------===#
# operations
#===----------------------------------------------------------------------===#

OPERATION_BARS = {"f32": 1e-4, "bf16": 2**-7, "f16": 2**-10}
WORSE = 1.5


def operation_rows(kit):
    return {element: element for element in catalog.OPERATIONS[kit.size]}


def measure_operations(kit, element):
    done = run([sys.executable, os.path.join(HERE, "operations.py"), os.path.join(FOLDER, "operations", kit.size), element],
               timeout=LIMIT)
    results = json.loads(done.stdout.strip().splitlines()[-1])
    if not results:
        raise Failed("no ops are packed")
    missing = {k.split("/")[2]: v for k, v in packed()["missing"].items() if k.startswith(f"operations/{kit.size}/")}
    return dict(element=element, results=results | {k: v for k, v in missing.items() if k.endswith(element)})


def bad_operations(row):
    bar = OPERATION_BARS[row["element"]]
    for op, found in row["results"].items():
        if isinstance(found, str):
            yield f"{op}: {found}"
        elif not found[0] < max(bar, WORSE * found[2]):
            yield f"{op} ({found[1]}): {found[0]:.1e}, the processor's {found[2]:.1e}"


OPERATION_COLUMNS = ["ops", "largest error, its case, the processor's", "bar", "bad"]


def operation_cells(row):
    errors = {op: found for op, found in row["results"].items() if not isinstance(found, str)}
    worst = max(errors, key=lambda op: errors[op][0], default=None)
    text = f"{errors[worst][0]:.1e} {errors[worst][1]} {errors[worst][2]:.1e}" if worst else "-"
    bad = list(bad_operations(row))
    return [str(len(row["results"])), text, f"{OPERATION_BARS[row['element']]:.1e}", "; ".join(bad) or "none"], not bad


#===----------------------------------------------------------------------===#
# conversion
#===----------------------------------------------------------------------===#

def conversion_rows(kit):
    return {a.name: a for a in [catalog.converted(kit.size)]}


def measure_conversion(kit, artifact):
    with kit.library(artifact) as library:
        done = run([sys.executable, os.path.join(HERE, "convert.py"), library, artifact.workload], timeout=LIMIT)
    return json.loads(done.stdout.strip().splitlines()[-1])


CONVERSION_COLUMNS = ["free over needed", "arenas converted beside, by the host", "expected", "bits"]


def conversion_cells(row):
    pair = row["enough"], row["less"]
    same = all(way["same"] for way in pair)
    good = all(way["ways"] == way["expected"] for way in pair) and pair[0]["ways"][1] == 0 and pair[1]["ways"][1] > 0
    return ["; ".join(f"{way['share']:.3f}" for way in pair),
            *("; ".join(f"{way[key][0]}, {way[key][1]}" for way in pair) for key in ("ways", "expected")),
            "equal" if same else "differ"], good and same
