"""How German, French, Spanish and Italian are said: the words for numbers, dates, units and signs.

Data only; ``pipeline.spoken.worded`` makes rules of it. English has rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from num2words.lang_DE import Num2Word_DE
from num2words.lang_ES import Num2Word_ES
from num2words.lang_FR import Num2Word_FR
from num2words.lang_IT import Num2Word_IT


def _table(text: str) -> dict[str, tuple[str, str]]:
    """Of ``signs = one | several; ...``: sign -> one of it, and the name of several."""
    found: dict[str, tuple[str, str]] = {}
    for signs, names in _pairs(text).items():
        one, _, several = names.partition(" | ")
        found |= dict.fromkeys(signs.split(), (one, several))
    return found


def _pairs(text: str) -> dict[str, str]:
    """Of ``written = said; ...``."""
    pairs = (each.partition(" = ") for each in " ".join(text.split()).split("; "))
    return {written: said for written, _, said in pairs}


@dataclass(frozen=True)
class Wording:
    """One language.

    ``numbers``: num2words. ``one``: 1 before a noun. ``comma``: before the decimals. ``date``,
    ``year``: templates of ``{day}``, ``{month}`` and ``{year}``; ``first``: the first day of a
    month. ``hour``, ``time``: templates of ``{hour}`` and ``{minute}``; ``hour_word``: a pattern of
    what may stand behind the digits. ``cents``: between euros and cents. ``to``: in ranges.
    ``units``, ``currencies``: one of it, and the name of several. ``abbreviations``: those with a
    full stop may end a sentence. ``titles``: only before a name.
    """

    numbers: Any
    one: str
    comma: str
    months: tuple[str, ...]
    date: str
    year: str
    first: str
    hour: str
    time: str
    one_hour: str
    hour_word: str
    cents: str
    to: str
    minus: str
    units: dict[str, tuple[str, str]]
    currencies: dict[str, tuple[str, str]]
    signs: dict[str, str]
    abbreviations: dict[str, str]
    titles: dict[str, str]
    address: dict[str, str]
    ordinals: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Ending behind the digits -> the end of the ordinal, and what is said in its place."""


GERMAN = Wording(
    numbers=Num2Word_DE(),
    one="ein",
    comma="Komma",
    months=(
        *("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September"),
        *("Oktober", "November", "Dezember"),
    ),
    date="{day} {month}",
    year=" {year}",
    first="",
    hour="{hour} Uhr",
    time="{hour} Uhr {minute}",
    one_hour="ein Uhr",
    hour_word=r"\s?Uhr\b",
    cents=" ",
    to="bis",
    minus="minus",
    units=_table("""
        km = ein Kilometer | Kilometer; m = ein Meter | Meter; cm = ein Zentimeter | Zentimeter;
        mm = ein Millimeter | Millimeter; kg = ein Kilogramm | Kilogramm; g = ein Gramm | Gramm;
        mg = ein Milligramm | Milligramm; t = eine Tonne | Tonnen; l L = ein Liter | Liter;
        ml = ein Milliliter | Milliliter; ms = eine Millisekunde | Millisekunden;
        s sek = eine Sekunde | Sekunden; min = eine Minute | Minuten;
        h Std = eine Stunde | Stunden; W = ein Watt | Watt; kW = ein Kilowatt | Kilowatt;
        kWh = eine Kilowattstunde | Kilowattstunden; V = ein Volt | Volt; Hz = ein Hertz | Hertz;
        GHz = ein Gigahertz | Gigahertz; kB = ein Kilobyte | Kilobyte;
        MB = ein Megabyte | Megabyte; GB = ein Gigabyte | Gigabyte; TB = ein Terabyte | Terabyte;
        km/h = ein Kilometer pro Stunde | Kilometer pro Stunde;
        m/s = ein Meter pro Sekunde | Meter pro Sekunde; m² m2 = ein Quadratmeter | Quadratmeter;
        km² = ein Quadratkilometer | Quadratkilometer; m³ m3 = ein Kubikmeter | Kubikmeter;
        °C ℃ = ein Grad Celsius | Grad Celsius; °F = ein Grad Fahrenheit | Grad Fahrenheit;
        ° = ein Grad | Grad; % = ein Prozent | Prozent; ‰ = ein Promille | Promille;
        Mio = eine Million | Millionen; Mrd = eine Milliarde | Milliarden
    """),
    currencies=_table("""
        € EUR = ein Euro | Euro; $ USD = ein Dollar | Dollar; £ GBP = ein Pfund | Pfund;
        ¥ JPY = ein Yen | Yen; CHF = ein Franken | Franken
    """),
    signs=_pairs("""
        & = und; + = plus; = = gleich; × = mal; ÷ = durch; ≈ = ungefähr; ± = plus minus;
        < = kleiner als; > = größer als; § = Paragraf; ½ = ein halb; ¼ = ein Viertel;
        ¾ = drei Viertel
    """),
    abbreviations=_pairs("""
        z. B. = zum Beispiel; z.B. = zum Beispiel; d. h. = das heißt; d.h. = das heißt;
        u. a. = unter anderem; u.a. = unter anderem; usw. = und so weiter; etc. = et cetera;
        bzw. = beziehungsweise; ca. = circa; evtl. = eventuell; ggf. = gegebenenfalls;
        inkl. = inklusive; Nr. = Nummer; vgl. = vergleiche
    """),
    titles=_pairs("""
        Dr. = Doktor; Prof. = Professor; Hr. = Herr; Fr. = Frau; St. = Sankt
    """),
    address={".": "Punkt", "@": "ät", "-": "Strich", "_": "Unterstrich"},
)

FRENCH = Wording(
    numbers=Num2Word_FR(),
    one="un",
    comma="virgule",
    months=(
        *("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre"),
        *("octobre", "novembre", "décembre"),
    ),
    date="{day} {month}",
    year=" {year}",
    first="premier",
    hour="{hour} heures",
    time="{hour} heures {minute}",
    one_hour="une heure",
    hour_word=r"\s?(?:heures?\b|h(?![^\W\d_]))",
    cents=" ",
    to="à",
    minus="moins",
    units=_table("""
        km = un kilomètre | kilomètres; m = un mètre | mètres; cm = un centimètre | centimètres;
        mm = un millimètre | millimètres; kg = un kilogramme | kilogrammes;
        g = un gramme | grammes; mg = un milligramme | milligrammes; t = une tonne | tonnes;
        l L = un litre | litres; ml = un millilitre | millilitres;
        ms = une milliseconde | millisecondes; s = une seconde | secondes;
        min = une minute | minutes; h = une heure | heures; W = un watt | watts;
        kW = un kilowatt | kilowatts; kWh = un kilowattheure | kilowattheures;
        V = un volt | volts; Hz = un hertz | hertz; GHz = un gigahertz | gigahertz;
        ko kB = un kilooctet | kilooctets; Mo MB = un mégaoctet | mégaoctets;
        Go GB = un gigaoctet | gigaoctets; To TB = un téraoctet | téraoctets;
        km/h = un kilomètre à l'heure | kilomètres à l'heure;
        m/s = un mètre par seconde | mètres par seconde; m² m2 = un mètre carré | mètres carrés;
        km² = un kilomètre carré | kilomètres carrés; m³ m3 = un mètre cube | mètres cubes;
        °C ℃ = un degré Celsius | degrés Celsius; °F = un degré Fahrenheit | degrés Fahrenheit;
        ° = un degré | degrés; % = un pour cent | pour cent; ‰ = un pour mille | pour mille
    """),
    currencies=_table("""
        € EUR = un euro | euros; $ USD = un dollar | dollars; £ GBP = une livre | livres;
        ¥ JPY = un yen | yens; CHF = un franc | francs
    """),
    signs=_pairs("""
        & = et; + = plus; = = égale; × = fois; ÷ = divisé par; ≈ = environ; ± = plus ou moins;
        < = plus petit que; > = plus grand que; § = paragraphe; ½ = un demi; ¼ = un quart;
        ¾ = trois quarts
    """),
    abbreviations=_pairs("""
        p. ex. = par exemple; c.-à-d. = c'est-à-dire; etc. = et cetera; env. = environ;
        n° = numéro; nº = numéro; av. J.-C. = avant Jésus-Christ
    """),
    titles=_pairs("""
        M. = Monsieur; Mme = Madame; Mlle = Mademoiselle; Dr = Docteur; St = Saint; Ste = Sainte
    """),
    address={".": "point", "@": "arobase", "-": "tiret", "_": "tiret bas"},
    ordinals={
        "er": ("", ""),
        "ers": ("", "s"),
        "e": ("", ""),
        "ème": ("", ""),
        "eme": ("", ""),
        "re": ("premier", "première"),
        "ère": ("premier", "première"),
        "nd": ("deuxième", "second"),
        "nde": ("deuxième", "seconde"),
    },
)

SPANISH = Wording(
    numbers=Num2Word_ES(),
    one="un",
    comma="coma",
    months=(
        *("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto"),
        *("septiembre", "octubre", "noviembre", "diciembre"),
    ),
    date="{day} de {month}",
    year=" de {year}",
    first="uno",
    hour="{hour}",
    time="{hour} y {minute}",
    one_hour="una hora",
    hour_word=r"\s?(?:horas?|h)\b",
    cents=" con ",
    to="a",
    minus="menos",
    units=_table("""
        km = un kilómetro | kilómetros; m = un metro | metros; cm = un centímetro | centímetros;
        mm = un milímetro | milímetros; kg = un kilogramo | kilogramos; g = un gramo | gramos;
        mg = un miligramo | miligramos; t = una tonelada | toneladas; l L = un litro | litros;
        ml = un mililitro | mililitros; ms = un milisegundo | milisegundos;
        s = un segundo | segundos; min = un minuto | minutos; h = una hora | horas;
        W = un vatio | vatios; kW = un kilovatio | kilovatios;
        kWh = un kilovatio hora | kilovatios hora; V = un voltio | voltios;
        Hz = un hercio | hercios; GHz = un gigahercio | gigahercios; kB = un kilobyte | kilobytes;
        MB = un megabyte | megabytes; GB = un gigabyte | gigabytes; TB = un terabyte | terabytes;
        km/h = un kilómetro por hora | kilómetros por hora;
        m/s = un metro por segundo | metros por segundo;
        m² m2 = un metro cuadrado | metros cuadrados;
        km² = un kilómetro cuadrado | kilómetros cuadrados;
        m³ m3 = un metro cúbico | metros cúbicos; °C ℃ = un grado Celsius | grados Celsius;
        °F = un grado Fahrenheit | grados Fahrenheit; ° = un grado | grados;
        % = uno por ciento | por ciento; ‰ = uno por mil | por mil
    """),
    currencies=_table("""
        € EUR = un euro | euros; $ USD = un dólar | dólares; £ GBP = una libra | libras;
        ¥ JPY = un yen | yenes; CHF = un franco | francos
    """),
    signs=_pairs("""
        & = y; + = más; = = igual a; × = por; ÷ = entre; ≈ = aproximadamente; ± = más menos;
        < = menor que; > = mayor que; § = sección; ½ = medio; ¼ = un cuarto; ¾ = tres cuartos
    """),
    abbreviations=_pairs("""
        p. ej. = por ejemplo; etc. = etcétera; aprox. = aproximadamente; EE. UU. = Estados Unidos;
        EE.UU. = Estados Unidos; n.º = número; n.° = número; Ud. = usted; Uds. = ustedes
    """),
    titles=_pairs("""
        Sr. = señor; Sra. = señora; Srta. = señorita; Dr. = doctor; Dra. = doctora; D. = don
    """),
    address={".": "punto", "@": "arroba", "-": "guion", "_": "guion bajo"},
    ordinals={
        "º": ("", ""),
        ".º": ("", ""),
        "°": ("", ""),
        "ª": ("o", "a"),
        ".ª": ("o", "a"),
        "er": ("o", ""),
        ".er": ("o", ""),
    },
)

ITALIAN = Wording(
    numbers=Num2Word_IT(),
    one="un",
    comma="virgola",
    months=(
        *("gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto"),
        *("settembre", "ottobre", "novembre", "dicembre"),
    ),
    date="{day} {month}",
    year=" {year}",
    first="primo",
    hour="{hour}",
    time="{hour} e {minute}",
    one_hour="una ora",
    hour_word=r"\s?(?:ore|h)\b",
    cents=" e ",
    to="a",
    minus="meno",
    units=_table("""
        km = un chilometro | chilometri; m = un metro | metri; cm = un centimetro | centimetri;
        mm = un millimetro | millimetri; kg = un chilogrammo | chilogrammi;
        g = un grammo | grammi; mg = un milligrammo | milligrammi;
        t = una tonnellata | tonnellate; l L = un litro | litri; ml = un millilitro | millilitri;
        ms = un millisecondo | millisecondi; s = un secondo | secondi; min = un minuto | minuti;
        h = un'ora | ore; W = un watt | watt; kW = un chilowatt | chilowatt;
        kWh = un chilowattora | chilowattora; V = un volt | volt; Hz = un hertz | hertz;
        GHz = un gigahertz | gigahertz; kB = un kilobyte | kilobyte; MB = un megabyte | megabyte;
        GB = un gigabyte | gigabyte; TB = un terabyte | terabyte;
        km/h = un chilometro all'ora | chilometri all'ora;
        m/s = un metro al secondo | metri al secondo; m² m2 = un metro quadrato | metri quadrati;
        km² = un chilometro quadrato | chilometri quadrati; m³ m3 = un metro cubo | metri cubi;
        °C ℃ = un grado Celsius | gradi Celsius; °F = un grado Fahrenheit | gradi Fahrenheit;
        ° = un grado | gradi; % = uno per cento | per cento; ‰ = uno per mille | per mille
    """),
    currencies=_table("""
        € EUR = un euro | euro; $ USD = un dollaro | dollari; £ GBP = una sterlina | sterline;
        ¥ JPY = uno yen | yen; CHF = un franco | franchi
    """),
    signs=_pairs("""
        & = e; + = più; = = uguale; × = per; ÷ = diviso; ≈ = circa; ± = più o meno; < = minore di;
        > = maggiore di; § = paragrafo; ½ = mezzo; ¼ = un quarto; ¾ = tre quarti
    """),
    abbreviations=_pairs("""
        ad es. = ad esempio; per es. = per esempio; ecc. = eccetera; ca. = circa; n. = numero;
        pag. = pagina
    """),
    titles=_pairs("""
        Sig. = signor; Sig.ra = signora; Sig.na = signorina; Dott. = dottor;
        Dott.ssa = dottoressa; Prof. = professor
    """),
    address={".": "punto", "@": "chiocciola", "-": "trattino", "_": "trattino basso"},
    ordinals={"º": ("", ""), "°": ("", ""), "ª": ("o", "a")},
)

WORDINGS = {"de": GERMAN, "fr": FRENCH, "es": SPANISH, "it": ITALIAN}
"""By language, ISO 639-1."""

SHORTENED = {
    language: frozenset(
        part.rstrip(".").lower()
        for short in (*wording.abbreviations, *wording.titles)
        for part in short.split()
        if part.endswith(".")
    )
    for language, wording in WORDINGS.items()
}
"""By language, the words behind which a full stop ends no sentence, or may not."""
