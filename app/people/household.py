"""The people whose voices a running assistant knows, and the engine that tells them apart.

The engine runs only while somebody is enrolled, or is being enrolled.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

import numpy as np

from app.models.engine_set import EngineSet
from app.people.enrolment import Enrolment
from app.people.file import PeopleFile, PeopleList, model_digest
from app.settings.model import Settings
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.voices import Person
from pipeline.errors import ConfigError, ReachyVoiceError
from pipeline.work import Work

log = logging.getLogger("reachy_voice.speaker")


class Household:
    """``run`` it beside the engines."""

    def __init__(self, settings: Settings, engines: EngineSet) -> None:
        self.file = PeopleFile(settings.paths.access(os.environ))
        self._options = settings.speaker
        self._weights = settings.speaker_weights()
        self._accept = settings.people.accept
        self._engines = engines
        self._one = asyncio.Lock()
        """One change at a time."""

    async def run(self) -> None:
        """Load the people in the file once all other engines are ready. A failure is logged, and
        then nobody is known and everybody is answered."""
        await self._engines.ready.wait()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the file again. A problem is logged, and then nobody is known."""
        async with self._one:
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            known = await asyncio.to_thread(self.file.read)
            if known.people:
                model = await self._model()
                people = known.voices(model)
                speaker = await self._engines.engage_speaker(self._options)
                numbers = await speaker.embed(np.zeros(LISTEN_RATE, np.int16), Work())
                _require_length(people, len(numbers))
                self._engines.stages.people = people
                names = len(people)
                log.info("%d known voice%s", names, "" if names == 1 else "s")
                return
        except ReachyVoiceError as error:
            everyone = "; everyone is answered" if self._accept == "known" else ""
            log.error("nobody's voice is known%s: %s", everyone, error)
        self._engines.stages.people = ()
        await self._engines.dismiss_speaker()

    async def add(self, name: str, pcm: Pcm) -> PeopleList:
        """Learn a voice from a recording at 16 kHz. Raises ``ReachyVoiceError``; nothing has
        changed then."""
        async with self._one:
            (await asyncio.to_thread(self.file.read)).require_new(name)
            model = await self._model()
            enrolment = Enrolment(self._engines.stages.vad)
            try:
                speaker = await self._engines.engage_speaker(self._options)
                await enrolment.hear(pcm)
                voice = await enrolment.voice(speaker)
                return await asyncio.to_thread(
                    self.file.change, lambda known: known.with_person(name, voice, model)
                )
            finally:
                await self._refresh()

    async def remove(self, name: str) -> PeopleList:
        """Raises ``ReachyVoiceError``."""
        async with self._one:
            try:
                return await asyncio.to_thread(self.file.change, lambda known: known.without(name))
            finally:
                await self._refresh()

    def missing_weights(self) -> list[str]:
        """Weights of the speaker engine that must be pulled first. Blocks."""
        return self._engines.cache.missing(self._weights)

    async def _model(self) -> str:
        return await asyncio.to_thread(model_digest, self._options, self._engines.cache)


def _require_length(people: Sequence[Person], length: int) -> None:
    if wrong := [each.name for each in people if len(each.voice) != length]:
        raise ConfigError(
            "The file of people cannot be used",
            why=f"the voice of {wrong[0]} does not have the {length} numbers of this engine",
            fix="`reachy-voice people remove` them, and add them again",
        )
