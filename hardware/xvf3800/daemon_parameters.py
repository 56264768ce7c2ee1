"""Reaches an array that a robot's daemon holds: the same parameters, over the daemon's REST API.

Paths and shapes are those of reachy-mini 1.13.0 (``daemon/app/routers/audio_config.py`` and
``state.py``). Two processes on one USB device would receive each other's answers, so use this while
the daemon runs on the machine that has the array.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from hardware.xvf3800.boards import Board
from hardware.xvf3800.codec import Values, check_values, keeps_all, read_request
from hardware.xvf3800.control import Via
from hardware.xvf3800.errors import ArrayError, ParameterError, array_error
from hardware.xvf3800.parameters import Parameter, Value, parameter
from pipeline.errors import text_of

if TYPE_CHECKING:
    import httpx

CONNECT_S = 0.3
ANSWER_S = 1.2
"""The daemon repeats a read up to 100 times, 10 ms apart, and waits 0.1 s after each write."""
DIRECTION = "DOA_VALUE_RADIANS"
"""The daemon reads and caches this parameter itself."""


class DaemonArray:
    """A robot's array, by the URL of its daemon. ``close`` closes the connection."""

    via: Via = "daemon"
    board: Board = "reachy"

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        """Connect and read the firmware's version. Raises ``ArrayError``. ``url``: such as
        http://localhost:8000."""
        import httpx

        self._lock = threading.Lock()
        self._url = url
        self._wait_s = CONNECT_S + answer_s
        try:
            self._client = httpx.Client(
                base_url=f"{url}/api/",
                timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
                trust_env=False,
                # Without TLS, skip loading certificates on every attempt.
                verify=url.startswith("https:"),
            )
        except httpx.InvalidURL as error:
            raise array_error("daemon away", f"{url} is not a URL: {error}") from error
        try:
            self.firmware = ".".join(str(part) for part in self.read("VERSION"))
        except BaseException:
            self.close()
            raise

    def read(self, name: str) -> Values | str:
        target = parameter(self.board, name)
        if target.type == "char":
            raise ParameterError(
                f"{target.name} cannot be read through the robot's daemon",
                why="it returns only numbers",
                fix="End the daemon to read it over USB",
            )
        read_request(target)
        if target.name == DIRECTION:
            return self._direction()
        answer = self._ask("GET", f"audio/config/parameter/{target.name}")
        return _values(target, answer)

    def write(self, name: str, *values: Value) -> None:
        target = parameter(self.board, name)
        check_values(target, values)
        pair = {"name": target.name, "values": list(values)}
        # Verifying would fail for a value that cannot be read or that the chip changes itself.
        body = {"config": [pair], "verify": target.access == "rw" and keeps_all(target)}
        answer = self._ask("POST", "audio/config/apply", body)
        if not isinstance(answer, dict) or answer.get("applied") is not True:
            why = f"{target.name}: the daemon's log says why it was not applied"
            raise array_error("refused", why)

    def close(self) -> None:
        with self._lock:
            self._client.close()

    def _direction(self) -> Values:
        """The daemon's cached reading, at no cost. If the robot is asleep (503) or the daemon has
        read nothing yet (null), read the device."""
        try:
            answer = self._ask("GET", "state/doa")
        except ArrayError as error:
            if error.problem != "not found":
                raise
            answer = None
        if answer is None:
            target = parameter(self.board, DIRECTION)
            return _values(target, self._ask("GET", f"audio/config/parameter/{DIRECTION}"))
        if not isinstance(answer, dict) or "angle" not in answer:
            raise array_error("wrong answer", f"{DIRECTION}: no angle in the daemon's answer")
        speech = float(bool(answer.get("speech_detected")))
        return _values(parameter(self.board, DIRECTION), {"values": [answer["angle"], speech]})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request; returns the parsed JSON of the answer."""
        import httpx

        if not self._lock.acquire(timeout=self._wait_s):
            raise array_error("busy", f"{path}: another command is still running")
        try:
            if self._client.is_closed:
                raise array_error("gone", f"{path}: it was closed")
            response = self._client.request(method, path, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL) as error:
            raise array_error("daemon away", f"{self._url}: {text_of(error)}") from error
        except httpx.HTTPError as error:
            raise array_error("daemon silent", f"{self._url}: {text_of(error)}") from error
        finally:
            self._lock.release()
        return self._parse(path, response)

    def _parse(self, path: str, response: httpx.Response) -> Any:
        if response.status_code == 200:
            try:
                return response.json()
            except ValueError as error:
                why = f"{self._url}/api/{path}: its answer is not JSON"
                raise array_error("not the daemon", why) from error
        detail = _detail(response)
        if response.status_code == 503:
            raise array_error("not found", f"the robot's daemon says: {detail}")
        if response.status_code == 404 and detail.startswith("Parameter "):
            raise array_error("refused", f"{path}: {detail}")
        if response.status_code == 500:
            raise array_error("busy", f"{path}: {detail}")
        why = f"{self._url}/api/{path}: {response.status_code} {detail}"
        raise array_error("not the daemon", why)


def _values(parameter: Parameter, answer: Any) -> Values:
    values = answer.get("values") if isinstance(answer, dict) else None
    if not isinstance(values, list) or len(values) != parameter.count:
        why = f"{parameter.name}: not {parameter.count} values in the daemon's answer"
        raise array_error("wrong answer", why)
    # JSON has no NaN: an angle without speech arrives as null.
    numbers = [math.nan if value is None else value for value in values]
    if not all(isinstance(value, (int, float)) for value in numbers):
        raise array_error("wrong answer", f"{parameter.name}: the daemon's values are not numbers")
    whole = parameter.type not in ("float", "radians")
    if whole and not all(math.isfinite(value) for value in numbers):
        raise array_error("wrong answer", f"{parameter.name}: the daemon has no value")
    return tuple(int(value) if whole else float(value) for value in numbers)


def _detail(response: httpx.Response) -> str:
    """What FastAPI says about a failure."""
    try:
        answer = response.json()
    except ValueError:
        return response.reason_phrase
    return str(answer.get("detail", answer)) if isinstance(answer, dict) else str(answer)
