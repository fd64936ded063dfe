"""The rows on processors: modules compile for every one that is named, and what is made for them is right."""
import concurrent.futures
import os
import pickle
import random
import sys
import time

from common import BUILD, ROOT, Failed, generate, largest, run, tool, workload_module
from processors import (EXAMPLES, TARGETS, TYPES, WITHOUT_AVX512, beyond_avx2, disassembled, example, pad, undefined,
                        undispatched)
from rows import judge

sys.path[:0] = [os.path.join(ROOT, "test", "Fuzz", "Inputs"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(ROOT, "test", "Integration", "Inputs")]

MODULES, SEED, SHOWN = 1000, 25, 3
UPDATES = 5
# Of losses and gradient norms, and of results and gradients of an op (test/Integration/gradients.py).
BARS = {"f32": 1e-4, "bf16": 2**-7, "f16": 2**-10}
WORSE = 1.5
PORTABLE = ("f32", "bf16")
# An op of each family; what JAX says of all their cases that are small.
FAMILIES = {"pointwise": "gelu", "linear": "linear", "reduction": "reduce", "norm": "layer_norm", "softmax": "softmax",
            "loss": "cross_entropy", "attention": "attention", "embedding": "embedding", "gather": "gather",
            "convolution": "conv2d", "pooling": "max_pool2d", "shape": "pad"}
WORKLOADS = ["mlp-tiny", "digits-cnn", "many-small", "llama"]
QEMU = ["qemu-x86_64", "-cpu", "Haswell"]


def compiled(text, path, target, *options):
    """Compiles on one thread; where the code is."""
    source = os.path.splitext(path)[0] + ".mlir"
    with open(source, "w") as f:
        f.write(text)
    run([tool("trainc"), source, "-o", path, f"--target-cpu={target}", "--threads=1", *options])
    return path


def in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


#===-- Targets compile ---------------------------------------------------===#

def fault_of(name, text, target, path):
    """What is wrong with an artifact, or None."""
    try:
        compiled(text, path, target)
    except Failed as e:
        return f"{name} for {target}: {e}"
    found = [f"undefined symbol {symbol}" for symbol in undefined(path)]
    if target in WITHOUT_AVX512:
        found += beyond_avx2(disassembled(path))
    for end in ("so", "h", "mlir"):
        os.remove(os.path.splitext(path)[0] + "." + end)
    return f"{name} for {target}: {found[0]}" if found else None


def random_modules(count):
    """(name, text, target) of random modules, each for x86-64-v3 and two others."""
    import valid
    for number in range(count):
        text = valid.module(f"{SEED} valid {number}").text
        for target in ["x86-64-v3", *random.Random(f"{SEED} targets {number}").sample(TARGETS[1:], 2)]:
            yield f"module {number}", text, target


def compile_targets(folder, modules=MODULES, examples=tuple(EXAMPLES)):
    """Forms 0 to 3, which all processors share, take 1 % of a compilation: each module is compiled anew."""
    begin = os.times()
    cases = [(f"{model} in {element}", example(model, element), target)
             for model in examples for element in TYPES for target in TARGETS]
    cases += [(f"pad in {element}", pad(element), target) for element in TYPES for target in TARGETS]
    fixed = len(cases)
    cases += random_modules(modules)
    paths = (os.path.join(folder, f"m{i}.so") for i in range(len(cases)))
    bad = list(filter(None, in_parallel(lambda case: fault_of(*case[0], case[1]), zip(cases, paths))))
    used = os.times()
    minutes = (used.children_user + used.children_system - begin.children_user - begin.children_system) / 60
    return judge(not bad, f"{fixed} artifacts of {len(examples)} examples and a module with padding in {', '.join(TYPES)} for"
                 f" {len(TARGETS)} targets, {len(cases) - fixed} of {modules} random modules: {len(bad)} faults"
                 + "".join(f"; {text}" for text in bad[:SHOWN]) + f" ({minutes:.0f} CPU minutes)")


#===-- Targets are right -------------------------------------------------===#

def results_of(jobs, folder, emulated=False):
    """What bench/run_artifacts.py makes of artifacts, here or on an emulated Haswell."""
    paths = [os.path.join(folder, name) for name in ("jobs", "results")]
    with open(paths[0], "wb") as f:
        pickle.dump(jobs, f)
    run([*(QEMU if emulated else []), sys.executable, os.path.join(ROOT, "bench", "run_artifacts.py"), *paths], timeout=1200)
    with open(paths[1], "rb") as f:
        return pickle.load(f)


def relative(got, want):
    """The largest relative error of numbers in a row."""
    import numpy as np
    error = np.abs(np.asarray(got, np.float64) / np.asarray(want, np.float64) - 1)
    return float(np.max(np.where(np.isfinite(error), error, np.inf)))


class Check:
    """Errors over their bars by kind of comparison, and what is above."""

    def __init__(self):
        self.worst, self.bad, self.count = {}, [], 0

    def add(self, kind, name, error, bar):
        self.count += 1
        if not self.worst.get(kind, (0.0, 1.0))[0] > error:
            self.worst[kind] = error, bar
        if not error <= bar:
            self.bad.append(f"{kind}, {name}: {error:.1e}")


def runnable(folder):
    """The targets whose artifacts this machine runs."""
    text = example("mlp", "f32")
    libraries = in_parallel(lambda t: compiled(text, os.path.join(folder, f"probe-{t}.so"), t), TARGETS)
    results = results_of([{"library": library, "updates": 1} for library in libraries], folder)
    return [target for target, result in zip(TARGETS, results) if not isinstance(result, str)]


def example_text(model, element):
    # By SGD: Adam blows the gradient of keys' biases, which is 0 but for rounding, up to the size of an update.
    return example(model, element, "--optimizer", "sgd")


def check_examples(check, targets, folder, emulated=False):
    """Losses and norms of the examples against code by definitions."""
    cases = [(model, element, target) for model in EXAMPLES for element in TYPES for target in targets]
    kinds = [(model, element) for model in EXAMPLES for element in TYPES]

    def path(*words):
        return os.path.join(folder, "-".join(words) + ".so")

    libraries = in_parallel(lambda c: compiled(example_text(*c[:2]), path(*c), c[2]), cases)
    references = in_parallel(
        lambda k: compiled(example_text(*k), path(*k, "reference"), "x86-64-v3", "--reference", "-O1"), kinds)
    wanted = dict(zip(kinds, results_of([{"library": l, "updates": UPDATES} for l in references], folder)))
    got = results_of([{"library": l, "updates": UPDATES} for l in libraries], folder, emulated)
    for (model, element, target), result in zip(cases, got):
        name, want = f"{model} for {target}{' emulated' * emulated}", wanted[model, element]
        error = float("inf") if isinstance(result, str) else largest(relative(result[k], want[k]) for k in ("losses", "norms"))
        check.add(f"examples in {element}", name, error, BARS[element])


def check_bits(check, targets, folder):
    """Losses and norms of the examples with --portable-bits: equal for all targets and on 1, 2 and 3 threads."""
    found = {}
    for emulated, chosen in (False, targets), (True, ["haswell"]):
        cases = [(model, element, target) for model in EXAMPLES for element in PORTABLE for target in chosen]
        libraries = in_parallel(lambda c: compiled(example_text(*c[:2]), os.path.join(folder, f"{'-'.join(c)}-portable.so"), c[2],
                                                   "--portable-bits"), cases)
        runs = [(case, threads, library) for case, library in zip(cases, libraries)
                for threads in ((1, 2, 3) if case[2] == targets[0] else (2,))]
        jobs = [{"library": library, "updates": UPDATES, "threads": threads} for _, threads, library in runs]
        for ((*kind, target), threads, _), result in zip(runs, results_of(jobs, folder, emulated)):
            bits = result if isinstance(result, str) else (result["losses"].tobytes(), result["norms"].tobytes())
            equal = not isinstance(bits, str) and bits == found.setdefault(tuple(kind), bits)
            name = f"{' in '.join(kind)} for {target}{' emulated' * emulated} on {threads} threads"
            check.add("portable bits", name, 0.0 if equal else float("inf"), 0.0)


def check_workloads(check, targets, folder, names):
    """Losses and norms in f32 against JAX in f64, from the same initial values."""
    import json

    from common import PEERS
    from losses import LLAMA, updates_of
    from oracle import llama_jax
    from workloads import CHECKED_STEPS
    from workloads import WORKLOADS as KNOWN
    from workloads import batches, initial_values, write_safetensors
    with open(os.path.join(PEERS, "reference_losses.json")) as f:
        references = json.load(f)["workloads"]
    for name in names:
        if name == "llama":
            text = generate("llama", *(word for k, v in LLAMA.items() for word in (f"--{k.replace('_', '-')}", v)))
            parameters, data = llama_jax.initial_values(**LLAMA), [llama_jax.batch(**LLAMA)]
            want = list(zip(*llama_jax.first_updates(parameters, data[0], CHECKED_STEPS, **LLAMA)))
        else:
            w = KNOWN[name]
            text, parameters, data = workload_module(w), dict(initial_values(w)), batches(w)
            want = references[name]["loss_f64"], references[name]["gradient_norm_f64"]
        values = os.path.join(folder, "values.safetensors")
        write_safetensors(values, parameters)
        libraries = in_parallel(lambda t: compiled(text, os.path.join(folder, f"{name}-{t}.so"), t), targets)
        for target, library in zip(targets, libraries):
            got = list(zip(*updates_of(library, values, data)[0]))
            error = largest(relative(g, w[:len(g)]) for g, w in zip(got, want))
            check.add("JAX's losses", f"{name} for {target}", error, BARS["f32"])


def check_families(check, targets, folder, families, emulated=False):
    """Results and gradients of an op of each family against JAX in f64."""
    import gradients as g
    from gradient_cases import all_cases
    by_op = {}
    for case in all_cases():
        if case.op in families.values() and sum(_size(o) for o in case.operands) <= 400:
            by_op.setdefault(case.op, []).append(case)
    missing = sorted(set(families.values()) - by_op.keys())
    if missing:
        raise Failed(f"no small case of {', '.join(missing)}")
    prepared = {(op, element): g.prepare_all(cases, element)
                for op, cases in by_op.items() for element in TYPES}
    keys = [(op, element, target) for op, element in prepared for target in targets]
    libraries = in_parallel(
        lambda k: compiled(g.module(prepared[k[:2]]), os.path.join(folder, "-".join(k) + ".so"), k[2]), keys)
    references = in_parallel(lambda k: compiled(g.module(prepared[k]), os.path.join(folder, "-".join(k) + "-reference.so"),
                                                "x86-64-v3", "--reference", "-O1"), list(prepared))

    def job(cases, library):
        inputs = {f"f{p.number}": p.inputs for p in cases}
        inputs["step"] = {name: a for p in cases for name, a in (p.inputs | {f"w{p.number}": p.weights}).items()}
        return {"library": library, "updates": 1, "inputs": inputs, "evals": [f"f{p.number}" for p in cases],
                "parameters": {name: p.operands[i] for p in cases for name, i in p.parameters.items()},
                "gradients": [name for p in cases for name in p.parameters]}

    def error_of(p, result):
        if isinstance(result, str):
            return float("inf")
        errors = [g.distance(result["gradients"][name], want) for name, want in p.gradients.items()]
        return largest([g.distance(result["evals"][f"f{p.number}"], p.result), *errors])

    def run_all(keys, libraries, emulated=False):
        return results_of([job(prepared[key[:2]], library) for key, library in zip(keys, libraries)], folder, emulated)

    by_definition = dict(zip(prepared, run_all(list(prepared), references)))
    for (op, element, target), result in zip(keys, run_all(keys, libraries, emulated)):
        for p in prepared[op, element]:
            # Where rounding to a narrow type costs code by definitions more than the bar, it may cost this.
            bar, narrow = BARS[element], WORSE * error_of(p, by_definition[op, element])
            if element != "f32" and narrow < float("inf"):
                bar = max(bar, narrow)
            check.add(f"ops in {element}", f"{p.case.name} for {target}{' emulated' * emulated}", error_of(p, result), bar)


def _size(operand):
    import numpy as np
    return np.size(operand)


def check_runtime(check, folder, programs):
    """Tests of the runtime on an emulated Haswell."""
    source = os.path.join(ROOT, "runtime")
    flags = ["-O2", "-I" + os.path.join(source, "include"), "-I" + os.path.join(source, "src"),
             "-I" + os.path.join(ROOT, "test", "Runtime", "Inputs")]
    libraries = [os.path.join(BUILD, "lib", "libtrainc_runtime.a"), "-lm", "-ldl", "-pthread"]
    for program, compiler in programs.items():
        path = os.path.join(folder, program.replace(".", "-"))
        run([*compiler, *flags, os.path.join(ROOT, "test", "Runtime", program), *libraries, "-o", path])
        done = run([*QEMU, path], timeout=600, check=False)
        check.add("runtime's tests", f"{program} emulated", float(done.returncode != 0), 0.5)


def targets_right(folder, workloads=tuple(WORKLOADS), families=tuple(FAMILIES), programs=("gemm.c", "pool.cpp")):
    """The compiler always runs here; emulated are artifacts and the runtime alone."""
    check, chosen = Check(), {family: FAMILIES[family] for family in families}
    targets = runnable(folder)
    check_examples(check, targets, folder)
    check_workloads(check, targets, folder, workloads)
    check_families(check, [targets[0], targets[-1]], folder, chosen)
    begin = time.monotonic()
    check_bits(check, targets, folder)
    check_examples(check, ["haswell"], folder, emulated=True)
    check_families(check, ["haswell"], folder, chosen, emulated=True)
    compilers = {"gemm.c": ["clang-22", "-std=c11"], "pool.cpp": ["clang++-22", "-std=c++20"]}
    check_runtime(check, folder, {name: compilers[name] for name in programs})
    emulated = time.monotonic() - begin
    code = [f"{member}: {found[0]}" for member, found in
            undispatched(os.path.join(BUILD, "lib", "libtrainc_runtime.a")).items() if found]
    for target in set(targets) & set(WITHOUT_AVX512):
        for model in EXAMPLES:
            found = beyond_avx2(disassembled(os.path.join(folder, f"{model}-bf16-{target}.so")))
            code += [f"{model} for {target}: {code}" for code in found[:1]]
    bad = check.bad + code
    worst = "; ".join(f"{kind} {error:.1e} (bar {bar:.1e})" for kind, (error, bar) in check.worst.items())
    return judge(not bad, f"{check.count} comparisons on {', '.join(targets)} and an emulated Haswell: {worst};"
                 f" {len(code)} instructions beyond AVX2" + "".join(f"; {text}" for text in bad[:SHOWN])
                 + f" (emulated {emulated / 60:.0f} minutes)")
