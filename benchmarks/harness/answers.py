"""Many kinds of answers: some hard to speak or to judge, and sentences from conversations."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

_TEXTS = Path(__file__).parents[1] / "turns" / "texts"
_MARKS = re.compile(r"\s*[/|~+]\s*|\[[^\]]*\]")

ANSWERS = (
    "Yes.",
    "No!",
    "Hmm, let me think about that.",
    "Ha ha ha, that is very funny!",
    "No, no, no, no, that is not what I meant.",
    "It is very, very, very cold in here.",
    "Row, row, row your boat, gently down the stream.",
    "Knock knock. Who is there? Knock knock. Who is there?",
    "Tick tock, tick tock, tick tock, says the old clock on the wall.",
    "La la la, la la la, la la la, I like to sing.",
    "Nooooo, please don't do that.",
    "Shhh, the baby is sleeping.",
    "Aaah, now I understand.",
    "Zzzz, I was asleep.",
    "The number is 0049 30 901820, extension 1111.",
    "You can reach me at reachy@example.com or on www.example.com/robots/mini.",
    "NASA, the ESA and the JAXA sent a CPU, a GPU and an FPGA to the ISS.",
    "My XVF3800 has 4 microphones and runs at 16000 Hz; it costs $149.99.",
    "It is 23:59 on 31/12/2026, and -12.5 degrees outside.",
    "Wait... what was that? I thought... well... never mind.",
    "First, the dog - a big one - ran; then: silence. (Really!)",
    "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity.",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.",
    "Seven hundred and seventy-seven thousand seven hundred and seventy-seven.",
    "Peter Piper picked a peck of pickled peppers. A peck of pickled peppers Peter Piper picked.",
    "She sells sea shells on the sea shore, and the shells that she sells are sea shells, I am "
    "sure.",
    "Bonjour, guten Tag, buenos dias, and konnichiwa to all of you!",
    "The antidisestablishmentarianist spoke about deoxyribonucleic acid and otolaryngology.",
    "Of course. I would love to tell you about the ocean, which covers more than seventy percent "
    "of our planet and is home to creatures that nobody has ever seen.",
    "Moonlight through the trees,\na small robot holds its breath,\nand the owl says who.",
    "An apple, a banana, a cucumber, a date, an egg, some flour, and a glass of milk.",
    "I don't know. I really don't know. I am sorry, but I don't know.",
    "Blah blah blah.",
    "The answer is (3 + 4) * 5 = 35, or 35%.",
    "A B C D E F G, H I J K L M N O P.",
)
"""Answers that are hard to judge: repetitive, spelled out, hummed, or hesitant."""

_WHO = ("The robot", "My grandmother", "A small grey cat", "Nobody in this house", "The weather")
_DOES = ("remembers", "will never forget", "is looking for", "has just found", "dreams about")
_WHAT = (
    "the way to the station",
    "an old letter from Lisbon",
    "everything that you said yesterday",
    "a rather long story about a lighthouse and its keeper",
    "two cups of coffee, half a cake and the newspaper",
    "what happened in 1969",
)
_ENDS = (".", "!", ", I believe.", ", don't you think?", "; at least, that is what they say.")


def answers(count: int, seed: int) -> list[str]:
    """``count`` answers of one to six sentences; the hard ones first."""
    draw = random.Random(seed)
    pool = _pool()
    random_answers = (" ".join(draw.choices(pool, k=draw.randint(1, 6))) for _ in range(count))
    return list(itertools.islice(itertools.chain(ANSWERS, random_answers), count))


def _pool() -> list[str]:
    """Sentences from the corpus's texts, and combinations of phrases."""
    pool = [_plain(line) for name in ("tuning", "frozen", "allison") for line in _lines(name)]
    parts = itertools.product(_WHO, _DOES, _WHAT, _ENDS)
    return pool + [f"{who} {does} {what}{end}" for who, does, what, end in parts]


def _lines(name: str) -> list[str]:
    rows = (_TEXTS / f"{name}.yaml").read_text("utf-8").splitlines()
    return [
        row.split(":", 1)[-1] if name == "allison" else row.strip().removeprefix("- ")
        for row in rows
        if row.strip() and row[0] != "#" and row.rstrip()[-1] != ":" and "text:" not in row
    ]


def _plain(line: str) -> str:
    return " ".join(_MARKS.sub(" ", line).split()).strip("'\"")
