"""The numbers of the echo canceller that were tuned, each with its unit and its reason.

    python -m benchmarks.echo.canceller    filter, gate, delay, slip, drift (seeds below 100)
    python -m benchmarks.echo.sessions     path, likeness: whole sessions in simulated rooms

Blocks are of 10 ms (160 samples at 16 kHz); docs/echo.md describes the parts.
"""

from __future__ import annotations

# --- the filter (kalman) -------------------------------------------------------------------------

FILTER_CUBE_GAIN = 4.0
"""Of the second reference, so that both have about the same level."""
FILTER_COLD_VARIANCE = 0.5
FILTER_WARM_VARIANCE = 0.005
"""How unsure the weights are when nothing is known, and when they come from an earlier session."""
FILTER_STAYS = 0.9995
"""The room of one block is that of the block before, but for this much."""
FILTER_NOISE_SMOOTHING = 0.9
FILTER_CONSTRAINED, FILTER_CONSTRAINED_EVERY = 4, 2
"""Partitions whose second half is cleared with every second block, in turn."""

# --- the canceller -------------------------------------------------------------------------------

CANCELLER_REALIGNED_MS = 300
"""How long the gate is closed after a gap (``docs/echo.md``)."""
CANCELLER_ANEW_BLOCKS = 100
"""A filter needs about a second before its residual is worth judging."""
CANCELLER_SURE = 0.7
"""The drift is measured where less than this share of the microphone's power is left."""
CANCELLER_MOST = 0.5
"""Of the microphone's power."""
CANCELLER_LOUDER = 2.0
"""The residual is seldom so much louder than the microphone, even during speech."""
CANCELLER_NO_DOUBT = 15.0
"""The likelihood ratio where no echo can be."""

# --- the gate ------------------------------------------------------------------------------------

GATE_LOW_HZ, GATE_HIGH_HZ = 200.0, 7000.0
GATE_CORRECTION_SMOOTHING = 0.85
GATE_RESIDUAL_SMOOTHING = 0.6
GATE_ECHO_DECAY = 10**-0.1
"""1 dB per block: a room's sound falls by 60 dB in 0.6 s."""
GATE_LEARNING_BLOCKS = 150
"""1.5 s of echo, in which the leakage is found; later it is followed."""
GATE_LEARNING_DOWN_DB, GATE_LEARNING_UP_DB, GATE_STEP_DB = 0.3, 0.05, 0.015
"""Up slowly: what is louder than expected may be a person who speaks over the first words."""
GATE_NOISE_UP_DB, GATE_NOISE_DOWN_DB = 0.02, 0.2
"""So the noise floor is about what the softest tenth of the blocks have."""
GATE_IDLE_EVERY = 8
"""While nothing is played, the noise floor is looked at every 80 ms."""
GATE_NOISE_FACTOR = 1.5
GATE_AUDIBLE = 4.0
"""An echo that is not this much over the noise floor tells nothing of its leakage."""
GATE_MEAN_BLOCKS = 4
GATE_LEAST_GAIN = 0.1
GATE_OVER = 2.0

# --- the detector --------------------------------------------------------------------------------

DETECTOR_LEAST_LLR, DETECTOR_THRESHOLD = 4.0, 2.0
"""The sum of the log odds of both scores (the residual's by half) and half of what the ratio is
over the first must be over the second. Fitted on 2 h of seeds 1000 to 1078."""
DETECTOR_SURE_LLR = 10.0
DETECTOR_NEVER_SURE = 0.005
"""A score counts as no nearer to 0 or 1 than this: 5.3 at most."""

# --- finding the delay (delay) -------------------------------------------------------------------

DELAY_COMPARED_S = 4.0
DELAY_LOW_HZ, DELAY_HIGH_HZ = 200.0, 5000.0
DELAY_LEAST_SOUND_S = 0.3
DELAY_AUDIBLE_DBFS = -60.0
DELAY_SMEARED = 8
"""Samples (0.5 ms)."""
DELAY_CONFIDENT = 9.0
DELAY_CONFIDENT_S = 26.0
"""A peak must stand out 9 times, and more after less sound: 26 times after a second. Speech of
others over what was sent reached 42 after 0.45 s, 31 after 0.6, 18 after 0.75, 11 to 19 from 1 s on
(the highest of 40 each), and 8.1 from 3 s on in 30 sessions of 25 s; echoes 35 dB above the noise
55 to 90 (19 of 20), one 10 dB under the noise 11 after 4 s."""

# --- is a sound an echo? (likeness) --------------------------------------------------------------

LIKENESS_FEWEST_MS, LIKENESS_ENOUGH_MS = 128, 224
"""Between them a sound may be so unlike that it is no echo; look-back included."""
LIKENESS_LESS_PER_MS = 0.0008
"""By how much less alike it must be then, for each missing millisecond."""
LIKENESS_ECHO = 0.19
LIKENESS_SURELY_ECHO = 0.3
"""However short the sound is: people reached 0.17 in 96 ms."""
LIKENESS_LOW_HZ, LIKENESS_HIGH_HZ = 200.0, 5000.0
LIKENESS_SMOOTHED_HZ = 100.0
LIKENESS_MOST_PEAK = 4.0
"""Times the RMS. Whitened, a knock is one peak, which is like each onset of a voice: 0.28 without
this limit, 0.1 with it (the highest of 60)."""

# --- gaps that were not reported (slip) ----------------------------------------------------------

SLIP_COMPARED = 800
"""Samples (50 ms) that must agree."""
SLIP_FAILS = 0.35
SLIP_WORKS = 0.12
"""Share of the microphone's power that is left, over 40 ms, and over some seconds."""
SLIP_DOUBT_BLOCKS = 30
"""So long (300 ms) a filter that fails learns nothing: it knew better before, after a gap as well
as under a voice."""
SLIP_FAILING_BLOCKS = 100
"""So long (1 s) what it fails at does not count for how it works."""
SLIP_LOST_BLOCKS = 60
SLIP_MIDDLE, SLIP_LOST = 0.01, 1.0
"""It has failed for 0.6 s, and over 1 s more is left than there was. Not even a person who speaks
does that."""
SLIP_LEARNT_BLOCKS = 500
"""Of echo (5 s): before, a filter's failures are its own."""
SLIP_SHORT, SLIP_LONG = 0.4, 0.005
"""How fast these follow: 40 ms and 2 s."""
SLIP_EXPLAINED = 0.6
SLIP_BETTER = 0.3
"""Of the microphone's power, and more than without moving."""
SLIP_LEAST_SLIP = 2
"""Samples; less is for the filter to follow."""
SLIP_AGREE, SLIP_SAME = 3, 2
"""Times in a row, within so many samples."""

# --- clocks that differ (drift) ------------------------------------------------------------------

DRIFT_MOST_PPM = 500.0
"""Crystals are within 100 ppm of each other or so; more is an error."""
DRIFT_MEASURED_BLOCKS = 25
"""250 ms between two looks at the filter."""
DRIFT_GAINS = ((12, 0.8), (40, 0.3))
"""Until so many looks (3 s, 10 s) the estimate moves in such steps: a young filter follows late,
so it shows less drift than there is. A constant .3 takes three times as long at 100 ppm."""
DRIFT_LATER_GAIN = 0.1
DRIFT_MOST_STEP = 1.6
"""Samples; further, the phase of the highest bin is more than half a turn."""

# --- echo of a remote client (path) --------------------------------------------------------------

PATH_LOOKS = 6
PATH_LOOKS_IN_VAIN = 12
"""Of one answer; the latter as long as no echo is known. An echo that comes after a second, or in a
loud room, needs some seconds to be found. One that was known and is not taken off is searched for
as long as the answer lasts: it may have jumped out of the filter's reach."""
PATH_NEVER_FOUND = 4
"""Failed searches after which the microphone does not hear answers. In a long answer the fourth
comes after 3.3 s of sound, of which at least 1.8 s could have come back."""
PATH_UNFOUND = 12
"""Searches in vain after which there is no echo any more."""
