"""An upgrade keeps keys, weights, settings and rooms: this server on earlier data."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from app.access.file import AccessFile
from app.settings.load import load_settings
from app.talk.known_rooms import KnownRooms
from tests.support.places import DATA
from tests.support.programs import running

pytestmark = pytest.mark.engines

RELEASES = sorted(path.name for path in DATA.glob("release-*"))
KEYS = {
    "release-0.1.0": (
        "rv_m1zRrnWe49zYwxQUX0wUq_B86-A-rQC7k1v5oaOlgWI",
        "rv_uzS7p2emRfEigW5vzjYn69j4v5fdFLi0plmMknPWtz0",
    )
}
"""The key that it showed its owner once; valid nowhere else."""
REAL_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "reachy-voice"


@pytest.fixture(params=RELEASES)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data as that release left it, weights included."""
    kept = tmp_path / request.param
    shutil.copytree(DATA / request.param, kept)
    own = kept / "config" / "reachy-voice"
    own.chmod(0o700)
    (own / "access.json").chmod(0o600)
    cache = kept / "cache" / "reachy-voice"
    for name, size in json.loads((cache / "weights.json").read_text()).items():
        real, here = REAL_CACHE / name, cache / name
        assert real.stat().st_size == size, f"{name} is another file today: it would be fetched"
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(real)
    return kept


@pytest.fixture
def environ(data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REACHY")}
    folders = {f"XDG_{name.upper()}_HOME": str(data / name) for name in ("config", "cache")}
    return {**kept, **folders, "REACHY_VOICE_OFFLINE": "1"}


@pytest.mark.real
async def test_the_server_starts_on_old_data_and_knows_the_keys(
    data: Path, environ: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "app.cli", "serve", "--set", "server.port=0"]
    async with running(*command, ready="Warming", env=environ) as server:
        port = re.search(r":(\d+)/v1", await server.until("Ready."))
        assert port is not None
        models = f"http://127.0.0.1:{port[1]}/v1/models"
        async with httpx.AsyncClient() as client:
            for key, status in [*((key, 200) for key in KEYS[data.name]), ("rv_wrong", 401)]:
                told = await client.get(models, headers={"Authorization": f"Bearer {key}"})
                assert told.status_code == status


def test_every_setting_keeps_its_meaning(data: Path, environ: dict[str, str]) -> None:
    file = data / "config" / "reachy-voice" / "settings.yaml"
    loaded = load_settings(environ=environ).settings
    settings = loaded.model_dump(mode="json")
    written = YAML(typ="safe").load(file.read_text())
    del written["extends"]
    for section, values in written.items():
        retired = getattr(getattr(loaded, section), "retired", ())  # with a warning
        for key, value in values.items():
            now = settings[section].get(key)
            if isinstance(value, dict):  # newer settings may stand beside the saved ones
                now = {name: now.get(name) for name in value}
            assert key in retired or now == value, f"{section}.{key}"


def test_allowed_addresses_stay_allowed(data: Path) -> None:
    known = AccessFile(data / "config" / "reachy-voice" / "access.json").read()
    assert [(str(each.network), each.note) for each in known.addresses] == [
        ("192.168.1.7/32", "the robot"),
        ("10.20.0.0/16", ""),
    ]
    assert [(each.name, each.admin) for each in known.keys] == [("laptop", False), ("owner", True)]


def test_the_learned_room_is_known(data: Path) -> None:
    rooms = KnownRooms(data / "cache" / "reachy-voice" / "rooms")
    room = rooms.of("USB Microphone", "Speakers")
    assert room is not None
    assert (room.delay_samples, room.state.ppm) == (1920, 35.5)
    assert room.state.weights[0, 1, 0] == pytest.approx(0.25 + 0.5j)
