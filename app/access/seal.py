"""Encrypts and signs data for holders of the same key."""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

_PADDING = b"="


class Seal:
    """Turns JSON data into a text of letters, digits, ``-`` and ``_``, and back. Only a seal with
    the same ``key`` and ``purpose`` opens it."""

    def __init__(self, key: str | None, purpose: str) -> None:
        """Without a ``key`` a random one is made, so that no other seal can open the data."""
        secret = secrets.token_urlsafe(32) if key is None else key
        digest = hashlib.sha256(f"{purpose}\0{secret}".encode()).digest()
        self._fernet = Fernet(urlsafe_b64encode(digest))

    def close(self, data: Any) -> str:
        packet = zlib.compress(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
        return self._fernet.encrypt(packet).rstrip(_PADDING).decode()

    def open(self, text: bytes) -> Any | None:
        """The data; ``None`` if another seal closed them."""
        try:
            packet = self._fernet.decrypt(text + _PADDING * (-len(text) % 4))
        except InvalidToken:
            return None
        return json.loads(zlib.decompress(packet))
