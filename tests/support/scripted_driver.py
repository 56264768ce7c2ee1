"""A scripted sound driver and a card on top of it, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np

from hardware.settings import Sound
from hardware.sound.alignment import SoundBlock
from hardware.sound.card import SoundCard
from hardware.sound.devices import Device
from hardware.sound.driver import Latency, Plan
from hardware.sound.errors import RateRefused, Role, SoundError, driver_hangs
from hardware.sound.notices import SoundNotice
from pipeline.audio import Pcm

ARRAY = Device(0, "Reachy Mini Audio: USB Audio (hw:1,0)", 2, 2, 16_000)
TICK_S = 0.005
LAPTOP = Device(1, "Laptop", 2, 2, 48_000, default_input=True, default_output=True)


class ScriptedDriver:
    """Two streams that tick every 5 ms while they are open."""

    def __init__(self, *devices: Device) -> None:
        self.there = list(devices)
        self.plan: Plan | None = None
        self.refused: list[SoundError] = []
        self.rates_hz: dict[Role, int] = {}
        """The only rate that a device accepts."""
        self.hangs = 0
        self.close_hangs = False
        self.mic_stalls = self.speaker_stalls = False
        self.level = 100
        self.runs_dry = False
        self.given: list[Pcm] = []
        self.opened: list[tuple[str, str, int, int]] = []
        self.ended = False
        self.looked_s: list[float] = []
        """When the devices were listed."""
        self.latencies_s: list[float] = []
        """Of each loudspeaker stream."""
        self.no_speaker: SoundError | None = None
        """Raised when the speaker is reopened."""
        self._ticking: asyncio.Task[None] | None = None

    async def devices(self) -> Sequence[Device]:
        self.looked_s.append(asyncio.get_running_loop().time())
        if self.hangs:
            self.hangs -= 1
            raise driver_hangs("the sound system")
        return list(self.there)

    async def open(self, plan: Plan) -> Latency:
        if self.refused:
            raise self.refused.pop(0)
        rates: tuple[tuple[Role, Device, int], ...] = (
            ("microphone", plan.microphone, plan.microphone_hz),
            ("loudspeaker", plan.speaker, plan.speaker_hz),
        )
        for role, device, rate_hz in rates:
            if self.rates_hz.get(role, rate_hz) != rate_hz:
                raise RateRefused(role, device.name, rate_hz)
        self.plan = plan
        self.opened.append(
            (plan.microphone.name, plan.speaker.name, plan.microphone_hz, plan.speaker_hz)
        )
        self.latencies_s.append(plan.speaker_latency_s)
        self._ticking = asyncio.create_task(self._tick())
        return Latency(0.01, 0.01)

    async def reopen_speaker(self, plan: Plan) -> Latency:
        assert self.plan is not None
        old = self.plan
        old.on_asked(80, 0.0, 0.0, True)  # it may ask for samples until it has ended
        old.on_ended("loudspeaker")
        await asyncio.sleep(0.1)
        if self.no_speaker:
            raise self.no_speaker
        self.latencies_s.append(plan.speaker_latency_s)
        self.plan = plan
        return Latency(0.01, plan.speaker_latency_s)

    async def close(self) -> bool:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
            self._ticking = None
        if self.close_hangs:
            await asyncio.sleep(2)
        return not self.close_hangs

    def end(self) -> None:
        self.ended = True

    def unplug(self, role: Role, *stay: Device) -> None:
        assert self.plan is not None
        assert self._ticking is not None
        self.there = list(stay)
        self._ticking.cancel()
        self.plan.on_ended(role)

    async def _tick(self) -> None:
        assert self.plan is not None
        plan = self.plan
        loop = asyncio.get_running_loop()
        noise = np.random.default_rng(1)
        while True:
            now_s = loop.time()
            if not self.speaker_stalls:
                wanted = plan.speaker_hz // 200
                dry, self.runs_dry = self.runs_dry, False
                self.given.append(self.plan.on_asked(wanted, now_s + 0.015, now_s, dry))
            if not self.mic_stalls:
                heard = noise.integers(1, 5, plan.microphone_hz // 200)
                pcm = (self.level * heard).astype(np.int16)
                plan.on_heard(pcm, now_s - 0.015, now_s, False)
            await asyncio.sleep(0.005)


class SleepyDriver(ScriptedDriver):
    """Its microphone hears its loudspeaker, which sleeps after 5 s below -60 dBFS and loses the
    first ``lost_s`` of the next sound. Both run at one rate. ``late_s``: delay that it does not
    report."""

    def __init__(self, lost_s: float, late_s: float = 0.0) -> None:
        super().__init__(ARRAY)
        self._late_ticks = round(late_s / TICK_S)
        self._lost_ticks = self._lost_left = round(lost_s / TICK_S)
        self._silent_ticks = 0

    def _emitted(self, asked: Pcm) -> Pcm:
        if np.sqrt(np.mean(asked.astype(float) ** 2)) < 33:
            self._silent_ticks += 1
            if self._silent_ticks * TICK_S >= 5:
                self._lost_left = self._lost_ticks
            return asked
        self._silent_ticks = 0
        self._lost_left -= (asleep := self._lost_left > 0)
        return np.zeros_like(asked) if asleep else asked

    async def _tick(self) -> None:
        assert self.plan is not None
        plan = self.plan
        wanted, noise = round(plan.speaker_hz * TICK_S), np.random.default_rng(1)
        air = deque([np.zeros(wanted, np.int16)] * (10 + self._late_ticks))
        while True:
            now_s = asyncio.get_running_loop().time()
            air.append(self._emitted(plan.on_asked(wanted, now_s + 0.015, now_s, False)))
            pcm = (air.popleft() // 10 + noise.normal(0, 20, wanted)).astype(np.int16)
            plan.on_heard(pcm, now_s - 0.015, now_s, False)
            await asyncio.sleep(TICK_S)


class Scene:
    def __init__(self, driver: ScriptedDriver, **settings: object) -> None:
        self.driver = driver
        self.notices: list[SoundNotice] = []
        self.blocks: list[SoundBlock] = []
        self.card = SoundCard(Sound.model_validate(settings), self.notices.append, driver)

    @asynccontextmanager
    async def running(self, reads: bool = True) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.card.run())
            if reads:
                tasks.create_task(self.read())
            await asyncio.sleep(1)
            yield
            running.cancel()

    async def read(self) -> None:
        async for block in self.card.blocks():
            self.blocks.append(block)
