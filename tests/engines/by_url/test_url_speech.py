"""Speech-to-text and text-to-speech by URL."""

from __future__ import annotations

import io
import json
import re
import wave
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.failures import Misconfiguration
from pipeline.engines.contract import Partial
from pipeline.engines.registry import Kind
from pipeline.engines.stt.sound_notes import without_notes
from pipeline.errors import EngineError
from pipeline.messages import SpeechRequest
from pipeline.work import Work
from tests.support.far_server import TONE, FarServer, Mood, problem, serving
from tests.support.url_engines import running

pytestmark = pytest.mark.machine

STT, TTS = "openai-transcriptions", "openai-speech"
TIME = "What time is it?"
HEARD, SAID = "/v1/audio/transcriptions", "/v1/audio/speech"
RATE = 24_000
FADE = 5 * 24
"""Length of the fade at the end of a piece, in samples at 24 kHz."""
SPEECH: Pcm = (1000 * np.sin(np.arange(2 * LISTEN_RATE) / 20)).astype(np.int16)


# --- speech to text ----------------------------------------------------------------------------


def sent(far: FarServer) -> tuple[dict[str, str], wave.Wave_read]:
    form = far.asked(HEARD)[-1].form
    file = wave.open(io.BytesIO(form.pop("file")))  # noqa: SIM115, it is in memory
    return {key: value.decode() for key, value in form.items()}, file


async def heard(engine: UrlEngine, *pieces: Pcm, language: str = "en") -> str:
    utterance = await engine.open(language, False, Work())
    for piece in pieces:
        assert await utterance.feed(piece, Work()) == Partial()
    transcript = await utterance.finish(Work())
    assert transcript.seconds == sum(map(len, pieces)) / LISTEN_RATE
    text: str = transcript.text
    return text


async def test_an_utterance_is_sent_as_one_file() -> None:
    far = FarServer("speech", models=("whisper",), key="abc")
    async with serving(far), running(Kind.STT, STT, far.url, api_key="abc") as engine:
        assert await heard(engine, SPEECH[:5000], SPEECH[5000:]) == "What time is it?"
    fields, file = sent(far)
    assert fields == {"model": "whisper", "language": "en", "response_format": "json"}
    assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
    assert file.readframes(file.getnframes()) == SPEECH.tobytes()


@pytest.mark.parametrize(
    ("options", "language", "fields"),
    [
        ({}, "", {}),
        ({}, "de", {"language": "de"}),
        ({"language_hint": False}, "de", {}),
        ({"extra": {"temperature": 0, "response_format": None}}, "", {"temperature": "0"}),
    ],
)
async def test_fields_sent_with_the_audio(
    options: dict[str, Any], language: str, fields: dict[str, str]
) -> None:
    far = FarServer("speech", models=("m",))
    async with serving(far), running(Kind.STT, STT, far.url, **options) as engine:
        await heard(engine, SPEECH, language=language)
    given = {"model": "m", "response_format": "json"} | fields
    if "extra" in options:
        del given["response_format"]
    assert sent(far)[0] == given


async def test_a_short_utterance_is_padded_and_an_empty_one_not_sent() -> None:
    far = FarServer("speech")
    async with serving(far), running(Kind.STT, STT, far.url) as engine:
        await heard(engine, SPEECH[:100])
        assert sent(far)[1].getnframes() == LISTEN_RATE // 5
        assert await heard(engine) == ""
        assert len(far.asked(HEARD)) == 1


async def test_an_utterance_is_sent_again_only_with_more_audio() -> None:
    far = FarServer("speech")
    async with serving(far), running(Kind.STT, STT, far.url) as engine:
        utterance = await engine.open("en", False, Work())
        await utterance.feed(SPEECH, Work())
        await utterance.finish(Work())
        await utterance.finish(Work())
        assert len(far.asked(HEARD)) == 1
        await utterance.feed(SPEECH, Work())
        await utterance.finish(Work())
        assert sent(far)[1].getnframes() == 2 * len(SPEECH)
        utterance.close()


async def test_partial_transcripts_are_separate_requests() -> None:
    far = FarServer("speech")
    async with (
        serving(far),
        running(Kind.STT, STT, far.url, partial_interval_ms=500) as engine,
    ):
        silent = await engine.open("en", False, Work())
        await silent.feed(SPEECH, Work())
        assert not far.asked(HEARD)
        utterance = await engine.open("en", True, Work())
        partials = [await utterance.feed(SPEECH[:4000], Work()) for _ in range(4)]
        assert [p.tentative for p in partials] == ["", *["What time is it?"] * 3]
        assert len(far.asked(HEARD)) == 2
        far.moods[HEARD] = [Mood(500)]
        assert (await utterance.feed(SPEECH, Work())).tentative == "What time is it?"
        assert (await utterance.finish(Work())).text == "What time is it?"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"What time is it?", "not JSON"),
        (b"[]", "no text"),
        (b'{"text": 1}', "no text"),
        (b'{"error": "failed to decode audio"}', "failed: HTTP 200, failed to decode audio"),
        (b'{"error": {"code": 429}}', "is overloaded"),
        (b'{"text": "", "error": "out of memory"}', "HTTP 200, out of memory"),
        (b'{"text": null, "error": {"message": "no model"}}', "HTTP 200, no model"),
        (b'{"segments": 3}', "no text"),
    ],
)
async def test_invalid_transcripts(body: bytes, why: str) -> None:
    far = FarServer("speech", moods={HEARD: [Mood(body=[body])]})
    async with serving(far), running(Kind.STT, STT, far.url) as engine:
        with pytest.raises(EngineError, match=why):
            await heard(engine, SPEECH)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"text": null}', ""),
        (b'{"text": null, "segments": [], "error": null}', ""),
        (b'{"segments": [{"text": " What time"}, {"text": null}, {"text": " is it?"}]}', TIME),
        (b'\xef\xbb\xbf{"text": "What time is it?", "error": false}\r\n', TIME),
    ],
)
async def test_transcripts_of_any_shape_are_read(body: bytes, words: str) -> None:
    far = FarServer("speech", moods={HEARD: [Mood(201, body=[body])]})
    async with serving(far), running(Kind.STT, STT, far.url) as engine:
        assert " ".join((await heard(engine, SPEECH)).split()) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" What time\nis it? ", "What time is it?"),
        ("[BLANK_AUDIO]", ""),
        ("(music) *sighs* ♪ la ♪", ""),
        ("...", ""),
        ("(laughs) No.", "No."),
        ("（拍手）【音楽】", ""),
        ("（笑）はい。", "はい。"),
        ("<|nospeech|><|EMO_UNKNOWN|>", ""),
        ("[unk] <unk>", ""),
        ("<noise> ♫ music ♫ </s>", ""),
        ("Is 2 < 3 and 3 > 2?", "Is 2 < 3 and 3 > 2?"),
        ("Socie\u0301te\u0301 Radio-Canada", "Société Radio-Canada"),
        ("<|en|><|NEUTRAL|><|Speech|><|woitn|>stop", "stop"),
        ("［音楽］〔咳〕🎵 la 🎵", ""),
        ("はい(笑)", "はい"),
        ("[Speaker 1] Yes.", "Yes."),
        ("(2 people laughing) *door 2 closes*", ""),
        ("Plan A[music]", "Plan A"),
        ("Call (555) 123-4567.", "Call (555) 123-4567."),
        ("What is 5 * 3 * 2?", "What is 5 * 3 * 2?"),
        ("What is f(x) if x*y*z is 2?", "What is f(x) if x*y*z is 2?"),
    ],
)
def test_notes_about_non_speech_are_removed(text: str, words: str) -> None:
    assert without_notes(text) == words


# --- text to speech ----------------------------------------------------------------------------


async def spoken_by(engine: UrlEngine, text: str = "Hi.", voice: str = "", speed: float = 1) -> Pcm:
    pieces = [pcm async for pcm in engine.synthesize(SpeechRequest(text, voice, speed), Work())]
    assert all(piece.dtype == np.int16 for piece in pieces)
    assert all(len(piece) >= 480 for piece in pieces[:-1]), "20 ms, however it is sent"
    return np.concatenate([np.zeros(0, np.int16), *pieces])


async def test_speech_is_what_the_server_sends_however_it_is_split() -> None:
    far = FarServer("speech", models=("kokoro",))
    async with serving(far), running(Kind.TTS, TTS, far.url, voices=["amy", "joe"]) as engine:
        assert np.array_equal((await spoken_by(engine))[:-FADE], TONE[:-FADE])
        assert (engine.rate, engine.voices) == (24_000, ("amy", "joe"))
        for size in (1, 7, 999):
            raw = TONE[:1001].tobytes()
            pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
            far.moods[SAID] = [Mood(200, "audio/pcm", pieces)]
            assert np.array_equal((await spoken_by(engine))[:-FADE], TONE[: 1001 - FADE])
        far.moods[SAID] = [Mood(200, "audio/pcm", [b"\1\0\2\0\3"])]
        assert (await spoken_by(engine)).tolist() == [1, 2]
    asked = far.asked(SAID)[0].json
    assert asked == {
        "model": "kokoro",
        "input": "Hi.",
        "voice": "amy",
        "response_format": "pcm",
        "stream": True,
    }


def formats(far: FarServer) -> list[str]:
    return [seen.json["response_format"] for seen in far.asked(SAID)]


NO_PCM = 400, "Unsupported response_format: pcm"
ONLY_PCM = 400, "stream=true requires response_format='pcm'"
MORE = 500, "Internal error; for more information see the log"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        NO_PCM,
        (422, [{"loc": ["body"], "msg": "Input should be 'wav' or 'mp3'"}]),
        (500, "unknown codec"),
    ],
)
async def test_wav_is_asked_for_where_raw_pcm_is_refused(status: int, says: Any) -> None:
    far = FarServer("speech", moods={SAID: [problem(status, {"detail": says})]})
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        for _ in range(2):
            assert len(await spoken_by(engine)) == len(TONE)
        assert formats(far) == ["pcm", "wav", "wav"]
        far.moods[SAID] = [
            problem(400, {"error": ONLY_PCM[1]})
        ]  # another server at the same address
        for _ in range(2):
            assert len(await spoken_by(engine)) == len(TONE)
        assert formats(far)[3:] == ["wav", "pcm", "pcm"]
        far.moods[SAID] = [problem(500, {"error": "codec out of memory"})]
        for _ in range(2):
            assert len(await spoken_by(engine)) == len(TONE)
    assert formats(far)[6:] == ["pcm", "wav", "pcm"], "a failure that passes"


@pytest.mark.parametrize(
    ("errors", "asked"),
    [
        ([MORE], ["pcm"]),
        ([(400, "'ascii' codec can't encode the reformatted text")], ["pcm"]),
        ([NO_PCM, ONLY_PCM], ["pcm", "wav"]),
        ([NO_PCM, MORE], ["pcm", "wav"]),
    ],
)
async def test_an_error_does_not_change_the_format(
    errors: list[tuple[int, str]], asked: list[str]
) -> None:
    far = FarServer("speech")
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        await spoken_by(engine)
        far.moods[SAID] = [problem(status, {"error": says}) for status, says in errors]
        with pytest.raises(EngineError, match=re.escape(errors[0][1])):
            await spoken_by(engine)
        assert len(await spoken_by(engine)) == len(TONE)
    assert formats(far) == ["pcm", *asked, "pcm"]


@pytest.mark.parametrize(
    ("options", "voice", "speed", "fields"),
    [
        ({}, "joe", 1.0, {"voice": "joe", "stream": True}),
        ({}, "nobody", 1.0, {"voice": "amy", "stream": True}),
        ({"voice": "joe"}, "", 1.0, {"voice": "joe", "stream": True}),
        ({"speed": 0.5}, "amy", 1.5, {"voice": "amy", "speed": 0.75, "stream": True}),
        ({"speed": 4.0}, "amy", 1.5, {"voice": "amy", "speed": 4.0, "stream": True}),
        ({"stream": False}, "amy", 1.0, {"voice": "amy"}),
        ({"extra": {"seed": 1, "stream": None}}, "amy", 1.0, {"voice": "amy", "seed": 1}),
    ],
)
async def test_voice_and_pace(
    options: dict[str, Any], voice: str, speed: float, fields: dict[str, Any]
) -> None:
    far = FarServer("speech")
    given = {"voices": ["amy", "joe"], "model": "qwen3", **options}
    async with serving(far), running(Kind.TTS, TTS, far.url, **given) as engine:
        await spoken_by(engine, voice=voice, speed=speed)
    fixed = {"model": "qwen3", "input": "Hi.", "response_format": "pcm"}
    assert far.asked(SAID)[-1].json == fixed | fields


async def test_text_without_words_is_not_sent() -> None:
    far = FarServer("speech")
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        assert len(await spoken_by(engine, " … ")) == 0
    assert not far.asked(SAID)


MP3_FRAMES = 6 * (b"\xff\xfb\x90\x64" + bytes(413))


@pytest.mark.parametrize(
    ("mood", "what"),
    [
        (Mood(200, "audio/mpeg", [b"\xff\xfb" + bytes(2000)]), "sends audio/mpeg"),
        (Mood(200, "application/octet-stream", [MP3_FRAMES[:5], MP3_FRAMES[5:]]), "sends MP3"),
        (Mood(200, "audio/pcm", [json.dumps({"error": "no voice"}).encode()]), "says: no voice"),
        (Mood(200, "audio/wav", [b"<html>", b"<body>Busy</body></html>"]), "sends text"),
        (Mood(200, "text/event-stream", [b"data: {}\n\n"]), "sends text"),
        (Mood(200, "audio/pcm;codec=opus", [TONE.tobytes()]), "sends audio/pcm;codec=opus"),
    ],
)
async def test_an_unplayable_answer_fails_the_start(mood: Mood, what: str) -> None:
    far = FarServer("speech", moods={SAID: [mood]})
    async with serving(far):
        with pytest.raises(Misconfiguration, match=what) as error:
            async with running(Kind.TTS, TTS, far.url, warm_up=True):
                pass
    assert "response_format" in error.value.fix


@pytest.mark.parametrize("size", [4801, 100_000])
@pytest.mark.parametrize(
    "mood",
    [Mood(200, "audio/pcm", torn=True), Mood(200, "audio/pcm", [None])],
    ids=["torn", "hangs"],
)
async def test_an_answer_that_breaks_off_ends_without_a_click(mood: Mood, size: int) -> None:
    loud = np.full(RATE // 5, -20_000, "<i2").tobytes()
    pieces = [loud[at : at + size] for at in range(0, len(loud), size)]
    far = FarServer("speech", moods={SAID: [replace(mood, body=[*pieces, *mood.body])]})
    heard: list[Pcm] = []
    async with serving(far), running(Kind.TTS, TTS, far.url, between_s=0.05) as engine:

        async def play() -> None:
            async for pcm in engine.synthesize(SpeechRequest("Hi."), Work()):
                heard.append(pcm)

        with pytest.raises(EngineError, match=r"broke off|in time"):
            await play()
    assert len(np.concatenate(heard)) == RATE // 5, "all that came"
    assert heard[-1][-1] == 0


async def test_an_error_in_place_of_speech_is_handled_by_its_code() -> None:
    busy = json.dumps({"error": {"code": 429, "message": "Slow down"}}).encode()
    far = FarServer("speech", moods={SAID: [Mood(200, "application/json", [busy])]})
    async with serving(far), running(Kind.TTS, TTS, far.url, warm_up=True) as engine:
        assert len(await spoken_by(engine)) == len(TONE)


async def test_any_success_is_speech() -> None:
    raw, plain = [TONE.tobytes()], [("content-encoding", "Identity")]
    far = FarServer("speech", moods={SAID: [Mood(201, "audio/pcm", raw, headers=plain)]})
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        assert len(await spoken_by(engine)) == len(TONE)


async def test_a_header_may_name_the_rate_of_raw_speech() -> None:
    headers = [("x-sample-rate", "48000"), ("x-channels", "2")]
    mood = Mood(200, "audio/pcm", [np.repeat(TONE, 2).tobytes()], headers=headers)
    far = FarServer("speech", moods={SAID: [mood]})
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        assert len(await spoken_by(engine)) == pytest.approx(len(TONE) / 2, abs=2)


async def test_speech_in_a_wav_file_is_played_at_the_rate_of_the_voice() -> None:
    stereo = np.repeat(TONE, 2).tobytes()
    header = io.BytesIO()
    with wave.open(header, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(48_000)
    far = FarServer("speech", moods={SAID: [Mood(200, "audio/pcm", [header.getvalue(), stereo])]})
    async with serving(far), running(Kind.TTS, TTS, far.url) as engine:
        assert len(await spoken_by(engine)) == pytest.approx(len(TONE) / 2, abs=2)
