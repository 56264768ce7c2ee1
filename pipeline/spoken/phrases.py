"""Where an English sentence may be cut so that both parts sound as if it was meant. Pure."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


PRONOUNS = _set("i you he she it we they who that this there what which")
"""They lean on a verb that follows."""

LEANING = PRONOUNS | _set("""
    a an the my your his her its our their these those some any no every each either neither both
    such another other many much more most few less least all half several
    and or but nor so if as than because while although though unless until when where whose whom
    how why whether since
    of in on at by to from with without for about into onto over under through between among during
    before after behind above below near against along around across towards via per like beyond
    within upon off up down out
    is are was were be been being am isn't aren't wasn't weren't
    do does did don't doesn't didn't have has had haven't hasn't hadn't having
    can could will would shall should may might must can't couldn't won't wouldn't shouldn't cannot
    not very really quite too just only even also rather pretty almost nearly still never always
    i'm you're he's she's it's we're they're that's there's what's who's i've you've we've they've
    i'll you'll he'll she'll it'll we'll they'll i'd you'd he'd she'd we'd they'd let's let
    mr mrs ms dr prof st mt vs eg ie new great united north south east west san los las
    one two three four five six seven eight nine ten twenty thirty hundred thousand million
    first second third last next same own little big good big old young small long
""")
"""Words that the next one belongs to: a piece that ends with one of them sounds broken off."""

OBJECTS = _set("you it that this there her")
"""They lean on what follows, unless a new part begins there: "I can help you | with that"."""

CLINGING = _set("of ago old away o'clock percent degrees dollars euros pounds meters kilometers")
"""They belong to the word before them."""

COUNTING = _set("or nor and then")
"""Between two numbers they join no parts: "2 and 3"."""

JOINING = _set("""
    and or but nor so because while although though unless until when where whereas which who whose
    that if since before after then
""")
"""Words that a new part of the sentence begins with."""

VERBS = _set("""
    is are was were has have had will would can could should may might must does did isn't aren't
    wasn't won't can't doesn't didn't
""")
"""They begin what is said of the words before them, unless those are a pronoun."""

PLACING = _set("""
    in on at by with without from for about into onto over under through between among during
    against along around across towards like as i he she we they i'm i'll i've we're we'll we've
    he's she's they're it's you're you'll
""")
"""A new part may begin with them, a little less clearly."""

ABBREVIATIONS = _set("""
    mr mrs ms messrs dr prof st mt ft vs etc e.g i.e eg ie eq eqs figs vol vols ch pp p approx
    gov sen gen col capt lt sgt cpl adm rev hon jr sr esq inc ltd corp co bros ave blvd rd dept
    est al ca cf viz resp ext tel para sec secs arts rs hrs mins max min incl excl intl natl
    univ ed eds jan feb apr jun jul aug sep sept oct nov dec tbsp tsp oz lb lbs hr misc assn pres
    supt maj pt pte rm bldg apt ste attn temp avg pvt assoc rep amb atty cmdr
    brig insp det mme mlle ald treas dist ofc comdr
""")
"""A full stop behind them ends no sentence, or may not."""
