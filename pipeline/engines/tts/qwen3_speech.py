"""Speech from Qwen3-TTS, frame by frame (``qwen3_talker``). Imports torch: use it only where the
engine runs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import Pcm
from pipeline.engines.onnx import unreadable
from pipeline.engines.torch_place import TorchPlace
from pipeline.engines.tts.qwen3_codes import ClauseRequest, CodeWatch
from pipeline.engines.tts.qwen3_talker import Row, Talker, looking
from pipeline.work import Cancelled, CancelToken


class Qwen3Speech:
    """One model. Not thread-safe. Clauses may take turns; an urgent one waits for the current
    frame."""

    def __init__(self, package: Any, place: TorchPlace, clauses: int) -> None:
        """``package``: a ``qwen_tts.Qwen3TTSModel`` with voices; ``clauses``: how many are made at
        once."""
        self.talker = Talker(package, clauses, together=place.device.startswith("cuda"))

    def say(self, clause: ClauseRequest, cancel: CancelToken) -> Generator[Pcm | None, None, None]:
        """int16 mono at 24 kHz, 80 ms each; ``None`` if there is nothing to send yet.

        Raises ``Cancelled`` within a frame, and ``NotSpeech``.
        """
        watch = CodeWatch()
        sounds: list[Pcm] = []
        with closing(self._frames(clause, watch, cancel)) as frames:
            for sound in frames:
                sounds += [] if sound is None else [sound]
                if watch.suspicious or not sounds:
                    yield None
                else:
                    yield np.concatenate(sounds)
                    sounds = []
        if sounds:
            yield np.concatenate(sounds)

    def _frames(
        self, clause: ClauseRequest, watch: CodeWatch, cancel: CancelToken
    ) -> Generator[Pcm | None, None, None]:
        """Each frame's sound; ``None`` if it is not ready yet. A clause that loses its row starts
        over with the same seed, and skips the frames that ``watch`` has already taken."""
        while True:
            while (row := self._begin(clause, cancel)) is None:
                yield None
            yield None  # Clauses that begin together all read their prompts before any frame.
            made = 0
            try:
                while (frame := self._next(row, cancel)) is not None:
                    made += 1
                    if made > watch.frames:
                        watch.take(frame[0])
                        yield frame[1]
                    else:
                        yield None
            finally:
                self.talker.close(row)
            if not row.lost:
                watch.finish(ended=row.ended)
                return

    def _begin(self, clause: ClauseRequest, cancel: CancelToken) -> Row | None:
        """A row for a clause. If there is none, advance another row, so that it ends sooner."""
        look = _look(cancel)
        look()
        with looking(self.talker, look):
            row = self.talker.begin(clause, cancel)
        if row is None:
            # Without ``look``: cancelling this clause must not abort another's frame.
            self.talker.advance(None)
        return row

    def _next(self, row: Row, cancel: CancelToken) -> tuple[int, Pcm] | None:
        """The next frame of a row; ``None`` at its end."""
        look = _look(cancel)
        look()
        if not row.pending:
            if row.closed:
                return None
            with looking(self.talker, look):
                self.talker.advance(row)
        return row.pending.popleft()


def _look(cancel: CancelToken) -> Callable[[], None]:
    def look() -> None:
        if cancel.cancelled:
            raise Cancelled

    return look


def load(directory: Path, where: TorchPlace) -> Any:
    """Load a ``qwen_tts.Qwen3TTSModel``. Raises ``WeightsError``."""
    from qwen_tts import Qwen3TTSModel

    try:
        model = Qwen3TTSModel.from_pretrained(
            str(directory), device_map=where.device, dtype=where.numbers
        )
    except Exception as error:  # transformers raises many kinds
        raise unreadable(directory, f"{type(error).__name__}: {error}") from error
    return model
