"""Models nobody chose: drawn from the registries of timm and transformers by a hash, shrunk by fixed rules.

    python -m models.registry_draw HASH [COUNT]      prints the draw: COUNT (30) models, half from each registry

A registry's candidates are put in the order of sha256(HASH + their name) and taken from the front. One is passed over,
and printed with the reason, if its kind (the model type of transformers, the module of timm) is drawn or in the corpus
already, if it has more than PARAMETERS after shrinking, or if it does not run forward and backward in eager mode,
offline, on the batch of its task. Models of transformers are shrunk by RULES; those of timm keep their structure, with
10 classes and the smallest images of SIDES that they run on.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # whatever a model wants to download is an error

import argparse
import contextlib
import dataclasses
import hashlib
import inspect
import re
import signal
import sys
from collections.abc import Callable, Iterator

import timm
import torch
import transformers as hf
from transformers.models.auto import modeling_auto

from . import Draw, Entry, Example, build, draws, entries, loss_of
from .losses import classification

PARAMETERS = 20_000_000
SECONDS = 60  # for one candidate
SIDES = (64, 96, 128, 224, 256)
VOCABULARY, LENGTH, LABELS = 120, 16, 3
# The first rule whose pattern is the whole name of an integer field of a configuration gives its new value, if that is
# smaller.
RULES = (
    (r"(num_)?(hidden_)?layers|n_layers?|num_(encoder|decoder)_layers|(encoder|decoder)_layers", 2),
    (r"num_attention_heads|n_heads?|num_heads|(encoder|decoder)_attention_heads|index_n_heads", 4),
    (r"num_key_value_heads|num_kv_heads", 2),
    (r"hidden_size|d_model|n_embd|dim|emb_dim|embed_dim|embedding_size|word_embed_proj_dim|attention_hidden_size", 64),
    (r"head_dim|d_kv|d_head|kv_channels|v_head_dim|qk_nope_head_dim|qk_rope_head_dim|index_head_dim|q_lora_rank", 16),
    (r"linear_(key|value)_head_dim|linear_head_dim|kv_lora_rank|query_pre_attn_scalar|mamba_d_head", 16),
    (r"qk_head_dim", 32),
    (r"(moe_|shared_expert_)?intermediate_size|d_ff|(encoder_|decoder_)?ffn_dim|n_inner|d_inner|hidden_dim", 128),
    (r"ffn_hidden_size|shared_intermediate_size|hidden_size_per_layer_input", 128),
    (r"num_experts|num_local_experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|first_k_dense_replace", 2),
    (r"n_group|topk_group|n_shared_experts|num_expert_group", 1),
    (r"vocab_size|vocab_size_per_layer_input", VOCABULARY),
    (r"max_position_embeddings|n_positions|max_seq_len|model_max_length|block_size", 64),
    (r"image_size", 64),
    (r"sliding_window|index_topk", 8),
    (r"state_size|mamba_d_state|time_step_rank", 8),
    (r"linear_num_(key|value)_heads|linear_num_heads|mamba_n_heads", 4),
    (r"\w*_token_(id|index)", 3),
)
TASKS = ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "IMAGE_CLASSIFICATION",
         "SEQ_TO_SEQ_CAUSAL_LM")  # fmt: skip


def shrunk(config: hf.PretrainedConfig) -> dict:
    """The fields that RULES make smaller, those of inner configurations as dicts; pads are 0, begins 1, ends 2."""
    fields = {}
    for name, value in vars(config).items():
        if isinstance(value, hf.PretrainedConfig):
            fields[name] = value.to_dict() | shrunk(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            for pattern, small in RULES:
                if re.fullmatch(pattern, name):
                    fields[name] = min(value, small)
                    break
    fields |= {
        name: i for i, name in enumerate(("pad_token_id", "bos_token_id", "eos_token_id")) if hasattr(config, name)
    }
    heads, shared = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if heads is not None and shared == heads:
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    return fields


def from_transformers(task: str, kind: str) -> Callable[[Draw], Example]:
    """A builder of `kind`'s model for `task`; the loss is the output's."""

    def builder(draw: Draw) -> Example:
        default = hf.CONFIG_MAPPING[kind]()
        labels = {"num_labels": LABELS} if task.endswith("CLASSIFICATION") else {}
        config = hf.CONFIG_MAPPING[kind](**shrunk(default), **labels)
        names = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")[kind]
        net = getattr(hf, names if isinstance(names, str) else names[0])(config)
        if task == "IMAGE_CLASSIFICATION":
            side = getattr(config, "image_size", 64)
            side = side if isinstance(side, int) else side[0]
            batch = {"pixel_values": draw.normal(2, 3, side, side), "labels": draw.integers(0, LABELS, 2)}
            return Example(net, batch, None)
        tokens = draw.integers(10, VOCABULARY - 10, 2, LENGTH)
        if task == "SEQUENCE_CLASSIFICATION":
            targets = draw.integers(0, LABELS, 2)
        elif task == "TOKEN_CLASSIFICATION":
            targets = draw.integers(0, LABELS, 2, LENGTH)
        else:
            targets = tokens.clone()
        return Example(net, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": targets}, None)

    return builder


def from_timm(name: str) -> Callable[[Draw], Example]:
    """A builder of timm's `name` on the smallest images that it runs on."""

    def builder(draw: Draw) -> Example:
        for side in SIDES:
            for given in ({"img_size": side}, {}):
                with contextlib.suppress(Exception):  # another size, or no argument img_size: the next is tried
                    net = timm.create_model(name, pretrained=False, num_classes=10, **given)
                    example = Example(net, (draw.normal(4, 3, side, side), draw.integers(0, 10, 4)), classification)
                    loss_of(example)
                    return example
        raise ValueError(f"runs on no image of {SIDES} pixels")

    return builder


def candidates(registry: str) -> list[tuple[str, str, Callable[[Draw], Example]]]:
    """All of a registry: name, what is drawn at most once, builder."""
    if registry == "timm":
        modules = {name: timm.model_entrypoint(name).__module__.rsplit(".", 1)[1] for name in timm.list_models()}
        return [(f"timm/{name}", module, from_timm(name)) for name, module in modules.items()]
    found = []
    for task in TASKS:
        for kind in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES"):
            found.append((f"transformers/{task.lower()}/{kind}", kind, from_transformers(task, kind)))
    return found


def used() -> set[str]:
    """Model types of transformers and modules of timm that the corpus has."""
    names = set()
    for entry in entries().values():
        if entry.source in ("timm", "transformers"):
            net = entry.builder(Draw(entry.name)).model
            names.add(net.config.model_type if entry.source == "transformers" else _module(net))
    return names


def draw(hash_: str, count: int = 30) -> Iterator[tuple[Entry, str]]:
    """Yields the candidates in turn, each with the reason for which it is passed over, "" for a drawn one."""
    taken = used()
    for registry in ("timm", "transformers"):
        left = count // 2
        order = sorted(candidates(registry), key=lambda c: hashlib.sha256((hash_ + c[0]).encode()).digest())
        for name, once, builder in order:
            if not left:
                break
            entry = Entry(name, "drawn", "registry_draw", registry, once, builder, "", True)
            if once in taken:
                yield entry, f"{once} is drawn or in the corpus already"
                continue
            try:
                with _limit(SECONDS):
                    _refuse_large(builder, name)
                    example = build(entry)
                    loss = loss_of(example)
                    loss.backward()
                    if not torch.isfinite(loss):
                        raise ValueError(f"the loss is {float(loss.detach())}")
                    random = draws(entry, rates=True)
                    rates = not (random and draws(entry, rates=False))
            except Exception as error:  # whatever a model of a registry raises is why it is passed over
                yield entry, f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                continue
            taken.add(once)
            left -= 1
            yield dataclasses.replace(entry, random="the rates of its modules" if random else "", rates=rates), ""


def _module(net: torch.nn.Module) -> str:
    return type(net).__module__.rsplit(".", 1)[1]


def _refuse_large(builder: Callable[[Draw], Example], name: str) -> None:
    """Raises ValueError above PARAMETERS, without allocating them."""
    if name.startswith("timm/"):
        with torch.device("meta"):
            net = timm.create_model(name[len("timm/") :], pretrained=False, num_classes=10)
    else:
        with torch.device("meta"):
            net = builder(Draw(name)).model
    count = sum(p.numel() for p in net.parameters())
    if count > PARAMETERS:
        raise ValueError(f"{count:,d} parameters, more than {PARAMETERS:,d}")


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the main thread after `seconds`."""

    def expire(number, frame):
        raise TimeoutError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    parser = argparse.ArgumentParser(prog="models.registry_draw", description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("hash", help="the candidate commit")
    parser.add_argument("count", nargs="?", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    number = 0
    for entry, reason in draw(arguments.hash, arguments.count):
        if reason:
            print(f"    {entry.name:60} passed over: {reason}", flush=True)
        else:
            number += 1
            noise = entry.random and (f"random: {entry.random}" if entry.rates else "random, not by rates alone")
            print(f"{number:3} {entry.name:60} {noise}", flush=True)
    return 0 if number == arguments.count else 1


if __name__ == "__main__":
    raise SystemExit(main())
