"""How often names are transcribed right, without and with ``stt.words``, and what that costs.

    python -m benchmarks.keywords [--texts FILE ...] [--words NAME ...] [--out FILE]

Synthetic voices say thirty names, on which nothing was tuned, in sentences; Moonshine hears them.
The cost: words of people's recordings (``benchmarks.wer``) that become wrong, and words of
``--texts`` that are replaced although none of the names (or ``--words``) occurs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from app.settings.languages import read_lexicons
from app.settings.load import config_dir
from benchmarks import wer
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.program import arguments, finish, load, weights
from pipeline.engines.contract import Stt
from pipeline.engines.stt import moonshine
from pipeline.hearing.keywords import Keywords
from pipeline.settings import lexicon_of
from tests.support.recordings import Recording, real_recordings

ROBOT = "Reachy"
# fmt: off
NAMES = (
    "Anouk", "Baptiste", "Cosima", "Dmitri", "Fenna", "Giulietta", "Henrike", "Ignacio", "Jorinde",
    "Kazuki", "Lorcan", "Mireille", "Ottilie", "Pelagia", "Quirin", "Rosalind", "Svetlana",
    "Tobiah", "Ulrike", "Valentino", "Wilhelmina", "Yusuf", "Zephyrine", "Roomba", "Sonos",
    "Grafana", "Nextcloud", "Ollama", "Fairphone",
)
# fmt: on
SENTENCES = (
    "Yesterday {} went to the market with us.",
    "Can you say hello to {}?",
    "My favourite is still {}, I think.",
)
TO_THE_ROBOT = (
    "Hey {}.",
    "{}, turn your head to the left.",
    "Can you hear me, {}?",
    "I think {} is listening.",
    "Is {} a robot?",
)
FOUR = ("piper-joe 1.0", "flite slt", "flite rms", "espeak-ng en-us")


@dataclass(frozen=True, slots=True)
class NamedClip:
    """``text`` is ``heard`` after keywords have replaced words."""

    name: str
    said: str
    heard: str
    text: str


def measure(stt: Stt, keywords: Keywords, clips: Iterable[Recording]) -> list[NamedClip]:
    """Transcribe each clip, without and with keywords; a clip's name is the one said in it."""
    results = wer.measure(stt, clips)
    return [NamedClip(r.name, r.said, r.heard, keywords.put_into(r.heard)) for r in results]


def named_clips(voices: Voices) -> Iterator[Recording]:
    sentences = [(name, text, voice) for name in NAMES for text in SENTENCES for voice in FOUR]
    sentences += [(ROBOT, text, voice) for text in TO_THE_ROBOT for voice in voices.names]
    for name, text, voice in sentences:
        sentence = text.format(name)
        yield Recording(name, voices.say(voice, sentence).pcm, sentence, f"synthetic: {voice}")


def right(clips: Sequence[NamedClip]) -> dict[str, int]:
    """The number of clips in which the name is right."""
    without, with_words = (
        sum(clip.name.lower() in text(clip).lower() for clip in clips)
        for text in (attrgetter("heard"), attrgetter("text"))
    )
    return {"clips": len(clips), "without": without, "with": with_words}


def rates(clips: Sequence[NamedClip]) -> dict[str, float]:
    """Word error rates."""
    without = wer.total(wer.word_errors(clip.said, clip.heard) for clip in clips)
    with_words = wer.total(wer.word_errors(clip.said, clip.text) for clip in clips)
    return {"without": round(without.rate, 4), "with": round(with_words.rate, 4)}


def main() -> None:
    parser = arguments(__doc__, "benchmarks.keywords")
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="without these names")
    parser.add_argument("--words", nargs="*", default=[ROBOT, *NAMES], help="in place of the names")
    args = parser.parse_args()
    before = load()
    keywords = Keywords(args.words, lexicon_of(read_lexicons(config_dir() / "languages"), "en"))
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    clips = measure(stt, keywords, named_clips(Voices(weights("piper-joe"))))
    people = measure(stt, keywords, real_recordings())
    lines = [line for path in args.texts for line in path.read_text("utf-8").splitlines()]
    changes = [(old, new) for old in lines if (new := keywords.put_into(old)) != old]
    result = {
        "names": right([clip for clip in clips if clip.name != ROBOT]),
        ROBOT: right([clip for clip in clips if clip.name == ROBOT]),
        "word_errors": rates(clips),
        "word_errors_of_people": rates(people),
        "words_of_texts": sum(len(line.split()) for line in lines),
        "changed_lines": len(changes),
        "clips": [asdict(clip) for clip in clips],
    }
    finish(result, args.out, before, details="clips")


if __name__ == "__main__":
    main()
