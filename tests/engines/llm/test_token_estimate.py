"""Lengths in tokens, estimated without a tokenizer.

The counts are those of llama.cpp's vocabularies (``models/ggml-vocab-*.gguf``), the largest of
Llama 3, Gemma 4, Qwen 2 and Command R.
"""

from __future__ import annotations

import pytest

from pipeline.engines.llm.token_estimate import estimated_tokens

pytestmark = pytest.mark.quick

HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
BASE64 = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
RECORD = '[{"id": 12, "name": "lamp", "on": true, "xy": [0.134364, 427]}]'


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The lamp in the kitchen is on, and the door to the garden is open.", 17),
        ("Das Fenster im Wohnzimmer steht seit heute Morgen offen.", 13),
        ("def total(prices: list[float]) -> float:\n    return sum(prices) + 1.0\n", 25),
        ("31415926535897932384", 20),
        ("12 7 93 4, 1024", 15),
        (HEX, 59),
        (BASE64, 37),
        ("acgtgcatacgtgcatacgtgcat", 12),
        (RECORD, 38),
        ("今天天气很好，我们一起去公园散步吧。", 14),
        ("今日はとても良い天気ですね。", 9),
        ("오늘은 날씨가 아주 좋습니다.", 11),
        ("Сегодня очень хорошая погода.", 9),
        ("الطقس جميل جدا اليوم", 8),
        ("วันนี้อากาศดีมาก", 16),
        ("🤖🎉🚀🌍", 12),
    ],
)
def test_the_estimate_is_safe_and_not_far_above(text: str, tokens: int) -> None:
    assert 0.95 * tokens <= estimated_tokens(text) <= 1.6 * tokens + 2


def test_nothing_has_no_tokens() -> None:
    assert estimated_tokens("") == 0.0
    assert estimated_tokens("\ud83d") > 0, "half a pair"
