"""Rows on steps for GPUs: kernels on the emulator, steps on the driver and the libraries of tests, PTX, launches."""
import collections
import glob
import os
import re
import sys
import time

import results
from common import BUILD, ENVIRONMENT, ROOT, compile_module, generate, last_line, run, tool, workload_module
from pass_tests import LIT
from rows import Outcome, judge
from rows.traps import outcome
from timing_cuda import has_device
from workloads import WORKLOADS

TEST = os.path.join(ROOT, "test")


def tests_pass(paths, what):
    """All these tests pass; none of them may be left out."""
    return outcome(paths, f"tests pass: {what}")


def tests(folder, *names):
    return [path for name in names for path in sorted(glob.glob(os.path.join(TEST, folder, name)))]


# Kernels.

def emulator(folder):
    paths = tests("Target/GPU", "emulate-faults.mlir", "emulate-blocks.mlir")
    planted = re.findall(r"^ *// RUN: not ", "".join(open(path).read() for path in paths), re.M)
    done = tests_pass(paths, f"{len(planted)} planted faults are caught, their correct twins pass")
    return done if planted else judge(False, "no faults are planted")


def with_toolkit():
    """The environment with MLIR's tools and ptxas in PATH: of an installed toolkit, or what setup.sh --test installs."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda",
             *glob.glob(os.path.join(ROOT, ".venv", "lib", "python3*", "site-packages", "nvidia", "cu13"))]
    folders = [os.path.dirname(LIT), *(os.path.join(root, "bin") for root in roots if root), ENVIRONMENT["PATH"]]
    return dict(ENVIRONMENT, PATH=os.pathsep.join(folders))


def code(folder):
    """The kernels of the whole model, in both types, by the test of code."""
    script = os.path.join(TEST, "Conversion", "Kernels", "GPU", "model-ptx.py")
    done = run([sys.executable, script, folder, "12"], timeout=1800, check=False, env=with_toolkit())
    lines = done.stdout.strip().splitlines() or [last_line(done.stderr)]
    return judge(done.returncode == 0, "; ".join(line.strip() for line in lines))


# Whole steps.

def script_passes(path, *arguments):
    """(whether it passes, comparisons that hold, those that do not) of a test that prints a line for each."""
    done = run([sys.executable, path, *arguments], timeout=3600, check=False)
    lines = done.stdout.splitlines()
    bad = [line for line in lines if re.search(r": (?!ok)\w", line)]
    return done.returncode == 0, sum(line.endswith(": ok") for line in lines), bad or [last_line(done.stderr)]


def steps(folder):
    notes, good = [], True
    for what, name, *arguments in (("1 rank", "cuda-steps.py", "--full"), ("2 and 4 ranks", "cuda-ranks.py")):
        passes, count, bad = script_passes(os.path.join(TEST, "Integration", name), *arguments)
        good &= passes and count > 0
        notes.append(f"{what}: {count} comparisons hold" + ("" if passes else f", not {'; '.join(bad)[:300]}"))
    return judge(good, "; ".join(notes))


def streams(folder):
    return tests_pass(tests("Runtime/cuda", "nccl-streams.cpp", "trainer.cpp"), "order of streams, also in graphs; without any"
                      " event or join a test fails; a step waits for nothing")


def nccl_faults(folder):
    return tests_pass(tests("Runtime/cuda", "nccl-faults.cpp") + tests("Tools", "trainc-run-gpu-faults.py"),
                      "errors, delays, hangs and deaths at the start, the first and a late collective, alone and in whole steps")


def conversion(folder):
    return tests_pass(tests("Runtime/cuda", "convert.cpp"), "(bytes / 256 + 1) * 256 * 1.2 free, and one byte less; the branch is"
                      " counted")


def bad_input(folder):
    return tests_pass(tests("Driver", "target-cuda.test") + tests("Runtime/cuda", "targets.cpp", "faults.cpp", "device.cpp")
                      + tests("Tools", "trainc-run-device.test"), "architectures, toolkits, drivers, memory, images")


# Commands.

def lists_of(text, *options, folder):
    """{list: Counter of commands by kind} of a module compiled for GPUs; kinds of kernels by the ops in them."""
    source, commands = os.path.join(folder, "model.mlir"), os.path.join(folder, "commands.mlir")
    with open(source, "w") as f:
        f.write(text)
    run([tool("trainc"), source, "--target=cuda", "--stop-after=commands", "-o", commands, *options])
    with open(commands) as f:
        module = f.read()
    kinds = {}
    for name, body in re.findall(r"^  train\.kernel @(\w+)\((.*?)^  }\n", module, re.M | re.S):
        ops = set(re.findall(r"\b(?:nn|train)\.(\w+)", body.split("\n", 1)[1]))
        kinds[name] = next((kind for kind, members in KINDS if ops & members), "elementwise")
    lists = {}
    for name, body in re.findall(r"^  train\.list @(\S+) .*?\n(.*?)^  }\n", module, re.M | re.S):
        found = [kinds[k] for k in re.findall(r"train\.launch @(\w+)", body)]
        lists[name] = collections.Counter(found + ["gemm"] * body.count("train.gemm "))
    return lists


KINDS = [("update", {"segment_map"}), ("norm", {"segment_square_sum", "sum_blocks", "square_sum"}),
         ("attention", {"attention", "packed_attention", "attention_grad", "packed_attention_grad"}),
         ("embedding", {"embedding", "embedding_grad"}), ("convolution", {"conv2d", "conv2d_input_grad", "conv2d_weight_grad"}),
         ("row or column", {"reduce"})]


def launches(folder):
    """gpt2-124m in both types and the workload of most tensors."""
    cases = {"gpt2-124m f32": (WORKLOADS["gpt2-124m"], ()), "gpt2-124m bf16": (WORKLOADS["gpt2-124m"], ("--bf16",)),
             "many-small, 304 tensors": (WORKLOADS["many-small"], ())}
    notes, good = [], True
    for name, (w, options) in cases.items():
        lists = lists_of(workload_module(w, *options), folder=folder)
        step, update = lists["step.first"], lists["step.apply"]
        good &= 0 < sum(update.values()) <= 3
        table = ", ".join(f"{kind} {count}" for kind, count in step.most_common())
        notes.append(f"{name}: micro-step {sum(step.values())} ({table}), update {sum(update.values())}")
    return judge(good, "; ".join(notes))


def compile_time(folder):
    w, seconds = WORKLOADS["gpt2-124m"], {}
    for name, options in {"f32": (), "bf16": ("--bf16",)}.items():
        text = workload_module(w, *options)
        start = time.perf_counter()
        compile_module(text, os.path.join(folder, f"{name}.so"), "--target=cuda", "--cuda-arch=sm_90")
        seconds[name] = time.perf_counter() - start
    return judge(max(seconds.values()) <= 20, ", ".join(f"{name} {s:.1f} s" for name, s in seconds.items()) + " (sm_90)")


# Without a GPU.

def no_gpu(folder):
    """A step and a refusal, by trainc-run, where there is no driver."""
    library = compile_module(generate("mlp", "--batch", 4), os.path.join(folder, "mlp.so"), "--target=cuda,cpu",
                             "--cuda-arch=sm_90")
    environment = dict(ENVIRONMENT, TRAINC_LIBCUDA=os.path.join(folder, "no-libcuda.so"))
    command = [tool("trainc-run"), library, "--benchmark", "2"]
    done = run(command, env=environment)
    notices = [line for line in done.stderr.splitlines() if "CUDA driver" in line and "runs on the CPU" in line]
    refused = run([*command, "--device=cuda"], env=environment, check=False)
    text = refused.stderr.strip().splitlines()[-1:] or [""]
    good = len(notices) == 1 and refused.returncode != 0 and "no CUDA driver" in text[0] and "cpu" in text[0].lower()
    said = f"runs after: {' / '.join(notices) or 'nothing'}; --device=cuda: {text[0]}"
    return judge(good, said.replace(f"{folder}{os.sep}", ""))


def on_a_gpu(folder):
    """What the tables say that run.py of a pack has written on devices; where there is a device, one must be of this code."""
    notes, good = [], False
    for path in sorted(glob.glob(os.path.join(results.FOLDER, "cuda-*.md"))):
        with open(path) as f:
            text = f.read()
        commit = re.search(r"at commit (\w+)", text)[1]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
        short = [cells[0] for cells in rows if cells[-1] == "short"]
        current = results.code(commit) == results.code()
        good |= current and not short
        notes.append(f"{os.path.basename(path)} of {commit[:7]}{', older code' * (not current)}: {', '.join(short) or 'nothing'} short")
    said = "; ".join(notes) or "no table of a device"
    return judge(good, said) if has_device() else Outcome(said, "cannot run here (no GPU)")
