"""Gathers the evidence about speech over an answer for ``pipeline.turn_taking.barge_in``, and holds
the answer meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pipeline.audio import ms_of
from pipeline.context import SessionContext
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener
from pipeline.hearing.plausibility import Segment, believed
from pipeline.speaking.hold import Hold
from pipeline.speaking.replies import Replies
from pipeline.speaking.reply import Reply
from pipeline.spoken import speakable
from pipeline.spoken.punctuation import asks
from pipeline.turn_taking.barge_in import OnsetEffect, Overlap, Verdict, at_onset, ignored, judge
from pipeline.turn_taking.turn_facts import Reading
from pipeline.turn_taking.utterance import Attempt, TurnUtterance


class Overlaps:
    """Judges the overlaps of one session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        directions: Directions,
        replies: Replies,
    ) -> None:
        self._context = context
        self._settings = context.settings.barge_in
        self.reviews = self._settings.policy != "any-speech"
        """Whether the words decide, not the sound alone."""
        self._listener = listener
        self._directions = directions
        self._replies = replies

    def at_onset(self) -> OnsetEffect:
        """What speech does that begins now."""
        if not self._context.config.interruptible:
            return "no"
        cautious = self._listener.cancels_echo or self._replies.is_retry
        answer = self._replies.heard_now
        heard_s = answer.response.audible_s if answer else 0.0
        return at_onset(heard_s, self._settings.policy, cautious=cautious)

    def hold(self) -> Hold | None:
        """Hold the answer that speech may interrupt; ``None`` if there is none."""
        answer = self._replies.heard_now
        if answer is None or not self._context.config.interruptible:
            return None
        return answer.hold() if answer.response.audible_s else None

    async def read_words(self, utterance: TurnUtterance) -> Reading:
        """Transcribe and judge the words so far."""
        segment = self.segment(utterance, self._listener.heard_end)
        text = segment.unread
        with suppress(ReachyVoiceError):  # then its length decides
            transcript = await utterance.recognition.transcript(utterance.reading)
            text = believed(self._context, transcript, segment).text
        return self.reading(utterance, text)

    def read_length(self, utterance: TurnUtterance) -> Reading:
        """Judge the length of the speech; its words are not known yet."""
        return self.reading(utterance, self.segment(utterance, self._listener.heard_end).unread)

    def reading(self, utterance: TurnUtterance, text: str | None) -> Reading:
        """Whether speech interrupts the answer being heard; ``unsure`` if it overlaps no answer.
        ``text``: its words so far; ``None``: unknown."""
        turn = utterance.turn
        if not turn.state.overlaps:
            return Reading(turn, "unsure", text)
        ended = not turn.state.speaks
        end = turn.speech_end if ended else self._listener.heard_end
        speech_ms = ms_of(end - turn.review.onset)
        verdict = self._judge(utterance, speech_ms, ended, text, self._replies.heard_now)
        return Reading(turn, verdict, text)

    def segment(self, utterance: TurnUtterance, end: int) -> Segment:
        """What is known about the sound of a turn, over an answer or not, up to sample ``end``."""
        turn = utterance.turn
        over_answer = turn.state.overlaps or utterance.cut_reply is not None
        # A voice over an echo scores lower.
        is_scored = not (over_answer and self._listener.cancels_echo)
        return Segment(
            ms_of(end - turn.onset) / 1000,
            self._listener.speech_score(end) if is_scored else 1.0,
            self._listener.moves(turn.onset, end),
            over_answer,
            asks(self._replies.last_question),
            self._directions.were_elsewhere(asyncio.get_running_loop().time()),
            live=True,
        )

    def mistake(self, utterance: TurnUtterance, attempt: Attempt) -> bool:
        """Whether the full transcript would not have justified the interruption that the first
        words caused. A command does, even if a noise went on after it and it is doubted now."""
        turn, reply, heard = utterance.turn, utterance.cut_reply, attempt.transcript
        if reply is None or heard is None:
            return False
        speech_ms = ms_of(turn.speech_end - turn.onset)
        doubted = heard.doubt.text if heard.doubt else ""
        if self._judge(utterance, speech_ms, True, doubted, reply) == "command":
            return False
        return ignored(self._judge(utterance, speech_ms, True, heard.text, reply))

    def _judge(
        self,
        utterance: TurnUtterance,
        speech_ms: int,
        ended: bool,
        text: str | None,
        answer: Reply | None,
    ) -> Verdict:
        listener = self._listener
        answer_words = answer.response.delivery.spoken_lately if answer else ""
        # A recogniser may write "six" for the answer's 6.
        answer_words = f"{answer_words} {speakable(answer_words, self._context.language or 'en')}"
        overlap = Overlap(
            speech_ms,
            ended,
            text,
            answer_words,
            answer is not None and answer.asks,
            listener.cancels_echo,
            listener.certainty,
            tuple(utterance.turn.review.readings),
        )
        return judge(overlap, self._settings, self._context.lexicon)


class Suspicion:
    """Holds the answer as soon as the newest sound may be speech, before that is a turn."""

    def __init__(self, overlaps: Overlaps) -> None:
        self._overlaps = overlaps
        self._hold: Hold | None = None

    @property
    def is_held(self) -> bool:
        return self._hold is not None

    def follow(self, suspected: bool) -> None:
        """``suspected``: whether the newest sound may be speech."""
        if not (suspected and self._overlaps.reviews):
            self.release()
        elif self._hold is None:
            self._hold = self._overlaps.hold()

    def release(self) -> None:
        hold, self._hold = self._hold, None
        if hold:
            hold.release()
