"""Transcripts that no voice in the audio can have said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.engines.contract import Transcript
from pipeline.hearing.plausibility import Segment, invention
from pipeline.settings import Lexicon, lexicon_of, with_inventions
from pipeline.turn_record import Invention
from reachy_voice.testing.words import LEXICONS

pytestmark = pytest.mark.quick

VOICE = Segment(speech_s=0.6, certainty=0.95, after_question=False)
MOTOR = Segment(speech_s=1.4, certainty=0.55, after_question=False)
ROOM = Segment(speech_s=0.37, certainty=0.62, after_question=False)
"""One word in a reverberant room: its scores rise and fall all the time."""
BUZZ = Segment(speech_s=1.4, certainty=0.95, moves=False)
ANSWERED = replace(VOICE, after_question=True)
BARGE_IN = replace(VOICE, over_answer=True)
BUTTON = Segment()
"""The client ended the turn."""


def words_of(language: str) -> Lexicon:
    return with_inventions(LEXICONS, lexicon_of(LEXICONS, language))


def why(text: str, segment: Segment, language: str = "en", s: float = 2.0) -> Invention | None:
    return invention(Transcript(text, s), segment, words_of(language))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("자아요요요", "letters"),
        ("이이이", "letters"),
        ("啊", "letters"),
        ("Спасибо за просмотр.", "letters"),
        ("© transcript Emily Beynon", "credits"),
        ("Thanks for watching!", "credits"),
        ("Thank you so much for watching.", "credits"),
        ("Untertitel der Amara.org-Community", "credits"),
        ("Untertitel von Stephanie Geiges", "credits"),
        ("Untertitelung des ZDF, 2020", "credits"),
        ("Vielen Dank fürs Zuschauen!", "credits"),
        ("Sous-titres réalisés par la communauté d'Amara.org", "credits"),
        ("Subtítulos realizados por la comunidad de Amara.org", "credits"),
        ("Sottotitoli creati dalla comunità Amara.org", "credits"),
        ("Ondertitels ingediend door de Amara.org gemeenschap", "credits"),
        ("Legendas pela comunidade Amara.org", "credits"),
        ("Subtitles by the Amara.org community", "credits"),
        ("Captions by Jane Doe. Thank you for watching, and don't forget to subscribe!", "credits"),
        ("Sous-titrage ST' 501", "credits"),
        ("Sottotitoli e revisione a cura di QTSS", "credits"),
        ("Okay. Thanks for watching!", "credits"),
        ("Thank you. Thanks for watching.", "credits"),
        ("Bye-bye, see you in the next video!", "credits"),
        ("Thanks for watching this video.", "credits"),
        ("Amara.org", "credits"),
        ("Bis zum nächsten Video!", "credits"),
        ("Vielen Dank fürs Zuschauen und bis zum nächsten Video.", "credits"),
        ("SWR 2020", "credits"),
        ("Untertitelung. BR 2018", "credits"),
        ("Merci d'avoir regardé cette vidéo !", "credits"),
        ("À la prochaine vidéo !", "credits"),
        ("Gracias por ver el video.", "credits"),
        ("¡Suscríbete!", "credits"),
        ("Grazie. Grazie per aver guardato il video!", "credits"),
        ("Al prossimo video!", "credits"),
        ("Tot de volgende video!", "credits"),
        ("Bedankt voor het kijken naar deze video.", "credits"),
        ("Legenda Adriana Zanotto", "credits"),
        ("Até ao próximo vídeo!", "credits"),
        ("Hit the bell icon and subscribe.", "credits"),
        ("If you enjoyed this video, please like and subscribe.", "credits"),
        ("Nos vemos en el siguiente video.", "credits"),
        ("N'oubliez pas de liker et de vous abonner.", "credits"),
        ("For more information visit www.FEMA.gov", "credits"),
        ("Transcribed by https://otter.ai", "credits"),
        ("Abonniert den Kanal und lasst ein Like da.", "credits"),
        ("Suscríbete y activa la campanita.", "credits"),
        ("Lascia un like e iscriviti al canale.", "credits"),
        ("Deixe seu like e se inscreva no canal.", "credits"),
        ("Napisy stworzone przez społeczność Amara.org", "credits"),
        ("Tack för att ni har tittat på den här videon.", "credits"),
        ("Teksting av Nicolai Winther", "credits"),
        ("Dziękujemy za oglądanie!", "credits"),
        ("Thanks for watching and I'll see you next time.", "credits"),
        ("I'll see you guys in the next video. Bye!", "credits"),
        ("Transcription Outsourcing, LLC.", "credits"),
        ("Sous-titrage FR 2021", "credits"),
        ("N'hésitez pas à vous abonner à la chaîne.", "credits"),
        ("Subtítulos en español de Amara.org", "credits"),
        ("Non dimenticate di iscrivervi al canale.", "credits"),
        ("Legenda por Sônia Ruberti", "credits"),
        ("Transcription by ESO. Translation by —", "credits"),
        ("Caption by Jane Doe", "credits"),
        ("Satsang with Mooji", "credits"),
        ("Subtitles created by the Amara.org community", "credits"),
        ("Untertitel im Auftrag der ARD", "credits"),
        ("Die Untertitel wurden von der Amara.org-Community erstellt.", "credits"),
        ("N'oubliez pas de liker.", "credits"),
        ("Autore dei sottotitoli e revisione a cura di QTSS", "credits"),
        ("A CIDADE NO BRASIL", "credits"),
        ("Subtitulos realizados por la comunidad de Amara.org", "credits"),
        ("SOUS-TITRES REALISES PAR LA COMMUNAUTE D'AMARA.ORG", "credits"),
        ("N'hesitez pas a vous abonner a la chaine.", "credits"),
        ("Ate o proximo video", "credits"),
        ("Vielen Dank furs Zuschauen", "credits"),
        ("you you you you", "repetition"),
        ("The first one. The first one. The first one. The first", "repetition"),
        ("Okay. " * 12, "repetition"),
        ("So, the first one" + " one" * 11, "repetition"),
        ("Well. " + "Let's go. " * 8, "repetition"),
        ("The one. " * 8 + "The", "repetition"),
        ("The one. " * 8 + "Okay then.", "repetition"),
        ("Thank you. " * 12, "too fast"),
        ("I think we should all go to the beach and have a swim there today." * 2, "too fast"),
    ],
)
@pytest.mark.parametrize("segment", [VOICE, MOTOR, ANSWERED, BARGE_IN, BUTTON])
def test_these_words_are_never_believed(text: str, segment: Segment, reason: Invention) -> None:
    assert why(text, segment) == reason


@pytest.mark.parametrize(
    ("text", "segment", "reason"),
    [
        ("Uh-huh", VOICE, "hum"),
        ("Mm-hmm.", VOICE, "hum"),
        ("Mmmm...", MOTOR, "hum"),
        ("Uh-huh, uh-huh", replace(MOTOR, after_question=True), "hum"),
        ("Mm-hmm.", replace(MOTOR, over_answer=True), "hum"),
        ("Yes, yes, yes, yes", MOTOR, "repetition"),
        ("Yeah.", MOTOR, "hardly speech"),
        ("Thank you.", MOTOR, "hardly speech"),
        ("Thank you.", replace(VOICE, certainty=0.82), "hardly speech"),
        ("Vielen Dank.", replace(VOICE, speech_s=1.5), "hardly speech"),
        ("Let it go.", MOTOR, "hardly speech"),
        ("Stop, stop, stop, stop", MOTOR, "repetition"),
        ("Translated by whom?", MOTOR, "credits"),
        ("Stop.", replace(BARGE_IN, certainty=0.55), "hardly speech"),
        ("And in a different direction.", BUZZ, "hardly speech"),
        ("You can see that", replace(MOTOR, speech_s=0.2), "hardly speech"),
    ],
)
def test_words_that_do_not_fit_the_sound_are_rejected(
    text: str, segment: Segment, reason: Invention
) -> None:
    assert why(text, segment) == reason


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Stop."),
        ("en", "No."),
        ("en", "Yes."),
        ("en", "Thank you."),
        ("en", "no no no no no"),
        ("en", "Yes, yes, yes, yes!"),
        ("en", "Be quiet, be quiet, be quiet, be quiet!"),
        ("en", "Come on, come on, come on, come on!"),
        ("en", "One, two, one, two, one, two, one, two."),
        ("en", "I said no, no, no, no, no, no, no, no, no, no, no, no."),
        ("en", "Stop. " + "Thank you. " * 3),
        ("en", "Ha, ha, ha, ha, ha, ha, ha, ha. So funny!"),
        ("en", "Baby shark doo doo doo doo doo doo."),
        ("en", "Bravo! Bravo! Bravo! Bravo! Bravo! Bravo! Bravo! Bravo! Bravo!"),
        ("de", "Sei still, sei still, sei still, sei still!"),
        ("de", "Danke, danke, danke, danke!"),
        ("en", "Thank you, thank you, thank you, thank you!"),
        ("fr", "Merci, merci, merci, merci !"),
        ("es", "Gracias, gracias, gracias, gracias."),
        ("it", "Grazie mille, grazie mille, grazie mille, grazie mille!"),
        ("de", "Dankeschön, dankeschön, dankeschön, dankeschön!"),
        ("es", "Cállate ya, cállate ya, cállate ya, cállate ya."),
        ("fr", "Tais-toi, tais-toi, tais-toi, tais-toi !"),
        ("fr", "Allez, allez, allez, allez !"),
        ("it", "Stai zitto, stai zitto, stai zitto, stai zitto!"),
        ("nl", "Hou je mond, hou je mond, hou je mond, hou je mond!"),
        ("pt", "Cala a boca, cala a boca, cala a boca, cala a boca!"),
        ("en", "Help."),
        ("en", "Oh,"),
        ("en", "Turn on the subtitles by the window."),
        ("en", "Translation by tomorrow, please."),
        ("pt", "Qual é a cidade no Brasil?"),
        ("fr", "N'oubliez pas de liker la photo de Paul."),
        ("en", "Thanks for watching the kids tonight, what did they eat?"),
        ("en", "Please subscribe me to the newsletter."),
        ("en", "Subtitles by default should be on, how do I do that?"),
        ("en", "I'll see you in the next meeting, what time is it?"),
        ("en", "Translated by whom?"),
        ("en", "Thanks for watching the kids on Monday."),
        ("en", "Thank you for watching Bella while I was away."),
        ("en", "Thanks for watching Bella."),
        ("en", "I'll see you guys on Monday."),
        ("en", "Thanks for watching Bella, I'll see you next time."),
        ("fr", "Sous-titrage en français, s'il te plaît."),
        ("en", "Please subscribe me to Netflix."),
        ("en", "Don't forget to like Anna's picture."),
        ("en", "Subtitles by Netflix are wrong."),
        ("en", "Subtitles by Netflix. Turn them off."),
        ("en", "I'll see you in the next one."),
        ("en", "Stop. Thanks for watching!"),
        ("de", "Untertitel von dem Film bitte ausschalten."),
        ("de", "Untertitel von Netflix sind zu klein."),
        ("de", "Danke fürs Zuschauen bei meinem Spiel am Samstag."),
        ("es", "Gracias por ver a María."),
        ("es", "Subtítulos por defecto en Netflix."),
        ("es", "Subtítulos en español, por favor."),
        ("fr", "Merci d'avoir regardé Paul."),
        ("fr", "Sous-titres par défaut sur Netflix, c'est possible ?"),
        ("it", "Grazie per aver guardato Luca."),
        ("it", "Sottotitoli di Netflix troppo piccoli."),
        ("nl", "Ondertitels door NPO aanzetten."),
        ("nl", "Bedankt voor het kijken naar Emma."),
        ("pt", "Obrigada por ver a Maria."),
        ("pt", "Legendas por favor na Netflix."),
        ("en", "What is Amara.org?"),
        ("en", "Hit the bell twice."),
        ("en", "For more information visit Anna."),
        ("es", "Dale like a la foto de Ana."),
        ("fr", "Vous vous souvenez de la vidéo ?"),
        ("pt", "Ative o modo silencioso."),
        ("de", "SWR 3."),
        ("sv", "Textning på teven, tack."),
        ("es", "Suscríbete a Netflix."),
        ("it", "Iscriviti al corso di Anna."),
        ("nl", "TV Gelderland aanzetten."),
        ("fr", "À la prochaine station."),
        ("ja", "いやいやいやいや"),
        ("ja", "もしもしもしもし"),
        ("zh", "好的好的好的好的"),
        ("zh", "不要不要不要不要"),
        ("zh", "哈哈哈哈哈哈哈哈哈"),
        ("zh", "字幕是谁翻译的？"),
        ("ko", "아니 아니 아니 아니"),
        ("ru", "Нет, нет, нет, нет!"),
        ("el", "Τι ώρα είναι;"),
        ("de", "Untertitelung einschalten, bitte."),
        ("en", "How do you say 안녕하세요 in English?"),
        ("de", "Nein, nein, nein, nein!"),
        ("de", "Danke."),
        ("de", "Untertitel einschalten, bitte."),
        ("de", "Geschwindigkeitsbegrenzung?"),
        ("es", "¡Para, para, para, para!"),
        ("es", "Este."),
        ("fr", "Merci beaucoup."),
        ("it", "Grazie mille!"),
        ("it", "Ciao!"),
        ("nl", "Dank je wel."),
        ("pt", "É."),
        ("pt", "Um."),
        ("bg", "Спри, моля."),
        ("ja", "止まって"),
        ("", "자아요"),
        ("en", ""),
    ],
)
@pytest.mark.parametrize("segment", [VOICE, ANSWERED, BARGE_IN, BUTTON])
def test_real_speech_is_believed(language: str, text: str, segment: Segment) -> None:
    assert why(text, segment, language, 1.4) is None


@pytest.mark.parametrize("text", ["Mm-hmm.", "Uh-huh."])
@pytest.mark.parametrize("segment", [ANSWERED, BARGE_IN, BUTTON])
def test_a_hum_may_be_an_answer_or_a_backchannel(text: str, segment: Segment) -> None:
    assert why(text, segment) is None


@pytest.mark.parametrize("text", ["Yes.", "No.", "Stop.", "Hello.", "Next."])
@pytest.mark.parametrize(
    "segment",
    [
        ROOM,
        replace(ROOM, certainty=0.59),
        Segment(0.27, certainty=0.98, moves=False, after_question=False),
    ],
)
def test_a_short_word_is_believed_in_a_reverberant_room(text: str, segment: Segment) -> None:
    assert why(text, segment) is None


@pytest.mark.parametrize(
    "text",
    [
        "ご視聴ありがとうございました",
        "字幕由 Amara.org 社区提供",
        "谢谢观看！",
        "字幕志愿者 杨栋梁",
        "시청해주셔서 감사합니다.",
        "MBC 뉴스 김성현입니다.",
        "한글자막 by 홍길동",
        "チャンネル登録と高評価をお願いします",
        "請訂閱我的頻道",
        "謝謝大家的觀看",
        "字幕製作 貝爾",
        "Субтитры сделал DimaTorzok",
        "Редактор субтитров А.Семкин Корректор А.Егорова",
        "Продолжение следует...",
        "Thanks for watching!",
        "ترجمة نانسي قنقر",
    ],
)
@pytest.mark.parametrize("language", ["", "ja", "zh", "ko", "el", "en"])
def test_credits_in_other_scripts(language: str, text: str) -> None:
    assert why(text, VOICE, language) in ("credits", "letters")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "감사합니다"),
        ("ja", "Спасибо."),
        ("zh", "ありがとう"),
        ("ko", "ありがとう"),
        ("el", "谢谢你们大家"),
    ],
)
def test_letters_in_which_the_language_is_not_written(language: str, text: str) -> None:
    assert why(text, VOICE, language) == "letters"


@pytest.mark.parametrize(
    ("language", "text", "seconds"),
    [
        ("zh", "明天上午十点请叫醒我并且告诉我今天的天气", 2.5),
        ("ja", "あしたのあさじゅうじにおこしてください", 1.8),
        ("ko", "내일 아침 열 시에 나를 깨워 주세요", 1.5),
    ],
)
def test_a_letter_may_be_a_syllable(language: str, text: str, seconds: float) -> None:
    assert why(text, VOICE, language, seconds) is None
    assert why(text, VOICE, language, seconds / 3) == "too fast"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "ありがとうございました"),
        ("en", "Thank you very much."),
        ("nl", "Tot de volgende keer."),
        ("zh", "谢谢大家"),
        ("ko", "감사합니다."),
        ("ru", "Спасибо большое."),
    ],
)
def test_thanks_of_any_length_need_a_certain_voice(language: str, text: str) -> None:
    assert why(text, replace(VOICE, certainty=0.7), language) == "hardly speech"
    assert why(text, VOICE, language) is None


def test_a_whole_sentence_is_believed_in_noise() -> None:
    assert why("Bring me a cup of tea.", MOTOR) is None
    assert why("明天上午十点请叫醒我。", MOTOR, "zh") is None
    assert why("谢谢大家" * 5, MOTOR, "zh", 4.0) == "repetition"
    assert why("はい", MOTOR, "ja") == "hardly speech"


def test_a_repeated_command_needs_no_certain_voice() -> None:
    doubtful = replace(BARGE_IN, certainty=0.75)
    assert why("Stop, stop, stop, stop!", doubtful) is None
    assert why("No, no, no, no!", doubtful) is None
    assert why("Don't, don't, don't, don't!", doubtful) is None
    assert why("Be quiet, be quiet, be quiet, be quiet", doubtful) is None
    assert why("Sei still, sei still, sei still, sei still", doubtful, "de") is None
    assert why("Come on, come on, come on, come on", doubtful) == "repetition"
    assert why("No, it is late now. " * 4, doubtful) == "repetition"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Thank you. Thank you."),
        ("en", "Thank you. Bye-bye."),
        ("en", "thank you thank you so much"),
        ("de", "Vielen Dank. Auf Wiedersehen."),
        ("es", "Muchas gracias. Hasta luego."),
        ("fr", "Merci beaucoup. Au revoir. À bientôt."),
        ("it", "Grazie mille. Arrivederci."),
        ("nl", "Dank je wel. Tot ziens."),
        ("pt", "Muito obrigado. Até logo."),
        ("pt", "Muito obrigado. Ate logo."),
        ("ja", "ありがとうございました。おやすみなさい。"),
        ("ru", "Спасибо большое. До свидания."),
    ],
)
def test_several_thanks_need_a_certain_voice(language: str, text: str) -> None:
    doubtful = Segment(2.4, certainty=0.7, after_question=False)
    assert why(text, doubtful, language) == "hardly speech"
    assert why(text, replace(doubtful, certainty=0.9), language) is None, "whatever their pauses"


@pytest.mark.parametrize(
    ("language", "text", "seconds"),
    [
        ("en", "Thank you very much.", 1.4),
        ("en", "Thank you for listening.", 1.4),
        ("de", "Vielen Dank für's Zuhören.", 1.5),
        ("fr", "Merci de votre attention.", 1.5),
        ("es", "Gracias por su atención.", 1.5),
        ("it", "Grazie per l'ascolto.", 1.5),
        ("nl", "Bedankt voor het luisteren.", 1.5),
        ("pt", "Obrigada pela atenção.", 1.4),
        ("en", "Thank you so much.", 1.8),
        ("de", "Bis zum nächsten Mal.", 1.35),
        ("fr", "À la prochaine.", 1.5),
        ("it", "Grazie a tutti.", 1.6),
        ("nl", "Tot de volgende keer.", 1.7),
        ("pt", "Muito obrigada.", 1.3),
    ],
)
def test_thanks_may_take_as_long_as_their_words(language: str, text: str, seconds: float) -> None:
    assert why(text, replace(VOICE, speech_s=seconds), language) is None
    assert why(text, replace(VOICE, speech_s=seconds + 1), language) == "hardly speech"
    assert why(text, replace(MOTOR, speech_s=seconds), language) == "hardly speech"


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "Goodbye."), ("en", "Bye."), ("de", "Tschüss."), ("es", "Adiós."), ("pt", "Adeus.")],
)
def test_a_farewell_that_is_a_command_counts_as_one(language: str, text: str) -> None:
    for certainty in (0.82, 0.6):
        assert why(text, replace(BARGE_IN, certainty=certainty), language) is None
    assert why(text, replace(BARGE_IN, certainty=0.55), language) == "hardly speech"
