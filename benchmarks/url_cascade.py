"""What three URLs add to the slowest path: transcript, first clause, first sound, in this order.

    python -m benchmarks.url_cascade [-n TURNS] [--gap-s S] [--fresh] [--nagle] [--out FILE]

Each turn takes the same path twice, in random order: over scripted stages in this process, which
sleep as long as engines of an RTX 4090 take (``benchmarks.scripted_engines`` has the sources), and
over the three engines by URL, whose servers sleep as long in a process of their own. The overhead
is the difference of the two, turn by turn: HTTP, JSON, a WAV file and its form, the loopback and
the other process's timers. A network adds its round trips.

``--gap-s``: silence between two turns. ``--fresh``: each request opens a connection. ``--nagle``:
the servers delay small pieces, as vLLM's do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scripted_engines import ANSWERS, LLM_FIRST_TOKEN_S, STT_FINAL_S
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.contract import Delta, Finished, Partial, TextDelta, Transcript
from pipeline.engines.registry import Kind, UrlEngineSpec, engine_spec
from pipeline.messages import Message, Sampling, SpeechRequest, ToolChoice, Usage
from pipeline.work import Work

TOKEN_S = 1 / 190
"""The middle of ``scripted_engines.LLM_TOKENS_PER_S``."""
TTS_FIRST_S = 0.060
"""Anchors, section 5: two steps and the start."""
CLAUSE_TOKENS = 7
"""Words until the voice has something to say (anchors, section 1)."""
UTTERANCE_S = 3.0
BAR_MS = 15.0
"""Issue 6: the most that three URLs may add to the slowest path."""
STAGES = ("transcript", "first clause", "first sound", "whole path")
CPU = "CPU here"
"""Of this process, for the whole path: what hardly depends on how busy the machine is."""
HISTORY_TURNS = 10
"""Of the conversation that goes with each request."""

SPEECH: Pcm = (
    np.random.default_rng(1).normal(0, 900, int(UTTERANCE_S * LISTEN_RATE)).astype(np.int16)
)
WORDS = [f"{word} " for word in " ".join(ANSWERS).split()[:40]]


# --- the two ways ------------------------------------------------------------------------------


class DirectStt:
    async def open(self, language: str, partials: bool, work: Work) -> DirectStt:
        return self

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        return Partial()

    async def finish(self, work: Work) -> Transcript:
        await asyncio.sleep(STT_FINAL_S)
        return Transcript("What time is it?", UTTERANCE_S)


class DirectConversation:
    async def reply(self, *asked: Any) -> AsyncGenerator[Delta, None]:
        now = asyncio.get_running_loop().time
        due = now() + LLM_FIRST_TOKEN_S
        for word in WORDS:
            await asyncio.sleep(due - now())
            yield TextDelta(word)
            due += TOKEN_S
        yield Finished("stop", Usage())


class DirectTts:
    async def synthesize(self, *asked: Any) -> AsyncGenerator[Pcm, None]:
        await asyncio.sleep(TTS_FIRST_S)
        yield np.zeros(2400, np.int16)


class Cascade:
    """Three stages, and one turn through them."""

    def __init__(self, stt: Any, conversation: Any, tts: Any) -> None:
        self._stt = stt
        self._conversation = conversation
        self._tts = tts

    async def turn(self, history: list[Message]) -> dict[str, float]:
        """Milliseconds of each stage, and of all."""
        now = asyncio.get_running_loop().time
        work = Work()
        utterance = await self._stt.open("en", False, work)
        await utterance.feed(SPEECH, work)
        times, began_cpu_s = [now()], time.process_time()
        said = await utterance.finish(work)
        times.append(now())
        messages = [*history, Message("user", said.text)]
        stream = self._conversation.reply(messages, (), ToolChoice(), Sampling(), work)
        clause = ""
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    clause += delta.text
                if len(clause.split()) >= CLAUSE_TOKENS:
                    break
            times.append(now())
            async with aclosing(self._tts.synthesize(SpeechRequest(clause), work)) as sounds:
                await anext(sounds)
                times.append(now())
                cpu_ms = (time.process_time() - began_cpu_s) * 1000
                # To the end, as a session does: that keeps the connections.
                async for _ in sounds:
                    pass
            async for _ in deltas:
                pass
        steps = [(b - a) * 1000 for a, b in itertools.pairwise(times)]
        return dict(zip((*STAGES, CPU), [*steps, sum(steps), cpu_ms], strict=True))


# --- servers, in a process of their own --------------------------------------------------------


async def serve(nodelay: bool, fresh: bool) -> None:
    """Print three ports; end with stdin."""
    from tests.support.far_server import FarServer, serving

    ears = FarServer("speech", first_s=STT_FINAL_S)
    brain = FarServer(words=WORDS, first_s=LLM_FIRST_TOKEN_S, per_token_s=TOKEN_S)
    voice = FarServer("speech", first_s=TTS_FIRST_S)
    for far in (ears, brain, voice):
        far.closes = fresh
        far.forgets = True
    async with (
        serving(ears, nodelay=nodelay),
        serving(brain, nodelay=nodelay),
        serving(voice, nodelay=nodelay),
    ):
        print(ears.port, brain.port, voice.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def servers(nodelay: bool, fresh: bool) -> Iterator[list[str]]:
    command = [sys.executable, "-m", "benchmarks.url_cascade", "--serve"]
    command += [] if nodelay else ["--nagle"]
    command += ["--fresh"] if fresh else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        ports = process.stdout.readline().split()
        yield [f"http://127.0.0.1:{int(port)}/v1" for port in ports]


def built(kind: Kind, name: str, url: str, pool: Pool) -> UrlEngine:
    spec = engine_spec(kind, name)
    assert isinstance(spec, UrlEngineSpec)
    engine: UrlEngine = spec.build(spec.options.model_validate({"engine": name, "url": url}), pool)
    return engine


async def measure(urls: list[str], turns: int, gap_s: float, api: str) -> dict[str, Any]:
    names = (
        (Kind.STT, "openai-transcriptions"),
        (Kind.LLM, api),
        (Kind.TTS, "openai-speech"),
    )
    direct = Cascade(DirectStt(), DirectConversation(), DirectTts())
    order = random.Random(1)
    rows: dict[str, list[dict[str, float]]] = {"direct": [], "url": []}
    async with Pool() as pool, asyncio.TaskGroup() as group:
        engines = [built(*name, url, pool) for name, url in zip(names, urls, strict=True)]
        for engine in engines:
            group.create_task(engine.run(lambda: None))
            await engine.ready.wait()
        stt, llm, tts = (engine.stage for engine in engines)
        ways = {"direct": direct, "url": Cascade(stt, llm.open(), tts)}
        history = [Message("system", "You are Reachy, a small friendly robot. " * 8)]
        for number in range(HISTORY_TURNS):
            history += [Message("user", "And then?"), Message("assistant", ANSWERS[number % 10])]
        for number in range(turns + 1):
            for way in order.sample(sorted(ways), 2):
                await asyncio.sleep(gap_s)
                took = await ways[way].turn(history)
                if number:  # the first one opens connections
                    rows[way].append(took)
        for engine in engines:
            engine.close()
    return summary(rows)


def summary(rows: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Percentiles in ms of each way, and of the difference turn by turn. On a busy machine P10 is
    near to what an idle one would show."""
    found: dict[str, Any] = {}
    for stage in (*STAGES, CPU):
        direct, url = (np.array([row[stage] for row in rows[way]]) for way in ("direct", "url"))
        columns = {"direct": direct, "url": url, "added": url - direct}
        found[stage] = {name: percentiles(values) for name, values in columns.items()}
    return found


def percentiles(values: Any) -> dict[str, float]:
    p10, p50, p95, p99 = np.percentile(values, (10, 50, 95, 99))
    named = {"p10": p10, "p50": p50, "p95": p95, "p99": p99, "most": values.max()}
    return {name: round(float(ms), 2) for name, ms in named.items()}


def show(found: Mapping[str, Any], turns: int, write: Callable[[str], None] = print) -> None:
    names = ("p10", "p50", "p95", "p99")
    head = "".join(f"{name.upper():>7}" for name in names)
    write(f"{f'ms, n {turns}':16}{'direct P50':>11}{'URL P50':>9}  added:{head}")
    for stage, columns in found.items():
        added = "".join(f"{columns['added'][name]:7.1f}" for name in names)
        left = f"{stage:16}{columns['direct']['p50']:11.1f}{columns['url']['p50']:9.1f}"
        write(f"{left}        {added}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.url_cascade")
    parser.add_argument("-n", type=int, default=200, metavar="TURNS")
    parser.add_argument("--gap-s", type=float, default=0.3)
    parser.add_argument("--api", default="openai-chat", choices=("openai-chat", "openai-responses"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--nagle", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(not options.nagle, options.fresh))
        return
    load_before = os.getloadavg()[0]
    with servers(not options.nagle, options.fresh) as urls:
        found = asyncio.run(measure(urls, options.n, options.gap_s, options.api))
    show(found, options.n)
    report = {
        "ms": found,
        "n": options.n,
        "gap_s": options.gap_s,
        "api": options.api,
        "fresh_connections": options.fresh,
        "servers_with_nagle": options.nagle,
        "load_average": [load_before, os.getloadavg()[0]],
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(0 if found["whole path"]["added"]["p95"] <= BAR_MS else 1)


if __name__ == "__main__":
    main()
