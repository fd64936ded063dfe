"""What a user does with the package and NumPy alone: compiles a step, trains it, saves and loads; says what importing took."""
import os
import sys
import tempfile
import time

begin = time.perf_counter()
import trainc  # noqa: E402

seconds = time.perf_counter() - begin
import numpy as np  # noqa: E402

STEP = """
train.optimizer @o = adamw<lr = 0.05>
train.param @w : tensor<8x3xf32> init(normal<0.1>) optimizer(@o)
train.step @step(%x: tensor<16x8xf32>, %y: tensor<16xi32>) clip(global_norm<1.0>) {
  %w = train.read @w : tensor<8x3xf32>
  %z = nn.matmul %x, %w : tensor<16x8xf32>, tensor<8x3xf32>
  %loss, %n = nn.cross_entropy %z, %y : tensor<16x3xf32>, tensor<16xi32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}
"""
rng = np.random.default_rng(1)
x = rng.standard_normal((16, 8), np.float32)
y = (x @ rng.standard_normal((8, 3))).argmax(1).astype(np.int32)
with tempfile.TemporaryDirectory() as folder:
    library = trainc.compile(STEP, os.path.join(folder, "step.so"))
    with trainc.load(library, threads=1) as step:
        losses = [step(x, y).loss for _ in range(100)]
        step.save(os.path.join(folder, "step.safetensors"))
        after = step(x, y).loss
    with trainc.load(library, threads=1) as step:
        step.load(os.path.join(folder, "step.safetensors"))
        assert step(x, y).loss == after
assert losses[-1] < 0.3 * losses[0], losses
assert "torch" not in sys.modules
assert seconds <= 0.2, f"import trainc took {seconds:.2f} s, expected at most 0.2"
print(f"import trainc {seconds:.2f} s; compiled, trained (loss {losses[0]:.2f} to {losses[-1]:.2f}), saved and loaded without LLVM or PyTorch")
