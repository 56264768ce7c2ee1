"""URLs of servers: which ones are taken, and how they are put together."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def base_url(text: str) -> str:
    """``text`` without a slash at its end. Raises ``ValueError`` for what is no such address."""
    try:
        parts = urlsplit(text.strip())
        parts.port  # noqa: B018, raises for what is no number
    except ValueError:
        raise ValueError("must be an address as http://192.168.1.5:8080/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address as http://192.168.1.5:8080/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a name or password; use api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a ? or a #")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def joined(base: str, path: str) -> str:
    """``path`` below ``base``; from the server's root if it begins with a slash."""
    if path.startswith("/"):
        parts = urlsplit(base)
        return f"{parts.scheme}://{parts.netloc}{path}"
    return f"{base}/{path}"
