"""The steps of those who look: traces, look-ups, lists, metrics. They change nothing."""

from __future__ import annotations

from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chalicelib.core.base.limits import MINUTE_MS
from tests.model.keeping import Keeping
from tests.model.model import Json, details
from tests.model.tended import ALARMS, Counted, TendedGroup, TendedTopic, standing

GAUGES = ("ready", "in_flight", "retrying", "lag", "dead")
_RANKS = {"popped": 0, "extended": 1}
"""What comes first of one delivery within a millisecond."""


class Watching(Keeping):
    def trace(self, instance: int, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from([*3 * ["orders"], *3 * ["graves"], ALARMS]))
        client, path = self.clients[self.knowing(instance, topic)], f"/topics/{topic}/messages"
        if self._is_refused(client.get(f"{path}/x"), topic):
            return
        modelled = self._topic(topic)
        stored = [message for log in modelled.logs for message in log]
        if not stored:
            assert client.get(f"{path}/x/trace").problem == (404, "MessageNotFound")
            return
        message = data.draw(st.sampled_from(stored))
        assert client.get(f"{path}/{message['message_id']}").json == message
        seen = client.get(f"{path}/{message['message_id']}/trace").json
        place = message["queue"], message["offset"]
        for group in seen["groups"]:
            assert group["events"] == sorted(group["events"], key=lambda event: event["at_ms"])
        known = self._standings(modelled, place)
        about = {name: message[name] for name in ("message_id", "topic", "queue", "offset", "stored_at_ms")}
        told = {**about, "traced": modelled.settings["trace"], "complete": True, "groups": known}
        for standings in (seen["groups"], known):
            for group in standings:
                group["events"].sort(key=_order)
        assert seen == told

    def _named(self, topic: TendedTopic) -> list[tuple[str, TendedGroup]]:
        return [(name, self.group(topic.name, name)) for name in sorted(topic.groups)]

    def _standings(self, topic: TendedTopic, place: tuple[int, int]) -> list[Json]:
        return [standing(group, name, place, self.now) for name, group in self._named(topic)]

    def list_groups(self, instance: int, data: st.DataObject) -> None:
        limit = data.draw(st.sampled_from([1, 2, 100]))
        topic = data.draw(st.sampled_from([*self.model.topics]))
        listed = self._paged(instance, f"/topics/{topic}/groups", "groups", limit)
        for group in listed:
            group.pop("created_at_ms")
        known = [details(self._topic(topic), name, self.now) for name in sorted(self.model.topics[topic].groups)]
        for group in known:
            group.pop("queues")
        assert listed == known

    def list_topics(self, instance: int, data: st.DataObject) -> None:
        limit = data.draw(st.sampled_from([1, 2, 100]))
        listed = self._paged(instance, "/topics", "topics", limit)
        assert listed == [self._topic(name).settings for name in sorted(self.model.topics)]
        for name in self.model.topics:
            topic = self._topic(name)
            ends = [{"queue": queue, "first_offset": 0, "end_offset": len(log)} for queue, log in enumerate(topic.logs)]
            seen = self.clients[self.knowing(instance, name)].get(f"/topics/{name}").json
            assert seen == {**topic.settings, "groups": sorted(topic.groups), "queue_offsets": ends}

    def _paged(self, instance: int, path: str, name: str, limit: int) -> list[Json]:
        return self.rest_of(instance, path, self.clients[instance].get(path, limit=limit), name, limit)

    def scrape(self, instance: int, data: st.DataObject) -> None:
        counts = self.counts[instance]
        if counts.read_at_ms is None or self.now - counts.read_at_ms >= MINUTE_MS:
            counts.read_at_ms, counts.backlogs = self.now, self._backlogs()
        text = self.clients[instance].get("/metrics").json
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        gauges = {
            (sample.name, sample.labels["topic"], sample.labels["group"]): sample.value
            for sample in samples
            if "group" in sample.labels and "process" not in sample.labels
        }
        assert gauges == counts.backlogs
        assert [each.value for each in samples if each.name == "decant_backlogs_timestamp_seconds"] == [
            counts.read_at_ms / 1_000
        ]
        counted: dict[Counted, float] = {
            (
                sample.name.removeprefix("decant_").removesuffix("_messages_total"),
                sample.labels["topic"],
                sample.labels.get("group", ""),
            ): sample.value
            for sample in samples
            if sample.name.endswith("_messages_total")
        }
        assert counted == +counts.messages

    def _backlogs(self) -> dict[Counted, float]:
        backlogs: dict[Counted, float] = {}
        for topic, name, _ in self._groups():
            seen = details(topic, name, self.now)
            for gauge in GAUGES:
                backlogs[f"decant_{gauge}_messages", topic.name, name] = seen[gauge]
            oldest = [each["oldest_ready_at_ms"] for each in seen["queues"] if each["ready"]]
            age_ms = self.now - min(oldest, default=self.now)
            backlogs["decant_oldest_age_seconds", topic.name, name] = age_ms / 1_000
        return backlogs


def _order(event: Json) -> tuple[object, ...]:
    return event["at_ms"], event["attempt"], _RANKS.get(event["event"], 2), str(event)
