"""Models of sound of transformers; the loss is the output's."""

import transformers as hf

from . import Draw, Example, model


@model("whisper")
def whisper(draw: Draw) -> Example:
    config = hf.WhisperConfig(
        vocab_size=120,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=24,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    batch = {"input_features": draw.normal(2, 16, 48), "labels": draw.integers(3, 120, 2, 12)}
    return Example(hf.WhisperForConditionalGeneration(config), batch, None)


@model("wav2vec2-cls", random="dropout, attention dropout")
def wav2vec2_cls(draw: Draw) -> Example:
    config = hf.Wav2Vec2Config(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        classifier_proj_size=32,
        mask_time_prob=0.0,
        layerdrop=0.0,
        num_labels=4,
    )
    batch = {"input_values": draw.normal(2, 800), "labels": draw.integers(0, 4, 2)}
    return Example(hf.Wav2Vec2ForSequenceClassification(config), batch, None)
