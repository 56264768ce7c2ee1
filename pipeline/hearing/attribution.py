"""Finds out who speaks in a turn, while its final transcript is made."""

from __future__ import annotations

import logging
from dataclasses import replace

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.context import SessionContext
from pipeline.engines.contract import Transcript
from pipeline.engines.voices import LEAST_S, MOST_S, speech_in
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.recognition import Recognition
from pipeline.work import Cancelled, Work

log = logging.getLogger("reachy_voice.speaker")


async def attributed(context: SessionContext, recognition: Recognition, work: Work) -> Transcript:
    """The final transcript of everything appended, with its speaker if anybody is enrolled. Raises
    ``ReachyVoiceError`` if recognition fails; an unknown voice is no error."""
    stages = context.stages
    if not stages.people or stages.speaker is None:
        return await recognition.transcript(work)
    pcm = recognition.audio.pcm[-int(2 * MOST_S * LISTEN_RATE) :]
    naming = context.tasks.create_task(_speaker(context, pcm, work, recognition))
    try:
        transcript = await recognition.transcript(work)
        return replace(transcript, speaker=await naming)
    finally:
        naming.cancel()


async def _speaker(context: SessionContext, pcm: Pcm, work: Work, turn: object) -> str | None:
    """See ``Transcript``. ``None`` also if the engine fails: the user is answered all the same."""
    speech = speech_in(pcm)[-int(MOST_S * LISTEN_RATE) :]
    stages = context.stages
    if stages.speaker is None or len(speech) < LEAST_S * LISTEN_RATE:
        return None
    try:
        embedding = await stages.speaker.embed(speech, work)
    except Cancelled:
        return None
    except ReachyVoiceError as error:
        log.warning("it is not known who spoke: %s", error)
        return None
    people = stages.people
    return context.strangers.name(people, embedding, speech, turn) if people else None
