"""One training step in ONNX Runtime's on-device training (artifacts, driven from Python): mlp-tiny in f32.

Install onnxruntime-training==1.19.2 and onnx==1.17.0 first.
"""
import tempfile
import time
from importlib import metadata

import measure
from workloads import CHECKED_STEPS, OPTIMIZER, WORKLOADS, batches, initial_values

a = measure.arguments()
w = WORKLOADS[a.workload]
if w.kind != "mlp" or a.bf16:
    raise SystemExit("ort_peer.py: mlp-tiny in f32 only")

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime.training import artifacts, onnxblock  # noqa: E402
from onnxruntime.training.api import CheckpointState, Module, Optimizer  # noqa: E402

o = OPTIMIZER
(x, y), = batches(w)
y = y.astype("int64")
weights = [numpy_helper.from_array(v, name) for name, v in initial_values(w)]
graph = helper.make_graph(
    [helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
     helper.make_node("Gemm", ["b", "fc2.weight", "fc2.bias"], ["logits"])], "mlp",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [32, 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

start = time.perf_counter()
with tempfile.TemporaryDirectory() as d:
    artifacts.generate_artifacts(
        model, requires_grad=[t.name for t in weights], loss=artifacts.LossType.CrossEntropyLoss,
        artifact_directory=d,
        optimizer=onnxblock.optim.AdamW(
            betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["weight_decay"],
            clip_grad=onnxblock.optim.ClipGradNorm(o["clip_norm"])))
    state = CheckpointState.load_checkpoint(d + "/checkpoint")
    module = Module(d + "/training_model.onnx", state, d + "/eval_model.onnx")
    optimizer = Optimizer(d + "/optimizer_model.onnx", module)
optimizer.set_learning_rate(o["lr"])
module.train()
compile_s = time.perf_counter() - start


def timed():
    t = time.perf_counter()
    loss = module(x, y)
    t1 = time.perf_counter()
    optimizer.step()
    module.lazy_reset_grad()
    t2 = time.perf_counter()
    times.append(t2 - t)
    updates.append(t2 - t1)
    return float(loss)


times, updates = [], []
losses = [timed() for _ in range(CHECKED_STEPS)]
SETTINGS = f"onnxruntime-training {metadata.version('onnxruntime-training')}, on-device training API"
if a.serve:
    measure.serve("onnxruntime-training", a, losses, timed, settings=SETTINGS)
measure.step_peak_rss_mb(reset=True)
foreign, times, updates = measure.Foreign(), [], []
for _ in range(a.steps):
    timed()
measure.report("onnxruntime-training", a, times, updates, compile_s, losses, foreign.cores(), measure.step_peak_rss_mb(), settings=SETTINGS)
