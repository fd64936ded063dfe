"""Encoders and encoder-decoders of transformers, two layers each; the loss is the output's."""

import torch
import transformers as hf

from . import Draw, Example, model

VOCABULARY = 120
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=40,
)
DROPOUT = "dropout, attention dropout"


def _tokens(draw: Draw, length: int = 16, batch: int = 2) -> torch.Tensor:
    """Tokens [batch, length] above the special ones (0 to 4 in all configurations here)."""
    return draw.integers(5, VOCABULARY, batch, length)


def _masked(draw: Draw, net: torch.nn.Module) -> Example:
    """Masked language modelling: labels at about a sixth of the places, -100 elsewhere."""
    tokens = _tokens(draw)
    chosen = draw.uniform(2, 16) < 0.15
    chosen[:, 3] = True
    batch = {
        "input_ids": tokens.masked_fill(chosen, 4),
        "attention_mask": torch.ones_like(tokens),
        "labels": tokens.masked_fill(~chosen, -100),
    }
    return Example(net, batch, None)


def _classified(draw: Draw, net: torch.nn.Module) -> Example:
    """Classification of sequences whose second one is padded."""
    tokens, mask = _tokens(draw), torch.ones(2, 16, dtype=torch.int64)
    mask[1, 11:] = 0
    batch = {"input_ids": tokens.masked_fill(mask == 0, 0), "attention_mask": mask, "labels": draw.integers(0, 3, 2)}
    return Example(net, batch, None)


def _translated(draw: Draw, net: torch.nn.Module, batch: int = 2) -> Example:
    """Sequence to sequence: source padded, end of the target not counted."""
    tokens, mask = _tokens(draw, 16, batch), torch.ones(batch, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    labels = _tokens(draw, 12, batch)
    labels[1, 9:] = -100
    return Example(net, {"input_ids": tokens.masked_fill(mask == 0, 0), "attention_mask": mask, "labels": labels}, None)


@model("bert", random=DROPOUT)
def bert(draw: Draw) -> Example:
    return _masked(draw, hf.BertForMaskedLM(hf.BertConfig(**SIZES)))


@model("roberta", random=DROPOUT)
def roberta(draw: Draw) -> Example:
    return _masked(draw, hf.RobertaForMaskedLM(hf.RobertaConfig(**SIZES)))


@model("distilbert", random=DROPOUT)
def distilbert(draw: Draw) -> Example:
    config = hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=64, n_layers=2, n_heads=4, hidden_dim=128, max_position_embeddings=40, num_labels=3
    )
    return _classified(draw, hf.DistilBertForSequenceClassification(config))


@model("albert", random=DROPOUT)
def albert(draw: Draw) -> Example:
    config = hf.AlbertConfig(**SIZES, embedding_size=32, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    return _masked(draw, hf.AlbertForMaskedLM(config))


@model("ernie", random=DROPOUT)
def ernie(draw: Draw) -> Example:
    config = hf.ErnieConfig(**SIZES, task_type_vocab_size=3, use_task_id=True, num_labels=3)
    return _classified(draw, hf.ErnieForSequenceClassification(config))


@model("bart", random=DROPOUT)
def bart(draw: Draw) -> Example:
    config = hf.BartConfig(
        vocab_size=VOCABULARY,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=40,
    )
    return _translated(draw, hf.BartForConditionalGeneration(config))


T5_SIZES = dict(
    vocab_size=VOCABULARY,
    d_model=64,
    d_kv=16,
    d_ff=128,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
)


@model("t5", random=DROPOUT)
def t5(draw: Draw) -> Example:
    return _translated(draw, hf.T5ForConditionalGeneration(hf.T5Config(**T5_SIZES)))


@model("switch", random="dropout, jitter of the router")
def switch(draw: Draw) -> Example:
    config = hf.SwitchTransformersConfig(
        **T5_SIZES, num_experts=4, expert_capacity=8, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1
    )
    # Enough tokens that each expert is chosen in each update: one that is not would get no gradient at all.
    return _translated(draw, hf.SwitchTransformersForConditionalGeneration(config), batch=8)


@model("bert-tokens", random=DROPOUT)
def bert_tokens(draw: Draw) -> Example:
    example = _classified(draw, hf.BertForTokenClassification(hf.BertConfig(**SIZES, num_labels=5)))
    labels = draw.integers(0, 5, 2, 16).masked_fill(example.batch["attention_mask"] == 0, -100)
    return Example(example.model, example.batch | {"labels": labels}, None)


@model("electra", random=DROPOUT)
def electra(draw: Draw) -> Example:
    tokens = _tokens(draw)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": draw.integers(0, 2, 2, 16)}
    return Example(hf.ElectraForPreTraining(hf.ElectraConfig(**SIZES, embedding_size=32)), batch, None)


@model("deberta-v2", random=DROPOUT)
def deberta_v2(draw: Draw) -> Example:
    config = hf.DebertaV2Config(
        **SIZES,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        num_labels=3,
    )
    return _classified(draw, hf.DebertaV2ForSequenceClassification(config))


@model("xlnet", random=DROPOUT)
def xlnet(draw: Draw) -> Example:
    config = hf.XLNetConfig(vocab_size=VOCABULARY, d_model=64, n_layer=2, n_head=4, d_inner=128, num_labels=3)
    return _classified(draw, hf.XLNetForSequenceClassification(config))


@model("mt5", random=DROPOUT)
def mt5(draw: Draw) -> Example:
    return _translated(draw, hf.MT5ForConditionalGeneration(hf.MT5Config(**T5_SIZES, tie_word_embeddings=False)))
