"""Models of full size, made from seeds: as fast and as large as the published ones, without sense.

The language model speaks one sensible reply whatever is asked, and holds words for complete unless
they end with one of its own.
The recogniser writes as many tokens a second as there are in speech. The voice hums, as long as
speech would be. Small ones are for a CPU, to try the benchmark.
"""

from __future__ import annotations

import argparse
import itertools
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
from benchmarks.gpu.speech import recordings, talk
from pipeline.engines.llm.chat_template import CHATML
from tests.support import tiny_gguf as gguf
from tests.support.tiny_models.parakeet import FILE as TINY_PARAKEET

PROFILE = "reachy"
REPLY = (
    "Of course! I know many stories and songs that children love most,"
    " so in the evening we can look at stars together."
)
"""No token twice: each follows from the one before it alone."""
VOICES = {"0b6": "qwen3-tts-0.6b-customvoice", "1b7": "qwen3-tts-1.7b-customvoice"}


# --- the settings ------------------------------------------------------------------------------


def cache(given: argparse.Namespace) -> WeightsCache:
    folder = given.cache or load_settings(PROFILE).settings.paths.cache(os.environ)
    return WeightsCache(folder)


def wanted(given: argparse.Namespace) -> dict[str, Path]:
    """The models that must be made, with their paths: those that the weights cache lacks."""
    size = "small" if given.small else "full"
    paths = {
        "llm": given.models / f"{size}.gguf",
        "stt": TINY_PARAKEET if given.small else given.models / "full.nemo",
        "voice": given.models / f"{size}-{given.voice}",
    }
    settings, known = load_settings(PROFILE).settings, cache(given)
    names = {"llm": settings.llm.weights, "stt": settings.stt.weights, "voice": VOICES[given.voice]}  # type: ignore[attr-defined]
    absent = known.missing(name for name in names.values() if name)
    return {kind: paths[kind] for kind, name in names.items() if given.small or name in absent}


def settings_file(given: argparse.Namespace, *, words: bool = False) -> Path:
    """The profile with the models of this run. ``words``: with the tiny recogniser, which knows
    ten sentences."""
    made, known = wanted(given), cache(given)
    tree: dict[str, Any] = {
        "extends": PROFILE,
        "server": {"announce": False, "max_sessions": 8},
        # What the made voice says is a hum.
        "playback": {"watch_voice": False},
        "conversation": {"apology": ""},
        "tts": {"weights": VOICES[given.voice]},
        "stt": {},
        "llm": {},
    }
    if "voice" in made:
        tree["tts"] = {"weights": None, "model_dir": str(made["voice"])}
    if "llm" in made:
        tree["llm"] = {"weights": None, "model_file": str(made["llm"]), "mmproj": None}
    if "stt" in made:
        file = TINY_PARAKEET if words else made["stt"]
        tree["stt"] = {"weights": None, "model_file": str(file), "languages": ["en"]}
    if given.cache:
        tree["paths"] = {"cache_dir": str(given.cache.absolute())}
    if known.missing(["smart-turn-v3.2"]):
        tree["turn"] = {"engine": "silence"}
    if given.small:
        tree["tts"]["device"] = tree["stt"]["device"] = "cpu"
        tree["stt"]["partials"] = True
        tree["llm"] |= {"gpu_layers": 0, "context_tokens": 4096, "threads": 1}
    path = Path(given.models / f"settings-{'words' if words else 'full'}.yaml")
    path.write_text(json.dumps(tree, indent=1), encoding="utf-8")  # which is YAML, too
    return path


def make(kind: str, given: argparse.Namespace) -> None:
    path = wanted(given)[kind]
    if path.exists():
        return
    part = path.with_name(f"part-{path.name}")
    match kind:
        case "llm":
            language_model(part, given.small)
        case "stt":
            recogniser(part, talk(recordings(given.speech, known=False), 10))
        case "voice":
            voice(part, given.voice, given.small)
    part.rename(path)


# --- the language model ------------------------------------------------------------------------

Q4_0, Q8_0 = 2, 8
"""Of ``enum ggml_type``."""
SURE, LIKELY = 40.0, 20.0
"""Logits of the token that must follow, and of the end of the message after any other token; of all
others: 1 or less, mostly."""
RMS_OF_Q8 = 127 / 3**0.5
"""Of evenly distributed int8."""
SMALL_SHAPE = (4, 256, 512, 4, 2, 64, 12_000)
FULL_SHAPE = (36, 2560, 9728, 32, 8, 128, 151_936)
"""Qwen3-4B's layers, width, feed-forward width, heads, heads of keys, head size, vocabulary."""


def language_model(path: Path, small: bool) -> None:
    """A GGUF of the architecture qwen3. The layers compute what a real model's do, but add next to
    nothing to the residual stream: it is the last token's embedding, and the head's row of the
    token that comes after it is the same. All embeddings share a direction, which asks for the end
    of the message."""
    layers, width, feed, heads, kv, head, vocabulary = SMALL_SHAPE if small else FULL_SHAPE
    known, chain = _vocabulary(vocabulary)
    data = {
        "general.architecture": "qwen3",
        "general.name": "a chain of words",
        "general.file_type": 2,
        "general.quantization_version": 2,
        "qwen3.block_count": layers,
        "qwen3.context_length": 262_144,
        "qwen3.embedding_length": width,
        "qwen3.feed_forward_length": feed,
        "qwen3.attention.head_count": heads,
        "qwen3.attention.head_count_kv": kv,
        "qwen3.attention.key_length": head,
        "qwen3.attention.value_length": head,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 5_000_000.0,
        **known,
    }
    draw = np.random.default_rng(1)

    def ones(size: int) -> gguf.Raw:
        return gguf.Raw((size,), 0, np.ones(size, np.float32).tobytes())

    def matrix(rows: int, columns: int, scale: float = 0.0043) -> gguf.Raw:
        numbers = np.frombuffer(draw.bytes(rows * columns // 2), np.uint8).reshape(-1, 16)
        return gguf.Raw((columns, rows), Q4_0, _blocks(np.float16(scale), numbers))

    none = 6e-8
    layer = {
        "attn_norm": ones(width),
        "attn_q": matrix(heads * head, width),
        "attn_k": matrix(kv * head, width),
        "attn_v": matrix(kv * head, width),
        "attn_q_norm": ones(head),
        "attn_k_norm": ones(head),
        "attn_output": matrix(width, heads * head, none),
        "ffn_norm": ones(width),
        "ffn_gate": matrix(feed, width),
        "ffn_up": matrix(feed, width),
        "ffn_down": matrix(width, feed, none),
    }
    table, output = _table_and_head(chain, vocabulary, width)
    tensors = {"token_embd.weight": table, "output_norm.weight": ones(width)}
    # The same numbers in each layer: how fast they are does not depend on them.
    for number in range(layers):
        tensors |= {f"blk.{number}.{name}.weight": each for name, each in layer.items()}
    gguf.write(path, data, tensors | {"output.weight": output})


def _table_and_head(
    chain: list[tuple[int, int]], vocabulary: int, width: int
) -> tuple[gguf.Raw, gguf.Raw]:
    draw = np.random.default_rng(3)

    def drawn() -> NDArray[np.int8]:
        numbers = np.frombuffer(draw.bytes(vocabulary * width), np.int8).reshape(vocabulary, width)
        return np.maximum(numbers, -127)

    shared = np.where(np.arange(width) % 2 == 0, 127, -127).astype(np.int8)
    table, head = drawn(), drawn()
    table[:, ::4] = shared[::4]
    rows = {after: np.zeros(width) for _, after in chain}
    end = chain[-1][1]
    # What the head gets is a row divided by its root mean square.
    direction = np.where(np.arange(width) % 4 == 0, shared, 0).astype(np.float64)
    rows[end] += direction * (LIKELY / (direction @ direction)) * _rms(table[0])
    for before, after in chain:
        row = table[before].astype(np.float64)
        own = np.where(np.arange(width) % 4 == 0, 0, row)
        rows[after] += own * (SURE / (own @ own)) * _rms(row)
    scale = np.full(vocabulary, 1 / (RMS_OF_Q8 * width**0.5), np.float16)
    for token, row in rows.items():
        scale[token] = np.abs(row).max() / 127
        head[token] = np.round(row / float(scale[token]))
    blocks = width // 32
    return (
        gguf.Raw((width, vocabulary), Q8_0, _blocks(np.float16(8 / RMS_OF_Q8), table)),
        gguf.Raw((width, vocabulary), Q8_0, _blocks(np.repeat(scale, blocks), head)),
    )


def _rms(row: NDArray[Any]) -> float:
    return float(np.sqrt((row.astype(np.float64) ** 2).mean()))


def _blocks(scale: Any, numbers: NDArray[Any]) -> bytes:
    """Blocks of 32 numbers, each behind its scale in float16."""
    size = 16 if numbers.dtype == np.uint8 else 32
    body = numbers.reshape(-1, size).view(np.uint8)
    out = np.empty((len(body), 2 + size), np.uint8)
    out[:, :2] = np.broadcast_to(scale, len(body)).copy().view(np.uint8).reshape(-1, 2)
    out[:, 2:] = body
    return out.tobytes()


def _vocabulary(size: int) -> tuple[Mapping[str, Any], list[tuple[int, int]]]:
    """A tokenizer trained on the project's own texts, and which token must follow which."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    project = Path(__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in sorted(project.glob("**/*.md"))[:60]]
    tokenizer.train_from_iterator([*texts, *[f"\n{REPLY}"] * 500], trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    kinds = [3 if token in specials else 1 for token in tokens]
    spare = size - len(tokens)
    before, *reply = tokenizer.encode(f"\n{REPLY}").ids
    assert len(set(reply)) == len(reply), "a token of the reply comes twice"
    end = tokens.index("<|im_end|>")
    following = [before, *reply, end]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{n}]" for n in range(spare))],
        "tokenizer.ggml.token_type": [*kinds, *[5] * spare],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in trained["merges"]],
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.padding_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }, list(itertools.pairwise(following))


def _device() -> str:
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


# --- the recogniser ----------------------------------------------------------------------------

TOKENS_PER_S = 3.5
PIECES = 8192


def recogniser(path: Path, speech: NDArray[np.int16]) -> None:
    """A Parakeet-TDT with the dimensions of nvidia/parakeet-tdt-0.6b-v3. The bias of its blank is
    such that tokens come as often as in speech, and no duration is 0."""
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
    """Bisect the bias of the blank."""
    import torch
    from omegaconf import open_dict

    from pipeline.engines.stt.nemo_model import NemoModel
    from pipeline.engines.torch_place import TorchPlace
    from tests.support.tiny_models.parakeet import DURATIONS

    decoding = model.cfg.decoding.copy()
    with open_dict(decoding):
        decoding.strategy, decoding.fused_batch_size = "greedy_batch", -1
        decoding.greedy = {"max_symbols": 10, "loop_labels": True}
    model.change_decoding_strategy(decoding, verbose=False)
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    run = NemoModel(model.eval().to(_device()), TorchPlace(_device(), "fp32"))
    last = model.joint.joint_net[-1]
    low, high = -30.0, 60.0
    with torch.inference_mode():
        last.weight *= 3.0
        last.bias.zero_()
        last.bias[-len(DURATIONS)] = -1e4
        last.bias[-1] = 0.5
        encoded = run._encode(speech)
        for _ in range(12):
            last.bias[PIECES] = (low + high) / 2
            tokens, _ = run._decode(encoded.clone(), None)
            rate = len(tokens) / (len(speech) / 16_000)
            if abs(rate - TOKENS_PER_S) < 0.4:
                break
            low, high = ((low + high) / 2, high) if rate > TOKENS_PER_S else (low, (low + high) / 2)
    model.cpu()


# --- the voice ---------------------------------------------------------------------------------

FRAMES_PER_LETTER = 0.6
MARK, MEAN = 0, 1
"""Coordinates of the hidden state: what a position is, and the mean of that so far."""


def voice(folder: Path, size: str, small: bool) -> None:
    """A Qwen3-TTS CustomVoice in bfloat16. A head of the first layer looks evenly at all that came
    before, text counting -0.6 and frames 1: where the mean crosses 0, the end of speech becomes
    the likeliest code."""
    import torch
    from qwen_tts.core.models import Qwen3TTSForConditionalGeneration
    from transformers.modeling_utils import no_init_weights

    from tests.support.tiny_models import qwen3_tts as tiny

    of = tiny.TINY if small else {"0b6": tiny.SMALLER, "1b7": tiny.LARGER}[size]
    # Its small files first: a model of the tests' size.
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
    published = generation.read_bytes()
    model.save_pretrained(folder)
    generation.write_bytes(published)
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
    """Of frames and of text, so that both have their size after the norm of the first layer."""
    import torch

    def rms(values: Any) -> float:
        return float(values.float().square().mean(-1).sqrt().mean())

    def mark(size: float, rest: float) -> float:
        return float(size * rest / (1 - size**2 / of.hidden) ** 0.5)

    embedded = talker.get_text_embeddings().weight
    texts = talker.text_projection(embedded[: ids["<|im_end|>"] + 4])
    pad = talker.text_projection(embedded[[ids["<tts_pad>"]]])
    frames = table[torch.randint(0, of.codes, (64,))].float()
    for other in others:
        frames = frames + other.weight[torch.randint(0, of.codes, (64,))].float()
    height = min(4.0, 0.5 * of.hidden**0.5)
    beside = table[int(talker.config.codec_pad_id)]
    minus = mark(FRAMES_PER_LETTER * height, rms(texts + beside))
    return mark(height, rms(frames + pad.float())), minus
