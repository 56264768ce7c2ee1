"""For ``reachy-voice devices``: lists the sound devices and tests the chosen two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log10

import numpy as np

from app.settings.model import Settings
from app.talk.false_starts import false_starts, quiet_threshold, score_windows, turning_head
from hardware.robot.errors import RobotError
from hardware.settings import Robot, Sound
from hardware.sound.alignment import SoundBlock
from hardware.sound.card import CardState, SoundCard
from hardware.sound.devices import choose, choose_speaker, resolve
from hardware.sound.driver import SoundDriver
from hardware.sound.errors import SoundError
from hardware.sound.loopback import CHIRP_S, LoopbackEcho, chirp, find_echo, lost_start_s
from hardware.sound.notices import AllZero, DeviceLoss, Lifeless, SoundNotice
from hardware.sound.portaudio import PortAudio
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.errors import MissingExtra, WeightsError, one_error

_SILENCE_DBFS = -96.3
"""One quantisation step of int16."""
_SETTLE_S = 1.0
SILENT_S = 10.0
"""Long enough for a loudspeaker to go to sleep, and to notice a dead microphone."""
SLEEPY_MS = 60
"""Lost start of a chirp from which a loudspeaker counts as sleepy; less may be the room."""
_CHIRPS = 3
_CHIRP_SAMPLES = round(CHIRP_S * LISTEN_RATE)
_ROUND_S = 1.5
"""Time for a chirp, its echo, and silence until the next."""


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """One device."""

    name: str
    inputs: int
    outputs: int
    rates_hz: tuple[int, ...]
    """Supported now; empty if it cannot be opened."""
    array: bool
    """It is an XVF3800."""
    microphone: bool = False
    speaker: bool = False
    """For ``microphone`` and ``speaker``: the settings select it."""


@dataclass(frozen=True, slots=True)
class SoundTest:
    """What a test of the sound devices measured."""

    microphone: str
    speaker: str
    microphone_hz: int
    speaker_hz: int
    driver_latency_ms: tuple[float, float]
    room_dbfs: float
    """The microphone's level while nothing is played."""
    all_zero: bool
    loopback_ms: float | None
    """From the call that plays a sound to the block in which it comes back; ``None`` if no echo is
    heard."""
    echo_delay_ms: float | None
    """How far the echo lags behind the canceller's reference; 6 to 300 is good. ``None`` if no echo
    is heard."""
    echo_return_loss_db: float | None
    """How much quieter the echo is than the played sound; ``None`` if no echo is heard."""
    lost_samples: int
    xruns: int
    lost_start_ms: float | None = None
    """How much of the first chirp, which comes after silence, was not played; ``None`` if no echo
    is heard."""
    false_starts: int | None = None
    """Turns that would have begun in the ten seconds of silence; ``None`` without a VAD to tell."""
    quiet_threshold: float | None = None
    """The ``endpointing.speech_threshold`` at which no turn would begin; ``None`` if no threshold
    is high enough."""
    robot: str = "none"
    """``moved``, ``none``, or why it kept still."""

    @property
    def deaf(self) -> bool:
        """Whether the microphone delivered next to nothing."""
        return self.all_zero and self.loopback_ms is None


async def list_devices(sound: Sound) -> tuple[list[DeviceLine], list[str]]:
    """All devices, and why the settings select no microphone or no loudspeaker. Raises
    ``SoundError`` without PortAudio."""
    driver = PortAudio()
    try:
        devices = await driver.devices()
        problems: list[str] = []
        microphone = speaker = None
        try:
            microphone = choose(devices, "microphone", sound.microphone)
        except SoundError as error:
            problems.append(str(error))
        try:
            speaker = choose_speaker(devices, sound.speaker, microphone)
        except SoundError as error:
            problems.append(str(error))
        lines = [
            DeviceLine(
                name=device.name,
                inputs=device.inputs,
                outputs=device.outputs,
                rates_hz=await driver.rates(device),
                array=device.array,
                microphone=device is microphone,
                speaker=device is speaker,
            )
            for device in devices
        ]
        return lines, problems
    finally:
        driver.end()


async def chosen_devices(sound: Sound) -> tuple[str, str]:
    """Names of the microphone and the loudspeaker that the settings select. Raises
    ``SoundError``."""
    driver = PortAudio()
    try:
        choice = resolve(await driver.devices(), sound)
        return choice.microphone, choice.speaker
    finally:
        driver.end()


async def run_test(
    sound: Sound, robot: Robot, driver: SoundDriver | None = None
) -> tuple[SoundTest, Pcm]:
    """Listens for ten seconds while the robot moves, then plays three chirps. Also returns the
    sound of those ten seconds, for ``with_false_starts``. Raises ``SoundError``."""
    notices: list[SoundNotice] = []
    troubles: list[RobotError] = []
    card = SoundCard(sound, notices.append, driver)
    sounds = _SoundLog()
    with one_error():
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(card.run())
            reading = tasks.create_task(sounds.read(card))
            async with turning_head(robot, troubles.append):
                await asyncio.sleep(_SETTLE_S)
                begin = len(sounds.blocks)
                await asyncio.sleep(SILENT_S)
                silence = _join([block.pcm for block in sounds.blocks[begin:]])
            played_s = []
            for number in range(_CHIRPS):
                played_s.append(asyncio.get_running_loop().time())
                card.play(chirp(), LISTEN_RATE, f"chirp {number}")
                await asyncio.sleep(_ROUND_S)
            state = card.state()
            running.cancel()
            await reading
    result = _test_result(state, notices, sounds, played_s, _power(silence))
    return replace(result, robot=_robot_state(robot, troubles)), silence


def with_false_starts(test: SoundTest, silence: Pcm, settings: Settings) -> SoundTest:
    """Add the turns that begin in ``silence``, if the VAD is installed. Blocks."""
    try:
        heard = score_windows(silence, settings)
    except (MissingExtra, WeightsError):
        return test
    count = false_starts(heard, settings.endpointing)
    threshold = quiet_threshold(heard, settings.endpointing) if count else None
    return replace(test, false_starts=count, quiet_threshold=threshold)


def _robot_state(robot: Robot, troubles: list[RobotError]) -> str:
    if robot.url is None or not robot.moves:
        return "none"
    return str(troubles[0]) if troubles else "moved"


def _test_result(
    state: CardState,
    notices: list[SoundNotice],
    sounds: _SoundLog,
    played_s: list[float],
    room: float,
) -> SoundTest:
    loss = next((notice for notice in notices if isinstance(notice, DeviceLoss)), None)
    if loss is not None or state.latency is None or not sounds.blocks:
        raise SoundError(
            f"{loss.name if loss else state.microphone} was lost during the test",
            why=loss.why if loss else "it delivered no sound",
            fix="Check its cable, and test again",
        )
    echoes = sounds.echoes(played_s, room)
    return SoundTest(
        microphone=state.microphone,
        speaker=state.speaker,
        microphone_hz=state.microphone_hz,
        speaker_hz=state.speaker_hz,
        driver_latency_ms=(
            round(state.latency.microphone_s * 1000, 1),
            round(state.latency.speaker_s * 1000, 1),
        ),
        room_dbfs=round(_dbfs(room), 1),
        all_zero=any(isinstance(notice, AllZero | Lifeless) for notice in notices),
        loopback_ms=_median([late_ms for late_ms, _ in echoes]),
        echo_delay_ms=_median([echo.delay_samples / LISTEN_RATE * 1000 for _, echo in echoes]),
        echo_return_loss_db=_median([echo.return_loss_db for _, echo in echoes]),
        lost_samples=sum(block.lost_samples for block in sounds.blocks),
        xruns=state.xruns,
        lost_start_ms=sounds.lost_start_ms(played_s, echoes),
    )


class _SoundLog:
    """Records what the card delivered, and when."""

    def __init__(self) -> None:
        self.blocks: list[SoundBlock] = []
        self._came_s: list[float] = []

    async def read(self, card: SoundCard) -> None:
        loop = asyncio.get_running_loop()
        async for block in card.blocks():
            self.blocks.append(block)
            self._came_s.append(loop.time())

    def echoes(self, played_s: list[float], room: float) -> list[tuple[float, LoopbackEcho]]:
        """For each chirp that came back: milliseconds since its call, and its echo. ``room``: the
        microphone's power without chirps."""
        mic = _join([block.pcm for block in self.blocks])
        reference = _join([block.reference for block in self.blocks])
        size = len(self.blocks[0].pcm)
        echoes = []
        for first, called_s in zip(self._chirps(played_s), played_s, strict=False):
            until = first + round((CHIRP_S + 0.6) * LISTEN_RATE)
            echo = find_echo(reference[first : first + _CHIRP_SAMPLES], mic[first:until], room)
            if echo is not None:
                block = (first + echo.delay_samples) // size
                echoes.append(((self._came_s[block] - called_s) * 1000, echo))
        return echoes

    def lost_start_ms(
        self, played_s: list[float], echoes: list[tuple[float, LoopbackEcho]]
    ) -> float | None:
        """How much of the first chirp is missing, compared with the last one."""
        delay = _median([echo.delay_samples for _, echo in echoes])
        chirps = list(self._chirps(played_s))
        if delay is None or len(chirps) < 2:
            return None
        mic = _join([block.pcm for block in self.blocks])
        begins = [first + round(delay) for first in (chirps[0], chirps[-1])]
        first, last = (mic[begin : begin + _CHIRP_SAMPLES] for begin in begins)
        return None if len(last) < len(first) else round(lost_start_s(first, last) * 1000)

    def _chirps(self, played_s: list[float]) -> Iterator[int]:
        """The first sample of each chirp in what was played."""
        reference = _join([block.reference for block in self.blocks])
        size = len(self.blocks[0].pcm)
        at = 0
        for called_s in played_s:
            begin = next((n for n, s in enumerate(self._came_s) if s >= called_s), 0) * size
            search = max(begin - 10 * size, at)
            sounding = np.flatnonzero(reference[search:])
            if not len(sounding):
                return
            first = search + int(sounding[0])
            at = first + _CHIRP_SAMPLES
            yield first


def _join(pieces: list[Pcm]) -> Pcm:
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)


def _power(pcm: Pcm) -> float:
    """Without the offset that some sound cards have."""
    return float(np.var(pcm, dtype=np.float64)) if len(pcm) else 0.0


def _dbfs(power: float) -> float:
    return max(10 * log10(power / 32768**2), _SILENCE_DBFS) if power > 0 else _SILENCE_DBFS


def _median(values: list[float]) -> float | None:
    return round(float(np.median(values)), 1) if values else None
