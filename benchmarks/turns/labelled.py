"""How well ends of real turns are distinguished from inner pauses, on labelled recordings.

    python -m benchmarks.turns.labelled FOLDER [--set endpointing.confidence=0.95] [--out FILE]

``FOLDER`` has labels (``benchmarks.harness.labels``), or folders that have.

For each pause the models get the same input as in a session: the turn detector the turn so far and
64 ms of silence, the recogniser the turn so far, the language model its words. The report has, for
each source, with 95 % intervals by recording: the area under the ROC curve of ends against holds,
for each kind of evidence and for the decision; the holds that the decision takes for the end; its
wait at ends; and the curve of the two, for every threshold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.settings.languages import read_lexicons
from app.settings.load import config_dir, load_settings
from app.settings.model import Settings
from benchmarks.harness.ears import Ears, ears_of, opened_memo
from benchmarks.harness.labels import Label, labels, sound, sources
from benchmarks.harness.program import arguments, keep
from benchmarks.harness.statistics import Bootstrap, Estimate, Floats, interval
from pipeline.audio import LISTEN_RATE
from pipeline.conversation.chat import prompt
from pipeline.engines.word_scale import UNMEASURED
from pipeline.errors import ReachyVoiceError
from pipeline.items import MessageItem, TextPart
from pipeline.settings import Lexicon, lexicon_of
from pipeline.turn_taking.endpointing import Decision, Evidence, decide

SILENCE_S = 0.064
"""Silence of a pause that the turn detector hears, as in a session."""
LONGEST_HOLD_MS = 5_000
MEANS_MS, CUT_OFFS = (300, 600), (0.05, 0.10)
"""Where the curve is read: cut-offs at these mean waits, mean waits at these cut-offs."""
_SHIFTS = np.linspace(-8, 8, 321)
"""The curve's thresholds on the decision's log odds."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One pause. ``audio``: the turn detector's probability that the turn is over; ``complete``:
    the language model's that ``text`` is complete; ``bare``: without the last full stop."""

    source: str
    recording: str
    end: bool
    gap_ms: float
    turn_ms: float
    text: str
    audio: float
    complete: float | None
    bare: float | None


def read(folder: Path, ears: Ears, settings: Settings) -> Iterator[Labelled]:
    """Every labelled pause. Raises ``FileNotFoundError``, naming the missing file."""
    for source in sources(folder):
        for label in labels(source):
            yield _heard(source, label, ears, settings)


def _heard(source: Path, label: Label, ears: Ears, settings: Settings) -> Labelled:
    whole = sound(source, label.recording, label.channel)
    start, end = (round(s * LISTEN_RATE) for s in (label.turn_start_s, label.speech_end_s))
    start = max(0, start - settings.endpointing.prefix_padding_ms * LISTEN_RATE // 1000)
    text = ears.transcribe(whole[start : end + round(0.1 * LISTEN_RATE)])

    def complete(words: str) -> float | None:
        said = [MessageItem("", "user", (TextPart(words),))]
        return ears.words_complete(prompt(settings.conversation.instructions, said))

    return Labelled(
        source.name,
        label.recording,
        label.end,
        label.gap_ms,
        label.turn_ms,
        text,
        ears.turn_over(whole[start : end + round(SILENCE_S * LISTEN_RATE)]),
        complete(text) if text else None,
        complete(text.rstrip(" .")) if text.rstrip(" .") else None,
    )


# --- figures -----------------------------------------------------------------------------------


def decided(
    pause: Labelled, complete: float | None, settings: Settings, lexicon: Lexicon
) -> Decision:
    words = UNMEASURED.log_odds(complete)
    evidence = Evidence(pause.audio, pause.text, words, turn_ms=round(pause.turn_ms))
    return decide(evidence, settings.endpointing, lexicon)


def figures(pauses: Sequence[Labelled], settings: Settings) -> dict[str, Any]:
    """Figures for the pauses of one source."""
    lexicon = lexicon_of(read_lexicons(config_dir() / "languages"), "en")
    names = [each.recording for each in pauses]
    draws = Bootstrap(names)
    ends = np.array([each.end for each in pauses])
    decisions = [decided(each, each.complete, settings, lexicon) for each in pauses]
    unread = [decided(each, None, settings, lexicon) for each in pauses]
    odds = _log_odds([each.probability for each in decisions])
    waits = np.array([each.wait_ms for each in decisions], dtype=np.float64)
    gaps = np.array([each.gap_ms for each in pauses])
    evidence: dict[str, Sequence[float] | Floats] = {
        "sound": [each.audio for each in pauses],
        "words": [each.complete or 0.0 for each in pauses],
        "words without the full stop": [each.bare or 0.0 for each in pauses],
        "decision without the model's opinion": [each.probability for each in unread],
    }

    def area(values: Sequence[float] | Floats) -> Estimate:
        drawn = auc(np.asarray(values), ends, names, draws)
        return interval(drawn, len(names), len(draws.names))

    holds = [at for at in np.flatnonzero(~ends) if gaps[at] <= LONGEST_HOLD_MS]
    over = list(np.flatnonzero(ends))
    return {
        "ends": len(over),
        "holds": len(holds),
        "auc": {
            name: asdict(area(values)) for name, values in {**evidence, "decision": odds}.items()
        },
        "cut_offs": asdict(
            draws.mean([float(waits[at] < gaps[at]) for at in holds], [names[at] for at in holds])
        ),
        "wait_ms": {
            f"p{q}": asdict(draws.percentile(waits[over].tolist(), q, [names[at] for at in over]))
            for q in (50, 95)
        },
        "curve": curve(odds[over], odds[holds], gaps[holds], settings),
    }


def auc(values: Floats, ends: NDArray[np.bool_], names: Sequence[str], draws: Bootstrap) -> Floats:
    """The probability that an end has a higher value than a hold, in each draw; element 0: the
    data itself."""
    columns = draws.of(names)
    above = (values[ends, None] > values[None, ~ends]) + 0.5 * (
        values[ends, None] == values[None, ~ends]
    )
    weights = draws.counts[:, columns]
    won = np.einsum("de,eh,dh->d", weights[:, ends], above, weights[:, ~ends], optimize=True)
    pairs = weights[:, ends].sum(axis=1) * weights[:, ~ends].sum(axis=1)
    found: Floats = np.divide(won, pairs, out=np.full(len(won), np.nan), where=pairs > 0)
    return found


def curve(ends: Floats, holds: Floats, gaps_ms: Floats, settings: Settings) -> dict[str, Any]:
    """Mean wait at ends, against the share of holds cut off, as the threshold moves."""
    pause_ms, sure = (
        settings.endpointing.mean_pause_ms,
        _log_odds([settings.endpointing.confidence]),
    )

    def waits(odds: Floats, shift: float) -> Floats:
        longest = settings.endpointing.unsure_wait_ms * 3
        wait: Floats = np.clip(pause_ms * (sure - odds + shift), 64, longest)
        return wait

    points = [
        (float(waits(ends, s).mean()), float((waits(holds, s) < gaps_ms).mean())) for s in _SHIFTS
    ]
    means, cuts = np.array(points).T if len(holds) and len(ends) else (np.zeros(0), np.zeros(0))
    found: dict[str, Any] = {}
    for mean in MEANS_MS:
        reached = cuts[means <= mean]
        found[f"cut_offs_at_{mean}_ms"] = float(reached.min()) if len(reached) else None
    for cut in CUT_OFFS:
        reached = means[cuts <= cut]
        found[f"wait_ms_at_{cut:.0%}"] = float(reached.min()) if len(reached) else None
    return found


def _log_odds(probabilities: Sequence[float]) -> Floats:
    clipped = np.clip(np.asarray(probabilities, dtype=np.float64), 1e-9, 1 - 1e-9)
    odds: Floats = np.log(clipped / (1 - clipped))
    return odds


def table(found: dict[str, Any]) -> Iterator[str]:
    for source, each in found.items():
        yield f"{source}: {each['ends']} ends, {each['holds']} holds"
        for name, area in each["auc"].items():
            yield f"  area under the curve, {name:<36} {_shown(area, 1)}"
        yield f"  holds taken for the end {'':<33} {_shown(each['cut_offs'], 1)}"
        for name, wait in each["wait_ms"].items():
            yield f"  wait at ends, {name:<44} {_shown(wait, 0)} ms"
        yield f"  curve: {each['curve']}"


def _shown(estimate: dict[str, Any], unit: int) -> str:
    if estimate["value"] is None:
        return "-"
    digits = ".2f" if unit else ".0f"
    return f"{estimate['value']:{digits}} [{estimate['low']:{digits}}, {estimate['high']:{digits}}]"


def main() -> None:
    parser = arguments(__doc__, "benchmarks.turns.labelled", settings=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    try:
        settings = load_settings(given.config, given.sets).settings
        with opened_memo(settings) as memo:
            pauses = list(read(given.folder, ears_of(settings, memo), settings))
    except (FileNotFoundError, ReachyVoiceError) as error:
        sys.exit(str(error))
    names = sorted({each.source for each in pauses})
    found = {
        name: figures([each for each in pauses if each.source == name], settings) for name in names
    }
    print("\n".join(table(found)))
    keep({"figures": found, "pauses": [asdict(each) for each in pauses]}, given.out)


if __name__ == "__main__":
    main()
