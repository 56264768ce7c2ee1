"""The words of mathematics, by language. Data only; ``pipeline.spoken.maths`` reads them."""

from __future__ import annotations


def _words(text: str) -> dict[str, str]:
    """Of ``sign = word; ...``."""
    pairs = (each.partition(" = ") for each in " ".join(text.split()).split("; "))
    return {sign: word for sign, _, word in pairs}


MATHS_WORDS = {
    "en": _words("""
        = = equals; ≠ = is not equal to; < = is less than; > = is greater than; ≤ = is at most;
        ≥ = is at least; ≈ = is about; ≡ = is equivalent to; ∝ = is proportional to; + = plus;
        - = minus; ± = plus or minus; × = times; ÷ = divided by; / = over; ^ = to the power of;
        ² = squared; ³ = cubed; √ = the square root of; ∛ = the cube root of;
        root = the root with index; ′ = prime; ! = factorial; | = the absolute value of;
        % = percent; ° = degrees; ∞ = infinity; ∈ = in; ∉ = not in; ⊂ = is a subset of; ∪ = union;
        ∩ = intersection; ∅ = the empty set; ∀ = for all; ∃ = there is; ∧ = and; ∨ = or; ¬ = not;
        → = to; ⇒ = implies; ⇔ = if and only if; … = and so on; ∂ = d; ∇ = nabla; ∑ = the sum;
        ∏ = the product; ∫ = the integral; lim = the limit; from = from; to = to; of = of;
        sin = sine; cos = cosine; tan = tangent; ln = natural log; $ = dollars; given = given
    """),
    "de": _words("""
        = = gleich; ≠ = ungleich; < = kleiner als; > = größer als; ≤ = kleiner oder gleich;
        ≥ = größer oder gleich; ≈ = ungefähr; ≡ = äquivalent zu; ∝ = proportional zu; + = plus;
        - = minus; ± = plus minus; × = mal; ÷ = durch; / = durch; ^ = hoch; ² = Quadrat;
        ³ = hoch drei; √ = Wurzel aus; ∛ = dritte Wurzel aus; root = Wurzel mit Exponent;
        ′ = Strich; ! = Fakultät; | = Betrag von; % = Prozent; ° = Grad; ∞ = unendlich;
        ∈ = Element von; ∉ = nicht Element von; ⊂ = Teilmenge von; ∪ = vereinigt mit;
        ∩ = geschnitten mit; ∅ = die leere Menge; ∀ = für alle; ∃ = es gibt; ∧ = und; ∨ = oder;
        ¬ = nicht; → = nach; ⇒ = daraus folgt; ⇔ = genau dann, wenn; … = und so weiter; ∂ = d;
        ∇ = Nabla; ∑ = die Summe; ∏ = das Produkt; ∫ = das Integral; lim = der Grenzwert;
        from = von; to = bis; of = von; sin = Sinus; cos = Kosinus; tan = Tangens;
        log = Logarithmus; ln = natürlicher Logarithmus; $ = Dollar; given = unter der Bedingung
    """),
    "fr": _words("""
        = = égale; ≠ = différent de; < = inférieur à; > = supérieur à; ≤ = inférieur ou égal à;
        ≥ = supérieur ou égal à; ≈ = environ égal à; ≡ = équivalent à; ∝ = proportionnel à;
        + = plus; - = moins; ± = plus ou moins; × = fois; ÷ = divisé par; / = sur;
        ^ = puissance; ² = au carré; ³ = au cube; √ = racine carrée de; ∛ = racine cubique de;
        root = racine d'indice; ′ = prime; ! = factorielle; | = valeur absolue de; % = pour cent;
        ° = degrés; ∞ = l'infini; ∈ = appartient à; ∉ = n'appartient pas à; ⊂ = inclus dans;
        ∪ = union; ∩ = inter; ∅ = l'ensemble vide; ∀ = pour tout; ∃ = il existe; ∧ = et; ∨ = ou;
        ¬ = non; → = vers; ⇒ = implique; ⇔ = équivaut à; … = et ainsi de suite; ∂ = d;
        ∇ = nabla; ∑ = la somme; ∏ = le produit; ∫ = l'intégrale; lim = la limite; from = de;
        to = à; of = de; sin = sinus; cos = cosinus; tan = tangente; ln = logarithme népérien;
        $ = dollars; given = sachant
    """),
    "es": _words("""
        = = igual a; ≠ = distinto de; < = menor que; > = mayor que; ≤ = menor o igual que;
        ≥ = mayor o igual que; ≈ = aproximadamente igual a; ≡ = equivalente a;
        ∝ = proporcional a; + = más; - = menos; ± = más menos; × = por; ÷ = entre; / = sobre;
        ^ = elevado a; ² = al cuadrado; ³ = al cubo; √ = raíz cuadrada de; ∛ = raíz cúbica de;
        root = raíz de índice; ′ = prima; ! = factorial; | = valor absoluto de; % = por ciento;
        ° = grados; ∞ = infinito; ∈ = pertenece a; ∉ = no pertenece a; ⊂ = incluido en;
        ∪ = unión; ∩ = intersección; ∅ = el conjunto vacío; ∀ = para todo; ∃ = existe; ∧ = y;
        ∨ = o; ¬ = no; → = a; ⇒ = implica; ⇔ = si y solo si; … = y así sucesivamente; ∂ = d;
        ∇ = nabla; ∑ = la suma; ∏ = el producto; ∫ = la integral; lim = el límite; from = de;
        to = a; of = de; sin = seno; cos = coseno; tan = tangente; log = logaritmo;
        ln = logaritmo natural; $ = dólares; given = dado
    """),
    "it": _words("""
        = = uguale a; ≠ = diverso da; < = minore di; > = maggiore di; ≤ = minore o uguale a;
        ≥ = maggiore o uguale a; ≈ = circa uguale a; ≡ = equivalente a; ∝ = proporzionale a;
        + = più; - = meno; ± = più o meno; × = per; ÷ = diviso; / = fratto; ^ = elevato a;
        ² = al quadrato; ³ = al cubo; √ = radice quadrata di; ∛ = radice cubica di;
        root = radice di indice; ′ = primo; ! = fattoriale; | = valore assoluto di;
        % = per cento; ° = gradi; ∞ = infinito; ∈ = appartiene a; ∉ = non appartiene a;
        ⊂ = incluso in; ∪ = unione; ∩ = intersezione; ∅ = l'insieme vuoto; ∀ = per ogni;
        ∃ = esiste; ∧ = e; ∨ = o; ¬ = non; → = a; ⇒ = implica; ⇔ = se e solo se;
        … = e così via; ∂ = d; ∇ = nabla; ∑ = la somma; ∏ = il prodotto; ∫ = l'integrale;
        lim = il limite; from = da; to = a; of = di; sin = seno; cos = coseno; tan = tangente;
        log = logaritmo; ln = logaritmo naturale; $ = dollari; given = dato
    """),
    "nl": _words("""
        = = is; ≠ = is niet gelijk aan; < = kleiner dan; > = groter dan;
        ≤ = kleiner dan of gelijk aan; ≥ = groter dan of gelijk aan; ≈ = ongeveer gelijk aan;
        ≡ = equivalent met; ∝ = evenredig met; + = plus; - = min; ± = plus of min; × = keer;
        ÷ = gedeeld door; / = gedeeld door; ^ = tot de macht; ² = kwadraat;
        ³ = tot de derde macht; √ = de wortel van; ∛ = de derdemachtswortel van;
        root = de wortel met index; ′ = accent; ! = faculteit; | = de absolute waarde van;
        % = procent; ° = graden; ∞ = oneindig; ∈ = element van; ∉ = geen element van;
        ⊂ = deelverzameling van; ∪ = verenigd met; ∩ = doorsnede met; ∅ = de lege verzameling;
        ∀ = voor alle; ∃ = er is; ∧ = en; ∨ = of; ¬ = niet; → = naar; ⇒ = impliceert;
        ⇔ = dan en slechts dan als; … = enzovoort; ∂ = d; ∇ = nabla; ∑ = de som;
        ∏ = het product; ∫ = de integraal; lim = de limiet; from = van; to = tot; of = van;
        sin = sinus; cos = cosinus; tan = tangens; log = logaritme;
        ln = natuurlijke logaritme; $ = dollar; given = gegeven
    """),
    "pt": _words("""
        = = igual a; ≠ = diferente de; < = menor que; > = maior que; ≤ = menor ou igual a;
        ≥ = maior ou igual a; ≈ = aproximadamente igual a; ≡ = equivalente a;
        ∝ = proporcional a; + = mais; - = menos; ± = mais ou menos; × = vezes;
        ÷ = a dividir por; / = sobre; ^ = elevado a; ² = ao quadrado; ³ = ao cubo;
        √ = raiz quadrada de; ∛ = raiz cúbica de; root = raiz de índice; ′ = linha;
        ! = fatorial; | = valor absoluto de; % = por cento; ° = graus; ∞ = infinito;
        ∈ = pertence a; ∉ = não pertence a; ⊂ = contido em; ∪ = união; ∩ = interseção;
        ∅ = o conjunto vazio; ∀ = para todo; ∃ = existe; ∧ = e; ∨ = ou; ¬ = não; → = para;
        ⇒ = implica; ⇔ = se e só se; … = e assim por diante; ∂ = d; ∇ = nabla; ∑ = a soma;
        ∏ = o produto; ∫ = o integral; lim = o limite; from = de; to = a; of = de; sin = seno;
        cos = cosseno; tan = tangente; log = logaritmo; ln = logaritmo natural; $ = dólares;
        given = dado
    """),
}
"""By language, ISO 639-1: sign or LaTeX's name -> word. ``from``, ``to``: the bounds of a sum;
``of``: between a function and what it is of; ``root``: before the index of other roots."""

_LETTERS = {
    "es": "alpha alfa phi fi chi ji rho ro epsilon épsilon upsilon ípsilon",
    "it": "alpha alfa theta teta phi fi rho ro kappa cappa upsilon ipsilon",
    "nl": "alpha alfa",
    "pt": "alpha alfa theta teta phi fi chi qui rho ró epsilon épsilon kappa capa",
}


def letter_name(name: str, language: str) -> str:
    """A Greek letter's: ``alpha`` is "alfa" in Spanish."""
    words = _LETTERS.get(language, "").split()
    return dict(zip(words[::2], words[1::2], strict=True)).get(name, name)
