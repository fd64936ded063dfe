"""Rows on other processors: the same bits on all of them, what that costs, and AArch64."""
import json
import os
import re
import sys
from statistics import median
from unittest import mock

import portable
from common import ROOT, RUNTIME_LIBRARY, Failed, generate, largest, run, tool
from processors import AARCH64, EXAMPLES, TARGETS, TYPES, disassembled, example, options_of, undefined
from rows import Outcome, judge, judge_ratios, worst
from rows.traps import outcome
from trainc_ctypes import Runtime, Trainer

sys.path[:0] = [os.path.join(ROOT, "test", "Fuzz", "Inputs"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(ROOT, "test", "Integration", "Inputs")]


def bits(folder):
    found, missing = portable.digests()
    known = portable.recorded()
    bad = [f"{case} for {cpu}: {digest}" for case, of in found.items() for cpu, digest in of.items()
           if digest != known["digests"].get(case)]
    ran = sorted({cpu for of in found.values() for cpu in of})
    bad += [f"{cpu}: {why}" for cpu, why in missing.items() if cpu not in ("avx512", "amx")]  # which no emulator has
    return judge(not bad and len(found) == len(list(portable.cases())), "; ".join([
        f"{len(found)} trainings on {', '.join(ran)} with 1, 2 and 3 threads: the digests of {known['commit'][:12]}",
        *(f"{cpu}: cannot run here: {why}" for cpu, why in missing.items()), *bad[:5]]))


#===-- What it costs -------------------------------------------------------===#

COST_WORKLOADS, PAIRS = ("gpt-char", "gpt2-124m", "many-small"), 9
COST = {"AMX": 1.6}  # else 1.15, as bf16 over portable f32 everywhere


def cost(folder, workloads=COST_WORKLOADS, pairs=PAIRS):
    """As the machine is, and restricted to what others have."""
    import audit
    from rows.limits import levels, noted
    from rows.optimizer import moved
    from timing import limit_program, moving_kernel, our_command, our_files, steps_of, take_turns
    from timing_update import per_round
    texts, statuses = [], []
    kinds = {"f32": (False, ()), "portable": (False, ("--portable-bits",)), "portable-bf16": (True, ("--portable-bits",))}
    for unit, (cpu, held, limit_cpu) in levels().items():
        for name in workloads:
            commands, ours = {"limit": [limit_program(limit_cpu), "serve", moving_kernel(name)]}, {}
            for kind, (bf16, options) in kinds.items():
                place = os.path.join(folder, f"{unit}-{name}-{kind}")
                os.makedirs(place)
                commands[kind] = [*held, *our_command(our_files(name, place, f"--target-cpu={cpu}", *options, bf16=bf16)), "--serve"]
                ours[kind] = audit.Ours(name, bf16, noted(cpu, held, *options))
            times = take_turns(commands, folder, pairs, steps_of(name), ours=ours)
            times = {side: parts["step_ms"] for side, parts in times.items()}
            drift = moved(times["limit"])
            for text, over, under, most in (("portable over f32", "portable", "f32", COST.get(unit, 1.15)),
                                            ("portable bf16 over portable f32", "portable-bf16", "portable", 1.15)):
                ratios = per_round(times[over], times[under])
                texts.append(f"{unit} {name}: {text} {median(ratios):.2f}x (bar {most}, moved {drift:.2f}x)")
                statuses.append(judge_ratios(ratios, lambda r, most=most: r <= most, drift))
    return Outcome("; ".join(texts), worst(statuses))


#===-- AArch64 --------------------------------------------------------------===#

def arm_cpus():
    """Those that run here; fails if none does."""
    found = [cpu for cpu in portable.cpus() if cpu.name in ("neoverse-n1", "aarch64")]
    for cpu in found:
        if cpu.missing:
            raise Failed(f"cannot run AArch64: {cpu.missing}")
    return found


def errors_on(cpu, library, prepared):
    """(the name of each case, the error of its gradients) after two steps on a CPU of qemu."""
    import gradients as g
    import remote
    with remote.Trainer(library, cpu) as trainer:
        for p in prepared:
            g.prepare(trainer, p)
        for _ in range(2):
            trainer.step()
        return [(p.case.name, largest(g.errors_of(trainer, p, g.read_gradients(trainer, p)))) for p in prepared]


def gradients(folder):
    """Of every op in each type, against JAX, by the code of trainc for AArch64 on both CPUs of qemu."""
    import gradients as g
    from gradient_cases import all_cases
    by_op, bad, count, worst_error = {}, [], 0, {}
    for case in all_cases():
        if sum(_size(o) for o in case.operands) <= g.SMALL:
            by_op.setdefault(case.op, []).append(case)
    for element in ("f64", "f32", "bf16"):
        for op, cases in by_op.items():
            prepared = g.prepare_all(cases, element)
            library = os.path.join(folder, "op.so")
            with open(os.path.join(folder, "op.mlir"), "w") as f:
                f.write(g.module(prepared))
            run([tool("trainc"), os.path.join(folder, "op.mlir"), "-o", library, "--target-triple=aarch64-linux-gnu",
                 "--target-cpu=neoverse-n1"])
            for cpu in ("max", "neoverse-n1"):
                for name, error in errors_on(cpu, library, prepared):
                    count += 1
                    worst_error[element] = max(worst_error.get(element, 0.0), error)
                    if not error < g.BARS[element]:
                        bad.append(f"{name} in {element} on {cpu}: {error:.1e}")
    missing = g.declared_ops() - by_op.keys()
    return judge(not bad and not missing, "; ".join([
        f"{count} runs of cases of {len(by_op)} operations against JAX: worst {', '.join(f'{e} {v:.0e}' for e, v in worst_error.items())}",
        *([f"no case of {', '.join(sorted(missing))}"] if missing else []), *bad[:5]]))


def _size(operand):
    import numpy as np
    return int(np.size(operand))


def trainings():
    """A named list of trainings of one rank for AArch64: examples by type, optimizer and clip."""
    for model in EXAMPLES:
        for element in TYPES:
            yield f"{model} {element}", model, element, ()
        for optimizer in ("sgd", "adam", "adamw", "lion", "rmsprop", "adagrad"):
            yield f"{model} {optimizer}", model, "f32", ("--optimizer", optimizer, "--accumulate", 3)
        for clip in ("param_norm", "value"):
            yield f"{model} clip {clip}", model, "f32", ("--clip-kind", clip, "--clip", 0.1)


def aarch64(folder):
    """Each training on both CPUs of qemu has the losses and the state of x86-64's, with portable bits; and a checkpoint of one goes
    on in the other."""
    bad, count = [], 0
    cpus = arm_cpus()
    x86 = next(cpu for cpu in portable.cpus() if cpu.name == "avx2")
    for name, model, element, options in trainings():
        text = example(model, element, *options)
        data = os.path.join(folder, "data.safetensors")
        portable.write_data(text, data)
        wanted = None
        for cpu in (x86, *cpus):
            library = portable.compile_module(text, os.path.join(folder, "model.so"), "--portable-bits", *cpu.options)
            digest = portable.digest_of(library, data, cpu, 2, folder)
            wanted = wanted or digest
            count += cpu is not x86
            if digest != wanted:
                bad.append(f"{name} on {cpu.name}")
    exchanged = exchange(folder, x86, cpus[0])
    return judge(not bad and not exchanged and count >= 40,
                 "; ".join([f"{count} trainings on {', '.join(cpu.name for cpu in cpus)}: losses and states of x86-64; a checkpoint of each"
                            " goes on in the other", *bad[:5], *exchanged]))


def races(folder):
    return outcome([os.path.join(ROOT, "test", name) for name in ("Runtime/pool.cpp", "Integration/thread-sanitizer.py")],
                   "tests pass: litmus tests of the pool, and steps of four examples")


def exchange(folder, *sides):
    """What is wrong with 10 updates on one side and 10 on the other, against 20 on one."""
    text, bad = example("gpt", "f32"), []
    data = os.path.join(folder, "data.safetensors")
    portable.write_data(text, data)
    libraries = []
    for cpu in sides:  # of one name, which a state says
        os.makedirs(os.path.join(folder, cpu.name), exist_ok=True)
        libraries.append(portable.compile_module(text, os.path.join(folder, cpu.name, "model.so"), "--portable-bits", *cpu.options))
    wanted = portable.digest_of(libraries[0], data, sides[0], 2, folder, log=False)
    for first, second in ((0, 1), (1, 0)):
        place = os.path.join(folder, f"checkpoints-{first}")
        for side, steps in ((first, "10"), (second, "20")):
            more = ["--resume"] if side == second else []
            state = os.path.join(folder, "state.safetensors")
            run([*sides[side].command, libraries[side], "--data", data, "--steps", steps, "--seed", "3", "--threads", "2",
                 "--checkpoint-dir", place, "--save", state, *more], env=sides[side].environment)
        if portable.file_digest(state) != wanted:
            bad.append(f"{sides[first].name}, then {sides[second].name}: another state")
    return bad


def pages(folder):
    """Trainings with conversions and checkpoints, with pages of 4, 16 and 64 KB."""
    from pass_tests import lit_codes
    names = ["Integration/conversion.py", "Integration/convert-ranks.py", "Runtime/convert.c", "Runtime/convert-memory.c", "Runtime/checkpoint.c",
             "Runtime/checkpoint-files.c", "Runtime/comm-window.cpp"]
    texts, bad = [], []
    for size in (4, 16, 64):
        codes = lit_codes([os.path.join(ROOT, "test", name) for name in names], TRAINC_PAGE_BYTES=str(size << 10))
        bad += [f"{name} with {size} KB: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS")]
        texts.append(f"{size} KB: {len(codes)} tests")
    return judge(not bad, "; ".join([*texts, *bad]))


LEAST_FMLA, LEAST_VECTORS = 0.85, 0.75
# Of rows and heads of 64 elements and more: loops over fewer are scalar.
CODE = {"mlp": ["--batch", 32, "--accumulate", 2], "cnn": ["--batch", 8],
        "gpt": ["--layers", 1, "--width", 128, "--heads", 2, "--vocab", 96, "--batch", 4, "--seq", 64],
        "llama": ["--layers", 1, "--width", 128, "--heads", 2, "--kv-heads", 1, "--vocab", 96, "--batch", 4, "--seq", 64]}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*?)>:\n(.*?)(?=^\n?[0-9a-f]+ <|\Z)", re.M | re.S)
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:[0-9a-f]{2} ){4}\s*(\S+)(?:\s+(.*))?$")
JUMP = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)$")
ARITHMETIC = re.compile(r"f(?:n?m(?:add|sub|ul)|ml[as]|add|sub|div|sqrt|neg|abs|max|min|rint|cvt|cm)")
# The tile of most rows and vectors of the runtime's GEMM of f32 and packed factors.
TILE = re.compile(r"VectorGemmIf\w*Ef\w*4tileILi(\d+)ELb1ELi2E")


def functions(path):
    """{symbol: its innermost loops, each the (operation, operands) of its instructions} of code for AArch64."""
    found = {}
    for name, text in FUNCTION.findall(disassembled(path)):
        code = [(int(m[1], 16), m[2], m[3] or "") for m in map(INSTRUCTION.match, text.splitlines()) if m]
        back = []  # (first and last address) of what jumps back
        for address, op, operands in code:
            target = re.search(r"0x([0-9a-f]+)", operands) if JUMP.match(op) else None
            if target and code[0][0] <= int(target[1], 16) < address:
                back.append((int(target[1], 16), address))
        inner = [(a, b) for a, b in back if not any(a <= c and d <= b and (c, d) != (a, b) for c, d in back)]
        found[name] = [[c[1:] for c in code if first <= c[0] <= last] for first, last in inner]
    return found


def tile_share(path):
    """The share of fmla in the inner loop of the GEMM of f32: of those of its largest tile the one that does nothing beside."""
    tiles = {int(m[1]): loops for name, loops in functions(path).items() if (m := TILE.search(name))}
    if not tiles or not tiles[max(tiles)]:
        raise Failed(f"{os.path.relpath(path, ROOT)}: no loop in a tile of the GEMM of f32")
    return max(sum(op == "fmla" for op, _ in loop) / len(loop) for loop in tiles[max(tiles)])


def vector_shares(path):
    """{kernel: the share of vector instructions in the arithmetic on floats, of each innermost loop that has any}."""
    def of(loop):
        return [operands for op, operands in loop if ARITHMETIC.match(op)]

    return {name: [sum(bool(re.search(r"\bv\d+\.(?:4s|2s|2d)", operands)) for operands in of(loop)) / len(of(loop)) for loop in loops if of(loop)]
            for name, loops in functions(path).items() if name.startswith("k_")}


def code(folder):
    """Vector instructions in each loop of updates and rows, and fmla in that of GEMMs, for AArch64."""
    kernels = os.path.join(portable.ARM_BUILD, "runtime", "CMakeFiles", "trainc_runtime_kernels_neon.dir", "src", "cpu", "kernels.cpp.o")
    if not os.path.exists(kernels):
        raise Failed("no runtime for AArch64: run scripts/build.sh")
    share, bad = tile_share(kernels), []
    bad += [] if share >= LEAST_FMLA else ["the inner loop of f32 GEMMs"]
    texts = [f"f32 GEMM: {share:.1%} of its inner loop is fmla"]
    library = os.path.join(folder, "model.so")
    for model, options in CODE.items():
        portable.compile_module(generate(model, *options), library, *options_of("neoverse-n1"))
        shares = vector_shares(library)
        bad += [f"{model}: no loop in {name}" for name in ("k_update", "k_norm") if not shares.get(name)]
        bad += [f"{model} {name}: {s:.0%} of a loop's arithmetic" for name, of in shares.items() for s in of if s < LEAST_VECTORS]
        every = [s for of in shares.values() for s in of]
        texts.append(f"{model}: {len(every)} loops, at least {min(every, default=0):.0%} of the arithmetic of each on vectors")
    return judge(not bad, "; ".join([*texts, *bad[:5]]))


def on_qemu(runtime, path, device, **options):
    """A trainer of runner.py, for AArch64."""
    import remote
    return remote.Trainer(path, "max", **options)


def other_results(modules, targets, folder):
    """Which random modules, whose artifacts are in `folder`, give other results than code by definitions for the same processor."""
    import runner
    runtime, bad = Runtime(RUNTIME_LIBRARY), []
    for i, module in enumerate(modules):
        for target in targets:
            job, path = os.path.join(folder, "job.json"), os.path.join(folder, f"module {i} {target}.so")
            reference = portable.compile_module(module.text, os.path.join(folder, "reference.so"), "--reference", "-O1", *options_of(target))
            with open(job, "w") as f:
                json.dump(module.job({"default": path, "reference": reference}, i, module.own_order), f)
            with mock.patch.object(runner, "Trainer", on_qemu if target in AARCH64 else Trainer):
                outcome, message = runner.answer(runtime, job).split("\t")
            if outcome != "equal":
                bad.append(f"module {i} for {target}: {outcome}: {message}")
    return bad


def clean(folder):
    """100 random modules and all examples for every target; the modules run where this machine or qemu can (row `right` `cpus` runs the
    examples)."""
    from rows.right_cpus import SEED, in_parallel, runnable
    import valid
    targets = ["x86-64-v3", "x86-64-v4", "haswell", "znver3", "znver4", "alderlake", "sapphirerapids", *AARCH64[1:]]
    assert set(targets) <= {*TARGETS, *AARCH64}
    arm_cpus()  # which can run
    here = [target for target in [*runnable(folder), *AARCH64] if target in targets]
    modules = [valid.module(f"{SEED} valid {i}") for i in range(100)]
    texts = {f"{model} in {element}": example(model, element) for model in EXAMPLES for element in TYPES}
    texts |= {f"module {i}": module.text for i, module in enumerate(modules)}
    cache = os.path.join(folder, "cache")

    def fault(job):
        name, target = job
        path = os.path.join(folder, f"{name} {target}.so")
        try:
            portable.compile_module(texts[name], path, "--threads=1", f"--cache-dir={cache}", *options_of(target))
            symbols = undefined(path)
            return f"{name} for {target}: undefined symbol {symbols[0]}" if symbols else None
        except Failed as e:
            return f"{name} for {target}: {e}"
        finally:
            for end in ("h", "mlir", *(["so"] if target not in here or not name.startswith("module") else [])):
                if os.path.exists(os.path.splitext(path)[0] + "." + end):
                    os.remove(os.path.splitext(path)[0] + "." + end)

    jobs = [(name, target) for name in texts for target in targets]
    bad = list(filter(None, in_parallel(fault, jobs)))
    bad += [] if bad else other_results(modules, here, folder)
    return judge(not bad, "; ".join([f"{len(jobs)} artifacts of {len(texts)} modules for {len(targets)} processors compile and need no"
                                     f" symbol; {len(modules)} modules have the results of code by definitions on {', '.join(here)}", *bad[:5]]))


def bad_input(folder):
    return outcome([os.path.join(ROOT, "test", name) for name in ("Driver/errors.test", "Driver/aarch64.test", "Driver/portable-bits-errors.mlir")],
                   "tests pass: architectures, triples, what --portable-bits refuses")
