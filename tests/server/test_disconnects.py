"""Clients that vanish in the middle of a reply leave nothing behind."""

from __future__ import annotations

import pytest

from tests.support.vanishing import vanishing

TIMES = 60


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_left_of_clients_that_vanish(seed: int) -> None:
    async with vanishing(seed) as clients:
        for number in range(TIMES):
            await clients.vanish(number)
        left = await clients.left()
        assert left.nothing, left
        assert len(clients.moments) > 3, clients.moments
