"""The terminal output of ``talk``: a live view, or plain lines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.text import Text

from app.talk.state import FLOOR_DB, Doing, Line, TalkState

REFRESHES_PER_S = 12
_METER_CELLS = 24
_BAR_CELLS = 48
_COLOURS: dict[Doing, str] = {
    "connecting": "yellow",
    "waiting": "yellow",
    "muted": "yellow",
    "released": "yellow",
    "asleep": "blue",
    "listening": "green",
    "hearing": "bold green",
    "thinking": "cyan",
    "speaking": "magenta",
}
_WORDS: dict[Doing, str] = {
    "connecting": "connecting",
    "waiting": "waiting for the device",
    "muted": "muted, m unmutes",
    "released": "press space to speak",
    "asleep": "asleep: call it, or press w",
    "listening": "listening",
    "hearing": "hearing you",
    "thinking": "thinking",
    "speaking": "speaking",
}
_STAGES = {
    "endpoint": ("turn over", "blue"),
    "transcript": ("transcript", "cyan"),
    "first_token": ("first token", "green"),
    "first_clause": ("first clause", "yellow"),
    "first_audio": ("first audio", "magenta"),
}
_WHO = {"you": ("you    ", "bold"), "reachy": ("reachy ", "bold magenta"), "note": ("       ", "")}


class PlainView:
    """Plain lines, for pipes and logs."""

    def __init__(self, state: TalkState, console: Console) -> None:
        self._state = state
        self._console = console
        self._last_line: Line | None = None
        self._doing: Doing | None = None
        self._one = threading.Lock()
        """Log lines come from any thread."""

    def changed(self) -> None:
        with self._one:
            self._tell()

    def _tell(self) -> None:
        lines = list(self._state.lines)
        last = next((n for n in range(len(lines) - 1, -1, -1) if lines[n] is self._last_line), -1)
        for line in lines[last + 1 :]:
            self._console.print(f"{line.who}: {line.text}", markup=False, soft_wrap=True)
            self._last_line = line
        doing = self._state.doing
        if doing != self._doing and "waiting" in (doing, self._doing):
            self._console.print(f"({_WORDS[doing]})", markup=False)
        self._doing = doing


@contextmanager
def live_view(state: TalkState, console: Console, keys: str) -> Iterator[None]:
    """A view that redraws itself; ``keys``: help text for the keys."""
    from rich.live import Live

    size = console.size

    def picture() -> RenderableType:
        nonlocal size
        before, size = size, console.size
        if size == before:
            return draw(state, keys)
        # A terminal that became narrower has wrapped our rows into more than we know of.
        return Group(Control(ControlType.HOME, ControlType.CLEAR), draw(state, keys))

    with Live(
        console=console, get_renderable=picture, refresh_per_second=REFRESHES_PER_S, screen=False
    ):
        yield


def draw(state: TalkState, keys: str = "") -> RenderableType:
    """Render the state."""
    # A copy: another thread draws, and any may add a line meanwhile.
    lines = list(state.lines)
    rows = [_row(line.who, line.text, "dim" if line.who == "note" else "") for line in lines]
    if state.partial:
        rows.append(_row("you", state.partial, "dim italic"))
    if state.saying:
        rows.append(_row("reachy", state.saying, "magenta"))
    below = [Text("")]
    if state.stages_ms:
        below += [latency_bar(state.stages_ms), Text("")]
    below.append(Text(f"{state.devices}   {keys}".strip(), style="dim"))
    return _Picture(Group(_head(state), Text("")), Group(*rows), Group(*below))


class _Picture:
    """Cuts the oldest lines if the terminal is too small."""

    def __init__(self, above: Group, middle: Group, below: Group) -> None:
        self._parts = above, middle, below

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        above, middle, below = (
            console.render_lines(part, options.update(height=None), pad=False)
            for part in self._parts
        )
        if console.is_terminal:
            room = max(1, console.size.height - 1 - len(above) - len(below))
            middle = middle[-room:]
        for row in (*above, *middle, *below):
            yield from row
            yield Segment.line()


def _row(who: str, text: str, style: str) -> Text:
    name, name_style = _WHO[who]
    return Text.assemble((name, name_style), (text, style))


def _head(state: TalkState) -> Text:
    doing = state.doing
    head = Text()
    head.append(f"● {_WORDS[doing]:<12}", style=_COLOURS[doing])
    if doing == "waiting":
        head.append(f" {state.missing}", style="yellow")
    if state.disconnected:
        head.append(f" {state.disconnected}", style="yellow")
    head.append("  ")
    head.append_text(meter(state.level_db))
    if state.direction_deg is not None:
        head.append(f"   {pointer(state.direction_deg)} {state.direction_deg:.0f}°", style="cyan")
    return head


def meter(level_db: float) -> Text:
    """The microphone's level, from -60 dBFS to 0."""
    share = min(max((level_db - FLOOR_DB) / -FLOOR_DB, 0.0), 1.0)
    full = round(share * _METER_CELLS)
    colour = "red" if level_db > -3 else "green"
    bar = Text("▮" * full, style=colour)
    bar.append("▯" * (_METER_CELLS - full), style="dim")
    return bar


def pointer(azimuth_deg: float) -> str:
    """An arrow towards the speaker: 0 is left, 90 in front (up), 180 right."""
    arrows = "←↖↑↗→↘↓↙"
    return arrows[round(azimuth_deg / 45) % len(arrows)]


def latency_bar(stages_ms: dict[str, float]) -> Text:
    """A bar from the end of speech to the first audio, one colour per stage."""
    stages = sorted((ms, name) for name, ms in stages_ms.items() if name in _STAGES)
    whole = max((ms for ms, _ in stages), default=0.0)
    bar = Text()
    if whole <= 0:
        return bar
    full = 0
    for ms, name in stages:
        cells = round(max(ms, 0.0) / whole * _BAR_CELLS) - full
        bar.append("█" * max(cells, 0), style=_STAGES[name][1])
        full += max(cells, 0)
    bar.append(f" {whole:.0f} ms\n", style="bold")
    for ms, name in stages:
        label, colour = _STAGES[name]
        bar.append(f"{label} {ms:.0f}  ", style=colour)
    return bar


# --- the log on the screen -----------------------------------------------------------------------


class _OnScreen(logging.Handler):
    def __init__(self, state: TalkState) -> None:
        super().__init__(logging.WARNING)
        self._state = state

    def emit(self, record: logging.LogRecord) -> None:
        self._state.say(record.getMessage())


@contextmanager
def warnings_in(state: TalkState) -> Iterator[None]:
    """Show logged warnings in the view, since the terminal shows nothing else."""
    handler, log = _OnScreen(state), logging.getLogger()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
