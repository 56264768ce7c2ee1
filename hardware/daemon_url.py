"""Parses the address of a robot's daemon as users write it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

DAEMON_PORT = 8000
"""The REST API of the robot's daemon (``--fastapi-port`` of reachy-mini-daemon)."""


def daemon_url(text: str) -> str:
    """Turn ``HOST``, ``HOST:PORT`` or an ``http(s)://`` URL into a URL without a trailing slash.

    Raises ``ValueError``, which says what is wrong.
    """
    address = text.strip()
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        port = parts.port
        (parts.hostname or "").encode("idna")  # as a DNS lookup would
    except ValueError as error:
        raise ValueError(f"robot.url is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("robot.url is not an http:// URL with a host")
    place = parts.netloc
    if port is None and "://" not in address:
        place = f"{place.rstrip(':')}:{DAEMON_PORT}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def is_local(url: str) -> bool:
    """Whether a URL points to this machine's loopback."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
