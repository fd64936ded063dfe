#!/usr/bin/env python3
"""Measures everything that a part of the project promises, and prints it as a table beside the promised bars.

usage: check.py right|core|passes|ranks|cpu|cuda|mesh|torch|foundation|portable [--only ROW ...] [--json FILE] [--resume FILE] [--write]
       check.py torch --quick

Works on the built tree (scripts/build.sh) and on an idle machine. A row is ok, short, too noisy (the machine's own limit
moved too much while it was timed) or cannot run here. The exit status is 0 only if no row is short. --json writes the
table as it grows; --resume takes the rows that FILE has, if lib, include, runtime and tools are the same (of torch, python, too),
and goes on into it: a row of another CPU is measured here, too, only if --only names it.
--write puts the table into bench/results/PART.md, each row in the section of the CPU that it was measured on.
`check.py torch --quick` measures a little of that part, in minutes, without the peers.

The peers' Python packages are installed into .venv-bench on first use.
"""
import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv-bench")
REQUIREMENTS = os.path.join(ROOT, "bench", "peers", "requirements.txt")


def enter_environment():
    """Goes on in .venv-bench, which has NumPy and the peers."""
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        print("check.py: installing the peers into .venv-bench", file=sys.stderr)
        subprocess.run([os.path.join(ROOT, "scripts", "setup.sh"), "--bench"], check=True, stdout=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS],
                       check=True)
    if sys.prefix != os.path.realpath(VENV) and sys.prefix != VENV:
        os.execv(python, [python, *sys.argv])


def right_rows():
    from rows import right
    from rows import Row
    from rows.right_build import build
    from rows.right_cpus import compile_targets, targets_right
    from rows.right_fences import fences
    from rows.right_races import races
    return [
        Row("compile", "targets compile", "examples x {f32, bf16, f16} for x86-64-v3, v4, haswell, skylake-avx512, icelake-server,"
            " sapphirerapids, alderlake, znver2 to znver5; 1,000 random modules, each for x86-64-v3 and two drawn targets: no error,"
            " no undefined symbol", compile_targets),
        Row("cpus", "targets are right", "artifacts the machine runs, 5 updates, against reference executor and JAX; haswell artifacts"
            " under qemu; no EVEX and no zmm in v3 code or undispatched runtime code: f32 1e-4, narrow types within their bar, equal"
            " bits where promised", targets_right),
        Row("races", "races", "--check-workgroups over examples and 2,000 random modules for the machine, 200 for x86-64-v3: none;"
            " planted races in each emitter: all named; 50 runs on 2, 3, 8 threads against 1: bits equal", races),
        Row("findings", "findings", "each finding of the review: its tests pass, or the reason is given", right.findings),
        Row("fences", "fences", "PTX of all examples and ops, 3 architectures: every ordering atom. between fences; the emulator finds"
            " the old version at once", fences),
        Row("tables", "tables", "core, passes, ranks, cpu, cuda and mesh, each row on a CPU family that is named, all of one code: lib, include,"
            " runtime and tools did not change; a row of each again; rows that were ok are ok again, any other is ok, or short with a line in"
            " Status.md", right.tables),
        Row("audit", "audit", "beside each table: workload, peers with versions and settings, precision and threads of each side, data;"
            " no side handicapped", right.audit),
        Row("build", "build", "CPU seconds of a clean build of the demo's targets, no ccache: <= 50 % of those of 1a720a8", build),
        Row("ci", "CI", "all of .ci/run, clean clone, no ccache: passes in <= 60 minutes on 2 cores", right.ci),
    ]


def core_rows():
    from rows import correctness, fuzzing, install, passes, speed, state, training
    from rows import Row
    return [
        Row("newcomer", "newcomer's path", "fresh Debian 12, clean clone: scripts/demo.sh ends with a final loss at least"
            " 1.0 nats below the first, and a sample; under 12 minutes without downloads", install.newcomer),
        Row("digits", "digits", "held-out accuracy >= 0.95 (MLP) and >= 0.97 (CNN)", training.digits),
        Row("losses", "same numbers as JAX", "every loss and gradient norm of 5 updates within 1e-4 relative",
            training.losses),
        Row("gradients", "gradients", "every op in f64: relative error < 1e-6; whole models' worst tensor in f32 < 1e-3",
            correctness.gradients),
        Row("optimizers", "optimizers, clips, schedules", "<= 1e-12 in f64; in f32 no farther from f64 than 2 x optax's"
            " f32", correctness.optimizers),
        Row("pass-tests", "pass tests", "every pass has a positive, a does-not-fire and an error test, and fails its"
            " positive test when disabled; every numbered constraint is a case in invalid.mlir", passes.pass_tests),
        Row("linking", "linking", "moved prefix: cc, CMake and .so programs train; no LLVM, MLIR, Python; two trainers in"
            " two threads give the same bits as alone", install.linking),
        Row("speed", "speed, f32, same run", "step at least 1.3x faster than the best peer on each workload",
            speed.step_time),
        Row("attention-memory", "attention memory", "peak grows linearly in T from 512 to 4096, in the report and"
            " measured", speed.attention_memory),
        Row("compile-time", "compile time", "gpt2-124m <= 8 s, and <= 1.5 x the same model with 2 layers",
            speed.compile_time),
        Row("memory", "memory", "gpt2-124m: VmHWM over the timed steps within 5 % + 60 MB of the report; <= 0.80 x the"
            " best peer's step_rss_mb", speed.memory),
        Row("reproducible", "reproducible", "two runs, and 1 against 2 threads: bitwise equal losses and checkpoints",
            state.reproducible),
        Row("resume", "resume", "20 updates, against 10 + save + new process + load + 10: bitwise equal", state.resume),
        Row("kill", "kill -9 during save", "each write, fsync and rename hit at least once: the latest complete"
            " checkpoint always loads", state.kill),
        Row("bad-input", "bad input", "20,000 mutated modules, 2,000 valid ones, checkpoints: no crash, no hang; every"
            " rejection is a diagnostic with a location", fuzzing.bad_input),
    ]


def passes_rows():
    from rows import ablation, conversion, optimizer, step_passes, traps
    from rows import Row
    return [
        Row("update", "optimizer phase, f32", "update pass >= 0.95 of the limit kernel; norm + update <= 1.30 x the limit"
            " kernel; 148 and 300 tensors within 3 %", optimizer.update_limit),
        Row("update-peers", "against peers", ">= 1.3 x faster than the best PyTorch with clip_grad_norm_, >= 2.7 x optax"
            " under jit", optimizer.update_peers),
        Row("update-bf16", "bf16 + f32 master", ">= 0.93 of its byte limit", optimizer.update_copy),
        Row("fusion", "one update for 304 tensors (published: +13.8 %)", ">= 13.8 % on at least one point, faster on the"
            " optimizer phase everywhere, nowhere more than 2 % slower on the step", ablation.fusion),
        Row("cast-count", "parameter casts per window", "N instead of N k (1 + recompute), k = 1, 4, 16",
            ablation.cast_count),
        Row("casts", "hoisted casts (published: +6.96 %)", ">= 6.96 % faster on gpt2-124m-accum4, nowhere more than 2 %"
            " slower", ablation.casts),
        Row("names", "no name rules", "identical plan up to names", traps.no_name_rules),
        Row("bitwise", "bitwise", "fused = unfused, coalesced = not, 1 = 2 threads; every optimizer, 20 updates",
            step_passes.bitwise),
        Row("alignment", "alignment of buffers", "align-size 4 to 4096 and none: equal results; padding equals the formula;"
            " a checkpoint saved at one loads at all", step_passes.buffer_alignment),
        Row("oracle", "against optax", "<= 1e-12 in f64; in f32 no farther from f64 than 2 x optax's f32",
            step_passes.oracle),
        Row("merge", "gradient merge", "losses 1e-7, weights 1e-6 of the large batch's; window skip exact",
            step_passes.merge),
        Row("conversion", "conversion", "peak <= max(before, after) + 1 MiB by allocator and RSS; cap respected, or a refusal"
            " before anything changed", conversion.conversion),
        Row("traps", "traps", "every trap is a named test that passes", traps.traps),
        Row("window-of-one", "k = 1 costs nothing", "IR and time equal", ablation.window_of_one),
        Row("bad-input", "bad input", "each a clear error, nothing changed", traps.bad_input),
    ]


def ranks_rows():
    from rows import ranks
    from rows import Row
    return [
        Row("training", "equal training", "f32: losses within 1e-5 of one rank; replicated and sharded, window and plain MPI,"
            " and all ranks: bitwise equal", ranks.training),
        Row("precision", "precision over a long run, 2 ranks", f"gpt-char in bf16, {ranks.LONG} updates: replicated and"
            " unhoisted against sharded and hoisted: bitwise equal", ranks.precision),
        Row("memory", "memory per rank", "arenas within 2 % of the formula; hoisted against unhoisted sharded: equal at 2"
            " ranks, smaller from 3 on", ranks.memory),
        Row("cells", "hoisted casts on 2 ranks (published: +6.96 %)", ">= 6.96 % for hoisting alone, sharded, on"
            " gpt2-124m-accum4 at k = 4; elements of parameters that a rank casts in a window = P / R", ranks.cells),
        Row("start", "start", "from seed and from a file only rank 0 can read, 1, 2 and 4 ranks: bitwise equal copies on all"
            " ranks; peak at start as the plan", ranks.start),
        Row("zero1", "ZeRO-1 update, 124 M, 2 ranks on one host", ">= 5 x PyTorch's ZeroRedundancyOptimizer; <= 1.1 x our"
            " replicated update on both ranks at once without communication", ranks.zero1),
        Row("synchronisation", "synchronisation", "collectives per window: buckets, once; 0 in the other micro-steps",
            ranks.synchronisation),
        Row("faults", "faults", "100 runs with a rank killed, stopped or delayed at a random point of a step or a save: no hang"
            " beyond the deadline + 5 s; the report names what was waited for and the missing rank; the last checkpoint"
            " loads",
            ranks.faults),
        Row("bad-input", "bad input", "clear errors on one rank, all ranks end", ranks.bad_input),
        Row("traps", "distributed traps", "same skips and norm on all ranks, no hang", ranks.rank_traps),
        Row("reshard", "reshard", "next loss within 1e-6; bitwise at the same rank count", ranks.reshard),
        Row("one-rank", "one rank", "a mesh of 1: IR and library as without a mesh", ranks.one_rank),
    ]


def cpu_rows():
    from rows import cpu, cpu_steps, precision
    from rows import Row
    steps = [bar.row() for bar in cpu_steps.STEPS]
    return [
        *steps[:5],
        Row("mlp-tiny", "mlp-tiny", ">= 3 x faster than the best of PyTorch eager, compile and JAX; >= 2 x ONNX Runtime training;"
            " <= 10 microseconds per step", cpu_steps.mlp_tiny),
        *steps[5:],
        Row("attention", "attention, T = 1024, 12 heads, d = 64", "forward and backward: >= 1.6 x our own GEMM + softmax, >= 1.4 x"
            " PyTorch's scaled_dot_product_attention", cpu.attention),
        Row("memory", "peak memory, gpt2-124m", "<= 0.72 x the best peer's step_rss_mb; plan within 10 % of the liveness lower"
            " bound", cpu.memory),
        Row("compile", "compile", "gpt2-124m cold <= 5 s, warm cache <= 0.5 s; many-small <= 5 s; PyTorch compile and JAX beside"
            " it", cpu.compile_time),
        Row("recompute", "recompute, gpt2-124m at 1 x 1024 tokens", "memory limit = persistent state + 60 % of the activation"
            " arena: <= 20 % slower, bitwise equal", cpu.recompute),
        Row("portable", "portable code, gpt-char f32", "--target-cpu=x86-64-v3: >= 1.2 x the best peer restricted to AVX2",
            cpu_steps.portable),
        Row("neighbours", "a busy neighbour, gpt-char f32", "one process spinning on one core: step <= 2.2 x the quiet one; an"
            " application's own OpenMP pool beside it: no deadlock, results equal", cpu.neighbours),
        Row("precision", "precision, 20 updates", "f32: losses and gradient norms of the first 5 within 1e-4 of the references;"
            " --bf16: losses and parameters no farther from f64 than 1.5 x JAX's and PyTorch's bf16, each with its own type of the"
            " residual stream and with ours; bitwise reproducible for any number of threads", precision.updates),
    ]


def cuda_rows():
    from rows import cuda, cuda_ops
    from rows import Row
    return [
        Row("operations", "every op on the emulator", "against the CPU target and JAX, f32, bf16, f16: the tolerances of"
            " the other targets", cuda_ops.operations),
        Row("updates", "every optimizer, clip and scale on the emulator", "against the CPU target: the tolerances of the type",
            cuda_ops.updates),
        Row("emulator", "the emulator itself", "planted faults: dropped barrier, wrong shuffle mask, off-by-one index,"
            " race: each is caught", cuda.emulator),
        Row("steps", "whole steps on the emulator and fakes", "small GPT, Llama, MLP, CNN, 5 updates, AdamW + clip + merge +"
            " bf16, 1 rank and 2 ranks, ZeRO-1: losses within 1e-4 (f32) of the CPU target", cuda.steps),
        Row("code", "PTX and SASS", "all kernels of gpt2-124m on sm_80, sm_90, sm_100: 0 spills; optimizer and row kernels all"
            " 128-bit", cuda.code),
        Row("launches", "launches", "gpt2-124m: update <= 3 launches whatever the number of parameters", cuda.launches),
        Row("streams", "streams", "no wait between commands of one stream, no synchronise in a step, one event per"
            " cross-stream dependency; removing any one makes a test fail", cuda.streams),
        Row("nccl-faults", "faults of NCCL", "failure and delay injected at each collective: report, abort, nonzero exit"
            " within the deadline + 5 s", cuda.nccl_faults),
        Row("conversion", "device conversion", "fake device with free = need - 1 and need: the branch taken is counted; the"
            " device never holds two copies", cuda.conversion),
        Row("no-gpu", "no-GPU machine", "artifact with both targets, no driver: runs on the CPU after one line that says so;"
            " --device=cuda refused clearly", cuda.no_gpu),
        Row("compile-time", "compile time", "gpt2-124m, one arch: <= 20 s", cuda.compile_time),
        Row("gpu", "on a GPU", "update >= 90 % of copy bandwidth; step >= 1.2 x the best peer in bf16; NCCL run bitwise equal"
            " to none; sanitizer clean", cuda.on_a_gpu),
        Row("bad-input", "bad input", "unknown arch, toolkit missing or too old, driver too old, out of memory, image missing:"
            " each says what was found and what is needed", cuda.bad_input),
    ]


def mesh_rows():
    from rows import mesh, ranks
    from rows import Row
    return [
        Row("training", "equal training", "gpt-char and a Llama, 20 updates, ZeRO-2, ZeRO-3, tensor 2, 2 x 2 in each mode, several"
            " reduction groups, k = 1 and 4: f32 losses and norms within 1e-5 of one rank; bf16 within the spread of 3 seeds"
            f" over {mesh.LONG} updates", mesh.equal),
        Row("start", "initial values, dropout", "any mesh: bitwise equal logical tensors and masks", mesh.initial),
        Row("memory", "memory per rank", "1, 2, 4 and 8 ranks, every mode: arenas within 2 % of the formulas", mesh.memory),
        Row("collectives", "collectives", "per window and micro-step, by kind, group and bytes: equal to the formulas",
            mesh.collectives),
        Row("merge", "gradient merge over groups", "the alignment table at data = 2 and 2 x 2: losses 1e-6, weights 1e-5",
            mesh.merge),
        Row("traps", "traps", "same skips and norm on all ranks, no hang; conflicts refused", mesh.traps),
        Row("reshard", "reshard", "2 x 2 with ZeRO-3 on 1, tensor 4 and data 4, and back: next loss within 1e-6", mesh.reshard),
        Row("faults", "faults on 2 x 2", "killed, stopped and delayed at random moments, of saves too: all ranks end with a report in"
            " time, the last checkpoint loads", lambda folder: ranks.faults(folder, "parts")),
        Row("estimate", "estimate", "predicted step time at 1, 2, 4 ranks in every mode, by rates that one rank's --preflight measured: within"
            " 20 %", mesh.estimate),
    ]


def torch_rows():
    from rows import Row, pytorch
    return [
        Row("corpus", "corpus", "110 models of bench/models: >= 90 % export, compile and agree; the rest is refused at export with a line;"
            " 0 wrong, 0 fail later", pytorch.corpus),
        Row("agreement", "agreement", "f64, 5 updates of AdamW: losses and norms 1e-9, parameters 1e-7, with dropout and noise, too; f32:"
            " losses 1e-5, the first norm no farther from f64 than 3 x PyTorch's + 1e-6: all", pytorch.agreement),
        Row("earlier", "earlier versions", "20 models with the PyTorch and the transformers of the two versions before: all agree", pytorch.earlier),
        Row("bf16", "bf16", "10 models, 5 updates: losses no farther from f64 than 1.5 x autocast's: all", pytorch.bf16),
        Row("training", "real training", "CNN, GPT, ERNIE: 500 updates on real data, 3 seeds each side: the last loss within PyTorch's spread",
            pytorch.real_training),
        Row("held-out", "held out", "30 models drawn from timm's and transformers' registries by the commit's hash: >= 80 % agree, 0 wrong,"
            " 0 fail after export", pytorch.held_out),
        Row("rules", "rules and traps", "each operation with a rule: value and gradient of PyTorch's in f64; each trap of export holds;"
            " each way to draw is the definition's", pytorch.tests("torch-operations.py", "torch-traps.py", "torch-attention.py", "torch-tensors.py",
                                                                  "torch-random.py", "torch-checkpoint.py")),
        Row("optimizers", "optimizers", "each x flags x schedulers, 50 updates; 10 updates in torch + 10 here against 20 in torch, and back:"
            " f64 1e-10", pytorch.tests("torch-optimizers.py", "torch-schedulers.py")),
        Row("shapes", "shapes", "an epoch with a short last batch and 4 length buckets: PyTorch's losses; memory <= 1.02 x of the largest"
            " shape; another shape than in the call before <= 5 us", pytorch.shapes),
        Row("bad-input", "bad input", "another shape or type, a closed step, NaN in weights, another device, tied names with two values, a PyTorch"
            " older or newer than tested: each says what was found and what was expected",
            pytorch.tests("step.py", "arrays.py", "torch-refused.py", "torch-traps.py", "torch-weights.py", "torch-shapes.py", "torch-tensors.py")),
        Row("random-graphs", "random graphs", "2,000 of ATen operations x types x broadcasting, gradients too: f64 1e-9; f32 no farther from"
            " f64 than 4 x PyTorch's; each operation with a rule is hit", pytorch.random_graphs),
        Row("lora", "LoRA", "Llama of 1 B parameters (random), int8 base, rank 16, 512 tokens: peak <= 3 GB; loss within the seeds' spread"
            " of a bf16 base", pytorch.lora),
        Row("speed", "speed", "against PyTorch eager, compile and max-autotune with fused AdamW, 7 rounds: geometric mean of transformers"
            " AMX >= 1.6 x, AVX-512 >= 1.25 x, AVX2 >= 1.15 x, none below 1.0 x; CNNs and the rest printed", pytorch.speed),
        Row("memory", "memory", "peak of a process that trains, less 16 bytes a parameter: geometric mean of transformers <= 0.55 x"
            " PyTorch's; total peak of no model above PyTorch's", pytorch.memory),
        Row("way", "way", "export + compile of GPT-2 small, imports not counted: <= 12 s; again from the cache <= 3 s", pytorch.way),
        Row("package", "package", "a fresh Debian with Python only: the wheel is installed and an example runs, `pip install .` of a clean clone,"
            " too; wheel <= 120 MB; import <= 0.2 s, without torch",
            pytorch.package),
        Row("call", "Python's cost", "call on mlp-tiny above the C call: same tensors <= 4 us, new tensors <= 8 us; beside a DataLoader of 2"
            " workers a step takes <= 1.05 x per core left", pytorch.call_cost),
    ]


def foundation_rows():
    from rows import Row, closed, foundation, within
    from rows.foundation_cost import cost_model
    from rows.foundation_layout import layout
    from rows.foundation_order import order
    from rows.foundation_overlap import overlap
    from rows.foundation_speed import speed
    return [
        Row("closed", "closed under MLIR", "canonicalize, cse, sccp, symbol-dce, loop-invariant-code-motion, remove-dead-values, and all"
            " together, after each pass: examples, 2 meshes, k = 1 and 4; 200 random modules with one insertion each: equal bits; memory"
            " equal for insertions after train-plan-memory, else <= 1.05 x; a memory limit holds; 4 examples for GPUs, all together; <= 20"
            " minutes", within(20, closed.closed)),
        Row("same-results", "same results as before", "digests of losses and states, 20 updates, examples x {f32, bf16, f16} x {1, 2, 4"
            " ranks, all shard modes}, recorded before this part: equal", foundation.same_results),
        Row("contract", "contract", "structs that differ by an added member work; artifacts that differ in a number or a kernel are"
            " refused as ranks of one run", foundation.contract),
        Row("overlap", "overlap", "ZeRO-2 and 3, 2 and 4 ranks, profile; again with exchanges delayed to 1 GB/s by a test option of the"
            " communicator: reductions and gathers in flight during compute, counted; paired median <= 1.05 of before, and faster where"
            " delayed", overlap),
        Row("layout", "layout measured", "--disable-pass=train-coalesce on many-small, gpt2-124m, a model of 2,000 tensors; 1 and 2 ranks:"
            " works, bits equal; the gain of coalescing: ratio of paired medians, and compile time", layout),
        Row("order", "order", "every adjacent pair of the pipeline: swapped, or the reason why it cannot be stands in Passes.td: bitwise"
            " equal; at least 8 swapped pairs", order),
        Row("cost", "cost model", "flops and bytes of every op against a count of its linalg loops; a test finds other owners: equal; none",
            cost_model),
        Row("speed", "speed", "old and new binary interleaved, workloads of check.py cpu, median of 15 paired ratios; compile time too:"
            " <= 1.05 each; else too noisy, and again", speed),
        Row("bad-input", "bad input", "a module in another form, addresses outside of their arenas, writes of what is touched otherwise, tokens"
            " waited for twice or left open, unknown roles: each a diagnostic at the operation", foundation.bad_input),
        Row("readable", "readable", "functions <= 100 lines but tables and emitters of GPUs; files <= 600", foundation.readable),
    ]


def portable_rows():
    from rows import Row, limits, portability, within
    return [
        Row("share", "share of the limit", "products at the peak of the fastest unit, state and what is kept at the speed of a copy; as the machine"
            " is, and restricted to AVX-512 and AVX2: AVX2 >= 75 %, AVX-512 >= 70 %, AMX f32 >= 58 % (goal 65), AMX bf16 >= 42 % (goal 50);"
            " many-small >= 40, 32, 25 %", limits.share),
        Row("peers-avx2", "against peers, AVX2", "all restricted to AVX2, best of PyTorch eager, compile, max-autotune, the first two with tcmalloc,"
            " too; gpt2-124m with JAX beside gpt2: transformers' geometric mean >= 1.25 x, none below 1.1 x; CNNs' >= 1.1 x, none below 1.0 x;"
            " the peers' shares of the limit are printed", limits.peers_avx2),
        Row("small-avx2", "small models, AVX2", "all restricted to AVX2, best of PyTorch eager, compile and JAX: digits-cnn >= 2 x, many-small and"
            " mlp-tiny >= 3 x", limits.small_avx2),
        Row("bf16-avx2", "bf16 by AVX2", "gpt-char in bf16 <= 1.05 x the time of f32", limits.bf16_avx2),
        Row("peers", "against peers", "as the machine is: transformers' geometric mean >= 1.8 x with AMX, 1.4 x with AVX-512; CNNs' >= 1.2 x, none"
            " below 1.0 x, peak memory never above PyTorch's", limits.peers),
        Row("loss-head", "loss head", "gpt2-124m 4 x 1024, Llama with 128k classes: <= 1.03 x the time of logits that stand whole, less memory by"
            " >= 70 % of logits and their gradient", limits.loss_head),
        Row("bits", "same bits", "20 updates of GPT, Llama, CNN, MLP, LSTM, k = 1 and 4, f32 and bf16, with --portable-bits: AVX2, AVX-512, AMX and"
            " AArch64 (qemu), 1, 2 and 3 threads: losses and states equal those recorded", portability.bits),
        Row("cost", "cost of the same bits", "as the machine is, and restricted to AVX-512 and AVX2: f32 <= 1.15 x without (AMX 1.6 x);"
            " bf16 <= 1.15 x of the portable f32 step", portability.cost),
        Row("gradients", "gradients on AArch64", "every operation in f64, f32 and bf16 against JAX, on qemu's max and neoverse-n1: 1e-6, 1e-4,"
            " 2^-7; <= 20 minutes", within(20, portability.gradients)),
        Row("aarch64", "trainings on AArch64", "40 or more of one rank on qemu's max and neoverse-n1: x86-64's losses and states; checkpoints are"
            " exchanged; <= 20 minutes", within(20, portability.aarch64)),
        Row("races", "races of the pool", "litmus tests of the pool, and steps of examples, under ThreadSanitizer: pass", portability.races),
        Row("pages", "sizes of pages", "conversions and checkpoints with pages of 4, 16 and 64 KB: pass", portability.pages),
        Row("code", "code for AArch64", "kernels of examples: >= 75 % of the arithmetic of every innermost loop on vectors; f32 GEMM:"
            " inner loop >= 85 % fmla", portability.code),
        Row("clean", "clean on every target", "100 random modules and all examples for 11 processors: compile, link; what can run gives the results"
            " of code by definitions", portability.clean),
        Row("bad-input", "bad input", "an artifact for another architecture, a triple without a runtime, --portable-bits beside what it refuses:"
            " each says what was found and what was expected", portability.bad_input),
    ]


def quick_torch_rows():
    from rows import Row, pytorch
    return [
        Row("corpus", "corpus", f"{len(pytorch.QUICK)} of the 110 models: all agree", pytorch.few_models),
        Row("random-graphs", "random graphs", "100 of ATen operations: as the 2,000", pytorch.few_graphs),
        Row("way", "way", "export + compile of GPT-2 small, imports not counted: <= 12 s; again from the cache <= 3 s", pytorch.way),
    ]


ROWS = dict(right=right_rows, core=core_rows, passes=passes_rows, ranks=ranks_rows, cpu=cpu_rows, cuda=cuda_rows, mesh=mesh_rows,
            foundation=foundation_rows, portable=portable_rows, torch=torch_rows)


def measure(row):
    import audit
    from common import Failed
    from rows import Outcome
    from trainc_ctypes import Error
    start = time.perf_counter()
    audit.start()
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = row.measure(folder)
        except (Failed, Error) as e:
            outcome = Outcome(str(e), "short")
        except Exception:  # a defect of the check itself must not end it, and must not look good
            traceback.print_exc()
            outcome = Outcome("the check itself failed: " + traceback.format_exc(limit=0).strip().splitlines()[-1],
                              "short")
    return dict(figure=row.figure, value=outcome.value, bar=row.bar, status=outcome.status,
                sides=audit.sides(), seconds=round(time.perf_counter() - start, 1))


def versions():
    """What the tools and the peers say they are."""
    from importlib import metadata
    out = {}
    for name in ("trainc", "trainc-run"):
        path = os.path.join(os.environ.get("TRAINC_BUILD", os.path.join(ROOT, "build")), "bin", name)
        if os.path.exists(path):
            text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip()
            out[name] = (text.splitlines() or ["?"])[0]
    for name in ("torch", "jax", "optax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):  # --quick needs no peers
            out[name] = metadata.version(name)
    return ", ".join(v if v.startswith(k) else f"{k} {v}" for k, v in out.items())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=list(ROWS))
    p.add_argument("--only", action="append", metavar="ROW")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--resume", metavar="FILE")
    p.add_argument("--write", action="store_true")
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    if a.quick and (a.part != "torch" or a.write):
        p.error("--quick is of torch, and makes no table")
    if not a.quick:
        enter_environment()
    import results
    rows = (quick_torch_rows if a.quick else ROWS[a.part])()
    names = [row.name for row in rows]
    for name in a.only or []:
        if name not in names:
            p.error(f"expected one of {', '.join(names)}, got '{name}'")
    if not a.quick and (stale := results.not_built()):
        p.error(f"the build is not of these files: run scripts/build.sh ({stale})")
    about = dict(commit=results.commit(), cpu=results.cpu(), machine=results.machine(), versions=versions())
    folders = results.OF_TORCH if a.part == "torch" else results.CODE
    report = dict(commit=results.commit(), code=results.code(folders=folders), date=datetime.date.today().isoformat(), rows=[])
    if a.resume and os.path.exists(a.resume):
        with open(a.resume) as f:
            saved = json.load(f)
        if saved["code"] != report["code"]:
            p.error(f"{a.resume} is of code {saved['code']}, not of {report['code']}")
        report.update(commit=saved["commit"], rows=saved["rows"])
    for row in rows:
        cpus = [r["cpu"] for r in report["rows"] if r["name"] == row.name]
        if about["cpu"] in cpus or (row.name not in a.only if a.only else cpus):
            continue
        print(f"{row.name} ...", file=sys.stderr, flush=True)
        result = dict(name=row.name) | measure(row) | about
        report["rows"].append(result)
        print(f"{row.name}: {result['status']}: {result['value']} ({result['seconds']} s)", file=sys.stderr, flush=True)
        for path in {a.json, a.resume} - {None}:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with open(path, "w") as f:
                json.dump(report, f, indent=1)
    report["rows"].sort(key=lambda r: names.index(r["name"]))
    print("\n\n".join(results.sections(report).values()))
    if a.write:
        results.write(a.part, report)
    return any(r["status"] == "short" for r in report["rows"])


if __name__ == "__main__":
    sys.exit(main())
