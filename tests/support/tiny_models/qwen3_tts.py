"""Makes a tiny Qwen3-TTS CustomVoice directory: random weights in the real shape.

It has the classes and the configuration keys of Qwen/Qwen3-TTS-12Hz-*-CustomVoice (a talker, a
predictor of 15 more codes for each frame, a codec of 1,920 samples for each frame, a byte-level
tokenizer), and goes through the real ``from_pretrained``. What it says is noise of random length:
test shapes, rates, stopping and errors with it, never words. Run it where qwen-tts is installed:

    python tests/support/tiny_models/qwen3_tts.py DIRECTORY

The same seed and the same packages give the same model; it takes a second and 1.6 MB.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SEED = 7
GROUPS = 16
"""Codes per frame."""
CODES = 64
"""Values per code."""
HIDDEN = 48
VOICES = ("aiden", "ryan", "serena")
LANGUAGES = ("chinese", "english", "german")
LOUDEST = 0.5
"""Peak of the sound of random codes."""


@dataclass(frozen=True)
class Dimensions:
    """Sizes of the networks. ``text_tokens`` ``None``: the tokenizer's."""

    hidden: int = HIDDEN
    intermediate: int = 64
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 24
    rope: tuple[int, int, int] = (4, 4, 4)
    text_hidden: int = HIDDEN
    text_tokens: int | None = None
    predictor_hidden: int = HIDDEN
    predictor_intermediate: int = 64
    predictor_layers: int = 1
    codes: int = CODES
    spread: float = 0.2
    """Standard deviation of the random weights."""
    codec_encoder: Mapping[str, Any] = field(default_factory=lambda: CODEC_ENCODER)
    codec_decoder: Mapping[str, Any] = field(default_factory=lambda: CODEC_DECODER)


CODEC_ENCODER: dict[str, Any] = {
    "hidden_size": 16,
    "num_filters": 2,
    "num_residual_layers": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 16,
    "codebook_size": CODES,
    "codebook_dim": 8,
    "vector_quantization_hidden_dimension": 8,
    "num_quantizers": GROUPS,
    "num_semantic_quantizers": 1,
    "upsample_groups": 16,
}
"""Never used for these voices."""
CODEC_DECODER: dict[str, Any] = {
    "codebook_size": CODES,
    "codebook_dim": 16,
    "hidden_size": 32,
    "latent_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_quantizers": GROUPS,
    "decoder_dim": 32,
}

TINY = Dimensions()
SMALLER = Dimensions(
    hidden=1024,
    intermediate=3072,
    layers=28,
    heads=16,
    kv_heads=8,
    head_dim=128,
    rope=(24, 20, 20),
    text_hidden=2048,
    text_tokens=151_936,
    predictor_hidden=1024,
    predictor_intermediate=3072,
    predictor_layers=5,
    codes=2048,
    spread=0.02,
    codec_encoder={},
    codec_decoder={
        "codebook_dim": 512,
        "head_dim": 64,
        "hidden_size": 512,
        "intermediate_size": 1024,
    },
)
"""Those of the 0.6B model: this many parameters give the published file sizes."""
LARGER = replace(SMALLER, hidden=2048, intermediate=6144)
"""Those of the 1.7B model, by the same reasoning."""

_SPECIALS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"),
)


def make(
    directory: Path, size: str = "1b7", kind: str = "custom_voice", of: Dimensions = TINY
) -> None:
    """Write the model into ``directory``. ``size``: ``1b7``, or ``0b6``, which takes no
    instructions. ``kind``: ``custom_voice``, or ``base``, which has no built-in voices."""
    import torch
    from qwen_tts.core.models import Qwen3TTSForConditionalGeneration

    directory.mkdir(parents=True, exist_ok=True)
    ids = _tokenizer(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        config = _config(ids, size, kind, of)
        model = Qwen3TTSForConditionalGeneration(config)
        # Codes that differ between frames, and an occasional end.
        with torch.no_grad():
            model.talker.codec_head.weight.normal_(0, of.spread)
            model.talker.codec_head.weight[of.codes].normal_(0, 2 * of.spread)
        model.save_pretrained(directory)
        _codec(directory / "speech_tokenizer", of)
    _mend(directory / "config.json", kind)
    named = {
        "do_sample": True,
        "top_k": 50,
        "top_p": 1.0,
        "temperature": 0.9,
        "repetition_penalty": 1.05,
        "subtalker_dosample": True,
        "subtalker_top_k": 50,
        "subtalker_top_p": 1.0,
        "subtalker_temperature": 0.9,
        "max_new_tokens": 2048,
    }
    (directory / "generation_config.json").write_text(json.dumps(named), encoding="utf-8")


def _tokenizer(directory: Path) -> dict[str, int]:
    """Make a byte-level tokenizer without merges; returns the ids of its special tokens."""
    from transformers import Qwen2TokenizerFast
    from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    vocabulary = {token: at for at, token in enumerate(letters)}
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (directory / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    tokenizer = Qwen2TokenizerFast(
        vocab_file=str(directory / "vocab.json"), merges_file=str(directory / "merges.txt")
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIALS)})
    tokenizer.save_pretrained(directory)
    ids: list[int] = tokenizer.convert_tokens_to_ids(list(_SPECIALS))
    return dict(zip(_SPECIALS, ids, strict=True))


def _config(ids: dict[str, int], size: str, kind: str, of: Dimensions) -> Any:
    from qwen_tts.core.models import Qwen3TTSConfig

    attention = {
        "num_attention_heads": of.heads,
        "num_key_value_heads": of.kv_heads,
        "head_dim": of.head_dim,
        "num_code_groups": GROUPS,
        "initializer_range": of.spread,
    }
    # Of the talker's last 1,024 ids, only the end is ever drawn.
    special = of.codes
    languages = {name: special + 20 + at for at, name in enumerate(LANGUAGES)}
    voices = {name: special + 40 + at for at, name in enumerate(VOICES)}
    predictor = attention | {
        "vocab_size": of.codes,
        "hidden_size": of.predictor_hidden,
        "intermediate_size": of.predictor_intermediate,
        "num_hidden_layers": of.predictor_layers,
    }
    talker = attention | {
        "vocab_size": of.codes + 1024,
        "hidden_size": of.hidden,
        "intermediate_size": of.intermediate,
        "num_hidden_layers": of.layers,
        "text_hidden_size": of.text_hidden,
        "text_vocab_size": of.text_tokens or max(ids.values()) + 1,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_section": list(of.rope),
            "interleaved": True,
        },
        "codec_eos_token_id": special,
        "codec_think_id": special + 1,
        "codec_nothink_id": special + 2,
        "codec_think_bos_id": special + 3,
        "codec_think_eos_id": special + 4,
        "codec_pad_id": special + 5,
        "codec_bos_id": special + 6,
        "codec_language_id": languages,
        "spk_id": voices if kind == "custom_voice" else {},
        "spk_is_dialect": dict.fromkeys(voices, False) if kind == "custom_voice" else {},
        "code_predictor_config": predictor,
    }
    return Qwen3TTSConfig(
        talker_config=talker,
        speaker_encoder_config={"enc_dim": HIDDEN, "sample_rate": 24_000},
        tokenizer_type="qwen3_tts_tokenizer_12hz",
        tts_model_size=size,
        tts_model_type=kind,
        im_start_token_id=ids["<|im_start|>"],
        im_end_token_id=ids["<|im_end|>"],
        tts_pad_token_id=ids["<tts_pad>"],
        tts_bos_token_id=ids["<tts_text_bos>"],
        tts_eos_token_id=ids["<tts_text_eod>"],
    )


def _mend(path: Path, kind: str) -> None:
    """Shorten the speaker encoder's configuration: saved with all its keys, it cannot be loaded."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["speaker_encoder_config"] = {"enc_dim": HIDDEN, "sample_rate": 24_000}
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")


def _codec(directory: Path, of: Dimensions) -> None:
    import torch
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (
        Qwen3TTSTokenizerV2Config,
    )
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import (
        Qwen3TTSTokenizerV2Model,
    )
    from transformers import EncodecFeatureExtractor

    config = Qwen3TTSTokenizerV2Config(
        encoder_config=dict(of.codec_encoder), decoder_config=dict(of.codec_decoder)
    )
    # Published in float32, whatever the rest's dtype.
    model = Qwen3TTSTokenizerV2Model(config).float().eval()
    with torch.no_grad():
        _make_audible(model.decoder, of.codes)
    model.save_pretrained(directory)
    EncodecFeatureExtractor(sampling_rate=24_000).save_pretrained(directory)


def _make_audible(decoder: Any, values_of_code: int) -> None:
    """Scale the codec's output, which is exactly silent with its initial weights."""
    import torch

    for name, values in decoder.named_parameters():
        if "layer_scale" in name or name.endswith("gamma"):
            values.fill_(0.5)
        elif values.dim() >= 2:
            values.normal_(0, values[0].numel() ** -0.5)
    for name, values in decoder.named_buffers():
        if "embed" in name:
            values.normal_(0, 1)
    codes = torch.randint(0, values_of_code, (1, GROUPS, 40))
    last = decoder.decoder[-1].conv
    last.bias.zero_()
    last.weight.mul_(LOUDEST / float(_unclipped(decoder, codes).abs().max()))


def _unclipped(decoder: Any, codes: Any) -> Any:
    """The last layer's output before it is clipped at 1."""
    found: list[Any] = []
    hook = decoder.decoder[-1].register_forward_hook(lambda *each: found.append(each[2]))
    decoder(codes)
    hook.remove()
    return found[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    make(parser.parse_args().directory)
