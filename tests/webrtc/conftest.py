"""A server that takes calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.staged_server import StagedAssistant


@pytest.fixture
async def served(serving: Any) -> Any:
    from tests.support.caller import tone_cast

    return await serving(StagedAssistant(cast=tone_cast()), webrtc=True)
