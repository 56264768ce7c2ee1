"""The section ``wake``: its requirements, and settings that conflict with it."""

from __future__ import annotations

import pytest

from app.doctor.choices import language_warnings
from app.doctor.engine_needs import needs_of
from app.models.catalogue import Catalogue
from app.models.gpu import Gpus
from app.settings.load import load_settings
from pipeline.errors import ConfigError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "wrong",
    ["wake.mode=sometimes", "wake.engine=x", "wake.words=[]", "wake.follow_up_s=0", "wake.on=true"],
)
def test_invalid_values_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="wake"):
        load_settings(None, [wrong], {})


def test_by_default_it_never_sleeps() -> None:
    wake = load_settings(None, [], {}).settings.wake
    assert (wake.mode, wake.engine, wake.follow_up_s) == ("always", "micro-wakeword", 8.0)


def test_only_the_model_needs_a_package() -> None:
    for sets, extras in (
        (["wake.engine=micro-wakeword"], ()),
        (["wake.mode=touch"], ()),
        (["wake.mode=word", "wake.engine=phrase"], ()),
        (["wake.mode=word"], ("wake",)),
    ):
        settings = load_settings(None, sets, {}).settings
        assert needs_of(settings, Gpus(()), environ={}).extras == extras


@pytest.mark.parametrize("call", ["Wo bist du, Robot", "Привет, Ричи", "小明"])
def test_a_call_in_a_language_that_is_not_recognised(call: str) -> None:
    sets = ["wake.mode=word", "wake.engine=phrase", f"wake.words=[Hey Reachy, '{call}']"]
    settings = load_settings(None, sets, {}).settings
    (warning,) = language_warnings(settings, Catalogue.load(None))
    assert repr(call) in warning
    assert "moonshine" in warning
