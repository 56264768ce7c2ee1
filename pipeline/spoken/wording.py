"""How German, French, Spanish, Italian, Portuguese and Dutch are said: the words for numbers,
dates, units and signs.

Data only; ``pipeline.spoken.worded`` makes rules of it. English has rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from num2words.lang_DE import Num2Word_DE
from num2words.lang_ES import Num2Word_ES
from num2words.lang_FR import Num2Word_FR
from num2words.lang_IT import Num2Word_IT
from num2words.lang_NL import Num2Word_NL
from num2words.lang_PT import Num2Word_PT


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
    full stop may end a sentence. ``titles``: only before a name; ``numbered``: before a number.
    ``cents_alone``: behind less than a euro. ``times``: "3x". ``per``: "€/kg". ``ratio``: "3:2".
    ``of``: between millions and what they are millions of. ``one_feminine``: 1 before a noun that
    ``feminine`` matches; ``ones``: other patterns, and 1 before them. Patterns: ``at``, before a
    time with a full stop; ``on``, before a date without a year; ``counted``, before Roman numerals
    that count; ``nth``, behind those that are ordinals; ``phone``: numbers that are called.
    ``ruler``: what is said between a name and its number, and up to which one that is an ordinal.
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
    cents_alone: str
    times: str
    per: str
    ratio: str
    at: str
    on: str
    one_feminine: str
    feminine: str
    counted: str
    ruler: tuple[str, int]
    numbered: dict[str, str]
    of: str = ""
    ones: dict[str, str] = field(default_factory=dict)
    nth: str = r"(?!)"
    phone: str = r"(?!)"
    short_months: dict[str, str] = field(default_factory=dict)
    """Those that are not the first letters of a month, without the full stop."""
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
        m/s = ein Meter pro Sekunde | Meter pro Sekunde;
        m/s² = ein Meter pro Quadratsekunde | Meter pro Quadratsekunde;
        m² m2 = ein Quadratmeter | Quadratmeter;
        km² = ein Quadratkilometer | Quadratkilometer; m³ m3 = ein Kubikmeter | Kubikmeter;
        °C ℃ = ein Grad Celsius | Grad Celsius; °F = ein Grad Fahrenheit | Grad Fahrenheit;
        ° = ein Grad | Grad; % = ein Prozent | Prozent; ‰ = ein Promille | Promille;
        Mio = eine Million | Millionen; Mrd = eine Milliarde | Milliarden;
        Min = eine Minute | Minuten; Sek = eine Sekunde | Sekunden;
        Mbit/s = ein Megabit pro Sekunde | Megabit pro Sekunde;
        µg μg = ein Mikrogramm | Mikrogramm; ng = ein Nanogramm | Nanogramm;
        dl dL = ein Deziliter | Deziliter; cl = ein Zentiliter | Zentiliter;
        µm μm = ein Mikrometer | Mikrometer; nm = ein Nanometer | Nanometer;
        cm² = ein Quadratzentimeter | Quadratzentimeter;
        cm³ = ein Kubikzentimeter | Kubikzentimeter; ha = ein Hektar | Hektar;
        MW = ein Megawatt | Megawatt; MHz = ein Megahertz | Megahertz;
        kHz = ein Kilohertz | Kilohertz; hPa = ein Hektopascal | Hektopascal;
        dB = ein Dezibel | Dezibel; mmol = ein Millimol | Millimol; mol = ein Mol | Mol;
        kcal = eine Kilokalorie | Kilokalorien; kJ = ein Kilojoule | Kilojoule;
        mA = ein Milliampere | Milliampere; Wh = eine Wattstunde | Wattstunden
    """),
    currencies=_table("""
        € EUR = ein Euro | Euro; $ USD US$ = ein Dollar | Dollar; £ GBP = ein Pfund | Pfund;
        ¥ JPY = ein Yen | Yen; CHF = ein Franken | Franken;
        ₹ INR Rs. Rs = eine Rupie | Rupien
    """),
    signs=_pairs("""
        & = und; + = plus; = = gleich; × = mal; ÷ = durch; ≈ = ungefähr; ± = plus minus;
        < = kleiner als; > = größer als; § = Paragraf; ½ = ein halb; ¼ = ein Viertel;
        ¾ = drei Viertel; ⅓ = ein Drittel; ⅔ = zwei Drittel;
        §§ = Paragrafen; ¶ = Absatz
    """),
    abbreviations=_pairs("""
        z. B. = zum Beispiel; z.B. = zum Beispiel; d. h. = das heißt; d.h. = das heißt;
        u. a. = unter anderem; u.a. = unter anderem; usw. = und so weiter; etc. = et cetera;
        bzw. = beziehungsweise; ca. = circa; evtl. = eventuell; ggf. = gegebenenfalls;
        inkl. = inklusive; Nr. = Nummer; n° = Nummer; vgl. = vergleiche; max. = maximal;
        v. Chr. = vor Christus; n. Chr. = nach Christus;
        u. = und; u.v.m. = und vieles mehr; usf. = und so fort; ff. = folgende; f. = folgende;
        u. U. = unter Umständen; u.U. = unter Umständen; i. d. R. = in der Regel;
        i.d.R. = in der Regel; o. Ä. = oder Ähnliches; o.Ä. = oder Ähnliches;
        u. Ä. = und Ähnliches; u.Ä. = und Ähnliches; s. o. = siehe oben; s. u. = siehe unten;
        v. a. = vor allem; v.a. = vor allem; z. T. = zum Teil; z.T. = zum Teil; zzgl. = zuzüglich;
        zz. = zurzeit; zzt. = zurzeit; bspw. = beispielsweise; sog. = sogenannte; gem. = gemäß;
        lt. = laut; exkl. = exklusive; mind. = mindestens; allg. = allgemein; insb. = insbesondere;
        insbes. = insbesondere; einschl. = einschließlich; etw. = etwas; geb. = geboren;
        gest. = gestorben; Jh. = Jahrhundert; tgl. = täglich; wg. = wegen; Hrsg. = Herausgeber;
        str. = straße; Str. = Straße; Pl. = Platz; Whg. = Wohnung; Hbf. = Hauptbahnhof;
        Abb. = Abbildung; Tab. = Tabelle; Anm. = Anmerkung; lit. = Buchstabe; OG = Obergeschoss;
        UG = Untergeschoss; EG = Erdgeschoss; DG = Dachgeschoss; m. E. = meines Erachtens;
        m.E. = meines Erachtens; i. A. = im Auftrag; i.A. = im Auftrag; i. V. = in Vertretung;
        i.V. = in Vertretung; a. D. = außer Dienst; a.D. = außer Dienst; z. Hd. = zu Händen;
        z.Hd. = zu Händen; o. g. = oben genannte; o.g. = oben genannte; s.o. = siehe oben;
        s.u. = siehe unten; u. Ä. = und Ähnliches; z. Z. = zurzeit; z.Z. = zurzeit;
        MwSt. = Mehrwertsteuer; Temp. = Temperatur; verh. = verheiratet;
        Art.-Nr. = Artikelnummer; Fa. = Firma; Bhf. = Bahnhof
    """),
    titles=_pairs("""
        Dr. = Doktor; Prof. = Professor; Hr. = Herr; Fr. = Frau; St. = Sankt;
        Frl. = Fräulein; Dipl.-Ing. = Diplomingenieur; Ing. = Ingenieur; Dipl. = Diplom;
        Hl. = Heiliger; Fam. = Familie; Hrn. = Herrn
    """),
    address={".": "Punkt", "@": "ät", "-": "Strich", "_": "Unterstrich"},
    cents_alone="Cent",
    times="mal",
    per="pro",
    ratio="zu",
    at="[Uu]m|[Gg]egen",
    on="[Aa]m|[Vv]om|[Zz]um|[Bb]is|[Dd]er|[Dd]en",
    one_feminine="eine",
    short_months={"Mrz": "März"},
    feminine=r"(?!Junge|Name|Kunde|Käse|Ende|Auge|Interesse|Ge|Lö|Hase|Affe|Buchstabe|Gedanke)[A-Z]"
    r"\w*(?:e|ung|heit|keit|schaft|ion|tät|erin|ur)|Frau|Zahl|Stadt|Nacht|Hand|Tür|Uhr|Mutter"
    r"|Tochter|Schwester|Art|Antwort|Milliarde|Kugel|Gabel|Nummer|Feder|Insel|Regel",
    counted="Abschnitt|Hartz|Kapitel|Teil|Band|Akt|Artikel|Weltkrieg|Klasse|Stufe|Phase|Szene|Typ|Apollo",
    ruler=("der ", 99),
    numbered=_pairs("""
        S. = Seite; Abs. = Absatz; Kap. = Kapitel; Bd. = Band; Tel. = Telefon;
        Art. = Artikel; Ziff. = Ziffer; Nrn. = Nummern; Rn. = Randnummer; Rdnr. = Randnummer;
        Tsd. = Tausend; Aufl. = Auflage; Jg. = Jahrgang; Hs. = Halbsatz; Kl. = Klasse;
        Zi. = Zimmer; Gl. = Gleis
    """),
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
        m/s = un mètre par seconde | mètres par seconde;
        m/s² = un mètre par seconde carrée | mètres par seconde carrée;
        m² m2 = un mètre carré | mètres carrés;
        km² = un kilomètre carré | kilomètres carrés; m³ m3 = un mètre cube | mètres cubes;
        °C ℃ = un degré Celsius | degrés Celsius; °F = un degré Fahrenheit | degrés Fahrenheit;
        ° = un degré | degrés; % = un pour cent | pour cent; ‰ = un pour mille | pour mille;
        Mbit/s = un mégabit par seconde | mégabits par seconde;
        M€ = un million d'euros | millions d'euros; Md€ = un milliard d'euros | milliards d'euros;
        µg μg = un microgramme | microgrammes; ng = un nanogramme | nanogrammes;
        dl dL = un décilitre | décilitres; cl = un centilitre | centilitres;
        µm μm = un micromètre | micromètres; nm = un nanomètre | nanomètres;
        cm² = un centimètre carré | centimètres carrés;
        cm³ = un centimètre cube | centimètres cubes; ha = un hectare | hectares;
        MW = un mégawatt | mégawatts; MHz = un mégahertz | mégahertz;
        kHz = un kilohertz | kilohertz; hPa = un hectopascal | hectopascals;
        dB = un décibel | décibels; mmol = une millimole | millimoles; mol = une mole | moles;
        kcal = une kilocalorie | kilocalories; kJ = un kilojoule | kilojoules;
        mA = un milliampère | milliampères; Wh = un wattheure | wattheures
    """),
    currencies=_table("""
        € EUR = un euro | euros; $ USD US$ = un dollar | dollars; £ GBP = une livre | livres;
        ¥ JPY = un yen | yens; CHF = un franc | francs;
        ₹ INR Rs. Rs = une roupie | roupies
    """),
    signs=_pairs("""
        & = et; + = plus; = = égale; × = fois; ÷ = divisé par; ≈ = environ; ± = plus ou moins;
        < = plus petit que; > = plus grand que; § = paragraphe; ½ = un demi; ¼ = un quart;
        ¾ = trois quarts; ⅓ = un tiers; ⅔ = deux tiers;
        §§ = paragraphes; ¶ = paragraphe
    """),
    abbreviations=_pairs("""
        p. ex. = par exemple; c.-à-d. = c'est-à-dire; etc. = et cetera; env. = environ;
        n° = numéro; nº = numéro; N° = numéro; 24h/24 = vingt-quatre heures sur vingt-quatre;
        7j/7 = sept jours sur sept; Ier = premier; av. J.-C. = avant Jésus-Christ;
        p.ex. = par exemple; ex. = exemple; c-à-d. = c'est-à-dire; cf. = voir;
        apr. J.-C. = après Jésus-Christ; approx. = approximativement; max. = maximum;
        éd. = édition; hab. = habitants; tél. = téléphone; ét. = étage; RDC = rez-de-chaussée;
        dép. = département; suiv. = suivant; incl. = inclus; resp. = respectivement;
        s.v.p. = s'il vous plaît; S.V.P. = s'il vous plaît; boul. = boulevard;
        arr. = arrondissement; qqch. = quelque chose; réf. = référence; temp. = température
    """),
    titles=_pairs("""
        M. = Monsieur; Mme = Madame; Mlle = Mademoiselle; Dr = Docteur; St = Saint; Ste = Sainte;
        MM. = Messieurs; bd = boulevard; av. = avenue;
        Pr = Professeur; Prof. = Professeur; Mmes = Mesdames; Mgr = Monseigneur; Me = Maître
    """),
    address={".": "point", "@": "arobase", "-": "tiret", "_": "tiret bas"},
    cents_alone="centimes",
    times="fois",
    per="par",
    ratio="à",
    at="(?!)",
    on="[Ll]e|[Dd]u|[Aa]u",
    one_feminine="une",
    feminine=r"\w+(?:tion|sion|té|tte|elle|ée|ance|ence|esse|euse|trice|ière|aine|onne|ille)"
    r"|fois|heure|minute|seconde|année|femme|pomme|chose|page|langue|main|maison|nuit|note|tasse"
    r"|étoile|île|mer|ville|voix|carte|table|porte|chaise|route|balle|pièce|image|idée|partie|étape"
    r"|règle|cuillère|tranche|goutte|lettre|dent|forme|phrase|sorte|voiture|ligne|lune|équipe",
    counted="[Cc]hapitre|[Tt]ome|[Aa]cte|[Vv]olume|[Pp]artie|[Aa]rticle|[Pp]hase|[Tt]ype|Apollo",
    ruler=("", 1),
    numbered=_pairs("""
        p. = page; pp. = pages; chap. = chapitre; fig. = figure;
        art. = article; al. = alinéa; vol. = volume; n. = numéro; t. = tome; par. = paragraphe;
        ann. = annexe
    """),
    of="de ",
    nth=r"(?:e|è?me)\b",
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
        m/s² = un metro por segundo al cuadrado | metros por segundo al cuadrado;
        m² m2 = un metro cuadrado | metros cuadrados;
        km² = un kilómetro cuadrado | kilómetros cuadrados;
        m³ m3 = un metro cúbico | metros cúbicos; °C ℃ = un grado Celsius | grados Celsius;
        °F = un grado Fahrenheit | grados Fahrenheit; ° = un grado | grados;
        % = uno por ciento | por ciento; ‰ = uno por mil | por mil;
        Mbit/s = un megabit por segundo | megabits por segundo;
        M€ = un millón de euros | millones de euros;
        µg μg = un microgramo | microgramos; ng = un nanogramo | nanogramos;
        dl dL = un decilitro | decilitros; cl = un centilitro | centilitros;
        µm μm = un micrómetro | micrómetros; nm = un nanómetro | nanómetros;
        cm² = un centímetro cuadrado | centímetros cuadrados;
        cm³ = un centímetro cúbico | centímetros cúbicos; ha = una hectárea | hectáreas;
        MW = un megavatio | megavatios; MHz = un megahercio | megahercios;
        kHz = un kilohercio | kilohercios; hPa = un hectopascal | hectopascales;
        dB = un decibelio | decibelios; mmol = un milimol | milimoles; mol = un mol | moles;
        kcal = una kilocaloría | kilocalorías; kJ = un kilojulio | kilojulios;
        mA = un miliamperio | miliamperios; Wh = un vatio hora | vatios hora
    """),
    currencies=_table("""
        € EUR = un euro | euros; $ USD US$ = un dólar | dólares; £ GBP = una libra | libras;
        ¥ JPY = un yen | yenes; CHF = un franco | francos;
        ₹ INR Rs. Rs = una rupia | rupias
    """),
    signs=_pairs("""
        & = y; + = más; = = igual a; × = por; ÷ = entre; ≈ = aproximadamente; ± = más menos;
        < = menor que; > = mayor que; § = sección; ½ = medio; ¼ = un cuarto; ¾ = tres cuartos;
        ⅓ = un tercio; ⅔ = dos tercios;
        §§ = secciones; ¶ = párrafo
    """),
    abbreviations=_pairs("""
        p. ej. = por ejemplo; etc. = etcétera; aprox. = aproximadamente; EE. UU. = Estados Unidos;
        EE.UU. = Estados Unidos; n.º = número; n.° = número; nº = número; n° = número;
        N.º = número; N° = número; Ud. = usted; Uds. = ustedes;
        p.ej. = por ejemplo; a. C. = antes de Cristo; d. C. = después de Cristo;
        a.C. = antes de Cristo; d.C. = después de Cristo; máx. = máximo; mín. = mínimo;
        núm. = número; incl. = incluido; ej. = ejemplo; dpto. = departamento; izda. = izquierda;
        dcha. = derecha; c/ = calle; C/ = calle; izq. = izquierda; vs. = contra;
        cf. = compárese; RR. HH. = recursos humanos; FF. AA. = Fuerzas Armadas; ed. = edición;
        L-V = lunes a viernes; L–V = lunes a viernes
    """),
    titles=_pairs("""
        Sr. = señor; Sra. = señora; Srta. = señorita; Dr. = doctor; Dra. = doctora; D. = don;
        Avda. = avenida; Av. = avenida;
        Sres. = señores; Sras. = señoras; Dres. = doctores; Prof. = profesor; Profa. = profesora;
        Ing. = ingeniero; Lic. = licenciado; D.ª = doña; Dña. = doña; Sta. = Santa; Sto. = Santo;
        Gral. = general; Pza. = plaza; Cnel. = coronel; Ntra. = nuestra;
        Excmo. = excelentísimo; Excma. = excelentísima; Ilmo. = ilustrísimo; S. M. = Su Majestad
    """),
    address={".": "punto", "@": "arroba", "-": "guion", "_": "guion bajo"},
    cents_alone="céntimos",
    times="veces",
    per="por",
    ratio="a",
    at="[Ll]as|[Ll]a",
    on="[Ee]l|[Dd]el|[Aa]l",
    one_feminine="una",
    feminine=r"(?!(?:días?|mapas?|planetas?|poetas?)\b)(?!\w*(?:em|am|om|iom|gram|im)as?\b)"
    r"\w+(?:as?|ción|ciones|sión|siones|dad|dades|tad|tades|tud)|vez|veces|mujer|mujeres|noches?"
    r"|tardes?|flor|flores|manos?|fotos?|partes?|clases?|calles?|llaves?|nubes?|red|redes|luz|luces"
    r"|voz|voces|madres?",
    counted="[Ss]iglo|[Cc]apítulo|[Tt]omo|[Aa]cto|[Vv]olumen|[Aa]rtículo|[Ff]ase|[Tt]ipo|Apolo"
    "|Guerra Mundial",
    ruler=("", 10),
    numbered=_pairs("""
        pág. = página; págs. = páginas; p. = página; art. = artículo; cap. = capítulo;
        vol. = volumen; tel. = teléfono;
        arts. = artículos; fig. = figura; tfno. = teléfono; apdo. = apartado; párr. = párrafo;
        núms. = números; inc. = inciso; s. = siglo
    """),
    of="de ",
    phone=r"[6-9]\d\d \d{3} \d{3}",
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
        m/s = un metro al secondo | metri al secondo;
        m/s² = un metro al secondo quadrato | metri al secondo quadrato;
        m² m2 = un metro quadrato | metri quadrati;
        km² = un chilometro quadrato | chilometri quadrati; m³ m3 = un metro cubo | metri cubi;
        °C ℃ = un grado Celsius | gradi Celsius; °F = un grado Fahrenheit | gradi Fahrenheit;
        ° = un grado | gradi; % = uno per cento | per cento; ‰ = uno per mille | per mille;
        Mbit/s = un megabit al secondo | megabit al secondo;
        mln = un milione | milioni; mld = un miliardo | miliardi;
        µg μg = un microgrammo | microgrammi; ng = un nanogrammo | nanogrammi;
        dl dL = un decilitro | decilitri; cl = un centilitro | centilitri;
        µm μm = un micrometro | micrometri; nm = un nanometro | nanometri;
        cm² = un centimetro quadrato | centimetri quadrati;
        cm³ = un centimetro cubo | centimetri cubi; ha = un ettaro | ettari;
        MW = un megawatt | megawatt; MHz = un megahertz | megahertz;
        kHz = un chilohertz | chilohertz; hPa = un ettopascal | ettopascal;
        dB = un decibel | decibel; mmol = una millimole | millimoli; mol = una mole | moli;
        kcal = una chilocaloria | chilocalorie; kJ = un chilojoule | chilojoule;
        mA = un milliampere | milliampere; Wh = un wattora | wattora
    """),
    currencies=_table("""
        € EUR = un euro | euro; $ USD US$ = un dollaro | dollari;
        £ GBP = una sterlina | sterline;
        ¥ JPY = uno yen | yen; CHF = un franco | franchi;
        ₹ INR Rs. Rs = una rupia | rupie
    """),
    signs=_pairs("""
        & = e; + = più; = = uguale; × = per; ÷ = diviso; ≈ = circa; ± = più o meno; < = minore di;
        > = maggiore di; § = paragrafo; ½ = mezzo; ¼ = un quarto; ¾ = tre quarti; ⅓ = un terzo;
        ⅔ = due terzi;
        §§ = paragrafi; ¶ = paragrafo
    """),
    abbreviations=_pairs("""
        ad es. = ad esempio; per es. = per esempio; ecc. = eccetera; ca. = circa; n° = numero;
        nº = numero; N° = numero;
        p.es. = per esempio; p. es. = per esempio; a.C. = avanti Cristo; d.C. = dopo Cristo;
        a. C. = avanti Cristo; d. C. = dopo Cristo; max. = massimo; cfr. = confronta;
        es. = esempio; incl. = incluso; ed. = edizione; v. = vedi; p.zza = piazza; v.le = viale;
        c. a. = circa; C.so = corso; N.B. = nota bene
    """),
    titles=_pairs("""
        Sig. = signor; Sig.ra = signora; Sig.na = signorina; Dott. = dottor;
        Dott.ssa = dottoressa; Prof. = professor;
        Sigg. = signori; Dr. = dottor; Prof.ssa = professoressa; Avv. = avvocato; Ing. = ingegner;
        Arch. = architetto; Geom. = geometra; Rag. = ragionier; On. = onorevole; Sen. = senatore;
        Mons. = monsignor; Gen. = generale; Spett. = spettabile; Egr. = egregio; Col. = colonnello
    """),
    address={".": "punto", "@": "chiocciola", "-": "trattino", "_": "trattino basso"},
    cents_alone="centesimi",
    times="volte",
    per="per",
    ratio="a",
    at="[Aa]lle|[Dd]alle|[Dd]elle|[Oo]re|[Ll]e",
    on="[Ii]l|[Dd]el|[Aa]l|[Dd]al",
    one_feminine="una",
    feminine=r"(?!\w*(?:ema|amma|oma|ista|eta|ima)\b)\w+a|\w+(?:zione|sione|gione|tà|tù|trice)"
    r"|mano|notte|madre|moglie|parte|chiave|luce|voce|croce|legge|rete|classe|nave|gente|fine",
    counted="[Cc]apitolo|[Ss]ecolo|[Vv]olume|[Aa]tto|[Aa]rticolo|[Ff]ase|[Tt]ipo|Apollo"
    "|Guerra Mondiale",
    ruler=("", 99),
    numbered=_pairs("""
        pag. = pagina; pagg. = pagine; p. = pagina; art. = articolo; cap. = capitolo;
        vol. = volume; tel. = telefono; n. = numero; N. = numero;
        artt. = articoli; co. = comma; lett. = lettera; fig. = figura; nn. = numeri;
        par. = paragrafo; tab. = tabella; sec. = secolo; int. = interno
    """),
    of="di ",
    ones={r"[aeiou]\w*a\b": "un'", r"(?:s[^\Waeiou]|z|gn|ps)\w+": "uno "},
    nth=r"(?=\s(?:secolo|[Rr]epubblica)\b)",
    ordinals={"º": ("", ""), "°": ("", ""), "ª": ("o", "a")},
)

PORTUGUESE = Wording(
    numbers=Num2Word_PT(),
    one="um",
    comma="vírgula",
    months=(
        *("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho", "agosto"),
        *("setembro", "outubro", "novembro", "dezembro"),
    ),
    date="{day} de {month}",
    year=" de {year}",
    first="um",
    hour="{hour} horas",
    time="{hour} e {minute}",
    one_hour="uma hora",
    hour_word=r"\s?(?:horas?\b|h(?![^\W\d_]))",
    cents=" e ",
    to="a",
    minus="menos",
    units=_table("""
        km = um quilómetro | quilómetros; m = um metro | metros; cm = um centímetro | centímetros;
        mm = um milímetro | milímetros; kg = um quilograma | quilogramas; g = um grama | gramas;
        mg = um miligrama | miligramas; t = uma tonelada | toneladas; l L = um litro | litros;
        ml = um mililitro | mililitros; ms = um milissegundo | milissegundos;
        s = um segundo | segundos; min = um minuto | minutos; h = uma hora | horas;
        W = um watt | watts; kW = um quilowatt | quilowatts;
        kWh = um quilowatt-hora | quilowatts-hora; V = um volt | volts; Hz = um hertz | hertz;
        GHz = um gigahertz | gigahertz; kB = um kilobyte | kilobytes; MB = um megabyte | megabytes;
        GB = um gigabyte | gigabytes; TB = um terabyte | terabytes;
        Mbit/s = um megabit por segundo | megabits por segundo;
        km/h = um quilómetro por hora | quilómetros por hora;
        m/s = um metro por segundo | metros por segundo;
        m/s² = um metro por segundo ao quadrado | metros por segundo ao quadrado;
        m² m2 = um metro quadrado | metros quadrados;
        km² = um quilómetro quadrado | quilómetros quadrados;
        m³ m3 = um metro cúbico | metros cúbicos; °C ℃ = um grau Celsius | graus Celsius;
        °F = um grau Fahrenheit | graus Fahrenheit; ° = um grau | graus;
        % = um por cento | por cento; ‰ = um por mil | por mil;
        M€ = um milhão de euros | milhões de euros;
        µg μg = um micrograma | microgramas; ng = um nanograma | nanogramas;
        dl dL = um decilitro | decilitros; cl = um centilitro | centilitros;
        µm μm = um micrómetro | micrómetros; nm = um nanómetro | nanómetros;
        cm² = um centímetro quadrado | centímetros quadrados;
        cm³ = um centímetro cúbico | centímetros cúbicos; ha = um hectare | hectares;
        MW = um megawatt | megawatts; MHz = um megahertz | megahertz;
        kHz = um quilohertz | quilohertz; hPa = um hectopascal | hectopascais;
        dB = um decibel | decibéis; mmol = um milimol | milimoles; mol = um mol | moles;
        kcal = uma quilocaloria | quilocalorias; kJ = um quilojoule | quilojoules;
        mA = um miliampere | miliamperes; Wh = um watt-hora | watts-hora
    """),
    currencies=_table("""
        € EUR = um euro | euros; $ USD US$ = um dólar | dólares; £ GBP = uma libra | libras;
        ¥ JPY = um iene | ienes; CHF = um franco | francos; R$ BRL = um real | reais;
        ₹ INR Rs. Rs = uma rupia | rupias
    """),
    signs=_pairs("""
        & = e; + = mais; = = igual a; × = vezes; ÷ = a dividir por; ≈ = cerca de;
        ± = mais ou menos; < = menor que; > = maior que; § = parágrafo; ½ = meio; ¼ = um quarto;
        ¾ = três quartos; ⅓ = um terço; ⅔ = dois terços;
        §§ = parágrafos; ¶ = parágrafo
    """),
    abbreviations=_pairs("""
        p. ex. = por exemplo; etc. = et cetera; aprox. = aproximadamente; n.º = número;
        n.° = número; nº = número; n° = número; N.º = número; EUA = Estados Unidos;
        p.ex. = por exemplo; por ex. = por exemplo; a.C. = antes de Cristo;
        d.C. = depois de Cristo; a. C. = antes de Cristo; d. C. = depois de Cristo; máx. = máximo;
        mín. = mínimo; núm. = número; ex. = exemplo; cf. = confira; incl. = incluindo;
        ed. = edição; r/c = rés do chão; esq. = esquerdo; dto. = direito; séc. = século;
        tb. = também; E.U.A. = Estados Unidos; V. Exa. = Vossa Excelência; obs. = observação;
        Lda. = limitada
    """),
    titles=_pairs("""
        Sr. = senhor; Sra. = senhora; Sr.ª = senhora; Dr. = doutor; Dra. = doutora; D. = Dom;
        Av. = avenida;
        Srs. = senhores; Sras. = senhoras; Srta. = senhorita; Eng. = engenheiro; Prof. = professor;
        Profa. = professora; Prof.ª = professora; Dr.ª = doutora; Exmo. = excelentíssimo;
        Sto. = Santo; Sta. = Santa; S. = São; Gen. = general; Pç. = praça; R. = rua;
        Cel. = coronel; Ex.ma = excelentíssima; Ex.mo = excelentíssimo
    """),
    address={".": "ponto", "@": "arroba", "-": "hífen", "_": "traço inferior"},
    cents_alone="cêntimos",
    times="vezes",
    per="por",
    ratio="a",
    at="[Àà]s|[Dd]as",
    on="[Aa]o?|[Dd]e|[Dd]o|[Nn]o|[Dd]ia|[Ee]m",
    one_feminine="uma",
    feminine=r"(?!(?:dias?|mapas?|planetas?|poetas?)\b)(?!\w*(?:em|am|om|gram|im)as?\b)"
    r"\w+(?:as?|ção|ções|são|sões|dade|dades|gem|gens|tude)|vez|vezes|mulher|mulheres|noites?"
    r"|tardes?|flor|flores|mãos?|partes?|classes?|chaves?|luz|luzes|voz|vozes|mães?|manhãs?",
    counted="[Ss]éculo|[Cc]apítulo|[Tt]omo|[Aa]to|[Vv]olume|[Aa]rtigo|[Ff]ase|[Tt]ipo|Apollo"
    "|Guerra Mundial",
    ruler=("", 10),
    numbered=_pairs("""
        pág. = página; págs. = páginas; p. = página; art. = artigo; cap. = capítulo;
        tel. = telefone;
        arts. = artigos; fig. = figura; inc. = inciso; vol. = volume; al. = alínea; lj. = loja
    """),
    of="de ",
    phone=r"[29]\d\d \d{3} \d{3}",
    ordinals={"º": ("", ""), ".º": ("", ""), "ª": ("o", "a"), ".ª": ("o", "a")},
)

DUTCH = Wording(
    numbers=Num2Word_NL(),
    one="één",
    comma="komma",
    months=(
        *("januari", "februari", "maart", "april", "mei", "juni", "juli", "augustus"),
        *("september", "oktober", "november", "december"),
    ),
    date="{day} {month}",
    year=" {year}",
    first="één",
    hour="{hour} uur",
    time="{hour} uur {minute}",
    one_hour="één uur",
    hour_word=r"\s?(?:uur\b|u(?![^\W\d_]))",
    cents=" ",
    to="tot",
    minus="minus",
    units=_table("""
        km = één kilometer | kilometer; m = één meter | meter; cm = één centimeter | centimeter;
        mm = één millimeter | millimeter; kg = één kilogram | kilogram; g = één gram | gram;
        mg = één milligram | milligram; t = één ton | ton; l L = één liter | liter;
        ml = één milliliter | milliliter; ms = één milliseconde | milliseconden;
        s sec = één seconde | seconden; min = één minuut | minuten; h = één uur | uur;
        W = één watt | watt; kW = één kilowatt | kilowatt; kWh = één kilowattuur | kilowattuur;
        V = één volt | volt; Hz = één hertz | hertz; GHz = één gigahertz | gigahertz;
        kB = één kilobyte | kilobyte; MB = één megabyte | megabyte; GB = één gigabyte | gigabyte;
        TB = één terabyte | terabyte; Mbit/s = één megabit per seconde | megabit per seconde;
        km/h km/u = één kilometer per uur | kilometer per uur;
        m/s = één meter per seconde | meter per seconde;
        m/s² = één meter per seconde kwadraat | meter per seconde kwadraat;
        m² m2 = één vierkante meter | vierkante meter;
        km² = één vierkante kilometer | vierkante kilometer;
        m³ m3 = één kubieke meter | kubieke meter; °C ℃ = één graad Celsius | graden Celsius;
        °F = één graad Fahrenheit | graden Fahrenheit; ° = één graad | graden;
        % = één procent | procent; ‰ = één promille | promille;
        st = één stuk | stuks; mln = één miljoen | miljoen; mld = één miljard | miljard;
        µg μg = één microgram | microgram; ng = één nanogram | nanogram;
        dl dL = één deciliter | deciliter; cl = één centiliter | centiliter;
        µm μm = één micrometer | micrometer; nm = één nanometer | nanometer;
        cm² = één vierkante centimeter | vierkante centimeter;
        cm³ = één kubieke centimeter | kubieke centimeter; ha = één hectare | hectare;
        MW = één megawatt | megawatt; MHz = één megahertz | megahertz;
        kHz = één kilohertz | kilohertz; hPa = één hectopascal | hectopascal;
        dB = één decibel | decibel; mmol = één millimol | millimol; mol = één mol | mol;
        kcal = één kilocalorie | kilocalorieën; kJ = één kilojoule | kilojoule;
        mA = één milliampère | milliampère; Wh = één wattuur | wattuur
    """),
    currencies=_table("""
        € EUR = één euro | euro; $ USD US$ = één dollar | dollar; £ GBP = één pond | pond;
        ¥ JPY = één yen | yen; CHF = één frank | frank;
        ₹ INR Rs. Rs = één roepie | roepie
    """),
    signs=_pairs("""
        & = en; + = plus; = = is; × = keer; ÷ = gedeeld door; ≈ = ongeveer; ± = plus of min;
        < = kleiner dan; > = groter dan; § = paragraaf; ½ = een half; ¼ = een kwart;
        ¾ = driekwart; ⅓ = een derde; ⅔ = twee derde;
        §§ = paragrafen; ¶ = alinea
    """),
    abbreviations=_pairs("""
        bijv. = bijvoorbeeld; bv. = bijvoorbeeld; d.w.z. = dat wil zeggen; enz. = enzovoort;
        etc. = et cetera; ca. = circa; o.a. = onder andere; a.u.b. = alstublieft; nr. = nummer;
        n° = nummer; Nr. = nummer; max. = maximaal; v.Chr. = voor Christus; n.Chr. = na Christus;
        d.m.v. = door middel van; m.b.t. = met betrekking tot; t.o.v. = ten opzichte van;
        i.p.v. = in plaats van; i.v.m. = in verband met; m.a.w. = met andere woorden;
        bijz. = bijzonder; evt. = eventueel; excl. = exclusief; incl. = inclusief;
        resp. = respectievelijk; t/m = tot en met; z.s.m. = zo snel mogelijk; jl. = jongstleden;
        a.s. = aanstaande; vgl. = vergelijk; zgn. = zogenaamde; m.n. = met name;
        d.d. = de dato; verd. = verdieping; v. Chr. = voor Christus; n. Chr. = na Christus;
        b.v. = bijvoorbeeld; t.a.v. = ter attentie van; n.v.t. = niet van toepassing;
        n.a.v. = naar aanleiding van; e.d. = en dergelijke; o.i.d. = of iets dergelijks;
        t.g.v. = ten gevolge van; prov. = provincie; temp. = temperatuur
    """),
    titles=_pairs("""
        dhr. = de heer; mw. = mevrouw; mevr. = mevrouw; dr. = doctor; Dr. = doctor;
        prof. = professor; Prof. = professor; St. = Sint;
        ir. = ingenieur; ing. = ingenieur; mr. = meester; drs. = doctorandus; Hr. = de heer;
        fam. = familie; ds. = dominee; Fa. = firma; Mw. = mevrouw
    """),
    address={".": "punt", "@": "apenstaartje", "-": "streepje", "_": "laag streepje"},
    cents_alone="cent",
    times="keer",
    per="per",
    ratio="tegen",
    at="[Oo]m|[Rr]ond",
    on="[Oo]p|[Vv]an|[Tt]ot",
    one_feminine="één",
    short_months={"Mrt": "maart"},
    feminine="(?!)",
    counted="[Hh]oofdstuk|[Dd]eel|[Bb]and|[Aa]kte|[Aa]rtikel|Wereldoorlog|[Ff]ase|[Tt]ype|Apollo",
    ruler=("de ", 99),
    numbered=_pairs("""
        blz. = bladzijde; p. = pagina; art. = artikel; tel. = telefoon;
        pag. = pagina; hfst. = hoofdstuk; fig. = figuur; nrs. = nummers; bijl. = bijlage;
        afb. = afbeelding; dl. = deel; par. = paragraaf
    """),
    ordinals={"e": ("", ""), "de": ("", ""), "ste": ("", "")},
)

WORDINGS = {
    "de": GERMAN,
    "es": SPANISH,
    "fr": FRENCH,
    "it": ITALIAN,
    "nl": DUTCH,
    "pt": PORTUGUESE,
}
"""By language, ISO 639-1."""
