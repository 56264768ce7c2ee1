"""How long engines wait for a server, to the millisecond; in virtual time over a scripted
client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

import httpx  # noqa: F401  # a real pool loads it in a thread, not on the loop
import pytest

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import HttpFailure, Pool, Why
from pipeline.engines.contract import Finished, TextDelta
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Priority, Work
from reachy_voice.testing import run_virtual
from tests.engines.by_url.test_url_requests import ALL, finished
from tests.support.url_engines import HELLO, built

pytestmark = pytest.mark.quick

KINDS = {
    "openai-speech": "audio/pcm",
    "openai-transcriptions": "application/json",
    "openai-chat": "text/event-stream",
}
NEVER = float("inf")
Script = Sequence[bytes | float]


class ScriptedAnswer:
    """``script``: pieces of the body, and the seconds between them."""

    status = 200
    redirects_to = ""

    def __init__(self, kind: str, script: Script) -> None:
        self.headers = {"content-type": kind}
        self.closed = False
        self._script = script
        self._left = list(script)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        while self._left:
            step = self._left.pop(0)
            if isinstance(step, bytes):
                yield step
            else:
                await wait(step)

    def close(self) -> None:
        self.closed = True
        self._left = list(self._script)

    @property
    def task(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


class ScriptedPool(Pool):
    """Returns one answer after ``head_s``."""

    def __init__(self, answer: ScriptedAnswer, head_s: float = 0.0) -> None:
        super().__init__()
        self.answer = answer
        self.head_s = head_s

    async def send(self, *asked: Any) -> Any:
        await wait(self.head_s)
        return self.answer


async def wait(seconds: float) -> None:
    if seconds == NEVER:
        await asyncio.Event().wait()
    await asyncio.sleep(seconds)


def well(pool: Pool, kind: Kind, name: str, **options: Any) -> UrlEngine:
    """An engine that has found its server."""
    engine = built(pool, kind, name, "http://far/v1", model="m", **options)
    engine.problem = None
    return engine


def at(main: Coroutine[Any, Any, Any]) -> tuple[float, Any]:
    """When ``main`` ended, in virtual seconds, and its result or error."""

    async def timed() -> tuple[float, Any]:
        try:
            result = await main
        except (EngineError, Cancelled) as error:
            result = error
        return round(asyncio.get_running_loop().time(), 3), result

    when, result = run_virtual(timed())
    return when, result


def chunk(**delta: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'


@ALL
@pytest.mark.parametrize(
    ("head_s", "script", "when", "option"),
    [
        (NEVER, (), 20.0, "first_s"),
        (3.0, (NEVER,), 20.0, "first_s"),
        (3.0, (5.0, chunk(content="Hello."), NEVER), 18.0, "between_s"),
    ],
)
def test_a_hanging_server_is_given_up(
    kind: Kind, name: str, head_s: float, script: Script, when: float, option: str
) -> None:
    if kind is Kind.TTS:
        script = [bytes(len(step)) if isinstance(step, bytes) else step for step in script]
    answer = ScriptedAnswer(KINDS[name], script)
    engine = well(ScriptedPool(answer, head_s), kind, name)
    ended, error = at(finished(engine, Work()))
    assert ended == when
    assert "does not answer in time" in error.what
    assert f"{kind}.{option}" in error.fix
    assert answer.closed == (head_s != NEVER)
    assert engine._doubtful, "it is looked at"
    assert engine.problem is None, "others may still use it"


class LookedAtPool(ScriptedPool):
    """Its server answers probes until something is ``wrong``."""

    wrong: Why | None = None

    async def send(self, *asked: Any) -> Any:
        if asked[0].method == "POST":
            return await super().send(*asked)
        if self.wrong:
            raise HttpFailure(self.wrong, "All connection attempts failed")
        return ScriptedAnswer("application/json", [b'{"data": [{"id": "m"}]}'])


@pytest.mark.parametrize(
    ("wrong", "when", "what"),
    [("connect", 1.0, "cannot be reached"), ("slow", 10.0, "does not answer in time")],
)
def test_an_answer_ends_when_the_server_port_closes(wrong: Why, when: float, what: str) -> None:
    """If a probe merely gets no answer, the server may be busy."""
    pool = LookedAtPool(ScriptedAnswer(KINDS["openai-chat"], [chunk(content="Hello."), NEVER]))
    engine = well(pool, Kind.LLM, "openai-chat")

    async def answered() -> None:
        looked_at = asyncio.Event()
        life = asyncio.create_task(engine.run(looked_at.set))
        await looked_at.wait()
        pool.wrong = wrong
        try:
            await finished(engine, Work())
        finally:
            engine.close()
            await life

    ended, error = at(answered())
    assert ended == when
    assert what in error.what


# --- a server that loads its model -------------------------------------------------------------


class LoadingPool(ScriptedPool):
    """Its server loads its model until ``loaded_s``. Until then requests are refused or, with
    ``refuses`` false, wait for their first byte. ``owner``: of the model; ``acme`` does not report
    loading."""

    says = b'{"error": {"message": "Loading model"}}'
    status = 503

    def __init__(self, loaded_s: float, *, refuses: bool, owner: str) -> None:
        super().__init__(ScriptedAnswer(KINDS["openai-chat"], [chunk(content="Hello."), END]))
        self.loaded_s = loaded_s
        self.refuses = refuses
        self.owner = owner
        self.retry_after = ""
        self.refused_after_s = 0.0
        self.posts = 0

    async def send(self, *asked: Any) -> Any:
        request, now = asked[0], asyncio.get_running_loop().time()
        loaded = now >= self.loaded_s
        if request.method == "POST":
            self.posts += 1
            if loaded or not self.refuses:
                await wait(max(0.0, self.loaded_s - now))
                return self.answer
            await wait(self.refused_after_s)
            busy = ScriptedAnswer("application/json", [self.says])
            busy.status = self.status
            busy.headers |= {"retry-after": self.retry_after} if self.retry_after else {}
            return busy
        content: Any = {"data": [{"id": "m", "owned_by": self.owner}]}
        if request.url.endswith("/api/ps"):
            content = {"models": [{"name": "m"}] if loaded else []}
        elif "/props?" in request.url:
            content = {"is_sleeping": not loaded}
        return ScriptedAnswer("application/json", [json.dumps(content).encode()])


def after_loading(
    pool: LoadingPool, begin_s: float = 0.0, read_s: float = 0.0
) -> tuple[float, Any, list[str]]:
    """When a question asked at ``begin_s`` (after reading ahead for ``read_s``) is answered; the
    result; why the engine was not ready."""
    problems: list[str] = []

    async def main() -> Any:
        pool.loaded_s, loaded_s = 0.0, pool.loaded_s
        engine = well(pool, Kind.LLM, "openai-chat")
        looked_at = asyncio.Event()
        life = asyncio.create_task(engine.run(looked_at.set))
        await looked_at.wait()
        await asyncio.sleep(1)
        await finished(engine, Work())
        await asyncio.sleep(begin_s)
        pool.loaded_s = asyncio.get_running_loop().time() + loaded_s
        if read_s:
            reading = Work(Priority.WARM_UP)
            asyncio.get_running_loop().call_later(read_s, reading.cancel)
            with suppress(Cancelled):
                await engine.open().warm(LlmRequest(HELLO), reading)
        asked = asyncio.create_task(finished(engine, Work()))
        await asyncio.sleep(10)
        problems.append(engine.problem or "")
        try:
            await asked
            assert engine.problem is None
        finally:
            engine.close()
            await life

    ended, error = at(main())
    return round(ended - begin_s - 1, 1), error, problems


@pytest.mark.parametrize(
    ("refuses", "owner"),
    [(True, "library"), (True, "acme"), (False, "library"), (False, "llamacpp")],
)
def test_a_question_waits_for_the_model_and_is_answered(refuses: bool, owner: str) -> None:
    pool = LoadingPool(45.0, refuses=refuses, owner=owner)
    ended, error, (problem,) = after_loading(pool)
    assert error is None
    assert 45.0 <= ended <= 47.0
    assert "oading" in problem
    assert pool.posts < 100


@pytest.mark.parametrize(
    ("says", "retry_after", "answered_s", "requests"),
    [
        (b"Service Unavailable", "30", 60.0, 4),
        (b"The server is overloaded", "soon", 45.2, 93),
        (LoadingPool.says, "20", 60.0, 5),
        (b"Maintenance", "3600", None, 2),
        (b"Maintenance", "Fri, 31 Dec 2999 23:59:59 GMT", None, 2),
    ],
)
def test_a_question_waits_as_long_as_the_server_says(
    says: bytes, retry_after: str, answered_s: float | None, requests: int
) -> None:
    pool = LoadingPool(45.0, refuses=True, owner="acme")
    pool.says, pool.retry_after = says, retry_after
    ended, error, (problem,) = after_loading(pool)
    assert pool.posts == requests
    if answered_s:
        assert (ended, error) == (answered_s, None)
        assert problem.startswith("asks to wait; ")
        assert ("oading" in problem) == (says is LoadingPool.says)
    else:
        assert ended == 10.0, "at once; ``after_loading`` looks then"
        assert "is not ready: HTTP 503, Maintenance. Wait, or check its log" in str(error)


@pytest.mark.parametrize("status", [429, 529])
def test_a_question_waits_where_a_server_limits_its_requests(status: int) -> None:
    pool = LoadingPool(45.0, refuses=True, owner="acme")
    pool.says, pool.status, pool.retry_after = b"Overloaded", status, "30"
    ended, error, (problem,) = after_loading(pool)
    assert (ended, error, pool.posts) == (60.0, None, 4)
    assert problem.startswith("asks to wait; ")


@pytest.mark.parametrize(
    ("begin_s", "read_s", "answered"),
    [(0.0, 0.0, False), (3600.0, 0.0, True), (3600.0, 3.0, True), (3600.0, 30.0, True)],
)
def test_an_idle_server_may_be_loading_its_model(
    begin_s: float, read_s: float, answered: bool
) -> None:
    """Reading ahead that is cancelled before an answer says nothing about the model."""
    pool = LoadingPool(45.0, refuses=False, owner="acme")
    ended, error, _ = after_loading(pool, begin_s, read_s)
    assert ended == pytest.approx(45.0 if answered else 20.0, abs=0.5)
    assert (error is None) == answered


@pytest.mark.parametrize("refuses", [True, False])
def test_the_wait_for_a_model_is_limited(refuses: bool) -> None:
    ended, error, _ = after_loading(LoadingPool(9999.0, refuses=refuses, owner="library"))
    assert ended == pytest.approx(180.0, abs=3.0)
    assert isinstance(error, EngineError)


def test_the_time_until_a_gateway_refuses_counts() -> None:
    pool = LoadingPool(9999.0, refuses=True, owner="acme")
    pool.refused_after_s = 15.0
    ended, error, _ = after_loading(pool)
    assert ended == pytest.approx(180.0, abs=20.0)
    assert isinstance(error, EngineError)


@pytest.mark.parametrize("refuses", [True, False])
def test_cancelled_work_no_longer_waits_for_the_model(refuses: bool) -> None:
    pool = LoadingPool(60.0, refuses=refuses, owner="acme")
    work = Work()

    async def main() -> None:
        engine = well(pool, Kind.LLM, "openai-chat")
        asyncio.get_running_loop().call_later(7.3, work.cancel)
        try:
            await finished(engine, work)
        finally:
            assert not engine.endpoint.busy

    ended, error = at(main())
    assert (ended, type(error)) == (7.3, Cancelled)


def test_a_model_is_kept_warm_every_few_minutes() -> None:
    async def main(keep_warm: bool) -> int:
        pool = LoadingPool(0.0, refuses=False, owner="library")
        engine = well(pool, Kind.LLM, "openai-chat", keep_warm=keep_warm)
        life = asyncio.create_task(engine.run(lambda: None))
        await asyncio.sleep(3000)
        engine.close()
        await life
        return pool.posts

    assert run_virtual(main(False)) == 0
    assert run_virtual(main(True)) in range(10, 13)


def test_comments_are_no_sign_of_life() -> None:
    answer = ScriptedAnswer(KINDS["openai-chat"], [1.0, b": ping\n\n"] * 100)
    ended, error = at(finished(well(ScriptedPool(answer), Kind.LLM, "openai-chat"), Work()))
    assert (ended, type(error).__name__) == (20.0, "ServerTimeout")


def test_thoughts_are_a_sign_of_life() -> None:
    thought = chunk(reasoning_content="hm")
    answer = ScriptedAnswer(KINDS["openai-chat"], [*[9.0, thought] * 10, END])
    ended, error = at(finished(well(ScriptedPool(answer), Kind.LLM, "openai-chat"), Work()))
    assert (ended, error) == (90.0, None)


def test_a_slow_reader_does_not_count_as_a_slow_server() -> None:
    answer = ScriptedAnswer(KINDS["openai-chat"], [2.0, *[chunk(content="word ")] * 3, 1.0, END])
    engine = well(ScriptedPool(answer), Kind.LLM, "openai-chat")
    work = Work()

    async def read_slowly() -> None:
        talk = engine.open()
        async with aclosing(talk.reply(LlmRequest(HELLO), work)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    await asyncio.sleep(100)

    ended, error = at(read_slowly())
    assert (ended, error) == (303.0, None)
    assert work.engine_seconds == 3.0


def test_missing_usage_figures_are_not_waited_for() -> None:
    answer = ScriptedAnswer(KINDS["openai-chat"], [chunk(content="Hello."), END, NEVER])
    engine = well(ScriptedPool(answer), Kind.LLM, "openai-chat")

    async def reply() -> Any:
        talk = engine.open()
        deltas = talk.reply(LlmRequest(HELLO), Work())
        return [delta async for delta in deltas][-1]

    ended, last = at(reply())
    assert ended == 0.5
    assert isinstance(last, Finished)


@pytest.mark.parametrize("head_s", [NEVER, 0.0])
def test_cancelled_work_ends_in_the_same_moment(head_s: float) -> None:
    answer = ScriptedAnswer(KINDS["openai-chat"], [NEVER])
    engine = well(ScriptedPool(answer, head_s), Kind.LLM, "openai-chat")
    work = Work()

    async def cancelled_later() -> None:
        asyncio.get_running_loop().call_later(7.0, work.cancel)
        await finished(engine, work)

    ended, error = at(cancelled_later())
    assert ended == 7.0
    assert isinstance(error, Cancelled)
    assert answer.closed == (head_s == 0.0)
    assert work.engine_seconds == 7.0
