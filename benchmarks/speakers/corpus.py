"""Speech of many people, to be told apart: one array per speaker, without pauses, 16 kHz int16.

From Debian packages: ``ktuberling-data`` (words of a children's game in several languages), the
announcers of ``asterisk-core-sounds-*-wav``, the two fish of ``fillets-ng-data-cs`` and ``-nl``,
the hero of ``flight-of-the-amazon-queen``; and each channel of the telephone dialogues in a folder
of labels (``benchmarks.harness.labels``). Speakers of a package differ in language, recording and
microphone, which makes them easier to tell apart than people in one home.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.harness.acoustics import to_pcm
from benchmarks.turns.people import QUEEN, Packages
from benchmarks.turns.queen import Queen
from hardware.wav import read_recording
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.voices import speech_in
from pipeline.errors import AudioFormatError

LEAST_S, MOST_S = 28.0, 110.0
_KTUBERLING = Path("usr/share/ktuberling/sounds")
_ASTERISK = Path("usr/share/asterisk/sounds")
_FISH = Path("usr/share/games/fillets-ng/sound")
_TWICE = "es_MX_f_Allison"
"""Left out: the English announcer speaks Spanish as well."""
_READERS = {
    "ca": ("butterflies|robot|tv",),
    "da": ("egypt|moon|pizza|tv", "tux|xmas"),
    "en": ("(?!tv)",),
    "fr": ("egypte|lune|noel|papillons|pizzeria|robot|tv", "robin"),
    "ru": ("tux|tv|xmas",),
    "uk": ("egypt|moon|pizzeria|tv|xmas",),
}
"""For the languages of ``ktuberling-data`` that several people read: how the names of one reader's
files begin, as far as that can be told. Whole pictures of the game that one person read have
cosines of 0.81 and more, those of two 0.53 to 0.75; where the file formats differ, they agree."""

Speakers = Mapping[str, Pcm]


def speakers(packages: Packages, dialogues: Path | None, seed: int) -> Speakers:
    """Speakers with at least ``LEAST_S`` of speech; each one's recordings are in a seeded order."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, files in _files(packages):
        found[name] = _joined(_read([files[n] for n in rng.permutation(len(files))]))
    found["queen: joe"] = _joined(_queen(packages, rng))
    for file in sorted(dialogues.glob("*.flac")) if dialogues else []:
        for channel in (0, 1):
            found[f"{file.stem}: {channel}"] = _joined([_channel(file, channel)])
    return {name: pcm for name, pcm in found.items() if len(pcm) >= LEAST_S * LISTEN_RATE}


def _read(files: Sequence[Path]) -> Iterator[Pcm]:
    for file in files:
        with suppress(AudioFormatError):  # some are empty
            yield read_recording(file, LISTEN_RATE)


def _files(packages: Packages) -> Iterator[tuple[str, list[Path]]]:
    games = packages.find(_KTUBERLING, "ktuberling-data")
    for folder in sorted(each for each in games.iterdir() if each.is_dir()):
        for number, begin in enumerate(_READERS.get(folder.name, ("",))):
            files = [each for each in folder.glob("*.[ow]*") if re.match(begin, each.name)]
            yield f"ktuberling: {folder.name}{' 2' * number}", sorted(files)
    announcers = packages.find(_ASTERISK, "asterisk-core-sounds-en-wav")
    for folder in sorted(each for each in announcers.iterdir() if each.name != _TWICE):
        yield f"asterisk: {folder.name}", sorted(folder.glob("*.wav"))
    fish = packages.find(_FISH, "fillets-ng-data-nl")
    for language in ("cs", "nl"):
        for who in ("m", "v"):
            files = sorted(fish.glob(f"*/{language}/*-{who}-*.ogg"))
            yield f"fish: {language} {who}", files


def _queen(packages: Packages, rng: np.random.Generator) -> Iterator[Pcm]:
    queen = Queen(packages.find(QUEEN, "flight-of-the-amazon-queen"))
    lines = [each for each in queen.lines() if each.speaker == "joe"]
    for number in rng.permutation(len(lines)):
        yield from (to_pcm(sound) for sound in queen.sounds(lines[number]))


def _channel(file: Path, channel: int) -> Pcm:
    import soundfile
    import soxr

    sound, rate = soundfile.read(file, dtype="float32", always_2d=True)
    return to_pcm(soxr.resample(sound[:, channel], rate, LISTEN_RATE))


def _joined(recordings: Iterator[Pcm] | list[Pcm]) -> Pcm:
    parts, samples = [np.zeros(0, np.int16)], 0
    for each in recordings:
        parts.append(speech_in(each))
        samples += len(parts[-1])
        if samples >= MOST_S * LISTEN_RATE:
            break
    return np.concatenate(parts)
