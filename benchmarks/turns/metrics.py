"""The figures of one played scene. Pure: events and labels in, plain figures out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.harness.pauses import group_of, milliseconds
from benchmarks.harness.played_scene import PlayedScene
from benchmarks.harness.scene import PauseKind, RecordedTurn, ScenePause
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE
from pipeline.events import (
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TranscriptReady,
)
from pipeline.speaking.playback import PlaybackClock

INNER: frozenset[PauseKind] = frozenset({"word", "clause", "filler", "natural"})
"""Kinds of pauses in which the speaker is not done."""
UNFINISHED: frozenset[PauseKind] = frozenset({"word", "filler"})
"""Kinds after plainly unfinished words; pauses up to ``LONGEST_UNFINISHED_S`` count."""
SHORTEST_UNFINISHED_S, LONGEST_UNFINISHED_S = 0.3, 1.5
CLIENT_LATENCY_MS = 40.0
"""Delay from a server's message until the person hears its effect."""
SHORTEST_S, LONGEST_S = 0.2, 1.0
"""Lengths of inner pauses that count; in longer ones people often wait for an answer."""
MOST_HEARD_S = 0.5
"""If more of a first answer is heard, two sentences do not count as answered as one."""
JUST_AFTER_MS = 200.0
"""An answer confirmed this soon after speech resumed belongs to the pause."""
_COVERED = 0.8
"""Share of a part's speech that must be committed, and of its words that must be in the prompt."""

State = Literal["answered", "premature", "missed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply whose gate was opened. Times in ms since the scene's first sample."""

    gate_ms: float
    audio_ms: float | None
    heard_s: float
    sounds_ms: tuple[tuple[float, float], ...] = ()
    """Start and end of each sound at the client."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Speech that became an item: its range in ms and its words."""

    start_ms: float
    end_ms: float
    text: str


@dataclass(frozen=True, slots=True)
class PauseScore:
    kind: PauseKind
    seconds: float
    cut: bool
    """An answer was confirmed during the pause."""
    late: bool = False
    """An answer was confirmed just after the pause."""
    merged: bool = True
    """One user message had the speech before it and after it."""

    @property
    def counts(self) -> bool:
        """Whether the pause counts for the headline rate."""
        # A label is whole samples: 0.2 s may come out one sample short.
        within = SHORTEST_S - 0.001 <= self.seconds <= LONGEST_S + 0.001
        return self.kind in INNER and within

    @property
    def unfinished(self) -> bool:
        """Whether the pause counts for the rate after plainly unfinished words."""
        longest = LONGEST_UNFINISHED_S + 0.001
        return self.kind in UNFINISHED and SHORTEST_UNFINISHED_S - 0.001 <= self.seconds <= longest


@dataclass(frozen=True, slots=True)
class TwoSentences:
    """Outcome of a pause of ``seconds`` between two sentences."""

    seconds: float
    merged: bool
    """One user message had the speech before it and after it."""
    heard_s: float
    """How much of an answer in between was heard."""

    @property
    def as_one(self) -> bool:
        return self.merged and self.heard_s <= MOST_HEARD_S


@dataclass(frozen=True, slots=True)
class SceneScore:
    """The scores of one scene."""

    scene: str
    group: str
    real: bool
    kind: str
    condition: str
    state: State
    """How the turn's end was met; ``premature``: the last answer was confirmed before it."""
    gate_ms: float | None
    audio_ms: float | None
    """``gate_ms`` and ``audio_ms`` count from the last speech sample, if the end was answered."""
    pauses: tuple[PauseScore, ...]
    two_sentences: tuple[TwoSentences, ...]
    strays: int
    """Answers confirmed while the user spoke, neither in a labelled pause nor just after one."""
    onset_lost: bool | None
    """The first word was not understood."""
    onset_outside_ms: float | None
    """How much of the beginning was not committed."""
    used_s: float
    wasted_s: float
    ahead_s: float
    passes: int
    overlap_ms: float
    """How long an answer was heard while the user spoke."""

    @property
    def unrecovered(self) -> int:
        """Inner pauses in which an answer was confirmed, and whose two sides were never in one
        prompt."""
        return sum(p.kind in INNER and p.cut and not p.merged for p in self.pauses)


def score_scene(playback: PlayedScene) -> SceneScore:
    """Compare the published events with the labels."""
    scene = playback.scene
    answers, commits = list(_answers(playback)), list(_commits(playback))
    end_ms = milliseconds(scene.end)
    last = answers[-1] if answers else None
    state: State = "missed" if last is None else "answered"
    if last and last.gate_ms < end_ms:
        state = "premature"
    final = last if state == "answered" else None
    around = list(_around_pauses(scene))
    return SceneScore(
        scene.id,
        group_of(scene),
        scene.real,
        scene.kind,
        condition(scene),
        state,
        final.gate_ms - end_ms if final else None,
        final.audio_ms - end_ms if final and final.audio_ms is not None else None,
        tuple(
            _pause(pause, answers, _is_merged(playback, before, after, commits))
            for pause, before, after in around
        ),
        tuple(
            _two_sentences(pause, answers, _is_merged(playback, before, after, commits))
            for pause, before, after in around
            if pause.kind == "sentence"
        ),
        sum(_is_stray(answer, scene) for answer in answers),
        _onset_lost(scene, commits),
        _onset_outside_ms(scene, commits),
        playback.used_s,
        playback.wasted_s,
        playback.ahead_s,
        playback.passes,
        _overlap_ms(scene, answers),
    )


def condition(scene: RecordedTurn) -> str:
    """The scene's condition: ``clean``, ``20 dB``, ``room``, or ``room 20 dB``."""
    noise = f"{scene.snr_db:g} dB" if scene.snr_db is not None else ""
    room = "room" if scene.rt60_s is not None else ""
    return " ".join(filter(None, (room, noise))) or "clean"


# --- what was published ------------------------------------------------------------------------


@dataclass(slots=True)
class _Playing:
    gate_ms: float
    audio_ms: float | None = None
    player: PlaybackClock = field(default_factory=PlaybackClock)
    heard_s: float | None = None
    sounds_ms: list[tuple[float, float]] = field(default_factory=list)

    def send(self, seconds: float, at_s: float) -> None:
        """Audio arrives at the client."""
        begins_ms = max(at_s, self.player.plays_until) * 1000 + CLIENT_LATENCY_MS
        self.player.send(seconds, at_s)
        self.sounds_ms.append((begins_ms, begins_ms + seconds * 1000))
        self.audio_ms = at_s * 1000 if self.audio_ms is None else self.audio_ms

    def flush(self, at_s: float) -> None:
        """Audio that the client has not played by then is not heard."""
        end_ms = at_s * 1000 + CLIENT_LATENCY_MS
        self.sounds_ms = [
            (since, min(to, end_ms)) for since, to in self.sounds_ms if since < end_ms
        ]


def _answers(playback: PlayedScene) -> Iterator[Answer]:
    """The answers in the order of their gates, heard until cut off or until the scene ended."""
    playing: dict[str, _Playing] = {}
    at = 0.0
    for at, event in playback.log:
        match event:
            case ReplyStarted(reply_id):
                playing[reply_id] = _Playing(at * 1000)
            case ReplyAudio(reply_id) if reply_id in playing:
                playing[reply_id].send(len(event.pcm) / event.rate, at)
            case ReplyFinished(reply_id, status) if reply_id in playing:
                whole = playing[reply_id].player.sent_seconds
                partial_s = playing[reply_id].player.heard_seconds(at)
                playing[reply_id].heard_s = whole if status == "completed" else partial_s
            case SpeechStarted():
                for answer in playing.values():
                    answer.flush(at)
    for answer in playing.values():
        heard_s = answer.player.heard_seconds(at) if answer.heard_s is None else answer.heard_s
        yield Answer(answer.gate_ms, answer.audio_ms, heard_s, tuple(answer.sounds_ms))


def _commits(playback: PlayedScene) -> Iterator[Commit]:
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    texts: dict[str, str] = {}
    item_ids: list[str] = []
    for _, event in playback.log:
        match event:
            case SpeechStarted(item_id, audio_ms):
                starts[item_id] = audio_ms
            case SpeechStopped(item_id, audio_ms):
                ends[item_id] = audio_ms
            case InputCommitted(item_id) if item_id in starts:
                item_ids.append(item_id)
            case TranscriptReady(item_id, text):
                texts[item_id] = text
    for item_id in item_ids:
        yield Commit(starts[item_id], ends[item_id], texts.get(item_id, ""))


# --- against the labels ------------------------------------------------------------------------


def _pause(pause: ScenePause, answers: list[Answer], merged: bool) -> PauseScore:
    cut = any(_is_in(answer, pause) for answer in answers)
    late = any(_is_just_after(answer, pause) for answer in answers)
    return PauseScore(pause.kind, pause.seconds, cut, late and not cut, merged)


def _is_in(answer: Answer, pause: ScenePause) -> bool:
    return milliseconds(pause.start) < answer.gate_ms <= milliseconds(pause.end)


def _is_just_after(answer: Answer, pause: ScenePause) -> bool:
    return 0 < answer.gate_ms - milliseconds(pause.end) <= JUST_AFTER_MS


def _is_stray(answer: Answer, scene: RecordedTurn) -> bool:
    speaking = milliseconds(scene.onset) <= answer.gate_ms < milliseconds(scene.end)
    due = any(_is_in(answer, pause) or _is_just_after(answer, pause) for pause in scene.pauses)
    return speaking and not due


def _overlap_ms(scene: RecordedTurn, answers: list[Answer]) -> float:
    return sum(
        max(0.0, min(end, milliseconds(to)) - max(start, milliseconds(since)))
        for since, to in _speech_spans(scene)
        for answer in answers
        for start, end in answer.sounds_ms
    )


def _two_sentences(pause: ScenePause, answers: list[Answer], merged: bool) -> TwoSentences:
    between = (a for a in answers if _is_in(a, pause) or _is_just_after(a, pause))
    return TwoSentences(pause.seconds, merged, sum(a.heard_s for a in between))


def _is_merged(
    playback: PlayedScene, before: tuple[int, int], after: tuple[int, int], commits: list[Commit]
) -> bool:
    """Whether one answered user message had the words of both stretches."""
    parts = [_text_in(*span, commits) for span in (before, after)]
    return None not in parts and any(
        all(_asks(question, part or "") for part in parts) for question in _questions(playback)
    )


def _speech_spans(scene: RecordedTurn) -> list[tuple[int, int]]:
    """The stretches in which the user speaks, by the labels, in samples."""
    starts = [scene.onset, *(pause.end for pause in scene.pauses)]
    ends = [*(pause.start for pause in scene.pauses), scene.end]
    return list(zip(starts, ends, strict=True))


def _around_pauses(
    scene: RecordedTurn,
) -> Iterator[tuple[ScenePause, tuple[int, int], tuple[int, int]]]:
    """Each pause with the stretches of speech before and after it, up to the next pauses."""
    spans = _speech_spans(scene)
    return zip(scene.pauses, spans, spans[1:], strict=False)


def _text_in(start: int, end: int, commits: list[Commit]) -> str | None:
    """The transcript of samples ``start`` to ``end`` and around them; ``None`` if too few of them
    were committed."""
    if _committed_share(start, end, commits) < _COVERED:
        return None
    start_ms, end_ms = milliseconds(start), milliseconds(end)
    middle = (start_ms + end_ms) / 2
    return " ".join(c.text for c in commits if c.start_ms <= middle <= c.end_ms)


def _committed_share(start: int, end: int, commits: list[Commit]) -> float:
    """Share of the samples from ``start`` to ``end`` that were committed."""
    ranges = [(c.start_ms * LISTEN_RATE / 1000, c.end_ms * LISTEN_RATE / 1000) for c in commits]
    inside = sum(max(0.0, min(end, to) - max(start, since)) for since, to in ranges)
    return inside / (end - start)


def _questions(playback: PlayedScene) -> Iterator[str]:
    """The questions of the confirmed answers."""
    for messages in playback.prompts:
        if messages and messages[-1].role == "user":
            yield messages[-1].content


def _asks(question: str, text: str) -> bool:
    """Whether ``question`` has the words of ``text``; small differences in spelling are allowed."""
    parts, prompt = words(text), set(words(question))
    return bool(parts) and sum(word in prompt for word in parts) >= _COVERED * len(parts)


def _onset_lost(scene: RecordedTurn, commits: list[Commit]) -> bool | None:
    """``None``: the words are unknown, or nothing was recognised."""
    truth, transcript = words(scene.text), words(" ".join(c.text for c in commits))
    if scene.text_by != "source" or not truth or not transcript:
        return None
    return truth[0] not in transcript[:2]


def _onset_outside_ms(scene: RecordedTurn, commits: list[Commit]) -> float | None:
    if not commits:
        return None
    return max(0.0, min(c.start_ms for c in commits) - milliseconds(scene.onset))
