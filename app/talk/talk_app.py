"""`talk`: the sound card, the conversation and the body, put together."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.announcing.announcer import AnnouncementRequest, Announcer
from app.compose import Assistant
from app.server.control import Tell, answer_requests, talk_socket_path
from app.settings.model import Settings
from app.talk.conversation import Connected, Conversation, Disconnected, LocalConversation
from app.talk.embodiment import Embodiment
from app.talk.known_rooms import KnownRooms
from app.talk.remote import RemoteConversation
from app.talk.state import TalkState
from app.talk.talking import Talking
from hardware.sound.alignment import SoundBlock
from hardware.sound.card import SoundCard
from hardware.sound.devices import plain_name
from hardware.sound.driver import SoundDriver
from hardware.sound.notices import (
    AllZero,
    DeviceLoss,
    DevicesReady,
    Lifeless,
    MoreLatency,
    SampleLoss,
    SoundNotice,
)
from hardware.xvf3800.boards import is_array_name, same_array
from pipeline.commands import Direction
from pipeline.echo.card import CardEcho
from pipeline.echo.path import EchoMemory
from pipeline.errors import ReachyVoiceError, one_error
from pipeline.events import Event, Woke
from pipeline.hearing.card import ChipHearing, EchoMode, HalfDuplexHearing
from pipeline.hearing.client import Hearing

ALL_ZERO = (
    "The microphone delivers only zeros. Is it muted, switched off, or not allowed for this "
    "terminal? Unplug it and plug it in again"
)

LIFELESS = (
    "The microphone delivers next to nothing, or is stuck. Is it muted or its level at zero in the "
    "system's settings, or sound.channel not connected? Unplug it and plug it in again"
)

HALF_DUPLEX = "half-duplex: you are not heard while the robot speaks and for 0.6 s after"
ALL_ACCEPTED = "array.accept_deg needs engines on this machine: that server answers everyone"
NOT_HEARD = "not connected: that was not heard"
PUSH = "Press space, speak, and press it again when you are done."
TOO_SHORT = f"too short: {PUSH[0].lower()}{PUSH[1:-1]}"

log = logging.getLogger("reachy_voice.talk")


class TalkApp:
    """``run`` it; it runs until cancelled."""

    def __init__(
        self,
        settings: Settings,
        state: TalkState,
        assistant: Assistant | None,
        url: str | None,
        cache: Path,
        driver: SoundDriver | None = None,
    ) -> None:
        """``assistant``: has the engines; ``None``: use the server at ``url``. ``cache``: folder
        for learnt rooms. ``driver``: the sound card's; ``None``: PortAudio."""
        self._settings = settings
        self._state = state
        self._has_greeted = False
        self._assistant = assistant
        self._url = url
        self._rooms = KnownRooms(cache / "rooms")
        self._card = SoundCard(settings.sound, self._sound_says, driver)
        self._body = Embodiment(settings, state, self._face)
        self._devices: asyncio.Future[DevicesReady] = asyncio.get_running_loop().create_future()
        self._learnt: tuple[EchoMemory | None] | None = None
        """The echo path from loudspeaker to microphone as learnt by the end, once there is one."""
        self._talking: Talking | None = None
        self._keys: asyncio.Queue[str] = asyncio.Queue(16)

    async def run(self) -> None:
        """Raises ``ReachyVoiceError`` if there is no device, engine or server."""
        with one_error():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._card.run())
                if self._assistant:
                    running = self._assistant.run(lambda kind: self._state.say(f"{kind} is ready"))
                    group.create_task(running)
                    group.create_task(take_announcements(self._assistant.announcer))
                devices = await self._devices
                if self._assistant:
                    await self._assistant.ready.wait()
                group.create_task(self._body.run())
                group.create_task(self._follow_keys())
                try:
                    await self._talk(devices)
                finally:
                    if self._assistant:
                        self._assistant.close()

    def key(self, character: str) -> None:
        """A key was pressed."""
        if not self._keys.full():
            self._keys.put_nowait(character)

    async def _talk(self, devices: DevicesReady) -> None:
        self._body.chip_cancels = self._echo_mode(devices) == "chip"
        conversation = await self._conversation(devices)
        push_to_talk = self._settings.sound.push_to_talk
        self._talking = Talking(
            self._card, conversation, self._note, self._take_block, push_to_talk=push_to_talk
        )
        self._state.pressed = False if push_to_talk else None
        self._card.forget()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(conversation.run())
                group.create_task(self._talking.run())
        finally:
            if self._learnt:
                await asyncio.to_thread(self._rooms.keep, *_pair(devices), *self._learnt)

    async def _conversation(self, devices: DevicesReady) -> Conversation:
        push_to_talk = self._settings.sound.push_to_talk
        if self._assistant is None:
            assert self._url
            # A pressed key ends the answer, so there is no echo.
            half_duplex = self._settings.sound.echo == "half-duplex" and not push_to_talk
            if half_duplex:
                self._state.say(HALF_DUPLEX)
            if self._settings.accepted:
                self._state.say(ALL_ACCEPTED)
            return RemoteConversation(self._url, push_to_talk, half_duplex)
        return LocalConversation(self._assistant, await self._hearing(devices), push_to_talk)

    async def _hearing(self, devices: DevicesReady) -> Hearing:
        assert self._assistant
        window_samples = self._assistant.stages.vad.window_samples
        mode = self._echo_mode(devices)
        if mode == "chip" or (mode == "half-duplex" and self._settings.sound.push_to_talk):
            return ChipHearing(window_samples)
        if mode == "half-duplex":
            self._state.say(HALF_DUPLEX)
            return HalfDuplexHearing(window_samples)
        room = await asyncio.to_thread(self._rooms.of, *_pair(devices))
        return CardEcho(window_samples, room, self._keep)

    def _keep(self, room: EchoMemory | None) -> None:
        self._learnt = (room,)

    def _echo_mode(self, devices: DevicesReady) -> EchoMode:
        mode = self._settings.sound.echo
        if mode != "auto":
            return mode
        return "chip" if cancels_echo(devices) else "software"

    # -- events

    def _note(self, at: float, event: Event | Connected | Disconnected) -> None:
        self._state.note(event)
        if isinstance(event, Connected) and not self._has_greeted:
            self._has_greeted = True
            how = PUSH if self._settings.sound.push_to_talk else "Speak."
            self._state.say(f"Ready: {self._state.devices}. {how}")
        if isinstance(event, Disconnected):
            self._body.note(Woke("resumed"))  # a server that sleeps will say so again
        elif not isinstance(event, Connected):
            self._body.note(event)
        self._state.on_change()

    def _take_block(self, block: SoundBlock) -> None:
        self._state.heard(block)
        self._body.heard(block)

    async def _face(self, direction: Direction) -> None:
        if direction.speech:
            self._state.direction_deg = direction.azimuth_deg
        if self._talking:
            await self._talking.face(direction)

    def _sound_says(self, notice: SoundNotice) -> None:
        state = self._state
        match notice:
            case DevicesReady():
                state.missing = ""
                state.devices = f"{notice.microphone} -> {notice.speaker}, {notice.rate_hz} Hz"
                if self._devices.done():
                    state.say(f"{notice.microphone} is back")
                else:
                    self._devices.set_result(notice)
            case DeviceLoss():
                state.say(f"{notice.name} is gone: {notice.why}")
                state.missing = notice.name
            case AllZero(over=True):
                state.say("The microphone delivers sound again")
            case AllZero():
                state.say(ALL_ZERO)
                if self._devices.done() and is_array_name(self._devices.result().microphone):
                    self._body.all_zero()
            case Lifeless(over=True):
                state.say("The microphone delivers sound again")
            case Lifeless():
                state.say(LIFELESS)
            case SampleLoss():
                state.say(f"{notice.samples / 16:.0f} ms of the microphone were lost: too busy")
            case MoreLatency():
                state.say(
                    f"{notice.speaker} had gaps in its sound because this machine is busy: it "
                    f"gets {notice.latency_s * 1000:.0f} ms of buffer from now on"
                )
        self._state.on_change()

    # -- user input

    async def _follow_keys(self) -> None:
        while True:
            character = await self._keys.get()
            talking = self._talking
            if talking is None:
                continue
            if character == "m":
                self._state.muted = talking.muted = not talking.muted
                self._state.say("muted" if talking.muted else "unmuted")
            elif character == "w":
                await talking.wake()
            elif character == " " and self._settings.sound.push_to_talk:
                await self._push(talking)
            self._state.on_change()

    async def _push(self, talking: Talking) -> None:
        state = self._state
        if talking.pressed:
            is_long = await talking.release()
            state.pressed = False
            state.say(TOO_SHORT if not is_long else "sent" if state.connected else NOT_HEARD)
        elif state.connected:
            await talking.press()
            state.pressed = True
            state.say("speak now")
        else:
            state.say(NOT_HEARD)


async def take_announcements(
    announcer: Announcer, on_listening: Callable[[], None] = lambda: None
) -> None:
    """Serve ``reachy-voice say`` of this user on this machine."""

    async def carry(asked: Mapping[str, Any], tell: Tell) -> Mapping[str, Any]:
        return await announcer.announce(AnnouncementRequest(**asked["say"]))

    try:
        path = await asyncio.to_thread(talk_socket_path, os.environ)
        await answer_requests(path, carry, on_listening)
    except (OSError, ReachyVoiceError) as error:
        log.warning("`reachy-voice say` cannot reach this conversation: %s", error)


def cancels_echo(devices: DevicesReady) -> bool:
    """Whether a chip cancels the echo: an XVF3800 cancels only what is played through itself."""
    return same_array(devices.microphone, devices.speaker)


def _pair(devices: DevicesReady) -> tuple[str, str]:
    return plain_name(devices.microphone), plain_name(devices.speaker)
