"""Deciding on speech over an answer, as a pure function of its features."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.settings import BargeIn, PolicyName, lexicon_of
from pipeline.turn_taking.barge_in import (
    POLICIES,
    Overlap,
    OverlapReview,
    Verdict,
    interrupts,
    judge,
)
from reachy_voice.testing.words import ENGLISH, LEXICONS

pytestmark = pytest.mark.quick

WORDS = BargeIn()
ANSWER = "Once upon a time there was a small robot who lived on a desk"


@pytest.mark.parametrize(
    ("text", "ended", "verdict"),
    [
        # A command is one from its first word on.
        ("Stop.", False, "command"),
        ("Wait, I have", False, "command"),
        ("No!", False, "command"),
        ("Step.", True, "command"),  # as it may be read
        ("Start.", True, "command"),
        ("Quite.", True, "command"),  # it may begin "Quite right", but has ended
        # A word that may begin an encouragement ("what a story") is none yet.
        ("What", False, "unsure"),
        ("And what is the weather?", True, "words"),
        # A listener may yet say more.
        ("Mm-hmm.", False, "unsure"),
        ("Mm-hmm.", True, "backchannel"),
        ("Yeah, right.", True, "backchannel"),
        ("Oh, I see.", True, "backchannel"),
        ("Okay but who", True, "words"),
        ("Yeah yeah yeah yeah yeah.", True, "backchannel"),
        # Half a word is read for another one.
        ("You have", False, "unsure"),
        ("The word.", True, "too short"),
        ("Bright.", True, "backchannel"),
        ("I would like to", True, "words"),
        # Nothing but sound.
        ("", False, "unsure"),
        ("", True, "no words"),
        ("...", True, "no words"),
        # All of its words are like backchannels.
        ("Untrue!", True, "command"),
        (
            "Okay, yeah, right, sure, cool, nice, great, good, fine, true, wow, so, well.",
            True,
            "words",
        ),
    ],
)
def test_words_tell_what_speech_over_an_answer_means(
    text: str, ended: bool, verdict: Verdict
) -> None:
    clear = Overlap(300, ended, text, ANSWER, certainty=0.9, earlier=(text,))
    assert judge(clear, WORDS, ENGLISH) == verdict


def test_an_early_answer_to_a_question_is_meant() -> None:
    early = Overlap(300, True, "Yes.", "like to hear", asks=True)
    assert judge(early, WORDS, ENGLISH) == "words"
    assert judge(replace(early, ended=False), WORDS, ENGLISH) == "unsure"
    assert judge(replace(early, text="Mm-hm."), WORDS, ENGLISH) == "backchannel"
    assert judge(replace(early, asks=False), WORDS, ENGLISH) == "backchannel"


def test_words_that_last_are_meant() -> None:
    assert judge(Overlap(703, False, "My name is"), WORDS, ENGLISH) == "unsure"
    assert judge(Overlap(704, False, "My name is"), WORDS, ENGLISH) == "long"
    assert judge(Overlap(704, False, "Oh yeah right"), WORDS, ENGLISH) == "unsure"
    assert judge(Overlap(900, False, "Yeah yeah"), WORDS, ENGLISH) == "unsure"
    assert judge(Overlap(900, True, "The word."), WORDS, ENGLISH) == "words"
    assert judge(Overlap(899, True, "The word."), WORDS, ENGLISH) == "too short"


LOUDER = Overlap(384, False, "Louder", certainty=0.9, earlier=("Loud.",))


@pytest.mark.parametrize(
    ("overlap", "verdict"),
    [
        (LOUDER, "words"),
        (replace(LOUDER, certainty=0.7), "unsure"),
        # One look alone misreads too often.
        (replace(LOUDER, earlier=(), certainty=1.0), "unsure"),
        # So do early ones; a command or a question is known sooner.
        (replace(LOUDER, speech_ms=383), "unsure"),
        (replace(LOUDER, speech_ms=256, text="Where is", earlier=("Where",)), "question"),
        (replace(LOUDER, speech_ms=256, text="Stop", earlier=("Stop",)), "command"),
        # So is one behind an agreement.
        (replace(LOUDER, text="Okay stop"), "command"),
        # What only stands before "go on" is a command until that has begun.
        (replace(LOUDER, text="No, no,", earlier=("No,",)), "command"),
        (replace(LOUDER, text="No, keep", earlier=("Okay.",)), "unsure"),
        (replace(LOUDER, text="Well, where"), "question"),
        # A greeting asks for attention; another word with this certainty would not do.
        (replace(LOUDER, text="Hello.", certainty=0.8), "question"),
        (replace(LOUDER, certainty=0.8), "unsure"),
        # What agreed at the earlier looks is hardly another word now; what did not agree may be.
        (replace(LOUDER, earlier=("Yeah,", "Yeah, yeah,")), "unsure"),
        (replace(LOUDER, text="You have to", earlier=("Yeah,", "You,", "You have")), "words"),
        (replace(LOUDER, text="You have to", earlier=("Yeah,", "Yeah.")), "unsure"),
        (replace(LOUDER, text="Stop", earlier=("Yeah,", "Stop")), "command"),
    ],
)
def test_words_count_as_soon_as_all_looks_together_make_them_likely(
    overlap: Overlap, verdict: Verdict
) -> None:
    assert judge(overlap, WORDS, ENGLISH) == verdict


@pytest.mark.parametrize(
    ("text", "earlier", "certainty", "verdict"),
    [
        ("Very well, you heard.", ("Very, very.", "Very well.", "Very well."), 0.86, "too short"),
        ("Okay, fair point.", ("Okay,", "Okay."), 0.9, "too short"),
        # One who is plainly heard to say something else means it, and so does one who asks.
        ("Okay, a bit louder.", ("Okay,", "Okay."), 0.9, "words"),
        ("Okay, louder.", ("Okay,", "Okay, loud"), 0.99, "words"),
        ("Okay, but who?", ("Okay,", "Okay."), 0.86, "words"),
        ("Okay, stop.", ("Okay,", "Okay."), 0.86, "command"),
    ],
)
def test_a_word_or_two_after_an_agreement_belong_to_it(
    text: str, earlier: tuple[str, ...], certainty: float, verdict: Verdict
) -> None:
    overlap = Overlap(1150, True, text, certainty=certainty, earlier=earlier)
    assert judge(overlap, WORDS, ENGLISH) == verdict


ENCOURAGEMENTS = {
    "en": "Oh dear me.|I'd never have guessed.|You're a good storyteller.|"
    "Go ahead.|Go on, go on!|Oh no!|No way!|Yeah, keep going.|Tell me more.|What a story!"
    "|And then?|That's so funny!|That is amazing.|I don't believe it.|Okay, continue.|Let's go."
    "|That sounds scary.|What a brave boy!|You're right.|No, he didn't!|I didn't know that."
    "|Sorry, go on.|No, keep going.|Never mind, continue.|Don't mind me, go on.|Go on, sorry."
    "|Sorry for interrupting you, please go on with your story.|Sorry, that was the dog, go on."
    "|No, don't stop.|Hey Reachy, continue.|Please tell me more.|Could you please go on?|Read on."
    "|Continue the story.|Keep reading.|Tell me the rest.|What happened?|What happened after that?"
    "|How does it end?|Sounds delightful.|It sounds magical.|Wait no, go on.|I said go on."
    "|I can imagine.|Love it.|That's my favourite part.|Just wow."
    "|Sorry, my phone. You were saying?|Please do.|Spill it!"
    "|I didn't say anything, go on.|I'm still here, go on.|I'm with you."
    "|I'm talking to my wife, go on.|Thanks, Reachy.|You bet.|How funny is that.|Ooh la la!",
    "de": "Ach du liebe Zeit.|Toll erzählt.|Und wie ging's weiter?|Lass hören.|"
    "Mach weiter.|Erzähl weiter!|Ach nein.|Was für eine Geschichte!|Na klar.|Und dann?"
    "|Das gibt's doch nicht!|Wie aufregend!|Das hätte ich nicht gedacht.|Nicht wahr?"
    "|Entschuldigung, mach weiter.|Nein, erzähl weiter.|Schon gut, rede weiter.|Bitte lies weiter."
    "|Ich wollte dich nicht unterbrechen, erzähl weiter.|Kannst du weitererzählen?"
    "|Mach mit der Geschichte weiter.|Hör nicht auf.|Nein, weiter.|Ich will den Rest hören."
    "|Unfassbar.|Kein Wunder.|Ist ja irre.|Echt jetzt?|Sorry, ich musste niesen, erzähl nur."
    "|Oha.|Sieh mal einer an!|Leuchtet ein.|Das kann ich gut verstehen.|Jetzt wird's spannend!"
    "|Ich habe nichts gesagt, mach weiter.|Ich bin noch da, mach weiter."
    "|Gibt's ja nicht.|Ja gern.|Mann, Mann, Mann."
    "|Ich rede mit meiner Frau, mach weiter.|Danke, Reachy.|Passt schon.|Gefällt mir.|Weiß ich."
    "|Ach nee.|Ohje, der Arme.",
    "fr": "Vas-y.|Oh non !|C’est pas vrai !|Quelle histoire !|Oui, continue.|Et alors ?"
    "|Quelle fille courageuse !|C'est passionnant.|Je m'en doutais."
    "|Pardon, continue.|Non, continue.|Désolé, vas-y.|Ce n'est rien, continue.|Ça fait peur."
    "|S'il te plaît, raconte la suite.|Peux-tu continuer ?|Continue l'histoire.|Ne t'arrête pas."
    "|Je ne voulais pas t'interrompre, continue.|Qu'est-ce qui s'est passé après ça ?"
    "|Fantastique !|Pas étonnant.|Tant mieux pour lui.|Pardon, j'ai éternué, continue."
    "|Je n'ai rien dit, continue.|Je suis toujours là, continue.|Hum, intéressant, raconte."
    "|Oui, s'il te plaît."
    "|Je parle à ma femme, continue.|Merci, Reachy.|Ça marche.|Évidemment.|Ben oui.",
    "es": "Ay Dios mío.|"
    "Sigue.|¡No me digas!|Qué pena.|Sí, cuéntame más.|¿Y luego?"
    "|¡Qué ternura!|Me lo imaginaba.|Eso suena genial."
    "|Perdón, sigue.|No, sigue.|No, continúe.|No pasa nada, continúa.|Sigue leyendo.|No pares."
    "|Sigue con la historia.|Por favor, no te detengas.|¿Puedes seguir, por favor?|¿Cómo termina?"
    "|Disculpe, continúe.|Cuéntame el resto.|¿Qué pasó después de eso?|Quiero saber el final."
    "|Impresionante.|No me extraña.|Me alegro.|¡Órale!"
    "|Sigo aquí, continúa.|Mmm, interesante, cuéntame más.|Siga usted.|Anda, qué curioso."
    "|No, quiero oír más.|No, puedes seguir.|No te quiero interrumpir, sigue.|Sí, por favor."
    "|Estoy hablando con mi mujer, sigue.|Gracias, Reachy.|Ya lo sé.|Obvio.|Muchas gracias.",
    "it": "Vai avanti.|Ma no!|Che peccato.|Sì, continua.|Non ci credo!|E poi?"
    "|Che tenerezza!|Questo non lo sapevo."
    "|Scusa, continua.|No, vai avanti.|Lascia stare, continua.|Non fermarti.|Ti prego, continua."
    "|Continua la storia.|Per favore continua a raccontare.|Puoi continuare?|Come va a finire?"
    "|Raccontami il resto.|Che cosa è successo dopo?|Non volevo interromperti, continua."
    "|Stupendo!|Meno male.|Ah, ecco perché.|Accidenti!|Figurati!"
    "|Non ho detto niente, continua.|Sono ancora qui, continua.|Mmm, interessante, dimmi di più."
    "|Forza, continua."
    "|Sto parlando con mia moglie, continua.|Grazie, Reachy.|Ovvio.|Come no.|Ho tossito, continua.",
    "nl": "Vertel op!|Zeg eens meer.|"
    "Ga door.|Nee toch!|Wat leuk.|Vertel verder.|En toen?|Wat vreemd!|Dat klinkt spannend."
    "|Sorry, ga door.|Nee, ga maar verder.|Laat maar, vertel verder.|Hou niet op.|Lees verder."
    "|Alsjeblieft ga door.|Ga door met het verhaal.|Kun je verder vertellen?|Hoe loopt het af?"
    "|Sorry dat ik je onderbrak, ga verder.|Vertel me de rest.|Wat gebeurde er daarna?"
    "|Prachtig.|Gelukkig maar.|Sorry, dat was de bel, ga maar door."
    "|Goh!|O ja?|Doe maar.|Ga je gang.|Meer graag."
    "|Ik ben er nog, ga door.|Goed zo, ga verder.|Leuk zeg!|Jeetje, wat erg.|Ja, alsjeblieft."
    "|Ik praat met mijn vrouw, ga door.|Bedankt, Reachy.|Weet ik.|Uiteraard.|Vind ik leuk.",
    "pt": "Jura?|Jura mesmo?|"
    "Continua.|Não acredito!|Que pena.|Conta mais.|E depois?|Que loucura!"
    "|Faz todo o sentido."
    "|Desculpa, continua.|Não, continua.|Não, continue.|Deixa lá, continua.|Não pare.|Prossiga."
    "|Continua a história.|Por favor, conta mais.|Pode continuar, por favor.|Como é que acaba?"
    "|Não queria interromper, continua.|Conta o resto.|O que aconteceu depois disso?"
    "|Fantástico!|Ainda bem.|Ui, que medo.|Caramba!"
    "|Eu não disse nada, continua.|Ainda estou aqui, continua.|Hum, interessante, conta mais."
    "|Não, quero ouvir mais.|Não, podes continuar.|Não, estou a ouvir.|Força, continua."
    "|Estou a falar com a minha mulher, continua.|Obrigado, Reachy.|Eu sei.|Óbvio.|Que fixe.",
}
MEANT = {
    "en": "Go back.|No.|No, not that one.|Tell me the time.|Tell me more about cats.|What is that?"
    "|That is wrong.|Oh stop it.|Okay, what time is it?|Yeah, but who was it?|Let's play a game."
    "|That's not true.|That's wrong.|I have a question."
    "|Sorry?|Sorry, stop.|Sorry, no.|No, tell me the time.|No more.|No thanks.|Go on. No, stop."
    "|Never mind.|Please.|Please stop.|Please tell me a joke.|Can you stop?|Continue later.|Wait."
    "|Don't. Stop.|Don't go on.|That's not right.|That's false.|That's incorrect.|That's all."
    "|That's a lie.|That's Paris.|Sounds false.|It sounds incorrect.|That's too loud."
    "|What a stupid answer.",
    "de": "Nein.|Geh schlafen.|Nein, nicht das.|Sag mir die Uhrzeit.|Schön, aber sei still."
    "|Wie spät ist es?|Das ist nicht wahr."
    "|Bitte hör auf.|Entschuldigung, wie spät ist es?|Nein danke.|Nein, nicht weiter."
    "|Das ist ja gelogen.|Das klingt verkehrt.|Das war alles.|Mach später weiter.|Wie bitte?"
    "|Was für eine blöde Antwort.|Das habe ich nicht verstanden.|Das gefällt mir nicht."
    "|Finde ich nicht gut.|Ich rede mit dir.",
    "fr": "Non.|Tais-toi.|Quelle heure est-il ?|C’est faux."
    "|Pardon ?|Pardon, arrête.|Non merci.|Ne continue pas.|Ça fait mal.|C'est tout.|Je veux plus."
    "|C'est inexact.|Peux-tu arrêter ?|Raconte une autre histoire.|Continue plus tard."
    "|C'est incompréhensible.|Quelle réponse stupide.",
    "es": "Para.|No.|¿Qué hora es?|Cuéntame un chiste.|¿Qué dices?"
    "|Perdón, para.|No, para.|No siga.|No continúe.|Por favor, para.|No más.|No, gracias."
    "|Eso es incorrecto.|Eso es todo.|Eso está mal.|Sigue mañana.|¿Puedes parar?|Luego."
    "|Es incomprensible.|No quiero oír más.|No quiero que sigas.|No puedes seguir.|No te oigo."
    "|No me gustaría saber más.|No queremos oír el final.",
    "it": "Fermati.|No.|Che ore sono?|Raccontami una barzelletta.|Che fai?"
    "|Scusa?|Scusa, fermati.|No, non continuare.|Per favore, fermati.|No grazie.|È tutto."
    "|Non è vero.|È errato.|Puoi smettere?|Continua domani.|Come va?|Che cos'è?",
    "nl": "Stop.|Nee.|Hoe laat is het?|Ga weg.|Wat betekent dat?"
    "|Sorry, stop.|Sorry?|Nee, niet verder.|Alsjeblieft stop.|Wat anders.|Dat is onjuist."
    "|Dat is alles.|Nee bedankt.|Kun je stoppen?|Ga later verder.|Hoe gaat het?|Wat nu?"
    "|Wat een stom antwoord.",
    "pt": "Para.|Não.|Que horas são?|Conta uma piada.|Que dizes?"
    "|Desculpa, para.|Não, para.|Não continue.|Não, não continues.|Por favor, para.|É só isso."
    "|Isso está errado.|Isso não é verdade.|Podes parar?|Não, obrigado.|Continua amanhã."
    "|É incompreensível.|Mais curto.|Não quero ouvir mais.|Não quero que continues."
    "|Não podes continuar.|Não é preciso continuar.|Não estou a ouvir.|Não estou a gostar.",
}


@pytest.mark.parametrize("language", ENCOURAGEMENTS)
def test_who_asks_for_more_is_told_more(language: str) -> None:
    lexicon = lexicon_of(LEXICONS, language)

    def stopped(texts: str) -> list[str]:
        verdicts = {
            text: judge(Overlap(1000, True, text), WORDS, lexicon) for text in texts.split("|")
        }
        return [text for text, verdict in verdicts.items() if interrupts(verdict)]

    assert stopped(ENCOURAGEMENTS[language]) == []
    phrases = [text.rstrip(".!? ") for text in ENCOURAGEMENTS[language].split("|") if " " in text]
    assert stopped("|".join(f"{text}, Reachy." for text in phrases if "Reachy" not in text)) == []
    assert stopped(MEANT[language]) == MEANT[language].split("|")


@pytest.mark.parametrize("language", ENCOURAGEMENTS)
def test_a_sound_that_is_drawn_out_is_the_same_backchannel(language: str) -> None:
    lexicon = lexicon_of(LEXICONS, language)
    for text in ("Ohh.", "Ahhh.", "Mmm.", "Hmmmm.", "Hahahaha.", "Hihi.", "Mm-hmm.", "Wooow."):
        overlap = Overlap(1000, True, text, certainty=0.97)
        assert judge(overlap, WORDS, lexicon) == "backchannel", text
    refusal = Overlap(1000, True, "Nee.", certainty=0.97)
    assert interrupts(judge(refusal, WORDS, lexicon_of(LEXICONS, "de")))


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        (
            "en",
            "Be quiet.|That's enough.|Hang on.|Skip it.|Good night.|That's false.|Too loud."
            "|Slow down.|Louder, please.|Shush.|Zip it.|Next one.",
        ),
        ("de", "Sei still.|Das reicht.|Vergiss es.|Gute Nacht.|Langsamer, bitte.|Kenn ich schon."),
        ("fr", "Ça suffit.|Un instant.|C'est faux.|Bonne nuit.|Moins fort.|C'est bon, merci."),
        ("es", "Ya basta.|Un momento.|Buenas noches.|Repite eso.|Más despacio."),
        ("it", "Adesso basta.|Un momento.|Buona notte.|Più forte.|Smettila."),
        ("nl", "Nu stil.|Een moment.|Tot ziens.|Zachter.|Langzamer."),
        ("pt", "Já chega.|Um momento.|Boa noite.|Outra história."),
    ],
)
def test_two_quick_words_interrupt_if_one_of_them_is_a_command(language: str, texts: str) -> None:
    for text in texts.split("|"):
        quick = judge(Overlap(600, True, text), WORDS, lexicon_of(LEXICONS, language))
        assert interrupts(quick), text


def test_an_encouragement_that_has_only_begun_is_not_long_speech() -> None:
    for text in ("Go", "Tell me", "I don't", "What a", "Yeah, and"):
        assert judge(Overlap(800, False, text), WORDS, ENGLISH) == "unsure", text
    assert judge(Overlap(800, False, "Tell me your"), WORDS, ENGLISH) == "long"
    assert judge(Overlap(800, False, "Can you"), WORDS, ENGLISH) == "long"


def test_long_sound_without_words_lets_the_answer_go_on() -> None:
    assert judge(Overlap(639, False, ""), WORDS, ENGLISH) == "unsure"
    assert judge(Overlap(640, False, ""), WORDS, ENGLISH) == "no words"


def test_the_answers_own_words_are_its_echo() -> None:
    assert judge(Overlap(600, False, "a small robots who", ANSWER), WORDS, ENGLISH) == "echo"
    assert judge(Overlap(704, False, "a small cat please", ANSWER), WORDS, ENGLISH) == "long"
    # "Can you stop the water leak?", read over an echo that is as loud.
    assert (
        judge(Overlap(704, False, "in the stock", "there in the house"), WORDS, ENGLISH) == "long"
    )
    # How the answer's own sentence begins, of which more is heard in a moment.
    which = Overlap(
        400, False, "which", "which one", cancels_echo=True, certainty=0.9, earlier=("which",)
    )
    assert judge(which, WORDS, ENGLISH) == "unsure"
    assert judge(replace(which, answer_words="please come"), WORDS, ENGLISH) == "question"
    # One word of it among others is a coincidence.
    shared = replace(which, text="which station now", earlier=("which station",))
    assert judge(shared, WORDS, ENGLISH) == "question"
    stop = replace(which, text="stop", answer_words="stop it", earlier=("stop",))
    assert judge(stop, WORDS, ENGLISH) == "command"
    # One word alone may be anybody's.
    assert judge(Overlap(704, False, "Robot", ANSWER), WORDS, ENGLISH) == "long"


@pytest.mark.parametrize(
    ("speech_ms", "ended", "verdict"),
    [(200, False, "unsure"), (200, True, "no words"), (704, False, "long")],
)
def test_speech_that_cannot_be_read_counts_by_its_length(
    speech_ms: int, ended: bool, verdict: Verdict
) -> None:
    assert judge(Overlap(speech_ms, ended, None), WORDS, ENGLISH) == verdict


def test_a_robot_that_is_to_be_heard_out_stops_for_commands_alone() -> None:
    settings = BargeIn(policy="commands")
    stop = Overlap(300, False, "Stop", certainty=0.9, earlier=("Stop",))
    assert judge(stop, settings, ENGLISH) == "command"
    assert judge(Overlap(900, False, "Please stop it"), settings, ENGLISH) == "command"
    assert judge(Overlap(900, False, "What is the"), settings, ENGLISH) == "unsure"
    assert judge(Overlap(900, True, "What is the time?"), settings, ENGLISH) == "no command"
    assert judge(Overlap(300, True, "Mm-hmm"), settings, ENGLISH) == "backchannel"


def test_any_speech_interrupts_at_once_where_that_is_wanted() -> None:
    assert judge(Overlap(0, False, None), BargeIn(policy="any-speech"), ENGLISH) == "any speech"


@given(
    st.sampled_from(sorted(POLICIES)),
    st.integers(0, 10_000),
    st.none() | st.text(max_size=30),
    st.text(max_size=30),
)
def test_a_pause_always_brings_a_verdict(
    policy: PolicyName, speech_ms: int, text: str | None, spoken: str
) -> None:
    verdict = judge(Overlap(speech_ms, True, text, spoken), BargeIn(policy=policy), ENGLISH)
    assert verdict != "unsure"


@pytest.mark.parametrize(
    ("language", "text", "verdict"),
    [
        # Recognisers leave accents and silent letters out.
        ("it", "Si, si.", "backchannel"),
        ("it", "O capito.", "backchannel"),
        ("es", "Ya veo.", "backchannel"),
        ("fr", "Arrete !", "command"),
        # The first word may begin a question, too.
        ("it", "È vero.", "backchannel"),
        ("it", "È vero che piove?", "question"),
        ("pt", "É verdade.", "backchannel"),
        ("pt", "Está bem.", "backchannel"),
        ("de", "Ich verstehe.", "backchannel"),
        ("nl", "Ik snap het.", "backchannel"),
        # A pronoun hangs on the command.
        ("fr", "Tais-toi.", "command"),
        ("pt", "Cala-te.", "command"),
        ("pt", "Silencio.", "command"),
        ("es", "Callate.", "command"),
        ("en", "Don’t.", "command"),
        # A word that opens a question is no misheard command: "what" is like "wait".
        ("en", "What is the time?", "question"),
    ],
)
def test_words_as_a_recogniser_writes_them(language: str, text: str, verdict: Verdict) -> None:
    overlap, lexicon = Overlap(700, True, text), lexicon_of(LEXICONS, language)
    assert judge(overlap, WORDS, lexicon) == verdict
    commands_alone = judge(overlap, BargeIn(policy="commands"), lexicon)
    assert (commands_alone == "command") == (verdict == "command")


@pytest.mark.parametrize(
    ("language", "command", "agreement", "question"),
    [
        ("de", "Warte!", "Ja, genau.", "Wann ist"),
        ("fr", "Attends !", "Oui, d'accord.", "Comment tu"),
        ("es", "¡Espera!", "Sí, claro.", "Cuándo es"),
        ("it", "Aspetta!", "Sì, certo.", "Quando è"),
        ("pt", "Espera!", "Sim, claro.", "Quando é"),
        ("nl", "Wacht!", "Ja, precies.", "Wanneer is"),
    ],
)
def test_each_language_has_its_own_words(
    language: str, command: str, agreement: str, question: str
) -> None:
    for lexicon in (lexicon_of(LEXICONS, language), lexicon_of(LEXICONS, "")):
        clear = Overlap(300, False, command, certainty=0.9, earlier=(command,))
        assert judge(clear, WORDS, lexicon) == "command"
        assert judge(Overlap(300, True, agreement, ""), WORDS, lexicon) == "backchannel"
        asked = replace(clear, text=question, earlier=(question,))
        assert interrupts(judge(asked, WORDS, lexicon))


def test_a_language_without_words_is_neutral() -> None:
    neutral = lexicon_of(LEXICONS, "fi")
    stop = Overlap(300, False, "Stop.", certainty=0.9, earlier=("Stop.",))
    assert judge(stop, WORDS, neutral) == "unsure"
    assert judge(Overlap(704, False, "Stop."), WORDS, neutral) == "long"


def test_speech_over_an_answer_that_had_gone_on_is_early_again() -> None:
    review = OverlapReview(WORDS, 0)
    review.resume(8000, anew=False)
    assert review.onset == 0
    review.resume(16_000, anew=True)
    assert review.onset == 16_000
