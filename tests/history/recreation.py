"""Judges a topic that is deleted and made again while it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from tests.history.facts import Delivered, Sent

KNOWN_MS = METADATA_AGE_MS_MAX + 1_000
"""An instance may use a deleted topic for this long, and a request takes a while."""


def out_of_place(
    sent: Sequence[Sent], delivered: Sequence[Delivered], deleted: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """Deliveries from another topic, or from before a deletion."""
    sent_by = {each.body: each.at_ms for each in sent}
    for each in delivered:
        if each.body not in sent_by:
            yield f"the topic gave {each.body}, which was never sent to it"
        for began_ms, at_ms in deleted:
            if sent_by.get(each.body, began_ms) < began_ms and each.began_ms > at_ms + KNOWN_MS:
                what = f"the topic gave {each.body} at {each.began_ms}, sent by {sent_by[each.body]}"
                yield f"{what}, though it was deleted from {began_ms} to {at_ms}"


def lost(sent: Sequence[Sent], drained: Sequence[Delivered], since_ms: int) -> Iterator[str]:
    """Messages that the topic standing since then accepted, and does not return in the end."""
    came = {each.body for each in drained}
    for each in sent:
        if each.place is not None and each.began_ms > since_ms + KNOWN_MS and each.body not in came:
            yield f"the topic, which stands since {since_ms}, never gives {each.body}, sent at {each.began_ms}"
