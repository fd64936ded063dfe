# REQUIRES: numpy
# RUN: %python %s
"""Products of libraries have the same bits whatever a program that shares OpenBLAS makes of its threads, which stay the program's,
and whatever the environment says of oneDNN's instructions."""
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

MODULE = """
train.optimizer @o = sgd<lr = 0.0>
train.param @p : tensor<f32> init(ones) optimizer(@o)
train.step @step() {{
  %p = train.read @p : tensor<f32>
  train.yield loss(%p) : tensor<f32>
}}
train.eval @eval(%x: tensor<{m}x{k}x{t}>, %y: tensor<{k}x{n}x{t}>) -> ("z") {{
  %z = nn.matmul %x, %y : tensor<{m}x{k}x{t}>, tensor<{k}x{n}x{t}>
  train.yield %z : tensor<{m}x{n}x{t}>
}}
"""
DOUBLE, SINGLE = dict(m=37, k=701, n=53, t="f64"), dict(m=160, k=301, n=170, t="f32")


def products(sizes, before_each):
    """The product, made again after each of these functions."""
    m, k, n, t = sizes.values()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(t.replace("f", "float")) for shape in ((m, k), (k, n)))
    with tempfile.TemporaryDirectory() as folder:
        path = compile_module(MODULE.format(**sizes), os.path.join(folder, "m.so"))
        with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=1, seed=1) as trainer:
            for function in before_each:
                function()
                yield np.array(trainer.eval("eval", x=x, y=y)["z"]).tobytes()


def main():
    if "--product" in sys.argv:
        print(next(products(SINGLE, [lambda: None])).hex())
        return False
    library = ctypes.CDLL("libopenblas.so.0")
    one, two = products(DOUBLE, [lambda: library.openblas_set_num_threads(1), lambda: library.openblas_set_num_threads(2)])
    bad = check("OpenBLAS at two threads", one == two, "has other bits")
    bad += check("its threads", library.openblas_get_num_threads() == 2, f"are {library.openblas_get_num_threads()} afterwards")

    def product(**environment):
        return subprocess.run([sys.executable, __file__, "--product"], env={**os.environ, **environment}, capture_output=True, text=True,
                              check=True).stdout

    bad += check("oneDNN held to AVX2", product(ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="AVX2") == product(), "has other bits")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
