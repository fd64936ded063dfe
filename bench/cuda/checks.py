"""The parts of the suite for GPUs that check: losses, test programs, conversion of the state."""
import json
import os
import tempfile

import catalog
from common import PEERS, Failed
from parts import packed
from timing import Served

BARS = {"f32": dict(loss=1e-4, norm=1e-4), "bf16": dict(loss=1e-2, norm=5e-2)}
LIMIT = 280


def far(got, want):
    """The largest relative error; infinity if one is not a number."""
    return max(abs(g - w) / abs(w) if g == g else float("inf") for g, w in zip(got, want))


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
    with tempfile.TemporaryDirectory() as folder, Served("trainc", kit.ours(artifact), folder, LIMIT) as served:
        ready = served.answer()["ready"]
    got = {key: ready[key] for key in ("loss", "norm")}
    cpu, want = packed()["expected"].get(f"cpu:{artifact.name}"), reference(artifact.workload)
    if not cpu:
        raise Failed("the pack has no losses of the processor")
    if ready["device"] == "cpu":
        raise Failed("ran on the processor")
    row = dict(element=artifact.element, got=got, to_cpu={k: far(got[k], cpu[k]) for k in got})
    if want:
        row["to_f64"] = {k: far(got[k], want[k]) for k in got}
        row["cpu_to_f64"] = {k: far(cpu[k], want[k]) for k in got}
    return row


LOSS_COLUMNS = ["loss, norm to the reference in f64", "the processor's", "to the processor's", "bar"]


def loss_cells(row):
    bars = BARS[row["element"]]
    errors = [row[k] for k in ("to_f64", "to_cpu") if k in row]
    texts = [f"{row[k]['loss']:.1e}, {row[k]['norm']:.1e}" if k in row else "-" for k in ("to_f64", "cpu_to_f64", "to_cpu")]
    return [*texts, f"{bars['loss']:.0e}, {bars['norm']:.0e}"], all(e[k] <= bars[k] for e in errors for k in bars)
