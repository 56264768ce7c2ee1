"""The microphone and the loudspeaker of this machine, for the length of a conversation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hardware.settings import Sound
from hardware.sound.alignment import Alignment, SoundBlock
from hardware.sound.devices import Device, DeviceChoice, channel_of, rates_to_try, resolve
from hardware.sound.driver import Latency, OnAsked, OnEnded, Plan, SoundDriver
from hardware.sound.dropouts import QUIET_S, Dropouts
from hardware.sound.errors import RateRefused, Role, SoundError, driver_hangs, no_rate
from hardware.sound.inbox import BlockInbox
from hardware.sound.microphone import LifeSigns, Microphone, Zeros
from hardware.sound.notices import DeviceLoss, DevicesReady, MoreLatency, SoundNotice
from hardware.sound.ring import Ring
from hardware.sound.speaker import Speaker
from pipeline.audio import LISTEN_RATE, Pcm

_FIRST_S = 5.0
"""Time allowed for the first sound: an idle PulseAudio sink takes 1.7 s to start."""
_STALLED_S = 1.0
"""A driver that is silent for this long has lost its device."""
_LATE_S, _STOOD_STILL_S = 0.05, 5.0
"""If this program itself ran late by more than the first, it may not have seen the drivers' calls
yet; if by more than the second, the streams are reopened."""
_SOUNDING_S = 0.3
_RETRY_S = 0.5
_MOST_RETRY_S = 5.0
_HUNG_S = 30.0
"""A busy sound system recovers in seconds; a PortAudio thread that spins never does."""


@dataclass(frozen=True, slots=True)
class CardState:
    """Names and rates; 0 Hz while nothing is open."""

    microphone: str
    speaker: str
    microphone_hz: int = 0
    speaker_hz: int = 0
    latency: Latency | None = None
    """As the drivers report it; ``None`` while nothing is open."""
    xruns: int = 0
    """Of both drivers together."""


class _Opening:
    """One pair of streams, from open to lost."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, microphone: Microphone, speaker_hz: int
    ) -> None:
        self.microphone = microphone
        self.speaker_hz = speaker_hz
        self.life, self.zeros = LifeSigns(microphone.rate_hz), Zeros()
        self.lifeless = False
        """Whether ``Lifeless`` was the last notice of ``life``."""
        self.alignment = Alignment(microphone.rate_hz, speaker_hz)
        self.tap = Ring(0)
        self.arrived = asyncio.Event()
        self.ended_role: Role | None = None
        self.latency: Latency | None = None
        self.plan: Plan | None = None
        self.began_s = loop.time()
        """When the loudspeaker's stream began."""
        self.late_s = self.began_s
        """When this program last ran late; the drivers' timeouts restart then."""
        self.late_before = False
        self.first = True
        self._loop = loop

    def on_ended(self, role: Role) -> None:
        if self.ended_role is None:
            self.ended_role = role
        self.wake()

    def wake(self) -> None:
        """Called from the driver's thread."""
        with contextlib.suppress(RuntimeError):  # The loop may be gone.
            self._loop.call_soon_threadsafe(self.arrived.set)


class SoundCard:
    """A microphone and a loudspeaker as one device: captured audio with what was played then.

    Methods are called on the event loop's thread; so is ``notify``, which must not wait.
    """

    def __init__(
        self,
        settings: Sound,
        notify: Callable[[SoundNotice], None],
        driver: SoundDriver | None = None,
    ) -> None:
        self._settings = settings
        self._notify = notify
        self._driver = driver or _portaudio()
        self._speaker = Speaker(settings.volume, settings.keep_awake_dbfs)
        self._dropouts = Dropouts()
        self._inbox = BlockInbox(notify)
        self.blocks, self.forget = self._inbox.blocks, self._inbox.forget
        self.play, self.flush = self._speaker.play, self._speaker.flush
        self.duck = self._speaker.duck
        self._names = DeviceChoice("", "")
        self._opening: _Opening | None = None
        self._captured_s: float | None = None

    # --- for conversations ------------------------------------------------------------------------

    async def run(self) -> None:
        """Open the devices, deliver blocks, and reopen the devices when lost, until cancelled.

        Raises ``SoundError`` if they cannot be opened the first time, or if a driver hangs for
        half a minute: then only a new process helps.
        """
        try:
            devices = await self._driver.devices()
            self._names = resolve(devices, self._settings)
            microphone, speaker = self._names.among(devices)
            assert microphone is not None
            assert speaker is not None
            opening = await self._open(microphone, speaker)
            while True:
                loss = await self._deliver(opening)
                self._end_opening()
                self._notify(loss)
                opening = await self._find_again(loss.name)
        finally:
            self._end_opening()
            self._inbox.end()
            await self._driver.close()
            self._driver.end()

    def heard_s(self, sound_id: str) -> float:
        """Seconds of this sound that have left the loudspeaker; 0 for an unknown sound."""
        return self._speaker.heard_s(sound_id, asyncio.get_running_loop().time())

    def state(self) -> CardState:
        opening = self._opening
        if opening is None:
            return CardState(self._names.microphone, self._names.speaker)
        return CardState(
            self._names.microphone,
            self._names.speaker,
            opening.microphone.rate_hz,
            opening.speaker_hz,
            opening.latency,
            opening.microphone.xruns + self._speaker.xruns,
        )

    # --- opening ----------------------------------------------------------------------------------

    async def _open(self, microphone: Device, speaker: Device) -> _Opening:
        channel = channel_of(microphone, self._settings.channel)
        wanted_hz = self._settings.rate_hz
        rates: dict[Role, list[int]] = {
            "microphone": list(rates_to_try(microphone, wanted_hz)),
            "loudspeaker": list(rates_to_try(speaker, wanted_hz)),
        }
        while True:
            plan_hz = rates["microphone"][0], rates["loudspeaker"][0]
            try:
                return await self._try(microphone, speaker, channel, plan_hz)
            except RateRefused as refusal:
                rates[refusal.role].pop(0)
                if not rates[refusal.role]:
                    raise no_rate(refusal.role, refusal.name) from refusal

    async def _try(
        self, microphone: Device, speaker: Device, channel: int, rates: tuple[int, int]
    ) -> _Opening:
        source = Microphone(rates[0])
        opening = _Opening(asyncio.get_running_loop(), source, rates[1])

        def on_heard(pcm: Pcm, at_s: float, now_s: float, xrun: bool) -> None:
            source.take(pcm, at_s, now_s, xrun)
            opening.wake()

        on_asked, on_ended = self._speaker_stream(opening)
        opening.plan = Plan(
            microphone=microphone,
            channel=channel,
            microphone_hz=rates[0],
            speaker=speaker,
            speaker_hz=rates[1],
            speaker_latency_s=self._dropouts.latency_s,
            on_heard=on_heard,
            on_asked=on_asked,
            on_ended=on_ended,
        )
        opening.latency = await self._driver.open(opening.plan)
        self._opening = opening
        self._notify(DevicesReady(microphone.name, speaker.name, rates[0]))
        return opening

    def _speaker_stream(self, opening: _Opening) -> tuple[OnAsked, OnEnded]:
        """Callbacks for a new loudspeaker stream; an earlier one's are ignored from now on."""
        self._speaker.opened(opening.speaker_hz)
        tap = opening.tap = self._speaker.tap
        opening.began_s = asyncio.get_running_loop().time()

        def on_asked(frames: int, at_s: float, now_s: float, xrun: bool) -> Pcm:
            if self._speaker.tap is not tap:
                return np.zeros(frames, np.int16)
            return self._speaker.fill(frames, at_s, now_s, xrun)

        def on_ended(role: Role) -> None:
            if role == "microphone" or opening.tap is tap:
                opening.on_ended(role)

        return on_asked, on_ended

    async def _give_more_latency(self, opening: _Opening) -> None:
        """Reopen the loudspeaker during silence; the microphone keeps running. Raises
        ``SoundError``."""
        assert opening.plan is not None
        self._dropouts.give_more()
        self._speaker.closed(asyncio.get_running_loop().time())
        opening.alignment.speaker_reopened()
        on_asked, on_ended = self._speaker_stream(opening)
        latency_s = self._dropouts.latency_s
        opening.plan = replace(
            opening.plan, speaker_latency_s=latency_s, on_asked=on_asked, on_ended=on_ended
        )
        opening.latency = await self._driver.reopen_speaker(opening.plan)
        self._notify(MoreLatency(self._names.speaker, latency_s))

    def _end_opening(self) -> None:
        self._opening = None
        self._speaker.closed(asyncio.get_running_loop().time())

    async def _find_again(self, name: str) -> _Opening:
        retry_s = _RETRY_S
        loop = asyncio.get_running_loop()
        answered_s = loop.time()
        while True:
            # If a call hangs or fails, the device is not back yet.
            if await self._driver.close():
                answered_s = loop.time()
            elif loop.time() - answered_s > _HUNG_S:
                raise driver_hangs(name)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _MOST_RETRY_S)
            try:
                microphone, speaker = self._names.among(await self._driver.devices())
                if microphone is not None and speaker is not None:
                    return await self._open(microphone, speaker)
            except SoundError:
                self._speaker.closed(asyncio.get_running_loop().time())

    # --- delivering -------------------------------------------------------------------------------

    async def _deliver(self, opening: _Opening) -> DeviceLoss:
        """Deliver blocks until one of the devices is lost."""
        loop = asyncio.get_running_loop()
        while True:
            patience_s = _FIRST_S if opening.microphone.last_s is None else _STALLED_S
            due_s = loop.time() + patience_s
            try:
                async with asyncio.timeout_at(due_s):
                    await opening.arrived.wait()
            except TimeoutError:
                if not self._were_late(opening, loop.time() - due_s):
                    why = f"nothing came from it for {patience_s:g} s"
                    return DeviceLoss(self._names.microphone, why)
                continue
            opening.late_before = False
            opening.arrived.clear()
            if opening.ended_role is not None:
                return DeviceLoss(self._name(opening.ended_role), "its stream has ended")
            self._drain(opening)
            if loss := self._speaker_loss(opening, loop.time()):
                return loss
            try:
                await self._mind_dropouts(opening, loop.time())
            except SoundError as error:
                return DeviceLoss(self._names.speaker, error.account)

    def _were_late(self, opening: _Opening, by_s: float) -> bool:
        """Whether this program was late itself, so that a driver's calls may still be unprocessed;
        accepted only once in a row."""
        if opening.late_before or not _LATE_S < by_s < _STOOD_STILL_S:
            return False
        opening.late_before = True
        opening.late_s = asyncio.get_running_loop().time()
        return True

    def _speaker_loss(self, opening: _Opening, now_s: float) -> DeviceLoss | None:
        last_s = self._speaker.last_s
        since_s = max(opening.began_s if last_s is None else last_s, opening.late_s)
        if now_s - since_s <= (_FIRST_S if last_s is None else _STALLED_S):
            return None
        return DeviceLoss(self._names.speaker, f"it took no sound for {now_s - since_s:.1f} s")

    async def _mind_dropouts(self, opening: _Opening, now_s: float) -> None:
        """Raises ``SoundError`` if the loudspeaker does not come back."""
        silent_s = now_s - self._speaker.sounded_s
        self._dropouts.note(self._speaker.xruns, silent_s < _SOUNDING_S, now_s)
        if self._dropouts.needs_more and silent_s > QUIET_S and self._speaker.queued_s() < 0.001:
            await self._give_more_latency(opening)

    def _drain(self, opening: _Opening) -> None:
        alignment = opening.alignment
        while (piece := opening.tap.take()) is not None:
            alignment.played(piece)
        while (piece := opening.microphone.ring.take()) is not None:
            notice = opening.life.feed(piece.pcm)
            if notice and notice.over == opening.lifeless and not opening.zeros.active:
                opening.lifeless = not notice.over
                self._notify(notice)
            for block in alignment.heard(piece):
                self._put(opening, block)

    def _put(self, opening: _Opening, block: SoundBlock) -> None:
        if opening.first and self._captured_s is not None:
            away_s = block.captured_at - self._captured_s
            lost_samples = max(0, round(away_s * LISTEN_RATE) - len(block.pcm))
            block = replace(block, lost_samples=lost_samples, reference_moved=0)
        opening.first = False
        self._captured_s = block.captured_at
        notice = opening.zeros.feed(block.pcm)
        self._inbox.put(block)
        if notice is not None:
            self._notify(notice)

    def _name(self, role: Role) -> str:
        return self._names.microphone if role == "microphone" else self._names.speaker


def _portaudio() -> SoundDriver:
    from hardware.sound.portaudio import PortAudio

    return PortAudio()
