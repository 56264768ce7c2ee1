"""Tuned constants of echo cancellation, each with its unit and reason. Tuned with:

    python -m benchmarks.echo.canceller    filter, gate, delay, slip, drift (seeds below 100)
    python -m benchmarks.echo.sessions     path, likeness: whole sessions in simulated rooms

A block is 10 ms (160 samples at 16 kHz). See ``docs/echo.md``.
"""

from __future__ import annotations

SILENT_PEAK = 2
"""Steps of int16: dithered silence is silence."""

# --- the filter (kalman; benchmarks.echo.canceller) ----------------------------------------------

FILTER_CUBE_GAIN = 4.0
"""Gain of the cubed reference: brings it to about the level of the plain one."""
FILTER_COLD_VARIANCE = 0.5
FILTER_WARM_VARIANCE = 0.005
"""Variance of the weights: of an unknown room, and of a room from an earlier session."""
FILTER_STAYS = 0.9995
"""Share of the room response that stays the same from block to block."""
FILTER_NOISE_SMOOTHING = 0.9
"""Share kept from block to block: the noise estimate follows within 100 ms."""
FILTER_CONSTRAINED, FILTER_CONSTRAINED_EVERY = 4, 2
"""Partitions constrained at a time, and every how many blocks: all within 160 ms, to save CPU."""

# --- the canceller (benchmarks.echo.canceller) ---------------------------------------------------

CANCELLER_REALIGNED_MS = 300
"""How long the gate stays closed after a gap."""
CANCELLER_ANEW_BLOCKS = 100
"""A new filter needs about a second before its residual means anything."""
CANCELLER_SURE = 0.7
"""Drift is measured only while the residual has less than this share of the microphone's power."""
CANCELLER_MOST = 0.5
"""The filter works if it removes more than this share of the microphone's power."""
CANCELLER_LOUDER = 2.0
"""Ratio of the residual's power to the microphone's that even near-end speech seldom reaches."""
CANCELLER_NO_DOUBT = 15.0
"""Log likelihood ratio reported while there can be no echo."""

# --- the gate (benchmarks.echo.canceller) --------------------------------------------------------

GATE_LOW_HZ, GATE_HIGH_HZ = 200.0, 7000.0
"""Edges of the mel bands."""
GATE_CORRECTION_SMOOTHING, GATE_RESIDUAL_SMOOTHING = 0.85, 0.6
"""Shares kept from block to block: time constants of about 70 ms and 25 ms."""
GATE_ECHO_DECAY = 10**-0.1
"""1 dB per block: sound in a room falls by 60 dB in 0.6 s."""
GATE_LEARNING_BLOCKS = 150
"""Blocks of echo (1.5 s) in which the leakage is learned fast; later it changes slowly."""
GATE_LEARNING_DOWN_DB, GATE_LEARNING_UP_DB, GATE_STEP_DB = 0.3, 0.05, 0.015
"""dB per block. Up slowly, because the extra sound may be a user speaking over the first words."""
GATE_NOISE_UP_DB, GATE_NOISE_DOWN_DB = 0.02, 0.2
"""dB per block: the noise floor settles near the level of the softest tenth of the blocks."""
GATE_IDLE_EVERY = 8
"""While nothing is played, the noise floor is updated every 8 blocks (80 ms)."""
GATE_NOISE_FACTOR = 1.5
"""Factor on the noise floor, which lies below the mean noise power."""
GATE_AUDIBLE = 4.0
"""The leakage is learned only from echo with this many times the power of the noise floor."""
GATE_MEAN_BLOCKS = 4
"""Blocks (40 ms) over which the likelihood ratio is averaged."""
GATE_LEAST_GAIN, GATE_OVER = 0.1, 2.0
"""Post-filter: lowest gain (-20 dB), and how many times the explained power it subtracts."""

# --- speech over an echo (gate; benchmarks.echo.canceller; seeds 1000 to 1078, 2 h) ---------------

DETECTOR_LEAST_LLR, DETECTOR_THRESHOLD = 4.0, 2.0
"""Speech needs a log likelihood ratio above the first; and the log odds of the post-filtered score,
half of those of the residual's, and half of the ratio's excess must add up to more than the second.
"""
DETECTOR_SURE_LLR = 10.0
"""A higher log likelihood ratio adds nothing."""
DETECTOR_NEVER_SURE = 0.005
"""Scores are kept this far from 0 and 1, which limits their log odds to 5.3."""

# --- finding the delay (delay; benchmarks.echo.canceller) ----------------------------------------

DELAY_COMPARED_S = 4.0
"""Seconds of microphone sound that are correlated."""
DELAY_LOW_HZ, DELAY_HIGH_HZ = 200.0, 5000.0
"""Band that is correlated."""
DELAY_LEAST_SOUND_S = 0.3
DELAY_AUDIBLE_DBFS = -60.0
"""Sound that must have been sent before a search, counted in frames above this level."""
DELAY_SMEARED = 8
"""Samples (0.5 ms) over which differing clocks spread a peak."""
DELAY_CONFIDENT = 9.0
DELAY_CONFIDENT_S = 26.0
"""A peak must be 9 times the median, and more after less sound: 26 times after 1 s. Other people's
speech over an answer reached 42 after 0.45 s, 31 after 0.6, 18 after 0.75, 11 to 19 from 1 s on
(highest of 40 each), and 8.1 from 3 s on in 30 sessions of 25 s. Echoes 35 dB above the noise
reached 55 to 90 (19 of 20), an echo 10 dB below the noise 11 after 4 s."""

# --- is a sound an echo? (likeness; benchmarks.echo.sessions) ------------------------------------

LIKENESS_FEWEST_MS, LIKENESS_ENOUGH_MS = 128, 224
"""Length, look-back included, from which a very different sound is judged not to be an echo, and
from which every sound is judged."""
LIKENESS_LESS_PER_MS = 0.0008
"""Between the two, the limit falls by this much for each millisecond missing."""
LIKENESS_LATER_LESS_PER_MS = 0.00035
"""Beyond the second length, the limit falls by this for each millisecond more: to 0.13 at 400 ms,
where the highest of 150 people reached 0.11, and one echo in twenty 0.14 in a room whose
reverberation is 9 dB stronger than the direct sound."""
LIKENESS_ECHO = 0.19
LIKENESS_SURELY_ECHO = 0.3
"""Least correlation of an echo: of a long enough sound, and of any (people reached 0.17 in 96 ms).
"""
LIKENESS_LOW_HZ, LIKENESS_HIGH_HZ = 200.0, 5000.0
"""Band that is compared."""
LIKENESS_SMOOTHED_HZ = 100.0
"""Bandwidth in which whitening equalises the power."""
LIKENESS_MOST_PEAK = 4.0
"""Clipping level, times the RMS. A whitened knock is one peak, which resembles every voice onset:
0.28 without this limit, 0.1 with it (highest of 60)."""

# --- gaps that were not reported (slip; benchmarks.echo.canceller) -------------------------------

SLIP_COMPARED = 800
"""Samples (50 ms) that must agree."""
SLIP_FAILS = 0.35
SLIP_WORKS = 0.12
"""Residual's share of the microphone's power: above the first over 40 ms the filter fails, below
the second over 2 s it has been working."""
SLIP_DOUBT_BLOCKS = 30
"""A failing filter learns nothing for 300 ms: after a gap or under a voice, what it knew before is
better."""
SLIP_FAILING_BLOCKS = 100
"""The first second of a failure does not count against how well the filter has been working."""
SLIP_LOST_BLOCKS = 60
SLIP_MIDDLE, SLIP_LOST = 0.01, 1.0
"""The filter is lost after failing for 0.6 s, if over 1 s (smoothing 0.01) the residual has more
than 1.0 times the microphone's power. Not even near-end speech does that."""
SLIP_LEARNT_BLOCKS = 500
"""Blocks of echo (5 s) before which failures mean only that the filter is still learning."""
SLIP_SHORT, SLIP_LONG = 0.4, 0.005
"""Smoothing per block of the short and long averages: 40 ms and 2 s."""
SLIP_EXPLAINED = 0.6
SLIP_BETTER = 0.3
"""Share of the microphone's power that the moved echo must explain; how much more than unmoved."""
SLIP_LEAST_SLIP = 2
"""Samples; the filter follows smaller slips itself."""
SLIP_AGREE, SLIP_SAME = 3, 2
"""Results in a row that must agree, to within this many samples."""

# --- clocks that differ (drift; benchmarks.echo.canceller) ---------------------------------------

DRIFT_MOST_PPM = 500.0
"""Crystals differ by about 100 ppm at most; a larger estimate is an error."""
DRIFT_MEASURED_BLOCKS = 25
"""Blocks (250 ms) between two measurements."""
DRIFT_GAINS = ((12, 0.8), (40, 0.3))
"""Gain of the first 12 (3 s) and 40 (10 s) measurements: a young filter lags, so it shows too
little drift. A constant 0.3 takes three times as long at 100 ppm."""
DRIFT_LATER_GAIN = 0.1
"""Gain of all later measurements: steady, because clocks change slowly."""
DRIFT_MOST_STEP = 1.6
"""Samples; beyond that the phase of the highest bin turns by more than half a cycle."""

# --- echo of a remote client (path; benchmarks.echo.sessions) ------------------------------------

PATH_LOOKS = 6
PATH_LOOKS_IN_VAIN = 12
"""Searches per answer once an echo is known, and before that: an echo that comes after a second, or
in a loud room, takes some seconds to find. While the canceller fails, the search goes on as long as
the answer lasts, because the echo may have moved out of the filter's reach."""
PATH_NEVER_FOUND = 4
"""Failed searches, each after 1 s or more of an answer's sound, after which the microphone is
assumed not to hear answers. In a long answer that is after 4.3 s, of which 2.8 s could have come
back."""
PATH_NOT_REMOVED = 0.6
"""Where the echo is expected, the residual of a sound is echo if its likeness to the answer is at
least this share of the whole sound's. A person over an echo of which 10 dB are removed gives 0.4.
"""
PATH_UNFOUND = 12
"""Failed searches in a row after which a known echo counts as gone."""
