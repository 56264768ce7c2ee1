"""How soon an answer stops that the client cancels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection

from app.cli.measuring import percentile
from app.talk.realtime_client import dial
from tests.support.programs import Program

ASKED = "Tell me a long story about a robot, a lighthouse and the sea."
LATE_S = 10.0


async def cancelled_answers(url: str, count: int, llama: Program | None) -> dict[str, Any]:
    """ms from ``response.cancel`` at the first sound of an answer: to the end of the response at
    the client, and until llama-server has stopped the model."""
    client_ms: list[float] = []
    server_ms: list[float] = []
    async with dial(url) as socket:
        for _ in range(count):
            await _begin(socket)
            began_at = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                stopping = group.create_task(_stopped_at(llama)) if llama else None
                await socket.send(json.dumps({"type": "response.cancel"}))
                await _until(socket, "response.done")
                client_ms.append((asyncio.get_running_loop().time() - began_at) * 1000)
            if stopping and (at := stopping.result()):
                server_ms.append((at - began_at) * 1000)
    return {"client": _spread(client_ms), "server": _spread(server_ms)}


async def _begin(socket: ClientConnection) -> None:
    """An answer, up to its first sound."""
    content = [{"type": "input_text", "text": ASKED}]
    item = {"type": "message", "role": "user", "content": content}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    await _until(socket, "response.output_audio.delta")


async def _until(socket: ClientConnection, kind: str) -> None:
    while json.loads(await socket.recv())["type"] != kind:
        pass


async def _stopped_at(llama: Program) -> float | None:
    """``None``: the model had finished before."""
    llama.forget()
    try:
        async with asyncio.timeout(LATE_S):
            await llama.until("cancel task")
            await llama.until("stop processing")
    except TimeoutError:
        return None
    return asyncio.get_running_loop().time()


def _spread(ms: Sequence[float]) -> dict[str, Any]:
    return {"n": len(ms), "p50": percentile(ms, 50), "p95": percentile(ms, 95)}
