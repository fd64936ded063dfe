# REQUIRES: numpy
# RUN: %python %s
"""Whether a product of bf16 is rounded before it is widened, and which back end multiplies, is settled by the source: the state of
some updates has the same bits whatever passes are left out, under a limit of memory, and where regions are computed again."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import compile_module, tool  # noqa: E402
from report import check  # noqa: E402

MODULE = """
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<256x512xf32> init(normal<0.1>) optimizer(@sgd)
train.param @g : tensor<512xf32> init(ones) optimizer(@sgd)
train.param @v : tensor<512x16xf32> init(normal<0.1>) optimizer(@sgd)
train.step @step(%x: tensor<512x256xf32>, %y: tensor<512x16xf32>) PRECISION {
  %v = train.read @v : tensor<512x16xf32>
BODY
  %z = nn.matmul %h, %v : tensor<512x512xf32>, tensor<512x16xf32>
  %loss, %n = nn.mse %z, %y : tensor<512x16xf32>, tensor<512x16xf32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}
"""
H = "tensor<512x512xf32>"
PRODUCT = f"""
  %w = train.read @w : tensor<256x512xf32>
  %g = train.read @g : tensor<512xf32>
  %p = nn.linear %x, %w : tensor<512x256xf32>, tensor<256x512xf32>
"""
NORM = PRODUCT + f"  %h = nn.rms_norm %p, %g : {H}, tensor<512xf32>"
KEPT = PRODUCT + f"  %h = nn.silu %p : {H}"
# A product that the layer behind takes twice, of which one takes it in f32.
SHARED = PRODUCT + f"""  %a = nn.silu %p : {H}
  %h = nn.add %a, %p : {H}, {H}"""
RESHAPED = PRODUCT + f"""  %r = nn.reshape %p : {H} to tensor<262144xf32>
  %q = nn.reshape %r : tensor<262144xf32> to {H}
  %h = nn.silu %q : {H}"""
# A weight whose gradient is moved before it is widened.
MOVED = f"""
  %w = train.read @w : tensor<256x512xf32>
  %c = nn.cast %w to bf16 : tensor<256x512xf32>
  %t = nn.reshape %c : tensor<256x512xbf16> to tensor<512x256xbf16>
  %u = nn.reshape %t : tensor<512x256xbf16> to tensor<256x512xbf16>
  %i = nn.cast %x to bf16 : tensor<512x256xf32>
  %p = nn.linear %i, %u : tensor<512x256xbf16>, tensor<256x512xbf16>
  %q = nn.cast %p to f32 : tensor<512x512xbf16>
  %h = nn.silu %q : {H}"""
# A product of A' with a bias and gelu behind.
TRANSPOSED = f"""
  %w = train.read @w : tensor<256x512xf32>
  %g = train.read @g : tensor<512xf32>
  %k = nn.concat %w, %w, %w, %w dim 0 : tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>
  %r = nn.concat %x, %x, %x, %x dim 1 : tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>
  %i = nn.transpose %r [1, 0] : tensor<512x1024xf32>
  %p = nn.matmul %i, %k transpose_lhs : tensor<1024x512xf32>, tensor<1024x512xf32>
  %b = nn.add %p, %g : {H}, tensor<512xf32>
  %h = nn.gelu %b tanh : {H}"""
# A product in a region whose cast stands behind it, and a cast in a region whose product stands before.
ACROSS = {"a product that a region gives": (KEPT, f"""
  %p = train.recompute -> {H} {{
    %w = train.read @w : tensor<256x512xf32>
    %i = nn.linear %x, %w : tensor<512x256xf32>, tensor<256x512xf32>
    train.yield %i : {H}
  }}
  %h = nn.silu %p : {H}""", 'precision(compute = bf16, keep_f32 = ["nn.silu"])'),
          "a product that a region takes": (MOVED, MOVED.replace("%h = nn.silu", "%s = nn.silu").replace(
              "%q = nn.cast", f"%h = train.recompute -> {H} {{\n  %q = nn.cast") + f"\n  train.yield %s : {H}\n  }}", "")}
BF16, SILU = "precision(compute = bf16)", 'precision(compute = bf16, keep_f32 = ["nn.silu"])'
CASES = {"a norm": (NORM, BF16), "what is kept in f32": (KEPT, SILU), "two users": (SHARED, SILU), "reshapes that cancel": (RESHAPED, SILU),
         "a weight that is moved": (MOVED, ""), "a bias and gelu of a product of A'": (TRANSPOSED, "")}
OPTIONS = {"--reference": ["--reference"], "a limit": ["--memory-limit=10G"],
           **{f"without {p}": [f"--disable-pass={p}"] for p in ("canonicalize", "train-choose-saved", "train-fuse-epilogues",
                                                               "train-choose-saved,train-fuse-epilogues,canonicalize")}}


def recomputed(body):
    inner = body.rpartition("%h = ")
    return f"  %h = train.recompute -> {H} {{{inner[0]}%i_h = {inner[2]}\n  train.yield %i_h : {H}\n  }}"


def trained(body, precision, *options):
    with tempfile.TemporaryDirectory() as folder:
        library = compile_module(MODULE.replace("BODY", body).replace("PRECISION", precision), os.path.join(folder, "m.so"), *options)
        state = os.path.join(folder, "state.safetensors")
        subprocess.run([tool("trainc-run"), library, "--benchmark", "3", "--save", state], check=True, stdout=subprocess.DEVNULL)
        with open(state, "rb") as f:
            return f.read()


def main():
    bad = 0
    for name, (body, precision) in CASES.items():
        want = trained(body, precision)
        different = [option for option, options in OPTIONS.items() if trained(body, precision, *options) != want]
        if trained(recomputed(body), precision) != want:
            different.append("train.recompute")
        bad += check(f"{name}: {', '.join(different) or 'none'} differs", not different)
    for name, (body, region, precision) in ACROSS.items():
        bad += check(name, trained(region, precision) == trained(body, precision), "has other bits")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
