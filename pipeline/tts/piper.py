"""Piper: natural speech from a VITS network, more than ten times faster than real time on one core.

Piper and the espeak-ng inside it are GPL-3. This module imports them only in ``build``, which
runs in a program of its own (``run_in="process"``), joined to the server by a pipe.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import Pcm, Resampler
from pipeline.engines import Cancelled, CancelToken, EngineOptions, EngineSpec, Kind
from pipeline.errors import ConfigError, WeightsError
from pipeline.onnx import model_file, open_session, unreadable
from pipeline.tts.espeak_ng import speakable, without_phoneme_blocks

_SENTENCE_ENDS = (".", "!", "?")
_WARM_UP = "Hello there, how are you today? I am fine, thank you."


class PiperOptions(EngineOptions):
    engine: Literal["piper"] = "piper"
    weights: str = "piper-joe"
    """Catalogue entry with one or more voices, ``<language>-<name>-<quality>.onnx(.json)``."""
    voice: str | None = None
    """Name of the voice that speaks when none, or an unknown one, is asked for; null: the first."""
    speed: float = Field(default=1.0, ge=0.25, le=4)
    """1 is the voice's own pace, 2 is twice as fast."""
    sentence_silence_ms: int = Field(default=0, ge=0, le=5000)
    """Silence after each sentence, on top of the 150 to 200 ms that the network makes."""


class Piper:
    """The voices of one weights directory. All but the default one load when first used."""

    def __init__(self, options: PiperOptions, models: dict[str, Path]) -> None:
        self.voices: Sequence[str] = tuple(sorted(models))
        self._options = options
        self._default = options.voice or self.voices[0]
        self._models = models
        self._loaded: dict[str, Any] = {}
        self.rate = int(self._voice(self._default).config.sample_rate)

    def synthesize(
        self, text: str, voice: str, speed: float, cancel: CancelToken
    ) -> Iterator[Pcm | None]:
        """One int16 chunk per sentence, at ``rate``. Raises ``Cancelled``.

        The network makes a whole sentence in one step, so a short first clause is heard sooner.
        An unknown ``voice`` means the default one; text without letters or digits is silent.
        """
        if not speakable(text):
            return
        speaker = self._voice(voice)
        sentences = speaker.synthesize(without_phoneme_blocks(text), self._pace(speaker, speed))
        while True:
            if cancel.cancelled:
                raise Cancelled
            if (sentence := next(sentences, None)) is None:
                return
            yield self._finish(sentence)

    def _pace(self, speaker: Any, speed: float) -> Any:
        from piper.config import SynthesisConfig

        scale = speaker.config.length_scale / (self._options.speed * speed)
        return SynthesisConfig(length_scale=scale)

    def _finish(self, sentence: Any) -> Pcm:
        """The sentence's samples at our rate, with its silence."""
        resampler = Resampler(sentence.sample_rate, self.rate)
        parts = [resampler.feed(sentence.audio_int16_array), resampler.flush()]
        if sentence.phonemes[-1] in _SENTENCE_ENDS:
            silent_samples = self._options.sentence_silence_ms * self.rate // 1000
            parts.append(np.zeros(silent_samples, dtype=np.int16))
        return np.concatenate(parts)

    def _voice(self, name: str) -> Any:
        known = name if name in self._models else self._default
        if known not in self._loaded:
            self._loaded[known] = _load(self._models[known])
        return self._loaded[known]


def find_models(weights: Path | None) -> dict[str, Path]:
    """Voices in a weights directory, by name: of ``en_US-joe-medium.onnx`` that is ``joe``.

    Where two files share a name, each goes by its whole stem.
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


def _load(model: Path) -> Any:
    """A ``piper.PiperVoice`` on one thread. Its own loader takes as many as there are cores."""
    from piper import PiperVoice
    from piper.config import PiperConfig

    description = model_file(model.parent, f"{model.name}.json")
    try:
        config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
    except (ValueError, KeyError) as error:
        raise unreadable(description, error) from error
    return PiperVoice(session=open_session(model), config=config)


class _Never:
    cancelled = False
    preempted = False


def build(options: PiperOptions, weights: Path | None) -> Piper:
    """Load the default voice and let it speak once. Raises ``WeightsError``, ``ConfigError``."""
    # At debug level it would log what is said.
    logging.getLogger("piper").setLevel(logging.INFO)
    models = find_models(weights)
    if options.voice and options.voice not in models:
        raise ConfigError(
            f"Piper's weights {options.weights} have no voice {options.voice!r}",
            why=f"known are: {', '.join(sorted(models))}",
            fix="Set tts.voice to one of them",
        )
    piper = Piper(options, models)
    for _ in piper.synthesize(_WARM_UP, "", 1.0, _Never()):
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
