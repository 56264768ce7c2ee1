"""When is a turn over? Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.settings import Endpointing, lexicon_of
from pipeline.turn_taking.ending_words import ending
from pipeline.turn_taking.endpointing import Evidence, decide
from reachy_voice.testing.words import ENGLISH, LEXICONS

pytestmark = pytest.mark.quick

SETTINGS = Endpointing()


@pytest.mark.parametrize(
    ("text", "asked", "clue"),
    [
        ("", "", "nothing"),
        ("...", "", "nothing"),
        ("Yes.", "", "one-word answer"),
        ("Reachy?", "", "one-word answer"),
        ("STOP", "", "one-word answer"),
        ("Breaky.", "", "one word"),
        ("Hello, Mary.", "", "two words"),
        ("Hello, Mary,", "", "comma"),
        ("I want to, um.", "", "filler"),
        ("Well,", "", "filler"),
        ("So.", "", "filler"),
        ("I think so.", "", "statement"),
        ("I want the", "", "leaning word"),
        ("I want the.", "", "leaning word"),
        ("Please enter your.", "", "leaning word"),
        ("Eggs, milk and", "", "leaning word"),
        ("I think we’re", "", "leaning word"),
        ("No, I don’t", "", "leaning word"),
        ("What is it?", "", "unfinished"),
        ("I think that", "", "leaning word"),
        ("I know that.", "", "unfinished"),
        ("Could you?", "", "leaning word"),
        ("I do.", "Do you like it?", "short answer"),
        ("I need eggs, milk,", "", "comma"),
        ("The blue one", "Which one do you like?", "short answer"),
        ("The blue one", "", "unfinished"),
        ("How many days are there in a week?", "", "question"),
        ("Turn to the left.", "", "statement"),
        ("turn to the left", "", "unfinished"),
    ],
)
def test_what_the_last_words_are(text: str, asked: str, clue: str) -> None:
    assert ending(text, ENGLISH, asked) == clue


@pytest.mark.parametrize(
    ("text", "asked", "complete", "clue"),
    [
        ("What is it?", "", 0.5, "question"),
        ("What are you looking at?", "", 0.5, "question"),
        ("I know that.", "", 0.5, "statement"),
        ("Could you help me to?", "", -0.6, "leaning word"),
        ("I want to go to.", "", -0.6, "leaning word"),
        ("I do.", "Do you like it?", -0.6, "short answer"),
        ("It.", "", -0.6, "one word"),
        ("Can you tell me?", "", -1.0, "question"),
        ("Can you tell me?", "", -3.0, "unfinished"),
        ("We met a strange.", "", -3.0, "unfinished"),
        ("We met a strange,", "", -3.0, "comma"),
    ],
)
def test_a_mark_counts_unless_the_words_are_open(
    text: str, asked: str, complete: float, clue: str
) -> None:
    assert ending(text, ENGLISH, asked, complete) == clue


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "I want to ummm."),
        ("en", "Uhhh,"),
        ("de", "Ich möchte gerne äähm."),
        ("fr", "Je voudrais euuuh."),
        ("es", "Quiero ver esteee."),
        ("it", "Vorrei sapere ehmmm."),
        ("nl", "Ik wil graag uhm."),
        ("pt", "Eu queria ver ééé."),
    ],
)
def test_a_filler_may_be_drawn_out(language: str, text: str) -> None:
    assert ending(text, lexicon_of(LEXICONS, language)) == "filler"


@pytest.mark.parametrize("text", ["It begins with an M.", "She is my mum.", "I want to see all."])
def test_other_words_are_no_fillers(text: str) -> None:
    assert ending(text, ENGLISH, complete=1.0) == "statement"


OPEN = [
    ("en", "Would you ask her to"),
    ("de", "Ich gehe morgen mit"),
    ("fr", "Je voudrais aller à"),
    ("es", "Me gustaría hablar con"),
    ("it", "Vorrei parlare con"),
    ("pt", "Queria falar com"),
    ("nl", "Ik wil morgen met"),
]


@pytest.mark.parametrize(
    ("language", "asked", "text"),
    [
        ("en", "What would you like to do?", "I want to."),
        ("en", "How can I help you?", "I'd like to?"),
        ("en", "How can I help you?", "Remind me to."),
        ("en", "Do you like it?", "Yes, because I."),
        ("de", "Was möchtest du tun?", "Ich möchte zu."),
        ("fr", "Que veux-tu faire ?", "Je veux à."),
        ("es", "¿Qué quieres hacer?", "Quiero ir a."),
        ("it", "Cosa vuoi fare?", "Voglio andare in."),
        ("it", "Cosa vuoi fare?", "Vorrei."),
        ("it", "", "Vorrei."),
        ("nl", "Wat wil je doen?", "Ik wil te."),
        ("pt", "O que queres fazer?", "Quero ir para."),
        ("zh", "你想做什么？", "我想要去"),
    ],
)
def test_short_words_may_wait_long_if_they_are_plainly_open(
    language: str, asked: str, text: str
) -> None:
    lexicon = lexicon_of(LEXICONS, language)

    def wait_ms(words: float | None) -> int:
        return decide(Evidence(0.12, text, words, asked), SETTINGS, lexicon).wait_ms

    assert wait_ms(-4.0) >= 1400
    if asked:
        assert max(wait_ms(None), wait_ms(-1.0)) <= SETTINGS.likely_wait_ms


@pytest.mark.parametrize("mark", ["?", ".", "!", "？", "。"])
@pytest.mark.parametrize(("language", "text"), OPEN)
def test_open_words_outvote_sound_mark_and_length(language: str, text: str, mark: str) -> None:
    lexicon = lexicon_of(LEXICONS, language)

    def wait_ms(said: str, words: float | None) -> int:
        return decide(Evidence(0.99, said, words, turn_ms=8000), SETTINGS, lexicon).wait_ms

    assert wait_ms(text + mark, -2.0) == wait_ms(text, -2.0) >= 1400
    unknown = [wait_ms(said, None) for said in (f"{text} x{mark}", text + mark, text)]
    assert unknown == sorted(unknown), "a mark after them is weaker than after other words"


def test_a_one_word_answer_does_not_wait_for_the_turn_detector() -> None:
    for word in ("Yes.", "No.", "Reachy?", "Okay."):
        assert decide(Evidence(text=word), SETTINGS, ENGLISH).wait_ms <= SETTINGS.likely_wait_ms
    sceptical = decide(Evidence(audio=0.1, text="Yes."), SETTINGS, ENGLISH)
    assert sceptical.wait_ms <= 700, "even where the turn detector is sure that more will come"
    doubted = decide(Evidence(audio=0.1, text="Yes.", words=-5.0), SETTINGS, ENGLISH)
    assert doubted.wait_ms == SETTINGS.likely_wait_ms, "or the language model"


def test_hesitation_waits_longer_than_a_plain_end() -> None:
    waits = [
        decide(Evidence(audio=audio, text=text), SETTINGS, ENGLISH).wait_ms
        for audio, text in [(0.98, "Where is the key?"), (0.6, "I think so."), (0.3, "I want the")]
    ]
    assert waits == sorted(waits)
    assert waits[0] == SETTINGS.clear_wait_ms
    assert waits[-1] > SETTINGS.likely_wait_ms
    plain = Evidence(audio=0.02, text="and then we went to", words=-5.0)
    assert decide(plain, SETTINGS, ENGLISH).wait_ms == SETTINGS.unsure_wait_ms


def test_speakers_who_pause_long_get_more_time() -> None:
    def wait_ms(*pauses_ms: int) -> int:
        return decide(
            Evidence(0.7, "I think so.", own_pauses_ms=pauses_ms), SETTINGS, ENGLISH
        ).wait_ms

    slow, usual, quick = wait_ms(700, 800, 650), wait_ms(), wait_ms(120, 100, 150)
    assert quick < usual <= slow


def test_a_long_sentence_is_the_last_one() -> None:
    def wait_ms(turn_ms: int, text: str = "I think so.") -> int:
        return decide(Evidence(0.8, text, turn_ms=turn_ms), SETTINGS, ENGLISH).wait_ms

    assert wait_ms(6000) < wait_ms(3000) < wait_ms(2000)
    assert wait_ms(800) == wait_ms(2000), "a command may be short"
    assert wait_ms(6000, "I think the") == wait_ms(2000, "I think the")


def test_the_reasons_name_what_was_known() -> None:
    long = decide(Evidence(text="I want to see the sea.", turn_ms=5000), SETTINGS, ENGLISH)
    assert long.reasons == ("length", "statement")
    assert decide(Evidence(), SETTINGS, ENGLISH).reasons == ()
    assert decide(Evidence(text="Yes."), SETTINGS, ENGLISH).reasons == ("one-word answer",)
    assert decide(Evidence(0.5, "I, um"), SETTINGS, ENGLISH).reasons == ("sound", "filler")


@given(
    st.none() | st.floats(0, 1),
    st.none() | st.text(max_size=80),
    st.none() | st.floats(-20, 20),
    st.text(max_size=40),
    st.lists(st.integers(0, 5000), max_size=20),
)
def test_every_wait_is_within_its_bounds(
    audio: float | None, text: str | None, words: float | None, asked: str, pauses_ms: list[int]
) -> None:
    decision = decide(Evidence(audio, text, words, asked, tuple(pauses_ms)), SETTINGS, ENGLISH)
    assert 0 <= decision.probability <= 1
    assert SETTINGS.clear_wait_ms <= decision.wait_ms <= SETTINGS.unsure_wait_ms
    if decision.probability > 0.5:
        assert decision.wait_ms <= SETTINGS.likely_wait_ms


@given(st.floats(0, 1), st.floats(0, 1), st.text(max_size=40))
def test_a_surer_sound_never_waits_longer(one: float, other: float, text: str) -> None:
    low, high = sorted((one, other))
    waits = [decide(Evidence(audio, text), SETTINGS, ENGLISH).wait_ms for audio in (low, high)]
    assert waits[0] >= waits[1]


@pytest.mark.parametrize(
    ("language", "unfinished", "answer"),
    [
        ("de", "Und dann sind wir mit dem.", "Ja."),
        ("fr", "Je voudrais parler avec le.", "Oui."),
        ("es", "Quiero hablar con mi.", "Sí."),
        ("it", "Vorrei parlare con il.", "Sì."),
        ("pt", "Quero falar com a.", "Sim."),
        ("nl", "Ik wil praten met mijn.", "Ja."),
        ("es", "Quiero hablar con mi.", "Si."),
        ("it", "Vorrei parlare con il.", "Si."),
    ],
)
def test_each_language_has_its_own_endings(language: str, unfinished: str, answer: str) -> None:
    lexicon = lexicon_of(LEXICONS, language)
    assert ending(unfinished, lexicon) == "leaning word"
    assert ending(answer, lexicon) == "one-word answer"
    assert ending(unfinished, lexicon_of(LEXICONS, "fi")) == "statement"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "I do not know whether."),
        ("en", "I think that's."),
        ("de", "Ich spreche mit meinem."),
        ("de", "Ich gehe jetzt ins."),
        ("fr", "Il est resté jusqu'."),
        ("es", "Quiero comprar cualquier."),
        ("it", "Andiamo insieme agli."),
        ("it", "Vorrei parlare dell'."),
        ("nl", "Ik praat met uw."),
        ("pt", "Eu vou aos."),
    ],
)
def test_other_forms_of_these_words_lean_too(language: str, text: str) -> None:
    assert ending(text, lexicon_of(LEXICONS, language)) == "leaning word"


@pytest.mark.parametrize(
    ("language", "text", "clue"),
    [
        ("en", "Where are you from?", "question"),
        ("en", "What are you made of?", "question"),
        ("en", "How have you been?", "question"),
        ("de", "Mach bitte das Licht aus.", "statement"),
        ("de", "Schalte die Heizung ein.", "statement"),
        ("de", "Was ist denn das?", "question"),
        ("fr", "Vous voulez avec ou sans ?", "question"),
        ("es", "Este coche es nuestro.", "statement"),
        ("it", "Questo mi piace molto.", "statement"),
        ("it", "Questa è casa mia.", "statement"),
        ("nl", "Doe het licht uit.", "statement"),
        ("nl", "Hoe gaat het?", "question"),
        ("nl", "Wat is dat?", "question"),
        ("pt", "Eu gosto muito.", "statement"),
    ],
)
def test_words_that_may_end_a_sentence_lean_if_it_is_open(
    language: str, text: str, clue: str
) -> None:
    lexicon = lexicon_of(LEXICONS, language)
    assert ending(text, lexicon, complete=0.5) == clue
    assert ending(text, lexicon, complete=-0.6) == "leaning word"
    assert ending(text[:-1], lexicon, complete=0.5) == "leaning word"


@pytest.mark.parametrize(
    ("language", "text", "clue"),
    [
        ("zh", "我昨天和我的朋友一起去", "unfinished"),
        ("zh", "今天的天气怎么样？", "question"),
        ("zh", "我想听一首歌。", "statement"),
        ("zh", "鸡蛋，牛奶，", "comma"),
        ("zh", "鸡蛋、牛奶、", "comma"),
        ("zh", "好的。", "one word"),
        ("ja", "昨日友達と一緒に", "unfinished"),
        ("ja", "今日はいい天気ですね。", "statement"),
        ("ja", "「電気をつけてください！」", "statement"),
        ("ja", "はい。", "one word"),
        ("th", "เมื่อวานฉันไปที่", "unfinished"),
        ("hi", "आज मौसम कैसा है।", "statement"),
        ("hi", "नमस्ते", "one word"),
        ("ar", "ما هو الطقس اليوم؟", "question"),
        ("ar", "أريد بيضا، حليبا،", "comma"),
        ("el", "Τι ώρα είναι τώρα;", "question"),
        ("el", "Θέλω αυγά και γάλα·", "comma"),
        ("fi", "Haluan maitoa ja leipää;", "comma"),
        ("fi", "Kyllä.", "one word"),
    ],
)
def test_words_and_marks_of_other_scripts(language: str, text: str, clue: str) -> None:
    assert ending(text, lexicon_of(LEXICONS, language)) == clue


@pytest.mark.parametrize(
    ("language", "asked"),
    [("zh", "你想喝什么？"), ("el", "Τι θες;"), ("ar", "ماذا تريد؟")],
)
def test_a_question_in_any_script_is_answered_shortly(language: str, asked: str) -> None:
    lexicon = lexicon_of(LEXICONS, language)
    assert ending("Kava", lexicon, asked) == "short answer"


@pytest.mark.parametrize(
    ("language", "unfinished"),
    [("zh", "我昨天和我的朋友一起去"), ("ja", "昨日友達と一緒に"), ("th", "เมื่อวานฉันไปที่")],
)
def test_an_unfinished_clause_without_spaces_may_wait_long(language: str, unfinished: str) -> None:
    evidence = Evidence(audio=0.02, text=unfinished, words=-3.0)
    decision = decide(evidence, SETTINGS, lexicon_of(LEXICONS, language))
    assert decision.wait_ms > SETTINGS.likely_wait_ms
