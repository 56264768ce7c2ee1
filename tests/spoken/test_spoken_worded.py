"""Numbers, dates, units and signs in the languages of ``pipeline.spoken.wording``."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.speaking.chunker import SpeechChunker
from pipeline.spoken import speakable
from pipeline.spoken.borders import Border, ends
from pipeline.spoken.numerals import NUMERALS
from pipeline.spoken.wording import WORDINGS
from pipeline.spoken.words import MATHS_WORDS

pytestmark = pytest.mark.quick

CASES = {
    "de": [
        ("2-3-mal täglich, UTC-5", "zwei bis dreimal täglich, UTC minus fünf"),
        ("1 Mio. €", "eine Million Euro"),
        ("1:100.000, 8/10, 4,5/5", "eins zu einhunderttausend, acht von zehn, vier Komma fünf von"
         " fünf"),
        ("2h 30m, 1 h 05 min", "zwei Stunden dreißig Minuten, eine Stunde fünf Minuten"),
        ("30. Dezember–2. Januar", "dreißigster Dezember bis zweiten Januar"),
        ("3,5 % p. a. mehr", "drei Komma fünf Prozent pro Jahr mehr"),
        ("f(x) = x²", "f von x gleich x Quadrat"),
        ("um 20:15h oder 8:00 h", "um zwanzig Uhr fünfzehn oder acht Uhr"),
        ("10cm x 15cm, 7/8, 1/8 l", "zehn Zentimeter mal fünfzehn Zentimeter, sieben von acht, eins"
         " von acht Liter"),
        ("Im Aug. 1914 fiel Karl der VIII.", "Im August neunzehnhundertvierzehn fiel Karl der"
         " achte."),
        ("Warte 5 Min. Die Pause dauert 5 Min. Pause", "Warte fünf Minuten. Die Pause dauert fünf"
         " Minuten Pause"),
        ("Zeit: 30 Min.\nMenge: 200 g\n1. 2 TL", "Zeit: dreißig Minuten. Menge: zweihundert Gramm."
         " eins, zwei Teelöffel"),
        ("5 Mio. €–10 Mio. €, 3·4", "fünf Millionen Euro bis zehn Millionen Euro, drei mal vier"),
        ("1/2 Stunde, ½ Tasse", "eine halbe Stunde, eine halbe Tasse"),
        ("1,79 €/l, 1 €/kg", "ein Euro neunundsiebzig pro Liter, ein Euro pro Kilogramm"),
        ("1 Person, 1 App, 1 Timer", "eine Person, eine App, ein Timer"),
        ("Code: 4829, der Code hat 9", "Code: vier acht zwei neun, der Code hat neun"),
        ("~5 km, 2:1 gegen Köln", "ungefähr fünf Kilometer, zwei zu eins gegen Köln"),
        ("am 3. 4. 2025 oder bis 5. 6., vom 1. 5. an", "am dritten April"
         " zweitausendfünfundzwanzig oder bis fünften Juni, vom ersten Mai an"),
        ("bis 3. 4. Rang", "bis drei. vierter Rang"),
        ("5 Stk. i. V. m. § 3, Inh. Meier", "fünf Stück in Verbindung mit Paragraf drei, Inhaber"
         " Meier"),
        ("am Mo., 5.2., und", "am Montag, fünfter Februar, und"),
        ("+49 (0)30 12345", "plus vier neun, null drei null, eins zwei drei vier fünf"),
        ("Karl V. war Kaiser, Karl V. Müller", "Karl der fünfte war Kaiser, Karl V. Müller"),
        ("Montag-Freitag, Jan.–März", "Montag bis Freitag, Januar bis März"),
        ("1/2 TL, 3/4 l, 1/2 h", "ein halb Teelöffel, drei Viertel Liter, eine halbe Stunde"),
        ("3 € pro m²", "drei Euro pro Quadratmeter"),
        ("2-3x täglich, 10k Follower", "zwei bis drei mal täglich, zehntausend Follower"),
        ("1e5, 3,2e-5 m", "ein mal zehn hoch fünf, drei Komma zwei mal zehn hoch minus fünf Meter"),
        ("(030) 1234567", "null drei null, eins zwei drei vier fünf sechs sieben"),
        ("(2024) 12000 Menschen", "zweitausendvierundzwanzig, zwölftausend Menschen"),
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
        ("4x - 3 = 5", "vier x minus drei gleich fünf"),
        ("2x – 3 = 7, 3x - y", "zwei x minus drei gleich sieben, drei x minus y"),
        ("20 m² - 30 m²", "zwanzig Quadratmeter bis dreißig Quadratmeter"),
        ("3 * 4 = 12", "drei mal vier gleich zwölf"),
        ("Dr. Müller wohnt in Nr. 7.", "Doktor Müller wohnt in Nummer sieben."),
        ("Es waren 12. Dann 13.", "Es waren zwölf. Dann dreizehn."),
        ("Agent 007", "Agent null null sieben"),
        ("a.b@c.de", "a Punkt b ät c Punkt de"),
        ("von 9–17 Uhr", "von neun bis siebzehn Uhr"),
        ("9.30–10.15 Uhr", "neun Uhr dreißig bis zehn Uhr fünfzehn"),
        ("in den 1990er Jahren", "in den neunzehnhundertneunziger Jahren"),
        ("die 80er", "die achtziger"),
        ("20-jährig", "zwanzigjährig"),
        ("§ 5 Abs. 2", "Paragraf fünf Absatz zwei"),
        ("§ 5 S. 1", "Paragraf fünf Satz eins"),
        ("Art. 5 Abs. 2 Nr. 3 S. 4", "Artikel fünf Absatz zwei Nummer drei Satz vier"),
        ("Hausnr. 12", "Hausnummer zwölf"),
        ("S. 15", "Seite fünfzehn"),
        ("Ludwig XIV. war König.", "Ludwig der vierzehnte war König."),
        ("Wilhelm II.", "Wilhelm der zweite."),
        ("Elisabeth II. starb.", "Elisabeth die zweite starb."),
        ("Kapitel IV", "Kapitel vier"),
        ("Version 2.1.3", "Version zwei Punkt eins Punkt drei"),
        ("192.168.1.1",
         "einhundertzweiundneunzig Punkt einhundertachtundsechzig Punkt eins Punkt eins"),
        ("1.234.567", "eine Million zweihundertvierunddreißigtausendfünfhundertsiebenundsechzig"),
        ("2½ Stunden", "zwei Komma fünf Stunden"),
        ("3/4", "drei Viertel"),
        ("24/7", "vierundzwanzig sieben"),
        ("5 x 3", "fünf mal drei"),
        ("3x", "drei mal"),
        ("Es steht 3:2.", "Es steht drei zu zwei."),
        ("4 €/kg", "vier Euro pro Kilogramm"),
        ("100 Mbit/s", "einhundert Megabit pro Sekunde"),
        ("ca. 20 Min.", "circa zwanzig Minuten."),
        ("0,99 €", "neunundneunzig Cent"),
        ("5,- €", "fünf Euro"),
        ("1 Frau, 1 Mann", "eine Frau, ein Mann"),
        ("1 von 5", "eins von fünf"),
        ("um 7.05.", "um sieben Uhr fünf."),
        ("am 3/10", "am dritten Oktober"),
        ("10 20 30 40", "zehn zwanzig dreißig vierzig"),
        ("Mo.–Fr. 8–17 Uhr, Sa. 9–12 Uhr",
         "Montag bis Freitag acht bis siebzehn Uhr, Samstag neun bis zwölf Uhr"),
        ("Di.+Do. oder Mo-Fr geöffnet", "Dienstag und Donnerstag oder Montag bis Freitag geöffnet"),
        ("Fr. Müller kommt am Fr. um 8 Uhr.", "Frau Müller kommt am Freitag um acht Uhr."),
        ("Art. 3 Abs. 2", "Artikel drei Absatz zwei"),
        ("§ 5 Abs. 1 S. 2, §§ 5–7",
         "Paragraf fünf Absatz eins Satz zwei, Paragrafen fünf bis sieben"),
        ("im 2. OG, 3. UG und EG",
         "im zweiten Obergeschoss, drittes Untergeschoss und Erdgeschoss"),
        ("5 l/100 km", "fünf Liter pro einhundert Kilometer"),
        ("12 µg/m³ oder 90 mg/dl",
         "zwölf Mikrogramm pro Kubikmeter oder neunzig Milligramm pro Deziliter"),
        ("1. Jan.", "erster Januar."),
        ("am 3. Mrz. 2026", "am dritten März zweitausendsechsundzwanzig"),
        ("Tel.: 030 1234567", "Telefon null drei null, eins zwei drei vier fünf sechs sieben"),
        ("ca. 3 Std.", "circa drei Stunden."),
        ("₹1,00,000 oder Rs. 5,000", "einhunderttausend Rupien oder fünftausend Rupien"),
        ("₹3 crore", "drei crore Rupien"),
        (r"$3 Millionen, CHF 1'234.50",
         "drei Millionen Dollar, eintausendzweihundertvierunddreißig Franken fünfzig"),
        ("$E = mc^2$", "E gleich m c Quadrat"),
        ("5^2, 10⁻³ und 2x + 3", "fünf hoch zwei, zehn hoch minus drei und zwei x plus drei"),
        ("100.000-200.000 Euro", "einhunderttausend bis zweihunderttausend Euro"),
        ("1,00,000–2,00,000", "einhunderttausend bis zweihunderttausend"),
        ("$5-$10 oder 2.000 - 3.000 Euro", "fünf Dollar bis zehn Dollar oder zweitausend bis"
         " dreitausend Euro"),
        ("€1,234.56 und 2.50 €", "eintausendzweihundertvierunddreißig Euro sechsundfünfzig und"
         " zwei Euro fünfzig"),
        ("₹1 crore, -₹500", "ein crore Rupien, minus fünfhundert Rupien"),
        ("vom 3.–5. Mai, am 3. und 4. Okt. 2024", "vom dritten bis fünften Mai, am dritten und"
         " vierten Oktober zweitausendvierundzwanzig"),
        ("Mo-Fr 8-17h", "Montag bis Freitag acht bis siebzehn Uhr"),
        ("8.30 bis 9 Uhr, 8.00-17.00", "acht Uhr dreißig bis neun Uhr, acht Uhr bis siebzehn Uhr"),
        ("Nr. 1.10-1.20", "Nummer eins Komma eins null bis eins Komma zwei null"),
        ("3. Mai 2024", "dritter Mai zweitausendvierundzwanzig"),
        ("19. Jahrhundert\n1. Bundesliga", "neunzehntes Jahrhundert. erste Bundesliga"),
        ("1. OG\n19. Jh.", "erstes Obergeschoss. neunzehntes Jahrhundert."),
        ("1. Maier\n2) Mai\n3. Mehl", "eins, Maier. zwei, Mai. drei, Mehl"),
        ("1.-3. Klasse, im 3. und 4. Stock", "erste bis dritte Klasse, im dritten und vierten"
         " Stock"),
        ("5,50 €/Stück, 10 kWh/Jahr", "fünf Euro fünfzig pro Stück, zehn Kilowattstunden pro Jahr"),
        ("m. E. in Zi. 204, Gl. 5", "meines Erachtens in Zimmer zweihundertvier, Gleis fünf"),
        ("9,8 m/s²", "neun Komma acht Meter pro Quadratsekunde"),
        ("$x_1 \\leq 3{,}14$ und $\\frac{1}{2}$",
         "x eins kleiner oder gleich drei Komma eins vier und ein halb"),
        ("n ≥ 8 und 5 $", "n größer oder gleich acht und fünf Dollar"),
    ],
    "fr": [
        ("9h-18h30, 1m80, 2 h 05 min", "neuf heures à dix-huit heures trente, un mètre"
         " quatre-vingts, deux heures cinq minutes"),
        ("aux XVIIe-XIXe siècles, 16e–18e", "aux dix-septième à dix-neuvième siècles, seizième à"
         " dix-huitième"),
        ("1. Farine : 200 g\n2. Œufs : 3", "un, Farine: deux cents grammes. deux, Œufs: trois"),
        ("06.12.34.56.78, en janv. 2026", "zéro six, un deux, trois quatre, cinq six, sept huit, en"
         " janvier deux mille vingt-six"),
        ("15/20, 1:25 000", "quinze sur vingt, un à vingt-cinq mille"),
        ("5 millions €, ½ tasse", "cinq millions d'euros, une demi tasse"),
        ("1 sœur, 21 voitures, 1 musée", "une sœur, vingt et une voitures, un musée"),
        ("Pie X, mot de passe : 4711", "Pie dix, mot de passe: quatre sept un un"),
        ("1 h 30 min, St-Jean", "une heure trente minutes, Saint Jean"),
        ("M. et Mme Petit", "Monsieur et Madame Petit"),
        ("Lundi-vendredi, janv.-mars", "lundi à vendredi, janvier à mars"),
        ("1/2 L, 3/4 h", "un demi litre, trois quarts d'heure"),
        ("2 c. à s. de sel", "deux cuillère à soupe de sel"),
        ("3 fois/jour, 2x/mois", "trois fois par jour, deux fois par mois"),
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
        ("de 9h–17h", "de neuf heures à dix-sept heures"),
        ("8h30-12h", "huit heures trente à douze heures"),
        ("à 7 h 05", "à sept heures cinq"),
        ("0h30", "zéro heure trente"),
        ("XXIe siècle", "vingt et unième siècle"),
        ("la IIe Guerre mondiale", "la deuxième Guerre mondiale"),
        ("Louis XIV", "Louis quatorze"),
        ("François Ier", "François premier"),
        ("chapitre IV", "chapitre quatre"),
        ("version 2.1.3", "version deux point un point trois"),
        ("N° 3", "numéro trois"),
        ("n°5", "numéro cinq"),
        ("p. 15", "page quinze"),
        ("24h/24 et 7j/7", "vingt-quatre heures sur vingt-quatre et sept jours sur sept"),
        ("1 000 000 €", "un million d'euros"),
        ("3,5 M€", "trois virgule cinq millions d'euros"),
        ("2 000 000 km", "deux millions de kilomètres"),
        ("0,99 €", "quatre-vingt-dix-neuf centimes"),
        ("1 fois, 1 homme", "une fois, un homme"),
        ("le 3/10", "le trois octobre"),
        ("5 €/kg", "cinq euros par kilogramme"),
        ("5 x 3", "cinq fois trois"),
        ("lun.–ven. 9h–17h", "lundi à vendredi neuf heures à dix-sept heures"),
        ("art. 3 al. 2, §§ 5-7", "article trois alinéa deux, paragraphes cinq à sept"),
        ("le 3 janv. 2026", "le trois janvier deux mille vingt-six"),
        ("12 µg/m³", "douze microgrammes par mètre cube"),
        ("₹3 crore", "trois crore roupies"),
        ("100 000-200 000 euros", "cent mille à deux cent mille euros"),
        ("le 3-5 mai, 5 €/mois", "le trois à cinq mai, cinq euros par mois"),
        ("$E = mc^2$ et $\\sqrt{x}$", "E égale m c au carré et racine carrée de x"),
    ],
    "es": [
        ("$5 mil, $5 mil millones", "cinco mil dólares, cinco mil millones de dólares"),
        ("los siglos XVI y XVII", "los siglos dieciséis y diecisiete"),
        ("siglos XV-XVI, 8/10", "siglos quince a dieciséis, ocho de diez"),
        ("$20 USD, USD $20", "veinte dólares, veinte dólares"),
        ("½ taza, 1/2 para ti", "media taza, medio para ti"),
        ("1 imagen, 1 frase, 1 mensaje", "una imagen, una frase, un mensaje"),
        ("1500 personas", "mil quinientas personas"),
        ("Carlos I, Isabel I, Malcolm X", "Carlos primero, Isabel primera, Malcolm X"),
        ("1/2 h, 1/4 kg", "media hora, un cuarto de kilogramo"),
        ("2 cdas. de sal", "dos cucharadas de sal"),
        ("912-345-678", "nueve uno dos, tres cuatro cinco, seis siete ocho"),
        ("A las 15:30 hace 20 °C.", "A las quince y treinta hace veinte grados Celsius."),
        ("a la 1:00", "a la una"),
        ("El 3 de octubre de 2026", "El tres de octubre de dos mil veintiséis"),
        ("el 3/10/2026", "el tres de octubre de dos mil veintiséis"),
        ("Cuesta 5,50 €.", "Cuesta cinco euros con cincuenta."),
        ("21 km, 200 horas y 1 perro", "veintiún kilómetros, doscientas horas y un perro"),
        ("la 1ª vez, el 1.er piso", "la primera vez, el primer piso"),
        ("El Sr. García, p. ej. Juan", "El señor García, por ejemplo Juan"),
        ("21 días", "veintiún días"),
        ("siglo XXI", "siglo veintiuno"),
        ("Felipe VI", "Felipe sexto"),
        ("Alfonso XIII", "Alfonso trece"),
        ("Isabel II", "Isabel segunda"),
        ("612 345 678", "seis uno dos, tres cuatro cinco, seis siete ocho"),
        ("91 123 45 67", "nueve uno, uno dos tres, cuatro cinco, seis siete"),
        ("1.000.000 €", "un millón de euros"),
        ("1 vez, 1 día", "una vez, un día"),
        ("200 mujeres", "doscientas mujeres"),
        ("a las 7.05", "a las siete y cinco"),
        ("9:30-10:15", "nueve y treinta a diez y quince"),
        ("nº 3", "número tres"),
        ("pág. 15", "página quince"),
        ("0,99 €", "noventa y nueve céntimos"),
        ("versión 2.1.3", "versión dos punto uno punto tres"),
        ("5 €/kg", "cinco euros por kilogramo"),
        ("lun.-vie. 9:00-17:00", "lunes a viernes nueve a diecisiete"),
        ("El art. 3 y el 3 ene. 2026", "El artículo tres y el tres de enero de dos mil veintiséis"),
        ("12 µg/m³", "doce microgramos por metro cúbico"),
        ("₹1,00,000", "cien mil rupias"),
        ("Tel. 912 345 678.", "Teléfono nueve uno dos, tres cuatro cinco, seis siete ocho."),
        ("8.30-14.00 h", "ocho y treinta a catorce"),
        ("Tarda 9,58 s. 2 veces", "Tarda nueve coma cincuenta y ocho segundos dos veces"),
        ("s. XIX, RR. HH., C/ Mayor", "siglo diecinueve, recursos humanos, calle Mayor"),
        ("20 °C/68 °F", "veinte grados Celsius, sesenta y ocho grados Fahrenheit"),
        ("$E = mc^2$", "E igual a m c al cuadrado"),
    ],
    "it": [
        ("1 mln €", "un milione di euro"),
        ("XVI e XVII secolo, XIX-XX secolo", "sedicesimo e diciassettesimo secolo, diciannovesimo a"
         " ventesimo secolo"),
        ("nei secoli XVI e XVII", "nei secoli sedici e diciassette"),
        ("€ 5 mila, 5 mln €, ½ tazza", "cinque mila euro, cinque milioni di euro, mezza tazza"),
        ("1 canzone, 1 foto, 1 cane", "una canzone, una foto, un cane"),
        ("nel 2023", "nel duemilaventitré"),
        ("1/2 h, 1/2 l, 2/3, 1/3", "mezza ora, mezzo litro, due terzi, un terzo"),
        ("Alle 15:30 ci sono 20 °C.", "Alle quindici e trenta ci sono venti gradi Celsius."),
        ("Il 1 maggio 2026", "Il primo maggio duemilaventisei"),
        ("il 03/10/2026", "il tre ottobre duemilaventisei"),
        ("Costa 5,50 €.", "Costa cinque euro e cinquanta."),
        ("1 km, 21 km e 1 h", "un chilometro, ventuno chilometri e un'ora"),
        ("la 2ª volta, il 3º piano", "la seconda volta, il terzo piano"),
        ("Il Sig. Rossi, ad es. 3,14", "Il signor Rossi, ad esempio tre virgola quattordici"),
        ("alle 7.05", "alle sette e cinque"),
        ("alle 9.30-10.15", "alle nove e trenta a dieci e quindici"),
        ("gli anni '90", "gli anni novanta"),
        ("il XXI secolo", "il ventunesimo secolo"),
        ("Luigi XIV", "Luigi quattordicesimo"),
        ("Elisabetta II", "Elisabetta seconda"),
        ("333 1234567", "tre tre tre, uno due tre quattro cinque sei sette"),
        ("1 ora, 1 volta, 1 studente, 1 problema", "un'ora, una volta, uno studente, un problema"),
        ("1.000.000 €", "un milione di euro"),
        ("3,5 mln di euro", "tre virgola cinque milioni di euro"),
        ("n° 3", "numero tre"),
        ("pagg. 3-5", "pagine tre a cinque"),
        ("0,99 €", "novantanove centesimi"),
        ("lun.–ven. 9–17", "lunedì a venerdì nove a diciassette"),
        ("Il dott. Rossi, art. 3 co. 2", "Il dottor Rossi, articolo tre comma due"),
        ("12 µg/m³", "dodici microgrammi per metro cubo"),
        ("₹1,00,000", "centomila rupie"),
        ("30 sec. 5 volte", "trenta secondi cinque volte"),
        ("sec. XIX, C.so Italia", "secolo diciannove, corso Italia"),
        ("$E = mc^2$", "E uguale a m c al quadrato"),
    ],
    "pt": [
        ("R$ 5 mil–R$ 10 mil", "cinco mil reais a dez mil reais"),
        ("½ xícara", "meia xícara"),
        ("1º de maio, séculos XVI e XVII", "primeiro de maio, séculos dezasseis e dezassete"),
        ("1 irmã, 1 coração, 1 foto", "uma irmã, um coração, uma foto"),
        ("n.º 42 passa", "número quarenta e dois passa"),
        ("segunda-sexta, segunda-feira", "segunda a sexta, segunda-feira"),
        ("1/2 h, 3/4 l", "meia hora, três quartos de litro"),
        ("(11) 91234-5678 ou 91234-5678", "um um, nove um dois três quatro, cinco seis sete oito ou"
         " nove um dois três quatro, cinco seis sete oito"),
        ("+55 (21) 3456-7890", "mais cinco cinco, dois um, três quatro cinco seis, sete oito nove"
         " zero"),
        ("Às 15:30 estão 20 °C.", "Às quinze e trinta estão vinte graus Celsius."),
        ("às 7h", "às sete horas"),
        ("Custa 1.000,50 €.", "Custa mil euros e cinquenta."),
        ("R$ 5,99", "cinco reais e noventa e nove"),
        ("5 de maio de 2026", "cinco de maio de dois mil e vinte e seis"),
        ("2 horas e 1 hora", "duas horas e uma hora"),
        ("200 mulheres", "duzentas mulheres"),
        ("século XXI", "século vinte e um"),
        ("D. Pedro II", "Dom Pedro segundo"),
        ("912 345 678", "nove um dois, três quatro cinco, seis sete oito"),
        ("a 2.ª vez", "a segunda vez"),
        ("3-4 dias", "três a quatro dias"),
        ("o Sr. Silva, p. ex.", "o senhor Silva, por exemplo."),
        ("-5 °C", "menos cinco graus Celsius"),
        ("100 km/h", "cem quilómetros por hora"),
        ("seg.–sex. 9h–17h", "segunda a sexta nove horas a dezassete horas"),
        ("R$ 3 milhões", "três milhões de reais"),
        ("12 µg/m³", "doze microgramas por metro cúbico"),
        ("₹1,00,000", "cem mil rupias"),
        ("nos E.U.A., Cel. Souza", "nos Estados Unidos, coronel Souza"),
        ("$E = mc^2$", "E igual a m c ao quadrado"),
    ],
    "nl": [
        ("€ 5 duizend", "vijf duizend euro"),
        ("16e-18e eeuw, om 9.05 u. of", "zestiende tot achttiende eeuw, om negen uur vijf of"),
        ("www.post.nl, €5/u", "post punt nl, vijf euro per uur"),
        ("€ 1,79/l", "één euro negenenzeventig per liter"),
        ("wo 6 nov, zo 6 mensen", "woensdag zes november, zo zes mensen"),
        ("€ 19,99/maand", "negentien euro negenennegentig per maand"),
        ("Om 15.30 uur is het 20 °C.", "Om vijftien uur dertig is het twintig graden Celsius."),
        ("€ 1.000,50", "duizend euro vijftig"),
        ("€ 5,-", "vijf euro"),
        ("3-10-2026", "drie oktober tweeduizendzesentwintig"),
        ("5 mei 2026", "vijf mei tweeduizendzesentwintig"),
        ("de 21e eeuw", "de eenentwintigste eeuw"),
        ("de 3de keer", "de derde keer"),
        ("Willem II", "Willem de tweede"),
        ("10 - 3 = 7", "tien minus drie is zeven"),
        ("100 km/u", "honderd kilometer per uur"),
        ("dhr. Jansen, bijv. hier", "de heer Jansen, bijvoorbeeld hier"),
        ("06-12345678", "nul zes, één twee drie vier vijf zes zeven acht"),
        ("1 kg", "één kilogram"),
        ("2,5 km", "twee komma vijf kilometer"),
        ("van 9–17 uur", "van negen tot zeventien uur"),
        ("ma.–vr. 9–17 uur", "maandag tot vrijdag negen tot zeventien uur"),
        ("blz. 5, art. 3, 3 mrt. 2026",
         "bladzijde vijf, artikel drie, drie maart tweeduizendzesentwintig"),
        ("12 µg/m³", "twaalf microgram per kubieke meter"),
        ("₹1,00,000", "honderdduizend roepie"),
        ("Mw. dr. Bakker, Kerkstr. 5", "mevrouw doctor Bakker, Kerkstraat vijf"),
        ("St. Nicolaas, enz. Toen", "Sint Nicolaas, enzovoort. Toen"),
        ("$E = mc^2$", "E is m c kwadraat"),
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
        assert {"km", "kg", "°C", "%", "km/h", "µg", "m³", "dl"} <= wording.units.keys()
        assert all(one and several for one, several in wording.units.values())


def test_each_language_has_the_same_words_of_mathematics() -> None:
    assert MATHS_WORDS.keys() == {*WORDINGS, "en"}
    for words in MATHS_WORDS.values():
        assert words.keys() - {"log"} == MATHS_WORDS["de"].keys() - {"log"}


LANGUAGE = st.sampled_from(sorted(NUMERALS))
SIGNS = "ab1,.5:/-€$%*&+=^~'\"0°mkh\\_{}()[]#<>|`\n "


@example("1" + 27 * "0", "es")
@example(15 * "1" + "º", "es")
@example(20 * "1" + "ª", "pt")
@example("1" + 110 * ",000" + "th", "en")
@given(st.text(max_size=100) | st.text(SIGNS, max_size=60), LANGUAGE)
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
        ("en", "So the min. is not there.", "So the min. is not there."),
        ("de", "Hier ist Dr. med. Hans Meier.", "Hier ist Doktor Hans Meier."),
        ("fr", "Il habite ici, esc. 2 à droite.", "Il habite ici, escalier deux à droite."),
        ("pt", "Vive aqui no apto. 5 da rua.", "Vive aqui no apartamento cinco da rua."),
        ("pt", "Esta é a Profª. Lima da aula.", "Esta é a professora Lima da aula."),
        ("nl", "Lees hier art. 5 jo. Art. 6 na.", "Lees hier artikel vijf jo. Artikel zes na."),
        ("de", "Kaiser Wilhelm II. ging fort.", "Kaiser Wilhelm der zweite ging fort."),
        ("fr", "Il faut que le min. soit deux.", "Il faut que le min. soit deux."),
        ("nl", "Hij woont in de Kerkstr. daar.", "Hij woont in de Kerkstraat daar."),
        ("nl", "Het huisnr. 12 klopt helemaal.", "Het huisnummer twaalf klopt helemaal."),
        ("de", "Ihre Kontonr. lautet immer so.", "Ihre Kontonummer lautet immer so."),
        ("de", "Siehe auch Beisp. 2 im Buch da.", "Siehe auch Beispiel zwei im Buch da."),
        ("de", "Er ist tägl. 2 Stunden bei uns.", "Er ist tägl. zwei Stunden bei uns."),
        ("fr", "On voit parag. 4 du gros livre.", "On voit paragraphe quatre du gros livre."),
        ("it", "Si trova al num. 5 di via Roma.", "Si trova al numero cinque di via Roma."),
        ("es", "Es la casa de la ctra. 5 aquí.", "Es la casa de la carretera cinco aquí."),
        ("pt", "Vive aqui no apart. 5 da rua.", "Vive aqui no apartamento cinco da rua."),
        ("en", "Write to us in Calif. or so.", "Write to us in California or so."),
        ("de", "Dann kam Hptm. Koch zu uns hin.", "Dann kam Hptm. Koch zu uns hin."),
        ("de", "Es liegt bei 10° nördl. Breite.", "Es liegt bei zehn Grad nördl. Breite."),
        ("de", "Es gibt jährl. Kosten und mehr.", "Es gibt jährl. Kosten und mehr."),
        ("de", "Wir zählen die natürl. Zahlen.", "Wir zählen die natürl. Zahlen."),
        ("de", "Es gibt dort ähnl. Fälle genug.", "Es gibt dort ähnl. Fälle genug."),
        (
            "de",
            "Das sind menschl. Fehler, sonst nichts.",
            "Das sind menschl. Fehler, sonst nichts.",
        ),
        ("de", "Es gibt versch. Sorten und Wein.", "Es gibt versch. Sorten und Wein."),
        ("de", "Man isst gern franz. Küche hier.", "Man isst gern franz. Küche hier."),
        ("en", "Then came Cdr. Bond to us all.", "Then came Cdr. Bond to us all."),
        ("pt", "Depois veio Gov. Silva e foi.", "Depois veio Gov. Silva e foi."),
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


@pytest.mark.parametrize(
    ("language", "sound"),
    [("en", "Hmm."), ("en", "Mhm."), ("en", "Shh."), ("de", "Hm."), ("de", "Pst."), ("es", "Brr.")],
)
def test_a_sentence_ends_at_a_sound_without_vowels(language: str, sound: str) -> None:
    first, *_ = ends(f"{sound} Und Koch.", closed=True, language=language)
    assert (first.at, first.border) == (len(sound), Border.SENTENCE)


@pytest.mark.parametrize("short", ["menschl.", "jährl.", "nördl.", "persönl.", "franz.", "versch."])
def test_no_sentence_ends_at_a_shortened_adjective(short: str) -> None:
    first, *_ = ends(f"Dort {short} Arten.", closed=True, language="de")[1:]
    assert first.at > len(f"Dort {short}")
