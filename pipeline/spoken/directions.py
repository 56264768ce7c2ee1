"""Stage directions: ``*smiles*``, ``(laughs)``, ``[waves happily]``. They are played, not read."""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ACTS = _set("""
    smile smiles smiling smirk smirks smirking grin grins grinning laugh laughs laughing chuckle
    chuckles chuckling giggle giggles giggling snicker snickers nod nods nodding wave waves waving
    wink winks winking sigh sighs sighing shrug shrugs shrugging blink blinks blinking bow bows
    bowing beep beeps beeping boop boops whir whirs whirr whirrs whirring gasp gasps gasping yawn
    yawns yawning clap claps clapping hug hugs hugging dance dances dancing wiggle wiggles wiggling
    blush blushes blushing frown frowns frowning cough coughs coughing sniff sniffs hum hums humming
    whistle whistles whistling whisper whispers whispering cheer cheers cheering salute salutes
    shiver shivers bounce bounces bouncing twirl twirls tilts tilting chirp chirps chirping pauses
""")
"""What a robot or an actor does; in asides, nothing else means these words."""

_ACTS_ALONE = _set("""
    pause pausing tilt look looks looking turn turns turning think thinks thinking move moves moving
    lean leans leaning raise raises raising point points pointing shake shakes shaking scratch
    scratches spin spins spinning perk perks lift lifts lifting gesture gestures gesturing step
    steps rub rubs roll rolls rolling clear clears clearing take takes taking stare stares
    listen listens listening wait waits speak speaks speaking
""")
"""The same, where the aside begins a sentence; elsewhere they are words with emphasis."""

_NO_ACTS = _set("""
    this is was has does as its it's yes us always perhaps sometimes thus besides unless across
    towards minus plus thanks news less its hers his ours yours theirs these those sings
    nothing anything something everything during according including being thing evening morning
""")

_FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def is_direction(text: str, *, alone: bool) -> bool:
    """Whether an aside is a stage direction. ``alone``: it stands where a sentence begins; there,
    any verb without a capital in the third person or in -ing makes it one."""
    first = _FIRST_WORD.match(text)
    if first is None:
        return False
    word = first[0].lower()
    if word in _ACTS or (alone and word in _ACTS_ALONE):
        return True
    verb = len(word) > 3 and word.endswith(("s", "ing")) and word not in _NO_ACTS
    return alone and verb and first[0].islower()


def may_be_direction(start: str, *, alone: bool) -> bool:
    """Whether an aside that begins with ``start`` may be one."""
    first = _FIRST_WORD.match(start)
    return first is None or first.end() == len(start) or is_direction(start, alone=alone)
