"""How far the first set-up is, on a page at the address that the server will take."""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
import urllib.request
import webbrowser
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin

from app.setup.commands import tell
from app.setup.failures import PORT_TAKEN, SetupError
from app.setup.place import USUAL_PORT, Place, owners_file
from app.setup.steps import Step
from app.write_whole import write_whole

SHOWN_S = 10
"""How long the page stays up for a browser to show why set-up has stopped."""
MOST_BYTES = 100_000
SETTING_UP = b"reachy-voice is being set up"
PAGE = Path(__file__).with_name("progress.html")


class SetupProgress:
    """``build/progress.json``: ``steps``, each with its ``title``, ``typical_s`` and the Unix times
    at which it ``began`` and ``ended``, ``null`` if not yet; ``console``: where the server will be;
    ``asks``: whether the terminal asks something."""

    def __init__(self, place: Place) -> None:
        self.file = place.build / "progress.json"

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)

    def read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self.file.read_text())
        except (FileNotFoundError, ValueError):  # an outage may have left it empty
            return {"steps": {}, "console": "/console/", "asks": False}
        return state

    def add(self, steps: Sequence[Step]) -> None:
        """Add steps to be done, in order."""
        for step in steps:
            self._note(step, title=step.title, typical_s=step.typical_s)

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        self.begin(step)
        yield
        self._note(step, ended=time.time())

    def begin(self, step: Step) -> None:
        """Note that the step, or its slow part in parallel with another step, has begun."""
        began = self.read()["steps"].get(step.name, {}).get("began")
        self._note(step, began=began or time.time())

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The terminal may ask something."""
        self._write({**self.read(), "asks": True})
        yield
        self._write({**self.read(), "asks": False})

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
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, json.dumps(state))


@contextmanager
def progress_page(place: Place, args: Namespace, *, opens: bool = False) -> Iterator[bool]:
    """Serve the page to browsers on this machine. ``opens``: open it in one. Yields whether one was
    opened. Raises ``SetupError`` if the port is taken."""
    progress = SetupProgress(place)
    failure = ""  # why set-up has stopped; not in the file, for which a full disk may have no room
    looked, shown = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = self.path == "/progress.json"
            is_known = state or self.path.startswith("/console") or self.path == "/"
            looked.set()
            why = failure
            now = {**progress.read(), "failure": why, "now": time.time()}
            body = json.dumps(now).encode() if state else PAGE.read_bytes()
            self.send_response(200 if is_known else 503)
            self.send_header("Content-Type", "application/json" if state else "text/html")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)
            if state and why:
                shown.set()

        def log_message(self, format: str, *args: Any) -> None:
            """Requests of the page are not logged."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port_of(args)), Handler)
    except OSError as error:
        if not is_port_known(args):
            yield False
            return
        raise _port_taken(port_of(args)) from error
    progress.clear()  # not before: another set-up may have the port
    with server:
        serving = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        serving.start()
        url = f"http://localhost:{server.server_port}/"
        tell(f"In a browser on this machine: {url}")
        is_open = opens and open_in_browser(url)
        try:
            yield is_open
        except (SetupError, OSError) as error:
            failure = error.report() if isinstance(error, SetupError) else f"{error}"
            if is_open or looked.is_set():
                shown.wait(SHOWN_S)
            raise
        finally:
            server.shutdown()
            serving.join()


def port_of(args: Namespace) -> int:
    """The server's port if the command line names one, else the default."""
    port = _named_port(args)
    return int(port) if port.isdecimal() and int(port) < 1 << 16 else USUAL_PORT


def is_port_known(args: Namespace, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``port_of`` is sure: no settings that cannot be read yet may name another port."""
    own = owners_file(environ)
    others = args.config or any(name.startswith("REACHY_VOICE__") for name in environ)
    return bool(_named_port(args)) or not (others or (own is not None and own.exists()))


def _named_port(args: Namespace) -> str:
    ports = [value.partition("=")[2] for value in args.set if value.startswith("server.port=")]
    return str(args.port or (ports or [""])[-1])


def _port_taken(port: int) -> SetupError:
    what, why = f"port {port} cannot be used", "another program listens there already"
    return SetupError(PORT_TAKEN, what, why, f"Stop it, or: reachy-voice serve --port {port + 1}")


def open_running(console: str) -> bool:
    """Open the console of a server of this program that already runs or is being set up. Returns
    whether one is."""
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname, any_certificate.verify_mode = False, ssl.CERT_NONE
    https = urllib.request.HTTPSHandler(context=any_certificate)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    try:
        with opener.open(urljoin(console, "/v1/models"), timeout=2) as answer:
            body = answer.read(MOST_BYTES)
    except HTTPError as refusal:
        known = (HTTPStatus.UNAUTHORIZED, HTTPStatus.SERVICE_UNAVAILABLE)
        body = refusal.read(MOST_BYTES) if refusal.code in known else b""
    except (OSError, ValueError, HTTPException):
        return False
    # It names itself as the model's owner, in its refusal of a missing key, or on set-up's page.
    if SETTING_UP not in body and not (body.startswith(b"{") and b"reachy-voice" in body):
        return False
    tell(f"reachy-voice runs already: {console}")
    open_in_browser(console)
    return True


def is_running(args: Namespace) -> bool:
    """Open the console, as ``open_running`` does, at the port that the server is to have."""
    at = f"://localhost:{port_of(args)}/console/"
    return is_port_known(args) and (open_running(f"http{at}") or open_running(f"https{at}"))


def open_in_browser(url: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Open ``url`` if there is a desktop: a browser in the terminal would be in the way. Returns
    whether it is open."""
    desktop = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & environ.keys()
    return bool(desktop) and webbrowser.open(url)
