"""Two instances of the service over one store, and a third that looks on, so that the caches of the two stay as stale
as they are."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from chalicelib import wiring
from tests.model.model import Model
from tests.model.topic import Topic
from tests.model.values import Json
from tests.support.client import Answer, Client

instances = st.sampled_from([0, 1])
edges = st.sampled_from([-1, 0, 0, 1])
"""How far from a limit."""


class Pair(RuleBasedStateMachine):
    """The steps of a history, one after another. Only `clock` makes time pass; the store is empty at first."""

    def __init__(self) -> None:
        super().__init__()
        first = Client()
        second = first.another()
        self.clients = [first, second]
        self.observer = second.another()
        self.clock = first.clock
        self.model = Model()

    @property
    def now(self) -> int:
        return self.clock.ms

    def teardown(self) -> None:
        wiring.use(None)

    def rest_of(self, instance: int, path: str, page: Answer, items: str, limit: int, least: int = 1) -> list[Json]:
        """All items of a list, of which this is the first page. No page has more than the limit, or fewer than
        `least`, but the first."""
        listed = list[Json](page.json[items])
        assert len(listed) <= limit
        while token := page.json["next"]:
            page = self.clients[instance].get(path, limit=limit, next=token)
            assert least <= len(page.json[items]) <= limit
            listed += page.json[items]
        return listed

    def is_refused(self, answer: Answer, topic: str, group: str | None = None) -> bool:
        """Whether the topic or group does not exist, which the answer must then say."""
        missing = self.model.missing(topic, group)
        assert missing is None or answer.problem == missing
        return missing is not None

    def learn_of(self, topic: Topic) -> None:
        """Adds what has come into the logs without being sent at once: the logs tell it."""
        if not (topic.coming or topic.due(self.now)):
            return
        path = f"/topics/{topic.name}"
        for queue in self.observer.get(path).json["queue_offsets"]:
            known = len(topic.logs[queue["queue"]])
            if queue["end_offset"] > known:
                query = {"queue": queue["queue"], "offset": known, "limit": 1_000}
                for message in self.observer.get(f"{path}/messages", **query).json["messages"]:
                    topic.meet(message, self.now)


def path_of(topic: str, group: str) -> str:
    return f"/topics/{topic}/groups/{group}"
