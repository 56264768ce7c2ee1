"""Tunings of the chip, by name. Not yet measured on hardware."""

from __future__ import annotations

from dataclasses import dataclass

from hardware.xvf3800.codec import Values
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Preset:
    meaning: str
    settings: tuple[tuple[str, Values], ...]
    """Parameters and their values, in the order in which they are written."""


PRESETS: dict[str, Preset] = {
    "firmware": Preset(
        "what the chip has now; after `reachy-voice xvf reboot` its firmware's own tuning", ()
    ),
    # audio/startup_config.py of the conversation app 0.10.0: much less noise and echo suppression.
    "reachy-app": Preset(
        "as the Reachy Mini app tunes it: noise and echo are kept, so that speech survives",
        (
            ("PP_AGCMAXGAIN", (10.0,)),
            ("PP_MIN_NS", (0.8,)),
            ("PP_MIN_NN", (0.8,)),
            ("PP_GAMMA_E", (0.5,)),
            ("PP_GAMMA_ETAIL", (0.5,)),
            ("PP_NLATTENONOFF", (0,)),
            ("PP_MGSCALE", (4.0, 1.0, 1.0)),
        ),
    ),
    # From 10 on, PP_DTSENSITIVE adds a second detector of near speech; users of the ReSpeaker
    # report that 12 lets them interrupt it.
    "barge-in": Preset(
        "you are heard while the robot speaks; some more of its echo is, too",
        (("PP_DTSENSITIVE", (12,)), ("PP_NLATTENONOFF", (0,))),
    ),
    # XMOS user guide: category 7 with AEC_ASROUTONOFF 1 is the ASR beams, source 3 the auto-select.
    "asr-beam": Preset(
        "channel 2 is the beam for recognisers, without noise suppression (sound.channel: asr)",
        (("AEC_ASROUTONOFF", (1,)), ("AUDIO_MGR_OP_R", (7, 3))),
    ),
}


def preset(name: str) -> Preset:
    """The preset of this name. Raises ``ParameterError``."""
    if entry := PRESETS.get(name):
        return entry
    raise ParameterError(
        f"There is no preset {name}", fix=f"Use one of them: {', '.join(PRESETS)} (array.preset)"
    )


def apply_preset(control: ArrayControl, name: str) -> None:
    """Write a preset. Raises ``ArrayError``; values already written stay."""
    for parameter, values in preset(name).settings:
        control.write(parameter, *values)
