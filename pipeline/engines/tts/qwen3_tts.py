"""Qwen3-TTS CustomVoice: an expressive voice from a language model that writes audio codes.

It streams: each 80 ms are sent as soon as they are made. Real time needs a GPU.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pipeline.audio import Pcm
from pipeline.engines.contract import NotSpeech
from pipeline.engines.onnx import model_file, unreadable
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.torch_place import place
from pipeline.engines.tts.qwen3_codes import (
    LANGUAGES,
    RATE,
    ClauseRequest,
    language_name,
    most_frames,
    without_controls,
)
from pipeline.errors import ConfigError, WeightsError
from pipeline.messages import SpeechRequest, has_words
from pipeline.work import NEVER, CancelToken

if TYPE_CHECKING:
    from pipeline.engines.tts.qwen3_speech import Qwen3Speech

_WARM_UP = "Hello there, this is how I sound."
_WARM_UP_STEPS = 24
_BETWEEN_TAKES = 7919
"""Added to the seed for each further take; large, as neighbouring clauses may have close seeds."""

log = logging.getLogger("reachy_voice.tts")


class Qwen3TtsOptions(EngineOptions):
    engine: Literal["qwen3-tts"] = "qwen3-tts"
    weights: str | None = "qwen3-tts-1.7b-customvoice"
    """Catalogue entry of a CustomVoice model; null if ``model_dir`` is set."""
    model_dir: str | None = None
    """Absolute path of a CustomVoice model's directory, as the hub has it."""
    updates: str | None = None
    """Folder or URL with updates of the weights (docs/updates.md), used while people talk."""
    voice: str | None = None
    """Voice for requests that name no known voice; null: ``ryan``, or the first."""
    language: str = Field(default="en", pattern=r"^[A-Za-z_]+$")
    """Spoken where the conversation's language is unknown, or the model does not speak it: ISO
    639-1, or ``auto``: found out from each clause, which goes wrong with numbers."""
    instruct: str = ""
    """How to speak, in words: "warm and a little amused". Not for the 0.6B model."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """``cuda``, ``cuda:1``, ``mps``, ``cpu``; ``auto``: the first NVIDIA GPU, or else the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bf16 if the GPU or the CPU (AVX512_BF16, AMX) supports it."""
    threads: int = Field(default=1, ge=1)
    """CPU threads. More only help on cores that nothing else uses."""
    seed: int | None = None
    """With a number, a clause always sounds the same; null: it varies, as people do."""
    clauses: int = Field(default=4, ge=1, le=32)
    """Clauses that are made at once, of all conversations; on a GPU each takes 60 MB. A further one
    takes the place of one that nobody waits for yet, which begins again later; else it waits."""


class Qwen3Tts:
    """The voices of one model."""

    rate = RATE

    def __init__(
        self,
        speaker: Qwen3Speech,
        voices: Sequence[str],
        options: Qwen3TtsOptions,
        language: str,
        languages: Sequence[str] = (),
    ) -> None:
        """``voices``: the model's names, in lower case. ``language``: the model's name for the
        default language. ``languages``: all that it speaks, ISO 639-1."""
        self.voices: Sequence[str] = tuple(voices)
        self.languages: Sequence[str] = tuple(languages)
        self.speaker = speaker
        self._options = options
        self._language = language
        default = (options.voice or "ryan").lower()
        self._default = default if default in self.voices else self.voices[0]
        self._warned_of_speed = False

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        """int16 at 24 kHz, in pieces of 80 ms. Raises ``Cancelled`` within a frame, and
        ``NotSpeech`` when the codes are not speech.

        An unknown voice means the default one; text without letters or digits is silent. The model
        has only one pace, so the speed has no effect. Each take draws other random numbers.
        """
        text = without_controls(request.text)
        if not has_words(text):
            return
        if request.speed != 1.0 and not self._warned_of_speed:
            self._warned_of_speed = True
            log.warning("Qwen3-TTS has one pace; the speed %g is not used", request.speed)
        voice, seed = request.voice.lower(), self._options.seed
        language = request.language
        clause = ClauseRequest(
            text,
            voice=voice if voice in self.voices else self._default,
            language=language_name(language) if language in self.languages else self._language,
            instruct=self._options.instruct,
            limit=most_frames(text),
            seed=secrets.randbits(63) if seed is None else seed + request.take * _BETWEEN_TAKES,
        )
        yield from self.speaker.say(clause, cancel)


# --- building ----------------------------------------------------------------------------------


def build(options: Qwen3TtsOptions, weights: Path | None) -> Qwen3Tts:
    """Load the model and warm it up. Raises ``WeightsError``, ``ConfigError``, ``MissingExtra`` and
    ``EngineError``."""
    directory = _directory(options, weights)
    check_directory(directory)
    _go_offline()
    where = place("tts", options.device, options.precision, options.threads)
    from pipeline.engines.tts.qwen3_speech import Qwen3Speech, load

    model = load(directory, where)
    speaker = Qwen3Speech(model, where, options.clauses)
    log.info("%s runs on %s in %s", directory.name, where.device, where.precision)
    language = language_name(options.language)
    names = tuple(model.get_supported_languages() or ())
    _check_language(options, language, names)
    voices = [str(name).lower() for name in model.get_supported_speakers() or ()]
    _check_voice(options, voices, directory)
    if options.instruct and str(model.model.tts_model_size) in "0b6":
        log.warning("This Qwen3-TTS model takes no tts.instruct: it is not used")
    languages = [code for code, name in LANGUAGES.items() if name in names]
    engine = Qwen3Tts(speaker, sorted(voices), options, language, languages)
    _warm_up(engine)
    return engine


def _directory(options: Qwen3TtsOptions, weights: Path | None) -> Path:
    if options.model_dir is None:
        if weights is None:
            raise WeightsError(
                "Qwen3-TTS has no weights",
                why="tts.weights and tts.model_dir are both null",
                fix="Set tts.model_dir to the directory of a CustomVoice model",
            )
        return weights
    directory = Path(options.model_dir).expanduser()
    if not directory.is_absolute():
        raise ConfigError(
            f"tts.model_dir is {options.model_dir!r}",
            why="a server may be started anywhere",
            fix="Write the absolute path of the directory",
        )
    if not directory.is_dir():
        raise WeightsError(
            f"There is no directory {directory}",
            fix="Set tts.model_dir to the directory of a CustomVoice model",
        )
    return directory


def check_directory(directory: Path) -> None:
    """Raise ``WeightsError`` unless it holds a Qwen3-TTS model with voices of its own. Cheap."""
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        model_file(directory, name)
    path = model_file(directory, "config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kinds = str(config.get("model_type")), str(config.get("tts_model_type"))
    except (ValueError, AttributeError) as error:
        raise unreadable(path, error) from error
    if kinds[0] != "qwen3_tts":
        raise WeightsError(
            f"{directory} is not a Qwen3-TTS model",
            why=f"its config.json says {kinds[0]}",
            fix="Set tts.weights or tts.model_dir to a Qwen3-TTS CustomVoice model",
        )
    if kinds[1] != "custom_voice":
        raise WeightsError(
            f"The Qwen3-TTS model in {directory} has no voices of its own",
            why=f"it is of the type {kinds[1]}",
            fix="Use a CustomVoice model, such as Qwen3-TTS-12Hz-1.7B-CustomVoice",
        )


def _check_language(options: Qwen3TtsOptions, name: str, languages: Sequence[str]) -> None:
    if languages and name not in languages:
        raise ConfigError(
            f"This Qwen3-TTS model does not speak tts.language {options.language!r}",
            why=f"known are: {', '.join(sorted(languages))}",
            fix="Set tts.language to the ISO 639-1 code of one of them, or to auto",
        )


def _check_voice(options: Qwen3TtsOptions, voices: Sequence[str], directory: Path) -> None:
    if not voices:
        raise WeightsError(
            f"The Qwen3-TTS model in {directory} has no voices of its own",
            fix="Use a CustomVoice model, such as Qwen3-TTS-12Hz-1.7B-CustomVoice",
        )
    if options.voice and options.voice.lower() not in voices:
        raise ConfigError(
            f"This Qwen3-TTS model has no voice {options.voice!r}",
            why=f"known are: {', '.join(sorted(voices))}",
            fix="Set tts.voice to one of them",
        )


def _go_offline() -> None:
    """Keep transformers off the network. Call it before the import, which reads the variable."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # They report defaults, and a missing program that these models never use.
    logging.getLogger("qwen_tts").setLevel(logging.WARNING)
    logging.getLogger("sox").disabled = True


def _warm_up(engine: Qwen3Tts) -> None:
    """Make the first two seconds of a sentence, whatever they sound like."""
    # ``Any``, as the protocol promises only an iterator, but ``closing`` needs a generator.
    steps: Any = engine.synthesize(SpeechRequest(_WARM_UP), NEVER)
    with suppress(NotSpeech), closing(steps):
        for _ in islice(steps, _WARM_UP_STEPS):
            pass


SPEC = EngineSpec(
    name="qwen3-tts",
    kind=Kind.TTS,
    options=Qwen3TtsOptions,
    build=build,
    summary="Qwen3-TTS CustomVoice: expressive voices, ten languages, for a GPU",
    extra="qwen",
    modules=("qwen_tts", "torch"),
    run_in="process",
)
