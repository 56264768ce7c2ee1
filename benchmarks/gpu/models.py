"""Makes full-size models from seeds: as fast and large as the published ones, but untrained.

The recogniser writes as many tokens a second as speech has. The voice hums for as long as speech
would last. Small ones are for trying the benchmark on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.gpu.language_model import language_model
from benchmarks.gpu.speech import recordings, talk
from tests.support.tiny_models.parakeet import FILE as TINY_PARAKEET

PROFILE = "reachy"
VOICES = {"0b6": "qwen3-tts-0.6b-customvoice", "1b7": "qwen3-tts-1.7b-customvoice"}


# --- the settings ------------------------------------------------------------------------------


def cache(args: argparse.Namespace) -> WeightsCache:
    folder = args.cache or load_settings(PROFILE).settings.paths.cache(os.environ)
    return WeightsCache(folder)


def models_to_make(args: argparse.Namespace) -> dict[str, Path]:
    """The models that must be made, with their paths: those that the weights cache lacks."""
    size = "small" if args.small else "full"
    paths = {
        "llm": args.models / f"{size}.gguf",
        "stt": TINY_PARAKEET if args.small else args.models / "full.nemo",
        "voice": args.models / f"{size}-{args.voice}",
    }
    settings, weights = load_settings(PROFILE).settings, cache(args)
    names = {"llm": settings.llm.weights, "stt": settings.stt.weights, "voice": VOICES[args.voice]}  # type: ignore[attr-defined]
    absent = weights.missing(name for name in names.values() if name)
    return {kind: paths[kind] for kind, name in names.items() if args.small or name in absent}


def settings_file(args: argparse.Namespace, *, words: bool = False) -> Path:
    """The profile with the models of this run; with ``words``, the tiny recogniser, which knows
    ten sentences."""
    paths, weights = models_to_make(args), cache(args)
    tree: dict[str, Any] = {
        "extends": PROFILE,
        "server": {"announce": False, "max_sessions": 8},
        # The made voice only hums.
        "playback": {"watch_voice": False},
        "conversation": {"apology": ""},
        "tts": {"weights": VOICES[args.voice]},
        "stt": {},
        "llm": {},
    }
    if "voice" in paths:
        tree["tts"] = {"weights": None, "model_dir": str(paths["voice"])}
    if "llm" in paths:
        tree["llm"] = {"weights": None, "model_file": str(paths["llm"]), "mmproj": None}
    if "stt" in paths:
        file = TINY_PARAKEET if words else paths["stt"]
        tree["stt"] = {"weights": None, "model_file": str(file), "languages": ["en"]}
    if args.cache:
        tree["paths"] = {"cache_dir": str(args.cache.absolute())}
    if weights.missing(["smart-turn-v3.2"]):
        tree["turn"] = {"engine": "silence"}
    if args.small:
        tree["tts"]["device"] = tree["stt"]["device"] = "cpu"
        tree["stt"]["partials"] = True
        tree["llm"] |= {"gpu_layers": 0, "context_tokens": 4096, "threads": 1}
    path = Path(args.models / f"settings-{'words' if words else 'full'}.yaml")
    path.write_text(json.dumps(tree, indent=1), encoding="utf-8")  # which is YAML, too
    return path


def make(kind: str, args: argparse.Namespace) -> None:
    path = models_to_make(args)[kind]
    if path.exists():
        return
    part = path.with_name(f"part-{path.name}")
    match kind:
        case "llm":
            language_model(part, args.small)
        case "stt":
            recogniser(part, talk(recordings(args.speech, tiny=False), 10))
        case "voice":
            voice(part, args.voice, args.small)
    part.rename(path)


# --- the recogniser ----------------------------------------------------------------------------

TOKENS_PER_S = 3.5
PIECES = 8192


def _device() -> str:
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


def recogniser(path: Path, speech: NDArray[np.int16]) -> None:
    """Write a Parakeet-TDT with the dimensions of nvidia/parakeet-tdt-0.6b-v3. The bias of its
    blank makes tokens as frequent as in speech, and no duration is 0."""
    import torch

    from tests.support.tiny_models import parakeet as tiny

    with tempfile.TemporaryDirectory() as folder:
        model = tiny.new_model(tiny.tokenizer(Path(folder), _sentences(), PIECES), tiny.V3)
        device = _device()
        draw = torch.Generator(device).manual_seed(9)
        with torch.no_grad():
            for values in model.parameters():
                if values.dim() >= 2:
                    random_values = torch.randn(values.shape, generator=draw, device=device)
                    values.copy_(random_values * values[0].numel() ** -0.5)
        _set_rate(model, speech)
        file = path.with_suffix(".nemo")
        tiny.save(model, file)
    file.rename(path)


def _sentences() -> list[str]:
    """Made-up words, enough for a tokenizer of 8,192 pieces."""
    draw = random.Random(4)
    begins, middles = "bcdfghjklmnprstvwz", ("a", "e", "i", "o", "u", "ai", "ea", "oa", "ou")
    ends = ("", *"bdglmnprst", "ck", "ft", "ld", "lt", "mp", "nd", "ng", "nk", "nt", "rd", "st")
    syllables = begins, middles, ends
    words = [
        "".join(draw.choice(part) for part in syllables * draw.choice((1, 2, 2)))
        for _ in range(9000)
    ]
    return [" ".join(words[at : at + 8]).capitalize() + "." for at in range(0, len(words), 8)]


def _set_rate(model: Any, speech: NDArray[np.int16]) -> None:
    """Bisect the blank's bias until ``TOKENS_PER_S`` is met."""
    import torch

    from pipeline.engines.stt.nemo_model import NemoModel, greedy
    from pipeline.engines.torch_place import TorchPlace
    from tests.support.tiny_models.parakeet import DURATIONS

    nemo = NemoModel(greedy(model).to(_device()), TorchPlace(_device(), "fp32"))
    last = model.joint.joint_net[-1]
    low, high = -30.0, 60.0
    with torch.inference_mode():
        last.weight *= 3.0
        last.bias.zero_()
        last.bias[-len(DURATIONS)] = -1e4
        last.bias[-1] = 0.5
        encoded = nemo._encode(speech)
        for _ in range(12):
            last.bias[PIECES] = (low + high) / 2
            tokens, _ = nemo._decode(encoded.clone(), None)
            rate = len(tokens) / (len(speech) / 16_000)
            if abs(rate - TOKENS_PER_S) < 0.4:
                break
            low, high = ((low + high) / 2, high) if rate > TOKENS_PER_S else (low, (low + high) / 2)
    model.cpu()


# --- the voice ---------------------------------------------------------------------------------

FRAMES_PER_LETTER = 0.6
MARK, MEAN = 0, 1
"""Coordinates of the hidden state: a position's mark (text or frame), and the mean mark so far."""


def voice(folder: Path, size: str, small: bool) -> None:
    """Write a Qwen3-TTS CustomVoice in bfloat16. A head of the first layer attends evenly to all
    earlier positions, text counting -0.6 and frames 1: where the mean crosses 0, the end of speech
    becomes the likeliest code."""
    import torch
    from qwen_tts.core.models import Qwen3TTSForConditionalGeneration
    from transformers.modeling_utils import no_init_weights

    from tests.support.tiny_models import qwen3_tts as tiny

    of = tiny.TINY if small else {"0b6": tiny.SMALLER, "1b7": tiny.LARGER}[size]
    # First make a model of the tests' size, for its small files.
    tiny.make(folder, size)
    ids = tiny._tokenizer(folder)
    with no_init_weights():
        model = Qwen3TTSForConditionalGeneration(tiny._config(ids, size, "custom_voice", of))
    model.to(torch.bfloat16)
    device = _device()
    draw = torch.Generator(device).manual_seed(tiny.SEED)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() >= 2:
                values.copy_(of.spread * torch.randn(values.shape, generator=draw, device=device))
            else:
                values.fill_(0.0 if name.endswith("bias") else 1.0)
        _let_it_end(model, of, ids)
    generation = folder / "generation_config.json"
    config = generation.read_bytes()
    model.save_pretrained(folder)
    generation.write_bytes(config)
    tiny._codec(folder / "speech_tokenizer", of)
    tiny._mend(folder / "config.json", "custom_voice")


def _let_it_end(model: Any, of: Any, ids: Mapping[str, int]) -> None:
    talker, both = model.talker, [MARK, MEAN]
    table = talker.get_input_embeddings().weight
    others = talker.code_predictor.get_input_embeddings()
    text = talker.text_projection
    text.linear_fc2.weight[both] = 0
    text.linear_fc2.bias[both] = 0
    for each in (table, *(other.weight for other in others), talker.codec_head.weight):
        each[:, both] = 0
    for layer in talker.model.layers:
        layer.self_attn.o_proj.weight[both] = 0
        layer.mlp.down_proj.weight[both] = 0
    first = talker.model.layers[0].self_attn
    first.q_proj.weight[: of.head_dim] = 0
    first.v_proj.weight[0] = 0
    first.v_proj.weight[0, MARK] = 1
    first.o_proj.weight[:, 0] = 0
    first.o_proj.weight[MEAN, 0] = 1
    plus, minus = _marks(talker, table, others, of, ids)
    table[: of.codes, MARK] = plus
    table[of.codes :, MARK] = -minus
    end = int(model.config.talker_config.codec_eos_token_id)
    talker.codec_head.weight[end] = 0
    talker.codec_head.weight[end, MEAN] = 400.0


def _marks(
    talker: Any, table: Any, others: Any, of: Any, ids: Mapping[str, int]
) -> tuple[float, float]:
    """The marks of frames and of text, scaled to the right size after the first layer's norm."""
    import torch

    def rms(values: Any) -> float:
        return float(values.float().square().mean(-1).sqrt().mean())

    def mark(size: float, rest: float) -> float:
        return float(size * rest / (1 - size**2 / of.hidden) ** 0.5)

    embeddings = talker.get_text_embeddings().weight
    texts = talker.text_projection(embeddings[: ids["<|im_end|>"] + 4])
    pad = talker.text_projection(embeddings[[ids["<tts_pad>"]]])
    frames = table[torch.randint(0, of.codes, (64,))].float()
    for other in others:
        frames = frames + other.weight[torch.randint(0, of.codes, (64,))].float()
    height = min(4.0, 0.5 * of.hidden**0.5)
    beside = table[int(talker.config.codec_pad_id)]
    minus = mark(FRAMES_PER_LETTER * height, rms(texts + beside))
    return mark(height, rms(frames + pad.float())), minus
