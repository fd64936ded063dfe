"""Timing causal attention, forward and backward: the operation, the same written out as products and a softmax, and
PyTorch's, in turns."""
import math
import os
import sys

from audit import Ours
from common import PEERS, ROOT, Failed, compile_module
from timing import ROUNDS, limit_program, precision, take_turns
from timing_update import tensor
from workloads import ATTENTION

STEPS = 10
OPERATION, WRITTEN_OUT = "trainc", "written out"
PEER_MODES = ("eager", "compile")
NORMS = {False: 1e-4, True: 2e-2}  # how far those of gradients may be apart, by whether it is in bf16
LIMIT = "sgemm_char_fc"


def attention_module(w, bf16=False, written_out=False):
    """A step whose loss is the sum of g times the attention of its parameters q, k and v, so that g is the gradient of the
    attention. Written out, the heads come before the tokens, as products want it."""
    head, tokens = w.width // w.heads, w.tokens
    shape = (w.batch, w.heads, tokens, head) if written_out else (w.batch, tokens, w.heads, head)
    x, s = tensor(shape, "f32"), tensor((w.batch, w.heads, tokens, tokens), "f32")
    place, seen = (tensor((tokens, tokens), element) for element in ("i32", "i1"))
    lines = [f"%{name} = train.read @{name} : {x}" for name in "qkv"]
    if written_out:
        lines += [f"%scale = nn.constant dense<{1 / math.sqrt(head)}> : tensor<f32>",
                  f"%scaled = nn.mul %q, %scale : {x}, tensor<f32>",
                  f"%all = nn.matmul %scaled, %k transpose_rhs : {x}, {x}",
                  f"%row = nn.iota dim 0 : {place}",
                  f"%column = nn.iota dim 1 : {place}",
                  f"%seen = nn.compare ge %row, %column : {place}, {place}",
                  "%never = nn.constant dense<-1.0e30> : tensor<f32>",
                  f"%masked = nn.select %seen, %all, %never : {seen}, {s}, tensor<f32>",
                  f"%p = nn.softmax %masked dim 3 : {s}",
                  f"%o = nn.matmul %p, %v : {s}, {x}"]
    else:
        lines.append(f"%o, %lse = nn.attention %q, %k, %v causal : {x}, {x}")
    return "\n".join([
        "train.optimizer @optimizer = sgd<lr = 0.0>",
        *(f"train.param @{name} : {x} init(zeros) optimizer(@optimizer)" for name in "qkv"),
        f"train.step @step(%g: {x}){' precision(compute = bf16)' if bf16 else ''} {{",
        *lines, f"%product = nn.mul %o, %g : {x}, {x}", f"%sum = nn.reduce sum %product dims [0, 1, 2, 3] : {x}",
        "train.yield loss(%sum) : tensor<f32>", "}", ""])


def time_attention(name, folder, bf16=False, rounds=ROUNDS):
    """{program: [median ms of each round]} of the operation, of it written out, 'torch ...' and 'limit'."""
    commands = {}
    for program, file in ((OPERATION, "operation.so"), (WRITTEN_OUT, "written_out.so")):
        text = attention_module(ATTENTION[name], bf16, program == WRITTEN_OUT)
        library = compile_module(text, os.path.join(folder, file))
        commands[program] = [sys.executable, os.path.join(ROOT, "bench", "serve_attention.py"), library, name]
    for mode in PEER_MODES:
        commands[f"torch {mode}"] = [sys.executable, os.path.join(PEERS, "attention_peer.py"), "--serve", "--workload", name,
                                     "--mode", mode, *precision(bf16)]
    commands["limit"] = [limit_program(), "serve", LIMIT]
    ready = {}
    times = take_turns(commands, folder, rounds, STEPS, ready, ours=Ours(name, bf16))
    norms = {program: about["loss"] for program, about in ready.items() if "loss" in about}
    for program, found in norms.items():
        if not all(math.isclose(a, b, rel_tol=NORMS[bf16]) for a, b in zip(found, norms["torch eager"], strict=True)):
            raise Failed(f"{program}: gradients of q, k, v have the norms {found}, those of torch eager"
                         f" {norms['torch eager']}")
    return {program: parts["step_ms"] for program, parts in times.items()}
