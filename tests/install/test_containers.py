"""The images' build inputs exist and include all that the wheel needs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from starlette.responses import JSONResponse

from app.access.policy import Caller, Refusal, Rules, Way, parse_address
from app.server.gate import Access, access_for
from app.server.health import not_ready_response
from app.server.local_key import local_key
from app.settings.load import load_settings
from app.setup.llama import PORTABLE
from tests.support.places import ROOT

pytestmark = pytest.mark.machine

FOLDER = ROOT / "containers"


def copied(containerfile: Path) -> list[str]:
    """The paths that the image copies from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", containerfile.read_text(), re.MULTILINE)
    return [word for line in lines for word in line.split()]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.cuda"])
def test_the_image_has_all_that_the_wheel_contains(name: str) -> None:
    taken = copied(FOLDER / name)
    files = {path for pattern in taken for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in taken)
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert set(taken) <= set(allowed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for needed in [*wheel["packages"], *wheel["force-include"], project["project"]["readme"]]:
        path = ROOT / needed
        assert files & {path, *path.parents}, f"{needed} is not copied"


def test_the_image_runs_on_other_processors_than_its_builder() -> None:
    stages = (FOLDER / "Containerfile").read_text().split("\nFROM ")[1:]
    assert len(stages) == 2
    assert all(f"{PORTABLE}=1" in stage for stage in stages)


def service(name: str) -> dict[str, Any]:
    services = YAML(typ="safe").load((FOLDER / name).read_text())["services"]
    assert list(services) == ["voice"]
    found: dict[str, Any] = services["voice"]
    return found


def test_the_gpu_is_added_to_the_same_service() -> None:
    for name in ("compose.yaml", "compose.cuda.yaml"):
        assert (ROOT / service(name)["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.cuda"])
def test_in_a_container_no_address_is_this_machine(name: str) -> None:
    image = (FOLDER / name).read_text().rpartition("\nFROM ")[2]
    assert re.findall(r"REACHY_VOICE__(\S+)", image) == ["ACCESS__LOOPBACK=false"]


def environment(containerfile: Path, folder: Path) -> dict[str, str]:
    """The image's environment variables, with its folders in ``folder``."""
    image = containerfile.read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    found = re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)", image, re.MULTILINE)))
    own = {name: re.sub("^/", f"{folder}/", value) for name, value in found}
    return {**own, "PATH": os.defpath, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.cuda"])
async def test_a_key_made_in_the_container_is_accepted_at_once(tmp_path: Path, name: str) -> None:
    environ = environment(FOLDER / name, tmp_path)
    settings = (await asyncio.to_thread(load_settings, None, (), environ)).settings
    access = await asyncio.to_thread(access_for, settings, environ, lambda line: None)
    caller = Caller(parse_address("127.0.0.1"), hosts=("localhost",))
    assert isinstance(await access.decide(caller, has_secret=False), Refusal)
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", "key", "new", "laptop"),
        env=environ,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    key, _ = await made.communicate()
    knows = replace(caller, keys=(key.strip(),))
    assert await access.decide(knows, has_secret=False) == Way.KEY
    assert os.listdir(tmp_path) == ["data"], "all else is read-only"


async def checked(answer: JSONResponse | None, asked: list[bytes] | None = None) -> bool:
    """The health check's verdict on a server that gives this answer, or none. ``asked`` gets its
    request; then a key for local programs exists."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /ready ")
        if asked is not None:
            asked.append(request)
        assert answer is not None
        writer.write(f"HTTP/1.1 {answer.status_code} Told\r\nContent-Length: ".encode())
        writer.write(f"{len(answer.body)}\r\n\r\n".encode() + bytes(answer.body))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if answer is None:
        server.close()
    how, python, *command = service("compose.yaml")["healthcheck"]["test"]
    assert (how, python) == ("CMD", "python")
    command = [word.replace("8765", str(port)) for word in command]
    # The check's time limit is meant for real servers, not for a test machine.
    command = [word.replace("timeout=2", "timeout=60") for word in command]
    async with server, local_key(Access(Rules(loopback=asked is None)), port, {}):
        check = await asyncio.create_subprocess_exec(
            sys.executable, *command, stderr=asyncio.subprocess.DEVNULL
        )
        return await check.wait() == 0


REFUSED = JSONResponse({"error": {"message": "no key"}}, 401)


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        (JSONResponse({"ready": True, "reasons": {}}), True),
        (not_ready_response({"server": "full"}), True),
        (not_ready_response({"llm": "loading", "server": "full"}), False),
        (REFUSED, False),
        (None, False),
    ],
)
async def test_the_health_check(answer: JSONResponse | None, healthy: bool) -> None:
    assert await checked(answer) is healthy


async def test_the_health_check_sends_the_key_of_local_programs() -> None:
    asked: list[bytes] = []
    assert await checked(JSONResponse({"ready": True, "reasons": {}}), asked)
    assert b"Authorization: Bearer rv_" in asked[0]
