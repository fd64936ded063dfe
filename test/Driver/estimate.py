# trainc --estimate: the work of a step by what its time depends on, collectives by kind and ranks, with given rates; and
# that trainc-run --preflight measures rates that it takes.
#
# RUN: rm -rf %t && mkdir %t && %python %s %trainc_build/bin %t %trainc_src/examples/gpt.py

import json
import pathlib
import re
import subprocess
import sys

tools, folder, generator = map(pathlib.Path, sys.argv[1:])

LAYER = """
train.mesh @mesh(data = 1)
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<48x1024xf32> init(normal<0.5>) optimizer(@sgd)
train.step @step(%x: tensor<96x48xf32> split([data]), %y: tensor<96xi32> split([data])) {
  %w = train.read @w : tensor<48x1024xf32>
  %logits = nn.linear %x, %w : tensor<96x48xf32>, tensor<48x1024xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<96x1024xf32>, tensor<96xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
"""
PARAMETERS = 4 * 48 * 1024  # bytes


def trainc(text, *options):
    return subprocess.run(
        [tools / "trainc", "-", *options], input=text, capture_output=True, text=True, timeout=300
    )


def estimate(text, rates, *options):
    """The estimate, and that of the step alone."""
    result = trainc(text, "--estimate=json", f"--bandwidth={rates}", *options)
    assert result.returncode == 0, result.stderr
    whole = json.loads(result.stdout)
    return whole, whole["entries"][0]


def near(a, b):
    assert abs(a - b) <= 1e-9 * max(abs(a), abs(b)), (a, b)


def refused(message, *options, text=LAYER):
    result = trainc(text, *options)
    assert result.returncode == 1 and message in result.stderr and not result.stdout, result.stderr


CONVOLUTIONS = """
train.optimizer @sgd = sgd<lr = 0.1>
train.param @a : tensor<16xCHANNELSx3x3xf32> init(normal<0.1>) optimizer(@sgd)
train.param @b : tensor<16xCHANNELSx3x3xf32> init(normal<0.1>) optimizer(@sgd)
train.step @step(%x: tensor<4x16x12x12xf32>) precision(compute = TYPE) {
  %a = train.read @a : tensor<16xCHANNELSx3x3xf32>
  %b = train.read @b : tensor<16xCHANNELSx3x3xf32>
  %y = nn.conv2d %x, %a padding [1, 1, 1, 1] groups GROUPS : tensor<4x16x12x12xf32>, tensor<16xCHANNELSx3x3xf32>
  %r = nn.relu %y : tensor<4x16x12x12xf32>
  %z = nn.conv2d %r, %b strides [2, 2] padding [1, 1, 1, 1] groups GROUPS : tensor<4x16x12x12xf32>, tensor<16xCHANNELSx3x3xf32>
  %q = nn.mul %z, %z : tensor<4x16x6x6xf32>, tensor<4x16x6x6xf32>
  %s = nn.reduce sum %q dims [0, 1, 2, 3] : tensor<4x16x6x6xf32>
  train.yield loss(%s) : tensor<f32>
}
"""


def check_convolutions():
    """On GPUs, where all are kernels, all count alike: a layer and the gradients of its weight and, but for the first
    layer, its input, whatever their type, groups and strides are."""
    rates = "f32=1T,bf16=1T,convolution=1G,memory=1T"
    for type, groups in ("f32", 1), ("bf16", 1), ("f16", 1), ("f32", 4), ("bf16", 16):
        text = CONVOLUTIONS.replace("CHANNELS", str(16 // groups)).replace("TYPE", type).replace("GROUPS", str(groups))
        _, step = estimate(text, rates, "--target=cuda")
        (convolutions,) = (w for w in step["work"] if w["rate"] == "convolution")
        layers = [2 * 4 * 16 * size * size * 16 // groups * 9 for size in (12, 6)]
        near(convolutions["flops"], 2 * layers[0] + 3 * layers[1])
        assert convolutions["count"] == 5, convolutions


def check_products():
    """Two products, that of the layer and that of the gradient of its weight, of which each rank has its part."""
    for ranks in (1, 2, 4):
        mesh = [f"--mesh=data={ranks}"] if ranks > 1 else []
        whole, step = estimate(LAYER, "f32=2G,memory=1T,network=1T", *mesh)
        (products,) = (w for w in step["work"] if w["rate"] == "f32")
        near(products["flops"], 2 * 2 * 96 // ranks * 48 * 1024)
        near(products["seconds"], products["flops"] / 2e9)
        assert products["count"] == 2 and whole["ranks"] == ranks
        near(step["seconds"], sum(w["seconds"] for w in step["work"] + step["collectives"]))
        _, slower = estimate(LAYER, "f32=1G,memory=1T,network=1T,command=3u", *mesh)
        near(slower["seconds"], step["seconds"] + products["seconds"] + 3e-6 * step["commands"])
        assert step["commands"] == sum(w["count"] for w in step["work"])
        report = json.loads(trainc(LAYER, "--memory-report=json", *mesh).stdout)
        assert report["total"] == whole["memory"]


def check_roofline():
    """A GEMM takes as long as its flops or its bytes, whichever is longer."""
    def gemms(rates):
        _, step = estimate(LAYER, rates)
        (work,) = (w for w in step["work"] if w["rate"] == "f32")
        return work
    fast, slow = gemms("f32=1T,memory=1T"), gemms("f32=1T,memory=1M")
    near(fast["seconds"], fast["flops"] / 1e12)
    sizes = 96 * 48 + 48 * 1024 + 96 * 1024  # the elements of input, weight and output, or of their gradients
    near(slow["seconds"], 2 * 4 * sizes / 1e6)


def check_collectives():
    """As NCCL's tests count: what n ranks move of a range of b bytes is (n - 1) / n b, twice that to sum it up for all."""
    _, step = estimate(LAYER, "f32=1T,memory=1T,network=1G,latency=5u", "--mesh=data=4", "--shard=optimizer")
    found = {c["kind"]: c for c in step["collectives"]}
    partial = 4 * 3 * 8  # bytes of the partial sums of the gradient norm, three of each rank
    for kind, count, size in (("reduce_scatter", 1, PARAMETERS), ("all_gather", 2, PARAMETERS + partial)):
        assert found[kind]["count"] == count and found[kind]["bytes"] == size and found[kind]["axes"] == "data", found
        near(found[kind]["seconds"], 5e-6 * count + 0.75 * size / 1e9)
    sums = found["all_reduce"]  # of the loss and its weight
    near(sums["seconds"], 5e-6 * sums["count"] + 1.5 * sums["bytes"] / 1e9)
    near(step["communication"], sum(c["seconds"] for c in step["collectives"]))
    near(step["exposed"], step["communication"])
    _, other = estimate(
        LAYER, "f32=1T,memory=1T,network=1G,reduce_scatter=2G,network.data=0.5G", "--mesh=data=4", "--shard=optimizer"
    )
    found = {c["kind"]: c["seconds"] for c in other["collectives"]}
    near(found["reduce_scatter"], 0.75 * PARAMETERS / 0.5e9)
    near(found["all_gather"], 0.75 * (PARAMETERS + partial) / 0.5e9)


def check_scattered():
    """A sum of which each rank adds up its own part, and the gather that is its gradient, each once through the network."""
    text = """
train.mesh @mesh(model = 1)
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<64x32xf32> init(normal<0.5>) optimizer(@sgd) split([model])
train.step @step(%x: tensor<96x64xf32>) {
  %w = train.read @w : tensor<64x32xf32>
  %p = nn.linear %x, %w : tensor<96x64xf32>, tensor<64x32xf32>
  %c = train.constrain %p split([model]) : tensor<96x32xf32>
  %t = nn.tanh %c : tensor<96x32xf32>
  %loss = nn.reduce sum %t dims [0, 1] : tensor<96x32xf32>
  train.yield loss(%loss) : tensor<f32>
}
"""
    _, step = estimate(text, "f32=1T,memory=1T,network=1G", "--mesh=model=4")
    found = {c["kind"]: c for c in step["collectives"]}
    for kind in ("reduce_scatter", "all_gather"):
        assert (found[kind]["count"], found[kind]["bytes"]) == (1, 4 * 96 * 32), found
        near(found[kind]["seconds"], 0.75 * 4 * 96 * 32 / 1e9)


def check_windows():
    """What each micro-step does counts as often as there are some in a window; what the update does, once."""
    text = LAYER.replace("split([data])) {", "split([data])) accumulate(5) {")
    rates = "f32=1T,memory=1T,update=1G,network=1G"
    (_, one), (_, five) = estimate(LAYER, rates, "--mesh=data=2"), estimate(text, rates, "--mesh=data=2")
    work = [{w["rate"]: w for w in step["work"]} for step in (one, five)]
    assert five["micro_steps"] == 5 and work[1]["f32"]["flops"] == 5 * work[0]["f32"]["flops"]
    assert work[1]["update"]["count"] == work[0]["update"]["count"]
    # However many there are, the estimate takes no longer.
    most = 2**31 - 1
    for options in [], ["--merge-buffer=sharded"], ["--merge-buffer=sharded", "--target=cuda"]:
        with_four, with_five, with_most = (
            estimate(text.replace("(5)", f"({count})"), f"{rates},command=1u", "--mesh=data=2", *options)[1]
            for count in (4, 5, most)
        )
        for name in "seconds", "commands", "communication":
            near(with_most[name], with_five[name] + (most - 5) * (with_five[name] - with_four[name]))
    early = estimate(text, rates, "--mesh=data=2", "--merge-buffer=sharded")[1]
    moved = [sum(c["bytes"] for c in step["collectives"] if c["bytes"] > 1000) for step in (one, five, early)]
    assert moved[0] == moved[1] < moved[2], moved


def check_gpu(gpt):
    """On a GPU what is started apart moves beside the commands behind."""
    rates = "f32=1T,memory=1T,network=100G"
    options = ["--mesh=data=2", "--shard=optimizer", "--bucket-size=65536"]
    _, cpu = estimate(gpt, rates, *options)
    near(cpu["exposed"], cpu["communication"])
    _, gpu = estimate(gpt, rates, *options, "--target=cuda")
    assert 0 < gpu["exposed"] < gpu["communication"], gpu


def check_attention(gpt):
    """2 matrix multiplications in the forward, 5 in the backward, of the pairs of 16 tokens that causality admits."""
    _, step = estimate(gpt, "f32=1T,memory=100T,attention=2T")
    (attention,) = (w for w in step["work"] if w["rate"] == "attention")
    near(attention["flops"], 2 * (2 + 5) * 2 * 2 * (16 * 17 // 2) * 32)
    near(attention["seconds"], attention["flops"] / 2e12)
    _, other = estimate(gpt, "f32=1T,memory=100T")
    (attention,) = (w for w in other["work"] if w["rate"] == "attention")
    near(attention["seconds"], attention["flops"] / 1e12)


def check_text():
    result = trainc(LAYER, "--estimate", "--bandwidth=f32=1G,memory=1G", "-o", "-")
    assert re.search(r"^step: \d+\.\d+ ms, 0\.000 ms of it exposed communication$", result.stdout, re.M), result.stdout
    assert re.search(r"^memory: \d+\.\d+ MB per rank, 1 rank$", result.stdout, re.M), result.stdout


def check_refusals():
    refused("--estimate needs --bandwidth=rate=number,...", "--estimate")
    refused("--bandwidth needs --estimate", "--bandwidth=f32=1G")
    refused("expects --memory-report or --estimate, got both", "--estimate", "--memory-report", "--bandwidth=f32=1G")
    refused("expects --estimate, --estimate=text or --estimate=json, got 'xml'", "--estimate=xml", "--bandwidth=f32=1G")
    refused("--estimate needs form commands", "--estimate", "--bandwidth=f32=1G", "--stop-after=plan")
    for bad in ("f32", "f32=", "f32=fast", "f32=0", "f32=-1G", "flops=1G", "network.=1G", "f32=1Q", "f32=inf"):
        refused(f"got '{bad}'", "--estimate", f"--bandwidth={bad}")
    refused("expects the rate f32 in --bandwidth, in flops per second", "--estimate", "--bandwidth=memory=1G")
    refused("expects the rate memory in --bandwidth", "--estimate", "--bandwidth=f32=1G")
    refused("expects network.AXIS in --bandwidth to name an axis of the mesh, got 'network.hots'",
            "--estimate", "--bandwidth=f32=1G,memory=1G,network=1G,network.hots=1G", "--mesh=data=2")
    refused("expects the rate reduce_scatter or network in --bandwidth, in bytes per second",
            "--estimate", "--bandwidth=f32=1G,memory=1G", "--mesh=data=2")


def check_preflight(gpt):
    """What a model's preflight measures is what its estimate needs; not far from the truth, on any machine."""
    library = folder / "gpt.so"
    assert trainc(gpt, "-o", library).returncode == 0
    printed = subprocess.run([tools / "trainc-run", library, "--preflight"], capture_output=True, text=True, check=True)
    (rates,) = re.findall(r"^rates: --bandwidth=(\S+)$", printed.stdout, re.M)
    _, step = estimate(gpt, rates)
    timed = json.loads(subprocess.check_output([tools / "trainc-run", library, "--benchmark", "20"]))
    assert 0.2 < 1e3 * step["seconds"] / timed["step_ms_median"] < 5, (step["seconds"], timed)


def main():
    gpt = subprocess.check_output(
        [sys.executable, generator, "--layers", "2", "--width", "32", "--heads", "2", "--seq", "16", "--batch", "2"], text=True
    )
    check_products()
    check_convolutions()
    check_roofline()
    check_collectives()
    check_scattered()
    check_windows()
    check_gpu(gpt)
    check_attention(gpt)
    check_text()
    check_refusals()
    check_preflight(gpt)


main()
