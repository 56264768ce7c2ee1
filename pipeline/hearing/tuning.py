"""Tuned constants of hearing, each with its unit and reason. Tuned with:

python -m benchmarks.turns.score DIR      where speech began, when a voice fades (tuning part)
python -m benchmarks.echo.sessions        speech under the robot's own voice
"""

from __future__ import annotations

from pipeline.audio import LISTEN_RATE

# --- where speech began (``onset``; fitted on 3,000 seeded scenes) --------------------------------

MAX_BACK_MS = 1280
"""The furthest that an onset is dated back: a long first word, a pause, and a hesitant VAD."""
GAP_MS = 512
"""A longer silence before speech separates it from earlier speech."""
CERTAIN_MS = 1000
"""Longest ``endpointing.onset_ms``: scores remembered between noticing speech and being sure."""
ROOM_FACTOR, ROOM_MARGIN = 2.0, 0.03
"""Speech scores at least this many times the room's score, plus this."""
SURELY_SPEECH = 0.3
"""A window with this score is speech in any room."""
SOFTER = 16.0
"""Factor in power (12 dB) by which an onset may be weaker than the speech that the VAD is sure of.
Echoes and people further away are weaker still."""
ROOM_RISE_S, ROOM_FALL_S = 3.2, 0.32
"""Time constants of the room's score when it rises and falls."""
QUIET_PEAK_S = 4.0
"""Time constant with which the highest score that came to nothing fades."""
FIRST_ROOM_SCORE = 0.02
"""Silero's score for a quiet room."""

# --- when a voice fades (``fading``, ``listening``; benchmarks.turns.score) --------------------
# Pauses are noticed 43 ms earlier on average, for one false alarm every 8 s of speech.

BLOCK_S = 0.008
"""Length of the blocks whose level is measured."""
BELOW_SPEECH_DB = 24.0
"""A level this far below the speaker's is not a voice."""
ABOVE_ROOM_DB = 5.0
"""The room's own level varies by this much."""
CONTRAST_DB = 12.0
"""With less difference between speaker and room, the level says nothing."""
FADING_SCORE = 0.98
"""A VAD that is surer of speech than this is believed for ``CLOSURE_MS``, whatever the level."""
SPEECH_SCORE, ROOM_SCORE = 0.5, 0.3
"""A window counts for the speaker's level from the first score on, for the room's below the second.
"""
FOLLOW_SPEECH, FOLLOW_ROOM = 0.05, 0.1
"""Share by which the levels move towards each window's."""
HARDLY_SPEECH_DB = 15.0
"""A window this far below the speaker's level does not count for it."""
CLOSURE_MS = 192
"""A voice that faded this long ago but still scores as speech has only become softer."""

# --- speech under the robot's own voice (``speech_scores``; benchmarks.echo.sessions) ------------

NO_SPEECH = 0.25
"""Highest score of a window that echo explains in part; at most half of the threshold."""
EXPLAINED_LLR = 2.0
"""Up to this log likelihood ratio the echo explains all of a window: no turn begins in it."""
SPEECH = 0.6
"""Least score of a window in which the echo detector finds near-end speech."""
HEARD_OUT_SAMPLES = 3 * LISTEN_RATE
"""After this much sound without echo, the VAD used during it knows the room well enough to stay."""
SILENT_SAMPLES = 256 * LISTEN_RATE // 1000
"""Longer than a closure within a word: the speaker is done."""
SILENT_SCORE = 0.2
"""Windows below this score are silent."""

# --- words that cannot have been said (``plausibility``) ------------------------------------------

SURE, HARDLY_SURE = 0.8, 0.58
"""Mean score of the VAD over speech: below the second, few words are not believed; below the first,
no hum. One word in an echoing room scores .59 to .70. Over an answer, ``turn_taking.barge_in``
weighs doubtful words: if all needed the first limit, P95 of its verdict would be 570 ms instead of
500."""
FEW_WORDS, FEW_WORDS_S = 3, 0.4
"""Up to this many words are few; sound shorter than this holds no more."""
NAME_LETTERS = 4
"""Most letters of a name in a script without capitals."""
SURE_OF_COURTESY, COURTESY_S, COURTESY_WORD_S = 0.85, 0.9, 0.25
"""For "Thank you." the VAD must be this sure, and the sound no longer than the second and, for each
word, the third."""
MOST_LETTERS_PER_S, SPARE_S = 30.0, 0.5
"""Fast speech has up to 25 letters a second. The audio may be cut that much too short."""
REPEATS, REPEATED_WORDS, MOST_REPEATED_WORDS = 4, 2, 10
"""How often in a row a phrase must come to be a repetition; and the most words of a phrase that
people do repeat so often, and of all of it, unless it is a command ("yes yes yes")."""

# --- whether a timbre moves (``timbre``) ----------------------------------------------------------

TIMBRE_EDGES_HZ = (250, 450, 720, 1060, 1470, 1950)
"""Bands, wide enough that the harmonics of a gliding motor stay within theirs, below its hiss."""
TIMBRE_FRAMES = 3
"""Frames of 32 ms, 16 ms apart, whose power is averaged."""
TIMBRE_SAMPLES, TIMBRE_BEFORE_SAMPLES = 192 * LISTEN_RATE // 1000, LISTEN_RATE
"""Less sound says nothing; the room is heard in the sound before it."""
TIMBRE_MOST_SAMPLES = 8 * LISTEN_RATE
"""More sound is judged part by part: of all frames, more than a tenth must be the room's."""
TIMBRE_NEWEST_SAMPLES = 576 * LISTEN_RATE // 1000
"""Where a motor runs, the timbre of this much newest sound must move. 192 ms into it, 119 of 120
commands do, and 0 of 105 moves of a servo; over a servo 0 to 10 dB below, 9 of 10 after 224 ms."""
TIMBRE_SHORT, TIMBRE_SHORT_SAMPLES = 0.7, 600 * LISTEN_RATE // 1000
"""Up to this length, this share of the movement is enough: "Basta" has one vowel."""
TIMBRE_LOUD_DB, TIMBRE_CONTRAST_DB = 20.0, 10.0
"""Frames further below the loudest do not count. A sound that is less above the room mostly has the
room's timbre."""

# --- who is near (``nearness``, ``listening``; benchmarks.turns.score, scenes with a television) --

LEVEL_WINDOWS = 3
"""Windows over which a level is measured (96 ms): about a syllable."""
RUMBLE_HZ = 80
"""No voice's: an offset, handling, wind and mains hum lie below."""
SPEAKER_WINDOWS = 150
"""The newest windows of speech (4.8 s) whose 80th percentile is the speaker's level."""
FEWEST_WINDOWS = 12
"""Windows of speech from which that level is known."""
KEPT_MS = 128
"""This much around speech of the speaker's level may be the soft beginning or end of a word."""
FAR_MS = 320
"""Background that lasts this long counts as a pause of the speaker."""
QUIET_WORD_MS, QUIET_WORDS_MS = 704, 960
"""Background that stops sooner was a quiet word of the speaker's; longer background ends the turn.
The first limit is without the pauses in it, the second with them; a VAD adds up to 200 ms."""
APART_MS = 320
"""A silence after which further background is judged anew."""
STOPPED_MS = 96
"""Silence after which background has stopped: a VAD's scores also fall briefly within words."""
REMEMBERED_SAMPLES = 30 * LISTEN_RATE
"""How long after a turn its speaker's level is remembered. In 96 turns of people on the telephone,
none was more than 9 dB below the one before."""
QUIET_SAMPLES, QUIET_SCORE, QUIET_FALL_DB = 3 * LISTEN_RATE, 0.1, 8.0
"""Length of a quiet, the score that its windows stay below, and by how many dB it lowers the
remembered level. (When a quiet cleared the level instead, televisions 24 dB below the speaker began
118 turns an hour; with this, 25: ``benchmarks.room``.)"""
HEAD_START_SAMPLES, FEWEST_FAR = QUIET_SAMPLES // 2, 10
"""How much of that length need not pass where fewer than this many windows of background (320 ms)
were heard within 30 s: of 22 people 12 dB softer than the one before them, and 1.5 s after a turn,
19 are heard, and 4 without it."""
SILENT_DB, FLOOR_RANGE_DB, QUIET_WINDOWS, FLOOR_RISE_DB_S = 30.0, 6.0, 10, 0.2
"""A quiet is also this far below the speaker, or within this range above the room's level, over
320 ms. That level is the lowest heard, rising so fast. By the score alone, two of eight soft
televisions opened 7 and 6 turns in 32 s. By the range alone, the noise of ordinary rooms would not
be quiet: of 24 recordings of people in one conversation, 6 were not heard."""
FAR_COUNTS = 3
"""By how many samples each sample of far speech prolongs the memory: a VAD takes less than a third
of a soft television for speech."""
OPENING_DB = 3.0
"""Speech must come this much nearer to the remembered level to open a turn: the loudest syllables
count."""
NEWEST_WINDOWS, FEWEST_BEFORE = 10, 20
"""Windows of speech (320 ms) whose median shows that a nearer speaker has begun, and those before
from which that counts: with 12, 1 of 633 turns lost its first words, with 20 none."""
RISE_DB, LEAST_RISE_DB, RISE_SAMPLES = 6.0, 1.0, LISTEN_RATE
"""A nearer speaker raises the level by the first, beginning with words that raise it by at least
the second, and within the third by more than the margin. Of 986 turns of one person each, none is
cut."""
NEARER_DB = 4.5
"""Background heard before the speaker must come this much nearer to count as the speaker."""
FEWEST_OTHERS, OTHERS_WINDOWS = 31, 937
"""This many windows of background (1 s) before the speaker, among the second number of windows of
speech (30 s), show that others talk: a first phrase may be soft. With 6, a reader was cut after
9 s."""
FEWEST_BETWEEN_TURNS = 125
"""The same (4 s) while no turn is open: somebody who was too soft to be heard may speak up. With
31, eight televisions at -12 dB opened 11 turns, with this 15, and none at -18 dB."""
QUIETER_DB = 5.5
"""A turn this much quieter than the remembered level does not change it: otherwise one turn opened
by a television's loudest word would make it the speaker. Of 96 turns of people, 1 fell by more."""
LOUD_WINDOWS = 62
"""Windows of speech (2 s) over which the loudest part of a turn is measured."""
SUNK_WINDOWS, SUNK_DB = 350, 6.0
"""The newest windows of speech (11 s), and how far below the loudest part they are if somebody else
has been talking since. Of 14 voices that talked for 60 s, 13 stayed above; of 40 televisions 6 dB
below a command, 39 fell below."""
LONG_TURN_SAMPLES = 20 * LISTEN_RATE
"""Shorter turns are not checked for this: the pauses in them end them."""

# --- near-misses of keywords (``keywords``; figures in docs/decisions.md) -------------------------

LEAST_SOUNDS = 3
"""Shorter keywords are too much like other words. One sound more is needed for a word that stands
alone or is called, and two more elsewhere, unless the recogniser took it for a name. With this rule
and those below, 20 common first names replace 7 of 133,000 other words of dialogues; without it,
1,127."""
WORD_DIFFERENCE = 0.08
"""Most wrong consonants in a word taken for a keyword, per sound of that above ``LEAST_SOUNDS``."""
NAME_DIFFERENCE = 0.2
"""The same for a word that the recogniser took for a name. With 0.3 twice as many other names are
replaced."""
LONG_SOUNDS, LONG_DIFFERENCE = 8, 0.25
"""Sounds of a long keyword, which hardly any other word is like, and the same for it."""
CALL_DIFFERENCE = 0.5
"""In a call, one consonant may be another: 13 of 50 times "Reachy" is heard as "Reiki" or
"Ricky"."""
MOST_WORDS = 3
"""Most words that a recogniser hears for one keyword."""
MOST_KEYWORDS, LONGEST_KEYWORD_CHARS, MOST_TEXT_WORDS = 100, 50, 400
"""Further keywords, longer ones, and further words of a text are not compared: comparing runs on
the event loop, and takes 0.03 ms for a word of English and 30 keywords."""
