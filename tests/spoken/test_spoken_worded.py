"""Numbers, dates, units and signs in German, French, Spanish and Italian."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.speaking.chunker import SpeechChunker
from pipeline.spoken import speakable
from pipeline.spoken.wording import WORDINGS

CASES = {
    "de": [
        ("Um 15:30 Uhr sind es 20 °C.", "Um fünfzehn Uhr dreißig sind es zwanzig Grad Celsius."),
        ("um 7.45 Uhr oder um 8 Uhr", "um sieben Uhr fünfundvierzig oder um acht Uhr"),
        ("Es ist 1 Uhr 5.", "Es ist ein Uhr fünf."),
        ("Am 3. Oktober 2026", "Am dritten Oktober zweitausendsechsundzwanzig"),
        ("Der 3. Oktober 1990", "Der dritte Oktober neunzehnhundertneunzig"),
        ("Berlin, 3. Oktober", "Berlin, dritter Oktober"),
        ("am 03.10.2026", "am dritten Oktober zweitausendsechsundzwanzig"),
        ("2026-10-03", "dritter Oktober zweitausendsechsundzwanzig"),
        ("beim 2. Versuch", "beim zweiten Versuch"),
        ("die 21. Seite", "die einundzwanzigste Seite"),
        ("Das kostet 5,50 € & mehr.", "Das kostet fünf Euro fünfzig und mehr."),
        ("1 € oder 1,00 €", "ein Euro oder ein Euro"),
        ("1 km, 21 km/h und 1,5 l", "ein Kilometer, einundzwanzig Kilometer pro Stunde und eins"
         " Komma fünf Liter"),
        ("3,14 oder 3.14", "drei Komma eins vier oder drei Komma eins vier"),
        ("10.000 Schritte", "zehntausend Schritte"),
        ("z. B. Hunde, ca. 80 %. Oder?", "zum Beispiel Hunde, circa achtzig Prozent. Oder?"),
        ("Hunde usw. Dann", "Hunde und so weiter. Dann"),
        ("2,5 Mio. Euro", "zwei Komma fünf Millionen Euro"),
        ("0171 1234567", "null eins sieben eins, eins zwei drei vier fünf sechs sieben"),
        ("-5 °C", "minus fünf Grad Celsius"),
        ("3-5 km", "drei bis fünf Kilometer"),
        ("10 - 3 = 7", "zehn minus drei gleich sieben"),
        ("3 * 4 = 12", "drei mal vier gleich zwölf"),
        ("Dr. Müller wohnt in Nr. 7.", "Doktor Müller wohnt in Nummer sieben."),
        ("Es waren 12. Dann 13.", "Es waren zwölf. Dann dreizehn."),
        ("Agent 007", "Agent null null sieben"),
        ("a.b@c.de", "a Punkt b ät c Punkt de"),
    ],
    "fr": [
        ("Il est 15h30.", "Il est quinze heures trente."),
        ("À 1 h ou 21 h", "À une heure ou vingt et une heures"),
        ("Le 1er mai 2026", "Le premier mai deux mille vingt-six"),
        ("le 03/10/2026", "le trois octobre deux mille vingt-six"),
        ("la 2e fois, la 1re", "la deuxième fois, la première"),
        ("Ça coûte 5,50 €.", "Ça coûte cinq euros cinquante."),
        ("20 °C à 80 %", "vingt degrés Celsius à quatre-vingts pour cent"),
        ("1 234 567 personnes", "un million deux cent trente-quatre mille cinq cent soixante-sept"
         " personnes"),
        ("M. Dupont a 3,14 kg", "Monsieur Dupont a trois virgule quatorze kilogrammes"),
        ("01 23 45 67 89", "zéro un, deux trois, quatre cinq, six sept, huit neuf"),
        ("5 + 3 = 8", "cinq plus trois égale huit"),
    ],
    "es": [
        ("A las 15:30 hace 20 °C.", "A las quince y treinta hace veinte grados Celsius."),
        ("a la 1:00", "a la una"),
        ("El 3 de octubre de 2026", "El tres de octubre de dos mil veintiséis"),
        ("el 3/10/2026", "el tres de octubre de dos mil veintiséis"),
        ("Cuesta 5,50 €.", "Cuesta cinco euros con cincuenta."),
        ("21 km, 200 horas y 1 perro", "veintiún kilómetros, doscientas horas y un perro"),
        ("la 1ª vez, el 1.er piso", "la primera vez, el primer piso"),
        ("El Sr. García, p. ej. Juan", "El señor García, por ejemplo Juan"),
        ("21 días", "veintiún días"),
    ],
    "it": [
        ("Alle 15:30 ci sono 20 °C.", "Alle quindici e trenta ci sono venti gradi Celsius."),
        ("Il 1 maggio 2026", "Il primo maggio duemilaventisei"),
        ("il 03/10/2026", "il tre ottobre duemilaventisei"),
        ("Costa 5,50 €.", "Costa cinque euro e cinquanta."),
        ("1 km, 21 km e 1 h", "un chilometro, ventuno chilometri e un'ora"),
        ("la 2ª volta, il 3º piano", "la seconda volta, il terzo piano"),
        ("Il Sig. Rossi, ad es. 3,14", "Il signor Rossi, ad esempio tre virgola quattordici"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "written", "said"),
    [(language, *case) for language, cases in CASES.items() for case in cases],
)
def test_it_is_said(language: str, written: str, said: str) -> None:
    assert speakable(written, language) == said


def test_each_language_has_the_same_signs() -> None:
    for wording in WORDINGS.values():
        assert len(wording.months) == 12
        assert wording.signs.keys() == WORDINGS["de"].signs.keys()
        assert {"km", "kg", "°C", "%", "km/h"} <= wording.units.keys()
        assert all(one and several for one, several in wording.units.values())


LANGUAGE = st.sampled_from(sorted(WORDINGS))


@given(st.text(max_size=100) | st.text("ab1,.5:/-€%*&+=^~'\"0°mkh ", max_size=60), LANGUAGE)
def test_any_text_can_be_said(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert not re.search(r"[0-9*_`~|\\{}\[\]<>#^]", spoken)
    assert spoken == " ".join(spoken.split())


@given(st.lists(st.from_regex(r"[a-zäéñù]{2,10}", fullmatch=True), max_size=20), LANGUAGE)
def test_plain_words_are_said_as_they_are(words: list[str], language: str) -> None:
    assert speakable(" ".join(words), language) == " ".join(words)


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("de", "Am 3. Oktober fahren wir ans Meer.", "Am dritten Oktober fahren wir ans Meer."),
        ("de", "Es gibt z. B. Hunde und Katzen.", "Es gibt zum Beispiel Hunde und Katzen."),
        ("fr", "Voici M. Dupont avec son chien.", "Voici Monsieur Dupont avec son chien."),
        ("es", "El Sr. García tiene un perro.", "El señor García tiene un perro."),
    ],
)
def test_a_sentence_is_not_cut_at_an_abbreviation(language: str, text: str, first: str) -> None:
    chunker = SpeechChunker(language)
    for at in range(len(text)):
        chunker.feed(text[at])
    chunker.feed(" Und dann noch mehr davon.")
    piece = chunker.take(longest_letters=len(text) + 25)
    assert piece
    assert piece.spoken == first
