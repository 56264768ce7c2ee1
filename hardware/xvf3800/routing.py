"""What is on a channel, in words: the mux of the XVF3800 (XMOS user guide XM-014888)."""

from __future__ import annotations

_BEAMS = ("slow beam 1", "slow beam 2", "the fast beam", "the auto-select beam")


def in_words(category: int, source: int, asr_beams: bool | None = None) -> str:
    """``AUDIO_MGR_OP_L`` or ``_R`` as a person would say it. ``asr_beams``: ``AEC_ASROUTONOFF``,
    which decides what category 7 is; None if it is not known."""
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
