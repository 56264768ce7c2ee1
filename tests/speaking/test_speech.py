"""How an answer is cut into spoken pieces: early at first, at good borders, word for word."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.speaking.chunker import Piece, SpeechChunker
from pipeline.speaking.tuning import EARLY_LETTERS
from pipeline.spoken import speakable
from pipeline.spoken.borders import LEANING, Border

pytestmark = pytest.mark.quick


def deltas(text: str) -> list[str]:
    """Deltas as a model writes them: white space comes with the next word."""
    return re.findall(r"\s*\S+|\s+$", text)


def pieces(*texts: str, longest_letters: int = 0, language: str = "en") -> list[Piece]:
    """Pieces taken as early as possible."""
    chunker = SpeechChunker(language)
    taken = []
    for text in texts:
        chunker.feed(text)
        while piece := chunker.take(longest_letters):
            taken.append(piece)
    chunker.close()
    while piece := chunker.take(longest_letters):
        taken.append(piece)
    assert chunker.is_done
    return taken


def first(text: str) -> tuple[str, int]:
    """The first piece, and the number of the model's words before it."""
    chunker = SpeechChunker()
    for count, delta in enumerate(deltas(text), 1):
        chunker.feed(delta)
        if piece := chunker.take():
            return piece.text, count
    chunker.close()
    piece = chunker.take()
    assert piece
    return piece.text, len(deltas(text))


@pytest.mark.parametrize(
    ("answer", "piece", "words"),
    [
        ("Well done, that is a good question.", "Well done,", 3),
        ("Sure! I will turn my head.", "Sure!", 2),
        ("Yes, I can do that. Look!", "Yes, I can do that.", 6),
        ("The capital of France is Paris, which lies there.", "The capital of France", 6),
        ("I am a small robot and I live on your desk.", "I am a small robot", 7),
        ("There are seven days in a week and that is good.", "There are seven days", 6),
        ("The weather today is nice and warm.", "The weather today", 5),
        ("I can help you with that.", "I can help you", 6),
        ("Dr. Smith from New York City is here today.", "Dr. Smith from New York City", 8),
        ("It opens at 3:30 pm on Monday and closes late.", "It opens at 3:30 pm", 7),
        ("It is 5 km and more to the next town.", "It is 5 km", 6),
        ("It happened on Nov 21, 2026 when I was young.", "It happened on Nov 21, 2026", 8),
        ("*smiles* Hello there! How are you?", "*smiles* Hello there!", 4),
        ("**Yes!** That is right.", "**Yes!**", 2),
        ("See [the big docs](http://x.y/z) and then ask.", "See [the big docs](http://x.y/z)", 6),
        ("See e.g. this one. And that.", "See e.g. this one.", 5),
        ("J. S. Bach wrote it. It is old.", "J. S. Bach wrote it.", 6),
        ("It weighs 3.5 kg, or so.", "It weighs 3.5 kg,", 5),
        ("My latest release - a song - is out.", "My latest release -", 6),
        ("Hmm... let me think about that.", "Hmm... let me think", 6),
        ("Machine learning is a subset of artificial intelligence that learns.",
         "Machine learning is a subset of artificial intelligence", 10),
    ],
)  # fmt: skip
def test_the_first_piece_is_early_and_sounds_well(answer: str, piece: str, words: int) -> None:
    assert first(answer) == (piece, words)


def test_whole_sentences_are_taken_together_if_there_is_time() -> None:
    text = "It is, I think, about ten metres. Is that far? Bye for now and see you."
    assert [p.text for p in pieces(text + " ", longest_letters=200)] == [text]
    assert [p.text for p in pieces(text + " ", longest_letters=60)] == [
        "It is, I think, about ten metres. Is that far?",
        " Bye for now and see you.",
    ]


def test_a_long_sentence_is_cut_at_a_pause() -> None:
    text = "The old clock on the wall, which nobody had wound for years, began to strike twelve."
    assert [p.text for p in pieces(text, longest_letters=70)] == [
        "The old clock on the wall, which nobody had wound for years,",
        " began to strike twelve.",
    ]


def test_a_piece_waits_for_its_sentence_if_there_is_time() -> None:
    chunker = SpeechChunker()
    chunker.feed("The old clock on the wall, which nobody had wound ")
    assert chunker.take(100) is None
    taken = chunker.take(100, hurry=True)
    assert taken is not None
    assert (taken.text, taken.border) == ("The old clock on the wall,", Border.CLAUSE)
    chunker.feed("for years and years. ")
    taken = chunker.take(100)
    assert taken is not None
    assert taken.text == " which nobody had wound for years and years."


def test_text_after_a_call_is_a_separate_piece() -> None:
    chunker = SpeechChunker()
    chunker.feed("One moment")
    chunker.close()
    assert chunker.take() == Piece("One moment", "One moment.", Border.SENTENCE)
    chunker.feed("Done!")
    chunker.close()
    assert chunker.take() == Piece(" Done!", "Done!", Border.SENTENCE)
    assert chunker.is_done


def test_unspoken_text_is_a_separate_piece() -> None:
    text = "Here it is:\n```python\nprint(1)\n```\nIt prints one."
    assert [(p.text, p.spoken) for p in pieces(*deltas(text))] == [
        ("Here it is:", "Here it is:"),
        ("\n```python\nprint(1)\n```", ""),
        ("\nIt prints one.", "It prints one."),
    ]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_json_is_not_spoken_however_it_is_split(indent: int | None, size: int) -> None:
    value = {"name": "dance", "arguments": {"steps": [1, {"kind": "a } b", "deep": [[{}]]}]}}
    for whole in (value, [value, value], {"a": {"b": {"c": {"d": {"e": value}}}}}):
        text = f"{json.dumps(whole, indent=indent)}\nThat is it."
        cuts = [text[at : at + size] for at in range(0, len(text), size)]
        assert [piece.spoken for piece in pieces(*cuts) if piece.spoken] == ["That is it."]


@pytest.mark.parametrize("text", ["We open from 9 –", "It is 5 -", "Nov 21, 2026 -", "3x -"])
@pytest.mark.parametrize("longest", [0, EARLY_LETTERS, 200])
def test_an_answer_that_ends_in_a_dash_is_spoken_to_its_end(text: str, longest: int) -> None:
    taken = pieces(*text, longest_letters=longest)
    assert "".join(p.text for p in taken) == text
    assert [word for p in taken for word in words(p.spoken)] == words(speakable(text))


def test_lines_are_sentences() -> None:
    assert [p.spoken for p in pieces("# Title\n- one\n- two")] == ["Title.", "one.", "two."]


def test_languages_without_spaces_have_borders() -> None:
    spoken = [p.spoken for p in pieces("我是一个机器人。你好，世界！", language="zh")]
    assert spoken == ["我是一个机器人。", "你好，", "世界！"]
    assert len(pieces("字" * 1000, language="zh")) > 5


def test_numbers_in_other_languages_are_unchanged() -> None:
    (piece,) = pieces("**O 15.30** jest 20 °C.", language="pl", longest_letters=100)
    assert piece.spoken == "O 15.30 jest 20 °C."


TEXT = st.text(alphabet="abI,. !?\n", max_size=120) | st.lists(
    st.sampled_from(
        ["Dr.", "the", "a", "**bold**", "*smiles*", "3", "5", "km,", "1,000", "and", "is", "York",
         "New", "[a link](http://a.b/c)", "`some code`", "```\nx = 1\n```", "<b>x</b>", "\n- item",
         "\n1. item", "\n", "#", "Yes!", "so.", "(laughs)", "word", "😀", ":-)", "| a | b |\n",
         "<think>no</think>", "http://x.y/z", "21,", "2026", "pm", "at", "3:30", "e.g.", "J.",
         "$x_1 < x_2$", "$", "$5", "$10,", "$n$th", "$$a = b$$", r"\(a + b\)", r"\frac{1}{2}", "x$",
         "₹1,00,000", "Art. 3", "No. 4", "Sat. 9 am", "Mon.–Fri."]
    ),
    max_size=25,
).map(" ".join)  # fmt: skip


@given(
    st.tuples(TEXT, st.sampled_from(["", " -", " 9 –", " 3x -"])).map("".join),
    st.lists(st.integers(0, 400), max_size=12),
    st.sampled_from([0, 20, 40, 80, 200]),
)
def test_pieces_are_the_exact_text_however_it_is_split(
    text: str, cuts: list[int], longest: int
) -> None:
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    split = [text[a:b] for a, b in itertools.pairwise(at)]
    assert "".join(p.text for p in pieces(*split, longest_letters=longest)) == text.strip()


@given(TEXT, st.lists(st.integers(0, 400), max_size=12))
def test_early_pieces_do_not_depend_on_how_the_text_is_split(text: str, cuts: list[int]) -> None:
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    split = [text[a:b] for a, b in itertools.pairwise(at)]
    assert pieces(*split, longest_letters=EARLY_LETTERS) == pieces(
        text, longest_letters=EARLY_LETTERS
    )


def words(spoken: str) -> list[str]:
    return re.findall(r"[\w'-]+", spoken.lower())


@given(TEXT)
@example("Dr. \n Dr.")
@example("Dr. *smiles* 😀 \n Dr.")
@example("Dr. `some code` is 2026")
@example("$ <think>no</think> | a | b |\n")
@example("Dr. $10, (laughs) x$")
@example("Dr. 3x - [a link](http://a.b/c)")
def test_borders_lose_no_word_and_speak_no_markup(text: str) -> None:
    """Fed letter by letter and cut as early as possible, the text speaks the same words as when
    whole."""
    spoken = [p.spoken for p in pieces(*text)]
    assert [word for piece in spoken for word in words(piece)] == words(speakable(text))
    assert not any(re.search(r"[*_`~|\\{}\[\]<>#^]", piece) for piece in spoken)


@given(
    st.lists(
        st.sampled_from(["robot", "the", "of", "is", "Paris", "to", "lives", "a"]), max_size=30
    )
)
def test_no_early_piece_ends_on_a_word_that_leans(sentence: list[str]) -> None:
    for piece in pieces(*deltas(" ".join(sentence)))[:-1]:
        assert len(piece.text.split()) >= 14 or piece.text.split()[-1] not in LEANING


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_formula_stays_whole_however_it_is_split(cut: int) -> None:
    text = r"If $x_1 < x_2$ then \(a = b\)."
    spoken = " ".join(p.spoken for p in pieces(text[:cut], *text[cut:]))
    assert words(spoken) == words("If x one is less than x two then a equals b.")


@pytest.mark.parametrize(
    ("begun", "spoken"),
    [
        ("It costs $5, not ", "It costs five dollars,"),
        ("It costs $5. That ", "It costs five dollars."),
        ("Take $20 bills, ", "Take twenty dollars bills,"),
        ("Set $HOME to that, ", "Set HOME to that,"),
    ],
)
def test_an_amount_of_money_waits_for_no_second_dollar_sign(begun: str, spoken: str) -> None:
    chunker = SpeechChunker()
    chunker.feed(begun)
    piece = chunker.take()
    assert piece
    assert piece.spoken == spoken


@pytest.mark.parametrize(
    ("begun", "spoken"),
    [
        ("The value is $", "The value is."),
        ("The value is $5", "The value is five dollars."),
        ("So $x_1 < x_2", "So x one is less than x two."),
        (r"So \(x^2 + \frac{1}{2", "So x squared plus one over two."),
    ],
)
def test_a_formula_that_is_cut_off_is_spoken_up_to_there(begun: str, spoken: str) -> None:
    (piece,) = pieces(begun)
    assert piece.spoken == spoken


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("de", "Hier gibt es soweit ich weiß keine Bären.", "Hier gibt es soweit ich weiß"),
        (
            "de",
            "Morgen fahren alle Kinder mit dem Zug ans Meer.",
            "Morgen fahren alle Kinder mit dem Zug",
        ),
        ("fr", "Demain tous les enfants vont avec le train rouge.", "Demain tous les enfants vont"),
        ("es", "Mañana los niños van en el tren rojo.", "Mañana los niños van en el tren"),
    ],
)
def test_no_early_piece_ends_on_a_small_word(language: str, text: str, first: str) -> None:
    assert pieces(*deltas(text), language=language)[0].text == first


ABBREVIATED = {
    "de": "Nach Art. 3 Abs. 2 gilt z. B. Nr. 5 für Dr. Müller bzw. Fr. Abt, ca. 3 Std. am 1. Jan., "
    "auf 10 Grad nördl. Breite, bei natürl. Zahlen, ähnl. Fällen, jährl. Kosten und ital. Wein.",
    "en": "See Art. 3, e.g. No. 5 by Dr. Smith vs. Mr. Jones on Sat. 9 or Mon. 3 Dec. 2026.",
    "es": "Según el art. 3 y la pág. 5, p. ej. el Sr. Gil o la Dra. Paz, aprox. el 3 ene. 2026.",
    "fr": "Voir l'art. 3 al. 2, p. ex. M. Dupont, env. 5 km, chap. 4, le 3 janv. 2026.",
    "it": "Vedi art. 3, pag. 5, ad es. il dott. Rossi o la sig.ra Bo, ca. il 3 gen. 2026.",
    "nl": "Zie art. 3, blz. 5, bijv. dhr. Jansen of mevr. Vos, ca. op 3 mrt. 2026.",
    "pt": "Ver o art. 3, pág. 5, p. ex. o Sr. Silva ou a Dra. Paz, aprox. a 3 jan. 2026.",
}


@pytest.mark.parametrize("longest", [0, EARLY_LETTERS, 60, 200])
@pytest.mark.parametrize("language", sorted(ABBREVIATED))
def test_no_piece_ends_at_an_abbreviation(language: str, longest: int) -> None:
    text = ABBREVIATED[language]
    taken = pieces(*text, longest_letters=longest, language=language)
    assert not [p.text for p in taken[:-1] if p.text.rstrip().endswith(".")]
    assert [word for p in taken for word in words(p.spoken)] == words(speakable(text, language))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Nimm dafür am besten ½ Tasse Milch, aber erst am Mi., 3. Mai."),
        ("de", "Ruf ihn bitte an, Tel.: 0 30 / 12 34 56, und nenn den Code: 4829."),
        ("es", "Esto pasó en nuestro siglo XXI."),
        ("it", "Questo è già il XXI secolo."),
        ("nl", "Ja, daar woont mevr. de Vries nu."),
        ("de", "Das kostet uns 3 € pro m² im Jahr."),
        ("en", "The answer to that is 10 sq ft I guess."),
        ("en", "So Sunday, 3/4 and then we go."),
        ("en", "So Fri., Dec. 4, at 6 p.m. and then we go."),
        ("en", "So 3x - y and then we go."),
        ("de", "Also 3x - y = 5 und dann gehen wir."),
        ("de", "Karl V. und Franz I. von Ungarn kamen."),
        ("es", "Felipe VI y Juan Carlos I lo sabían."),
        ("nl", "Wij zijn hier open ma t/m vr en op za."),
        ("en", "v. 2.0.1 is the newest."),
    ],
)
def test_no_piece_ends_within_a_name_or_a_count(language: str, text: str) -> None:
    taken = pieces(*text, longest_letters=0, language=language)
    assert [word for p in taken for word in words(p.spoken)] == words(speakable(text, language))


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("en", "I said no. Then he left.", "I said no."),
        ("en", "The cat sat. It slept well.", "The cat sat."),
        ("de", "So. Jetzt geht es los.", "So."),
        ("de", "Das ist was ich mag. Danach gibt es Eis.", "Das ist was ich mag."),
        ("de", "Das ist Karl. Danach gibt es Eis.", "Das ist Karl."),
        ("de", "So ein Kerl. Danach gibt es Eis.", "So ein Kerl."),
        ("de", "Es ist Null. Danach gibt es Eis.", "Es ist Null."),
        ("de", "Ein Beispiel. Danach gibt es Eis.", "Ein Beispiel."),
        ("de", "Da ist Franz. Danach gibt es Eis.", "Da ist Franz."),
        ("de", "Mir ist wohl. Danach gibt es Eis.", "Mir ist wohl."),
        ("de", "Das ist so eine Art. Wirklich.", "Das ist so eine Art."),
        ("de", "Da kommt Karl. Danach essen wir Kohl.", "Da kommt Karl."),
        ("de", "Das ist ein Kerl. Danach kommt er.", "Das ist ein Kerl."),
        ("es", "Estamos en el mar. Hace sol.", "Estamos en el mar."),
        ("fr", "Ils sont sept. Nous partons.", "Ils sont sept."),
    ],
)
def test_a_word_that_is_also_an_abbreviation_ends_a_sentence(
    language: str, text: str, first: str
) -> None:
    assert pieces(*text, longest_letters=60, language=language)[0].spoken.startswith(first)
    assert pieces(*text, longest_letters=25, language=language)[0].spoken == first
