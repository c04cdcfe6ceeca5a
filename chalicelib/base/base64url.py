"""URL-safe base64 without padding, for texts that clients give back: receipts and page tokens."""

from __future__ import annotations

import base64


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decoded(text: str) -> bytes | None:
    """None unless `encoded` writes exactly this text: no other spelling of the same bytes is accepted."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return raw if encoded(raw) == text else None
