#!/usr/bin/env python3
"""Models of transformers, small and with random weights, on the bytes of a text, trained by compiled steps.

usage: text.py gpt2|bert|ernie|llama-lora [--steps N] [--text FILE]

gpt2 and llama-lora predict the next byte, bert and ernie those that are masked. llama-lora trains what PEFT adds to a frozen model:
what is frozen has neither gradient nor state.
"""
import argparse
import pathlib

import peft
import torch
import transformers

import trainc.torch

LENGTH, BATCH, MASK, WIDTH = 64, 8, 256, 128
SIZES = dict(vocab_size=257, hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=4, intermediate_size=4 * WIDTH,
             max_position_embeddings=LENGTH)


def llama_lora():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))
    # The head is trained as a whole: the frozen one is random here.
    return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"]))


MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=257, n_embd=WIDTH, n_layer=4, n_head=4, n_positions=LENGTH)),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)),
    "ernie": lambda: transformers.ErnieForMaskedLM(transformers.ErnieConfig(**SIZES)),
    "llama-lora": llama_lora,
}


def batch_of(text, masked):
    starts = torch.randint(len(text) - LENGTH, (BATCH,))
    tokens = torch.stack([text[start:start + LENGTH] for start in starts.tolist()])
    if not masked:
        return dict(input_ids=tokens, labels=tokens)
    chosen = torch.rand(BATCH, LENGTH) < 0.15
    return dict(input_ids=tokens.masked_fill(chosen, MASK), labels=tokens.masked_fill(~chosen, -100))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=MODELS)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "docs" / "Language.md")
    a = p.parse_args()
    torch.manual_seed(0)
    text, masked, model = torch.tensor(list(a.text.read_bytes())), a.model in ("bert", "ernie"), MODELS[a.model]().train()
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, a.steps)
    exported = trainc.torch.export(model, batch_of(text, masked), optimizer=optimizer, scheduler=schedule, clip_grad_norm=1.0)
    trained = sum(w.numel() for w in model.parameters() if w.requires_grad)
    print(f"{a.model}: {sum(w.numel() for w in model.parameters()):,} parameters, {trained:,} of them trained", flush=True)
    with exported.step() as step:
        losses = []
        for i in range(a.steps):
            losses.append(step(**batch_of(text, masked)).loss)
            if i % 50 == 49:
                print(f"step {i + 1}: loss {sum(losses[-50:]) / 50:.4f}", flush=True)
        model.load_state_dict(step.state_dict(as_torch=True), strict=False)
    first, last = (sum(part) / len(part) for part in (losses[:10], losses[-10:]))
    print(f"first losses {first:.4f}, last losses {last:.4f}")


if __name__ == "__main__":
    main()
