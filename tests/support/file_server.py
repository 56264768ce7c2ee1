"""A small HTTP server on loopback that can resume, lie, stall and hang up."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """The served files, the faults, and the requests."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    """Path with its leading slash -> content."""
    statuses: list[int] = field(default_factory=list)
    """The next answers, sent instead of files."""
    hang_up_after: list[int] = field(default_factory=list)
    """For each of the next requests: bytes after which the connection is dropped."""
    stall_after: list[int] = field(default_factory=list)
    """For each of the next requests: bytes after which nothing comes until the client hangs up."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Path -> redirect target."""
    resumes: bool = True
    """Whether ``Range`` is understood."""
    lengths: bool = True
    """Whether answers have a ``Content-Length``."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers (lower case) of each request."""

    @property
    def ranges(self) -> list[str]:
        """The ``Range`` header of each request, empty where there was none."""
        return [headers.get("range", "") for _, headers in self.requests]


@contextmanager
def file_server(tls: ssl.SSLContext | None = None) -> Iterator[FileServer]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            content = state.files.get(self.path)
            if state.statuses:
                self._end_with(state.statuses.pop(0))
            elif self.path in state.redirects:
                self._end_with(302, state.redirects[self.path])
            elif content is None:
                self._end_with(404)
            else:
                self._send(content)

        def _end_with(self, status: int, location: str = "") -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, content: bytes) -> None:
            start = 0
            asked = self.headers.get("Range", "")
            if asked and state.resumes:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self._end_with(416)
                    return
                self.send_response(206)
                whole = len(content)
                self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
            else:
                self.send_response(200)
            if state.lengths:
                self.send_header("Content-Length", str(len(content) - start))
            if self.path.endswith("/"):
                self.send_header("Content-Type", "text/html")
            self.end_headers()
            limit = state.hang_up_after.pop(0) if state.hang_up_after else len(content)
            if state.stall_after:
                self.wfile.write(content[start:][: state.stall_after.pop(0)])
                self.connection.recv(1)
            else:
                self.wfile.write(content[start : start + limit])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state = FileServer(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
