"""Dialogues in German, French, Spanish and Italian with the real server, and one in all of them.

    python -m benchmarks.dialogues [--language de ...] [--voice espeak-ng|pico] [--out FILE]

The settings are those of the profile ``languages`` with one line for the language; ``auto`` changes
the language with every turn. SVOX Pico is the user, at a different pitch from the robot's voice.
The language model is scripted: the one that needs no hub speaks only English. Everything else is
real: Silero, Smart Turn, Whisper, the voice, the server, the wire.

For each turn: what was heard, what was answered and when, and what Whisper hears of the spoken
answer. Whether words over an answer stop it: ``benchmarks.interruptions --language``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from app.talk.realtime_client import RATE, SpokenTurn, connect
from benchmarks.harness.program import arguments, finish, load, weights_cache
from benchmarks.wer import WordErrors, total, word_errors
from pipeline.audio import LISTEN_RATE, Pcm, resampled
from pipeline.engines.stt.whisper import Whisper, WhisperOptions, build
from pipeline.messages import LlmRequest
from pipeline.spoken import speakable
from pipeline.work import NEVER, Work
from reachy_voice.testing import ScriptedConversation, ScriptedLlm
from tests.support.pico import PicoTts, spoken_by_pico
from tests.support.whisper_weights import whisper_weights

USER_PITCH = 0.8


TURNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "de": (
        ("Wie spät ist es jetzt?", "Es ist jetzt 15:30 Uhr."),
        ("Wie warm wird es morgen in Berlin?", "Am 3. Oktober werden es etwa 20 °C."),
        ("Wie weit ist es bis zum Bahnhof?", "Das sind 2,5 km, also 30 Minuten zu Fuß."),
    ),
    "fr": (
        ("Où est la gare, s'il te plaît ?", "La gare est à 2,5 km d'ici."),
        ("Quel temps fera-t-il demain ?", "Demain, le 3 octobre, il fera 20 °C."),
        ("Qu'est-ce que tu sais faire ?", "Je peux danser, chanter et raconter des histoires."),
    ),
    "es": (
        ("¿Qué hora es?", "Son las 15:30."),
        ("¿Qué tiempo hará mañana en Madrid?", "El 3 de octubre habrá unos 20 °C."),
        (
            "¿Puedes contarme algo sobre la luna?",
            "La luna está a unos 384.000 km de la Tierra.",
        ),
    ),
    "it": (
        ("Che ore sono adesso?", "Sono le 15:30."),
        ("Che tempo farà domani a Roma?", "Il 3 ottobre ci saranno circa 20 °C."),
        ("Puoi dirmi quanto è lontana la stazione?", "La stazione è a 2,5 km da qui."),
    ),
}
"""Question and answer, by language."""
AUTO = "auto"


class TurnByTurn(ScriptedLlm):
    """Answers the user's messages one after the other, whatever they say."""

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__(first_s=0.05, per_token_s=0.01)
        self.by_turn = [answer.split(" ") for answer in answers]

    def open(self) -> ScriptedConversation:
        self.opened += 1
        return _Conversation(self)


class _Conversation(ScriptedConversation):
    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Any, None]:
        assert isinstance(self.llm, TurnByTurn)
        number = sum(message.role == "user" for message in request.messages) - 1
        self.llm.deltas = [f"{word} " for word in self.llm.by_turn[number]]
        async for delta in super().reply(request, work):
            yield delta


@dataclass
class DialogueTurn:
    """One turn; ``heard_back``: what Whisper hears of the spoken answer."""

    language: str
    said: str
    heard: str
    answered: str
    heard_back: str
    timeline_ms: Mapping[str, int]

    @property
    def hearing_errors(self) -> WordErrors:
        return word_errors(self.said, self.heard)

    @property
    def speech_errors(self) -> WordErrors:
        """Errors in what Whisper hears of the answer's words."""
        back = speakable(self.heard_back, self.language)
        return word_errors(speakable(self.answered, self.language), back)


def lines_of(language: str) -> list[tuple[str, str, str]]:
    """Language, question and answer of each turn."""
    if language != AUTO:
        return [(language, *turn) for turn in TURNS[language]]
    return [(each, *turns[number]) for number in (1, 2) for each, turns in TURNS.items()]


@asynccontextmanager
async def server(
    language: str, voice: str, answers: Sequence[str], cache: WeightsCache
) -> AsyncGenerator[str, None]:
    """The server with the profile ``languages`` and this language. Yields its URL."""
    assistant = await asyncio.to_thread(_assistant, language, cache)
    async with local_server(assistant) as url:
        assistant.stages.llm = TurnByTurn(answers)
        if voice == "pico":
            assistant.stages.tts = PicoTts()
            assistant.stages.notice_voice = None
        yield url


def _assistant(language: str, cache: WeightsCache) -> Assistant:
    sets = [f"conversation.language={language}", "llm.weights=smollm2-135m-instruct"]
    return Assistant(load_settings("languages", sets, {}).settings, cache)


def user(text: str, language: str, rate: int) -> tuple[Pcm, int]:
    """Speech at ``rate`` Hz after half a second of silence, and the sample at which it ends."""
    pcm = spoken_by_pico(text, language, pitch=USER_PITCH)
    speech = resampled(pcm, LISTEN_RATE, rate)
    silence = np.zeros(rate // 2, np.int16)
    return np.concatenate((silence, speech)), len(silence) + len(speech)


def hear(stt: Whisper, turn: SpokenTurn, language: str) -> str:
    """What Whisper hears of the answer."""
    utterance = stt.open(language, False)
    utterance.feed(resampled(turn.pcm, RATE, LISTEN_RATE))
    return utterance.finish(NEVER).text


async def talk(url: str, lines: Sequence[tuple[str, str, str]], stt: Whisper) -> list[DialogueTurn]:
    """Say every line and listen to the answers."""
    turns = []
    async with connect(url) as client:
        await client.configure()
        for language, question, _ in lines:
            speech = await asyncio.to_thread(user, question, language, RATE)
            turn = await client.speak(*speech)
            back = await asyncio.to_thread(hear, stt, turn, language)
            stages = {stage: round(ms) for stage, ms in turn.stages_ms.items()}
            turns.append(DialogueTurn(language, question, turn.heard, turn.answered, back, stages))
    return turns


async def measure(args: argparse.Namespace) -> list[DialogueTurn]:
    cache = weights_cache()
    stt = await asyncio.to_thread(build, WhisperOptions(), whisper_weights(cache))
    turns = []
    for language in args.language or (*TURNS, AUTO):
        lines = lines_of(language)
        async with server(language, args.voice, [line[2] for line in lines], cache) as url:
            turns += await talk(url, lines, stt)
    return turns


def figures(turns: Sequence[DialogueTurn]) -> dict[str, Any]:
    hearing = total(turn.hearing_errors for turn in turns)
    speech = total(turn.speech_errors for turn in turns)
    return {
        "words_misheard": [hearing.errors, hearing.words],
        "spoken_words_misheard": [speech.errors, speech.words],
        "turns": [vars(turn) for turn in turns],
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.dialogues")
    parser.add_argument("--language", choices=[*TURNS, AUTO], action="append")
    parser.add_argument("--voice", choices=["espeak-ng", "pico"], default="espeak-ng")
    args = parser.parse_args()
    before = load()
    turns = asyncio.run(measure(args))
    for turn in turns:
        print(f"{turn.language}  said     {turn.said}\n    heard    {turn.heard}")
        print(f"    answered {turn.answered}\n    spoken   {turn.heard_back}")
        print(f"    {turn.timeline_ms}")
    finish({"voice": args.voice, **figures(turns)}, args.out, before, details="turns")


if __name__ == "__main__":
    main()
