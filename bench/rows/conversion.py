"""The row on converting a large state: what it takes at most, by the trainer's account and by the system's.

As a script: measures in a process of its own, the artifacts' folder as argument, and prints JSON.
"""
import json
import os
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common import RUNTIME_LIBRARY, compile_module, run  # noqa: E402

MEBIBYTE = 1 << 20
BAR = MEBIBYTE
CAPS = (1.0, 1.1, 1.5)
TYPES = ("f32", "bf16", "f16")
DIRECTIONS = (("f32", "bf16"), ("f32", "f16"), ("bf16", "f32"))
WIDTH, LARGE, ROWS, SMALL = 1024, 160 * 1024, 8 * 1024, 16  # in f32 a frozen tensor of 640 MiB, 16 trained of 32 MiB
NO_INIT, PARAMETERS = 1, 1


def module(dtype):
    """A sum of embeddings: next to no activations."""
    names = ["large", *(f"small{i}" for i in range(SMALL))]
    lines = ["train.optimizer @sgd = sgd<lr = 0.1>"]
    body = []
    total = None
    for name in names:
        rows, group = (LARGE, "frozen") if name == "large" else (ROWS, "optimizer(@sgd)")
        lines.append(f"train.param @{name} : tensor<{rows}x{WIDTH}x{dtype}> init(uniform<-1.0, 1.0>) {group}")
        body += [f"  %{name} = train.read @{name} : tensor<{rows}x{WIDTH}x{dtype}>",
                 f"  %{name}_x = nn.embedding %{name}, %x : tensor<{rows}x{WIDTH}x{dtype}>, tensor<8xi32>",
                 f"  %{name}_s = nn.reduce sum %{name}_x dims [0, 1] : tensor<8x{WIDTH}x{dtype}>"]
        if total:
            body.append(f"  %{name}_t = nn.add {total}, %{name}_s : tensor<{dtype}>, tensor<{dtype}>")
        total = f"%{name}_t" if total else f"%{name}_s"
    if dtype != "f32":
        body.append(f"  %loss = nn.cast {total} to f32 : tensor<{dtype}>")
        total = "%loss"
    return "\n".join([*lines, "train.step @step(%x: tensor<8xi32>) {", *body,
                      f"  train.yield loss({total}) : tensor<f32>", "}", ""])


def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


class Measurement:
    def __init__(self, folder):
        from trainc_ctypes import Error, Runtime, Trainer
        self.folder, self.Error, self.Trainer = folder, Error, Trainer
        self.runtime = Runtime(RUNTIME_LIBRARY)
        self.excess = {"account": 0, "resident": 0}
        self.model = 0
        self.caps = {"kept": [], "refused": []}
        self.complaints = []

    def library(self, dtype):
        return os.path.join(self.folder, dtype + ".so")

    def new(self, dtype, **options):
        return self.Trainer(self.runtime, self.library(dtype), seed=1, **options)

    def measured(self, trainer, what, act):
        """Bytes above the larger of before and after, and the time."""
        before = trainer.memory().total
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")  # VmHWM starts again from VmRSS
        resident = status("VmRSS")
        act()
        highest = status("VmHWM") - max(resident, status("VmRSS"))
        after = trainer.memory()
        account = after.peak - max(before, after.total)
        for key, value in (("account", account), ("resident", highest)):
            self.excess[key] = max(self.excess[key], value)
            if value > BAR:
                self.complaints.append(f"{what}: {value} bytes above by the {key}")

    def checksum(self, trainer):
        """Of all parameters as they lie in memory."""
        import ctypes
        total = 0
        for name in trainer.names():
            data, tensor = trainer.held(name)
            for begin in range(0, tensor.bytes, 64 * MEBIBYTE):
                piece = (ctypes.c_char * min(64 * MEBIBYTE, tensor.bytes - begin)).from_address(data + begin)
                total = zlib.crc32(piece, total)
        return total

    def direction(self, start, to):
        self.new(to, flags=NO_INIT).close()  # what libraries hold is held before
        what = f"{start} to {to}"
        checkpoint = os.path.join(self.folder, "checkpoint.safetensors")
        with self.new(start) as trainer:
            trainer.save(checkpoint)
            original = self.checksum(trainer)
            total = trainer.memory().total
            self.model = max(self.model, sum(trainer.held(name)[1].bytes for name in trainer.names()))
            for cap in CAPS:
                limit = int(cap * total)
                try:
                    trainer.convert(self.library(to), memory_limit=limit)
                except self.Error as e:
                    if "memory_limit is" not in str(e) or self.checksum(trainer) != original \
                            or trainer.memory().total != total:
                        self.complaints.append(f"{what} at {cap}x: {e}")
                    self.caps["refused"].append(f"{what} {cap}x")
                    continue
                if trainer.memory().peak > limit:
                    self.complaints.append(f"{what} at {cap}x: held {trainer.memory().peak} of {limit}")
                self.caps["kept"].append(f"{what} {cap}x")
                trainer.convert(self.library(start))
                trainer.load(checkpoint)
            self.measured(trainer, f"{what} in place", lambda: trainer.convert(self.library(to)))
            expected = self.checksum(trainer)
            trainer.convert(self.library(start))
            trainer.load(checkpoint)
            self.measured(trainer, f"{what} by type", lambda: trainer.convert(dtype=to.encode(), what=PARAMETERS))
            if self.checksum(trainer) != expected:
                self.complaints.append(f"{what} by type: other values")
        with self.new(to, flags=NO_INIT) as trainer:
            self.measured(trainer, f"{what} by checkpoint", lambda: trainer.load(checkpoint))
            if self.checksum(trainer) != expected:
                self.complaints.append(f"{what} by checkpoint: other values")
        os.remove(checkpoint)


def conversion(folder):
    from rows import judge
    for dtype in TYPES:
        compile_module(module(dtype), os.path.join(folder, dtype + ".so"))
    found = json.loads(run([sys.executable, os.path.abspath(__file__), folder]).stdout)
    account, resident = (found["excess"][key] / 1024 for key in ("account", "resident"))
    kept, refused = (", ".join(found["caps"][key]) for key in ("kept", "refused"))
    return judge(not found["complaints"], "; ".join(found["complaints"][:3]) or
                 f"{found['model'] / 1e9:.2f} GB of parameters, in place and by checkpoint: at most {account:.0f} KiB by"
                 f" the account and {resident:.0f} KiB by VmHWM above the larger state; caps kept: {kept}; refused, nothing"
                 f" changed: {refused}")


if __name__ == "__main__":
    measurement = Measurement(sys.argv[1])
    for pair in DIRECTIONS:
        measurement.direction(*pair)
    print(json.dumps({key: getattr(measurement, key) for key in ("excess", "model", "caps", "complaints")}))
