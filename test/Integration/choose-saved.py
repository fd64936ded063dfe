# REQUIRES: numpy
# RUN: %python %s
"""What the backward pass computes again instead of keeping has the same bits, and less is in memory: GPTs whose gelu is written as
products and a tanh, with dropout, Llamas and convolutional networks, in f32 and bf16, alone and with a window of two."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench")]

from common import compile_module, generate, tool  # noqa: E402

PASS = "train-choose-saved"
GPT = ("--layers", 2, "--width", 128, "--heads", 4, "--vocab", 64, "--batch", 4, "--seq", 128)
MODELS = {"gpt": ("gpt", *GPT, "--dropout", 0.1), "llama": ("llama", "--layers", 2, "--width", 128, "--batch", 4, "--seq", 128),
          "cnn": ("cnn", "--batch", 64)}


def written_out(text):
    """Its gelus as they are written in many models: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    def expand(match):
        indent, y, x, shape = match.groups()
        element = re.search(r"x([a-z]+\d+)>", shape)[1]
        names = {n: f"%{n}_{y.strip('%')}" for n in ("half", "c", "s", "one", "x2", "x3", "a", "b", "d", "t", "u", "v")}
        scalars = "".join(f"{indent}{names[n]} = nn.constant dense<{value}> : tensor<{element}>\n"
                          for n, value in (("half", "0.5"), ("c", "0.044715"), ("s", "0.7978845608"), ("one", "1.0")))
        ops = (("x2", "mul", x, x), ("x3", "mul", names["x2"], x), ("a", "mul", names["x3"], names["c"]),
               ("b", "add", x, names["a"]), ("d", "mul", names["b"], names["s"]))
        lines = [(names[n], op, a, b) for n, op, a, b in ops]
        lines += [(names["t"], "tanh", names["d"], None), (names["u"], "add", names["t"], names["one"]),
                  (names["v"], "mul", x, names["half"]), (y, "mul", names["v"], names["u"])]
        small = {names[n] for n in ("half", "c", "s", "one")}

        def typed(v):
            return f"tensor<{element}>" if v in small else shape
        return scalars + "\n".join(f"{indent}{r} = nn.{op} {a}" + (f", {b}" if b else "") + f" : {typed(a)}" + (f", {typed(b)}" if b else "")
                                   for r, op, a, b in lines)

    text, count = re.subn(r"^( *)(%\w+) = nn\.gelu (%\w+) tanh : (\S+)$", expand, text, flags=re.M)
    assert count or "nn.gelu" not in text, "no gelu was found"
    return text


def trained(text, folder, *options):
    """(the whole state after some updates, bytes of all arenas, whether anything is computed again)."""
    library = compile_module(text, os.path.join(folder, "model.so"), *options)
    source, state = os.path.join(folder, "model.mlir"), os.path.join(folder, "state.safetensors")
    done = subprocess.run([tool("trainc"), source, "--memory-report=json", f"--remarks={PASS}", *options], capture_output=True,
                          text=True, check=True)
    subprocess.run([tool("trainc-run"), library, "--benchmark", "4", "--save", state], check=True, stdout=subprocess.DEVNULL)
    with open(state, "rb") as f:
        return f.read(), json.loads(done.stdout)["total"], "ComputedAgain" in done.stderr


def main():
    bad = []
    for model, arguments in MODELS.items():
        for element in "f32", "bf16":
            for window in 1, 2:
                name = f"{model} {element} {window}"
                text = generate(*arguments, *(["--bf16"] if element == "bf16" else []), *(["--accumulate", window] if window > 1 else []))
                text = written_out(text)
                with tempfile.TemporaryDirectory() as folder:
                    state, total, fires = trained(text, folder)
                    want, most, without = trained(text, folder, f"--disable-pass={PASS}")
                good = state == want and total <= most and not without
                if model != "cnn":  # whose own ops keep little else
                    good = good and fires and total < most
                print(f"{name}: {'same bits' if state == want else 'DIFFERENT'}, {total} of {most} bytes{'' if good else ' BAD'}")
                bad += [] if good else [name]
    print(f"bad: {bad}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
