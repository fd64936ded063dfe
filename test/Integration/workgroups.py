# REQUIRES: numpy
# RUN: %python %s %cc %t
"""Workgroups of compiled kernels are independent of each other, of every emitter, and where they are not made so
trainc-run --check-workgroups names the kernel.

Two modules that had races: a mask of smaller rank that two kernels share, which rows of the first one loaded before another
workgroup had stored it; and a buffer of smaller rank, written over what other workgroups read. Then each kernel of some models
in turn computes in each workgroup what the one before it does."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench")]

from common import compile_module, generate, run, tool  # noqa: E402

CC, FOLDER = sys.argv[1:3]
MARK = 0x5EED0DD5EED0DD00
MASK = """train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x8x48x16xf32> init(normal<0.5>) optimizer(@o)
train.param @k : tensor<8x8x48x16xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%d: tensor<2xf32>) {{
  %q = train.read @w : tensor<8x8x48x16xf32>
  %k = train.read @k : tensor<8x8x48x16xf32>
  %n = nn.constant dense<-1.0e30> : tensor<f32>
  %c = nn.constant dense<{mask}> : tensor<48x48xi8>
  %x = nn.cast %c to i1 : tensor<48x48xi8>
  %s0 = nn.matmul %q, %k transpose_rhs : tensor<8x8x48x16xf32>, tensor<8x8x48x16xf32>
  %m0 = nn.select %x, %s0, %n : tensor<48x48xi1>, tensor<8x8x48x48xf32>, tensor<f32>
  %p0 = nn.softmax %m0 dim 3 : tensor<8x8x48x48xf32>
  %y0 = nn.matmul %p0, %q : tensor<8x8x48x48xf32>, tensor<8x8x48x16xf32>
  %s1 = nn.matmul %y0, %k transpose_rhs : tensor<8x8x48x16xf32>, tensor<8x8x48x16xf32>
  %m1 = nn.select %x, %s1, %n : tensor<48x48xi1>, tensor<8x8x48x48xf32>, tensor<f32>
  %p1 = nn.softmax %m1 dim 3 : tensor<8x8x48x48xf32>
  %y1 = nn.matmul %p1, %y0 : tensor<8x8x48x48xf32>, tensor<8x8x48x16xf32>
  %h = nn.reduce sum %d dims [0] : tensor<2xf32>
  %l0 = nn.reduce sum %y1 dims [0, 1, 2, 3] : tensor<8x8x48x16xf32>
  %l = nn.add %l0, %h : tensor<f32>, tensor<f32>
  train.yield loss(%l) : tensor<f32>
}}
"""
BUFFER = """train.optimizer @o = sgd<lr = 0.0>
train.param @w : tensor<64x512xf32> init(ones) optimizer(@o)
train.buffer @m : tensor<512xf32> init(ones)
train.step @step(%x: tensor<64x512xf32>) {
  %w = train.read @w : tensor<64x512xf32>
  %m = train.read @m : tensor<512xf32>
  %f = nn.constant dense<0.5> : tensor<f32>
  %a = nn.mul %m, %f : tensor<512xf32>, tensor<f32>
  %y = nn.mul %w, %a : tensor<64x512xf32>, tensor<512xf32>
  %z = nn.add %y, %x : tensor<64x512xf32>, tensor<64x512xf32>
  train.write %a to @m : tensor<512xf32>
  %c = nn.reduce sum %z dims [0, 1] : tensor<64x512xf32>
  train.yield loss(%c) : tensor<f32>
}
"""
GPT = ["--layers", 1, "--width", 96, "--heads", 2, "--vocab", 1500, "--batch", 4, "--seq", 64]
# Example, its options, those of trainc, and which kernels.
MODELS = {"gpt": ("gpt", GPT, [], ""), "cnn": ("cnn", ["--batch", 16], [], ""),
          "separate": ("gpt", GPT, ["--disable-pass=train-fuse-optimizer"], "k_square_sum")}
# One kernel at least of each emitter.
EMITTERS = {"rows": r"k_add_layer_norm|k_conv2d_relu", "columns": r"k_reduce|k_mul_reduce", "attention": r"k_packed_attention(_\d+)?$",
            "gradients of attention": r"k_packed_attention_grad", "gradients of embeddings": r"k_embedding_grad",
            "convolutions": r"k_conv2d(_\d+)?$", "gradients of convolutions": r"k_conv2d_(input|weight)_grad",
            "segments": r"k_update", "squares of segments": r"k_norm", "squares": r"k_square_sum", "pools": r"k_max_pool2d",
            "linalg": r"k_embedding(_\d+)?$"}


def state(library, threads):
    path = os.path.join(FOLDER, "state.safetensors")
    run([tool("trainc-run"), library, "--benchmark", "4", "--threads", str(threads), "--save", path])
    with open(path, "rb") as f:
        return f.read()


def tensor(data, name):
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])


def check(library):
    return run([tool("trainc-run"), library, "--check-workgroups", "1", "--threads", "3"], check=False)


def check_shared():
    """The two modules: nothing is found, and bits are equal on any number of threads."""
    mask = json.dumps([[int((7 * i + j) % 5 < 3 or i == j) for j in range(48)] for i in range(48)])
    problems = []
    for name, text in (("mask", MASK.format(mask=mask)), ("buffer", BUFFER)):
        library = compile_module(text, os.path.join(FOLDER, name + ".so"))
        done = check(library)
        if done.returncode or "checked" not in done.stdout:
            problems.append(f"{name}: {done.stderr}")
        one = state(library, 1)
        problems += [f"{name}: other bits on {n} threads" for n in (2, 3, 8) for _ in range(5) if state(library, n) != one]
    gradient = set(tensor(state(library, 2), "w"))
    if gradient != {1.0}:  # the learning rate is 0
        problems.append(f"buffer: a parameter became {gradient}")
    return problems


def counts(source, options):
    """Workgroups of each kernel."""
    commands = os.path.join(FOLDER, "commands.mlir")
    run([tool("trainc"), source, *options, "--stop-after=commands", "-o", commands])
    text = run([tool("trainc-opt"), commands, "--train-lower-kernels"]).stdout
    return {name: int(count) for name, count in re.findall(r"train\.kernel @(\w+)\(.*abi = #train\.abi<workgroups = (\d+)", text)}


def planted(model):
    """A library in which each kernel numbers its workgroups by halves if the number at MARK is its own; the kernels' names."""
    source, base = (os.path.join(FOLDER, model + end) for end in (".mlir", ""))
    example, arguments, options, _ = MODELS[model]
    with open(source, "w") as f:
        f.write(generate(example, *arguments))
    run([tool("trainc"), source, *options, "--emit=llvm", "-o", base + ".ll"])
    with open(base + ".ll") as f:
        text = f.read()
    names = []

    def head(match):
        names.append(match.group(2))
        return (f"{match.group(1)}\n  %planted = load volatile i64, ptr @planted\n  %on = icmp eq i64 %planted,"
                f" {MARK + len(names)}\n  %shift = zext i1 %on to i64\n  %half = lshr i64 %1, %shift")

    text = re.sub(r"(?m)^(define internal void @(k_\w+)\(ptr %0, i64 %1, ptr %2\).*\{)$", head, text)
    text = re.sub(r"(call void @k_\w+\.body\(.*)i64 %1\b", r"\1i64 %half", text) + f"\n@planted = global i64 {MARK}\n"
    with open(base + ".ll", "w") as f:
        f.write(text)
    descriptor = re.search(r"(?m)^@(\w+_descriptor) = ", text).group(1)
    # An artifact needs no library, but clang makes calls of memcpy of this text.
    run([CC, "-O1", "-ffreestanding", "-fno-builtin", "-fPIC", "-fvisibility=hidden", "-c", os.path.join(ROOT, "test/Integration/Inputs/memory.c"),
         "-o", base + ".memory.o"])
    run([CC, "-O1", "-march=x86-64-v3", "-Wno-override-module", "-shared", "-fPIC", "-nostdlib",
         f"-Wl,--defsym=trainc_descriptor={descriptor}", base + ".ll", base + ".memory.o", "-o", base + ".so"])
    return base + ".so", names, counts(source, options)


def check_planted(model, missing):
    library, names, tiles = planted(model)
    with open(library, "rb") as f:
        data = f.read()
    mark = struct.pack("<Q", MARK)
    problems = [] if data.count(mark) == 1 else [f"{model}: the mark stands {data.count(mark)} times in the library"]
    done = check(library)
    if done.returncode:
        problems.append(f"{model}: {done.stderr}")
    found = 0
    for number, name in enumerate(names, 1):
        if tiles[name] == 1 or not name.startswith(MODELS[model][3]):
            continue
        with open(library, "wb") as f:
            f.write(data.replace(mark, struct.pack("<Q", MARK + number)))
        error = check(library).stderr
        if f"workgroups 0 and 1 of '{name[2:]}'" not in error or "both write byte" not in error:
            problems.append(f"{model}: nothing found in {name} of {tiles[name]} workgroups: {error}")
            continue
        found += 1
        for emitter, pattern in EMITTERS.items():
            if re.match(pattern, name):
                missing.discard(emitter)
    print(f"{model}: {found} planted races were named")
    return problems


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    problems, missing = check_shared(), set(EMITTERS)
    for model in MODELS:
        problems += check_planted(model, missing)
    problems += [f"no kernel was planted of: {emitter}" for emitter in sorted(missing)]
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
