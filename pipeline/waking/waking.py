"""Decides when the robot sleeps, and listens for the call meanwhile.

Stands between the listener and the turns. Asleep, sound goes to the VAD and to the detector of the
call, and nowhere else: nothing is published, and no turn begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from math import inf

from pipeline import events
from pipeline.audio import Pcm
from pipeline.bus import Published
from pipeline.context import SessionContext
from pipeline.conversation.memory import Memory
from pipeline.echo.path import Playback
from pipeline.engines.contract import Transcript, WakeStream, WakeWord
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnStart
from pipeline.items import FunctionCallItem
from pipeline.settings import Sector, Wake
from pipeline.turn_record import Aside
from pipeline.waking import tuning
from pipeline.waking.calls import Calls
from pipeline.waking.first_words import FirstWords
from pipeline.waking.gate import NOT_CALLED, SleepUtterance, WakeGate, WakingCall

DEFAULT_CALLS = ("Hey Reachy",)


class Waking:
    """The sleep of one session. ``begin`` and ``end`` it with the session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        directions: Directions,
        memory: Memory,
        wake_word: WakeWord | None,
        follow: Callable[[Sequence[Signal], int], None],
        unheard_s: Callable[[], float],
        busy: Callable[[], bool],
    ) -> None:
        """``wake_word`` detects the call in the sound; ``None``: in the transcript, or not at all.
        ``follow(signals, floor)`` passes speech heard asleep to the turns; nothing before sample
        ``floor`` counts. ``unheard_s``: how much of the newest answer is still to be heard.
        ``busy``: whether a turn, an answer or a tool's call is under way."""
        settings = context.settings.wake
        self._context = context
        self._listener = listener
        self._directions = directions
        self._caller_deg: float | None = None
        """The direction of the person who called; ``None``: unknown."""
        self._caller_name: str | None = None
        """Who called, if it is somebody whose voice is known."""
        self._follow = follow
        self._unheard_s = unheard_s
        self._busy = busy
        self._wake_word = wake_word
        self._stream: WakeStream | None = None
        """Opened anew for each sleep, so that it does not hear the last call again."""
        self._calls = Calls(calls_of(settings, wake_word), context.settings.lexicons)
        reads = settings.mode == "word" and wake_word is None
        self._words = FirstWords(context, listener, self._calls, self._judge) if reads else None
        self._gate = WakeGate(memory, settings.follow_up_s, reads)
        self._called_at: int | None = None
        """Where the newest call began."""
        self._noticed_at = 0
        """Where a wake word model noticed the newest call."""
        self._heard_to = 0
        self._reply_id = ""
        """The newest answer to the conversation."""
        self._timer: asyncio.TimerHandle | None = None
        context.bus.tap(self._note)

    @property
    def asleep(self) -> bool:
        return self._gate.asleep

    @property
    def awaits_call(self) -> bool:
        """Whether the next sound may complete a call."""
        return self.asleep and self._gate.awaits_call

    # -- life

    def begin(self) -> None:
        """Begin asleep, or awake if the session resumes a conversation that was awake."""
        if self._words:
            self._context.tasks.create_task(self._words.prepare())
        if not self._can_sleep:
            self._gate.stay_awake()
        elif self._gate.until > self._now():
            self._awake("resumed")
        else:
            self._sleep("start")

    def end(self) -> None:
        self._stop_timer()
        self._gate.renew(self._now())

    def reconfigure(self) -> None:
        """Follow the session's new settings."""
        if self._can_sleep and self._gate.until == inf:
            self._sleep("client")
        elif not self._can_sleep:
            if self.asleep:
                self._awake("client")
            self._stop_timer()
            self._gate.stay_awake()

    @property
    def _can_sleep(self) -> bool:
        """False if the client decides when speech is meant, or only wants transcripts."""
        config = self._context.config
        return config.answers and config.turn_detection is not None

    def touch(self) -> None:
        """Wake up, or stay awake for longer; speech that has just begun counts."""
        if self._can_sleep:
            self._awake("touch", self._gate.call_at(self._listener.heard_end))

    def forget(self) -> None:
        """Drop everything heard asleep."""
        self._gate.forget()
        if self._words:
            self._words.stop()

    # -- asleep

    async def hear(self, pcm: Pcm, playback: Playback) -> AsyncGenerator[list[Signal], None]:
        """Like ``Listener.hear``, but asleep the signals are kept back."""
        async for signals in self._listener.hear(pcm, playback):
            heard_to, self._heard_to = self._heard_to, self._listener.heard_end
            if self.asleep:
                self._listen(signals, heard_to)
                yield []
            else:
                yield signals
                self._rest()

    def _listen(self, signals: Sequence[Signal], heard_to: int) -> None:
        self._gate.hear(signals)
        if self._stream and self._stream.called(self._listener.read(heard_to, self._heard_to)):
            call = self._gate.call_at(self._heard_to)
            if call.signals and isinstance(start := call.signals[0], TurnStart):
                self._called_at, self._noticed_at = start.start, self._heard_to
            self._awake("word", call)
            return
        if any(isinstance(signal, TurnEnd) for signal in signals):
            self._listener.forget_speaker()
        if self._words:
            self._read(self._words)

    def _read(self, words: FirstWords) -> None:
        """Read the next first words. Without any, a short silence ends the utterance: the next one
        may begin with a call."""
        if words.busy:
            return
        if utterance := self._gate.unread(self._listener.heard_end):
            words.read(utterance)
        elif ended := self._listener.judge(tuning.SILENCE_MS):
            self._gate.hear(ended)
            self._listener.forget_speaker()

    def _judge(self, utterance: SleepUtterance, called: bool) -> None:
        if called:
            self._called_at = utterance.start
            self._awake("word", self._gate.call(utterance))
        elif self._words:
            self._gate.dismiss(utterance)
            self._read(self._words)

    # -- awake

    def aside(self, words: Transcript, onset: int, end: int, cuts: bool) -> Transcript:
        """``words``, spoken from sample ``onset`` to ``end``; without text if they are no turn: a
        farewell; a bare call, unless it ``cuts`` an answer off; or speech of someone who has not
        called."""
        if words.text and onset == self._called_at:
            bare = end <= self._noticed_at + tuning.CALL_FADES_SAMPLES
            text = self._calls.texts[0] if bare else self._calls.corrected(words.text)
            words = replace(words, text=text)
        of_another = self._of_another(words) if words.text else None
        why = self._calls.aside(words.text)
        if why == "call" and cuts:
            why = None
        why = of_another or why
        return replace(words, text="", exclusion=why) if why and self._can_sleep else words

    def _of_another(self, words: Transcript) -> Aside | None:
        """Why ``words`` are not the caller's: whoever called last or, since it woke up, spoke
        first. The caller may walk about; where voices are known, the place does not matter."""
        if self._context.settings.wake.mode != "word":
            return None
        deg, place = self._directions.lately_deg(self._now()), self._caller_deg
        voice, name = words.speaker, self._caller_name
        why: Aside | None = None
        if name and voice is not None:
            why = None if voice == name else "not called"
        elif deg is not None and place is not None:
            why = None if deg in Sector(place, tuning.SAME_PLACE_DEG) else "elsewhere"
        calls = self._calls.begins(words.text)
        if why and not calls:
            return why
        self._caller_deg = place if deg is None else deg
        self._caller_name = (voice if calls else name or voice) or None
        return None

    def obey(self, why: str | None) -> None:
        """After a farewell, fall asleep now or when what has begun meanwhile is over. ``why``: why
        the words of the turn did not count."""
        if why == "farewell" and self._can_sleep:
            if self._busy():
                self._gate.expire(self._now())
            else:
                self._sleep("farewell")

    def _note(self, published: Published) -> None:
        at, event = published
        if isinstance(event, events.ReplyStarted) and event.in_conversation:
            self._reply_id = event.reply_id
        if self.asleep or not self._can_sleep:
            return
        match event:
            case events.InputCommitted():
                self._gate.wake(at)
            case events.ReplyFinished() if event.reply_id == self._reply_id:
                calls = any(isinstance(item, FunctionCallItem) for item in event.items)
                patience_s = tuning.CLIENT_CALL_S if calls else 0.0
                self._gate.renew(at + self._unheard_s(), patience_s)
            case events.SpeechRejected() | events.SpeechIgnored():
                pass  # the time may have passed meanwhile
            case _:
                return
        self._set_timer()

    def _rest(self) -> None:
        """Fall asleep if the follow-up time is over and nothing is under way."""
        waits = self._busy() or self._listener.suspects
        if not self.asleep and not waits and self._now() >= self._gate.until:
            self._sleep("silence")

    # -- changes

    def _awake(self, why: events.WakeReason, call: WakingCall = NOT_CALLED) -> None:
        was_asleep = self.asleep
        self.forget()
        self._gate.wake(self._now())
        self._set_timer()
        if was_asleep:
            self._context.bus.publish(events.Woke(why))
        if call.signals:
            self._follow(*call)

    def _sleep(self, why: events.SleepReason) -> None:
        self._stop_timer()
        self._gate.sleep()
        self._caller_deg = self._caller_name = None
        self._heard_to = self._listener.heard_end
        self._stream = self._wake_word.open() if self._wake_word else None
        self._context.bus.publish(events.FellAsleep(why))

    def _set_timer(self) -> None:
        """Also fall asleep without audio from the client; otherwise ``hear`` notices the time."""
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_at(self._gate.until, self._rest)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer:
            timer.cancel()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def calls_of(settings: Wake, wake_word: WakeWord | None) -> Sequence[str]:
    """The calls that wake the robot, as they are written."""
    if wake_word:
        return wake_word.calls
    return (settings.words or DEFAULT_CALLS) if settings.mode == "word" else ()
