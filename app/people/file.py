"""The file of people: their names, and their voices as numbers (``pipeline.engines.voices``).

JSON, mode 0600, beside the list of who may connect. The numbers belong to one speaker engine and
its weights; to another they mean nothing.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.models.download import sha256_of
from app.models.weights import WeightsCache
from app.owner_file import OTHERS_MAY_READ, OTHERS_MAY_WRITE, OwnerFile, plain_name, same_name
from pipeline.engines.contract import Embedding
from pipeline.engines.registry import EngineOptions
from pipeline.engines.voices import Person
from pipeline.errors import ConfigError, ReachyVoiceError

MOST_CHARS = 40
"""Longest name; the language model reads it with each turn."""
ROUNDING = 0.001
"""How much the length of a voice may differ from 1; a longer one would be like everybody's."""
JOINERS = "\u200c\u200d"
"""Invisible letters of names in Persian and in scripts of India."""


class WrongPerson(ReachyVoiceError):
    """A mistake in what was asked about a person."""

    exit_code = 2


def _is_voice(text: str) -> str:
    values = np.frombuffer(base64.b64decode(text, validate=True), np.float32)
    if not abs(np.linalg.norm(values.astype(np.float64)) - 1) < ROUNDING:  # NaN is not less
        raise ValueError("these are not the numbers of a voice")
    return text


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StoredPerson(_Entry):
    name: Annotated[str, Field(min_length=1, max_length=MOST_CHARS)]
    voice: Annotated[str, AfterValidator(_is_voice), Field(repr=False)]
    """float32, little-endian, in base64."""
    added: str = ""
    """A date in ISO 8601."""


class PeopleList(_Entry):
    """The whole file. ``model``: see ``model_digest``."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: str = ""
    people: tuple[StoredPerson, ...] = ()

    def voices(self, model: str) -> tuple[Person, ...]:
        """Raises ``ConfigError`` if the voices belong to another model."""
        self._require(model)
        return tuple(
            Person(each.name, np.frombuffer(base64.b64decode(each.voice), np.float32))
            for each in self.people
        )

    def with_person(self, name: str, voice: Embedding, model: str) -> PeopleList:
        """Raises ``WrongPerson`` if the name is taken, ``ConfigError`` for another model."""
        name = self.require_new(name)
        self._require(model)
        text = base64.b64encode(voice.astype("<f4").tobytes()).decode()
        added = datetime.now(UTC).date().isoformat()
        person = StoredPerson(name=name, voice=text, added=added)
        return PeopleList(model=model, people=(*self.people, person))

    def require_new(self, name: str) -> str:
        """The name as it is kept. Raises ``WrongPerson`` if it is taken or not allowed."""
        name = plain_name(name)
        one_line = all(sign.isprintable() or sign in JOINERS for sign in name)
        if not one_line or not name.strip(JOINERS) or name.startswith("-"):
            why = "it must be one line of text that is not blank and does not begin with a dash"
            raise WrongPerson(f"Nobody can be called {name!r}", why=why, fix="For example: Tom")
        if len(name) > MOST_CHARS:
            why = f"it has more than {MOST_CHARS} characters"
            raise WrongPerson("The name is too long", why=why, fix="Use a first name")
        if any(same_name(each.name, name) for each in self.people):
            fix = f"Choose another name, or first: reachy-voice people remove {quote(name)}"
            raise WrongPerson(f"There is somebody called {name!r} already", fix=fix)
        return name

    def without(self, name: str) -> PeopleList:
        """Raises ``WrongPerson`` if there is no such person."""
        others = tuple(each for each in self.people if not same_name(each.name, name))
        if len(others) == len(self.people):
            fix = "reachy-voice people list shows who there is"
            raise WrongPerson(f"There is nobody called {name!r}", fix=fix)
        return PeopleList(model=self.model, people=others) if others else PeopleList()

    def _require(self, model: str) -> None:
        if self.people and self.model != model:
            raise ConfigError(
                "The people's voices were learned by another speaker engine",
                why="`speaker` in the settings, or its weights, have changed since",
                fix="Set it back; or `reachy-voice people remove` each, and add them again",
            )


class PeopleFile(OwnerFile[PeopleList]):
    """The file of people; deleted when nobody is left."""

    def __init__(self, access_file: Path) -> None:
        path = access_file.with_name("people.json")
        name, repair = "The file of people", "`reachy-voice people add` each again"
        super().__init__(path, PeopleList(), name, repair, OTHERS_MAY_WRITE | OTHERS_MAY_READ)

    def _write(self, new: PeopleList) -> None:
        if new.people:
            super()._write(new)
        else:
            self.path.unlink(missing_ok=True)


def model_digest(options: EngineOptions, cache: WeightsCache) -> str:
    """Names the speaker engine and the content of its weights. Blocks. Raises ``WeightsError``."""
    weights = cache.of(options)
    paths = sorted(weights.iterdir()) if weights else []
    parts = [options.engine, *(sha256_of(path) for path in paths if path.is_file())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
