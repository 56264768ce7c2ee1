"""Languages as clients write them, as ISO 639-1 codes. Pure."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MOST_CHARS = 60
"""Longer texts name no language."""

_DETECT = frozenset(
    {"auto", "automatic", "autodetect", "any", "detect", "und", "mul", "multi", "multilingual"}
)

_LANGUAGES = """
aa aar afar; ab abk abkhazian; ae ave avestan; af afr afrikaans; ak aka akan; am amh amharic;
an arg aragonese; ar ara arabic العربية arb; as asm assamese; av ava avaric; ay aym aymara;
az aze azerbaijani; ba bak bashkir; be bel belarusian; bg bul bulgarian; bi bis bislama;
bm bam bambara; bn ben bengali; bo bod tib tibetan; br bre breton; bs bos bosnian;
ca cat catalan valencian; ce che chechen; ch cha chamorro; co cos corsican; cr cre cree;
cs ces cze czech čeština; cu chu church_slavic; cv chv chuvash; cy cym wel welsh;
da dan danish dansk; de deu ger german deutsch; dv div divehi; dz dzo dzongkha; ee ewe ewe;
el ell gre greek ελληνικά; en eng english; eo epo esperanto;
es spa spanish español espanol castilian; et est estonian ekk; eu eus baq basque;
fa fas per persian farsi; ff ful fulah; fi fin finnish suomi; fj fij fijian; fo fao faroese;
fr fra fre french français francais; fy fry western_frisian; ga gle irish; gd gla scottish_gaelic;
gl glg galician; gn grn guarani; gu guj gujarati; gv glv manx; ha hau hausa; he heb hebrew iw;
hi hin hindi; ho hmo hiri_motu; hr hrv croatian; ht hat haitian; hu hun hungarian;
hy hye arm armenian; hz her herero; ia ina interlingua;
id ind indonesian bahasa_indonesia in; ie ile interlingue;
ig ibo igbo; ii iii sichuan_yi; ik ipk inupiaq; io ido ido; is isl ice icelandic;
it ita italian italiano; iu iku inuktitut; ja jpn japanese 日本語; jv jav javanese;
ka kat geo georgian; kg kon kongo; ki kik kikuyu; kj kua kuanyama; kk kaz kazakh;
kl kal kalaallisut; km khm khmer; kn kan kannada; ko kor korean 한국어; kr kau kanuri;
ks kas kashmiri; ku kur kurdish; kv kom komi; kw cor cornish; ky kir kirghiz; la lat latin;
lb ltz luxembourgish; lg lug ganda; li lim limburgan; ln lin lingala; lo lao lao;
lt lit lithuanian; lu lub luba-katanga; lv lav latvian lvs; mg mlg malagasy; mh mah marshallese;
mi mri mao maori; mk mkd mac macedonian; ml mal malayalam; mn mon mongolian; mr mar marathi;
ms msa may malay zsm; mt mlt maltese; my mya bur burmese; na nau nauru; nd nde north_ndebele;
ne nep nepali; ng ndo ndonga; nl nld dut dutch nederlands flemish; nn nno norwegian_nynorsk;
no nor norwegian nb nob bokmål norsk; nr nbl south_ndebele; nv nav navajo; ny nya chichewa;
oc oci occitan; oj oji ojibwa; om orm oromo; or ori oriya; os oss ossetian; pa pan panjabi;
pi pli pali; pl pol polish polski; ps pus pushto; pt por portuguese português portugues;
qu que quechua; rm roh romansh; rn run rundi; ro ron rum romanian moldavian;
ru rus russian русский; rw kin kinyarwanda; sa san sanskrit; sc srd sardinian; sd snd sindhi;
se sme northern_sami; sg sag sango; si sin sinhala; sk slk slo slovak; sl slv slovenian;
sm smo samoan; sn sna shona; so som somali; sq sqi alb albanian; sr srp serbian; ss ssw swati;
st sot southern_sotho; su sun sundanese; sv swe swedish svenska; sw swa swahili swh; ta tam tamil;
te tel telugu; tg tgk tajik; th tha thai ไทย; ti tir tigrinya; tk tuk turkmen;
tl tgl tagalog fil filipino; tn tsn tswana; to ton tonga; tr tur turkish türkçe; ts tso tsonga;
tt tat tatar; tw twi twi; ty tah tahitian; ug uig uighur; uk ukr ukrainian українська;
ur urd urdu; uz uzb uzbek; ve ven venda; vi vie vietnamese tiếng_việt; vo vol volapük;
wa wln walloon; wo wol wolof; xh xho xhosa; yi yid yiddish; yo yor yoruba; za zha zhuang;
zh zho chi chinese cmn mandarin 中文 简体中文 繁體中文; zu zul zulu;
haw hawaiian; yue cantonese
"""
"""Each code with its ISO 639-2 codes and names; from ISO 639-3's table. Hawaiian and Cantonese have
no code of two letters."""

_CODES = {name: names[0] for names in map(str.split, _LANGUAGES.split(";")) for name in names}


def asks_to_detect(text: str) -> bool:
    """Whether ``text`` asks to detect the language, as ``auto`` does."""
    return re.split(r"[\W_]", text.strip().lower(), maxsplit=1)[0] in _DETECT


def language_code(text: str) -> str:
    """ISO 639-1 for a code of ISO 639-1 or 639-2, a BCP 47 tag (``zh-CN``, ``pt_BR``), or a name
    (``English (US)``); empty if ``text`` names no language."""
    return "" if len(text) > MOST_CHARS else _code(text)


@lru_cache(maxsize=256)
def _code(text: str) -> str:
    normalized = unicodedata.normalize("NFKC", text).lower()
    words = [word for word in re.split(r"[\W_]+", normalized) if word]
    if not words:
        return ""
    if code := _CODES.get("_".join(words)):
        return code
    if len(text.split()) == 1:
        return _CODES.get(words[0], "")
    names = (each for each in (words[0], words[-1]) if len(each) > 3 and each != "latin")
    return next((_CODES[name] for name in names if name in _CODES), "")
