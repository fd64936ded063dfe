# REQUIRES: numpy
# RUN: %python %s --mutants 500 --valid 50 --seed 1 --build %trainc_build --runtime-build %trainc_build
"""Fuzzes trainc in process: mutated modules up to form 3, and random valid ones with all passes on against all off.

usage: fuzz.py --mutants N --valid M [--seed S] [--json FILE] [--resume FILE] [--jobs J] [--checkpoints C]
       fuzz.py --show mutant|valid|gpu|races NUMBER
       fuzz.py --gpu N ...
       fuzz.py --races N [--cpu NAME] ...

Mutants are modules of the tests, of the examples at small sizes and random valid ones, changed at random. None may crash or
hang the compiler, and each that is refused must be refused by errors with a place. Valid modules are compiled with all
passes, without those that can be disabled, and by definitions (--reference); three updates of each must be bitwise equal, but
for code by definitions of attention and convolution, which may sum in another order. Both run in worker processes
(Inputs/worker.py), started again when they crash. The checkpoint reader has a fuzzer of its own in C.

With --gpu, further valid modules must give on the emulated GPU of tests what they give on the processor, but for another order of sums.

With --races, modules of larger tensors that share values of smaller rank: trainc-run --check-workgroups must find nothing,
of some for code by definitions, too, and updates must give the same bits on 2, 3 and 8 threads as on 1.

Everything follows from the seed: --show prints one module. --resume keeps what was found, part by part, and goes on where
FILE stops. Exits 1 if anything is wrong.
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "Inputs"))

import mutate  # noqa: E402
import valid  # noqa: E402
from worker import Worker, environment  # noqa: E402

LIMIT = 400  # seconds per request; a compiler that hangs stops itself before
EXAMPLES = {
    "mlp": ["--batch", 3, "--accumulate", 2], "cnn": ["--batch", 2],
    "gpt": ["--layers", 1, "--width", 6, "--heads", 2, "--vocab", 7, "--batch", 2, "--seq", 3, "--context", 4],
    "llama": ["--layers", 1, "--width", 8, "--heads", 4, "--kv-heads", 2, "--vocab", 7, "--batch", 2, "--seq", 3],
}
THREADS = (1, 2, 3, 8)
WRONG = {"race": "races", "crash": "crashes", "hang": "hangs", "silent": "silent_rejections", "differs": "different_results"}


def generated(model):
    command = [sys.executable, os.path.join(ROOT, "examples", f"{model}.py"), *map(str, EXAMPLES[model])]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def corpus():
    """(modules with a step, others: parts, and modules that are refused)."""
    steps, others = [generated(model) for model in EXAMPLES], []
    for path in sorted(glob.glob(os.path.join(ROOT, "test", "**", "*.mlir"), recursive=True)):
        with open(path) as f:
            text = re.sub(r"(?m)^ *//(?! -----).*\n", "", f.read())
        refused = re.search("invalid|errors", os.path.basename(path))
        for piece in filter(str.strip, re.split(r"(?m)^// -----.*$", text)):
            (steps if "train.step" in piece and not refused else others).append(piece.strip() + "\n")
    return steps, others


def mutant(seed, number, steps, others):
    rng = random.Random(f"{seed} mutant {number}")
    kind = rng.random()
    if kind < 0.7:
        text = valid.module(f"{seed} base {rng.randrange(1 << 40)}").text
    else:
        text = rng.choice(steps if kind < 0.97 else others)
    return mutate.mutant(rng, text, rng.choice(steps + others))


def valid_module(seed, number):
    return valid.module(f"{seed} valid {number}")


def gpu_module(seed, number):
    return valid.module(f"{seed} gpu {number}")


def racing_module(seed, number):
    return valid.module(f"{seed} races {number}", shared=True)


class Job:
    """What one process of the pool has: its workers and its folder."""
    current = None

    def __init__(self, options):
        self.options = options
        self.corpus = corpus()
        self.folder = tempfile.mkdtemp(dir=options.folder)
        self.compiler = Worker([os.path.join(options.build, "bin", "trainc-fuzz")], LIMIT, environment())
        self.runner = Worker([sys.executable, os.path.join(HERE, "Inputs", "runner.py")], LIMIT,
                             os.environ | {"TRAINC_BUILD": options.runtime_build, **{
                                 f"TRAINC_LIB{name.upper()}": os.path.join(options.runtime_build, "lib", f"libtrainc_fake_{name}.so")
                                 for name in ("cuda", "cublaslt")}})

    def mutants(self, numbers):
        """[(number, outcome, message)]."""
        path, results = os.path.join(self.folder, "mutant.mlir"), []
        for number in numbers:
            with open(path, "wb") as f:
                f.write(mutant(self.options.seed, number, *self.corpus).encode("utf-8", "surrogateescape"))
            results.append((number, *self.compiler.ask(f"check {path}")))
        return results

    def valid(self, numbers):
        return [(number, *self.one_valid(number)) for number in numbers]

    def one_valid(self, number):
        module = valid_module(self.options.seed, number)
        names = ("default", "off", "reference")
        libraries, wrong = self.compile(module, number, {name: name for name in names})
        return wrong or self.compare(module, number, libraries, module.own_order)

    def gpu(self, numbers):
        return [(number, *self.one_gpu(number)) for number in numbers]

    def one_gpu(self, number):
        module = gpu_module(self.options.seed, number)
        libraries, wrong = self.compile(module, number, {"cuda": "gpu"})
        return wrong or self.compare(module, number, {"cpu": libraries["cuda"], **libraries}, True)

    def compile(self, module, number, variants, cpu=""):
        """({name: library}, None), or what is wrong in place of None."""
        path, libraries = os.path.join(self.folder, "valid.mlir"), {}
        with open(path, "w") as f:
            f.write(module.text)
        for name, variant in variants.items():
            libraries[name] = os.path.join(self.folder, f"{number}-{name}.so")
            outcome, message = self.compiler.ask(f"compile {path} {libraries[name]} {variant} {cpu}")
            if outcome != "ok":
                return libraries, (outcome, f"{variant}: {message}")
        return libraries, None

    def compare(self, module, number, libraries, rounded):
        job = os.path.join(self.folder, "job.json")
        with open(job, "w") as f:
            json.dump(module.job(libraries, number, rounded), f)
        answer = self.runner.ask(job)
        for library in {*libraries.values()}:
            os.remove(library)
            os.remove(library[:-3] + ".h")
        return answer

    def races(self, numbers):
        return [(number, *self.one_race(number)) for number in numbers]

    def one_race(self, number):
        module = racing_module(self.options.seed, number)
        variants = ("default", "reference")[:1 + (number % 4 == 0)]
        libraries, wrong = self.compile(module, "races", {variant: variant for variant in variants}, self.options.cpu)
        if wrong:
            return wrong
        for variant, library in libraries.items():
            command = [os.path.join(self.options.runtime_build, "bin", "trainc-run"), library, "--check-workgroups", "1",
                       "--threads", "3"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            if done.returncode:
                return "race" if "workgroup" in done.stderr else "failed", f"{variant}: {done.stderr.strip()[:600]}"
        job = os.path.join(self.folder, "job.json")
        with open(job, "w") as f:
            json.dump({"variants": {f"{n} threads": libraries["default"] for n in THREADS}, "threads": THREADS,
                       "inputs": module.inputs, "tolerance": None, "seed": number}, f)
        return self.runner.ask(job)


def start(options):
    Job.current = Job(options)


def work(kind, numbers):
    return getattr(Job.current, kind)(numbers)


def is_wrong(result):
    """Valid modules answer `equal`, mutants one of the others."""
    return result[1] not in ("equal", "ok", "parse", "refused")


def chunks(count, size):
    return [range(i, min(i + size, count)) for i in range(0, count, size)]


def kept(options, kind):
    """{numbers: what work() gave} of the parts in --resume."""
    done = {}
    if not options.resume or not os.path.exists(options.resume):
        return done
    with open(options.resume) as f:
        for line in f:
            try:
                seed, of, results = json.loads(line)
            except ValueError:  # written by a run that was cut off
                continue
            if (seed, of) == (options.seed, kind):
                done[range(results[0][0], results[-1][0] + 1)] = results
    return done


def run_all(options, kind, count, size):
    """[(number, outcome, message)] by all jobs; prints what is wrong as it is found."""
    results, left, done = [], options.most, kept(options, kind)
    todo = [numbers for numbers in chunks(count, size) if numbers not in done]
    with concurrent.futures.ProcessPoolExecutor(options.jobs, initializer=start, initargs=(options,)) as pool:
        made = pool.map(work, [kind] * len(todo), todo)
        for numbers in chunks(count, size):
            part = done.get(numbers)
            if not part:
                part = next(made)
                if options.resume:
                    with open(options.resume, "a") as f:
                        print(json.dumps([options.seed, kind, part]), file=f)
            results += part
            for number, outcome, message in filter(is_wrong, part):
                if left:
                    print(f"{kind} {number}: {outcome}: {message}", flush=True)
                left = max(left - 1, 0)
    return results


def fuzz_checkpoints(options):
    """(files read, found) of test/Runtime/fuzz-checkpoint.c, built by its own lines for lit."""
    source = os.path.join(ROOT, "test", "Runtime", "fuzz-checkpoint.c")
    runtime = os.path.join(ROOT, "runtime")
    words = {"%cxx": "clang++-22", "%cc": "clang-22", "%runtime_include": f"{runtime}/include", "%runtime_src": f"{runtime}/src",
             "%runtime_lib": f"{options.runtime_build}/lib", "%S": os.path.dirname(source), "%s": source}
    with open(source) as f:
        lines = re.findall(r"// RU[N]: (.*)", f.read())  # not a line of lit's itself
    for line in lines:
        if line.startswith(("%cxx", "%cc")):
            command = re.sub("|".join(words), lambda m: words[m.group()], line)
            subprocess.run(command, shell=True, check=True, cwd=options.folder)
    done = subprocess.run(["./fuzz", str(options.checkpoints), str(options.seed)], cwd=options.folder, capture_output=True,
                          text=True, timeout=1800)
    print(done.stdout.strip().split("\n")[-1], file=sys.stderr)
    return done.returncode and f"checkpoint reader: exit {done.returncode}: {done.stderr[:400]}"


def report(options, mutants, modules, gpu, races):
    outcomes = collections.Counter(outcome for _, outcome, _ in mutants)
    result = {"seed": options.seed, "mutants": len(mutants), "reached_passes": len(mutants) - outcomes["parse"],
              "valid": len(modules), "gpu": len(gpu), "shared": len(races), "checkpoints": options.checkpoints, **{name: 0 for name in WRONG.values()}}
    wrong = [r[1] for r in mutants + modules + gpu + races if is_wrong(r)]
    for outcome in wrong:  # a valid module that is refused, or fails when it runs, is as wrong as one with other results
        result[WRONG.get(outcome, "different_results")] += 1
    print(f"seed {options.seed}: {len(mutants)} mutants ({', '.join(f'{n} {o}' for o, n in sorted(outcomes.items()))}),"
          f" {len(modules)} valid, {len(gpu)} on the emulated GPU, {len(races)} with shared values, {options.checkpoints} checkpoint files: {len(wrong)} wrong")
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mutants", type=int, default=0)
    p.add_argument("--valid", type=int, default=0)
    p.add_argument("--gpu", type=int, default=0, help="valid modules for the emulated GPU")
    p.add_argument("--races", type=int, default=0, help="valid modules whose workgroups are checked")
    p.add_argument("--cpu", default="native", help="processor that these are compiled for")
    p.add_argument("--checkpoints", type=int, default=0, help="files for the checkpoint reader")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--resume", metavar="FILE")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder whose trainc-fuzz is run")
    p.add_argument("--runtime-build", default=os.path.join(ROOT, "build"), help="folder whose runtime runs the valid modules")
    p.add_argument("--most", type=int, default=20, help="how many findings of a kind are printed")
    p.add_argument("--show", nargs=2, metavar=("KIND", "NUMBER"))
    options = p.parse_args()
    if options.show:
        kind, number = options.show[0], int(options.show[1])
        made = {"valid": valid_module, "gpu": gpu_module, "races": racing_module}.get(kind)
        text = made(options.seed, number).text if made else mutant(options.seed, number, *corpus())
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        return 0
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as options.folder:
        mutants = run_all(options, "mutants", options.mutants, 50)
        modules = run_all(options, "valid", options.valid, 5)
        gpu = run_all(options, "gpu", options.gpu, 5)
        races = run_all(options, "races", options.races, 5)
        result = report(options, mutants, modules, gpu, races)
        if options.checkpoints and (found := fuzz_checkpoints(options)):
            print(found)
            result["crashes"] += 1
    if options.json:
        with open(options.json, "w") as f:
            json.dump(result, f, indent=1)
    return int(any(result[name] for name in WRONG.values()) or result["reached_passes"] < options.mutants / 2)


if __name__ == "__main__":
    sys.exit(main())
