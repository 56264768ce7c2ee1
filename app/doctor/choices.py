"""Valid settings that will not work as intended: files that are not there, features that the
weights lack, and languages that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from app.models.catalogue import Catalogue
from app.settings.languages import read_notices
from app.settings.load import FILES, config_dir
from app.settings.model import ConversationSettings, Settings
from pipeline.engines.registry import EngineOptions, Kind
from pipeline.spoken.language import language_of
from pipeline.spoken.sounds import sounds_of

OTHER_SCRIPTS = frozenset(
    {"ar", "bg", "el", "fa", "he", "hi", "ja", "ko", "mk", "ru", "th", "uk", "zh"}
)
"""Languages, widely recognised, that are not written in Latin letters."""


def choice_warnings(settings: Settings, catalogue: Catalogue) -> Iterator[str]:
    """One line per problem, with what to do. Weights that are not in the catalogue are skipped."""
    for kind in Kind:
        yield from _absent_files(settings, kind, catalogue)
    tts = settings.tts
    weights = tts.weights_name or ""
    # The engine would ask the model itself, but it is not loaded here.
    if getattr(tts, "instruct", "") and tts.engine == "qwen3-tts" and "0.6b" in weights:
        yield (
            f"tts.instruct has no effect with {weights}, which takes no instructions: set "
            "tts.weights: qwen3-tts-1.7b-customvoice (2 GB more GPU memory)"
        )


def _absent_files(settings: Settings, kind: Kind, catalogue: Catalogue) -> Iterator[str]:
    options = settings.engine(kind)
    weights = options.weights_name
    entry = catalogue.entries.get(weights) if weights else None
    names = [file.local_name for file in entry.files] if entry else []
    named = [(key, getattr(options, key, None)) for key in FILES]
    named += [("adapters", str(each.path)) for each in getattr(options, "adapters", ())]
    for key, name in named:
        if name and Path(name).is_absolute():
            if not Path(name).is_file():
                yield f"{kind}.{key}: there is no file {name}: loading will fail. Correct its path"
        elif name and entry and name not in names:
            yield (
                f"{kind}.{key} is {name!r}, which {weights} does not have: loading will fail. It "
                f"has {', '.join(names)}; set it to one of them, to an absolute path, or to null"
            )


def language_warnings(settings: Settings, catalogue: Catalogue) -> list[str]:
    """One line per mismatch, with what to do; unknown languages are skipped."""
    language = settings.conversation.language
    inputs = known_languages(settings.stt, catalogue)
    outputs = known_languages(settings.tts, catalogue)
    warnings = []
    if language and inputs and language not in inputs:
        warnings.append(
            f"conversation.language is {language!r}, but stt {settings.stt.engine!r} hears "
            f"{_join(inputs)}: nothing will be understood. Choose stt whisper or parakeet, "
            f"or set conversation.language: {inputs[0]}"
        )
    if language and outputs and language not in outputs:
        warnings.append(
            f"conversation.language is {language!r}, but tts {settings.tts.engine!r} speaks "
            f"{_join(outputs)}: it will read {language!r} as if it were that. Choose another "
            f"voice, or `tts: {{engine: espeak-ng}}`"
        )
    if not language and len(outputs) == 1 and len(inputs) != 1:
        warnings.append(
            f"conversation.language is auto, but tts {settings.tts.engine!r} speaks "
            f"{_join(outputs)}: answers in other languages will be read as if they were that. "
            f"Choose a voice with several (qwen3-tts, espeak-ng), or name one language"
        )
    if settings.wake.mode == "word" and settings.wake.engine == "phrase":
        warnings += [
            f"wake.words has {words!r}, but stt {settings.stt.engine!r} hears {_join(inputs)}: it "
            "may not be noticed. Choose a recogniser that hears it, or words of such a language"
            for words in settings.wake.words or ()
            if inputs and not _may_hear(words, inputs)
        ]
    return warnings + _english_sentences(settings.conversation)


def _may_hear(words: str, languages: Sequence[str]) -> bool:
    """Whether a recogniser of these languages may write such words, judging by the words alone."""
    latin = bool(sounds_of(words)) or not OTHER_SCRIPTS.isdisjoint(languages)
    return latin and (language_of(words) or languages[0]) in languages


def _english_sentences(conversation: ConversationSettings) -> list[str]:
    language = conversation.language
    languages = [notices.language for notices in read_notices(config_dir() / "languages")]
    if not language or language in languages:
        return []
    sentences: dict[str, object] = {
        "apology": conversation.apology,
        "exchange_notice": conversation.exchange_notice,
    }
    if conversation.filler.after_ms:
        sentences["filler.sentences"] = conversation.filler.sentences
    return [
        f"conversation.{key} is English, because there is no config/languages/{language}.yaml: "
        f"write it in {language!r}"
        for key, own in sentences.items()
        if own is None
    ]


def known_languages(options: EngineOptions, catalogue: Catalogue) -> Sequence[str]:
    """Languages (ISO 639-1) that an engine with these options hears or speaks; empty: unknown."""
    name = options.weights_name
    entry = catalogue.entries.get(name) if name else None
    return tuple(getattr(options, "languages", ())) or (entry.languages if entry else ())


def _join(languages: Sequence[str]) -> str:
    return f"only {languages[0]!r}" if len(languages) == 1 else ", ".join(sorted(languages))
