"""What was learnt of the rooms that clients are in, for when they come back."""

from __future__ import annotations

from collections import OrderedDict

from pipeline.echo.path import Room

MOST_ROOMS = 16
"""Some 90 kB each."""


class Rooms:
    """The newest few, by the place that a client connects from."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, Room] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rooms)

    def of(self, place: str) -> Room | None:
        return self._rooms.get(place)

    def keep(self, place: str, room: Room | None) -> None:
        """Nothing is kept where the place is unknown, or no echo is heard there any
        more."""
        if not place or room is None:
            self._rooms.pop(place, None)
            return
        self._rooms[place] = room
        self._rooms.move_to_end(place)
        if len(self._rooms) > MOST_ROOMS:
            self._rooms.popitem(last=False)
