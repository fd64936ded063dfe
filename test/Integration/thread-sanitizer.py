# REQUIRES: numpy
# RUN: %python %s %cc %cxx %trainc_build %t
"""ThreadSanitizer sees no race in the runtime, nor in the kernels of four examples, and sees one that is planted.

The runtime's own threads, commands and tiles are compiled with it; the rest is taken from the library. Of kernels, whose wide
vectors it does not see, LLVM makes scalar accesses first. Nothing is suppressed: what synchronizes threads is atomic, and the
waits of futexes come after that."""
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench")]

from common import generate, tool  # noqa: E402

CC, CXX, BUILD, FOLDER = sys.argv[1:5]
RUNTIME = os.path.join(ROOT, "runtime")
# All that runs while a step does, on any thread.
SOURCES = ["core/bind.cpp", "core/run.cpp", "core/state.cpp", "core/trainer.cpp", "cpu/convolution.cpp", "cpu/convolution_tile.cpp",
           "cpu/depthwise.cpp", "cpu/gemm.cpp", "cpu/pool.cpp", "cpu/window_convolution.cpp",
           "cpu/winograd_convolution.cpp"]
TSAN = ["-fsanitize=thread", "-g", "-O1"]
EXAMPLES = {
    "mlp": ["--batch", 32, "--accumulate", 2], "cnn": ["--batch", 8],
    "gpt": ["--layers", 2, "--width", 48, "--heads", 2, "--vocab", 67, "--batch", 4, "--seq", 40],
    "llama": ["--layers", 2, "--width", 48, "--heads", 4, "--kv-heads", 2, "--vocab", 67, "--batch", 4, "--seq", 40],
}


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def beside_compiler(name):
    """A tool of LLVM, of the version of the compiler that the tests use."""
    version = re.search(r"\d+", run(CC, "-dumpversion")).group()
    return shutil.which(f"{name}-{version}") or shutil.which(name) or sys.exit(f"{name} of LLVM {version} is not there")


def objects():
    """The runtime's sources with ThreadSanitizer."""
    flags = ["-std=c++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fvisibility=hidden", "-fPIC",
             "-ffp-contract=off", f"-I{RUNTIME}/include", f"-I{RUNTIME}/src", '-DTRAINC_LIBDIR="lib"']
    made = []
    for source in SOURCES:
        made.append(os.path.join(FOLDER, source.replace("/", "-") + ".o"))
        run(CXX, *TSAN, *flags, "-c", os.path.join(RUNTIME, "src", source), "-o", made[-1])
    return made


def program(source, runtime, name):
    path = os.path.join(FOLDER, name)
    run(CC, *TSAN, "-std=c11", f"-I{RUNTIME}/include", f"-I{ROOT}/test/Runtime/Inputs", source, "-c", "-o", path + ".o")
    run(CXX, *TSAN, path + ".o", *runtime, os.path.join(BUILD, "lib", "libtrainc_runtime.a"), "-lm", "-ldl", "-pthread", "-o", path)
    return path


def instrumented(text, name):
    """A library of the LLVM IR of an artifact: scalar, and every access seen."""
    base = os.path.join(FOLDER, name)
    with open(base + ".ll", "w") as f:
        f.write(re.sub(r"(?m)^(define .*?)( !dbg ![0-9]+)? \{$", r"\1 sanitize_thread\2 {", text))
    run(beside_compiler("opt"), "-passes=function(scalarize-masked-mem-intrin,scalarizer<load-store>,sroa,early-cse),tsan-module,"
        "function(tsan)", base + ".ll", "-o", base + ".bc")
    descriptor = re.search(r"(?m)^@(\w+_descriptor) = ", text).group(1)
    run(CC, *TSAN, "-Wno-override-module", "-shared", "-fPIC", f"-Wl,--defsym=trainc_descriptor={descriptor}", "-x", "ir",
        base + ".bc", "-o", base + ".so")
    return base + ".so"


def ir(model):
    source, path = (os.path.join(FOLDER, f"{model}.{end}") for end in ("mlir", "ll"))
    with open(source, "w") as f:
        f.write(generate(model, *EXAMPLES[model]))
    run(tool("trainc"), source, "--emit=llvm", "-o", path)
    with open(path) as f:
        return f.read()


def steps(program, library, threads, expect_race=False):
    """What is printed; with `expect_race` whether a race was reported."""
    # Reports end the program at once; those of libraries that are not instrumented are none.
    options = os.environ | {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    command = [program, library, str(threads), "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=options)
    if expect_race:
        return done.returncode == 66 and "data race" in done.stderr
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr[:6000]}")
    return done.stdout


def halved(text):
    """Each kernel computes what another workgroup does: two write the same bytes."""
    text = re.sub(r"(?m)^(define internal void @k_\w+\(ptr %0, i64 %1, ptr %2\).*\{)$", r"\1\n  %half = lshr i64 %1, 1", text)
    return re.sub(r"(call void @k_\w+\.body\(.*)i64 %1\b", r"\1i64 %half", text)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    runtime = objects()
    threads = program(os.path.join(ROOT, "test", "Runtime", "threads.c"), runtime, "threads")
    run(threads, env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"})
    runner = program(os.path.join(ROOT, "test", "Integration", "Inputs", "steps.c"), runtime, "steps")
    for model in EXAMPLES:
        text = ir(model)
        library = instrumented(text, model)
        seen = {n: steps(runner, library, n) for n in (1, 2, 3)}
        print(model, seen)
        if len(set(seen.values())) != 1:
            sys.exit(f"{model}: other bits on other threads")
        if model == "gpt":
            planted = instrumented(halved(text), "planted")
            if not any(steps(runner, planted, 3, expect_race=True) for _ in range(5)):
                sys.exit("no race was seen where one is planted")
    for path in glob.glob(os.path.join(FOLDER, "*.so")):
        os.remove(path)


if __name__ == "__main__":
    main()
