"""Finds transcripts that no voice in the sound can have said.

A recogniser writes words for a motor, too: hums, thanks, the credits of subtitles, one phrase over
and over. ``invention`` (pure) names what is wrong with a text; ``believed`` applies it to every
final transcript of a session, whatever the recogniser: of turns, of looks at speech over an answer,
and of recordings. A text that is not believed counts as none, as if the sound had been noise. So
does one of somebody to whom the robot does not listen (``people.accept``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby, product
from operator import eq

from pipeline.context import SessionContext
from pipeline.engines.contract import Transcript
from pipeline.hearing import tuning
from pipeline.hearing.recognition import plain_words, without_accents
from pipeline.settings import Accept, Lexicon, with_inventions
from pipeline.spoken.language import SMALL_WORDS, UNSPACED
from pipeline.turn_record import Aside, Doubt, Invention

_SCRIPTS_OF = SMALL_WORDS | {"ja": "あアー漢々", "zh": "漢々", "ko": "한漢", "el": "ω"}
"""Words or letters of each language that show how it is written."""
_LETTERS = {"CJK": 4, "HANGUL": 3, "HIRAGANA": 2, "KATAKANA": 2}
"""How many Latin letters one of these scripts takes as long to say as."""
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.!?…](?:\s|$)|[。！？]")


@dataclass(frozen=True, slots=True)
class Segment:
    """The sound behind a text. The defaults are for what the client commits."""

    speech_s: float = 0.0
    """The length of the speech, pauses included."""
    certainty: float = 1.0
    """The mean score of the VAD, pauses excluded."""
    moves: bool = True
    """Whether the sound's timbre moves, as a voice's does (``hearing.timbre``)."""
    over_answer: bool = False
    """An answer is at stake."""
    after_question: bool = True
    """A hum may answer what the robot has just asked."""
    elsewhere: bool = False
    """It came from beside the accepted sector."""
    live: bool = False
    """The robot found it itself."""

    @property
    def short(self) -> bool:
        """Whether it holds few words at most."""
        return self.speech_s < tuning.FEW_WORDS_S

    @property
    def is_still(self) -> bool:
        """Whether its timbre stands still; that of one vowel hardly moves."""
        return not (self.moves or (self.short and self.certainty >= tuning.SURE))

    @property
    def is_noise(self) -> bool:
        """Whether it is hardly speech, whatever its words."""
        return self.is_still or self.certainty < tuning.HARDLY_SURE

    @property
    def unread(self) -> str | None:
        """Its text before it is recognised: a noise has none, that of speech is not known."""
        return "" if self.is_noise else None


NO_SCORES = Segment()


def believed(context: SessionContext, transcript: Transcript, segment: Segment) -> Transcript:
    """``transcript``, and its language noted; without text if it was invented, or is unwanted."""
    lexicon = replace(context.lexicon, language=context.config.language)
    lexicon = with_inventions(context.settings.lexicons, lexicon)
    if not plain_words(transcript.text):
        return replace(transcript, text="")
    if why := invention(transcript, segment, lexicon):
        doubt = Doubt(transcript.text, segment.certainty, segment.speech_s)
        return replace(transcript, text="", language="", exclusion=why, doubt=doubt)
    if aside := unwanted(transcript, segment, context.settings.people):
        return replace(transcript, text="", language="", exclusion=aside)
    context.note_language(transcript)
    return transcript


def invention(transcript: Transcript, segment: Segment, lexicon: Lexicon) -> Invention | None:
    """Why the words cannot have been said in ``segment``; ``None``: they can."""
    words = plain_words(transcript.text)
    sure = segment.certainty >= tuning.SURE
    if not words:
        return None
    if _is_foreign(transcript.text, lexicon.language):
        return "letters"
    letters = sum(_LETTERS.get(_script(letter), 1) for letter in "".join(words))
    if letters > tuning.MOST_LETTERS_PER_S * (transcript.seconds + tuning.SPARE_S):
        return "too fast"
    if _is_credit(transcript.text, lexicon, sure) or "©" in transcript.text:
        return "credits"
    if _is_repetition(words, lexicon, segment.certainty):
        return "repetition"
    if all(_is_hum(word, lexicon) for word in words):
        # Over an answer, ``turn_taking.barge_in`` knows what a hum means.
        return None if sure and (segment.after_question or segment.over_answer) else "hum"
    return "hardly speech" if _is_hardly_speech(words, segment, lexicon) else None


def unwanted(transcript: Transcript, segment: Segment, accept: Accept) -> Aside | None:
    """Why the robot does not listen to who said this; ``None``: it does. Nobody is turned away for
    what cannot be told."""
    if not segment.live:
        return None
    if accept == "known" and transcript.speaker == "":
        return "stranger"
    return "elsewhere" if accept == "front" and segment.elsewhere else None


def _is_hardly_speech(words: list[str], segment: Segment, lexicon: Lexicon) -> bool:
    """Whether the sound is no voice; few words, and thanks, which are often invented, need a better
    one."""
    least = tuning.HARDLY_SURE
    courtesies = _phrases(lexicon.courtesies)
    plain = [*map(without_accents, words)]
    thanks = words[0] not in lexicon.commands and _are_among(plain, courtesies)
    if thanks:
        least = tuning.SURE_OF_COURTESY
        longest_s = tuning.COURTESY_S + tuning.COURTESY_WORD_S * _count(words)
        if tuple(plain) in courtesies and segment.speech_s > longest_s:
            return True
    few = segment.short or thanks or _count(words) <= tuning.FEW_WORDS
    return segment.is_still or (few and segment.certainty < least)


def _are_among(words: list[str], phrases: Mapping[tuple[str, ...], bool]) -> bool:
    """Whether the words are some of the phrases, one after another."""
    longest, ends = max(map(len, phrases), default=0), {0}
    for end in range(1, len(words) + 1):
        begins = ends.intersection(range(end - longest, end))
        if any(tuple(words[begin:end]) in phrases for begin in begins):
            ends.add(end)
    return len(words) in ends


def _count(words: list[str]) -> float:
    """How many words they are: of scripts without spaces, two letters are one."""
    return sum(0.5 if _UNSPACED_LETTER.match(word) else 1.0 for word in words)


def _is_foreign(text: str, language: str) -> bool:
    """Whether most letters are of a script in which ``language`` is not written. Latin letters name
    things in every language."""
    written = _SCRIPTS_OF.get(language, "")
    own = {*map(_script, written), "LATIN"}
    letters = [*filter(str.isalpha, unicodedata.normalize("NFKC", text))]
    return bool(written) and 2 * sum(_script(each) not in own for each in letters) > len(letters)


@lru_cache(4096)
def _script(letter: str) -> str:
    """Unicode names letters by their script first: "HANGUL SYLLABLE I"."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _is_credit(text: str, lexicon: Lexicon, sure: bool) -> bool:
    """Whether a sentence begins like a credit of subtitles. A voice that is surely one has said
    the words, unless the text is nothing but credits, words that only agree or thank, and names
    behind credits that take them (``*``): "Subtitles by Jane Doe"."""
    credits, idle = _phrases(lexicon.credits), _idle(lexicon)
    longest = max(map(len, credits), default=0)
    text = without_accents(text)
    names = {*chain(*map(plain_words, _names(text)))}
    found = False
    for words in map(plain_words, _SENTENCE_END.split(text)):
        at, known = 0, idle
        while at < len(words):
            begun = (tuple(words[at : at + length]) for length in range(longest, 0, -1))
            credit = next((each for each in begun if each in credits), ())
            if not credit and words[at] not in known:
                if sure:
                    return False
                break
            found = found or bool(credit)
            known = idle | names if credits.get(credit) else known
            at += len(credit) or 1
    return found


def _names(text: str) -> Iterator[str]:
    """What may name somebody: capitals, digits, addresses, and few letters without capitals."""
    for token in text.split():
        if re.search(r"\w\.\w", token):
            yield token
        for word in _WORD.findall(token):
            few = word == word.upper() and len(word) <= tuning.NAME_LETTERS
            if few or word.isdigit() or word != word.lower():
                yield word


@lru_cache(8)
def _idle(lexicon: Lexicon) -> frozenset[str]:
    credits, courtesies = _phrases(lexicon.credits), _phrases(lexicon.courtesies)
    agreeing = {*chain(*credits), *map(without_accents, lexicon.backchannels)}
    commands = map(without_accents, lexicon.commands)
    return frozenset(agreeing.difference(commands).union(*courtesies))


@lru_cache(8)
def _phrases(texts: tuple[str, ...]) -> Mapping[tuple[str, ...], bool]:
    """The words of each, with alternatives (|), and without what may be left out, in ( ); whether
    names may follow."""
    phrases: dict[tuple[str, ...], bool] = {}
    for text in texts:
        slots = (slot.replace("(", "|").strip(")").split("|") for slot in text.rstrip(" *").split())
        for words in product(*slots):
            phrases[tuple(plain_words(without_accents(" ".join(words))))] = text.endswith("*")
    return phrases


def _is_repetition(words: list[str], lexicon: Lexicon, certainty: float) -> bool:
    """Whether one phrase is said over and over, and not as people do: "no no no no no", "be quiet
    be quiet be quiet be quiet"."""
    phrase, beside = _loop(words)
    if not phrase:
        return False
    commands = {*chain(*map(plain_words, lexicon.commands))}
    if beside:
        return commands.isdisjoint((*phrase, *beside))
    if _count(phrase) <= tuning.FEW_WORDS and not commands.isdisjoint(phrase):
        return certainty < tuning.HARDLY_SURE
    short = _count(phrase) <= tuning.REPEATED_WORDS and _count(words) <= tuning.MOST_REPEATED_WORDS
    thanks = tuple(map(without_accents, phrase)) in _phrases(lexicon.courtesies)
    alone = len(phrase) > 1 or not thanks or phrase[0] in lexicon.answers  # "you you you you"
    least = tuning.SURE_OF_COURTESY if thanks else tuning.SURE
    return not (short and alone) or certainty < least


def _loop(words: list[str]) -> tuple[list[str], list[str]]:
    """The phrase that comes again and again, the last time perhaps in part, and the few words
    beside it, if it comes more often than people repeat anything; empty if there is none."""
    for n in range(1, (len(words) - 1) // (tuning.REPEATS - 1) + 1):
        end = 0
        for again, group in groupby(map(eq, words, words[n:])):
            at, end = end, end + len([*group])
            if again and end - at > (tuning.REPEATS - 2) * n:
                loop, beside = words[at : end + n], [*words[:at], *words[end + n :]]
                often = len(loop) >= 2 * tuning.REPEATS * n
                endless = often and _count(loop) > tuning.MOST_REPEATED_WORDS
                if not beside or (endless and _count(beside) <= tuning.FEW_WORDS):
                    return loop[:n], beside
    return [], []


def _is_hum(word: str, lexicon: Lexicon) -> bool:
    """Whether it is only h and m, or hesitates and agrees alike ("uh", "huh")."""
    hums = {without_drawl(filler) for filler in lexicon.fillers if filler in lexicon.backchannels}
    word = without_drawl(word)
    return set(word) <= {"h", "m"} or not hums.isdisjoint((word, word.lstrip("h")))


def without_drawl(word: str) -> str:
    """Without letters that are drawn out: "uhhh"."""
    return re.sub(r"(.)\1+", r"\1", word)
