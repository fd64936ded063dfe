#!/usr/bin/env python3
"""Trains LoRA of rank 16 on a Llama of 1,033 M random parameters, 512 tokens of a text: its frozen weights in 8 bits or in bf16.

usage: lora_training.py int8|bf16 SEED [--updates N]

The model is exported and compiled by a process of its own, then trained by another from its artifact and weights. Prints a line of
JSON: the losses, and the peak of the training process in MB, loading included. Runs in .venv-torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, folder) for folder in ("python", "bench", os.path.join("bench", "peers"))]

LENGTH, RANK = 512, 16
LLAMA = dict(vocab_size=32000, hidden_size=2048, num_hidden_layers=20, num_attention_heads=32, num_key_value_heads=8,
             intermediate_size=5632, max_position_embeddings=LENGTH)


def export(kind, seed, folder):
    import peft
    import torch
    import transformers

    import trainc.torch
    torch.manual_seed(seed)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
                                peft.LoraConfig(r=RANK, target_modules="all-linear"))
    ids = torch.zeros(1, LENGTH, dtype=torch.long)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    exported = trainc.torch.export(model.train(), dict(input_ids=ids, labels=ids), optimizer=optimizer, precision="bf16",
                                   frozen="int8" if kind == "int8" else None)
    exported.save(os.path.join(folder, "lora.mlir"), weights=os.path.join(folder, "lora.safetensors"))
    trainc.compile(os.path.join(folder, "lora.mlir"), os.path.join(folder, "lora.so"))


def train(seed, folder, updates):
    import numpy as np
    from measure import peak_rss_mb

    import trainc
    with open(os.path.join(ROOT, "docs", "Language.md"), "rb") as f:
        text = np.frombuffer(f.read(), np.uint8).astype(np.int64)
    starts = np.random.RandomState(seed).randint(len(text) - LENGTH, size=updates)
    losses = []
    with trainc.load(os.path.join(folder, "lora.so"), weights=os.path.join(folder, "lora.safetensors"), seed=seed) as step:
        for start in starts:
            ids = text[None, start:start + LENGTH].copy()
            losses.append(step(input_ids=ids, labels=ids).loss)
    print(json.dumps(dict(losses=losses, peak_mb=peak_rss_mb())))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=["int8", "bf16"])
    p.add_argument("seed", type=int)
    p.add_argument("--updates", type=int, default=10)
    p.add_argument("--part", nargs=2, metavar=("export|train", "FOLDER"), help="what the program starts itself for")
    a = p.parse_args()
    if a.part:
        part, folder = a.part
        return export(a.kind, a.seed, folder) if part == "export" else train(a.seed, folder, a.updates)
    with tempfile.TemporaryDirectory() as folder:
        for part in ("export", "train"):
            subprocess.run([sys.executable, "-W", "ignore", __file__, a.kind, str(a.seed), "--updates", str(a.updates), "--part", part, folder],
                           check=True)


if __name__ == "__main__":
    main()
