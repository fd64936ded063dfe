"""Decoders of transformers, two layers each; labels are the tokens, the model shifts them."""

import torch
import transformers as hf

from . import Draw, Example, model

VOCABULARY, LENGTH = 120, 16
IDS = dict(vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, pad_token_id=0)
SIZES = dict(
    **IDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=32
)
GROUPED = dict(SIZES, num_key_value_heads=2)  # two heads of q share one of k and v


def _decoder(draw: Draw, net: torch.nn.Module) -> Example:
    tokens = draw.integers(3, VOCABULARY, 2, LENGTH)
    return Example(net, {"input_ids": tokens, "labels": tokens.clone()}, None)


@model("gpt2", random="dropout, attention dropout")
def gpt2(draw: Draw) -> Example:
    config = hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=32, **IDS)
    return _decoder(draw, hf.GPT2LMHeadModel(config))


@model("llama")
def llama(draw: Draw) -> Example:
    return _decoder(draw, hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)))


@model("llama-padmask")
def llama_padmask(draw: Draw) -> Example:
    example = _decoder(draw, hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)))
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[1, 11:] = 0
    labels = example.batch["labels"].masked_fill(mask == 0, -100)
    return Example(example.model, example.batch | {"attention_mask": mask, "labels": labels}, None)


@model("mistral")
def mistral(draw: Draw) -> Example:
    return _decoder(draw, hf.MistralForCausalLM(hf.MistralConfig(**GROUPED, sliding_window=8)))


@model("mixtral")
def mixtral(draw: Draw) -> Example:
    return _decoder(
        draw, hf.MixtralForCausalLM(hf.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2))
    )


@model("qwen2")
def qwen2(draw: Draw) -> Example:
    return _decoder(draw, hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED, tie_word_embeddings=True)))


@model("qwen3")
def qwen3(draw: Draw) -> Example:
    return _decoder(draw, hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED, head_dim=16)))


@model("gemma")
def gemma(draw: Draw) -> Example:
    return _decoder(draw, hf.GemmaForCausalLM(hf.GemmaConfig(**dict(SIZES, num_key_value_heads=1), head_dim=16)))


@model("ernie-4.5")
def ernie_4_5(draw: Draw) -> Example:
    return _decoder(draw, hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(**GROUPED, head_dim=16)))


@model("mamba")
def mamba(draw: Draw) -> Example:
    config = hf.MambaConfig(**IDS, hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=4)
    return _decoder(draw, hf.MambaForCausalLM(config))


@model("rwkv")
def rwkv(draw: Draw) -> Example:
    config = hf.RwkvConfig(**IDS, context_length=32, hidden_size=32, num_hidden_layers=2, intermediate_size=64)
    return _decoder(draw, hf.RwkvForCausalLM(config))


@model("opt", random="dropout")
def opt(draw: Draw) -> Example:
    config = hf.OPTConfig(
        **IDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=128,
        max_position_embeddings=32,
        word_embed_proj_dim=64,
    )
    return _decoder(draw, hf.OPTForCausalLM(config))


@model("gpt-neox")
def gpt_neox(draw: Draw) -> Example:
    return _decoder(draw, hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SIZES)))


@model("phi")
def phi(draw: Draw) -> Example:
    return _decoder(draw, hf.PhiForCausalLM(hf.PhiConfig(**SIZES)))


@model("gemma2")
def gemma2(draw: Draw) -> Example:
    config = hf.Gemma2Config(**GROUPED, head_dim=16, sliding_window=8, query_pre_attn_scalar=16)
    return _decoder(draw, hf.Gemma2ForCausalLM(config))


@model("bloom", random="dropout, attention dropout")
def bloom(draw: Draw) -> Example:
    config = hf.BloomConfig(**IDS, hidden_size=64, n_layer=2, n_head=4, hidden_dropout=0.1, attention_dropout=0.1)
    return _decoder(draw, hf.BloomForCausalLM(config))
