"""What the suite for GPUs compiles and compares: artifacts, and the rows of each part. Packing and measuring read it.

A pack has everything in two sizes: full, for a GPU, and tiny, for its own dry run on the driver of tests.
"""
from dataclasses import dataclass

SIZES = ["full", "tiny"]
OFF = "--disable-pass="


@dataclass(frozen=True)
class Artifact:
    workload: str
    element: str = "f32"  # f32, tf32 (of products), bf16
    options: tuple = ()  # of trainc
    update: bool = False  # alone, of gradients that stand in memory

    @property
    def name(self):
        words = [self.workload, self.element, *(o.strip("-").replace(OFF.strip("-"), "no-") for o in self.options)]
        return ".".join(words + ["update"] * self.update)


# Full workloads and their tiny ones.
STEPS = {"full": ["gpt2-124m", "gpt2-124m-8x1024", "gpt2-124m-16x1024", "gpt2-124m-8x1024-50304", "gpt-char", "gpt-char-64x256"], "tiny": ["gpt-tiny"]}
LARGE = ("-8x1024", "-16x1024", "-50304", "-64x256")
UPDATES = {"full": ["optimizer-10", "optimizer-150", "optimizer-2000"], "tiny": ["optimizer-tiny-10", "optimizer-tiny-40"]}
LOSSES = {"full": ["mlp-tiny", "digits-cnn", "llama", "gpt-char", "gpt2-124m", "gpt2-124m-1x1024"],
          "tiny": ["mlp-tiny", "cnn-tiny", "llama", "gpt-tiny", "gpt-tiny-1x16"]}
IN_F64 = ["gpt2-124m-1x1024", "gpt-tiny-1x16"]  # whose reference is our own step in f64, on the processor
ONE_TYPE = ["mlp-tiny", "digits-cnn", "cnn-tiny", "llama"]  # f32 alone
# Pass, and what it is for: the step without it is slower there.
ABLATIONS = {"full": {"train-coalesce": "many-small", "train-fuse-optimizer": "many-small", "train-merge-launches": "gpt-char",
                      "fuse-kernels": "gpt-char", "train-fuse-epilogues": "gpt2-124m",
                      "train-hoist-casts": "gpt2-124m-accum4"},
             "tiny": {"train-coalesce": "gpt-tiny", "train-fuse-optimizer": "gpt-tiny", "train-merge-launches": "gpt-tiny",
                      "fuse-kernels": "gpt-tiny", "train-fuse-epilogues": "gpt-tiny",
                      "train-hoist-casts": "gpt-tiny-accum4"}}
IN_BF16 = ["train-fuse-epilogues", "train-hoist-casts"]
# Gradient merge: windows of several micro-steps, and updates of each alone.
MERGES = {"full": ("gpt2-124m-accum4", "gpt2-124m-1x64"), "tiny": ("gpt-tiny-accum4", "gpt-tiny")}
PROFILED = {"full": ["gpt2-124m-8x1024", "gpt2-124m"], "tiny": ["gpt-tiny"]}
# Types of the ops that are compared with JAX, and ops; None: all.
OPERATIONS = {"full": {"f32": None, "bf16": None, "f16": None}, "tiny": {"f32": ["gelu", "layer_norm"], "bf16": ["linear"]}}
# Steps that are done twice, beside a stream that copies memory: reductions of all kinds many times, and a longer training.
REPEATED = {"full": {"gpt-layer": 2000, "gpt-char": 300}, "tiny": {"gpt-tiny": 3}}
# Tokens, width, vocabulary and runs of the products that are timed.
TIMED = {"full": {"gpt2-124m, 8x1024": (8192, 768, 50257, 20), "gpt2-124m, 8x1024, 50304": (8192, 768, 50304, 20)},
         "tiny": {"gpt-tiny": (16, 8, 13, 1)}}
CONVERTED = {"full": "gpt2-124m", "tiny": "gpt-tiny"}


def steps(size):
    """Large products in f32 say nothing new."""
    f32 = [w for w in STEPS[size] if not w.endswith(LARGE)]
    return [*(Artifact(w, element) for element in ("bf16", "tf32") for w in STEPS[size]), *(Artifact(w) for w in f32)]


def converted(size):
    return Artifact(CONVERTED[size], "f32")


def updates(size):
    return [Artifact(w, element, update=True) for w in UPDATES[size] for element in ("f32", "bf16")]


def losses(size):
    return [Artifact(w, element) for w in LOSSES[size] for element in (["f32"] if w in ONE_TYPE else ["f32", "bf16"])]


def repeated(size):
    return [Artifact(w, "bf16") for w in REPEATED[size]]


def ablations(size):
    """{row: (on, off)}"""
    rows = {}
    for name, workload in ABLATIONS[size].items():
        element = "bf16" if name in IN_BF16 else "f32"
        rows[name] = Artifact(workload, element), Artifact(workload, element, (OFF + name,))
    rows["gradient merge"] = tuple(Artifact(w, "bf16") for w in MERGES[size])
    return rows


def sanitized():
    """Small ones, of each kind of kernel."""
    return [Artifact(w, element) for w, element in (("mlp-tiny", "f32"), ("cnn-tiny", "f32"), ("llama", "f32"), ("gpt-tiny", "bf16"))]


PARTS = {"tests": lambda size: [], "losses": losses, "products": lambda size: [], "determinism": repeated, "operations": lambda size: [], "optimizer": updates, "step": steps,
         "autotuned": lambda size: [a for a in steps(size) if a.element == "bf16"],
         "ablation": lambda size: [a for pair in ablations(size).values() for a in pair],
         "profile": lambda size: [Artifact(w, "bf16") for w in PROFILED[size]],
         "conversion": lambda size: [converted(size)],
         "sanitizer": lambda size: sanitized() if size == "tiny" else []}


def artifacts(size, parts=PARTS):
    """What parts need."""
    return list({a.name: a for part in parts for a in PARTS[part](size)}.values())
