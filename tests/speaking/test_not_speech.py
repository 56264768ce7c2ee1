"""A voice that tells by itself that a clause goes wrong: it is said again, or left out."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from pipeline.audio import Pcm
from pipeline.engines.contract import NotSpeech, Wrong
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.work import Work
from tests.speaking.test_clause_speech import (
    WORDS,
    ask,
    faults,
    finished,
    written,
)
from tests.support.moody_voice import MoodyTts

pytestmark = pytest.mark.quick


class SelfAwareTts(MoodyTts):
    """Fine, but for its first ``times`` takes of the second clause, which it gives up after a
    chunk."""

    def __init__(self, wrong: Wrong, times: int) -> None:
        super().__init__()
        self._wrong: Wrong = wrong
        self._times = times

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        fails = "robot" in request.text and request.take < self._times
        async for chunk in super().synthesize(request, work):
            yield chunk
            if fails:
                raise NotSpeech(self._wrong, 0.0)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("wrong", ["runaway", "repetition"])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_said_again_then_left_out(wrong: Wrong, times: int, watched: bool) -> None:
    tts = SelfAwareTts(wrong, times)
    it = ask(tts, SessionSettings(watched=watched))
    assert faults(it) == [(wrong, at, at == 1) for at in range(times)]
    again = [take for text, take in tts.said if "robot" in text]
    assert again[-1] == 1
    assert written(it) == WORDS
    assert finished(it).status == "completed"
