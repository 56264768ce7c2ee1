"""Errors for people to read: what happened, why, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ReachyVoiceError(Exception):
    """A failure with a next step.

    ``what`` and ``why`` are sentences without a full stop; ``fix`` is an instruction, often a
    command. ``exit_code`` is what the command line returns (``docs/commands.md``).
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[Callable[..., ReachyVoiceError], tuple[object, ...]]:
        # Errors cross process borders; keyword-only arguments do not survive pickling by default.
        return _rebuild, (type(self), self.what, self.why, self.fix)

    def __str__(self) -> str:
        return f"{self.account}. {self.fix}" if self.fix else self.account

    @property
    def account(self) -> str:
        """What happened and why."""
        return f"{self.what}: {self.why}" if self.why else self.what


def text_of(error: BaseException) -> str:
    """What the error says; its kind if it says nothing."""
    return str(error) or type(error).__name__


def _rebuild(kind: type[ReachyVoiceError], what: str, why: str, fix: str) -> ReachyVoiceError:
    return kind(what, why=why, fix=fix)


class ConfigError(ReachyVoiceError):
    """The YAML, an environment variable or ``--set`` cannot be used."""

    exit_code = 3


@contextmanager
def one_error() -> Iterator[None]:
    """Raise one error in place of a group around it: people are shown one."""
    try:
        yield
    except* ReachyVoiceError as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


class WeightsError(ReachyVoiceError):
    """Weights are absent, damaged, or cannot be fetched."""

    exit_code = 4


class MissingExtra(ReachyVoiceError):
    """An engine's packages are not installed."""

    exit_code = 5


class EngineError(ReachyVoiceError):
    """An engine failed while it was built or while it worked."""

    exit_code = 6
    says = ""
    """What its server says, if it has one. Not to be logged: it may tell of the conversation."""


class EngineCrashed(EngineError):
    """An engine's process, or one of its server's, died or hung; another can go on."""


class WrongProcessor(EngineCrashed):
    """An engine's libraries were built for another processor."""

    exit_code = 16


class Unreachable(EngineError):
    """The engine's server cannot be used now; it may come back by itself."""


class Rejection(EngineError):
    """The engine's server rejects this request, whatever its state."""


class PromptTooLong(EngineError):
    """The prompt does not fit into the model's context."""

    def __init__(self, prompt_tokens: int, limit_tokens: int) -> None:
        """``prompt_tokens``: 0 if they were not counted."""
        count = prompt_tokens or "far too many"
        super().__init__(
            "The conversation does not fit into the model's context",
            why=f"the prompt has {count} tokens, the limit is {limit_tokens}",
            fix="Shorten the instructions or tools, or raise llm.context_tokens",
        )
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens

    def __reduce__(self) -> tuple[Callable[..., ReachyVoiceError], tuple[object, ...]]:
        return type(self), (self.prompt_tokens, self.limit_tokens)


class AudioFormatError(ReachyVoiceError):
    """A recording or a stream is not readable audio."""

    exit_code = 7
