"""Settings: precedence, origin, and error messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings.check import SettingsError
from app.settings.load import config_dir, load_settings, profile_names
from app.settings.model import PathSettings, Settings, TlsFiles
from app.settings.schema import build_schema, schema_path, schema_text
from app.settings.yaml_tree import leaves, read_tree
from pipeline.engines.registry import Kind
from pipeline.errors import ConfigError
from pipeline.messages import Sampling
from pipeline.settings import Endpointing

pytestmark = pytest.mark.quick

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a YAML file into the working directory; returns its path for ``load_settings``."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "my.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def load(path: str | None = None, *overrides: str, **environ: str) -> Any:
    return load_settings(path, overrides, environ)


def problems(path: str | None = None, *overrides: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        load(path, *overrides, **environ)
    return raised.value.problems


def error(path: str | None = None, *overrides: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(path, *overrides, **environ)
    assert raised.value.exit_code == 3
    return str(raised.value)


# --- the shipped files -------------------------------------------------------------------------


def test_default_yaml_agrees_with_the_models_and_has_every_key() -> None:
    tree = read_tree(config_dir() / "default.yaml")
    loaded = load()
    written = {key for key, _ in leaves(tree)}
    for name, field in Settings.model_fields.items():
        section = getattr(loaded.settings, name)
        engine = {"engine": section.engine} if name in list(Kind) else {}
        if name == Kind.LLM:
            # They belong to these weights, so other weights must not get them by default.
            section = section.model_copy(update={"adapters": ()})
        assert section == type(section)(**engine), f"{name} in default.yaml differs from {field}"
        for key, value in section.model_dump().items():
            keys = [f"{key}.{inner}" for inner in value] if isinstance(value, dict) else [key]
            optional = name in list(Kind) and key == "run_in"
            assert optional or {f"{name}.{k}" for k in keys} <= written, f"{name}.{key} is missing"


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid_and_names_the_schema(name: str) -> None:
    path = load(name).files[-1]
    modeline = path.read_text().splitlines()[0]
    assert modeline.startswith("# yaml-language-server: $schema=")
    assert (path.parent / modeline.partition("=")[2]).resolve() == schema_path().resolve()


def test_schema_json_is_up_to_date() -> None:
    assert schema_path().read_text() == schema_text(), "run: reachy-voice config schema"


def test_schema_knows_each_engines_own_keys() -> None:
    schema = build_schema()
    choices = [c["$ref"].rpartition("/")[2] for c in schema["properties"]["turn"]["anyOf"]]
    engines = {schema["$defs"][name]["properties"]["engine"]["const"] for name in choices}
    assert engines == {"silence", "smart-turn", "turn-1-mini"}
    assert schema["properties"]["extends"]
    assert schema["additionalProperties"] is False


# --- what wins ---------------------------------------------------------------------------------


def test_each_layer_wins_over_the_one_before_and_is_remembered(write: Write) -> None:
    write("server: {port: 1, max_sessions: 1, drain_s: 1}\nplayback: {lead_ms: 1}", "base.yaml")
    path = write("extends: ./base.yaml\nserver:\n  port: 2\n  max_sessions: 2\n  drain_s: 2")
    environ = {"REACHY_VOICE__SERVER__PORT": "3", "REACHY_VOICE__SERVER__MAX_SESSIONS": "3"}
    loaded = load(path, "server.port=4", **environ)

    server = loaded.settings.server
    assert (server.port, server.max_sessions, server.drain_s) == (4, 3, 2)
    assert loaded.settings.playback.lead_ms == 1
    assert loaded.origins["server.port"] == "--set server.port"
    expected = "environment REACHY_VOICE__SERVER__MAX_SESSIONS"
    assert loaded.origins["server.max_sessions"] == expected
    assert loaded.origins["server.drain_s"] == "my.yaml:5"
    assert loaded.origins["playback.lead_ms"] == "base.yaml:2"
    assert loaded.origins["server.host"].startswith("config/default.yaml:")
    assert [path.name for path in loaded.files] == ["default.yaml", "base.yaml", "my.yaml"]


def test_extends_is_relative_to_its_file(write: Write) -> None:
    write("extends: ../base.yaml", "deeper/middle.yaml")
    write("server: {port: 5}", "base.yaml")
    assert load(write("extends: deeper/middle.yaml")).settings.server.port == 5


def test_a_certificate_is_relative_to_its_settings_file(write: Write) -> None:
    path = Path(write("server: {tls: {certificate: a.pem, key: b.pem}}", "deeper/my.yaml"))
    tls = load(str(path)).settings.server.tls
    assert isinstance(tls, TlsFiles)
    assert (tls.certificate, tls.key) == (path.parent / "a.pem", path.parent / "b.pem")


def test_an_empty_file_changes_nothing(write: Write) -> None:
    assert load(write("")).settings == load().settings
    assert load(write("server:\nbarge_in:\n  # nothing yet")).settings == load().settings


def test_yaml_types_of_environment_and_set(write: Write) -> None:
    settings = load(
        None,
        "conversation.sampling.max_tokens=null",
        "conversation.instructions=a: b = c",
        REACHY_VOICE__CONVERSATION__SAMPLING__SEED="7",
    ).settings
    assert settings.conversation.sampling.build() == Sampling(
        temperature=0.1, repeat_penalty=1, dry_multiplier=1, seed=7, max_tokens=None
    )
    assert settings.conversation.instructions == "a: b = c"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("You are robot #1.", "You are robot #1."),
        ("#1 of the robots", "#1 of the robots"),
        ("!important: be kind", "!important: be kind"),
        ("&c. and so on", "&c. and so on"),
        ("Be kind.\nBe short.", "Be kind.\nBe short."),
        (" Be kind. ", "Be kind."),
        ("'Be kind. # always' # not read", "Be kind. # always"),
        ("2026-11-28", "2026-11-28"),
        ("2026-02-30", "2026-02-30"),
    ],
)
def test_text_of_the_environment_is_taken_literally(given: str, taken: str) -> None:
    settings = load(None, REACHY_VOICE__CONVERSATION__INSTRUCTIONS=given).settings
    assert settings.conversation.instructions == taken


def test_other_variables_are_ignored() -> None:
    assert load(None, REACHY_VOICE_OFFLINE="1", REACHY="x").settings == load().settings


@pytest.mark.parametrize("name", ["REACHY_VOICE_SERVER__PORT", "REACHY_VOICE_SERVER_PORT"])
def test_a_variable_with_one_underscore_too_few_is_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(None, **{name: "9"}).settings == load().settings
    assert f"{name} is not read: write REACHY_VOICE__SERVER__..." in caplog.text
    caplog.clear()
    load(None, REACHY_VOICE__SERVER__PORT="9", SERVER_PORT="9", REACHY_VOICE_API_KEY="x")
    assert not caplog.text


def test_naming_another_engine_starts_its_section_afresh(write: Write) -> None:
    path = write("turn: {engine: silence, probability: 0.25}")
    assert load(path).settings.turn.model_dump()["probability"] == 0.25
    # The base's `weights: smart-turn-v3.2` would be an unknown key here.
    loaded = load(None, "turn.engine=silence")
    assert loaded.settings.turn.engine == "silence"
    assert "turn.weights" not in loaded.origins
    both = load(None, REACHY_VOICE__TURN__PROBABILITY="0.75", REACHY_VOICE__TURN__ENGINE="silence")
    assert both.settings.turn.model_dump()["probability"] == 0.75


def test_naming_the_same_engine_merges(write: Write) -> None:
    base = write("vad: {run_in: process}", "base.yaml")
    settings = load(write(f"extends: {base}\nvad: {{engine: silero}}")).settings
    assert settings.vad.run_in == "process"


def test_a_later_choice_of_an_engine_drops_what_was_set_for_another() -> None:
    tts = load_settings(None, ["tts.voice=joe"], {}, later=["tts.engine=espeak-ng"]).settings.tts
    assert tts == load(None, "tts.engine=espeak-ng").settings.tts
    tts = load_settings(None, ["tts.voice=joe"], {}, later=["tts.speed=1.5"]).settings.tts
    assert tts == load(None, "tts.voice=joe", "tts.speed=1.5").settings.tts


def test_a_whole_section_can_be_set_at_once() -> None:
    settings = load(None, "turn={engine: silence, probability: 0.5}").settings
    assert settings.turn.model_dump()["probability"] == 0.5


def test_a_section_that_is_set_at_once_keeps_what_was_set_before() -> None:
    server = load(None, "server.port=9", "server={max_sessions: 3}").settings.server
    assert (server.port, server.max_sessions) == (9, 3)
    turn = load(None, "turn.engine=smart-turn", "turn={engine: silence, probability: 0.5}")
    assert turn.settings.turn.model_dump()["probability"] == 0.5


def test_swapping_an_engine_changes_the_needed_weights() -> None:
    assert "smart-turn-v3.2" in load().settings.weights()
    assert "smart-turn-v3.2" not in load(None, "turn.engine=silence").settings.weights()


def test_paths_start_at_their_file(write: Write, tmp_path: Path) -> None:
    path = write("paths: {cache_dir: cache, catalogue: ~/mine.yaml}", "deeper/my.yaml")
    paths = load(path).settings.paths
    assert paths.cache({}) == tmp_path / "deeper" / "cache"
    assert paths.catalogue == Path.home() / "mine.yaml"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("weights: null, model_file: ~/a.gguf", "{home}/a.gguf"),
        ("weights: null, model_file: models/a.gguf", "{here}/deeper/models/a.gguf"),
        ("weights: null, model_file: a.gguf", "{here}/deeper/a.gguf"),
        ("model_file: ./a.gguf", "{here}/deeper/a.gguf"),
        ("model_file: ~nobody-here/a.gguf", "{here}/deeper/~nobody-here/a.gguf"),
        ("model_file: a.gguf", "a.gguf"),
        ("weights: null, model_file: /a.gguf", "/a.gguf"),
    ],
)
def test_a_model_starts_at_its_file(write: Write, tmp_path: Path, text: str, path: str) -> None:
    llm = load(write(f"llm: {{{text}}}", "deeper/my.yaml")).settings.llm.model_dump()
    assert llm["model_file"] == path.format(home=Path.home(), here=tmp_path)


def test_updates_are_a_folder_or_a_url(write: Write, tmp_path: Path) -> None:
    path = write("llm: {updates: new}", "deeper/my.yaml")
    assert load(path).settings.llm.model_dump()["updates"] == str(tmp_path / "deeper/new")
    for text in ("https://my.host/updates/index.json", ""):
        assert load(write(f"llm: {{updates: '{text}'}}")).settings.llm.updates == text


def test_the_cache_follows_xdg() -> None:
    assert PathSettings().cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/reachy-voice")
    assert PathSettings().cache({}) == Path.home() / ".cache/reachy-voice"


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "server:\n  prot: 1",
            "my.yaml:2: server.prot is not a known key; did you mean server.port?",
        ),
        ("sever: {port: 1}", "my.yaml:1: sever is not a known key; did you mean server?"),
        (
            "\nvad: {wieghts: x}",
            "my.yaml:2: vad.wieghts is not a known key; did you mean vad.weights?",
        ),
        (
            "conversation:\n  sampling:\n    temprature: 1",
            "my.yaml:3: conversation.sampling.temprature is not a known key; "
            "did you mean conversation.sampling.temperature?",
        ),
        (
            "conversation: {temperature: 1}",
            "my.yaml:1: conversation.temperature is not a known key; "
            "did you mean conversation.sampling.temperature?",
        ),
        (
            "playback: {zzz: 1}",
            "my.yaml:1: playback.zzz is not a known key; known here: lead_ms, chunk_ms",
        ),
        ("server: {port: '1'}", 'my.yaml:1: server.port: input should be a valid integer, not "1"'),
        (
            "server: {port: true}",
            "my.yaml:1: server.port: input should be a valid integer, not true",
        ),
        (
            "server:\n  port: 70000",
            "my.yaml:2: server.port: input should be less than or equal to 65535, not 70000",
        ),
        (
            "llm:\n  context_tokens: 2000000000",
            "llm.context_tokens: input should be less than or equal to 16777216",
        ),
        (
            "access: {shared_key: short}",
            "access.shared_key: must be a text of at least 32",
        ),
        (f"access: {{shared_key: {'1' * 40}}}", "put quotes around one of digits only"),
        (
            "conversation: {sampling.top_p: 1}",
            "conversation.sampling.top_p is not a known key; "
            "write conversation: {sampling: {top_p: ...}}",
        ),
        ("server:\n  <<: {prot: 1}", "my.yaml:1: server.prot is not a known key"),
        ("server: !!omap [prot: 1]", "my.yaml:1: server.prot is not a known key"),
        ("server: 3", "my.yaml:1: server must be a section with keys (host, port,"),
        ("server: {console: off}", 'not "off"; write true or false'),
        ("access: {addresses: 10.0.0.7}", 'not "10.0.0.7"; write a list, as in [a, b]'),
        ("conversation: {instructions: 7}", "not 7; write text, in quotes"),
        ("tools: {mcp: [a]}", "tools.mcp: input should be an object; write keys and values"),
        ("server:\n  port:", "server.port: input should be a valid integer, not null; remove it"),
        ("server:\n  tls:\n    key: a.pem", "my.yaml:2: server.tls.certificate: field required"),
        (
            "server:\n  tls: {certificate: a, key: b,\n    keyfile: c}",
            "my.yaml:3: server.tls.keyfile is not a known key; did you mean server.tls.key?",
        ),
        ("tts:", "my.yaml:1: tts must name its engine"),
        ("stt: {engine: monshine}", "Did you mean 'moonshine'?"),
        (
            "endpointing:\n  clear_wait_ms: 600",
            "endpointing: the waits must rise: clear_wait_ms, likely_wait_ms, unsure_wait_ms",
        ),
        (
            "server: {port: 8765, browser_port: 8765}",
            "my.yaml:1: server: port, browser_port and wyoming_port must differ",
        ),
        ("conversation: {language: klingon}", 'de-AT or German, or auto, not "klingon"'),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(write: Write, text: str, expected: str) -> None:
    (problem,) = problems(write(text))
    assert expected in problem


def test_all_mistakes_at_once(write: Write) -> None:
    path = write("server: {prot: 1, port: x}\nfoo: 1\nstt: {engine: none}\nplayback: {lead_ms: -1}")
    found = problems(path, "conversation.language=Elvish", REACHY_VOICE__VAD__NOPE="1")
    assert len(found) == 7
    assert sum(line.startswith("my.yaml:") for line in found) == 5
    assert any(line.startswith("--set conversation.language: ") for line in found)
    assert any(line.startswith("environment REACHY_VOICE__VAD__NOPE: vad.nope") for line in found)
    assert "7 problems" in error(path, "conversation.language=Elvish", REACHY_VOICE__VAD__NOPE="1")


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1\nb: 2", 2), ("server:\n\tport: 1", 2), ("a: 1\nb: 2\na: 3", 3), ("a: *nothing", 1)],
)
def test_invalid_yaml_is_an_error(write: Write, text: str, line: int) -> None:
    assert f"my.yaml:{line} is not valid YAML" in error(write(text))


def test_no_error_quotes_a_value_that_is_there_twice(write: Write) -> None:
    says = error(write("llm:\n  api_key: sesame-one\n  api_key: sesame-two"))
    assert 'my.yaml:3 is not valid YAML: found duplicate key "api_key"' in says
    assert "sesame" not in says


@pytest.mark.parametrize("value", ["!secret voice", "[!env VOICE]", "!include voice.yaml"])
def test_tags_of_other_programs_are_an_error(write: Write, value: str) -> None:
    assert f"my.yaml:2: {value.strip('[').split()[0]} is not" in error(
        write(f"\ntts: {{voice: {value}}}")
    )


def test_text_that_is_not_unicode_is_an_error_that_shows_no_section() -> None:
    (problem,) = problems(None, REACHY_VOICE__CONVERSATION__INSTRUCTIONS="a\udcff")
    assert problem.endswith("conversation: holds text that is not valid UTF-8")


def test_a_file_that_is_nested_too_deeply_is_an_error(write: Write) -> None:
    assert "is not valid YAML" in error(write("a: " + "[" * 400 + "]" * 400))


@pytest.mark.parametrize("value", ["2026-02-30", "9" * 5000])
def test_a_value_that_cannot_be_is_an_error(write: Write, value: str) -> None:
    assert "my.yaml is not valid YAML" in error(write(f"conversation: {{instructions: {value}}}"))


def test_files_without_settings_are_errors(write: Write, tmp_path: Path) -> None:
    assert "not a YAML mapping" in error(write("- a\n- b"))
    assert "is not valid YAML" in error(write("a: \x00"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "Save it as UTF-8" in error(str(tmp_path / "binary.yaml"))
    assert "gone.yaml does not exist" in error("gone.yaml")
    assert "gone.yaml does not exist" in error("~nobody-here/gone.yaml")


def test_a_missing_profile_is_an_error(write: Write) -> None:
    assert "Did you mean 'espeak'?" in error("espaek")
    assert "espeak.yaml does not exist. Did you mean the profile espeak?" in error("espeak.yaml")
    assert "my.yaml:2: There is no profile called 'nope'" in error(write("\nextends: nope"))
    assert "my.yaml:1: extends must be" in error(write("extends: [a, b]"))


def test_a_profile_is_chosen_by_files_and_the_command_alone() -> None:
    says = "extends stands in files only. Use --config PROFILE"
    assert says in error(None, "extends=remote")
    assert says in error(None, REACHY_VOICE__EXTENDS="remote")


def test_an_owners_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    own = tmp_path / "reachy-voice/settings.yaml"
    own.mkdir(parents=True)
    assert "settings.yaml cannot be read" in error(XDG_CONFIG_HOME=str(tmp_path))
    own.rmdir()
    own.symlink_to("nowhere.yaml")
    assert "nowhere.yaml does not exist" in error(XDG_CONFIG_HOME=str(tmp_path))
    own.unlink()
    own.symlink_to(own.name)
    assert "settings.yaml cannot be read" in error(XDG_CONFIG_HOME=str(tmp_path))
    own.unlink()
    assert load(XDG_CONFIG_HOME=str(tmp_path)).settings == load().settings


def test_circular_profiles_are_an_error(write: Write) -> None:
    write("extends: ./my.yaml", "other.yaml")
    assert "my.yaml -> other.yaml -> my.yaml" in error(write("extends: ./other.yaml"))


@pytest.mark.parametrize("text", ["server.port", "=3", "server.=3", ".port=3"])
def test_a_malformed_set_is_an_error(text: str) -> None:
    assert "not section.key=value" in error(None, text)


def test_a_set_with_broken_yaml_is_an_error() -> None:
    assert "--set server.port:1 is not valid YAML" in error(None, "server.port=[1")


def test_a_set_into_a_scalar_is_an_error() -> None:
    (problem,) = problems(None, "server.port.x=1")
    assert problem.startswith("--set server.port.x: server.port: input should be a valid integer")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Endpointing().onset_ms = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("array: {lights: true}", "array.lights"),
        ("llm: {engine: llama-cpp, lookup_tokens: 4}", "llm.lookup_tokens"),
        ("stt: {engine: parakeet, weights: parakeet-tdt-0.6b-v3, batch_s: 60}", "stt.batch_s"),
    ],
)
def test_a_key_of_an_earlier_version_is_a_warning_with_its_place(
    section: str, key: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    load(write(f"extends: default\n{section}\n"))
    assert f"my.yaml:2: {key} no longer has an effect; remove it" in caplog.text
