"""A topic that is deleted and made again while it is used gives nothing from before, and loses nothing of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from chalicelib.core.admin import topics
from chalicelib.core.catalogue.group import BY_KEY
from chalicelib.core.catalogue.topic import Topic
from tests.simulation.bugs.log import dedup_ids_of_all_topics
from tests.simulation.plans import Plan
from tests.simulation.recreated_topic import RECREATED, RecreatedWorld

SEEDS = 10


def found(plan: Plan = RECREATED) -> Iterator[str]:
    for seed in range(SEEDS):
        yield from (wrong for wrong in RecreatedWorld(seed, plan).run() if wrong.startswith("the topic"))


@pytest.mark.parametrize(
    "plan", [RECREATED, replace(RECREATED, transactions=4, requests=3, ordered=BY_KEY, small_pages=True, dedup_ids=3)]
)
def test_topics_of_one_name_do_not_meet(plan: Plan) -> None:
    assert {seed: wrong for seed in range(SEEDS) if (wrong := RecreatedWorld(seed, plan).run())} == {}


def test_a_topic_that_has_the_id_of_the_one_before_is_found() -> None:
    def made(name: str, _: str, *more: Any, **settings: Any) -> Topic:
        return Topic(name, name, *more, **settings)

    with patch.object(topics, "Topic", made):
        assert any(found())


def test_dedup_ids_of_the_topic_before_are_found() -> None:
    with dedup_ids_of_all_topics():
        assert any(found(replace(RECREATED, dedup_ids=60)))
