"""Transcripts: append-only deltas, the full text, and transcription sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline import events
from pipeline.commands import TurnDetection
from tests.support.protocol_client import DEFAULTS, Client, types, user_speaks

pytestmark = pytest.mark.quick

PREFIX = "conversation.item.input_audio_transcription"
ONLY = replace(DEFAULTS, transcription=True)


def transcribing(**transcription: Any) -> Client:
    client = Client()
    client.updated(audio={"input": {"transcription": {"model": "x", **transcription}}})
    return client


def told(sent: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in sent if event["type"] == f"{PREFIX}.delta"]


# --- deltas ------------------------------------------------------------------------------------


def test_transcripts_are_sent_only_when_asked_for(client: Client) -> None:
    ready = events.TranscriptReady("item_u", "Hello.", 1.0)
    failed = events.TranscriptFailed("item_u", "no words")
    partial = events.TranscriptPartial("item_u", "Hel")
    assert client.apply(partial, ready, failed) == []
    client.updated(audio={"input": {"transcription": {"model": "x"}}})
    assert types(client.apply(ready)) == [f"{PREFIX}.delta", f"{PREFIX}.completed"]
    assert types(client.apply(events.TranscriptReady("i", "", 0.3))) == [f"{PREFIX}.completed"]
    (event,) = client.apply(failed)
    assert event["type"] == f"{PREFIX}.failed"
    assert (event["error"]["type"], event["error"]["message"]) == ("server_error", "no words")


def test_deltas_contain_only_new_words() -> None:
    client = transcribing()
    first, *rest = user_speaks()
    sent = client.apply(
        first,
        events.TranscriptPartial("item_u", "What time"),
        events.TranscriptPartial("item_u", ""),
        events.TranscriptPartial("item_u", " is"),
        *rest,
        events.TranscriptReady("item_u", "What time is it?", 1.4),
    )
    assert told(sent) == ["What time", " is", " it?"]
    assert types(sent)[-1] == f"{PREFIX}.completed"
    assert sent[-1]["transcript"] == "What time is it?"
    assert sent[-1]["usage"] == {"type": "duration", "seconds": 1.4}


def test_whose_voice_it_was_is_told_on_request() -> None:
    client = Client(DEFAULTS, "speakers")
    known, stranger, unasked = (
        events.TranscriptReady("item_u", "Hello.", 1.0, speaker=who) for who in ("Tom", "", None)
    )
    told = [
        [(each["item_id"], each["name"]) for each in client.apply(ready)]
        for ready in (known, stranger, unasked)
    ]
    assert told == [[("item_u", "Tom")], [("item_u", None)], []]
    assert Client().apply(known) == []


@pytest.mark.parametrize("final", ["What rhyme is it?", "what", "", "What time"])
def test_a_different_final_text_is_no_delta(final: str) -> None:
    client = transcribing()
    first, *rest = user_speaks()
    client.apply(first, events.TranscriptPartial("item_u", "What time"), *rest)
    sent = client.apply(events.TranscriptReady("item_u", final, 1.4))
    assert types(sent) == [f"{PREFIX}.completed"]
    assert sent[0]["transcript"] == final


def test_utterances_do_not_mix() -> None:
    client = transcribing()
    client.apply(events.SpeechStarted("a", 0), events.TranscriptPartial("a", "One"))
    client.apply(events.SpeechStopped("a", 900), events.SpeechRejected("a"))
    client.apply(events.SpeechStarted("b", 1000), events.TranscriptPartial("b", "Two"))
    (*_, more, completed) = client.apply(events.TranscriptReady("b", "Two beers.", 1.0))
    assert (more["item_id"], more["delta"]) == ("b", " beers.")
    assert completed["item_id"] == "b"
    sent = client.apply(events.TranscriptReady("a", "One more.", 1.0))  # a was forgotten
    assert told(sent) == ["One more."]


def test_utterances_that_never_end_do_not_pile_up() -> None:
    client = transcribing()
    client.apply(events.SpeechStarted("item_0", 0))
    for number in range(1000):
        client.apply(events.TranscriptPartial(f"item_{number}", "word"))
    first = client.apply(events.TranscriptReady("item_0", "word", 1.0))
    assert told(first) == ["word"]  # long forgotten
    assert told(client.apply(events.TranscriptReady("item_999", "word", 1.0))) == []


def test_which_sessions_get_partials() -> None:
    assert not Client().protocol.config.partials
    assert not transcribing().protocol.config.partials
    assert transcribing(delay="low").protocol.config.partials
    assert Client(ONLY).protocol.config.partials
    always = Client(replace(DEFAULTS, partials=True))
    assert not always.protocol.config.partials
    _, config = always.updated(audio={"input": {"transcription": {"model": "x"}}})
    assert config.partials


def test_a_fixed_language_stays() -> None:
    for language in ("de", ""):
        client = Client(replace(DEFAULTS, language=language, language_fixed=True))
        client.updated(audio={"input": {"transcription": {"model": "x", "language": "en"}}})
        assert client.protocol.config.language == language
        assert client.protocol.config.asked_languages == ()


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"language": "en-US"}, ("en-US",)),
        ({"languages": ["de", "fr"]}, ("de", "fr")),
        ({"language": "auto", "languages": ["ja"]}, ("auto", "ja")),
        ({"language": "", "languages": [" "]}, ()),
        ({"language": None, "languages": []}, ()),
    ],
)
def test_the_languages_of_the_transcript(fields: dict[str, Any], asked: tuple[str, ...]) -> None:
    config = transcribing(**fields).protocol.config
    assert config.asked_languages == asked
    assert config.language == "en"


# --- transcription sessions --------------------------------------------------------------------


def test_a_transcription_session_never_answers() -> None:
    client = Client(ONLY)
    config = client.protocol.config
    assert not config.answers
    quiet = TurnDetection(create_response=False, interrupt_response=False)
    assert config.turn_detection == quiet
    vad = {"type": "server_vad", "create_response": True, "idle_timeout_ms": 6000}
    shown, config = client.updated(audio={"input": {"turn_detection": vad}})
    assert config.turn_detection == quiet
    assert "create_response" not in shown["audio"]["input"]["turn_detection"]
    error = client.refused("response.create")
    assert (error["code"], error["param"]) == ("invalid_value", "type")
    assert "transcription session" in error["message"]
    error = client.refused("response.create", response={"instructions": "Speak!"})
    assert error["code"] == "invalid_value"


def test_a_transcription_session_is_updated_like_any_other() -> None:
    client = Client(ONLY)
    shown, config = client.updated(
        audio={
            "input": {
                "format": {"type": "audio/pcmu"},
                "transcription": {"model": "gpt-4o-transcribe", "language": "de"},
                "noise_reduction": {"type": "far_field"},
                "turn_detection": None,
            }
        },
        include=["item.input_audio_transcription.logprobs"],
        model="gpt-4o-transcribe",
    )
    heard = shown["audio"]["input"]
    assert heard["format"] == {"type": "audio/pcmu"}
    assert heard["transcription"] == {"model": "gpt-4o-transcribe", "language": "de"}
    assert heard["turn_detection"] is None
    assert (config.turn_detection, config.asked_languages) == (None, ("de",))
    shown, config = client.updated(audio={"input": {"transcription": None}})
    assert shown["audio"]["input"]["transcription"] == {"model": "reachy-voice"}
    assert (config.partials, config.language) == (True, "en")


def test_semantic_turn_detection_in_a_transcription_session() -> None:
    vad = {"type": "semantic_vad", "eagerness": "low"}
    _, config = Client(ONLY).updated(audio={"input": {"turn_detection": vad}})
    assert config.turn_detection == TurnDetection(
        eagerness="low", create_response=False, interrupt_response=False
    )


@pytest.mark.parametrize(
    ("defaults", "given", "address"),
    [(DEFAULTS, "transcription", "connect with '?"), (ONLY, "realtime", "connect without '?")],
)
def test_the_type_of_a_session_cannot_change(defaults: Any, given: str, address: str) -> None:
    client = Client(defaults)
    error = client.refused("session.update", session={"type": given, "audio": {}})
    assert (error["code"], error["param"]) == ("invalid_parameter", "session.type")
    assert error["message"].startswith(f"Passing a {given} session update event to a ")
    assert address in error["message"]


def test_fields_for_answers_are_unknown_in_a_transcription_session() -> None:
    client = Client(ONLY)
    unknown: list[dict[str, Any]] = [
        {"instructions": "x"},
        {"tools": []},
        {"audio": {"output": {}}},
    ]
    for fields in unknown:
        error = client.refused("session.update", session={"type": "transcription", **fields})
        assert error["code"] == "unknown_parameter"
