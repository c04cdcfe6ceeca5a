"""URL-safe base64 without padding, for texts that clients give back: receipts and page tokens."""

from __future__ import annotations

import binascii

_SPELLED = bytes.maketrans(b"+/", b"-_")
_STANDARD = bytes.maketrans(b"-_", b"+/")


def encoded(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).translate(_SPELLED).rstrip(b"=").decode()


def decoded(text: str) -> bytes | None:
    """None unless `encoded` writes exactly this text: no other spelling of the same bytes is accepted."""
    try:
        raw = binascii.a2b_base64(text.encode().translate(_STANDARD) + b"==")
    except ValueError:
        return None
    return raw if encoded(raw) == text else None
