# REQUIRES: numpy
# RUN: %python %s %runtime_lib/libtrainc_emulator.so %t
"""Attention and its gradients on the emulator against NumPy, in f64.

usage: attention.py EMULATOR FOLDER
"""
import os
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Target", "GPU", "Inputs"),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from emulator import Device, aligned, from_bf16, to_bf16  # noqa: E402
from lowered import emulate  # noqa: E402
from oracle.philox import dropout  # noqa: E402

FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
BOUNDS = {"bf16": 1.5e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-12}
SITE, DRAW = 7, ((1 << 35) + 11, 3, 2)  # seed, update, micro-step
# Element type, B, Tq, Tk, H, Hk, D, and what else: causal, a scale, the shape of a mask and whether it is bool or has a row of
# the lowest number, packed, dropout, how many segments a row has.
CASES = [
    ("f32", 2, 70, 70, 2, 2, 64, {"causal": True}),
    ("f32", 1, 33, 50, 4, 2, 5, {"causal": True, "scale": 0.3}),
    ("f32", 1, 50, 33, 2, 1, 24, {"causal": True}),  # queries that see no key
    ("f32", 2, 19, 40, 2, 2, 16, {"mask": (2, 1, 19, 40), "bool": True}),
    ("f32", 2, 19, 40, 2, 2, 16, {"mask": (2, 1, 40)}),
    ("f32", 1, 20, 20, 1, 1, 128, {}),
    ("f32", 1, 18, 35, 2, 1, 270, {"causal": True}),  # by parts
    ("f64", 2, 21, 34, 2, 1, 9, {"mask": (21, 1), "causal": True}),
    ("f64", 1, 17, 17, 1, 1, 130, {}),
    ("f32", 1, 130, 130, 2, 1, 16, {"causal": True, "window": 20}),
    ("f64", 1, 70, 90, 2, 2, 8, {"causal": True, "window": 2, "dropout": 0.3}),
    ("bf16", 1, 150, 100, 2, 2, 64, {"causal": True, "window": 40, "packed": False}),  # queries that see no key
    ("f32", 1, 80, 80, 1, 1, 270, {"causal": True, "window": 33}),  # by parts
    ("f32", 2, 70, 70, 2, 2, 64, {"segments": 4, "causal": True}),
    ("f64", 2, 37, 37, 4, 2, 9, {"segments": 3, "mask": (37, 37)}),
    ("bf16", 2, 90, 90, 2, 1, 64, {"segments": 3, "dropout": 0.2}),
    ("f32", 1, 40, 40, 1, 1, 270, {"segments": 2, "causal": True, "window": 9}),  # by parts
    ("f64", 2, 21, 34, 4, 2, 9, {"dropout": 0.3}),
    ("f32", 1, 70, 72, 2, 2, 40, {"dropout": 0.1, "causal": True}),
    ("bf16", 1, 50, 50, 4, 2, 64, {"dropout": 0.5, "packed": True}),
    ("f32", 1, 18, 35, 2, 1, 270, {"dropout": 0.2}),  # by parts
    ("bf16", 1, 130, 130, 4, 2, 64, {"causal": True, "packed": True}),
    ("bf16", 2, 40, 70, 2, 2, 128, {"mask": (1, 2, 40, 70), "bool": True}),
    ("bf16", 1, 70, 40, 2, 1, 40, {"causal": True}),
    ("bf16", 1, 33, 33, 3, 3, 20, {"packed": True}),  # rows not of 16 bytes
    ("bf16", 1, 20, 40, 1, 1, 144, {"causal": True}),
    ("f16", 1, 66, 66, 2, 2, 64, {"mask": (66, 66)}),
    ("f16", 1, 20, 37, 3, 1, 72, {"causal": True, "scale": 0.2}),
    ("bf16", 1, 192, 256, 4, 2, 64, {"causal": True, "scale": -0.2}),  # whole tiles
    ("bf16", 1, 192, 192, 2, 2, 64, {"causal": True, "window": 70}),
    ("f16", 2, 64, 128, 2, 1, 32, {"scale": 0.0}),
    ("bf16", 1, 64, 128, 2, 1, 128, {"causal": True}),
    ("f32", 1, 40, 40, 2, 1, 64, {"causal": True, "scale": -0.1, "mask": (40, 40)}),
    ("bf16", 1, 64, 64, 2, 1, 64, {"mask": (64, 64), "lowest": True}),
]


def rounded(x, element):
    x = np.asarray(x, np.float64)
    return (from_bf16(to_bf16(x)) if element == "bf16" else x.astype(FLOATS[element])).astype(np.float64)


def stored(x, element):
    return aligned(to_bf16(x) if element == "bf16" else np.asarray(x, FLOATS[element]))


def shown(x, element):
    return (from_bf16(x) if element == "bf16" else x).astype(np.float64)


def spell(shape, element):
    return "tensor<" + "x".join(map(str, shape)) + f"x{element}>"


class Case:
    def __init__(self, number, element, b, tq, tk, h, hk, d, options):
        self.number, self.element, self.options = number, element, options
        self.sum = "f64" if element == "f64" else "f32"
        self.heads, self.kv_heads, self.packed = h, hk, options.get("packed", False)
        self.shapes = {"q": (b, tq, h, d), "k": (b, tk, hk, d), "v": (b, tk, hk, d)}
        self.scale = options.get("scale", d**-0.5)
        self.mask_element = "i1" if options.get("bool") else self.sum if "mask" in options else None

    def text(self):
        o = self.options
        mask = spell(o["mask"], self.mask_element) if "mask" in o else None
        (b, tq, h, d), hk = self.shapes["q"], self.kv_heads
        lse = spell((b, h, tq), self.sum)
        segments = spell((b, tq), "i32") if "segments" in o else None
        masks = (" mask %mask" if mask else "") + (f" segments(%segments : {segments})" if segments else "")
        more = f" heads {h} kv_heads {hk}" if self.packed else ""
        more += (" causal" if o.get("causal") else "") + (f" scale {o['scale']}" if "scale" in o else "")
        more += f" window {o['window']}" if "window" in o else ""
        delta = spell((b, tq, h), self.sum)
        of_mask = (f", %mask: {mask}" if mask else "") + (f", %segments: {segments}" if segments else "")
        if "dropout" in o:
            of_mask += ", %seed: tensor<f64>, %update: tensor<f64>, %micro: tensor<f64>"
            more += f" dropout {o['dropout']} site {SITE} seed %seed update %update micro_step %micro"
        type_of_mask = f", {mask}" if mask else ""
        if self.packed:
            qkv, out = spell((b, tq, (h + 2 * hk) * d), self.element), spell((b, tq, h * d), self.element)
            arguments, names, types, results, op = f"%qkv: {qkv}", "%qkv", qkv, [qkv], "nn.packed_attention"
        else:
            q, k = (spell(self.shapes[x], self.element) for x in "qk")
            arguments, names, types = f"%q: {q}, %k: {k}, %v: {k}", "%q, %k, %v", f"{q}, {k}"
            out, results, op = q, [q, k, k], "nn.attention"
        type_of_out = f", {out}" if self.packed else ""
        grads = ", ".join(f"%d{i}" for i in range(len(results)))
        absent = ", ".join(["-1"] * len(results))
        return f"""
train.kernel @forward_{self.number}({arguments}{of_mask}) inplace [-1, -1] {{
  %out, %lse = {op} {names}{masks}{more} : {types}{type_of_mask}
  train.return %out, %lse : {out}, {lse}
}}
train.kernel @backward_{self.number}({arguments}, %out: {out}, %lse: {lse}, %dout: {out}{of_mask}, %delta: {delta}) inplace [{absent}] {{
  {grads} = {op}_grad {names}, %out, %lse, %dout{masks} delta(%delta : {delta}){more} : {types}{type_of_out}, {lse}{type_of_mask}
  train.return {grads} : {", ".join(results)}
}}
"""

    def draws(self, scores):
        """What probabilities are multiplied by; rows of keys have a multiple of 4."""
        if "dropout" not in self.options:
            return 1.0
        seed, *counts = DRAW
        return dropout((*scores[:3], scores[3] + -scores[3] % 4), self.options["dropout"], seed, SITE, *counts)[..., :scores[3]]

    def reference(self, q, k, v, dout, mask, segments):
        group = self.heads // self.kv_heads
        k, v = (np.repeat(x, group, 2) for x in (k, v))
        scores = self.scale * np.einsum("bihd,bjhd->bhij", q, k)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        if segments is not None:
            scores = np.where((segments[:, :, None] == segments[:, None, :])[:, None], scores, -np.inf)
        if self.options.get("causal"):
            i, j = np.indices(scores.shape[2:])
            last = i + scores.shape[3] - scores.shape[2]
            scores = np.where((j <= last) & (j > last - self.options.get("window", np.inf)), scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        weights = np.exp(scores - top)
        sums = weights.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = np.log(sums) + top
        p, draws = np.exp(scores - np.where(np.isfinite(lse), lse, 0)), self.draws(scores.shape)
        weights = weights / np.where(sums == 0, 1, sums) * draws
        out = rounded(np.einsum("bhij,bjhd->bihd", weights, v), self.element)
        dp = np.einsum("bihd,bjhd->bhij", dout, v) * draws
        ds = self.scale * p * (dp - np.einsum("bihd,bihd->bhi", out, dout)[..., None])
        dk, dv = np.einsum("bhij,bihd->bjhd", ds, q), np.einsum("bhij,bihd->bjhd", p * draws, dout)
        dk, dv = (x.reshape(x.shape[:2] + (self.kv_heads, group, -1)).sum(3) for x in (dk, dv))
        return out, lse[..., 0], [np.einsum("bhij,bjhd->bihd", ds, k), dk, dv]

    def run(self, device, launch, rng):
        """The relative differences, by result."""
        e = self.element
        q, k, v, dout = (rounded(rng.standard_normal(self.shapes[x]), e) for x in "qkvq")
        mask = None
        if "mask" in self.options:
            mask = rng.standard_normal(self.options["mask"])
            if self.options.get("bool"):
                mask = mask > 0
                mask[..., 3, :] = False
            else:
                mask = mask.astype(FLOATS[self.sum])
                if self.options.get("lowest"):  # a row that sees all keys alike
                    mask[..., 3, :] = np.finfo(mask.dtype).min
        segments = None
        if "segments" in self.options:
            segments = np.sort(rng.integers(0, self.options["segments"], self.shapes["q"][:2]).astype(np.int32))
        out, lse, grads = self.reference(q, k, v, dout, mask, segments)

        def pack(*parts):
            return np.concatenate([x.reshape(x.shape[:2] + (-1,)) for x in parts], 2)

        inputs = [stored(x, e) for x in ([pack(q, k, v)] if self.packed else [q, k, v])]
        masks = [] if mask is None else [aligned(mask.astype(np.uint8) if mask.dtype == bool else mask)]
        if segments is not None:
            masks.append(aligned(segments))
        if "dropout" in self.options:
            masks += [aligned(np.full(1, number, np.float64)) for number in DRAW]
        if self.packed:
            grads = [pack(*grads)]
        expected = [out, lse] + grads
        # NaN where nothing is written.
        found = [stored(np.full(x.shape, np.nan), self.sum if i == 1 else e) for i, x in enumerate(expected)]
        launch(device, f"forward_{self.number}", inputs + masks + found[:2])
        more = [stored(out, e), stored(lse, self.sum), stored(dout, e)]
        delta = stored(np.einsum("bihd,bihd->bih", out, dout), self.sum)
        launch(device, f"backward_{self.number}", inputs + more + masks + [delta] + found[2:])
        for i, (x, y) in enumerate(zip(found, expected)):
            x = shown(x, self.sum if i == 1 else e).reshape(y.shape)
            finite = np.isfinite(y)
            same = np.array_equal(x[~finite], y[~finite])
            yield np.abs(x[finite] - y[finite]).max() / (np.abs(y[finite]).max() or 1) if same else np.inf


def main():
    emulator, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    cases = [Case(i, *case) for i, case in enumerate(CASES)]
    launches, image = emulate("".join(case.text() for case in cases), folder)

    def launch(device, name, arrays):
        device.launch(name, launches[name]["workgroups"], launches[name]["threads"], *arrays)

    bad = []
    for seed in (0, 5):
        device = Device(emulator, image, seed)
        for case in cases:
            for i, error in enumerate(case.run(device, launch, np.random.default_rng(case.number))):
                bound = BOUNDS[case.sum if i == 1 else case.element]
                if not error <= bound:
                    bad.append(f"{CASES[case.number]} seed {seed} result {i}: {error:.1e}")
        device.close()
    print("\n".join(bad) or f"{len(cases)} cases agree")
    sys.exit(len(bad) > 0)


if __name__ == "__main__":
    main()
