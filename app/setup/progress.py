"""How far the first set-up is, on a page at the address that the server will take."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import webbrowser
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from app.setup.place import Place
from app.setup.steps import Step

PORT = 8765
"""``server.port`` of ``config/default.yaml``: other settings cannot be read yet."""
PAGE = Path(__file__).with_name("progress.html")


class SetupProgress:
    """``build/progress.json``: ``steps``, each with its ``title``, ``typical_s`` and the Unix times
    at which it ``began`` and ``ended``, ``null`` if not yet; ``console``: where the server will be.
    """

    def __init__(self, place: Place) -> None:
        self.file = place.build / "progress.json"

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)

    def read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self.file.read_text())
        except FileNotFoundError:
            return {"steps": {}, "console": "/console/"}
        return state

    def add(self, steps: Sequence[Step]) -> None:
        """Steps to be done, in order."""
        for step in steps:
            self._note(step, title=step.title, typical_s=step.typical_s)

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        self.begin(step)
        yield
        self._note(step, ended=time.time())

    def begin(self, step: Step) -> None:
        """The step runs, or its slow part does beside another one."""
        began = self.read()["steps"].get(step.name, {}).get("began")
        self._note(step, began=began or time.time())

    def set_console(self, url: str) -> None:
        """Known once the settings can be read."""
        if self.file.exists():
            self._write({**self.read(), "console": url})

    def _note(self, step: Step, **values: Any) -> None:
        state = self.read()
        row = state["steps"].setdefault(step.name, {"began": None, "ended": None})
        row.update(values)
        self._write(state)

    def _write(self, state: Mapping[str, Any]) -> None:
        unfinished = self.file.with_suffix(".new")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(state))
        os.replace(unfinished, self.file)


@contextmanager
def progress_page(place: Place, args: Namespace) -> Iterator[str | None]:
    """Serve the page to browsers on this machine. Yields its address; ``None`` if the port is
    taken."""
    progress = SetupProgress(place)
    progress.clear()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = self.path == "/progress.json"
            is_known = state or self.path.startswith("/console") or self.path == "/"
            body = json.dumps({**progress.read(), "now": time.time()}).encode()
            body = body if state else PAGE.read_bytes()
            self.send_response(200 if is_known else 503)
            self.send_header("Content-Type", "application/json" if state else "text/html")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests of the page are not logged."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port_of(args)), Handler)
    except OSError:
        yield None
        return
    with server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


def port_of(args: Namespace) -> int:
    """The server's, as far as the command line tells."""
    ports = [value.partition("=")[2] for value in args.set if value.startswith("server.port=")]
    port = args.port or (ports or [""])[-1]
    return int(port) if port.isdecimal() else PORT


def open_in_browser(url: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a desktop to show it on; a browser in the terminal would only be in the
    way."""
    desktop = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & environ.keys()
    return bool(desktop) and webbrowser.open(url)
