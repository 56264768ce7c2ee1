"""The numbers of workers, each with its unit and its reason.

Measured on two busy cores, with the engines of config/default.yaml and of the profile ``reachy``.
``python -m benchmarks.exchanges`` and ``python -m benchmarks.soak`` show what they come to.
"""

from __future__ import annotations

from pipeline.engines.registry import Kind

# --- steps ---------------------------------------------------------------------------------------

STREAM_CREDIT = 16
"""How many items of a stream may be on their way before the reader must take one."""
LONGEST_STEP_S = {
    Kind.VAD: 3.0,
    Kind.TURN: 5.0,
    Kind.STT: 30.0,
    Kind.LLM: 30.0,
    Kind.TTS: 15.0,
}
"""A step in a child that lasts longer hangs: ten times what the slowest ones took, and no longer
than a user waits for an answer. The child then ends itself, with a traceback on stderr."""
LONGEST_THREAD_STEP_S = 30.0
"""The same in a thread, which cannot be ended."""
QUIET_S, ANSWER_S = 1.0, 4.0
"""A worker that has work and is silent for so long is asked whether it still runs, and ended if it
does not answer. Native code may hold the interpreter for a moment, and a machine be very busy."""
OWN_DELAY_S = 1.0
"""A timer that is so late: we slept ourselves, and the child's answer may wait to be read."""

# --- starts and ends -----------------------------------------------------------------------------

START_QUIET_S, START_S = 60.0, 1800.0
"""A child that builds its engine is given up when it has done nothing for so long, and whatever it
does after the second. NeMo took up to 270 s."""
LEAST_CPU = 0.01
"""Of one core: a child that uses less does nothing."""
STOP_TIMEOUT_S = 3.0
"""How long an engine may go on with its step once it is told to end."""
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 30.0)
"""Wait before the n-th restart in a row; the last one repeats."""
STEADY_LIFE_S = 10.0
"""A child that was ready for so long ends the row of restarts."""
PATIENCE_S = 5.0
"""After an engine's end, work waits so long for it to be back. The user hears nothing meanwhile."""
HOPELESS_S = 15.0
"""What took longer to start is not waited for. The first start, of all engines at once, takes some
times as long as a later one."""
