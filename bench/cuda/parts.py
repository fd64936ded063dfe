"""The parts of the suite for GPUs that take times: each row of a part takes turns with its peers and its limit."""
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from statistics import median

import catalog
from carried import FOLDER, packed, unpacked
from catalog import Artifact
from common import PEERS, Failed, largest, last_line, run, tool
from timing import take_turns
from workloads import ALL_WORKLOADS, flops, parameter_count, parameters

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = "copy"  # the name of the program
ROUNDS = 5
START_SECONDS = 240  # that a peer may take to compile and to warm up
NORM_BYTES, UPDATE_BYTES, COPY_BYTES = 4, 28, 2  # of a parameter
UPDATE_BAR, STEP_BAR = 0.9, 1.2


class Kit:
    """Where artifacts are and how programs run: on the GPU, or on the driver of tests."""

    def __init__(self, dry):
        self.dry, self.size = dry, "tiny" if dry else "full"
        self.rounds = 1 if dry else ROUNDS
        self.numpy = importlib.util.find_spec("numpy") is not None
        self.torch = self.numpy and importlib.util.find_spec("torch") is not None
        self.jax = self.numpy and all(map(importlib.util.find_spec, ("jax", "optax")))

    @contextlib.contextmanager
    def library(self, artifact, size=None):
        """Its path while it is needed."""
        name = f"{size or self.size}/{artifact.name}"
        path = os.path.join(FOLDER, "artifacts", name + ".so")
        if not os.path.exists(path + ".xz"):
            raise Failed(f"{name} is not packed: {packed()['missing'].get(name, 'its part was not asked for')}")
        with unpacked(path) as library:
            yield library

    def ours(self, artifact, library, *options):
        if not self.numpy:  # on generated inputs, and whole steps alone
            return [tool("trainc-run"), library, "--serve", "--device=cuda"]
        return [sys.executable, os.path.join(HERE, "serve.py"), library, artifact.workload, *options,
                *(["--update"] if artifact.update else [])]

    def peer(self, script, artifact, *options, environment=()):
        words = [] if not environment else ["env", *environment]
        return [*words, sys.executable, os.path.join(PEERS, script), "--serve", "--workload", artifact.workload, *options,
                *(["--bf16"] if artifact.element == "bf16" else [])]

    def torch_peer(self, artifact, *options):
        return self.peer("torch_peer.py", artifact, *options, "--device", "cpu" if self.dry else "cuda")

    def turns(self, programs, steps):
        """Times, what programs say of themselves, and why some are missing: of peers, as {name: command}, and of ours, as
        {name: (artifact, options of serve.py)}. Ours and the limit must be there."""
        ready, failed, commands = {}, {}, {}
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            for name, program in programs.items():
                if isinstance(program, tuple):
                    artifact, *options = program
                    program = self.ours(artifact, stack.enter_context(self.library(artifact)), *options)
                commands[name] = program
            times = take_turns(commands, folder, self.rounds, 2 if self.dry else steps, ready, failed, START_SECONDS)
        for name, program in programs.items():
            if name in failed and (isinstance(program, tuple) or name == LIMIT):
                raise Failed(f"{name}: {failed[name]}")
        return dict(times=times, ready=ready, failed=failed)


def in_turn(row, peer, ours="trainc", part="step_ms", of="step_ms"):
    """The median over the rounds of a peer's time over ours; None if one is missing."""
    times = row["times"]
    if peer not in times or of not in times[peer] or part not in times[ours]:
        return None
    return median(p / t for p, t in zip(times[peer][of], times[ours][part]))


def shown(ratio):
    return "-" if ratio is None else f"{ratio:.2f}x"


def failures(row):
    return "; ".join(f"{name}: {text}" for name, text in row["failed"].items())


#===----------------------------------------------------------------------===#
# optimizer: clip and AdamW alone
#===----------------------------------------------------------------------===#

TORCH_UPDATES = {"torch fused": ("--optimizer", "fused"), "torch foreach": ("--optimizer", "foreach"),
                 "torch fused, graph": ("--optimizer", "fused", "--mode", "graph"),
                 "torch compiled": ("--optimizer", "compiled")}
COMPILED_TENSORS = 200  # more take PyTorch minutes to compile
MULTI_TENSOR = os.path.join(FOLDER, "artifacts", "multi_tensor.fatbin")


def update_rows(kit):
    return {a.name: a for a in catalog.updates(kit.size)}


def measure_update(kit, artifact):
    w = ALL_WORKLOADS[artifact.workload]
    count, copies = parameter_count(w), COPY_BYTES * (artifact.element == "bf16")
    limit = [f"update={count * (UPDATE_BYTES + copies)}", f"step={count * (NORM_BYTES + UPDATE_BYTES + copies)}"]
    commands = {"trainc": (artifact, "--commands"), "copy": [sys.executable, os.path.join(HERE, "limit.py"), *limit]}
    if kit.torch:
        for name, options in TORCH_UPDATES.items():
            if name == "torch fused" if kit.dry else name != "torch compiled" or len(parameters(w)) <= COMPILED_TENSORS:
                commands[name] = kit.torch_peer(artifact, *options)
    if os.path.exists(MULTI_TENSOR) and not kit.dry:
        commands["multi-tensor"] = [sys.executable, os.path.join(HERE, "multi_tensor.py"), MULTI_TENSOR, artifact.workload,
                                    *(["--bf16"] if artifact.element == "bf16" else [])]
    return kit.turns(commands, 100)


UPDATE_COLUMNS = ["update / copy", "clip and update / copy", *(f"faster than {p}" for p in TORCH_UPDATES),
                  "faster than multi-tensor", "norms agree", "copy moved"]


def update_cells(row):
    # A step that uses the copies has more to do than the update.
    whole = "apply" if ".bf16" in row["name"] and "apply" in row["times"]["trainc"] else "step_ms"
    alone = in_turn(row, "copy", part="update", of="update")
    copies = row["times"]["copy"]["update"]
    norms = {name: ready["loss"] for name, ready in row["ready"].items() if isinstance(ready, dict) and "loss" in ready}
    apart = largest([0.0, *(abs(a - b) / b for losses in norms.values() for a, b in zip(norms["trainc"], losses))])
    verdict = alone >= UPDATE_BAR and apart < 1e-5 if alone is not None else None
    peers = [shown(in_turn(row, p, part=whole)) for p in [*TORCH_UPDATES, "multi-tensor"]]
    return [shown(alone), shown(in_turn(row, "copy", part=whole, of="step")), *peers, f"{apart:.0e}", f"{max(copies) / min(copies):.2f}x"], verdict


#===----------------------------------------------------------------------===#
# step: whole steps
#===----------------------------------------------------------------------===#

TORCH_STEPS = {"torch eager": "eager", "torch compile": "compile", "torch reduce-overhead": "reduce-overhead",
               "torch compile, graph": "graph"}
AUTOTUNED = {"torch max-autotune, graph": "max-autotune"}
JAX_PRECISION = {"highest": "highest", "high": "tensorfloat32"}


def step_rows(kit):
    return {a.name: a for a in catalog.steps(kit.size)}


def measure_step(kit, artifact, modes=TORCH_STEPS):
    precision = "high" if artifact.element == "tf32" else "highest"
    commands = {"trainc": (artifact,)}
    if kit.torch:
        for name, mode in modes.items():
            if mode in ("eager", "compile") if kit.dry else artifact.element == "bf16" or mode in ("compile", "graph"):
                commands[name] = kit.torch_peer(artifact, "--mode", mode, "--precision", precision)
    if kit.jax and modes is TORCH_STEPS:
        commands["jax"] = kit.peer("jax_peer.py", artifact, environment=(
            "XLA_PYTHON_CLIENT_PREALLOCATE=false", f"JAX_DEFAULT_MATMUL_PRECISION={JAX_PRECISION[precision]}"))
    return kit.turns(commands, 10 if artifact.workload.endswith(catalog.LARGE) else 30)


def measure_autotuned(kit, artifact):
    return measure_step(kit, artifact, AUTOTUNED)


def autotuned_rows(kit):
    return {name: a for name, a in step_rows(kit).items() if a.element == "bf16"}


STEP_PEERS = [*TORCH_STEPS, *AUTOTUNED, "jax"]
STEP_COLUMNS = [*(f"faster than {p}" for p in STEP_PEERS), "than the best", "losses of 5 updates: ours", "the best peer's"]


def step_cells(row):
    ratios = {p: in_turn(row, p) for p in STEP_PEERS if p in row["times"]}
    best = min(ratios, key=ratios.get, default=None)
    texts = ["-" if name not in row["ready"] else " ".join(f"{x:.5g}" for x in row["ready"][name]["loss"])
             for name in ("trainc", best)]
    return ([*(shown(ratios.get(p)) for p in STEP_PEERS), shown(ratios.get(best)), *texts],
            best is not None and (ratios[best] >= STEP_BAR or "bf16" not in row["name"]))


#===----------------------------------------------------------------------===#
# ablation: without a pass, and without graphs
#===----------------------------------------------------------------------===#

def ablation_rows(kit):
    return catalog.ablations(kit.size)


def measure_ablation(kit, pair):
    commands = {f"{side}{', plain' * bool(options)}": (artifact, *options)
                for options in ((), ("--no-graphs",)) for side, artifact in zip(("on", "off"), pair)}
    row = kit.turns(commands, 30)
    # Of windows of several micro-batches: per micro-batch.
    row["batches"] = [ALL_WORKLOADS[a.workload].accumulate for a in pair]
    return row


ABLATION_COLUMNS = ["off / on", "off / on without graphs", "without graphs / on"]


def ablation_cells(row):
    on, off = row["batches"]
    ratios = [in_turn(row, "off", "on"), in_turn(row, "off, plain", "on, plain")]
    return [*(shown(r and r * on / off) for r in ratios), shown(in_turn(row, "on, plain", "on"))], None


#===----------------------------------------------------------------------===#
# profile: commands against the limits of memory and arithmetic
#===----------------------------------------------------------------------===#

def profile_rows(kit):
    return {f"{w}.bf16": Artifact(w, "bf16") for w in catalog.PROFILED[kit.size]}


def measure_profile(kit, artifact):
    moved = 1 << (20 if kit.dry else 32)
    limit = [sys.executable, os.path.join(HERE, "limit.py"), f"copy={moved}", *(["--peaks"] if kit.torch and not kit.dry else [])]
    row = kit.turns({"trainc": (artifact, "--profile"), "copy": limit}, 10)
    row["bytes_per_ms"] = moved / median(row["times"]["copy"]["copy"])
    row["flops_per_ms"] = row["ready"]["copy"].get("peaks", {}).get("bf16", 0) * 1e9
    row["step_flops"] = flops(ALL_WORKLOADS[artifact.workload])
    return row


def group_of(command):
    """Kind, and what a launch computes, without numbers and names of layers."""
    words = command["label"].split()
    return command["kind"] if command["kind"] != "launch" or not words else f"launch {words[0].rstrip('0123456789')}"


def profile_groups(row):
    """{group: [runs, ms, ms that memory and arithmetic would take at their limits]}"""
    groups = {}
    for c in row["ready"]["trainc"]["commands"]:
        group = groups.setdefault(group_of(c), [0, 0, 0])
        limit = max(c["bytes"] / row["bytes_per_ms"], c["flops"] / row["flops_per_ms"] if row["flops_per_ms"] else 0)
        for i, value in enumerate((c["runs"], c["ms"], limit)):
            group[i] += value
    return groups


PROFILE_COLUMNS = ["the step / its commands", "of the peak of products", "commands: share of time, of their limit"]


def profile_cells(row):
    groups = profile_groups(row)
    total = sum(ms for _, ms, _ in groups.values())
    step = median(row["times"]["trainc"]["step_ms"])
    shares = ", ".join(f"{name} ({runs:.0f}) {100 * ms / total:.0f} % at {limit / ms:.2f}" for name, (runs, ms, limit) in
                       sorted(groups.items(), key=lambda item: -item[1][1]) if ms)
    peak = f"{row['step_flops'] / step / row['flops_per_ms']:.2f}" if row["flops_per_ms"] else "-"
    return [f"{step / total:.2f}", peak, shares], None


#===----------------------------------------------------------------------===#
# sanitizer
#===----------------------------------------------------------------------===#

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]


def sanitizer_rows(kit):
    return {f"{a.name}, {tool}": (a, tool) for a in catalog.sanitized() for tool in (TOOLS[:1] if kit.dry else TOOLS)}


def measure_sanitizer(kit, pair):
    """On a GPU compute-sanitizer; in a dry run the program without it."""
    artifact, sanitizer = pair
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    words = [] if kit.dry else [program, "--tool", sanitizer, "--error-exitcode", "9"]
    try:
        with kit.library(artifact, "tiny") as library:
            done = run([*words, os.path.join(FOLDER, "build", "bin", "trainc-run"), library, "--benchmark", "2", "--device",
                        "cuda"], timeout=280, check=False)
    except FileNotFoundError:
        raise Failed(f"there is no {program}") from None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "=========" in line]
    return dict(code=done.returncode, report=lines[:40], last=last_line(done.stdout + done.stderr))


SANITIZER_COLUMNS = ["found"]


def sanitizer_cells(row):
    return ["nothing" if not row["code"] else row["last"]], row["code"] == 0
