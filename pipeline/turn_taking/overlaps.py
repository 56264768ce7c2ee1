"""Gathers the evidence about speech over an answer, for ``pipeline.turn_taking.barge_in``."""

from __future__ import annotations

from pipeline.audio import ms_of
from pipeline.context import SessionContext
from pipeline.hearing.listening import Listener
from pipeline.speaking.replies import Replies
from pipeline.spoken import speakable
from pipeline.turn_taking.barge_in import Overlap, Verdict, ignored, judge
from pipeline.turn_taking.utterance import Attempt, TurnSpeech


class Overlaps:
    """Judges the overlaps of one session."""

    def __init__(self, context: SessionContext, listener: Listener, replies: Replies) -> None:
        self._context = context
        self._settings = context.settings.barge_in
        self._listener = listener
        self._replies = replies

    def verdict(self, utterance: TurnSpeech, text: str | None) -> Verdict:
        """Whether speech interrupts the answer being heard; ``unsure`` if it overlaps no answer.
        ``text``: its words so far; ``None``: unknown."""
        turn = utterance.turn
        if not turn.state.overlaps:
            return "unsure"
        ended = not turn.state.speaks
        speech_ms = ms_of(
            (turn.speech_end if ended else self._listener.heard_end) - turn.review.onset
        )
        answer = self._replies.latest_words, self._replies.asks
        return self._judge(utterance, speech_ms, ended, text, *answer)

    def mistake(self, utterance: TurnSpeech, attempt: Attempt) -> bool:
        """Whether the full transcript would not have justified the interruption that the first
        words caused. A command does, even if a noise went on after it and it is doubted now."""
        turn, reply, heard = utterance.turn, utterance.cut_reply, attempt.transcript
        if reply is None or heard is None:
            return False
        speech_ms = ms_of(turn.speech_end - turn.onset)
        answer = reply.response.delivery.spoken_lately, reply.asks
        doubted = heard.doubt.text if heard.doubt else ""
        if self._judge(utterance, speech_ms, True, doubted, *answer) == "command":
            return False
        return ignored(self._judge(utterance, speech_ms, True, heard.text, *answer))

    def _judge(
        self,
        utterance: TurnSpeech,
        speech_ms: int,
        ended: bool,
        text: str | None,
        answer_words: str,
        asks: bool,
    ) -> Verdict:
        listener = self._listener
        # A recogniser may write "six" for the answer's 6.
        answer_words = f"{answer_words} {speakable(answer_words, self._context.language or 'en')}"
        overlap = Overlap(
            speech_ms,
            ended,
            text,
            answer_words,
            asks,
            listener.cancels_echo,
            listener.certainty,
            tuple(utterance.turn.review.readings),
        )
        return judge(overlap, self._settings, self._context.lexicon)
