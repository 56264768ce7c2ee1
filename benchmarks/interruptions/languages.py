"""Words said over an answer in seven languages: do those that agree let it go on, do commands stop
it?

    python -m benchmarks.interruptions.languages [--language de ...] [--out FILE]

The language of the conversation is set, as in ``extends: languages``. Each phrase is said by two
voices of espeak-ng, and by SVOX Pico in its five languages. Silero and Whisper are real and their
results are kept; the session, its answer and the time are those of ``benchmarks.interruptions``.

- **stopped**: the answer was cancelled. **lost**: it did not go on afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import cast

import numpy as np

from app.settings.load import load_settings
from benchmarks.harness import acoustics
from benchmarks.harness.ears import Ears, Memo, ears_of, engine_digest, key_of, opened_memo
from benchmarks.harness.played_scene import session_settings
from benchmarks.harness.played_session import SPOKEN, played_session
from benchmarks.harness.program import arguments, keep, weights_cache
from benchmarks.harness.virtual_engines import (
    EMBEDDED,
    Computer,
    ScriptedLlm,
    virtual_stages,
)
from benchmarks.interruptions.scenes import AFTER_S, LEVEL_DBFS, ONSET_S
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse
from pipeline.engines.stt import whisper
from pipeline.engines.stt.whole_passes import Heard
from pipeline.engines.tts import espeak_ng
from pipeline.events import ReplyFinished, ReplyStarted, SpeechIgnored, TranscriptReady
from pipeline.messages import Message, SpeechRequest
from pipeline.settings import SessionSettings
from tests.support.pico import VOICES, spoken_by_pico
from tests.support.recordings import Uncancelled
from tests.support.virtual_time import run_virtual
from tests.support.whisper_weights import whisper_weights


def _lines(text: str) -> Mapping[str, Sequence[str]]:
    """Of ``de: Ja. / Gut.``."""
    pairs = (line.split(": ", 1) for line in text.strip().splitlines())
    return {language.strip(): said.split(" / ") for language, said in pairs}


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
"""Behind the name of the language."""
CHUNK_SAMPLES = LISTEN_RATE // 50
WHISPER_S = 0.3
"""One pass on one core of a server CPU."""


@dataclass
class Read:
    """The recogniser of ``whisper.Whisper``, with kept results."""

    engine: whisper.Recogniser
    digest: bytes
    memo: Memo
    passes: list[float] = field(default_factory=list)

    def read(self, pcm: Pcm, language: str) -> Heard:
        self.passes.append(len(pcm) / LISTEN_RATE)
        key = hashlib.sha256(key_of(self.digest, pcm) + language.encode()).digest()
        return Heard(**self.memo.get(key, lambda: asdict(self.engine.read(pcm, language))))

    @property
    def languages(self) -> set[str]:
        return self.engine.languages


class WhisperEars:
    """``ears``, with Whisper for the words, and no opinion of a language model on them."""

    def __init__(self, ears: Ears) -> None:
        options = whisper.WhisperOptions()
        weights = whisper_weights(weights_cache())
        engine = whisper.Recogniser(weights, options)
        read = Read(engine, engine_digest(whisper.SPEC, options, weights), ears.memo)
        self.passes = read.passes
        self.stt = whisper.Whisper(cast(whisper.Recogniser, read), options)
        self.speech_scores, self.turn_over = ears.speech_scores, ears.turn_over

    def words_complete(self, messages: Sequence[Message]) -> float | None:
        return None


@dataclass(frozen=True)
class Outcome:
    language: str
    voice: str
    said: str
    agrees: bool
    stopped: bool
    lost: bool
    read: str

    @property
    def wrong(self) -> bool:
        return self.lost if self.agrees else not self.stopped


def voices(language: str) -> Iterator[tuple[str, str]]:
    """The engine, and the voice."""
    yield from (("espeak-ng", language + variant) for variant in ESPEAK_VOICES)
    if language in VOICES:
        yield "pico", VOICES[language]


class Speakers:
    def __init__(self) -> None:
        self._espeak = espeak_ng.build(espeak_ng.EspeakOptions(), None)

    def say(self, engine: str, voice: str, text: str, language: str) -> Pcm:
        """16 kHz, without silence around it."""
        if engine == "pico":
            return spoken_by_pico(text, language)
        request = SpeechRequest(text, voice, language=language)
        chunks = self._espeak.synthesize(request, Uncancelled())
        resampler = Resampler(self._espeak.rate, LISTEN_RATE)
        made = [resampler.feed(chunk) for chunk in chunks if chunk is not None]
        pcm = np.concatenate((*made, resampler.flush()))
        loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 300)
        return pcm[loud[0] : loud[-1] + 1]


def scene(said: Pcm, rng: np.random.Generator) -> Pcm:
    heard = acoustics.to_signal(said)
    heard = acoustics.gained(heard, rng.uniform(*LEVEL_DBFS) - acoustics.rms_dbfs(heard))
    onset = int(rng.uniform(*ONSET_S) * LISTEN_RATE)
    whole = acoustics.room_tone(onset + len(heard) + int(AFTER_S * LISTEN_RATE), rng)
    whole[onset : onset + len(heard)] += heard
    return acoustics.to_pcm(whole)


async def listen(
    pcm: Pcm,
    language: str,
    ears: WhisperEars,
    settings: SessionSettings,
    whisper_s: float = WHISPER_S,
) -> list[Published]:
    computer = Computer(replace(EMBEDDED, stt_pass_s=whisper_s))
    llm = ScriptedLlm(ears, computer, answer=("Then ", "I ", "went ", "on. ") * 20)
    stages = virtual_stages(pcm, llm)
    log: list[Published] = []
    loop = asyncio.get_running_loop()
    began, config = loop.time(), replace(SPOKEN, language=language)
    async with played_session(stages, settings, log.append, config) as session:
        await session.submit(CreateResponse())
        for at in range(0, len(pcm), CHUNK_SAMPLES):
            chunk = pcm[at : at + CHUNK_SAMPLES]
            await asyncio.sleep(began + (at + len(chunk)) / LISTEN_RATE - loop.time())
            await session.submit(AppendAudio(chunk, LISTEN_RATE))
    return log


def outcome(log: Sequence[Published]) -> tuple[bool, bool, str]:
    """Whether the answer was stopped, whether it was lost, and the words that were read."""
    events = [event for _, event in log]
    stopped = any(isinstance(e, ReplyFinished) and e.reason == "turn_detected" for e in events)
    resumed = any(isinstance(e, ReplyStarted) and e.continues for e in events)
    read = [e.said for e in events if isinstance(e, SpeechIgnored)]
    read += [e.text for e in events if isinstance(e, TranscriptReady)]
    return stopped, stopped and not resumed, " | ".join(read)


def measure(given: argparse.Namespace) -> list[Outcome]:
    settings = load_settings("default").settings
    speakers, rng = Speakers(), np.random.default_rng(1)
    found = []
    with opened_memo(settings) as memo:
        ears = WhisperEars(ears_of(settings, memo))
        for language in given.language or AGREES:
            phrases = [*product([True], AGREES[language]), *product([False], STOPS[language])]
            for (agrees, text), (engine, voice) in product(phrases, voices(language)):
                pcm = scene(speakers.say(engine, voice, text, language), rng)
                told = outcome(run_virtual(listen(pcm, language, ears, session_settings(settings))))
                found.append(Outcome(language, f"{engine} {voice}", text, agrees, *told))
    return found


def figures(outcomes: Sequence[Outcome]) -> dict[str, dict[str, str]]:
    """By language, counts of all."""

    def count(some: list[Outcome], name: str) -> str:
        return f"{sum(getattr(each, name) for each in some)} of {len(some)}"

    found = {}
    for language in dict.fromkeys(each.language for each in outcomes):
        own = [each for each in outcomes if each.language == language]
        agree, stop = ([each for each in own if each.agrees is agrees] for agrees in (True, False))
        found[language] = {
            "backchannels that stop it": count(agree, "stopped"),
            "backchannels after which it is lost": count(agree, "lost"),
            "commands that stop it": count(stop, "stopped"),
        }
    return found


def main() -> None:
    parser = arguments(__doc__, "benchmarks.interruptions.languages")
    parser.add_argument("--language", choices=list(AGREES), action="append")
    given = parser.parse_args()
    outcomes = measure(given)
    found = figures(outcomes)
    for each in outcomes:
        if each.wrong or (each.agrees and each.stopped):
            print(f"{each.language} {each.voice}: {each.said!r} read {each.read!r}")
    for language, counts in found.items():
        print(language, *(f"{name}: {value}" for name, value in counts.items()), sep="\n    ")
    keep({"figures": found, "scenes": [asdict(each) for each in outcomes]}, given.out)


if __name__ == "__main__":
    main()
