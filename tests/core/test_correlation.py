"""A correlation id is exactly what this service signed, or nothing, and is no receipt."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.errors import RequestNotFound
from chalicelib.core.base.limits import CORRELATION_ID_CHARS_MAX, REPLY_TIMEOUT_MS_MAX
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey, signed
from chalicelib.core.cursors.lease import Receipt, Receipts, sign
from chalicelib.core.requests.correlation import NONCE_BYTES, Correlation, Correlations
from chalicelib.core.telemetry.telemetry import Telemetry
from local.memory.store import MemoryStore
from tests.support.clock import START_MS, Clock

KEY = b"0123456789abcdef"
ALPHABET = string.ascii_letters + string.digits + "-_"


def signing_key(configured: bytes | None = KEY, store: MemoryStore | None = None) -> SigningKey:
    runtime = Clock().runtime()
    store = store or MemoryStore()
    return SigningKey(Env.over(store, runtime, Telemetry(runtime)), configured)


CORRELATIONS = Correlations(signing_key())
MADE = st.builds(
    Correlation,
    topic_id=st.text(ALPHABET, min_size=8, max_size=8),
    topic_name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"),
    asked_at_ms=st.integers(0, 2**47),
    timeout_ms=st.integers(1, REPLY_TIMEOUT_MS_MAX),
    nonce=st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES),
)
EXAMPLE = Correlation("topic-id", "orders", START_MS, 3_000, b"12345678")


def is_known(text: str) -> bool:
    try:
        return bool(CORRELATIONS.read(text))
    except RequestNotFound:
        return False


@given(MADE)
def test_an_id_is_read_as_it_was_signed_and_fits_a_url(made: Correlation) -> None:
    text = CORRELATIONS.sign(made)
    assert CORRELATIONS.read(text) == made
    assert set(text) <= set(ALPHABET)
    assert len(text) <= CORRELATION_ID_CHARS_MAX


@given(st.text() | st.text(ALPHABET + "=") | st.binary(max_size=120).map(lambda raw: signed(b"request", raw, b"other")))
def test_any_other_text_is_nothing(text: str) -> None:
    assert not is_known(text)


def test_an_id_with_any_character_altered_is_nothing() -> None:
    text = CORRELATIONS.sign(EXAMPLE)
    altered = {text[:place] + letter + text[place + 1 :] for place in range(len(text)) for letter in ALPHABET + "= é"}
    assert [each for each in altered - {text} if is_known(each)] == []
    assert not any(is_known(each) for each in (text + "A", text + "=", text[:-1], text[1:]))


def test_an_id_is_no_receipt_and_a_receipt_is_no_id() -> None:
    """Even if their contents were the same: each is signed in a domain of its own."""
    receipts = Receipts(signing_key())
    assert receipts.read(CORRELATIONS.sign(EXAMPLE), EXAMPLE.topic_id) is None
    assert not is_known(sign(Receipt(EXAMPLE.topic_id, "g", "", 0, 1, "t", 0, 0, 1, 1, 0), KEY))
    content = bytes(17) + b"topic-id:orders"
    assert is_known(signed(b"request", b"1" + content, KEY))
    assert not is_known(signed(b"receipt", b"1" + content, KEY))
    assert not is_known(signed(b"request", b"2" + content, KEY))


def test_a_made_up_text_does_not_make_a_key() -> None:
    store = MemoryStore()
    correlations = Correlations(signing_key(None, store))
    too_long = b"1" + bytes(17) + b"t" * CORRELATION_ID_CHARS_MAX
    for text in ("", "x", "A" * 64, "é", signed(b"request", too_long, KEY)):
        with pytest.raises(RequestNotFound):
            correlations.read(text)
    assert store.meter.requests == 0
