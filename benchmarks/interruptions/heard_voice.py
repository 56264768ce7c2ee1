"""Piper with the borders of its words, from the network itself and not from the sound.

A VITS network decides first how many frames each phoneme lasts. The default voice's has that as the
tensor ``/Ceil_output_0``; here it is an output beside the samples, so that both are of the same
run. What a word's phonemes are, espeak-ng says: one group for each word, with a space between.
Where it runs words together ("of the"), or says a sign in several ("XVF3800"), the groups are
matched with the phonemes of each word alone.
"""

from __future__ import annotations

import asyncio
import bisect
import difflib
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import EMPTY, Pcm, from_float
from pipeline.engines.tts.espeak_ng import speakable, without_phoneme_blocks
from pipeline.engines.tts.vits import limited
from pipeline.messages import SpeechRequest
from pipeline.speaking.tuning import JOINT_QUIET
from pipeline.work import Work

_DURATIONS = "/Ceil_output_0"
_MODEL_GRAPH, _GRAPH_OUTPUT, _VALUE_NAME = 7, 12, 1
"""Numbers of fields: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto"""
_MARKS = frozenset(" ,.;:!?-()\"'")
_STRESS = frozenset("ˈˌ")
_GAIN = 3.0
_MOST_TOGETHER = 4
"""Words that espeak-ng says as one, or groups that it makes of one word."""
_START_S, _FACTOR = 0.086, 0.08
"""Of a clause's first audio, and for each second of it: ``benchmarks.harness.virtual_engines``, and
Piper's time on one core of the same machine."""
_PIECE_S = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """One clause as the voice says it. ``pcm``: int16 mono at ``rate`` Hz. ``words``: each spoken
    word, and the sample at which its last phoneme ends. ``matched``: whether every word had a group
    of phonemes of its own."""

    text: str
    pcm: Pcm
    rate: int
    words: tuple[tuple[str, int], ...]
    matched: bool

    @property
    def sound_end(self) -> int:
        """Behind the last sample that is no silence."""
        loud = np.flatnonzero(np.abs(self.pcm.astype(np.int32)) > JOINT_QUIET)
        return int(loud[-1]) + 1 if len(loud) else 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Phonemes without a space between them, each with the sample where it ends."""

    phonemes: tuple[tuple[str, int], ...]

    @property
    def sounds(self) -> str:
        return "".join(phoneme for phoneme, _ in self.phonemes if phoneme not in _STRESS)

    def end(self, share: float = 1.0) -> int:
        """Of its first ``share``."""
        at = max(1, round(share * len(self.phonemes)))
        return self.phonemes[min(at, len(self.phonemes)) - 1][1]


class AlignedPiper:
    """The default voice. Raises ``LookupError`` for one whose network is built otherwise."""

    def __init__(self, model: Path) -> None:
        import onnxruntime
        from piper import PiperVoice
        from piper.config import PiperConfig

        weights = model.read_bytes()
        if _DURATIONS.encode() not in weights:
            raise LookupError(f"{model.name} has no tensor {_DURATIONS}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        description = json.loads(model.with_name(f"{model.name}.json").read_text("utf-8"))
        config = PiperConfig.from_dict(description)
        session = onnxruntime.InferenceSession(
            weights + _output(_DURATIONS), options, providers=["CPUExecutionProvider"]
        )
        self._voice: Any = PiperVoice(session=session, config=config)
        self.rate = int(config.sample_rate)
        self._alone: dict[str, str] = {}

    def say(self, text: str, speed: float) -> Said:
        if not speakable(text):
            return Said(text, EMPTY, self.rate, (), True)
        text = without_phoneme_blocks(text)
        sounds: list[Pcm] = []
        groups: list[_Group] = []
        at = 0
        for phonemes in filter(None, self._voice.phonemize(text)):
            pcm, ends = self._sentence(phonemes, speed)
            groups += _groups([(p, at + end) for p, end in zip(phonemes, ends, strict=True)])
            sounds.append(pcm)
            at += len(pcm)
        words = [word for word in text.split() if speakable(word)]
        matched = len(words) == len(groups)
        ends = [group.end() for group in groups] if matched else self._match(words, groups)
        timed = tuple(zip(words, ends, strict=True))
        return Said(text, np.concatenate((EMPTY, *sounds)), self.rate, timed, matched)

    def _sentence(self, phonemes: Sequence[str], speed: float) -> tuple[Pcm, list[int]]:
        """Its samples, and where each phoneme ends."""
        from piper.config import SynthesisConfig

        voice = self._voice
        ids = voice.phonemes_to_ids(phonemes)
        pace = SynthesisConfig(length_scale=voice.config.length_scale / speed)
        samples, lengths = voice.phoneme_ids_to_audio(ids, pace, include_alignments=True)
        assert int(lengths.sum()) == len(samples), "the durations are those of these samples"
        ends = list(itertools.accumulate(int(length) for length in lengths))
        known, at, found = voice.config.phoneme_id_map, 1, []  # behind the begin mark and its pad
        for phoneme in phonemes:
            at += len(known[phoneme]) if phoneme in known else 0
            found.append(ends[at])
            at += phoneme in known  # its pad
        return from_float(limited(samples * _GAIN)), found

    def _match(self, words: Sequence[str], groups: Sequence[_Group]) -> list[int]:
        """Where each word ends: the cheapest way to give the groups to the words, in order."""
        alone = [self._sounds(word) for word in words]
        best: dict[tuple[int, int], tuple[float, list[int]]] = {(0, 0): (0.0, [])}
        for word, group in itertools.product(range(len(words) + 1), range(len(groups) + 1)):
            if (word, group) not in best:
                continue
            cost, ends = best[word, group]
            for takes, gives in _STEPS:
                to = word + takes, group + gives
                if to[0] > len(words) or to[1] > len(groups):
                    continue
                meant, taken = alone[word : to[0]], groups[group : to[1]]
                more = cost + _unlike("".join(meant), "".join(g.sounds for g in taken))
                if to not in best or more < best[to][0]:
                    best[to] = more, [*ends, *_ends(meant, taken)]
        return best[len(words), len(groups)][1]

    def _sounds(self, word: str) -> str:
        if word not in self._alone:
            said = "".join(itertools.chain.from_iterable(self._voice.phonemize(word)))
            self._alone[word] = "".join(p for p in said if p not in _MARKS | _STRESS)
        return self._alone[word]


_STEPS = [(1, n) for n in range(1, _MOST_TOGETHER + 1)] + [
    (n, 1) for n in range(2, _MOST_TOGETHER + 1)
]


def _output(name: str) -> bytes:
    """What makes a tensor an output, when it is put behind a model's bytes: two graphs in one
    message are merged (https://protobuf.dev/programming-guides/encoding/#last-one-wins)."""
    value = name.encode()
    for number in (_VALUE_NAME, _GRAPH_OUTPUT, _MODEL_GRAPH):
        assert len(value) < 128, "a length of one byte"
        value = bytes((number << 3 | 2, len(value))) + value
    return value


def _groups(phonemes: Sequence[tuple[str, int]]) -> Iterator[_Group]:
    """Split at spaces; marks belong to no word."""
    for space, between in itertools.groupby(phonemes, lambda each: each[0] in _MARKS):
        if not space:
            yield _Group(tuple(between))


def _unlike(one: str, other: str) -> float:
    alike = difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    return (1 - alike) * (len(one) + len(other))


def _ends(meant: Sequence[str], taken: Sequence[_Group]) -> Iterator[int]:
    """Of words that share groups: the last group's, or a part of the one that they share."""
    if len(meant) == 1:
        yield taken[-1].end()
        return
    total = max(1, sum(map(len, meant)))
    for so_far in itertools.accumulate(map(len, meant)):
        yield taken[0].end(so_far / total)


# --- as a stage --------------------------------------------------------------------------------


@dataclass
class AlignedTts:
    """``AlignedPiper`` as a stage in virtual time. ``said``: each clause that it was asked for, in
    order. ``known``: what it has said before, so that one answer is made once."""

    piper: AlignedPiper
    known: dict[tuple[str, float], Said] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    voices: Sequence[str] = ("joe",)

    @property
    def rate(self) -> int:
        return self.piper.rate

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        if (request.text, request.speed) not in self.known:
            self.known[request.text, request.speed] = self.piper.say(request.text, request.speed)
        said = self.known[request.text, request.speed]
        self.said.append(said)
        await asyncio.sleep(_START_S)
        size = int(_PIECE_S * self.rate)
        for start in range(0, len(said.pcm), size):
            piece = said.pcm[start : start + size]
            yield piece
            await asyncio.sleep(_FACTOR * len(piece) / self.rate)


# --- from what is said to what is written ------------------------------------------------------

_PLAIN = re.compile(r"[^\w]+")


def written_ends(text: str, said: Said) -> list[int]:
    """For each word of ``text``, as written, the sample of ``said`` at which it has been spoken.

    Words that are spoken as they are written show where the others are: of "on 31/12/2026." the
    second ends with "twenty-six". Several in a row are shared out evenly.
    """
    written = [_PLAIN.sub("", word).lower() for word in text.split()]
    spoken = [_PLAIN.sub("", word).lower() for word, _ in said.words]
    ends = [end for _, end in said.words]
    found: list[int] = []
    matcher = difflib.SequenceMatcher(None, written, spoken, autojunk=False)
    for _, begin, end, first, last in matcher.get_opcodes():
        for number in range(1, end - begin + 1):
            at = first + round(number * (last - first) / (end - begin))
            found.append(ends[at - 1] if at else 0)
    return found


def played_words(ends: Sequence[int], samples: int) -> int:
    """How many of the words are over after so many samples."""
    return bisect.bisect_right(sorted(ends), samples)
