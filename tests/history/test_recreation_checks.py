"""The checks of topics that are deleted and made again find violations, and nothing else."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from tests.history import recreation
from tests.history.facts import Delivered, Sent

LATER_MS = METADATA_AGE_MS_MAX + 3_000
DELETED = [(1_000, 1_100)]


def sent(body: str, began_ms: int) -> Sent:
    return Sent(body, None, began_ms, place=(0, 0), at_ms=began_ms + 10)


def delivered(body: str, began_ms: int) -> Delivered:
    return Delivered("g", (0, 0), body, "id", 1, began_ms, began_ms + 10, began_ms + 1_000, "receipt")


@pytest.mark.parametrize(
    ("sent_ms", "body", "delivered_ms", "is_wrong"),
    [(500, "a", LATER_MS, True), (500, "a", 2_000, False), (995, "a", LATER_MS, False), (500, "b", 600, True)],
    ids=["later", "while instances may not know", "sent meanwhile", "sent elsewhere"],
)
def test_what_was_sent_before_a_deletion_comes_only_until_all_know(
    sent_ms: int, body: str, delivered_ms: int, is_wrong: bool
) -> None:
    wrong = [*recreation.out_of_place([sent("a", sent_ms)], [delivered(body, delivered_ms)], DELETED)]
    assert len(wrong) == is_wrong


def test_what_the_standing_topic_took_must_come() -> None:
    took = [sent("a", LATER_MS), sent("b", LATER_MS)]
    assert len([*recreation.lost(took, [delivered("a", 9_000)], since_ms=0)]) == 1


def test_what_may_have_gone_to_the_topic_before_need_not_come() -> None:
    assert not [*recreation.lost([sent("a", 1_200)], [], since_ms=1_100)]
