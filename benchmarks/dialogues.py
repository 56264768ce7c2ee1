"""Dialogues in German, French, Spanish and Italian with the real server, and one in all of them.

    python -m benchmarks.dialogues [--language de ...] [--voice espeak-ng|pico] [--out FILE]

The settings are those of the profile ``languages`` with one line for the language; ``auto`` changes
the language with every turn. SVOX Pico is the user, at another pitch than as the robot's voice. The
language model is scripted: the one that needs no hub speaks English only. Everything else is real:
Silero, Smart Turn, Whisper, the voice, the server, the wire.

For each turn: what was heard, what was answered and when, and what Whisper hears of the spoken
answer. Then a client like the robot's app, which asks for English, listens to a story: words that
agree must not stop it, a command must. Exit code 1: one of them did the other.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from app.talk.realtime_client import RATE, SpokenTurn, connect
from benchmarks.harness.program import arguments, finish, load, weights_cache
from benchmarks.wer import WordErrors, total, word_errors
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from pipeline.engines.stt.whisper import Whisper, WhisperOptions, build
from pipeline.messages import LlmRequest
from pipeline.spoken import speakable
from pipeline.work import Work
from tests.clients.robot_app import robot_app
from tests.support.pico import PicoTts, spoken_by_pico
from tests.support.recordings import Uncancelled
from tests.support.scripted import ScriptedConversation, ScriptedLlm
from tests.support.whisper_weights import whisper_weights

USER_PITCH = 0.8
OVER_S = 2.0
"""How much of the story has been heard when the user speaks over it."""
AFTERWARDS_S = 3.0
ANSWER_S = 60.0


@dataclass(frozen=True)
class Script:
    """``turns``: question and answer. ``request``: for a story. ``agrees``, ``stops``: said over
    it."""

    turns: Sequence[tuple[str, str]]
    request: str
    story: str
    agrees: str
    stops: str


SCRIPTS: Mapping[str, Script] = {
    "de": Script(
        (
            ("Wie spät ist es jetzt?", "Es ist jetzt 15:30 Uhr."),
            ("Wie warm wird es morgen in Berlin?", "Am 3. Oktober werden es etwa 20 °C."),
            ("Wie weit ist es bis zum Bahnhof?", "Das sind 2,5 km, also 30 Minuten zu Fuß."),
        ),
        "Erzähl mir bitte eine Geschichte.",
        "Es war einmal ein kleiner Roboter. Er wohnte in einem Haus am Meer. Jeden Morgen "
        "ging er an den Strand. Dort traf er einen alten Fischer. Der Fischer erzählte ihm "
        "von fernen Ländern.",
        "Ja, genau.",
        "Stopp, das reicht.",
    ),
    "fr": Script(
        (
            ("Où est la gare, s'il te plaît ?", "La gare est à 2,5 km d'ici."),
            ("Quel temps fera-t-il demain ?", "Demain, le 3 octobre, il fera 20 °C."),
            ("Qu'est-ce que tu sais faire ?", "Je peux danser, chanter et raconter des histoires."),
        ),
        "Peux-tu me raconter une histoire ?",
        "Il était une fois un petit robot. Il habitait dans une maison au bord de la mer. "
        "Chaque matin il allait à la plage. Là il rencontrait un vieux pêcheur. Le pêcheur "
        "lui parlait du monde.",
        "Oui, d'accord.",
        "Attends !",
    ),
    "es": Script(
        (
            ("¿Qué hora es?", "Son las 15:30."),
            ("¿Qué tiempo hará mañana en Madrid?", "El 3 de octubre habrá unos 20 °C."),
            (
                "¿Puedes contarme algo sobre la luna?",
                "La luna está a unos 384.000 km de la Tierra.",
            ),
        ),
        "¿Puedes contarme una historia?",
        "Había una vez un pequeño robot. Vivía en una casa junto al mar. Cada mañana iba a la "
        "playa. Allí encontraba a un viejo pescador. El pescador le hablaba de tierras "
        "lejanas.",
        "Sí, claro.",
        "¡Espera!",
    ),
    "it": Script(
        (
            ("Che ore sono adesso?", "Sono le 15:30."),
            ("Che tempo farà domani a Roma?", "Il 3 ottobre ci saranno circa 20 °C."),
            ("Puoi dirmi quanto è lontana la stazione?", "La stazione è a 2,5 km da qui."),
        ),
        "Puoi raccontarmi una storia?",
        "C'era una volta un piccolo robot. Abitava in una casa vicino al mare. Ogni mattina "
        "andava in spiaggia. Lì incontrava un vecchio pescatore. Il pescatore gli parlava di "
        "terre lontane.",
        "Sì, certo.",
        "Aspetta!",
    ),
}
AUTO = "auto"


class TurnByTurn(ScriptedLlm):
    """Answers the user's messages one after the other, whatever they say."""

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__(first_s=0.05, per_token_s=0.01)
        self.by_turn = [answer.split(" ") for answer in answers]

    def open(self) -> ScriptedConversation:
        self.open_conversations += 1
        return _Conversation(self)


class _Conversation(ScriptedConversation):
    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Any, None]:
        assert isinstance(self.llm, TurnByTurn)
        number = sum(message.role == "user" for message in request.messages) - 1
        self.llm.deltas = [f"{word} " for word in self.llm.by_turn[number]]
        async for delta in super().reply(request, work):
            yield delta


@dataclass
class Turn:
    """One turn. ``heard_back``: the spoken answer, as Whisper hears it."""

    language: str
    said: str
    heard: str
    answered: str
    heard_back: str
    timeline_ms: Mapping[str, int]

    @property
    def understood(self) -> WordErrors:
        return word_errors(self.said, self.heard)

    @property
    def intelligible(self) -> WordErrors:
        """Of the words that the voice was given."""
        back = speakable(self.heard_back, self.language)
        return word_errors(speakable(self.answered, self.language), back)


@dataclass
class Report:
    turns: list[Turn] = field(default_factory=list)
    agreed: dict[str, bool] = field(default_factory=dict)
    """Language -> whether the story went on to its end after words that agree."""
    stopped: dict[str, bool] = field(default_factory=dict)
    """Language -> whether it did not after a command."""


def lines_of(language: str) -> list[tuple[str, str, str]]:
    """Language, question and answer of each turn."""
    if language != AUTO:
        return [(language, *turn) for turn in SCRIPTS[language].turns]
    return [(each, *script.turns[number]) for number in (1, 2) for each, script in SCRIPTS.items()]


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
            assistant.stages.kept = None
        yield url


def _assistant(language: str, cache: WeightsCache) -> Assistant:
    sets = [f"conversation.language={language}", "llm.weights=smollm2-135m-instruct"]
    return Assistant(load_settings("languages", sets, {}).settings, cache)


def user(text: str, language: str, rate: int) -> tuple[Pcm, int]:
    """Speech at ``rate`` Hz with a little silence before it, and where it ends."""
    pcm = spoken_by_pico(text, language, pitch=USER_PITCH)
    resampler = Resampler(LISTEN_RATE, rate)
    speech = np.concatenate((resampler.feed(pcm), resampler.flush()))
    silence = np.zeros(rate // 2, np.int16)
    return np.concatenate((silence, speech)), len(silence) + len(speech)


def hear(stt: Whisper, turn: SpokenTurn, language: str) -> str:
    """What Whisper hears of the answer."""
    resampler = Resampler(RATE, LISTEN_RATE)
    utterance = stt.open(language, False)
    utterance.feed(np.concatenate((resampler.feed(turn.pcm), resampler.flush())))
    return utterance.finish(Uncancelled()).text


async def talk(url: str, lines: Sequence[tuple[str, str, str]], stt: Whisper) -> list[Turn]:
    """Say every line and listen to the answers."""
    turns = []
    async with connect(url) as client:
        await client.configure()
        for language, said, _ in lines:
            speech = await asyncio.to_thread(user, said, language, RATE)
            turn = await client.speak(*speech)
            back = await asyncio.to_thread(hear, stt, turn, language)
            stages = {stage: round(ms) for stage, ms in turn.stages_ms.items()}
            turns.append(Turn(language, said, turn.heard, turn.answered, back, stages))
    return turns


async def told_to_its_end(url: str, language: str, over: str) -> bool:
    """Whether the story goes on to its end, perhaps in a second response, if the user says
    ``over`` after a part of it."""
    script = SCRIPTS[language]
    request, words = await asyncio.to_thread(
        lambda: [user(text, language, LISTEN_RATE)[0] for text in (script.request, over)]
    )
    async with robot_app(url) as app, asyncio.timeout(ANSWER_S):
        app.hears(request)
        await asyncio.sleep(len(request) / LISTEN_RATE)
        await app.until(lambda: app.player.pcm_bytes > 2 * LISTEN_RATE * OVER_S)
        app.hears(words)
        await asyncio.sleep(len(words) / LISTEN_RATE + AFTERWARDS_S)
        await app.until(lambda: not (app.busy or app.listening))
        # Its text is ahead of its sound: what was stopped may have been written to its end.
        first, *later = (event["response"] for event in app.all("response.done"))
        rest = [each for each in later if "reachy_voice.continues" in (each["metadata"] or {})]
        return bool([first, *rest][-1]["status"] == "completed")


async def measure(options: argparse.Namespace) -> Report:
    cache = weights_cache()
    stt = await asyncio.to_thread(build, WhisperOptions(), whisper_weights(cache))
    report = Report()
    for language in options.language or (*SCRIPTS, AUTO):
        lines = lines_of(language)
        async with server(language, options.voice, [line[2] for line in lines], cache) as url:
            report.turns += await talk(url, lines, stt)
        if language == AUTO:
            continue
        script = SCRIPTS[language]
        async with server(language, options.voice, [script.story, "OK."], cache) as url:
            report.agreed[language] = await told_to_its_end(url, language, script.agrees)
            report.stopped[language] = not await told_to_its_end(url, language, script.stops)
    return report


def figures(report: Report) -> dict[str, Any]:
    understood = total(turn.understood for turn in report.turns)
    intelligible = total(turn.intelligible for turn in report.turns)
    return {
        "words_misheard": [understood.errors, understood.words],
        "spoken_words_misheard": [intelligible.errors, intelligible.words],
        "goes_on_after_words_that_agree": report.agreed,
        "stops_after_a_command": report.stopped,
        "turns": [vars(turn) for turn in report.turns],
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.dialogues")
    parser.add_argument("--language", choices=[*SCRIPTS, AUTO], action="append")
    parser.add_argument("--voice", choices=["espeak-ng", "pico"], default="espeak-ng")
    given = parser.parse_args()
    before = load()
    report = asyncio.run(measure(given))
    for turn in report.turns:
        print(f"{turn.language}  said     {turn.said}\n    heard    {turn.heard}")
        print(f"    answered {turn.answered}\n    spoken   {turn.heard_back}")
        print(f"    {turn.timeline_ms}")
    finish({"voice": given.voice, **figures(report)}, given.out, before, details="turns")
    sys.exit(int(not all((*report.agreed.values(), *report.stopped.values()))))


if __name__ == "__main__":
    main()
