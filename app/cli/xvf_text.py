"""What ``reachy-voice xvf`` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from hardware.xvf3800.boards import BOARD_NAMES, Board
from hardware.xvf3800.codec import Values
from hardware.xvf3800.errors import ArrayError
from hardware.xvf3800.parameters import Parameter, parameter, route_in_words
from hardware.xvf3800.watch import ArrayFound, ArrayLost, ArrayReading

NOT_KEPT = (
    "This is volatile: it is lost when the board restarts. "
    "To keep all current values: reachy-voice xvf set SAVE_CONFIGURATION 1"
)


def text_of(target: Parameter, values: Values | str) -> str:
    """Values as they can be typed, followed by angles in degrees; colours in hexadecimal."""
    if isinstance(values, str):
        return values
    if target.name.endswith("_COLOR"):
        return " ".join(f"0x{int(value):06x}" for value in values)
    text = " ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    if target.type == "radians" and target.name != "DOA_VALUE_RADIANS":
        degrees = " ".join("-" if math.isnan(v) else f"{math.degrees(v):.0f}°" for v in values)
        return f"{text}  ({degrees})"
    return text


def lines_of(board: Board, readings: Mapping[str, Values | str | ArrayError]) -> Iterator[str]:
    """A line for each parameter: name, values, meaning."""
    width = max(map(len, readings))
    asr = readings.get("AEC_ASROUTONOFF")
    asr_beams = bool(asr[0]) if isinstance(asr, tuple) else None
    for name, values in readings.items():
        target = parameter(board, name)
        if isinstance(values, ArrayError):
            yield f"{name:<{width}}  -  ({values.why or values.what})"
            continue
        meaning = target.meaning
        if name in ("AUDIO_MGR_OP_L", "AUDIO_MGR_OP_R") and isinstance(values, tuple):
            meaning = route_in_words(int(values[0]), int(values[1]), asr_beams)
        yield f"{name:<{width}}  {text_of(target, values)}  ({meaning})"


def reading_line(reading: ArrayReading, as_json: bool) -> str:
    """One reading as a line."""
    if as_json:
        return json.dumps(asdict(reading))
    direction = reading.direction
    echo = {None: "?", True: "settled", False: "not settled"}[reading.aec_converged]
    speech = "speech" if direction.speech else "      "
    energies = " ".join(f"{energy:9.3g}" for energy in reading.beam_energies)
    return f"{direction.azimuth_deg:4.0f}°  {speech}  beams {energies}  echo canceller {echo}"


def notice_line(notice: ArrayFound | ArrayLost) -> str:
    """A notice, for display."""
    if isinstance(notice, ArrayLost):
        return str(notice.error)
    through = " through the robot's daemon" if notice.via == "daemon" else ""
    return f"{BOARD_NAMES[notice.board]}, firmware {notice.firmware}{through}"
