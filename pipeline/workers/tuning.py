"""Tuned constants of workers, each with its unit and reason.

Measured on two busy cores, with the engines of config/default.yaml and of the profile ``reachy``.
``python -m benchmarks.fleet`` measures their effect on many clients.
"""

from __future__ import annotations

from pipeline.engines.registry import Kind

# --- steps ---------------------------------------------------------------------------------------

STREAM_CREDIT = 16
"""How many items of a stream may be in flight before the reader must take one."""
MANY_STREAMS, GATHER_S = 12, 0.008
"""A fleet's VAD (``vad.batch``): from this many open streams on, a window waits this long for
others: at 12 streams, for three. A client has one stream, and three while it hears itself. A window
takes 160 us alone and 70 us in a group of four: twelve talking clients take 28 % less processor
time, and are answered 6 ms later (``benchmarks.fleet``)."""
LONGEST_STEP_S = {
    Kind.VAD: 3.0,
    Kind.TURN: 5.0,
    Kind.STT: 30.0,
    Kind.LLM: 30.0,
    Kind.TTS: 15.0,
    Kind.SPEAKER: 5.0,
}
"""A step in a child that takes longer counts as hung: ten times the slowest step measured, and no
longer than a user waits for an answer. The child then exits, with a traceback on stderr."""
LONGEST_THREAD_STEP_S = 30.0
"""The same for a thread, which cannot be killed."""
QUIET_S, ANSWER_S = 1.0, 4.0
"""A worker that has work but is silent for ``QUIET_S`` gets a ping, and is killed if it does not
answer within ``ANSWER_S``: native code may hold the GIL for a while, and the machine may be busy.
"""
OWN_DELAY_S = 1.0
"""If a timer is this late, the parent was stalled, and the child's answer may still be unread."""

# --- starts and ends -----------------------------------------------------------------------------

START_QUIET_S, START_S = 60.0, 1800.0
"""A child that is building its engine is killed after ``START_QUIET_S`` without progress, and after
``START_S`` in any case. NeMo took up to 270 s."""
LEAST_CPU = 0.01
"""Share of one core: a child that uses less makes no progress."""
STOP_TIMEOUT_S = 3.0
"""How long an engine may continue its step after it was asked to stop."""
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 30.0)
"""Wait before the n-th restart in a row; the last one repeats."""
STEADY_LIFE_S = 10.0
"""A child that was ready for this long resets the count of restarts."""
PATIENCE_S = 5.0
"""How long work waits for an engine that died to come back. The user hears nothing meanwhile."""
HOPELESS_S = 15.0
"""Work does not wait for an engine that took longer than this to start. The first start, of all
engines at once, takes several times as long as a later one."""
