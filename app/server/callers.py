"""Which addresses have tried to connect, so that ``pair`` can distinguish a refused robot from one
that never arrives.

Kept in memory, bounded, and shown to the owner only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.api_errors import ApiError
from app.access.policy import WAY

PATH = "/callers"
MAX_REMEMBERED = 256
"""Most addresses remembered; beyond that, the one quiet for longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Knocks:
    """Clients from one address: how many are connected, have connected, and were refused."""

    open: int = 0
    opened: int = 0
    refused: int = 0
    status: int | None = None
    """HTTP status of the last refusal; 503 also if the server was full."""


def read_callers(body: Any) -> Mapping[str, Knocks]:
    """Parse the answer to ``GET /callers``. Raises ``ValueError``."""
    try:
        return {str(one.pop("address")): Knocks(**one) for one in body["callers"]}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("that is not a list of callers") from error


class Callers:
    """The list of one server. Use it on the event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Knocks] = OrderedDict()

    def get(self, address: str) -> Knocks:
        return self._known.get(address, Knocks())

    def put(self, address: str, knocks: Knocks) -> None:
        self._known[address] = knocks
        self._known.move_to_end(address)
        while len(self._known) > MAX_REMEMBERED:
            quiet = (name for name, one in self._known.items() if not one.open)
            del self._known[next(quiet, next(iter(self._known)))]

    def shown(self) -> list[dict[str, Any]]:
        return [{"address": name, **asdict(one)} for name, one in self._known.items()]

    def connect(self, address: str) -> None:
        old = self.get(address)
        self.put(address, replace(old, open=old.open + 1, opened=old.opened + 1))

    def disconnect(self, address: str) -> None:
        old = self.get(address)
        self.put(address, replace(old, open=max(0, old.open - 1)))

    def refuse(self, address: str, status: int) -> None:
        old = self.get(address)
        self.put(address, replace(old, refused=old.refused + 1, status=status))

    def route(self) -> Route:
        """``GET /callers``, which shows the list to the owner."""

        async def show(request: Request) -> Response:
            if not request.scope[WAY].is_owner:
                why = "Only programs on the server's own machine, or with an admin's key, may ask."
                raise ApiError(403, "only_here", why)
            return JSONResponse({"callers": self.shown()})

        return Route(PATH, show)
