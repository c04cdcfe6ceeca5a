"""Message ids as UUIDs, and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import INSTANT_MS_MAX, OFFSET_MAX, QUEUES_MAX
from chalicelib.core.base.message import delayed_id, message_id
from chalicelib.doors.sqs.messages import own_id_of, random_uuid, uuid_of

entry_ids = st.binary(min_size=8, max_size=8)
queues = st.integers(0, QUEUES_MAX - 1)
own_ids = st.builds(message_id, entry_ids, queues, st.integers(0, OFFSET_MAX)) | st.builds(
    delayed_id, entry_ids, queues, st.integers(1, INSTANT_MS_MAX)
)


@given(own_ids)
def test_an_id_becomes_a_uuid_and_itself_again(own_id: str) -> None:
    uuid = uuid_of(own_id)
    assert str(UUID(uuid)) == uuid
    assert (UUID(uuid).version, UUID(uuid).variant) == (8, "specified in RFC 4122")
    assert own_id_of(uuid) == own_id


def test_a_message_in_the_log_and_one_that_waited_are_told_apart() -> None:
    entry_id = bytes(range(8))
    assert uuid_of(message_id(entry_id, 1, 5)) != uuid_of(delayed_id(entry_id, 1, 5))


@pytest.mark.parametrize("text", ["", "x", "00000000-0000-4000-8000-000000000000", "0" * 36, f"{uuid_of('0' * 19)}0"])
def test_other_texts_are_no_ids(text: str) -> None:
    assert own_id_of(text) is None


@given(st.binary(min_size=16, max_size=16))
def test_random_bytes_make_a_uuid_of_version_4(entropy: bytes) -> None:
    assert UUID(random_uuid(entropy)).version == 4
