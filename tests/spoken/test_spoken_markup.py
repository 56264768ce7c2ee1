"""What is for eyes is not read aloud, in any language, whole or while it is being written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.spoken import speakable
from pipeline.spoken.markup import spans

pytestmark = pytest.mark.quick

CASES = [
    # Markdown
    ("**Hello** _there_!", "Hello there!"),
    ("***wow*** and ~~not~~ __so__", "wow and not so"),
    ("I *really* mean it", "I really mean it"),
    ("# Title\n- one\n- two", "Title. one. two"),
    ("## Two words ##\nText.", "Two words. Text."),
    ("* one\n* two\n+ three\n• four", "one. two. three. four"),
    ("1. Flour\n2) Sugar", "one, Flour. two, Sugar"),
    ("- [ ] open\n- [x] done", "open. done"),
    ("> quoted\n> more", "quoted. more"),
    ("> - item", "item"),
    ("above\n\n---\n\nbelow", "above. below"),
    ("Title\n=====\ntext", "Title. text"),
    ("* * *\nnext", "next"),
    ("See [the docs](http://x.y/z).", "See the docs."),
    ("See [the **big** docs](http://x.y/z_(a) \"T\") now", "See the big docs now"),
    ("See [the docs][1].\n\n[1]: http://x.y", "See the docs."),
    ("A ![small cat](cat.png) here", "A small cat here"),
    ("![](cat.png)Look", "Look"),
    ("Cited [1][2] here [^3]", "Cited here"),
    ("Run `ls` now", "Run ls now"),
    ("Call `get_weather(city)` first", "Call get weather city first"),
    ("Use `myFunction`, please", "Use my Function, please"),
    ("Type `{};` now", "Type now"),
    ("```python\nprint(1)\n```", ""),
    ("Look:\n```\nx\n```\nDone.", "Look: Done."),
    ("Look: ```never closed\nx = 1", "Look:"),
    ("| Name | Age |\n|------|:---:|\n| Ann | 5 |", "Name, Age. Ann, five"),
    ("a | b", "a, b"),
    (r"5 \* 3 and \# and \_x\_", "five times three and and x"),
    ("a_b and 2 * 3", "a b and two times three"),
    ("snake_case_name", "snake case name"),
    # emoji and emoticons
    ("Nice 😀👍🏽 day", "Nice day"),
    ("😀", ""),
    ("👨‍👩‍👧 and 🇫🇷 and ❤️ and ✅ ok", "and and and ok"),
    ("1️⃣ first", "one first"),
    ("Hi :) there ;-) friend xD", "Hi there friend"),
    ("I <3 you :'( ^_^", "I you"),
    (r"¯\_(ツ)_/¯ well", "well"),
    ("It is 20 °C → warm", "It is twenty degrees Celsius, warm"),
    # stage directions
    ("*smiles* Hello there.", "Hello there."),
    ("*tilts head and looks around* Who is it?", "Who is it?"),
    ("Hello! *waves happily* Nice day.", "Hello! Nice day."),
    ("(laughs) That is funny.", "That is funny."),
    ("[sighs] Fine.", "Fine."),
    ("_beeps twice_ Ready.", "Ready."),
    ("It *looks* fine.", "It looks fine."),
    ("*This* is it.", "This is it."),
    ("It is (about five) old", "It is, about five, old"),
    # tags, entities, thoughts, calls
    ("<b>Bold</b> and <i>more</i>", "Bold and more"),
    ("one<br>two<br/>three", "one. two. three"),
    ("<tr><td>one</td><td>two</td></tr>", "one. two."),
    ('<a href="http://x.y">here</a>', "here"),
    ("salt &amp; pepper &lt; &quot;it&quot;", "salt and pepper it"),
    ("&#72;i", "Hi"),
    ("<!-- hidden -->shown", "shown"),
    ("<think>I must say yes.</think>Yes.", "Yes."),
    ("<think>never closed", ""),
    ("thought over</think>Yes.", "thought overYes."),
    ("Yes.<|im_end|>", "Yes."),
    ('<tool_call>{"name": "dance"}</tool_call>Look!', "Look!"),
    ('{"name": "dance", "arguments": {"a": {"b": "}"}}} Look!', "Look!"),
    ("I like {curly} things", "I like curly things"),
    ('{"a": {"b": {"c": {"d": {"e": [{"f": 1}]}}}}} Look!', "Look!"),
    ('{\n  "a": 1,\n  "b": [2]\n}\nLook!', "Look!"),
    ("{'a': 1} Look!", "Look!"),
    ('[{"a": 1}, {"b": [2, "]"]}] Look!', "Look!"),
    ('[\n  "a",\n  "b"\n]\nLook!', "Look!"),
    ('Say `{"a": 1}` now', "Say now"),
    ('See ["the docs"](http://x.y) now', "See the docs now"),
    # addresses
    ("See https://www.example.com/a/b?c=d.", "See example dot com."),
    ("See (http://example.org)", "See, example dot org"),
    ("<https://example.com> it is", "example dot com it is"),
    # LaTeX
    (r"\(x^2\) and \[y\]", "x squared and y"),
    (r"$$\frac{1}{2}$$", "one half"),
    (r"\sqrt{16} = 4", "the square root of sixteen equals four"),
    # what only looks like it
    ("a < b and c > d", "a is less than b and c is greater than d"),
    ("Don't stop", "Don't stop"),
    ("well-known", "well-known"),
    ("...", ""),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("written", "spoken"), CASES)
def test_what_is_for_eyes_is_not_spoken(written: str, spoken: str) -> None:
    assert speakable(written) == spoken


@pytest.mark.parametrize(("written", "spoken"), [
    ("**Kl. 15.30** är det 20 °C 😀", "Kl. 15.30 är det 20 °C"),
    ("- ett\n- två", "ett. två"),
    ("Se [här](http://x.y)!", "Se här!"),
    ("Det kostar 5 € & mer", "Det kostar 5 € & mer"),
    ("3 * 4 = 12", "3 × 4 = 12"),
    ("你好 **世界** 😀", "你好 世界"),
])  # fmt: skip
def test_other_languages_lose_their_markup_and_keep_their_numbers(
    written: str, spoken: str
) -> None:
    assert speakable(written, "sv") == spoken


@pytest.mark.parametrize("written", [
    "Look: ```x", "see [the docs", "see [the docs](http://x", "run `ls -la", "<think>hm",
    "<b", '<a href="x', '{"name": "x', "| a | b", "*smiles at", "(laughs", "<!-- x",
    "{\n", '[{"name": "x', '["x", ', "Let $f(x) ", "then $$x ",
])  # fmt: skip
def test_what_has_begun_is_known_to_be_open(written: str) -> None:
    last = spans(written)[-1]
    assert not last.whole
    assert last.end == len(written)


@pytest.mark.parametrize(
    "written", ["a [b " + "x" * 400, "a `b " + "x" * 400, "5 < 6", "it's *b* c"]
)
def test_what_is_never_closed_does_not_stay_open(written: str) -> None:
    assert all(span.whole for span in spans(written))


@given(st.text(max_size=200))
def test_any_text_can_be_said(text: str) -> None:
    for language in ("en", "nl", ""):
        spoken = speakable(text, language)
        assert not re.search(r"[*_`~|\\{}\[\]<>#^]", spoken)
        assert "\n" not in spoken
        assert spoken == spoken.strip()


WORD = st.from_regex(r"[a-z]{2,10}", fullmatch=True)


@given(st.lists(WORD, max_size=20), st.sampled_from([" ", ", ", "; ", " - "]))
def test_plain_words_are_said_as_they_are(words: list[str], glue: str) -> None:
    text = glue.join(words)
    assert re.findall(r"\w+", speakable(text)) == re.findall(r"\w+", _expanded(text))
    assert speakable(speakable(text)) == speakable(text)


def _expanded(text: str) -> str:
    """Some words of letters alone are abbreviations, too."""
    return re.sub(r"\bvs\b", "versus", text)


@given(st.integers(0, 10**40), st.sampled_from(["", "$", "-"]), st.sampled_from(["", "%", " km"]))
def test_numbers_of_any_size_become_words(number: int, before: str, behind: str) -> None:
    spoken = speakable(f"It is {before}{number}{behind} now")
    assert not re.search(r"[^a-zI ,-]", spoken)
