"""The owner's list of addresses and keys, on disk and on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from app.access.file import AccessFile, AccessList, new_key
from app.access.policy import digest, parse_network
from app.settings.check import SettingsError
from app.settings.load import load_settings
from pipeline.errors import ConfigError
from tests.support import commands

pytestmark = pytest.mark.quick

KEY = "a-key-of-sixteen-or-more"


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "made" / "access.json")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- the file ----------------------------------------------------------------------------------


def test_without_a_file_no_address_is_allowed(file: AccessFile) -> None:
    assert file.read() == AccessList()
    assert file.current() == AccessList()
    assert not file.path.parent.exists()


def test_a_written_file_reads_back_and_only_its_owner_may_read_it(file: AccessFile) -> None:
    file.change(lambda known: known.with_address(parse_network("192.168.1.7"), "Reachy"))
    file.change(lambda known: known.with_key("laptop", KEY))
    read = AccessFile(file.path).read()
    assert read.networks() == [parse_network("192.168.1.7")]
    assert read.digests() == [digest(KEY.encode())]
    assert (mode(file.path), mode(file.path.parent)) == (0o600, 0o700)
    assert KEY not in file.path.read_text()
    assert {path.name for path in file.path.parent.iterdir()} == {"access.lock", "access.json"}


def test_a_network_is_listed_once(file: AccessFile) -> None:
    for text in ("192.168.1.7/24", "192.168.1.9/24"):
        file.change(lambda known, text=text: known.with_address(parse_network(text), text))
    (entry,) = file.read().addresses
    assert (entry.network, entry.note) == ("192.168.1.0/24", "192.168.1.9/24")


def test_changes_at_the_same_time_are_all_kept(file: AccessFile) -> None:
    def add(n: int) -> None:
        file.change(lambda known: known.with_address(parse_network(f"10.0.0.{n}"), ""))

    threads = [threading.Thread(target=add, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read().addresses) == 20


def test_a_slow_reader_does_not_restore_removed_entries(file: AccessFile) -> None:
    """Each refused caller reads the file in a separate thread."""
    robot = parse_network("192.168.1.7")
    file.change(lambda known: known.with_address(robot, ""))
    has_read, others_wait = threading.Event(), threading.Event()

    class Slow(AccessFile):
        def read(self) -> AccessList:
            known = super().read()
            if threading.current_thread() is slow:
                has_read.set()
                assert others_wait.wait(5), "somebody read beside it"
            return known

    class Lock:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread() is not slow:
                others_wait.set()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    server = Slow(file.path)
    server._reading = Lock()  # type: ignore[assignment]
    slow = threading.Thread(target=server.current)
    slow.start()
    has_read.wait()
    file.change(lambda known: known.without_address(robot))
    assert server.current().addresses == ()
    slow.join()
    assert server.current().addresses == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2}',
        '{"adresses": []}',
        '{"addresses": [{"network": "robot"}]}',
        '{"keys": [{"name": "a", "sha256": "12"}]}',
        '{"keys": [{"name": "a", "sha256": 12}]}',
    ],
)
def test_a_broken_file_admits_no_client_and_is_not_overwritten(
    file: AccessFile, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.change(lambda known: known.with_address(parse_network("10.0.0.1"), ""))
    assert file.current().addresses
    file.path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be understood") as error:
        file.read()
    assert str(file.path) in error.value.fix
    assert file.current() == file.current() == AccessList()
    assert len(caplog.records) == 1
    with pytest.raises(ConfigError):
        file.change(lambda known: known.with_key("laptop", KEY))
    assert file.path.read_text() == text


def test_a_file_that_others_may_write_is_not_trusted(file: AccessFile) -> None:
    file.change(lambda known: known.with_address(parse_network("10.0.0.1"), ""))
    file.path.chmod(0o622)
    with pytest.raises(ConfigError, match="other users") as error:
        file.read()
    assert "chmod 600" in error.value.fix
    assert file.current() == AccessList()
    file.path.chmod(0o644)  # it holds only digests
    assert file.read().addresses


def test_an_unwritable_place_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        AccessFile(blocked / "access.json").change(lambda known: known.with_key("a", KEY))


def test_a_failed_edit_changes_neither_file_nor_lock(file: AccessFile) -> None:
    def fail(known: AccessList) -> AccessList:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        file.change(fail)
    file.change(lambda known: known.with_key("a", KEY))
    assert len(file.read().keys) == 1


def test_new_keys_are_long_and_never_the_same() -> None:
    keys = {new_key("laptop") for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) >= 43 and key.isascii() for key in keys)


# --- the command line --------------------------------------------------------------------------

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], file: AccessFile, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("REACHY_VOICE__PATHS__ACCESS_FILE", str(file.path))
    return partial(commands.run, capsys)


def test_allow_list_remove(run: Run, file: AccessFile) -> None:
    assert "None. " in run("allow", "--list")[1]
    code, printed = run("allow", "::ffff:192.168.1.7", "fd00::/8", "--note", "Reachy")
    assert code == 0
    assert "192.168.1.7 may connect" in printed
    assert "Careful" in printed
    code, printed = run("allow", "--list", "--set", "access.addresses=[10.1.2.3]")
    assert "Reachy" in printed
    assert "10.1.2.3" in printed
    assert run("allow", "--remove", "192.168.1.7")[0] == 0
    assert file.read().networks() == [parse_network("fd00::/8")]
    code, printed = run("allow", "--remove", "192.168.1.7")
    assert code == 2
    assert "is not on the list" in printed


def test_remove_reports_what_still_admits_the_address(run: Run, file: AccessFile) -> None:
    run("allow", "192.168.1.7", "192.168.0.0/16", "127.0.0.1")
    in_settings = ("--set", "access.addresses=[192.168.1.0/24, 10.0.0.1]")
    code, printed = run("allow", "--remove", "192.168.1.7", *in_settings)
    assert code == 0
    assert "may no longer" not in printed
    assert "may still connect" in printed
    assert "192.168.0.0/16 is allowed\n" in printed
    assert "192.168.1.0/24 is allowed (access.addresses)\n" in printed
    assert "10.0.0.1" not in printed
    code, printed = run("allow", "--remove", "192.168.1.9")
    assert code == 2
    assert "192.168.0.0/16 is allowed" in printed
    code, printed = run("allow", "--remove", "192.168.0.0/16", *in_settings)
    assert "192.168.1.0/24 is allowed (access.addresses), which is a part of it" in printed
    assert "access.loopback" in run("allow", "--remove", "127.0.0.1")[1]
    run("allow", "127.0.0.1")
    printed = run("allow", "--remove", "127.0.0.1", "--set", "access.loopback=false")[1]
    assert "may no longer connect" in printed


def test_a_network_is_reported_as_one(run: Run) -> None:
    printed = run("allow", "192.168.1.7/24")[1]
    assert "256 addresses, 192.168.1.0 to 192.168.1.255" in printed
    assert "reachy-voice allow 192.168.1.7, and allow --remove 192.168.1.0/24" in printed
    assert "If you meant" not in run("allow", "10.0.0.0/24")[1]
    assert "addresses" not in run("allow", "192.168.1.7")[1]
    assert "Careful: these are 16,777,216 addresses" in run("allow", "10.0.0.0/8")[1]


def test_a_note_stays_until_another_is_given(run: Run, file: AccessFile) -> None:
    run("allow", "192.168.1.7", "--note", "Reachy")
    run("allow", "192.168.1.7")
    assert [entry.note for entry in file.read().addresses] == ["Reachy"]
    run("allow", "192.168.1.7", "--note", "")
    assert [entry.note for entry in file.read().addresses] == [""]


@pytest.mark.parametrize(
    "arguments",
    [
        ["allow"],
        ["allow", "robot"],
        ["allow", "--remove"],
        ["key", "new", ""],
        ["key", "new", " "],
        ["key", "new", "a\nb"],
        ["key", "new", "a\udcff"],
        ["key", "new", "--", "--help"],
        ["allow", "10.0.0.1", "--note", "a\udcff"],
        ["allow", "10.0.0.1", "--note", "a\nb"],
        ["allow", "10.0.0.\udcff"],
        ["key", "rm", "\udcff"],
        ["allow", "--remove", "--list"],
    ],
)
def test_mistakes_and_odd_texts_change_nothing(
    run: Run, file: AccessFile, arguments: list[str]
) -> None:
    code, printed = run(*arguments)
    assert (code, "do:" in printed) == (2, True), printed
    assert file.read() == AccessList()


def test_a_list_cannot_be_forged_by_a_name(run: Run, file: AccessFile) -> None:
    file.change(lambda known: known.with_key("a\nroot    since 2020-01-01", KEY))
    file.change(lambda known: known.with_address(parse_network("10.0.0.1"), "x\n10.0.0.2"))
    assert len(run("key", "list")[1].splitlines()) == 1
    assert len(run("allow", "--list")[1].splitlines()) == 1


def test_a_key_is_shown_once_and_kept_as_a_digest(run: Run, file: AccessFile) -> None:
    code, printed = run("key", "new", "laptop")
    key = printed.split()[0]
    assert code == 0
    assert file.read().digests() == [digest(key.encode())]
    listed = run("key", "list")[1]
    assert "laptop" in listed
    assert key not in listed
    assert key not in file.path.read_text()
    assert run("key", "new", "laptop")[0] == 2
    assert run("key", "rm", "nobody")[0] == 2
    assert run("key", "rm", "laptop")[0] == 0
    assert file.read().keys == ()
    assert "There is no key" in run("key", "list")[1]


# --- settings ----------------------------------------------------------------------------------


def test_keys_in_settings_are_hidden_everywhere(run: Run) -> None:
    settings = load_settings(None, [f"access.keys=[{KEY}]"], {}).settings
    assert len(settings.access.keys) == 1
    code, printed = run("config", "explain", "--set", f"access.keys={KEY}", "--json")
    assert code == 0
    assert json.loads(printed)["access.keys"]["value"] == ["(hidden)"]
    shown = (repr(settings), str(settings.model_dump()), settings.model_dump_json(), printed)
    for text in shown:
        assert KEY not in text
        assert digest(KEY.encode()).hex() not in text


@pytest.mark.parametrize(
    "given", ["short", "[123456789012345678]", "1234567890123456789", "{a: b}"]
)
def test_a_key_that_cannot_be_used_is_not_repeated(given: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(None, [f"access.keys={given}"], {})
    assert "access.keys" in str(error.value)
    assert given.strip("[]") not in str(error.value)


@pytest.mark.parametrize(
    ("sets", "environ"),
    [
        ([], {"REACHY_VOICE__ACCESS__KEYS": f"{KEY}\udcff"}),
        ([f"access.keys={KEY}", "access.hosts=a\udcff"], {}),
        ([f"access.keys=[[{KEY}]]"], {}),
        ([f"access=[{KEY}]"], {}),
    ],
)
def test_a_section_with_keys_is_not_repeated(sets: list[str], environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="access") as error:
        load_settings(None, sets, environ)
    assert KEY not in str(error.value)


def test_keys_from_the_environment() -> None:
    one = load_settings(None, (), {"REACHY_VOICE__ACCESS__KEYS": KEY}).settings
    two = load_settings(None, (), {"REACHY_VOICE__ACCESS__KEYS": f"[{KEY}, {KEY}2]"}).settings
    assert one.access.keys[0] == two.access.keys[0]
    assert len(two.access.keys) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("access.addresses=[robot]", "IP address"),
        ("access.origins=[localhost:3000]", "origin of a web page"),
        ("access.origins=['null']", "origin of a web page"),
        ("access.hosts=['box:8765']", "without a port"),
        ("server.tls=yes", "generate"),
        ("server.tls={certificate: a.pem}", "server.tls.key"),
        ("limits.idle_s=0", "limits.idle_s"),
    ],
)
def test_settings_that_cannot_be_used(given: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(None, [given], {})


def test_the_file_is_in_the_config_directory() -> None:
    paths = load_settings(None, (), {}).settings.paths
    expected = Path("/x/reachy-voice/access.json")
    assert paths.access({"XDG_CONFIG_HOME": "/x"}) == expected
    assert paths.access({}) == Path("~/.config/reachy-voice/access.json").expanduser()
