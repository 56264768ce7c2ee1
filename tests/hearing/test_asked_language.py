"""A client's language setting: it is passed only to a recogniser that supports it, and the client
is told once otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline.engines.by_url.failures import EngineAddress, complaint, refusal
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.workers.host import readable
from reachy_voice.testing import ScriptedStt, in_virtual_time
from tests.support.protocol_client import DEFAULTS
from tests.support.wired import Cast, Wired, wired

pytestmark = pytest.mark.quick

EUROPE = ("de", "en", "fr")


async def ask(client: Wired, **transcription: Any) -> None:
    heard = {"transcription": {"model": "any", **transcription}}
    await client.send("session.update", session={"type": "realtime", "audio": {"input": heard}})
    await client.settle()


async def speak(client: Wired) -> None:
    await client.say(400)
    await client.hear(1000)
    await asyncio.sleep(3)


def told(client: Wired) -> list[tuple[str, str]]:
    errors = [event["error"] for event in client.events("error")]
    return [(error["code"], error["param"]) for error in errors]


def statuses(client: Wired) -> list[str]:
    return [end["response"]["status"] for end in client.events("response.done")]


NOTICE = ("language_not_supported", "session.audio.input.transcription.language")


@pytest.mark.parametrize(
    ("known", "asked", "opened", "notices"),
    [
        (("en",), {"language": "auto"}, "en", 0),
        (EUROPE, {"language": "auto"}, "", 0),
        ((), {"language": "auto"}, "", 0),
        (("en",), {"language": ""}, "en", 0),
        (EUROPE, {"language": None}, "en", 0),
        (("en",), {"language": "English"}, "en", 0),
        (("en",), {"language": "autodetect"}, "en", 0),
        (EUROPE, {"language": "deu"}, "de", 0),
        (EUROPE, {"languages": ["ja", "fr-CA"]}, "fr", 0),
        ((), {"language": "zh-CN"}, "zh", 0),
        (("en",), {"languages": ["ja"]}, "en", 1),
        (EUROPE, {"language": "klingon"}, "en", 1),
        ((), {"language": "x" * 300}, "en", 1),
        (("fr",), {"language": "ja"}, "fr", 1),
        (("de", "fr"), {"language": "ja"}, "", 1),
    ],
)
@in_virtual_time
async def test_the_session_uses_an_available_language(
    known: Sequence[str], asked: dict[str, Any], opened: str, notices: int
) -> None:
    stt = ScriptedStt(languages=known)
    async with wired(Cast(stt=stt)) as client:
        await ask(client, **asked)
        assert told(client) == [NOTICE] * notices
        for _ in range(2):
            await speak(client)
        await ask(client, **asked)
        shown = client.session["audio"]["input"]["transcription"]
    assert set(stt.opened_in) == {opened}
    assert told(client) == [NOTICE] * notices
    assert statuses(client) == ["completed"] * 2
    assert shown == {"model": "any", **asked}


@pytest.mark.parametrize("asked", [{}, {"language": "auto"}])
@in_virtual_time
async def test_whoever_detects_the_language_gets_the_only_one_that_is_heard(
    asked: dict[str, Any],
) -> None:
    """So letters of another language are no words."""
    stt = ScriptedStt(("자아요요요",), languages=("en",))
    async with wired(Cast(stt=stt), defaults=replace(DEFAULTS, language="")) as client:
        await ask(client, **asked)
        await speak(client)
    assert set(stt.opened_in) == {"en"}
    assert not client.events("conversation.item.input_audio_transcription.completed")


def by_url(status: int) -> EngineError:
    return refusal(EngineAddress(Kind.STT, "http://far"), complaint(status, {"error": "bad"}), ())


ONCE, TWICE = ["ja", "", "en"], ["ja", "ja", "", "en"]


@pytest.mark.parametrize(
    ("late", "opened"),
    [
        (None, ONCE),
        (by_url(400), ONCE),
        (by_url(422), ONCE),
        (readable(KeyError("ja"), "feed failed"), ONCE),
        (by_url(500), TWICE),  # the first failure may be a coincidence
    ],
)
@in_virtual_time
async def test_a_refused_language_is_left_out(
    late: EngineError | None, opened: Sequence[str]
) -> None:
    stt = ScriptedStt(refuses=("ja",), late_refusal=late)
    async with wired(Cast(stt=stt)) as client:
        await ask(client, language="ja")
        assert told(client) == []
        for _ in range(2):
            await speak(client)
    assert told(client) == [NOTICE]
    assert stt.opened_in == opened
    assert statuses(client) == ["completed"] * 2
    assert not client.events("conversation.item.input_audio_transcription.failed")


@pytest.mark.parametrize("status", [429, 503])
@in_virtual_time
async def test_a_busy_server_does_not_count_as_refusing_a_language(status: int) -> None:
    stt = ScriptedStt(refuses=("ja",), late_refusal=by_url(status))
    async with wired(Cast(stt=stt)) as client:
        await ask(client, language="ja")
        await speak(client)
    assert set(stt.opened_in) == {"ja"}
    assert told(client) == []


@in_virtual_time
async def test_a_failure_does_not_count_against_a_listed_language() -> None:
    stt = ScriptedStt(languages=("de", "en"), refuses=("de",))
    async with wired(Cast(stt=stt)) as client:
        await ask(client, language="de")
        await speak(client)
    assert stt.opened_in == ["de"]
    assert told(client) == []


@in_virtual_time
async def test_each_new_setting_is_reported() -> None:
    async with wired(Cast(stt=ScriptedStt(languages=("en",)))) as client:
        for language in ("ja", "ja", "en", "de"):
            await ask(client, language=language)
    assert told(client) == [NOTICE] * 2


@in_virtual_time
async def test_another_recogniser_gets_a_language_it_supports() -> None:
    cast = Cast(stt=ScriptedStt(languages=EUROPE))
    stages, other = cast.stages(), ScriptedStt(languages=("en",))
    cast.stages = lambda: stages  # type: ignore[method-assign]
    async with wired(cast) as client:
        await ask(client, language="de")
        await speak(client)
        assert told(client) == []
        stages.stt = other
        await speak(client)
    assert cast.stt.opened_in == ["de"]
    assert other.opened_in == ["en"]
    assert told(client) == [NOTICE]


@in_virtual_time
async def test_a_transcription_session_is_told() -> None:
    stt = ScriptedStt(languages=("en",))
    only = replace(DEFAULTS, transcription=True)
    async with wired(Cast(stt=stt), defaults=only) as client:
        asked = {"transcription": {"model": "any", "language": "ja"}}
        session = {"type": "transcription", "audio": {"input": asked}}
        await client.send("session.update", session=session)
        await speak(client)
    assert told(client) == [NOTICE]
    assert client.events("conversation.item.input_audio_transcription.completed")
