"""People's speech from Debian packages and the moonshine wheel, cut into whole turns.

All of it is real speech. Texts come with the recording, or from Moonshine (``text_by``).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from ruamel.yaml import YAML

from benchmarks.harness.acoustics import Signal, gained, rms_dbfs, to_signal
from benchmarks.harness.energy import FRAME_SAMPLES, frame_db, quietest, silences, speech_span
from benchmarks.harness.heard_speech import g722
from benchmarks.harness.scene import SceneKind
from benchmarks.turns.clips import Clip, GameLine, WordBoundary
from benchmarks.turns.listen import ClipRecogniser, border_kind, likely_token_after
from benchmarks.turns.queen import Queen
from benchmarks.turns.sky import Sky
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE
from tests.support.recordings import POCKETSPHINX, Recording, real_recordings

SHORTEST_S, LONGEST_S = 0.8, 12.0
ALLISON = Path("usr/share/asterisk/sounds/en_US_f_Allison")
QUEEN = Path("usr/share/scummvm/flight-of-the-amazon-queen/queen.1c")
SKY = Path("usr/share/scummvm/beneath-a-steel-sky/sky.dsk")
_ALLISON_TEXTS = Path(__file__).parent / "texts" / "allison.yaml"
_MARGIN_SAMPLES = LISTEN_RATE * 30 // 1000
_LEVEL_DBFS = -20.0
_SHARES = {"own": 0.5, "seams": 0.25, "plain": 0.25}
_OWN_PAUSE_S = 0.2
_MISHEARD_SHARE = 0.4
"""If a larger share of a line's words is wrong, the place of a seam in them is unknown."""

_DICKENS_END_S = 29.75
"""From here on the reading of Dickens is one turn: "The period was so far like ..."."""


@dataclass(frozen=True)
class Packages:
    """Debian packages: ``root`` is /, or a folder that ``dpkg-deb -x`` unpacked into."""

    roots: tuple[Path, ...] = (Path("/"),)

    def find(self, file: Path, package: str) -> Path:
        """``file`` below one of the roots. Raises ``FileNotFoundError`` with advice."""
        for root in self.roots:
            if (root / file).exists():
                return root / file
        raise FileNotFoundError(
            f"The corpus needs Debian's {package}: /{file} is absent. Run: apt-get install "
            f"{package} (or apt-get download {package}, dpkg-deb -x {package}*.deb DIRECTORY, and "
            "give --packages DIRECTORY)"
        )


# --- sources -----------------------------------------------------------------------------------


def allison(packages: Packages) -> list[Clip]:
    """Prompts by one professional speaker (CC-BY-SA 3.0). Needs the program ffmpeg."""
    folder = packages.find(ALLISON, "asterisk-core-sounds-en-g722")
    if shutil.which("ffmpeg") is None:
        raise FileNotFoundError("The program ffmpeg is absent. Run: apt-get install ffmpeg")
    texts: dict[str, str] = YAML(typ="safe").load(_ALLISON_TEXTS)
    return [_allison_clip(folder / f"{name}.g722", name, text) for name, text in texts.items()]


def _allison_clip(file: Path, name: str, text: str) -> Clip:
    return Clip(
        name=f"allison-{name.replace('/', '-')}",
        source="real:asterisk-allison",
        speaker="allison",
        kind=kind_of(text),
        text=text,
        signal=trim(to_signal(g722(file))),
    )


def readers() -> list[Clip]:
    """``tests/support/recordings.py``: several people reading, playing cards, giving commands."""
    if not POCKETSPHINX.is_dir():
        raise FileNotFoundError(
            f"The corpus needs Debian's pocketsphinx-testdata: {POCKETSPHINX} is absent. "
            "Run: apt-get install pocketsphinx-testdata"
        )
    return [_reader(recording) for recording in real_recordings()]


def _reader(recording: Recording) -> Clip:
    pcm, text = recording.pcm, recording.text
    if recording.name == "two_cities":
        pcm = pcm[round(_DICKENS_END_S * LISTEN_RATE) :]
        text = text[text.index("the period was so far") :].capitalize()
    package = recording.source.split("-")[0]
    speaker = recording.name.split("-")[0] if "-" in recording.name else recording.name
    return Clip(
        name=f"{package}-{recording.name}",
        source=f"real:{package}",
        speaker=f"{package}-{speaker}",
        kind="digits" if recording.name == "dhd.2934z" else kind_of(text),
        text=text,
        signal=trim(to_signal(pcm)),
    )


class Game(Protocol):
    """A game's data file: ``sounds`` are the segments of a line, one after the other, 16 kHz."""

    @property
    def name(self) -> str: ...

    def lines(self) -> list[GameLine]: ...

    def sounds(self, line: GameLine) -> list[Signal]: ...


def queen(packages: Packages) -> Game:
    """Flight of the Amazon Queen: Australian actors, each line whole and cut into segments."""
    return Queen(packages.find(QUEEN, "flight-of-the-amazon-queen"))


def sky(packages: Packages) -> Game:
    """Beneath a Steel Sky: British actors."""
    return Sky(packages.find(SKY, "beneath-a-steel-sky"))


def actors(
    game: Game, count: int, listener: ClipRecogniser, rng: np.random.Generator
) -> list[Clip]:
    """``count`` lines of ``game`` in an order drawn by ``rng``, without lines that are not turns.

    Half of them have natural pauses, a quarter are joined from several recordings (if the game has
    such lines), the others are short lines in any order.
    """
    lines = game.lines()
    quota = {kind: round(count * share) for kind, share in _SHARES.items()}
    if all(len(line.places) == 1 for line in lines):
        quota["plain"] += quota.pop("seams")
    clips: list[Clip] = []
    for index in rng.permutation(len(lines)):
        line = lines[int(index)]
        pieces = [piece for sound in game.sounds(line) if len(piece := _speech(sound))]
        kind = _pausing(pieces)
        if quota.get(kind, 0) and (clip := _actor(game.name, line, pieces, listener)):
            quota[kind] -= 1
            clips.append(clip)
        if not any(quota.values()):
            break
    return clips


def _pausing(pieces: Sequence[Signal]) -> str:
    """Which of ``_SHARES`` a line belongs to; empty if it is too short or too long."""
    seconds = sum(len(piece) for piece in pieces) / LISTEN_RATE
    if not SHORTEST_S <= seconds <= LONGEST_S:
        return ""
    if any(silences(piece, _OWN_PAUSE_S) for piece in pieces):
        return "own"
    return "plain" if len(pieces) == 1 else "seams"


def _actor(
    game: str, line: GameLine, pieces: Sequence[Signal], listener: ClipRecogniser
) -> Clip | None:
    """The line as one turn; ``None`` if it is not understood as sentences."""
    whole, seams = _join(pieces)
    text = listener.hear(whole)
    if not plausible(text, whole):
        return None
    borders = []
    for at in seams:
        tokens, errors = likely_token_after(text, listener.sides(whole, at))
        if errors > _MISHEARD_SHARE * len(text.split()):
            return None
        kind = border_kind(text, tokens)
        borders.append(WordBoundary(at, "clause" if kind == "word" else kind, tokens, True))
    return Clip(
        name=f"{game}-{line.name.lower()}",
        source=f"real:{game}",
        speaker=f"{game}-{line.speaker}",
        kind=kind_of(text),
        text=text,
        signal=whole,
        borders=tuple(borders),
        text_by="moonshine",
    )


def _join(pieces: Sequence[Signal]) -> tuple[Signal, list[int]]:
    """The pieces one after the other, with 0.2 s between them, and the middle of each gap."""
    between = np.zeros(LISTEN_RATE // 5, dtype=np.float32)
    whole = pieces[0]
    seams = []
    for piece in pieces[1:]:
        seams.append(len(whole) + len(between) // 2)
        whole = np.concatenate([whole, between, piece])
    return whole, seams


def _speech(signal: Signal) -> Signal:
    """The speech in ``signal``, at -20 dBFS; empty if shorter than a quarter second."""
    try:
        speech = trim(signal)
    except ValueError:
        return signal[:0]
    if len(speech) < LISTEN_RATE // 4:
        return signal[:0]
    return gained(speech, _LEVEL_DBFS - rms_dbfs(speech))


# --- what they say -----------------------------------------------------------------------------


def trim(signal: Signal) -> Signal:
    """``signal`` with 30 ms around the speech. Raises ``ValueError`` if there is no speech."""
    span = speech_span(signal)
    return signal[max(0, span.start - _MARGIN_SAMPLES) : span.end + _MARGIN_SAMPLES]


def plausible(text: str, signal: Signal) -> bool:
    """Whether ``signal`` can be ``text``, and ``text`` a turn.

    Groans and songs yield no words, or far too many or too few. A comma at the end means that the
    line goes on in the next recording.
    """
    per_second = len(words(text)) / (len(signal) / LISTEN_RATE)
    whole = text[:1].isalpha() and text[-1:] in (".", "!", "?") and text.isascii()
    return whole and 1.0 <= per_second <= 6.0


def kind_of(text: str) -> SceneKind:
    """The kind of a turn, from its text alone."""
    sentences = [piece for piece in text.replace("?", ".").replace("!", ".").split(".") if piece]
    if len(sentences) > 1:
        return "two-sentences"
    if len(words(text)) == 1:
        return "one-word"
    if text.endswith("?"):
        return "question"
    first = words(text)[0] if words(text) else ""
    return "command" if first in {"please", "press", "enter", "go", "do"} else "statement"


def with_borders(clip: Clip, listener: ClipRecogniser) -> Clip:
    """``clip`` with its borders: one in each silence, and others at soft places where a cut keeps
    exactly the words of the whole."""
    borders = [border for border in clip.borders if border.seam]
    own = [(silence.start + silence.end) // 2 for silence in silences(clip.signal)]
    for at in own + _dips(clip.signal):
        if any(abs(border.at - at) < LISTEN_RATE // 5 for border in borders):
            continue
        sides = listener.sides(clip.signal, at)
        tokens, errors = likely_token_after(clip.text, sides)
        if tokens and (errors == 0 or (at in own and errors <= len(clip.text.split()) // 2)):
            borders.append(WordBoundary(at, border_kind(clip.text, tokens), tokens))
    return replace(clip, borders=tuple(sorted(borders, key=lambda border: border.at)))


def _dips(signal: Signal) -> list[int]:
    """The clip's 5 softest dips of level, a quarter of a second from its ends."""
    levels = np.convolve(frame_db(signal), np.ones(3) / 3, "same")
    margin = 25
    dips = [
        frame
        for frame in range(margin, len(levels) - margin)
        if levels[frame] == levels[frame - 8 : frame + 9].min()
    ]
    softest = sorted(dips, key=lambda frame: float(levels[frame]))[:5]
    return [
        quietest(signal, (frame - 1) * FRAME_SAMPLES, (frame + 2) * FRAME_SAMPLES)
        for frame in softest
    ]
