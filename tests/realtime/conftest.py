"""A client per test."""

from __future__ import annotations

import pytest

from tests.support.protocol_client import Client


@pytest.fixture
def client() -> Client:
    return Client()
