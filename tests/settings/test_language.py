"""The spoken language: detected, passed to the voice, and reported where it does not fit."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.doctor.choices import language_warnings
from app.models.catalogue import Catalogue
from app.settings.load import load_settings, profile_names
from pipeline.audio import Pcm
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.stages import MOST_TOLD, LanguageChoice, TtsStage
from pipeline.engines.stt.parakeet import V3_LANGUAGES
from pipeline.engines.tts import espeak_ng, piper
from pipeline.engines.tts.qwen3_codes import LANGUAGES, ClauseRequest
from pipeline.engines.tts.qwen3_tts import Qwen3Tts, Qwen3TtsOptions
from pipeline.errors import EngineError
from pipeline.messages import SpeechRequest
from pipeline.speaking.notices import KeptSentences
from pipeline.spoken.language import SMALL_WORDS, language_of
from pipeline.work import NEVER, CancelToken, Work
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.stages import tts_stage
from pipeline.workers.worker import Worker
from reachy_voice.testing import (
    VOICE,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    play,
    say,
    silence,
)
from tests.support.far_server import FarServer, serving
from tests.support.recordings import synthesize
from tests.support.toy_engine import running as started
from tests.support.url_engines import running

pytestmark = pytest.mark.engines

SENTENCES = {
    "bg": "Какво е времето днес и ще вали ли?",
    "cs": "Jak se máš a co je to za den?",
    "da": "Hvad er klokken, og hvor er du?",
    "de": "Wie spät ist es und was machst du heute?",
    "el": "Τι ώρα είναι;",
    "en": "What time is it, and how are you?",
    "es": "¿Qué hora es y cómo estás?",
    "et": "Mis kell on ja kus sa oled?",
    "fi": "Mitä kello on ja kuka sinä olet?",
    "fr": "Quelle heure est-il et comment vas-tu ?",
    "hr": "Koliko je sati i kako si?",
    "hu": "Hány óra van, és hogy vagy te?",
    "it": "Che ore sono e come stai?",
    "ja": "今何時ですか？",
    "ko": "지금 몇 시예요?",
    "lt": "Kiek dabar valandų ir kaip tu?",
    "lv": "Cik ir pulkstenis un kā tev iet?",
    "mt": "X'inhu l-ħin u kif int?",
    "nl": "Hoe laat is het en waar ben je?",
    "pl": "Która jest godzina i co robisz?",
    "pt": "Que horas são e como você está?",
    "ro": "Cât este ceasul și ce mai faci?",
    "ru": "Сколько сейчас времени и как ты?",
    "sk": "Koľko je hodín a čo robíš?",
    "sl": "Koliko je ura in kaj delaš?",
    "sv": "Vad är klockan och hur mår du?",
    "uk": "Котра година і як ти?",
    "zh": "现在几点了？",
}


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_the_language_of_a_sentence_is_detected(language: str, text: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    "text", ["", "OK.", "Berlin", "42", "...", "Reachy!", "No.", "la", "Ja!", "Um 5 Uhr.", "Hello"]
)
def test_an_ambiguous_text_has_no_language(text: str) -> None:
    assert language_of(text) == ""


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Erzähl mir einen Witz über die Katze."),
        ("en", "My name is Anna, who are you?"),
        ("es", "Cuéntame un chiste de la gata."),
        ("fr", "Raconte une blague sur le chat."),
        ("it", "Raccontami una barzelletta sul gatto che dorme."),
        ("nl", "Kun je het licht aandoen?"),
        ("pt", "Você pode acender a luz, por favor?"),
    ],
)
def test_everyday_requests(language: str, text: str) -> None:
    assert language_of(text) in (language, "")
    assert language_of(f"{text} {SENTENCES[language]}") == language


def test_all_supported_languages_can_be_detected() -> None:
    assert set(SENTENCES) >= set(V3_LANGUAGES) | set(LANGUAGES)
    assert set(SMALL_WORDS) <= set(SENTENCES)


def test_a_long_text_costs_no_more_than_a_short_one() -> None:
    assert language_of("the cat is here " * 100_000) == "en"


# --- how it reaches the voice ------------------------------------------------------------------


@dataclass
class Polyglot(ScriptedTts):
    """Records in which language it is asked to speak."""

    asked: list[tuple[str, str]] = field(default_factory=list)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.asked.append((request.language, request.text))
        async for pcm in super().synthesize(request, work):
            yield pcm


def asked_in(language: str, *said: str, answer: str = "Um 5 Uhr.") -> list[tuple[str, str]]:
    """Languages and texts that the voice gets when the user says this in a ``language``
    conversation."""
    voice, config = Polyglot(), replace(VOICE, language=language)
    stt, llm = ScriptedStt(texts=said), ScriptedLlm(deltas=(answer,))
    turns = (say(1.0), silence(4.0)) * len(said)
    played = play(*turns, config=config, stt=stt, llm=llm, tts=voice)
    assert len(played.statuses) == len(said)
    return voice.asked


def test_the_language_of_the_conversation_reaches_the_voice() -> None:
    assert asked_in("de", "What time is it?") == [("de", "Um fünf Uhr.")]


def test_numbers_become_words_of_the_language() -> None:
    (english,) = asked_in("en", "Wie spät ist es?", answer="It is 5 degrees.")
    assert english == ("en", "It is five degrees.")
    (german,) = asked_in("", "Wie warm ist es?", answer="Es sind 5 Grad.")
    assert german == ("de", "Es sind fünf Grad.")
    (swedish,) = asked_in("sv", "Hur varmt är det?", answer="Det är 5 grader.")
    assert swedish == ("sv", "Det är 5 grader."), "that is left to the voice"


def test_without_a_setting_the_language_of_the_question_is_used() -> None:
    assert [language for language, _ in asked_in("", "What time is it?")] == ["en"]
    said = ("Wie spät ist es?", "OK.", "And where are you?")
    assert [language for language, _ in asked_in("", *said)] == ["de", "de", "en"]
    assert asked_in("", "Tokyo.", answer="Zimmer 5!") == [("", "Zimmer 5!")], "it is not known"


async def collected(tts: TtsStage, language: str, text: str = "Hi.") -> list[Pcm]:
    request = SpeechRequest(text, "", language=language)
    return [pcm async for pcm in tts.synthesize(request, Work())]


@in_virtual_time
async def test_a_kept_sentence_passes_it_on() -> None:
    voice = Polyglot()
    kept = KeptSentences(voice, {"Sorry.": "en"})
    await kept.keep()
    await collected(kept, "de")
    voice.error = EngineError("It broke")
    assert voice.asked == [("en", "Sorry."), ("de", "Hi.")]
    assert await collected(kept, "de", "Sorry.")


# --- engines -----------------------------------------------------------------------------------


class Bilingual:
    rate = 16_000
    voices = ("joe",)
    languages = ("de", "en")

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        yield np.full(1, ("", *self.languages).index(request.language), np.int16)


class Plain:
    """Lists no languages, and fails if asked for one."""

    rate = 16_000
    voices = ("joe",)
    languages: Sequence[str] = ()

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        yield np.full(1, 0 if request.language else 7, np.int16)


def build_bilingual(options: EngineOptions, weights: Path | None) -> Bilingual:
    return Bilingual()


def build_plain(options: EngineOptions, weights: Path | None) -> Plain:
    return Plain()


async def first_samples(kind: type[Worker], build: Any, *languages: str) -> list[int]:
    spec = EngineSpec("test", Kind.TTS, EngineOptions, build)
    worker = kind(spec, EngineOptions(engine="test"), None)
    async with started(worker):
        tts = tts_stage(worker)
        heard = [await collected(tts, language) for language in languages]
    return [int(pcm[0]) for chunks in heard for pcm in chunks]


@pytest.mark.parametrize("kind", [InlineWorker, ThreadWorker, ProcessWorker])
async def test_an_engine_gets_only_languages_it_speaks(
    kind: type[Worker], caplog: pytest.LogCaptureFixture
) -> None:
    assert await first_samples(kind, build_bilingual, "de", "en", "", "fr", "fr") == [1, 2, 0, 0, 0]
    warned = [record for record in caplog.records if "does not speak" in record.message]
    assert len(warned) == 1, "once, however often it is asked"
    assert warned[0].levelno == logging.WARNING
    assert "'fr'" in warned[0].message
    assert "de, en" in warned[0].message


async def test_an_engine_without_languages_gets_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await first_samples(ThreadWorker, build_plain, "de", "") == [7, 7]
    assert not caplog.records


needs_espeak = pytest.mark.skipif(not shutil.which("espeak-ng"), reason="needs espeak-ng")


@needs_espeak
def test_espeak_speaks_each_language_with_its_own_voice() -> None:
    tts = espeak_ng.build(espeak_ng.EspeakOptions(), None)
    text = "Der Zug nach Berlin hat 21 Minuten."

    def made(voice: str, language: str, engine: espeak_ng.Espeak = tts) -> bytes:
        chunks = engine.synthesize(SpeechRequest(text, voice, language=language), NEVER)
        return b"".join(chunk.tobytes() for chunk in chunks if chunk is not None)

    assert {"de", "en", "fr", "zh", "no", "pt"} <= set(tts.languages)
    english, german = made("", ""), made("de", "")
    assert english != german
    assert made("", "de") == made("en-us", "de") == german, "the configured voice gives way"
    assert made("", "en") == english, "en-us speaks English"
    assert made("fr-fr", "de") == made("fr-fr", ""), "a voice that is asked for is used"
    assert made("", "zh") == made("cmn", "")
    assert made("", "xx") == english
    female = espeak_ng.build(espeak_ng.EspeakOptions(voice="en-us+f3"), None)
    assert made("", "de", female) == made("de+f3", "", female)


def test_the_plainest_voice_of_a_language() -> None:
    voices = ["fr-be", "fr-fr", "fr-ch", "pt", "pt-br", "en-gb-scotland", "en-us", "en-gb", "cmn"]
    found = espeak_ng.by_language(voices)
    assert found == {"fr": "fr-fr", "pt": "pt", "en": "en-gb", "zh": "cmn"}


@pytest.mark.real
def test_piper_takes_the_voice_that_speaks_the_language(
    weights: Callable[[str], Path], tmp_path: Path
) -> None:
    (joe,) = weights("piper-joe").glob("*.onnx")
    described = json.loads(joe.with_name(f"{joe.name}.json").read_text())
    for name in ("en_US-joe-medium.onnx", "de_DE-hans-medium.onnx", "de_DE-ute-medium.onnx"):
        (tmp_path / name).symlink_to(joe)
        german = {"espeak": {"voice": "de"}, "language": {"code": "de_DE"}}
        more = german if name.startswith("de") else {}
        (tmp_path / f"{name}.json").write_text(json.dumps(described | more))
    tts = piper.build(piper.PiperOptions(voice="joe"), tmp_path)
    assert list(tts.languages) == ["de", "en"]
    chosen: list[str] = []
    usual = tts._voice

    def noted(name: str) -> Any:
        chosen.append(name)
        return usual(name)

    tts._voice = noted  # type: ignore[method-assign]
    for voice, language in [("", "de"), ("joe", "de"), ("ute", "de"), ("ute", "en"), ("", "en")]:
        asked = SpeechRequest("Ja.", voice, language=language)
        chunks = tts.synthesize(asked, NEVER)
        assert any(chunk is not None and len(chunk) for chunk in chunks)
    assert chosen == ["hans", "hans", "ute", "ute", "joe"]


def test_the_language_of_a_voice_without_a_description(tmp_path: Path) -> None:
    assert piper.language_of_voice(tmp_path / "de_DE-hans-medium.onnx") == "de"
    assert piper.language_of_voice(tmp_path / "en-joe.onnx") == "en"
    (tmp_path / "odd.onnx.json").write_text("[]")
    assert piper.language_of_voice(tmp_path / "odd.onnx") == "odd"


class Clauses:
    """A ``Qwen3Speech`` that records what it should say."""

    def __init__(self) -> None:
        self.said: list[ClauseRequest] = []

    def say(self, clause: ClauseRequest, cancel: CancelToken) -> Any:
        self.said.append(clause)
        yield np.zeros(1920, np.int16)


def test_qwen_gets_the_name_of_the_language() -> None:
    speaker: Any = Clauses()
    tts = Qwen3Tts(speaker, ["ryan"], Qwen3TtsOptions(), "english", ["de", "en"])
    for language in ("de", "en", "", "pl"):
        list(tts.synthesize(SpeechRequest("Ja.", "ryan", language=language), NEVER))
    synthesize(tts, "Ja.")
    names = [clause.language for clause in speaker.said]
    assert names == ["german", "english", "english", "english", "english"]


async def test_a_server_gets_its_own_word_for_the_language() -> None:
    far, words = FarServer("speech"), {"de": "German", "en": "English"}
    async with serving(far), running(Kind.TTS, "openai-speech", far.url, languages=words) as engine:
        for language in ("de", "fr", ""):
            await collected(engine, language)
    told = [asked.json.get("language") for asked in far.asked("/v1/audio/speech")]
    assert told[-3:] == ["German", None, None]

    silent = FarServer("speech")
    async with serving(silent), running(Kind.TTS, "openai-speech", silent.url) as engine:
        await collected(engine, "de")
    assert "language" not in silent.asked("/v1/audio/speech")[-1].json


# --- what does not fit -------------------------------------------------------------------------

CATALOGUE = Catalogue.load()
QWEN = "tts={engine: qwen3-tts}"
PARAKEET = "stt={engine: parakeet}"
OWN = ("conversation.apology=Przepraszam.", "conversation.exchange_notice=Chwila.")


def warnings_of(*overrides: str) -> list[str]:
    return language_warnings(load_settings(None, overrides, {}).settings, CATALOGUE)


@pytest.mark.parametrize("name", profile_names())
def test_the_profiles_speak_the_languages_they_recognise(name: str) -> None:
    assert language_warnings(load_settings(name, environ={}).settings, CATALOGUE) == []


def test_a_german_conversation_with_english_engines_is_reported() -> None:
    ears, voice = warnings_of("conversation.language=de")
    assert ears.startswith("conversation.language is 'de', but stt 'moonshine' hears only 'en'")
    assert "parakeet" in ears
    assert voice.startswith("conversation.language is 'de', but tts 'piper' speaks only 'en'")
    assert "espeak-ng" in voice


def test_a_language_without_own_sentences_is_reported() -> None:
    apology, notice = warnings_of("conversation.language=pl", PARAKEET, "tts={engine: espeak-ng}")
    assert apology == (
        "conversation.apology is English, because there is no config/languages/pl.yaml: "
        "write it in 'pl'"
    )
    assert notice.startswith("conversation.exchange_notice is English")
    silent = ("conversation.apology=''", "conversation.exchange_notice=''")
    assert (
        warnings_of("conversation.language=pl", PARAKEET, "tts={engine: espeak-ng}", *silent) == []
    )


def test_matching_settings_give_no_warning() -> None:
    german = ("conversation.language=de",)
    assert warnings_of(*german, PARAKEET, QWEN) == []
    assert warnings_of(*german, PARAKEET, "tts={engine: espeak-ng}") == []
    assert warnings_of("conversation.language=auto", PARAKEET, QWEN) == []
    assert warnings_of("conversation.language=auto") == [], "one language, heard and spoken"
    servers = "stt={engine: openai-transcriptions, url: 'http://h/v1'}"
    assert warnings_of(*german, servers, QWEN) == []


def test_other_mismatches_are_reported() -> None:
    polish = ("conversation.language=pl", *OWN, PARAKEET)
    (voice,) = warnings_of(*polish, QWEN)
    assert "speaks de, en, es, fr, it, ja, ko, pt, ru, zh" in voice
    (auto,) = warnings_of("conversation.language=auto", PARAKEET)
    assert "answers in other languages" in auto
    (filler,) = warnings_of(*polish, "tts={engine: espeak-ng}", "conversation.filler.after_ms=900")
    assert filler.startswith("conversation.filler.sentences is English")


def test_a_server_with_listed_languages_speaks_no_others() -> None:
    speech = "tts={engine: openai-speech, url: 'http://h/v1', languages: {en: English}}"
    (voice,) = warnings_of("conversation.language=de", PARAKEET, speech)
    assert "speaks only 'en'" in voice


def test_clients_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    spoken = LanguageChoice()
    for number in range(1000):
        assert spoken.choose(f"x{number}" * 100, ("de",)) == ""
    assert len(caplog.records) == MOST_TOLD
    assert all(len(record.message) < 200 for record in caplog.records)
