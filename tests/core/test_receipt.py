"""A receipt is exactly what this service signed, or nothing."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.catalogue import signing_key
from chalicelib.core.cursors.lease import Receipt, read, sign

KEY = b"0123456789abcdef"
ALPHABET = string.ascii_letters + string.digits + "-_"
NAMES = st.text(ALPHABET, min_size=1, max_size=12)
NUMBERS = st.integers(0, 10**15)
RECEIPTS = st.builds(
    Receipt,
    *(NAMES, NAMES, NAMES | st.just(""), NUMBERS, NUMBERS, NAMES),
    *(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS),
)


def example(length: int) -> Receipt:
    """Three lengths, since base64 packs threes."""
    return Receipt("topic-id", "group-id", "", 3, 1, "t" * length, 2, 4711, 10, 1, 0)


@given(RECEIPTS)
def test_a_receipt_is_read_as_it_was_signed(receipt: Receipt) -> None:
    assert read(sign(receipt, KEY), KEY) == receipt


@given(RECEIPTS, st.binary(min_size=1).filter(lambda key: key != KEY))
def test_a_receipt_signed_with_another_key_is_nothing(receipt: Receipt, key: bytes) -> None:
    assert read(sign(receipt, key), KEY) is None


@given(st.text() | st.text(ALPHABET + "="))
def test_any_other_text_is_nothing(text: str) -> None:
    assert read(text, KEY) is None


@given(RECEIPTS, st.data())
def test_a_receipt_cut_short_is_nothing(receipt: Receipt, data: st.DataObject) -> None:
    text = sign(receipt, KEY)
    assert read(text[: data.draw(st.integers(0, len(text) - 1))], KEY) is None
    assert read(text[data.draw(st.integers(1, len(text))) :], KEY) is None


@given(RECEIPTS, RECEIPTS, st.data())
def test_parts_of_two_receipts_are_not_a_receipt(one: Receipt, other: Receipt, data: st.DataObject) -> None:
    first, second = sign(one, KEY), sign(other, KEY)
    place = data.draw(st.integers(1, min(len(first), len(second)) - 1))
    mixed = first[:place] + second[place:]
    assert mixed in (first, second) or read(mixed, KEY) is None


@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_receipt_with_any_character_altered_but_the_last_is_nothing(length: int) -> None:
    text = sign(example(length), KEY)
    for place in range(len(text) - 1):
        for letter in ALPHABET + "=+/ .\n\u00e9":
            if letter != text[place]:
                assert read(text[:place] + letter + text[place + 1 :], KEY) is None


@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_receipt_with_its_last_character_altered_is_nothing(length: int) -> None:
    text = sign(example(length), KEY)
    accepted = [letter for letter in ALPHABET if letter != text[-1] and read(text[:-1] + letter, KEY)]
    assert accepted == []


@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_receipt_with_something_added_is_nothing(length: int) -> None:
    text = sign(example(length), KEY)
    assert [tail for tail in ("=", "==", "A", "AA", "AAAA", "\n", " ", "====") if read(text + tail, KEY)] == []


@given(RECEIPTS)
def test_a_receipt_that_the_release_before_signed_is_read(receipt: Receipt) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signing_key, "_signature", signing_key._former_signature)
        former = sign(receipt, KEY)
    assert former != sign(receipt, KEY)
    assert read(former, KEY) == receipt
    assert read(former, b"another key than that") is None


def test_a_receipt_of_another_version_is_nothing() -> None:
    import chalicelib.core.cursors.lease

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chalicelib.core.cursors.lease, "_VERSION", "0")
        old = sign(example(8), KEY)
    assert read(old, KEY) is None
