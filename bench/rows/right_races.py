"""The row on races: workgroups of one launch are independent of each other, and bits are equal on any number of threads."""
import json
import os
import sys

from common import BUILD, ROOT, compile_module, generate, run, tool
from pass_tests import lit_codes
from rows import judge

MODULES, PORTABLE = 2000, 200
THREADS, RUNS = (2, 3, 8), 50
SMALL = ["--layers", 2, "--width", 128, "--batch", 4, "--seq", 64, "--vocab", 257]
EXAMPLES = {"mlp": [], "cnn": [], "gpt": [*SMALL, "--heads", 4], "llama": [*SMALL, "--heads", 4, "--kv-heads", 2]}
# Where races are planted, in every emitter and of every kind, and where ThreadSanitizer looks.
TESTS = ["Tools/trainc-run-workgroups.test", "Integration/workgroups.py", "Integration/thread-sanitizer.py",
         "Transforms/Verify/verify-form-errors.mlir", "Runtime/pool.cpp"]


def random_modules(folder, count, cpu, seed):
    """What is wrong with random modules that share values of smaller rank, and a text."""
    path = os.path.join(folder, f"fuzz-{cpu}.json")
    run([sys.executable, os.path.join(ROOT, "test", "Fuzz", "fuzz.py"), "--races", str(count), "--seed", str(seed), "--cpu", cpu,
         "--build", BUILD, "--runtime-build", BUILD, "--json", path], timeout=4 * 3600, check=False)
    with open(path) as f:
        r = json.load(f)
    wrong = {k: r[k] for k in ("races", "crashes", "hangs", "different_results") if r[k]}
    if r["shared"] != count:
        wrong["missing"] = count - r["shared"]
    return wrong, f"{r['shared']} random modules for {cpu}, seed {seed}: {wrong or 'none'}"


def state(library, folder, threads):
    path = os.path.join(folder, "state.safetensors")
    run([tool("trainc-run"), library, "--benchmark", "3", "--threads", str(threads), "--save", path])
    with open(path, "rb") as f:
        return f.read()


def examples(folder, cpu, runs):
    """What is wrong with the examples: workgroups, and bits of `runs` runs on each number of threads."""
    wrong = []
    for model, arguments in EXAMPLES.items():
        library = compile_module(generate(model, *arguments), os.path.join(folder, f"{model}-{cpu}.so"), f"--target-cpu={cpu}")
        done = run([tool("trainc-run"), library, "--check-workgroups", "2", "--threads", "3"], check=False, timeout=1800)
        if done.returncode:
            wrong.append(f"{model} for {cpu}: {done.stderr.strip()[-300:]}")
        one = state(library, folder, 1)
        for threads in THREADS:
            other = sum(state(library, folder, threads) != one for _ in range(runs))
            if other:
                wrong.append(f"{model} for {cpu}: {other} of {runs} runs on {threads} threads have other bits")
    return wrong


def races(folder, modules=MODULES, portable=PORTABLE, runs=RUNS):
    """`modules` random ones for this machine, `portable` for x86-64-v3, about a second of processor time each; `runs` of each
    example on each number of threads."""
    wrong, text = random_modules(folder, modules, "native", 1)
    wrong_portable, text_portable = random_modules(folder, portable, "x86-64-v3", 2)
    bad = examples(folder, "native", runs) + examples(folder, "x86-64-v3", max(1, runs // 10))
    tests = [os.path.join(ROOT, "test", name) for name in TESTS]
    codes = lit_codes(tests)
    bad += [f"{name}: {code}" for name, code in codes.items() if code != "PASS"]
    good = not wrong and not wrong_portable and not bad and len(codes) == len(tests)
    return judge(good, "; ".join([text, text_portable, f"{len(EXAMPLES)} examples: workgroups, and {runs} runs on each of"
                                  f" {', '.join(map(str, THREADS))} threads against 1; {len(codes)} tests with planted races",
                                  *bad]))
