"""Piper: natural speech from a VITS network, more than ten times faster than real time on one core.

Its network is cut in two (``onnx_parts``), so that a sentence is heard while it is made (``vits``).

Piper and the espeak-ng inside it are GPL-3. This module imports them only in ``build``, which
runs in a separate program (``run_in="process"``), joined to the server by a pipe.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import Pcm, Resampler, from_float
from pipeline.engines.onnx import model_file, open_session, unreadable
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.tts.espeak_ng import without_phoneme_blocks
from pipeline.engines.tts.onnx_parts import CannotCut, cut
from pipeline.engines.tts.vits import Samples, Vocoder, limited
from pipeline.errors import ConfigError, WeightsError
from pipeline.messages import SpeechRequest, has_words
from pipeline.work import NEVER, Cancelled, CancelToken

_WARM_UP = "Hello there!"
_TRIAL = "I am fine today, thank you, and how are you"
"""A sentence to measure the reach of a voice's vocoder, and its loudness."""
_LOUDEST = 0.9
"""The trial is amplified to this peak. Peaks of one voice's sentences differ by a factor of two."""

log = logging.getLogger("reachy_voice.tts")


class PiperOptions(EngineOptions):
    retired: ClassVar = ("sentence_silence_ms",)

    engine: Literal["piper"] = "piper"
    weights: str = "piper-joe"
    """Catalogue entry with one or more voices, ``<language>-<name>-<quality>.onnx(.json)``."""
    voice: str | None = None
    """The voice for requests that name no voice, or an unknown one; null: the first."""
    speed: float = Field(default=1.0, ge=0.25, le=4)
    """1 is the voice's own pace, 2 is twice as fast."""


class Piper:
    """The voices of one weights directory. All but the default one load when first used."""

    def __init__(self, options: PiperOptions, models: dict[str, Path]) -> None:
        self.voices: Sequence[str] = tuple(sorted(models))
        self._language_of = {name: language_of_voice(model) for name, model in models.items()}
        self.languages: Sequence[str] = tuple(sorted(set(self._language_of.values())))
        self._options = options
        self._default = options.voice or self.voices[0]
        self._models = models
        self._speakers: dict[str, _Speaker] = {}
        self.rate = self._voice(self._default).rate

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        """int16 chunks at ``rate``, the first one after 0.2 s of audio. Raises ``Cancelled``.

        An unknown voice means the default one or, if that does not speak the language, the first
        that does. Text without letters or digits is silent. Takes differ by themselves, as the
        network draws new noise each time.
        """
        if not has_words(request.text):
            return
        speaker = self._voice(self._choose(request.voice, request.language))
        for phonemes in speaker.phonemize(without_phoneme_blocks(request.text)):
            resampler = Resampler(speaker.rate, self.rate)
            for samples in speaker.say(phonemes, self._options.speed * request.speed):
                if cancel.cancelled:
                    raise Cancelled
                yield resampler.feed(samples)
            rest = resampler.flush()
            yield rest if len(rest) else None

    def _choose(self, voice: str, language: str) -> str:
        if voice in self._models and voice != self._default:
            return voice
        voices = [name for name in self.voices if self._language_of[name] == language]
        return self._default if self._default in voices or not voices else voices[0]

    def _voice(self, name: str) -> _Speaker:
        voice = name if name in self._models else self._default
        if voice not in self._speakers:
            self._speakers[voice] = _load(self._models[voice])
        return self._speakers[voice]


def find_models(weights: Path | None) -> dict[str, Path]:
    """Voices in a weights directory, by name, such as ``joe`` for ``en_US-joe-medium.onnx``.

    If files share a name, each goes by its whole stem.
    """
    paths = sorted(weights.glob("*.onnx")) if weights else []
    if not paths:
        raise WeightsError(
            "There is no Piper voice",
            why=f"no *.onnx in {weights}",
            fix="Run: reachy-voice models pull",
        )
    names = [path.stem.split("-")[1] if path.stem.count("-") == 2 else path.stem for path in paths]
    return {
        name if names.count(name) == 1 else path.stem: path
        for name, path in zip(names, paths, strict=True)
    }


def language_of_voice(model: Path) -> str:
    """ISO 639-1 code, from the voice's description or else its name: ``en`` for ``en_US-joe``."""
    try:
        description = json.loads(model.with_name(f"{model.name}.json").read_text(encoding="utf-8"))
        code = str(description["language"]["code"])
    except (OSError, ValueError, KeyError, TypeError):
        code = model.stem
    return re.split("[_-]", code)[0].lower()


class _Speaker:
    """One voice: text -> phonemes of each sentence -> samples."""

    def __init__(self, voice: Any, vocoder: Vocoder | None, trial: Samples) -> None:
        """``voice``: a ``piper.PiperVoice`` whose network gives frames for ``vocoder``, or samples
        if ``vocoder`` is ``None``. ``trial``: the samples of a sentence."""
        self.rate = int(voice.config.sample_rate)
        self._voice = voice
        self._vocoder = vocoder
        self._gain = _LOUDEST / max(float(np.abs(trial).max()), 1e-3)

    def phonemize(self, text: str) -> Iterator[Sequence[str]]:
        """Phonemes of each sentence."""
        yield from filter(None, self._voice.phonemize(text))

    def say(self, phonemes: Sequence[str], speed: float) -> Iterator[Pcm]:
        """int16 samples of one sentence at ``rate``, in order.

        All sentences get the same gain: if each were normalised, short ones would shout.
        """
        for samples in self._synthesize(phonemes, speed):
            yield from_float(limited(samples * self._gain))

    def _synthesize(self, phonemes: Sequence[str], speed: float) -> Iterator[Samples]:
        from piper.config import SynthesisConfig

        ids = self._voice.phonemes_to_ids(phonemes)
        pace = SynthesisConfig(length_scale=self._voice.config.length_scale / speed)
        frames = self._voice.phoneme_ids_to_audio(ids, pace)
        if self._vocoder:
            yield from self._vocoder.windows(frames)
        else:
            yield frames


def _load(model: Path) -> _Speaker:
    """A voice on one thread; Piper's own loader uses one per core."""
    from piper import PiperVoice
    from piper.config import PiperConfig

    description = model_file(model.parent, f"{model.name}.json")
    try:
        config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
    except (ValueError, KeyError) as error:
        raise unreadable(description, error) from error
    try:
        return _in_parts(model, config)
    except (CannotCut, WeightsError, OSError) as error:
        log.info("The voice %s only produces whole sentences: %s", model.stem, error)
        voice = PiperVoice(session=open_session(model), config=config)
        return _Speaker(voice, None, _trial(voice))


def _in_parts(model: Path, config: Any) -> _Speaker:
    """A voice that is heard while it is made. Raises ``CannotCut`` if that is impossible."""
    from piper import PiperVoice

    head, tail, tensor = cut(model.read_bytes(), "/dec/")
    voice = PiperVoice(session=_open_part(head), config=config)
    vocoder = Vocoder(_open_part(tail), tensor, int(config.sample_rate))
    samples = vocoder.fit(_trial(voice))
    if samples is None:
        raise CannotCut("its vocoder looks too far around each frame")
    return _Speaker(voice, vocoder, samples)


def _trial(voice: Any) -> Any:
    """The network's output for a sentence."""
    (phonemes, *_) = voice.phonemize(_TRIAL)
    return voice.phoneme_ids_to_audio(voice.phonemes_to_ids(phonemes))


def _open_part(part: bytes) -> Any:
    """A session for a model in memory. Loaded through an unnamed file, as a session would keep the
    bytes that it is given: 60 MB."""
    with tempfile.TemporaryFile() as file:
        file.write(part)
        file.flush()
        return open_session(Path(f"/dev/fd/{file.fileno()}"))


def build(options: PiperOptions, weights: Path | None) -> Piper:
    """Load the default voice and run it once. Raises ``WeightsError``, ``ConfigError``."""
    # At debug level, piper would log what is said.
    logging.getLogger("piper").setLevel(logging.INFO)
    models = find_models(weights)
    if options.voice and options.voice not in models:
        raise ConfigError(
            f"Piper's weights {options.weights} have no voice {options.voice!r}",
            why=f"known are: {', '.join(sorted(models))}",
            fix="Set tts.voice to one of them",
        )
    piper = Piper(options, models)
    for _ in piper.synthesize(SpeechRequest(_WARM_UP), NEVER):
        pass
    return piper


SPEC = EngineSpec(
    name="piper",
    kind=Kind.TTS,
    options=PiperOptions,
    build=build,
    summary="Piper (GPL-3, a separate program): natural voice, 22,050 Hz, above 10x real time",
    extra="embedded",
    modules=("piper", "onnxruntime"),
    run_in="process",
)
