"""Which language a text is in, by its script and its small words. Pure.

A recogniser that hears many languages gives text and does not say which of them it is; nor does a
text that was typed. The voice has to know, and so has what puts numbers into words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese put no spaces between words: ranges of their
letters, for a regular expression."""

SMALL_WORDS: dict[str, str] = {
    "bg": "и да не на се за от си са с това ще но как какво ли аз ти той тя ние вие кой колко",
    "cs": "a je se na že v to s z do co jak ale tak jsem jsi jste by kde kdo proč kolik není ty",
    "da": "og er det jeg ikke at en til på hvad du den har med som der kan vil hvor hvorfor dig",
    "de": "der die das und ist ich nicht ein eine du mir mich dir wie was wo wer warum wann auf mit"
    " es zu für den dem von im sind hast kannst bitte auch noch sehr heute wir ihr sie er man dich",
    "en": "the and is are was you i it of to a in that what how who why when where can do does did"
    " my your me we they he she this please with for on not have has will would tell about be",
    "es": "el la los las y es que no un una yo tú cómo qué dónde quién por para con está son me te"
    " mi tu de en lo hay más pero muy favor puedes cuándo cuál eres hola del al",
    "et": "ja on ei see ma sa mis kas kui et ta me te kes kus miks aga oma olen oled",
    "fi": "ja on ei se minä sinä mitä mikä että hän kuka missä miksi kuinka olen olet mutta voi",
    "fr": "le la les et est un une je tu il elle nous vous que qui où comment pourquoi quand dans"
    " pas ne ce cette des du de à c'est j'ai s'il plaît avec sur pour mon ton quel quelle es",
    "hr": "i je u se na da ne što kako gdje tko zašto ali sam si smo ste su za od kada koliko mogu",
    "hu": "a az és hogy nem egy van mi ki hol miért hogyan mikor te én is de meg ez kérlek lehet",
    "it": "il la lo gli le e è che non un una io tu come dove chi perché quando per con sono sei mi"
    " ti di in del della questo cosa puoi ciao anche ma ho hai",
    "lt": "ir yra ne kad aš tu kas kaip kur kodėl bet su iš į ar jis ji mes jūs",
    "lv": "un ir ne ka es tu kas kā kur kāpēc bet ar no uz vai viņš viņa mēs jūs",
    "mt": "il u ta li hu hi ma fi minn kif x'inhu fejn għal jien int dan din mhux huwa hija",
    "nl": "de het een en is ik niet je jij u dat wat hoe waar wie waarom van met op voor te zijn"
    " kan kun naar er aan ook heb hebt mijn ben bent",
    "pl": "i jest nie się na w z że to co jak gdzie kto dlaczego ale czy ja ty jestem jesteś mi do"
    " ile dla proszę mnie mam",
    "pt": "o os as e é que não um uma eu você como onde quem por para com está são me te meu seu de"
    " em do da no na porque quando qual olá pode mais isso",
    "ro": "și este nu în la un o eu tu ce cum unde cine pentru cu că de ai sunt ești mă din care"
    " când vă",
    "ru": "и в не на что я ты как это он она мы вы с по кто где почему когда у но да ли мне тебя"
    " сколько такое",
    "sk": "a je sa na že v to s z do čo ako ale som si ste by kde kto prečo koľko nie mám ty",
    "sl": "in je se na da ne kaj kako kje kdo zakaj ali sem si smo ste so za od kdaj koliko lahko",
    "sv": "och är det jag inte att en ett till på vad du den har med som kan vill hur var varför"
    " vem dig",
    "uk": "і в не на що я ти як це він вона ми ви з по хто де чому коли але та чи мені тебе скільки"
    " є",
}
"""ISO 639-1 -> words that nearly every sentence has some of: all that Parakeet v3 hears, and of
what Qwen3-TTS speaks those whose script says less."""

_BY_WORD: dict[str, list[str]] = {}
for _language, _words in SMALL_WORDS.items():
    for _word in dict.fromkeys(_words.split()):
        _BY_WORD.setdefault(_word, []).append(_language)

_SCRIPTS = (
    ("ja", re.compile("[぀-ヿ]")),  # kana; before the ideographs that Japanese has, too
    ("ko", re.compile("[가-힣]")),
    ("zh", re.compile("[一-鿿]")),
    ("el", re.compile("[Ͱ-Ͽ]")),
)
"""Scripts that identify a language."""
_LETTERS = {
    "de": "ß",
    "es": "ñ¿¡",
    "pl": "łżźśćńąę",
    "pt": "ãõ",
    "cs": "řůě",
    "ro": "țșă",
    "hu": "őű",
    "uk": "іїєґ",
    "ru": "ыэё",
    "mt": "ħġċ",
    "lv": "āīņļķģ",
    "lt": "ėųįū",
    "et": "õ",
}
"""Letters that speak for a language; each is worth a small word."""
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
MOST_CHARS = 600
"""Later characters are ignored."""
LOOK_BACK = 8
"""How many texts to search: "OK." has no language, but an earlier text may have one."""


def language_of(text: str) -> str:
    """ISO 639-1; empty if the text does not show it, such as "OK." or "Berlin"."""
    text = text[:MOST_CHARS].lower()
    for language, script in _SCRIPTS:
        if script.search(text):
            return language
    words = _WORD.findall(text.replace("’", "'"))
    votes = Counter(language for word in words for language in _BY_WORD.get(word, ()))
    for language, letters in _LETTERS.items():
        votes[language] += any(letter in text for letter in letters)
    (best, most), (_, second) = (*votes.most_common(2), ("", 0), ("", 0))[:2]
    # Without a clear winner the language stays the one that was spoken before.
    return best if most > max(1, second) else ""


def language_of_talk(texts: Sequence[str]) -> str:
    """The language of the newest text that shows one, not far back; empty if no text does."""
    languages = map(language_of, reversed(texts[-LOOK_BACK:]))
    return next(filter(None, languages), "")
