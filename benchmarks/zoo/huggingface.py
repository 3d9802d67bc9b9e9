"""Architectures of transformers, with few and narrow layers: their code decides what can shrink, not their size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from benchmarks.zoo.network import Example, Network, image, named, noise, sound, words

DEEP = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 48, "intermediate_size": 192}
TEXT = DEEP | {"vocab_size": 100, "pad_token_id": 0, "max_position_embeddings": 64}
GROUPED = TEXT | {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}
PICTURE = DEEP | {"image_size": 64, "patch_size": 8}
SOUND = DEEP | {"conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3),
                "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
                "vocab_size": 32}  # fmt: skip
STAGES = {"num_channels": 3}

VISION: dict[str, dict[str, Any]] = {
    "ViTForImageClassification": PICTURE,
    "DeiTForImageClassification": PICTURE,
    "BeitForImageClassification": PICTURE,
    "Dinov2ForImageClassification": PICTURE,
    "SiglipVisionModel": PICTURE,
    "CLIPVisionModel": PICTURE,
    "SwinForImageClassification": {"image_size": 64, "embed_dim": 24, "depths": [1, 2], "num_heads": [2, 4],
                                   "window_size": 4},
    "Swinv2ForImageClassification": {"image_size": 64, "embed_dim": 24, "depths": [1, 2], "num_heads": [2, 4],
                                     "window_size": 4},
    "ConvNextForImageClassification": STAGES | {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
    "ConvNextV2ForImageClassification": STAGES | {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
    "ResNetForImageClassification": {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 64], "depths": [1, 1, 2, 1]},
    "RegNetForImageClassification": {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 64], "depths": [1, 1, 2, 1],
                                     "groups_width": 16},
    "MobileNetV1ForImageClassification": {},
    "MobileNetV2ForImageClassification": {},
    "MobileViTForImageClassification": {"image_size": 64},
    "EfficientNetForImageClassification": {"image_size": 64},
    "PoolFormerForImageClassification": {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]},
    "PvtForImageClassification": {"image_size": 64, "hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1]},
    "SegformerForSemanticSegmentation": {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1],
                                         "decoder_hidden_size": 32},
    "CvtForImageClassification": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 4], "depth": [1, 2, 3]},
    "LevitForImageClassification": {"image_size": 64},
    "YolosForObjectDetection": PICTURE | {"image_size": [64, 64], "num_detection_tokens": 10},
    "BitForImageClassification": {"embedding_size": 32, "hidden_sizes": [128, 128, 256, 256], "depths": [1, 1, 1, 1]},
}  # fmt: skip
LANGUAGE: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": TEXT,
    "RobertaForMaskedLM": TEXT,
    "DistilBertForMaskedLM": {"dim": 48, "hidden_dim": 192, "n_layers": 2, "n_heads": 4, "vocab_size": 100},
    "AlbertForMaskedLM": TEXT | {"embedding_size": 24},
    "ElectraForMaskedLM": TEXT | {"embedding_size": 24},
    "MPNetForMaskedLM": TEXT,
    "DebertaModel": TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 32},
    "DebertaV2Model": TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16},
    "ModernBertForMaskedLM": TEXT,
    "GPT2LMHeadModel": {"n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 64},
    "GPTNeoForCausalLM": {"hidden_size": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 100,
                          "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64},
    "GPTNeoXForCausalLM": TEXT,
    "OPTForCausalLM": {"hidden_size": 48, "ffn_dim": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "vocab_size": 100, "word_embed_proj_dim": 48, "max_position_embeddings": 64},
    "BloomForCausalLM": {"hidden_size": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100},
    "FalconForCausalLM": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100},
    "PhiForCausalLM": TEXT,
    "LlamaForCausalLM": GROUPED,
    "MistralForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": GROUPED,
    "GemmaForCausalLM": GROUPED,
    "Gemma2ForCausalLM": GROUPED,
    "Olmo2ForCausalLM": GROUPED,
    "MixtralForCausalLM": GROUPED | {"num_local_experts": 3},
    "MambaForCausalLM": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100},
    "T5EncoderModel": {"d_model": 48, "d_kv": 8, "d_ff": 192, "num_layers": 2, "num_heads": 4, "vocab_size": 100},
    "BartModel": {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                  "decoder_attention_heads": 4, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192, "vocab_size": 100},
}  # fmt: skip
SPEECH: dict[str, dict[str, Any]] = {
    "Wav2Vec2ForCTC": SOUND,
    "HubertForCTC": SOUND,
    "WavLMForCTC": SOUND,
    "UniSpeechSatForCTC": SOUND,
    "SEWForCTC": SOUND | {"squeeze_factor": 2},
    "Data2VecAudioForCTC": SOUND,
    "ASTForAudioClassification": DEEP | {"max_length": 64, "num_mel_bins": 32},
    "WhisperModel": {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                     "decoder_attention_heads": 4, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192, "vocab_size": 100,
                     "num_mel_bins": 16, "max_source_positions": 32, "pad_token_id": 0, "bos_token_id": 1,
                     "eos_token_id": 1, "decoder_start_token_id": 1},
}  # fmt: skip
DECODERS = ("ForCausalLM", "LMHeadModel")


def networks() -> Iterator[Network]:
    """All of them."""
    for name, settings in VISION.items():
        make = partial(_build, name, settings)
        yield Network(name, "transformers, vision", make, named("pixel_values", image(64)), "64 x 64")
    for name, settings in LANGUAGE.items():
        more = {"use_cache": False} if name.endswith(DECODERS) else {}
        yield Network(name, "transformers, text", partial(_build, name, settings), words(**more), "12 words")
    for name, settings in SPEECH.items():
        example, shown = _heard(name)
        yield Network(name, "transformers, speech", partial(_build, name, settings), example, shown)


def _heard(name: str) -> tuple[Example, str]:
    if name.startswith("AST"):
        return lambda dtype, seed: {"input_values": noise((2, 64, 32), dtype, seed)}, "64 x 32"
    if name.startswith("Whisper"):
        spoken = words(6)
        return (
            lambda dtype, seed: {"input_features": noise((2, 16, 64), dtype, seed), "use_cache": False,
                                 "decoder_input_ids": spoken(dtype, seed)["input_ids"]},
            "16 x 64",
        )  # fmt: skip
    return named("input_values", sound(1600)), "1600"


def _build(name: str, settings: dict[str, Any]) -> nn.Module:
    import transformers

    kind = getattr(transformers, name)
    model: nn.Module = kind(kind.config_class(**settings))
    for weight in model.parameters():  # they start so small that a wrong cut would hardly show in the output
        if weight.ndim > 1:
            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
    return model
