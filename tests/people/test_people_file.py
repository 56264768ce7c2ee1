"""The file of people, on the command line and on disk."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from app.cli import __main__ as cli
from app.people.file import PeopleFile, PeopleList, WrongPerson
from pipeline.audio import LISTEN_RATE
from pipeline.errors import ConfigError
from tests.support.small_engines import install

pytestmark = pytest.mark.quick

MODEL, OTHER_MODEL = "a" * 64, "b" * 64
VOICE = np.eye(8, dtype=np.float32)[0]


@pytest.fixture
def file(tmp_path: Path) -> PeopleFile:
    return PeopleFile(tmp_path / "made" / "access.json")


def add(file: PeopleFile, name: str, model: str = MODEL) -> PeopleList:
    return file.change(lambda known: known.with_person(name, VOICE, model))


def test_a_voice_is_readable_by_its_owner_only_and_removable(file: PeopleFile) -> None:
    assert file.read() == PeopleList()
    add(file, "Tom")
    assert file.path.name == "people.json"
    assert file.path.stat().st_mode & 0o777 == 0o600
    [tom] = file.read().voices(MODEL)
    assert (tom.name, tom.voice.tolist()) == ("Tom", VOICE.tolist())
    add(file, "Anna")
    file.change(lambda known: known.without("tom"))
    assert [each.name for each in file.read().people] == ["Anna"]
    file.change(lambda known: known.without("Anna"))
    assert not file.path.exists()
    assert not list(file.path.parent.glob(".people*"))


@pytest.mark.parametrize("name", ["Tom", "TOM", " ", "a\nb", "-rf", "x" * 41])
def test_an_invalid_name_is_refused(file: PeopleFile, name: str) -> None:
    before = add(file, "Tom")
    with pytest.raises(WrongPerson):
        add(file, name)
    assert file.read() == before


@pytest.mark.parametrize(
    ("kept", "typed"),
    [
        ("Jos\u00e9", "Jose\u0301"),
        ("Tom", " tom "),
        ("Anna Maria", "Anna\u00a0Maria"),
        ("Anna Maria", "anna  Maria"),
        (
            "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627",
            "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627",
        ),
    ],
)
def test_a_name_is_the_same_however_it_is_typed(file: PeopleFile, kept: str, typed: str) -> None:
    assert [each.name for each in add(file, typed.title()).people] == [kept]
    with pytest.raises(WrongPerson, match="already"):
        add(file, typed)
    assert not file.change(lambda known: known.without(typed)).people


@pytest.mark.parametrize(("number", "value"), [(0, 0.0), (3, 1e37), (0, 10.0), (0, np.nan)])
def test_a_voice_that_is_like_everybodys_is_not_used(
    file: PeopleFile, number: int, value: float
) -> None:
    voice = VOICE.copy()
    voice[number] = value
    file.change(lambda known: known.with_person("Anna", VOICE, MODEL))
    whole, damaged = (base64.b64encode(each.tobytes()).decode() for each in (VOICE, voice))
    file.path.write_text(file.path.read_text().replace(whole, damaged))
    with pytest.raises(ConfigError, match="not the numbers of a voice"):
        file.read()


def test_voices_of_another_model_are_refused_and_kept(file: PeopleFile) -> None:
    before = add(file, "Tom")
    for use in (lambda: before.voices(OTHER_MODEL), lambda: add(file, "Anna", OTHER_MODEL)):
        with pytest.raises(ConfigError, match="another speaker engine") as refusal:
            use()
        assert "Set it back" in refusal.value.fix
    assert file.read() == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"people": [{"name": "Tom"}]}',
        '{"version": 2}',
        '{"people": [{"name": "Tom", "voice": "AAAA"}]}',
        '{"people": [{"name": "Tom", "voice": "no base64"}]}',
    ],
)
def test_an_unreadable_file_is_not_overwritten(file: PeopleFile, content: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(content)
    file.path.chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be understood"):
        add(file, "Tom")
    assert file.path.read_text() == content


@pytest.mark.parametrize(("mode", "verb"), [(0o644, "read"), (0o620, "write to")])
def test_a_file_that_others_can_use_is_not_used(file: PeopleFile, mode: int, verb: str) -> None:
    add(file, "Tom")
    file.path.chmod(mode)
    with pytest.raises(ConfigError, match=f"can {verb} it"):
        file.read()


def test_a_full_disk_loses_nobody(file: PeopleFile, monkeypatch: pytest.MonkeyPatch) -> None:
    before = add(file, "Tom")

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        add(file, "Anna")
    monkeypatch.undo()
    assert file.read() == before
    assert not list(file.path.parent.glob(".people*"))


def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    access = tmp_path / "access.json"
    monkeypatch.setenv("REACHY_VOICE__PATHS__ACCESS_FILE", str(access))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["reachy-voice", "people", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out + captured.err

    assert run("list") == (0, "Nobody. To add somebody: reachy-voice people add NAME\n")
    add(PeopleFile(access), "Tom")
    code, text = run("list")
    assert code == 0
    assert text.startswith("Tom ")
    assert run("remove", "Anna")[0] == 2
    assert run("add", "tom", "--file", "absent.wav")[0] == 2  # before anything is recorded
    assert run("remove", "Tom") == (0, "Tom is forgotten.\n")
    assert not access.with_name("people.json").exists()


@pytest.mark.parametrize(
    ("seconds", "told"), [(22, "Tom is known now."), (8, "There are 8 s of speech")]
)
def test_a_voice_is_learned_from_a_recording(
    seconds: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(monkeypatch)
    monkeypatch.setenv("REACHY_VOICE__PATHS__ACCESS_FILE", str(tmp_path / "access.json"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    recording = np.random.default_rng(1).choice([-3000, 3000], seconds * LISTEN_RATE)
    soundfile.write(tmp_path / "tom.wav", recording.astype(np.int16), LISTEN_RATE)
    words = ["add", "Tom", "--file", str(tmp_path / "tom.wav")]
    words += ["--set", "vad={engine: small}", "--set", "speaker={engine: small}"]
    monkeypatch.setattr("sys.argv", ["reachy-voice", "people", *words])
    with pytest.raises(SystemExit):
        cli.main()
    captured = capsys.readouterr()
    assert told in captured.out + captured.err
    known = PeopleFile(tmp_path / "access.json").read().people
    assert [each.name for each in known] == (["Tom"] if seconds > 20 else [])


def test_no_error_or_listing_contains_the_voice(file: PeopleFile) -> None:
    known = add(file, "Tom")
    text = json.loads(file.path.read_text())["people"][0]["voice"]
    assert text not in repr(known)
