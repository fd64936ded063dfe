"""Timing programs that take turns: ours, the peers and a kernel that shows the machine's own limit, in one run."""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading

import audit
from common import BUILD, ENVIRONMENT, PEERS, Failed, compile_module, compiled, last_line, target_cpu, tool, workload_module
from workloads import WORKLOADS, batches, initial_values, parameter_count, write_safetensors

ROUNDS = 5
# Between rounds the limit itself may move by this factor; above it, only a verdict that every round agrees on counts.
STEADY = 1.25
LIMIT_RUNS = 100  # of its kernels in a block, at most


class Served:
    """A program in its serve mode: one block of steps per line of its input. It is killed if an answer takes more than
    `limit` seconds."""

    def __init__(self, name, command, folder, limit=None):
        self.name, self.limit = name, limit
        self.errors = open(os.path.join(folder, f"{name}.stderr"), "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=ENVIRONMENT, cwd=PEERS)

    def answer(self):
        late = []

        def end():
            late.append(True)
            self.process.kill()

        watch = threading.Timer(self.limit, end) if self.limit else None
        if watch:
            watch.start()
        # Libraries print there, too.
        line = next((line for line in self.process.stdout if line[0] in "{["), None)
        if watch:
            watch.cancel()
        if not line:
            self.process.wait()
            if late:
                raise Failed(f"{self.name}: no answer after {self.limit} s")
            self.errors.seek(0)
            raise Failed(f"{self.name} ended: {last_line(self.errors.read())}")
        return json.loads(line)

    def block(self, steps):
        """{part: milliseconds of it in each of `steps` steps}; the whole step is the part 'step_ms'."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = self.answer()
        return answer if isinstance(answer, dict) else dict(step_ms=answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):  # it may have ended
            self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def limit_program(cpu="native"):
    """The limit kernels of bench/peers, compiled for a CPU."""
    name = target_cpu() if cpu == "native" else cpu
    return compiled(os.path.join(PEERS, "limit.cpp"), os.path.join(BUILD, "bench", f"limit-{name}"), "clang++-22",
                    "-std=c++20", "-O3", f"-march={cpu}", "-mprefer-vector-width=512", "-ffast-math", "-fopenmp", "-lopenblas")


def peer_commands(name, *more):
    """PyTorch eager and compiled with its fused AdamW, and JAX."""
    def command(script, *options):
        return [sys.executable, os.path.join(PEERS, script), *options, "--workload", name, *more]

    return {"torch eager": command("torch_peer.py", "--mode", "eager"),
            "torch compile": command("torch_peer.py", "--mode", "compile"),
            "jax": command("jax_peer.py")}


WIDE_RESIDUAL = ["--keep-f32", "nn.add", "nn.embedding"]  # keeps the residual stream in f32, as PyTorch's autocast does


def our_files(name, folder, *options, bf16=False, more=()):
    """Compiles a workload; returns (.so, initial values, data), the last two as safetensors. `more` are options of the generator."""
    w = WORKLOADS[name]
    library = compile_module(workload_module(w, *precision(bf16), *more), os.path.join(folder, "model.so"), *options)
    values, data = os.path.join(folder, "values.safetensors"), os.path.join(folder, "data.safetensors")
    write_safetensors(values, dict(initial_values(w)))
    import numpy as np
    xs, ys = zip(*batches(w))
    write_safetensors(data, dict(x=np.concatenate(xs), y=np.concatenate(ys)))
    return library, values, data


def precision(bf16):
    """The option for it, of the peers and of our generators."""
    return ["--bf16"] if bf16 else []


def our_command(files):
    library, values, data = files
    return [tool("trainc-run"), library, "--init", values, "--data", data, "--no-shuffle"]


def steps_of(name):
    """Steps of a block: enough for its median not to care about the first, and 20 in all rounds."""
    return max(20 // ROUNDS, WORKLOADS[name].steps // 2)


def take_turns(commands, folder, rounds, steps, ready=None, failed=None, limit=None, ours=None):
    """{program: {part: [median ms of each round]}} of serving programs {name: command}, which take turns. What each says of
    itself goes into the dict `ready`. With a dict `failed` a program that ends, or takes more than `limit` seconds for an
    answer, is left out, and the dict says why; else that fails. `ours` is the audit.Ours of those that are no peers, or of each by name."""
    served, times = [], {}

    def attempt(act, s):
        try:
            return act()
        except (Failed, BrokenPipeError, OSError) as e:
            if failed is None:
                raise
            failed[s.name] = str(e)
            times.pop(s.name, None)
            s.__exit__()
            served.remove(s)

    try:
        for program, command in commands.items():  # set up one after the other: compilation takes all processors
            served.append(Served(program, command, folder, limit))
            about = attempt(served[-1].answer, served[-1])
            if about:
                audit.note_program(program, about, ours.get(program) if isinstance(ours, dict) else ours)
            if about and ready is not None:
                ready[program] = about["ready"]
        for turn in range(rounds + 1):  # the first turn only warms up
            for s in list(served):
                count = min(steps, LIMIT_RUNS) if s.name == "limit" else steps
                answer = attempt(lambda: s.block(count), s) or {}
                parts = {part: ms for part, ms in answer.items() if isinstance(ms, list)}
                if turn:
                    for part, ms in parts.items():
                        times.setdefault(s.name, {}).setdefault(part, []).append(statistics.median(ms))
    finally:
        for s in served:
            s.__exit__()
    return times


def moving_kernel(name):
    """The limit kernel that shows whether the machine stayed the same while a workload was timed."""
    return "update_4r3w" if parameter_count(WORKLOADS[name]) > 2e6 else "sgemm_char_fc"


def time_workload(name, folder, rounds=ROUNDS, peers=None, options=()):
    """{program: [median ms of each round]}; the programs are 'trainc', 'limit' and the peers."""
    commands = {"trainc": [*our_command(our_files(name, folder, *options)), "--serve"],
                **{peer: [*c, "--serve"] for peer, c in peer_commands(name).items() if peers is None or peer in peers},
                "limit": [limit_program(), "serve", moving_kernel(name)]}
    times = take_turns(commands, folder, rounds, steps_of(name), ours=audit.Ours(name, options=tuple(options)))
    return {program: parts["step_ms"] for program, parts in times.items()}


def ratios(times):
    """{peer: [peer / ours of each round]}."""
    return {peer: [p / t for p, t in zip(ms, times["trainc"])]
            for peer, ms in times.items() if peer not in ("trainc", "limit")}


def movement(times):
    """How far the limit itself moved between the rounds."""
    return max(times["limit"]) / min(times["limit"])
