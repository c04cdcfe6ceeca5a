"""Reads answer by key in the order asked, and by range within bounds, however many and large the items are."""

from __future__ import annotations

from uuid import uuid4

import pytest

from chalicelib.core.store import Keys, Range, Read, Store
from chalicelib.core.table.writes import Key
from tests.store.shelf import HIGH, LOW, put


def names(store: Store, read: Range) -> list[str]:
    return [item["sk"] for item in store.read([read])[0]]


def fill(store: Store, pk: str, *sort_keys: str) -> None:
    store.put_all([{"pk": pk, "sk": sk, "n": number} for number, sk in enumerate(sort_keys)])


# -- by key -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strong", [False, True])
def test_items_come_in_the_order_of_the_keys(store: Store, key: Key, strong: bool) -> None:
    fill(store, key.pk, "a", "b", "c")
    asked = [Key(key.pk, sk) for sk in ("c", "a", "b")]
    assert [item["sk"] for item in store.read([Keys(asked, strong)])[0]] == ["c", "a", "b"]


def test_absent_items_are_left_out(store: Store, key: Key) -> None:
    fill(store, key.pk, "a", "c")
    asked = [Key(key.pk, sk) for sk in ("d", "c", "b", "a")] + [Key(uuid4().hex, "a")]
    assert [item["sk"] for item in store.read([Keys(asked)])[0]] == ["c", "a"]
    assert store.read([Keys([Key(key.pk, "b")])]) == [[]]


def test_more_keys_are_read_than_one_request_takes(store: Store, key: Key) -> None:
    fill(store, key.pk, *(f"{number:03d}" for number in range(0, 250, 2)))
    asked = [Key(key.pk, f"{number:03d}") for number in reversed(range(250))]
    read = store.read([Keys(asked)])[0]
    assert [item["sk"] for item in read] == [f"{number:03d}" for number in reversed(range(0, 250, 2))]


def test_keys_of_many_partitions_are_read_at_once(store: Store, key: Key) -> None:
    partitions = [uuid4().hex for _ in range(20)]
    store.put_all([{"pk": pk, "sk": "a"} for pk in partitions])
    assert [item["pk"] for item in store.read([Keys([Key(pk, "a") for pk in partitions])])[0]] == partitions


def test_more_is_read_by_key_than_one_response_holds(store: Store, key: Key) -> None:
    """A response holds 16 MB."""
    places = [Key(key.pk, f"{number:02d}") for number in range(70)]
    store.put_all([{**place._asdict(), "data": bytes([number]) * 256 * 1024} for number, place in enumerate(places)])
    read = store.read([Keys(places)])[0]
    assert [item["data"][:1] for item in read] == [bytes([number]) for number in range(70)]
    store.remove_all(places)


def test_a_key_that_is_asked_for_twice_is_answered_twice(store: Store, key: Key) -> None:
    item = put(store, key, n=1)
    assert store.read([Keys([key, key])])[0] == [item, item]


def test_no_keys_find_nothing(store: Store) -> None:
    assert store.read([]) == []


# -- by range ---------------------------------------------------------------------------------------------------------


def test_a_range_includes_both_its_ends(store: Store, key: Key) -> None:
    fill(store, key.pk, "a", "b", "c", "d", "e")
    assert names(store, Range(key.pk, "b", "d")) == ["b", "c", "d"]
    assert names(store, Range(key.pk, "b", "d", strong=True)) == ["b", "c", "d"]
    assert names(store, Range(key.pk, "c", "c")) == ["c"]


def test_the_ends_of_a_range_need_not_be_there(store: Store, key: Key) -> None:
    fill(store, key.pk, "b", "d")
    assert names(store, Range(key.pk, "a", "c")) == ["b"]
    assert names(store, Range(key.pk, "b ", "d~")) == ["d"]
    assert names(store, Range(key.pk, LOW, HIGH)) == ["b", "d"]


def test_an_empty_range_finds_nothing(store: Store, key: Key) -> None:
    fill(store, key.pk, "b", "d")
    assert names(store, Range(key.pk, "bb", "c")) == []
    assert names(store, Range(key.pk, "e", "z", limit=1, descending=True)) == []
    assert names(store, Range(uuid4().hex, LOW, HIGH)) == []


def test_a_range_comes_in_order_from_either_end(store: Store, key: Key) -> None:
    fill(store, key.pk, "c", "a", "b")
    assert names(store, Range(key.pk, LOW, HIGH)) == ["a", "b", "c"]
    assert names(store, Range(key.pk, LOW, HIGH, descending=True)) == ["c", "b", "a"]


def test_a_range_sees_only_its_partition(store: Store, key: Key) -> None:
    fill(store, key.pk, "a")
    fill(store, f"{key.pk}0", "b")
    fill(store, key.pk[:-1], "c")
    assert names(store, Range(key.pk, LOW, HIGH)) == ["a"]


def test_sort_keys_are_in_the_order_of_their_bytes(store: Store, key: Key) -> None:
    ordered = [
        "000000000000031",
        "000000000000032",
        "000000000000100",
        "A",
        "Z",
        "a",
        "a b",
        "a-b",
        "a.b",
        "ab",
        "b",
        "~",
    ]
    fill(store, key.pk, *reversed(ordered))
    assert names(store, Range(key.pk, LOW, HIGH)) == ordered


@pytest.mark.parametrize(
    ("limit", "descending", "expected"),
    [
        (1, False, ["b"]),
        (2, False, ["b", "c"]),
        (3, False, ["b", "c", "d"]),
        (4, False, ["b", "c", "d"]),
        (1, True, ["d"]),
        (2, True, ["d", "c"]),
        (99, True, ["d", "c", "b"]),
    ],
)
def test_a_limit_takes_the_first(store: Store, key: Key, limit: int, descending: bool, expected: list[str]) -> None:
    fill(store, key.pk, "a", "b", "c", "d", "e")
    assert names(store, Range(key.pk, "b", "d", limit, descending)) == expected


@pytest.mark.parametrize("descending", [False, True])
def test_a_range_is_read_to_its_end_however_big(store: Store, key: Key, descending: bool) -> None:
    """DynamoDB ends a page at a megabyte."""
    count = 14
    store.put_all([{"pk": key.pk, "sk": f"{number:02d}", "data": b"x" * 250_000} for number in range(count)])
    everything = [f"{number:02d}" for number in range(count)]
    expected = everything[::-1] if descending else everything
    assert names(store, Range(key.pk, LOW, HIGH, descending=descending)) == expected
    assert names(store, Range(key.pk, LOW, HIGH, 9, descending)) == expected[:9]
    assert names(store, Range(key.pk, "03", "10", 100, descending)) == [sk for sk in expected if "03" <= sk <= "10"]
    store.remove_all([Key(key.pk, sk) for sk in everything])


# -- several at once --------------------------------------------------------------------------------------------------


def test_each_read_has_its_own_answer(store: Store, key: Key) -> None:
    fill(store, key.pk, "a", "b", "c")
    other = uuid4().hex
    fill(store, other, "x")
    asked: list[Read] = [
        Range(key.pk, "b", HIGH),
        Keys([Key(other, "x"), Key(key.pk, "a")]),
        Range(other, "a", "b"),
        Keys([Key(other, "y")]),
        Range(key.pk, LOW, HIGH, limit=1, descending=True, strong=True),
        Keys([Key(key.pk, "a")], strong=True),
    ]
    answers = [[item["sk"] for item in items] for items in store.read(asked)]
    assert answers == [["b", "c"], ["x", "a"], [], [], ["c"], ["a"]]


def test_more_reads_are_answered_than_go_out_at_once(store: Store, key: Key) -> None:
    fill(store, key.pk, *(f"{number:03d}" for number in range(64)))
    asked = [Range(key.pk, f"{number:03d}", HIGH, limit=1) for number in range(64)]
    assert [items[0]["n"] for items in store.read(asked)] == list(range(64))


# -- blobs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["memory", "moto"], indirect=True)
def test_a_blob_comes_back_byte_for_byte(store: Store, key: Key) -> None:
    assert store.keeps_blobs
    data = bytes(range(256)) * 20_000
    store.put_blob(f"payloads/{key.pk}/1", data)
    store.put_blob(f"payloads/{key.pk}/2", b"\x00")
    assert store.get_blob(f"payloads/{key.pk}/1") == data
    assert store.get_blob(f"payloads/{key.pk}/2") == b"\x00"


@pytest.mark.parametrize("store", ["memory", "moto"], indirect=True)
def test_removed_blobs_are_gone_and_absent_ones_no_trouble(store: Store, key: Key) -> None:
    kept, gone = f"payloads/{key.pk}/1", f"payloads/{key.pk}/2"
    store.put_blob(kept, b"kept")
    store.put_blob(gone, b"gone")
    store.remove_blobs([gone, f"payloads/{key.pk}/3"])
    store.remove_blobs([])
    assert store.get_blob(kept) == b"kept"
    assert store.get_blob(gone) is None


@pytest.mark.parametrize("store", ["dynoxide"], indirect=True)
def test_a_store_without_a_bucket_says_so(store: Store) -> None:
    assert not store.keeps_blobs
