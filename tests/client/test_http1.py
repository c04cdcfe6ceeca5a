"""Answers in any pieces are read alike, and no bytes make the reader fail in another way than it says."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant.calls import HttpResponse
from decant.errors import NotDecant
from decant.http1 import Incomplete, Reader

ANSWERS = [
    b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\nx-a: b\r\n\r\n{"a":1}',
    b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nx-t: u\r\n\r\n',
    b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}',
    b'HTTP/1.0 200 OK\r\n\r\n{"a":1}',
]


def fed(pieces: list[bytes]) -> HttpResponse | None:
    reader = Reader()
    for piece in pieces:
        if piece and (response := reader.feed(piece)):
            return response
    return reader.feed(b"")


@given(answer=st.sampled_from(ANSWERS), cuts=st.lists(st.integers(0, 120)))
def test_an_answer_in_any_pieces_is_the_same(answer: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    response = fed([answer[begin:end] for begin, end in zip(places, places[1:], strict=False)])
    assert response is not None
    assert (response.status, response.body) == (200, b'{"a":1}')


@given(answer=st.sampled_from(ANSWERS[:3]), count=st.integers(0, 120))
def test_an_answer_that_is_cut_off_is_incomplete(answer: bytes, count: int) -> None:
    if count < len(answer):
        with pytest.raises(Incomplete):
            fed([answer[:count]])


@given(
    pieces=st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [b"HTTP/1.1 200 OK\r\n", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"\r\n", b"0"]
        )
    )
)
def test_no_bytes_fail_in_another_way(pieces: list[bytes]) -> None:
    with contextlib.suppress(NotDecant, Incomplete):
        fed(pieces)


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (b"HTTP/1.1 204 No\r\n\r\n", True),
        (b"HTTP/1.1 204 No\r\nconnection: close\r\n\r\n", False),
        (b"HTTP/1.0 204 No\r\n\r\n", False),
        (b"HTTP/1.0 204 No\r\nconnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\n", False),
    ],
)
def test_a_connection_is_kept_where_another_answer_can_follow(answer: bytes, is_kept: bool) -> None:
    reader = Reader()
    assert reader.feed(answer) is not None
    assert reader.is_kept is is_kept
