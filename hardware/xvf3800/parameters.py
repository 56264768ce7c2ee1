"""Every useful parameter of the XVF3800, as data.

Names, ids, types and access are those of the chip's servicers, as XMOS (user guide XM-014888,
control command appendix), Pollen (reachy-mini 1.13.0) and Seeed (their XVF3800 repository) publish
them; ranges are those of Seeed's command list and the user guide. Commands for factory tests, for
filter coefficients and for timing counters are left out.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from struct import Struct
from typing import Literal

from hardware.xvf3800.boards import Board
from hardware.xvf3800.errors import ParameterError

Type = Literal["char", "uint8", "uint16", "int32", "uint32", "float", "radians"]
Access = Literal["ro", "rw", "wo"]
Ranges = tuple[tuple[float, float], ...]
Value = float | int

_FORMATS: dict[Type, str] = {
    "char": "B",
    "uint8": "B",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "float": "f",
    "radians": "f",
}

ON_OFF: Ranges = ((0, 1),)
SHARE: Ranges = ((0.0, 1.0),)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    resource: int
    """The servicer in the chip."""
    command: int
    count: int
    """How many values of ``type`` it has."""
    access: Access
    type: Type
    meaning: str
    ranges: Ranges = ()
    """The allowed (least, greatest) ranges of a value; empty if only the type limits it."""

    @property
    def payload(self) -> Struct:
        """How its values are sent."""
        return Struct(f"<{self.count}{_FORMATS[self.type]}")


SYSTEM, POST, GPO, AEC, AUDIO = 48, 17, 20, 33, 35

_EVERYWHERE = (
    Parameter("VERSION", SYSTEM, 0, 3, "ro", "uint8", "firmware: major, minor, patch"),
    Parameter("BLD_MSG", SYSTEM, 1, 50, "ro", "char", "the build's name: rate, channels, array"),
    Parameter("BLD_HOST", SYSTEM, 2, 30, "ro", "char", "where it was built"),
    Parameter("BLD_REPO_HASH", SYSTEM, 3, 40, "ro", "char", "what it was built from"),
    Parameter("BLD_MODIFIED", SYSTEM, 4, 6, "ro", "char", "whether that was changed by hand"),
    Parameter("BOOT_STATUS", SYSTEM, 5, 3, "ro", "char", "what it started from"),
    Parameter("REBOOT", SYSTEM, 7, 1, "wo", "uint8", "restarts the chip"),
    Parameter(
        "USB_BIT_DEPTH",
        SYSTEM,
        8,
        2,
        "rw",
        "uint8",
        "bits in, bits out; restarts the chip",
        ((16, 16), (24, 24), (32, 32)),
    ),
    Parameter("SAVE_CONFIGURATION", SYSTEM, 9, 1, "wo", "uint8", "keeps all that is set"),
    Parameter("CLEAR_CONFIGURATION", SYSTEM, 10, 1, "wo", "uint8", "forgets what was kept"),
    Parameter("GPO_READ_VALUES", GPO, 0, 5, "ro", "uint8", "pins X0D11, 30, 31, 33, 39"),
    Parameter("GPO_WRITE_VALUE", GPO, 1, 2, "wo", "uint8", "pin, level"),
    Parameter("LED_EFFECT", GPO, 12, 1, "rw", "uint8", "0 off, 1 breath ... 5 ring", ((0, 5),)),
    Parameter("LED_BRIGHTNESS", GPO, 13, 1, "rw", "uint8", "of breath and rainbow"),
    Parameter("LED_GAMMIFY", GPO, 14, 1, "rw", "uint8", "gamma correction", ON_OFF),
    Parameter("LED_SPEED", GPO, 15, 1, "rw", "uint8", "of breath and rainbow"),
    Parameter("LED_COLOR", GPO, 16, 1, "rw", "uint32", "of breath and single", ((0, 0xFFFFFF),)),
    Parameter("LED_DOA_COLOR", GPO, 17, 2, "rw", "uint32", "ring, direction", ((0, 0xFFFFFF),)),
    Parameter("AEC_AECPATHCHANGE", AEC, 0, 1, "ro", "int32", "1: the echo's path changed"),
    Parameter(
        "AEC_HPFONOFF", AEC, 1, 1, "rw", "int32", "high-pass: off, 70, 125, 150, 180 Hz", ((0, 4),)
    ),
    Parameter("AEC_AECSILENCELEVEL", AEC, 2, 2, "rw", "float", "set, current", SHARE),
    Parameter("AEC_AECCONVERGED", AEC, 3, 1, "ro", "int32", "1: the echo canceller has settled"),
    Parameter("AEC_AECEMPHASISONOFF", AEC, 4, 1, "rw", "int32", "off, on, on_eq", ((0, 2),)),
    Parameter("AEC_FAR_EXTGAIN", AEC, 5, 1, "rw", "float", "dB, gain outside of the chip"),
    Parameter("AEC_PCD_COUPLINGI", AEC, 6, 1, "rw", "float", "path change: sensitivity", SHARE),
    Parameter("AEC_PCD_MINTHR", AEC, 7, 1, "rw", "float", "path change: least", ((0.0, 0.02),)),
    Parameter("AEC_PCD_MAXTHR", AEC, 8, 1, "rw", "float", "path change: most", ((0.025, 0.2),)),
    Parameter("AEC_RT60", AEC, 9, 1, "ro", "float", "s, the room's reverberation; negative: none"),
    Parameter(
        "AEC_ASROUTONOFF", AEC, 35, 1, "rw", "int32", "category 7: 0 residual, 1 ASR beams", ON_OFF
    ),
    Parameter("AEC_ASROUTGAIN", AEC, 36, 1, "rw", "float", "of the ASR beams", ((0.0, 1000.0),)),
    Parameter("AEC_FIXEDBEAMSONOFF", AEC, 37, 1, "rw", "int32", "beams stay where put", ON_OFF),
    Parameter("AEC_FIXEDBEAMNOISETHR", AEC, 38, 2, "rw", "float", "of fixed beams", SHARE),
    Parameter("SHF_BYPASS", AEC, 70, 1, "rw", "uint8", "1: no echo cancelling (tests)", ON_OFF),
    Parameter("AEC_NUM_MICS", AEC, 71, 1, "ro", "int32", "microphones"),
    Parameter("AEC_NUM_FARENDS", AEC, 72, 1, "ro", "int32", "references"),
    Parameter("AEC_MIC_ARRAY_TYPE", AEC, 73, 1, "ro", "int32", "1 linear, 2 square"),
    Parameter("AEC_MIC_ARRAY_GEO", AEC, 74, 12, "ro", "float", "m, x y z of each microphone"),
    Parameter(
        "AEC_AZIMUTH_VALUES", AEC, 75, 4, "ro", "radians", "beam 1, beam 2, free, auto-select"
    ),
    Parameter("AEC_SPENERGY_VALUES", AEC, 80, 4, "ro", "float", "speech in those beams, 0: none"),
    Parameter("AEC_FIXEDBEAMSAZIMUTH_VALUES", AEC, 81, 2, "rw", "radians", "of fixed beams"),
    Parameter("AEC_FIXEDBEAMSELEVATION_VALUES", AEC, 82, 2, "rw", "radians", "of fixed beams"),
    Parameter("AEC_FIXEDBEAMSGATING", AEC, 83, 1, "rw", "uint8", "silence the others", ON_OFF),
    Parameter("AUDIO_MGR_MIC_GAIN", AUDIO, 0, 1, "rw", "float", "factor"),
    Parameter("AUDIO_MGR_REF_GAIN", AUDIO, 1, 1, "rw", "float", "factor"),
    Parameter(
        "AUDIO_MGR_SELECTED_AZIMUTHS", AUDIO, 11, 2, "ro", "radians", "processed, auto-select"
    ),
    Parameter("AUDIO_MGR_SELECTED_CHANNELS", AUDIO, 12, 2, "rw", "uint8", "feed category 8"),
    Parameter("AUDIO_MGR_OP_PACKED", AUDIO, 13, 2, "rw", "uint8", "left, right", ON_OFF),
    Parameter("AUDIO_MGR_OP_UPSAMPLE", AUDIO, 14, 2, "rw", "uint8", "left, right", ON_OFF),
    Parameter("AUDIO_MGR_OP_L", AUDIO, 15, 2, "rw", "uint8", "channel 1: category, source"),
    Parameter("AUDIO_MGR_OP_R", AUDIO, 19, 2, "rw", "uint8", "channel 2: category, source"),
    Parameter("AUDIO_MGR_OP_ALL", AUDIO, 23, 12, "rw", "uint8", "all of the routing"),
    Parameter("AUDIO_MGR_FAR_END_DSP_ENABLE", AUDIO, 25, 1, "rw", "uint8", "", ON_OFF),
    Parameter("AUDIO_MGR_SYS_DELAY", AUDIO, 26, 1, "rw", "int32", "samples, of the reference"),
    Parameter("PP_AGCONOFF", POST, 10, 1, "rw", "int32", "automatic gain", ON_OFF),
    Parameter("PP_AGCMAXGAIN", POST, 11, 1, "rw", "float", "factor", ((1.0, 1000.0),)),
    Parameter("PP_AGCDESIREDLEVEL", POST, 12, 1, "rw", "float", "power", ((1e-8, 1.0),)),
    Parameter("PP_AGCGAIN", POST, 13, 1, "rw", "float", "factor, now", ((1.0, 1000.0),)),
    Parameter("PP_AGCTIME", POST, 14, 1, "rw", "float", "s", ((0.5, 4.0),)),
    Parameter("PP_AGCFASTTIME", POST, 15, 1, "rw", "float", "s", ((0.05, 4.0),)),
    Parameter("PP_LIMITONOFF", POST, 19, 1, "rw", "int32", "limiter", ON_OFF),
    Parameter("PP_LIMITPLIMIT", POST, 20, 1, "rw", "float", "power", ((1e-8, 1.0),)),
    Parameter("PP_MIN_NS", POST, 21, 1, "rw", "float", "floor, steady noise; 1: kept", SHARE),
    Parameter("PP_MIN_NN", POST, 22, 1, "rw", "float", "floor, other noise; 1: kept", SHARE),
    Parameter("PP_ECHOONOFF", POST, 23, 1, "rw", "int32", "echo suppressor", ON_OFF),
    Parameter("PP_GAMMA_E", POST, 24, 1, "rw", "float", "echo, strength", ((0.0, 2.0),)),
    Parameter("PP_GAMMA_ETAIL", POST, 25, 1, "rw", "float", "echo's tail", ((0.0, 2.0),)),
    Parameter("PP_GAMMA_ENL", POST, 26, 1, "rw", "float", "non-linear echo", ((0.0, 5.0),)),
    Parameter("PP_NLATTENONOFF", POST, 27, 1, "rw", "int32", "non-linear echo", ON_OFF),
    Parameter("PP_NLAEC_MODE", POST, 28, 1, "rw", "int32", "0 normal, else training", ((0, 2),)),
    Parameter(
        "PP_MGSCALE", POST, 29, 3, "rw", "float", "least gain: most, least, now", ((0.0, 1e5),)
    ),
    Parameter("PP_FMIN_SPEINDEX", POST, 30, 1, "rw", "float", "Hz", ((0.0, 7999.0),)),
    Parameter(
        "PP_DTSENSITIVE",
        POST,
        31,
        1,
        "rw",
        "int32",
        "double talk; higher: easier to interrupt, more echo",
        ((0, 5), (10, 15)),
    ),
    Parameter("PP_ATTNS_MODE", POST, 32, 1, "rw", "int32", "quieter without speech", ON_OFF),
    Parameter("PP_ATTNS_NOMINAL", POST, 33, 1, "rw", "float", "by how much", SHARE),
    Parameter("PP_ATTNS_SLOPE", POST, 34, 1, "rw", "float", "how steeply", ((0.0, 5.0),)),
)

_OWN: dict[Board, tuple[Parameter, ...]] = {
    "reachy": (
        Parameter("DOA_VALUE", GPO, 18, 2, "ro", "uint32", "degrees, 1: speech"),
        Parameter("DOA_VALUE_RADIANS", GPO, 19, 2, "ro", "radians", "angle, 1: speech"),
    ),
    "seeed": (
        Parameter("DOA_VALUE", GPO, 18, 2, "ro", "uint16", "degrees, 1: speech"),
        Parameter("LED_RING_COLOR", GPO, 19, 12, "rw", "uint32", "of each light", ((0, 0xFFFFFF),)),
    ),
}

PARAMETERS: dict[Board, dict[str, Parameter]] = {
    board: {parameter.name: parameter for parameter in (*_EVERYWHERE, *own)}
    for board, own in _OWN.items()
}

LASTING = ("SAVE_CONFIGURATION", "CLEAR_CONFIGURATION", "USB_BIT_DEPTH")
"""These survive a restart; all others are volatile."""


def is_known(name: str) -> bool:
    """Whether any board has this parameter; the case of letters does not matter."""
    return any(name.upper() in names for names in PARAMETERS.values())


def parameter(board: Board, name: str) -> Parameter:
    """Look up a parameter, ignoring case. Raises ``ParameterError`` with the most similar names."""
    table = PARAMETERS[board]
    if entry := table.get(name.upper()):
        return entry
    alike = difflib.get_close_matches(name.upper(), table, n=3, cutoff=0.5)
    other = is_known(name)
    raise ParameterError(
        f"There is no parameter {name.upper()}",
        why=f"only another board has it, this one is {board}" if other else "",
        fix=f"Did you mean {' or '.join(alike)}?" if alike else "Run: reachy-voice xvf dump",
    )


# --- what is on a channel: the mux (XMOS user guide XM-014888) ------------------------------------

_BEAMS = ("slow beam 1", "slow beam 2", "the fast beam", "the auto-select beam")


def route_in_words(category: int, source: int, asr_beams: bool | None) -> str:
    """``AUDIO_MGR_OP_L`` or ``_R`` in words. ``asr_beams``: ``AEC_ASROUTONOFF``, which decides what
    category 7 is; None if unknown."""
    beam = _BEAMS[source] if source < len(_BEAMS) else f"source {source}"
    microphone = f"microphone {source + 1}"
    if category == 7:
        if asr_beams is None:
            return f"an ASR beam or an echo residual ({category} {source})"
        return f"for recognisers: {beam}" if asr_beams else f"{microphone}, its echo taken out"
    words = {
        0: "silence",
        1: f"{microphone}, raw",
        2: f"{microphone}, unpacked",
        3: f"{microphone}, amplified and delayed",
        4: "what is played (the echo's reference)",
        5: "what is played, delayed (the echo's reference)",
        6: f"processed: {beam}",
        8: "processed: the chosen beam",
        9: "after the extra DSP",
        10: "what is played, at its own rate",
        11: f"{microphone}, amplified",
        12: "what is played, delayed, at its own rate",
    }
    return words.get(category, f"category {category}, source {source}")


def is_speech(category: int) -> bool:
    """Whether a channel with this category is fit for listening: a processed or an ASR beam."""
    return category in (6, 7, 8, 9)
