"""Words said over an answer in seven languages, by two voices of espeak-ng and by SVOX Pico."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

import numpy as np

from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.ears import Ears, Memo, engine_digest, key_of
from benchmarks.harness.program import weights_cache
from benchmarks.interruptions.scenes import InterruptionScene, Kind, over_an_answer
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from pipeline.engines.stt import whisper
from pipeline.engines.stt.whole_passes import PassResult
from pipeline.engines.tts import espeak_ng
from pipeline.messages import Message, SpeechRequest
from pipeline.work import NEVER
from tests.support.pico import VOICES, spoken_by_pico
from tests.support.whisper_weights import whisper_weights


def _lines(text: str) -> Mapping[str, Sequence[str]]:
    """Parse lines such as ``de: Ja. / Gut.``: phrases by language."""
    pairs = (line.split(": ", 1) for line in text.strip().splitlines())
    return {language.strip(): texts.split(" / ") for language, texts in pairs}


AGREES = _lines("""
    de: Ja. / Ja, genau. / Okay. / Ach so. / Stimmt. / Verstehe. / Gut. / Super. / Ja, ja. / Ah ja.
    en: Yes. / Yeah, right. / Okay. / I see. / Right. / Sure. / Good. / Great. / Yes, yes. / Of course.
    es: Sí. / Sí, claro. / Vale. / Ya veo. / Claro. / Entiendo. / Bien. / Genial. / Sí, sí. / Ah, ya.
    fr: Oui. / Oui, d'accord. / D'accord. / Je vois. / C'est vrai. / Bon. / Super. / Oui, oui. / Ah oui.
    it: Sì. / Sì, certo. / Va bene. / Ho capito. / È vero. / Certo. / Bene. / Perfetto. / Sì, sì. / Ah, sì.
    nl: Ja. / Ja, precies. / Oké. / Ik snap het. / Klopt. / Goed. / Mooi. / Ja, ja. / Zeker. / Ah ja.
    pt: Sim. / Sim, claro. / Está bem. / É verdade. / Claro. / Bom. / Perfeito. / Sim, sim. / Ah, sim.
""")  # noqa: E501
STOPS = _lines("""
    de: Stopp! / Warte! / Halt! / Nein. / Stopp, das reicht. / Sei still. / Hör auf! / Moment mal.
    en: Stop! / Wait! / Hold on! / No. / Stop, that's enough. / Be quiet. / Stop it! / Wait a moment.
    es: ¡Para! / ¡Espera! / ¡Alto! / No. / Para, ya basta. / Cállate. / ¡Basta! / Un momento.
    fr: Stop ! / Attends ! / Arrête ! / Non. / Stop, ça suffit. / Tais-toi. / Ça suffit ! / Un instant.
    it: Fermati! / Aspetta! / Stop! / No. / Basta così. / Stai zitto. / Basta! / Un momento.
    nl: Stop! / Wacht! / Hou op! / Nee. / Stop, het is genoeg. / Wees stil. / Genoeg! / Wacht even.
    pt: Para! / Espera! / Chega! / Não. / Para, já chega. / Cala-te. / Basta! / Um momento.
""")  # noqa: E501
ESPEAK_VOICES = ("", "+f3")
"""Suffixes to the language's name."""
WHISPER_S = 0.3
"""One pass on one core of a server CPU."""


@dataclass
class CachedRecogniser:
    """``whisper.Whisper``'s recogniser, with cached results."""

    engine: whisper.WhisperRecogniser
    digest: bytes
    memo: Memo
    passes: list[float] = field(default_factory=list)

    def read(self, pcm: Pcm, language: str) -> PassResult:
        self.passes.append(len(pcm) / LISTEN_RATE)
        key = hashlib.sha256(key_of(self.digest, pcm) + language.encode()).digest()
        return PassResult(**self.memo.get(key, lambda: asdict(self.engine.read(pcm, language))))

    @property
    def languages(self) -> set[str]:
        return self.engine.languages


class WhisperEars:
    """Like ``ears``, but Whisper hears the words, and no language model judges them."""

    def __init__(self, ears: Ears) -> None:
        options = whisper.WhisperOptions()
        weights = whisper_weights(weights_cache())
        engine = whisper.WhisperRecogniser(weights, options)
        stt = CachedRecogniser(engine, engine_digest(whisper.SPEC, options, weights), ears.memo)
        self.passes = stt.passes
        self.stt = whisper.Whisper(cast(whisper.WhisperRecogniser, stt), options)
        self.speech_scores, self.turn_over = ears.speech_scores, ears.turn_over

    def words_complete(self, messages: Sequence[Message]) -> float | None:
        return None


def phrases(language: str, rng: np.random.Generator) -> Iterator[InterruptionScene]:
    """Each phrase in each voice: words of agreement must not stop the answer, commands must."""
    espeak = espeak_ng.build(espeak_ng.EspeakOptions(), None)
    by_kind: tuple[tuple[Kind, Sequence[str]], ...] = (
        ("backchannel", AGREES[language]),
        ("command", STOPS[language]),
    )
    for kind, texts in by_kind:
        for text in texts:
            voices = {f"espeak-ng {v}": _espeak(espeak, text, language, v) for v in ESPEAK_VOICES}
            if language in VOICES:
                voices["pico"] = spoken_by_pico(text, language)
            for voice, pcm in voices.items():
                yield over_an_answer(kind, f"{language} {voice}", text, to_signal(pcm), rng)


def _espeak(espeak: espeak_ng.Espeak, text: str, language: str, variant: str) -> Pcm:
    """16 kHz, without silence around it."""
    request = SpeechRequest(text, language + variant, language=language)
    resampler = Resampler(espeak.rate, LISTEN_RATE)
    chunks = espeak.synthesize(request, NEVER)
    parts = [resampler.feed(chunk) for chunk in chunks if chunk is not None]
    pcm = np.concatenate((*parts, resampler.flush()))
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 300)
    return pcm[loud[0] : loud[-1] + 1]
