"""Packs the suite for GPUs: all that bench/cuda/run.py needs, in a folder that can be carried to a machine with a GPU.

The folder has the layout of the repository, so that the files of bench/ find each other: build/lib, build/bin, build/tests,
artifacts/full and artifacts/tiny, and data/ with what the compiler's machine alone can compute: examples, expected results.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import results
from common import BUILD, PEERS, ROOT, Failed, compile_module, compiled, generate, run, tool, workload_module
from losses import LLAMA
from timing_update import update_module
from workloads import ALL_WORKLOADS, CHECKED_STEPS, batches, initial_values

sys.path.append(os.path.join(ROOT, "bench", "cuda"))

import catalog  # noqa: E402
from carried import compress  # noqa: E402

ARCHS = "sm_80,sm_90,sm_100"
CPU = "x86-64-v3"
CARRIED = ["audit.py", "common.py", "timing.py", "trainc_ctypes.py", "commands.py", "bound_update.py", "cuda/carried.py",
           "cuda/catalog.py", "cuda/checks.py", "cuda/convert.py", "cuda/driver.py", "cuda/limit.py", "cuda/multi_tensor.py",
           "cuda/operations.py", "cuda/parts.py", "cuda/run.py", "cuda/serve.py",
           *(f"peers/{f}" for f in ("workloads.py", "measure.py", "torch_peer.py", "torch_models.py", "jax_peer.py",
                                    "jax_models.py", "reference_losses.json"))]
LAUNCHER = '''#!/usr/bin/env python3
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
script = os.path.join(here, "bench", "cuda", "run.py")
os.environ["TRAINC_BUILD"] = os.path.join(here, "build")  # the pack's own
os.execv(sys.executable, [sys.executable, script, *sys.argv[1:]])
'''
OPERATION_ELEMENTS = 400  # of the operands of a case
NVCC = ["-O3", "-std=c++20", "-fatbin"]


def module_of(artifact):
    if artifact.workload == "llama":
        return generate("llama", *(word for k, v in LLAMA.items() for word in (f"--{k.replace('_', '-')}", v)))
    w, bf16 = ALL_WORKLOADS[artifact.workload], artifact.element == "bf16"
    return update_module(w, bf16) if artifact.update else workload_module(w, *["--bf16"] * bf16)


# Of test/Runtime/cuda all *-real.cpp are packed, a program that the driver of tests can do, too, and those of other parts.
TEST_FILES = {"device-real": ["push.ptx", "kernels.mlir"]}  # that they read
FAKES_DO = "nccl-alone"
PROGRAMS = {"products": "products-times", "determinism": "determinism"}


def compile_artifact(text, path, archs, *options):
    with tempfile.TemporaryDirectory() as folder:
        library = compile_module(text, os.path.join(folder, "model.so"), "--target=cuda", f"--target-cpu={CPU}",
                                 f"--cuda-arch={archs}", *options, timeout=1800)
        compress(library, path)


class Packing:
    def __init__(self, folder, archs, sizes, parts, say):
        self.folder, self.archs, self.sizes, self.parts, self.say = os.path.abspath(folder), archs, sizes, parts, say
        os.makedirs(self.folder, exist_ok=True)
        if os.listdir(self.folder):
            raise Failed(f"{folder} is not empty")
        self.expected, self.missing = {}, {}  # {size/artifact: why}

    def path(self, *words):
        path = os.path.join(self.folder, *words)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def copy(self, source, *words, strip=False):
        if not os.path.exists(source):
            raise Failed(f"{os.path.relpath(source, ROOT)} is not built")
        target = self.path(*words)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
        if strip:
            run(["llvm-strip-22", "--strip-unneeded", target])

    def files(self):
        for name in CARRIED:
            self.copy(os.path.join(ROOT, "bench", name), "bench", *name.split("/"))
        package = os.path.join(ROOT, "python", "trainc")
        for name in sorted(f for f in os.listdir(package) if f.endswith(".py")):
            self.copy(os.path.join(package, name), "python", "trainc", name)
        self.copy(os.path.join(ROOT, "VERSION"), "VERSION")
        with open(self.path("run.py"), "w") as f:
            f.write(LAUNCHER)
        os.chmod(self.path("run.py"), 0o755)
        for name in ("runtime", "emulator", "fake_cuda", "fake_cublaslt", "fake_nccl"):
            self.copy(os.path.realpath(os.path.join(BUILD, "lib", f"libtrainc_{name}.so")), "build", "lib",
                      f"libtrainc_{name}.so", strip=True)
        self.copy(tool("trainc-run"), "build", "bin", "trainc-run", strip=True)
        source = os.path.join(ROOT, "bench", "spans.c")
        compiled(source, self.path("build", "bench", "libspans.so"), "clang-22", "-std=c11", "-O2", "-shared", "-fPIC",
                 "-I" + os.path.join(ROOT, "runtime", "include"))

    def data(self):
        """Of what needs more than NumPy to make."""
        used = {a.workload for size in self.sizes for a in catalog.artifacts(size, self.parts)}

        def save(name, x, y, values):
            np.savez(self.path("data", f"{name}.npz"), x=x, y=y, **{f"p:{k}": v for k, v in values.items()})

        if "llama" in used:
            from oracle import llama_jax
            data, values = llama_jax.batch(**LLAMA), llama_jax.initial_values(**LLAMA)
            save("llama", *data, values)
            updates = llama_jax.first_updates(values, data, CHECKED_STEPS, **LLAMA)
            self.expected["llama"] = dict(zip(("loss", "norm"), zip(*updates)))
        if "digits-cnn" in used:
            w = ALL_WORKLOADS["digits-cnn"]
            save("digits-cnn", *batches(w)[0], dict(initial_values(w)))
        if "cnn-tiny" in used:  # of no real images
            w, rng = ALL_WORKLOADS["cnn-tiny"], np.random.default_rng(1)
            x, y = rng.random((w.batch, 1, 8, 8), np.float32), rng.integers(0, 10, w.batch).astype(np.int32)
            save("cnn-tiny", x, y, dict(initial_values(w)))

    def archs_of(self, size):
        return ",".join(filter(None, [self.archs, "host" if size == "tiny" else ""]))

    def artifacts(self):
        for size in self.sizes:
            archs = self.archs_of(size)
            for artifact in catalog.artifacts(size, self.parts):
                self.say(f"{size}: {artifact.name}")
                try:
                    compile_artifact(module_of(artifact), self.path("artifacts", size, artifact.name + ".so"), archs,
                                     *artifact.options, *["--tf32"] * (artifact.element == "tf32"))
                except Failed as e:
                    self.missing[f"{size}/{artifact.name}"] = str(e)
                    self.say(f"  left out: {e}")

    def on_processor(self):
        """Losses and norms of the first updates by the code for the processor."""
        for size in self.sizes:
            for artifact in catalog.losses(size):
                if f"cpu:{artifact.name}" in self.expected:
                    continue
                self.say(f"losses of {artifact.name} on the processor")
                self.expected[f"cpu:{artifact.name}"] = self.first_losses(module_of(artifact), artifact.workload)
                if artifact.workload in catalog.IN_F64 and artifact.workload not in self.expected:
                    self.say(f"losses of {artifact.workload} in f64")
                    text = workload_module(ALL_WORKLOADS[artifact.workload], "--type", "f64")
                    self.expected[artifact.workload] = self.first_losses(text, artifact.workload)

    def first_losses(self, text, workload):
        with tempfile.TemporaryDirectory() as folder:
            library = compile_module(text, os.path.join(folder, "model.so"))
            done = run([sys.executable, os.path.join(self.folder, "bench", "cuda", "serve.py"), library, workload,
                        "--device", "cpu"], stdin=subprocess.DEVNULL, timeout=1800)
        ready = json.loads(done.stdout.strip().splitlines()[-1])["ready"]
        return {key: ready[key] for key in ("loss", "norm")}

    def operations(self):
        """The modules of test/Integration/gradients.py: small cases, their operands, and what JAX says."""
        sys.path[:0] = [os.path.join(ROOT, "test", "Integration")]
        import gradients as g
        by_op = {}
        for case in g.all_cases():
            if sum(np.size(o) for o in case.operands) <= OPERATION_ELEMENTS:
                by_op.setdefault(case.op, []).append(case)
        for size in self.sizes:
            known = {}
            for element, ops in catalog.OPERATIONS[size].items():
                for op in ops or by_op:
                    self.say(f"{size}: op {op} {element}")
                    try:
                        known[f"{op}.{element}"] = self.operation(g, op, by_op[op], element, size)
                    except (Failed, g.Error) as e:
                        self.missing[f"operations/{size}/{op}.{element}"] = str(e)
                        self.say(f"  left out: {e}")
            with open(self.path("operations", size, "cases.json"), "w") as f:
                json.dump(known, f)

    def operation(self, g, op, cases, element, size):
        """[[case, the processor's error]]"""
        with tempfile.TemporaryDirectory() as folder:
            errors = g.check(cases, element, folder)
        prepared = g.prepare_all(cases, element)
        compile_artifact(g.module(prepared), self.path("operations", size, f"{op}.{element}.so"), self.archs_of(size))
        values = {}
        for p in prepared:
            kinds = dict(parameter={k: p.operands[i] for k, i in p.parameters.items()}, input=p.inputs,
                         weights={f"w{p.number}": p.weights}, result=dict(r=p.result), gradient=p.gradients)
            values |= {f"{p.number}:{kind}:{name}": a for kind, arrays in kinds.items() for name, a in arrays.items()}
        np.savez_compressed(self.path("operations", size, f"{op}.{element}.npz"), **values)
        return [[p.case.name, errors[p.case.name]] for p in prepared]

    def program(self, name):
        """A program of test/Runtime/cuda, which needs nothing but the driver."""
        sources, runtime = os.path.join(ROOT, "test", "Runtime", "cuda"), os.path.join(ROOT, "runtime")
        run(["clang++-22", "-std=c++20", "-O1", f"-I{runtime}/src", f"-I{runtime}/include", "-I" + os.path.join(ROOT, "test", "Equipment", "include"), "-I" + os.path.join(ROOT, "include"),
             f"-I{sources}/Inputs", os.path.join(sources, name + ".cpp"), os.path.join(BUILD, "lib", "libtrainc_runtime.a"),
             "-static-libstdc++", "-static-libgcc", "-lm", "-ldl", "-pthread", "-s", "-o", self.path("build", "tests", name)])
        for file in TEST_FILES.get(name, []):
            self.copy(os.path.join(sources, "Inputs", file), "build", "tests", file)

    def programs(self):
        for part in self.parts:
            if part in PROGRAMS:
                self.program(PROGRAMS[part])

    def tests(self):
        tests = {}
        for path in [*sorted(glob.glob(os.path.join(ROOT, "test", "Runtime", "cuda", "*-real.cpp"))), FAKES_DO + ".cpp"]:
            name = os.path.basename(path)[:-len(".cpp")]
            self.program(name)
            tests[name] = [[name, *TEST_FILES.get(name, [])], name == FAKES_DO]
        return tests

    def multi_tensor(self):
        nvcc = shutil.which("nvcc") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
        if not self.archs:
            return
        if not os.path.exists(nvcc):
            self.missing["multi-tensor"] = "there is no nvcc"
            return
        numbers = [arch.removeprefix("sm_") for arch in self.archs.split(",")]
        codes = [f"arch=compute_{n},code=sm_{n}" for n in numbers] + [f"arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"]
        run([nvcc, *NVCC, *(word for code in codes for word in ("-gencode", code)),
             os.path.join(ROOT, "bench", "cuda", "multi_tensor.cu"), "-o", self.path("artifacts", "multi_tensor.fatbin")])

    def describe(self, tests):
        about = dict(commit=results.commit(),
                     compiler=run([tool("trainc"), "--version"]).stdout.strip().splitlines()[0], archs=self.archs)
        with open(self.path("artifacts", "pack.json"), "w") as f:
            json.dump(dict(about=about, tests=tests, expected=self.expected, missing=self.missing), f)


def has_device():
    from driver import Device, Refused
    try:
        Device()
        return True
    except (OSError, Refused):
        return False


def pack(folder, archs=ARCHS, sizes=catalog.SIZES, parts=catalog.PARTS,
         say=lambda text: print(text, file=sys.stderr, flush=True)):
    """Makes the folder, and returns what could not be compiled; `archs` '' is for the driver of tests alone."""
    p = Packing(folder, archs, sizes, parts, say)
    p.files()
    p.data()
    p.artifacts()
    if "losses" in parts:
        p.on_processor()
    if "operations" in parts:
        p.operations()
    if "optimizer" in parts:
        p.multi_tensor()
    p.programs()
    p.describe(p.tests() if "tests" in parts else {})
    return p.missing
