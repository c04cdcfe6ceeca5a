"""`GET /metrics`: what Prometheus reads."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.parser import text_string_to_metric_families

from chalicelib import VERSION
from chalicelib.api.about import Metrics
from chalicelib.core.admin import groups
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, HOUR_MS, MINUTE_MS, PASSED_AT_ONCE_MAX
from chalicelib.core.telemetry import telemetry
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.emulators import ROOT
from tests.support.troubled_store import TroubledStore, unavailable


class Scrape:
    """One look at the metrics, as the parser of Prometheus' own client reads them."""

    def __init__(self, client: Client) -> None:
        answer = client.get("/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == Metrics.MEDIA_TYPE == CONTENT_TYPE_PLAIN_0_0_4
        families = text_string_to_metric_families(answer.json)
        self.samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        self.processes = {value for _, *labels in self.samples for name, value in labels if name == "process"}

    def value(self, name: str, **labels: str) -> float | None:
        """The value that this instance reports."""
        place: dict[str, str] = dict(labels)
        if ("decant_" + name, *sorted(place.items())) not in self.samples and self.processes:
            [place["process"]] = self.processes
        return self.samples.get(("decant_" + name, *sorted(place.items())))


def test_the_backlog_of_each_group_is_told(client: Client, topic: Topic, group: Group, clock: Clock) -> None:
    topic.group("audit")
    topic.produce("a", "b", "c", "d", "e")
    group.change(max_attempts=1)
    group.nack(group.take_one())
    group.change(max_attempts=2)
    group.nack(group.take_one(), delay_ms=60_000)
    group.take_one()
    clock.sleep(1_500)
    scrape = Scrape(client)
    names = ("ready", "in_flight", "retrying", "lag", "dead")
    for name, values in (("billing", (2, 1, 1, 3, 1)), ("audit", (5, 0, 0, 5, 0))):
        place = {"topic": "orders", "group": name}
        assert tuple(scrape.value(f"{count}_messages", **place) for count in names) == values
        assert scrape.value("oldest_age_seconds", **place) == 1.5
    assert scrape.value("backlogs_timestamp_seconds") == clock.ms / 1_000
    assert scrape.value("backlogs_incomplete") == 0


def test_the_release_is_told(client: Client) -> None:
    assert Scrape(client).value("build_info", version=VERSION, commit="unknown") == 1


def test_backlogs_are_read_once_a_minute(client: Client, topic: Topic, group: Group, clock: Clock) -> None:
    Scrape(client)
    topic.produce("a")
    before = client.store.meter.copy()
    clock.sleep(MINUTE_MS - 1)
    assert Scrape(client).value("ready_messages", topic="orders", group="billing") == 0
    assert client.store.meter.since(before).requests == 0
    clock.sleep(1)
    assert Scrape(client).value("ready_messages", topic="orders", group="billing") == 1


def test_a_look_that_fails_is_told_and_made_again_a_minute_later(
    client: Client, store: TroubledStore, topic: Topic, group: Group, clock: Clock
) -> None:
    def told() -> tuple[float | None, ...]:
        scrape = Scrape(client)
        ready = scrape.value("ready_messages", topic="orders", group="billing")
        return ready, scrape.value("backlogs_timestamp_seconds"), scrape.value("backlogs_incomplete")

    store.before = unavailable("read")
    assert told() == (None, 0, 1)
    store.before = unavailable()
    before = client.store.meter.copy()
    assert told() == (None, 0, 1)
    assert client.store.meter.since(before).requests == 0
    clock.sleep(MINUTE_MS)
    read_at_s = clock.ms / 1_000
    assert told() == (0, read_at_s, 0)
    topic.produce("a")
    clock.sleep(MINUTE_MS)
    store.before = unavailable("read")
    assert told() == told() == (0, read_at_s, 1)


def test_the_time_of_a_look_is_bounded_where_topics_have_no_groups(
    client: Client, store: TroubledStore, clock: Clock
) -> None:
    for number in range(20):
        client.topic(f"topic-{number}")
    store.before = lambda _verb, _about: clock.sleep(groups.LOOK_MS // 4)
    began_ms, before = clock.ms, client.store.meter.copy()
    assert Scrape(client).value("backlogs_incomplete") == 1
    assert clock.ms - began_ms <= groups.LOOK_MS + groups.LOOK_MS // 4
    assert client.store.meter.since(before).round_trips <= 5


def test_a_topic_without_groups_costs_a_look_at_it_and_at_its_list_of_them(client: Client, topic: Topic) -> None:
    before = client.store.meter.copy()
    assert Scrape(client).value("backlogs_incomplete") == 0
    assert client.store.meter.since(before).requests == 3


def test_the_number_of_groups_is_bounded(client: Client, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BACKLOG_GROUPS_MAX", 3)
    monkeypatch.setattr(groups, "GROUP_DETAILS_MAX", 2)
    monkeypatch.setattr(groups, "PAGE_DEFAULT", 1)
    for name in ("a", "b", "c"):
        topic.group(name)
    another = client.topic("other")
    assert Scrape(client).value("backlogs_incomplete") == 0
    another.group("d")
    client.clock.sleep(MINUTE_MS)
    scrape = Scrape(client)
    assert scrape.value("backlogs_incomplete") == 1
    assert sum(name == "decant_ready_messages" for name, *_ in scrape.samples) == 3


def test_messages_are_counted_since_the_start(client: Client, topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", "b", "c")
    first, second, third = group.take(3)
    group.ack(first)
    group.nack(second, delay_ms=0)
    client.post(f"{group.path}/bury", receipts=[third["receipt"]])
    group.extend(group.take_one())
    topic.produce({"body": "d", "ttl_ms": 1})
    clock.sleep(1)
    group.pop()
    scrape = Scrape(client)
    assert scrape.value("produced_messages_total", topic="orders") == 4
    counts = {
        "popped": 4,
        "redelivered": 1,
        "acked": 1,
        "nacked": 1,
        "buried": 1,
        "extended": 1,
        "expired": 1,
        "dead": 1,
    }
    for name, number in counts.items():
        assert scrape.value(f"{name}_messages_total", topic="orders", group="billing") == number, name


def test_the_commit_that_stores_messages_counts_them(client: Client, store: TroubledStore, topic: Topic) -> None:
    path, other = f"{topic.path}/transactions", client.another()
    begun = client.post(path, messages=[{"body": "a"}, {"body": "b"}]).json["transaction_id"]

    def commit_first(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            other.post(f"{path}/{begun}/commit")

    assert Scrape(client).value("produced_messages_total", topic="orders") is None
    store.before = commit_first
    assert client.post(f"{path}/{begun}/commit").status == 200
    counts = [Scrape(each).value("produced_messages_total", topic="orders") or 0 for each in (client, other)]
    assert counts == [0, 2]


def test_only_what_has_expired_is_counted_as_such(client: Client, clock: Clock) -> None:
    client.put("/topics/brief", queues=1, retention_ms=HOUR_MS)
    topic = Topic(client, "brief")
    picky, purged = topic.group("picky", filter={"tags": ["a"]}), topic.group("purged")
    topic.produce("old", "old", delay_ms=1)
    purged.reset("now")
    clock.sleep(1)
    assert purged.pop()["messages"] == []
    clock.sleep(HOUR_MS)
    for _ in range(PASSED_AT_ONCE_MAX // BATCH_MESSAGES_MAX):
        topic.produce(*["unwanted"] * BATCH_MESSAGES_MAX)
    for _ in range(2):
        assert picky.pop()["messages"] == []
    scrape = Scrape(client)
    assert scrape.value("expired_messages_total", topic="brief", group="picky") == 2
    assert not scrape.value("expired_messages_total", topic="brief", group="purged")


def test_what_is_set_aside_has_not_expired(client: Client, topic: Topic) -> None:
    group = topic.group("keyed", ordered="key")
    topic.produce(*({"body": key, "key": key} for key in "aaab"), queue=0)
    assert [group.take_one()["body"] for _ in range(2)] == ["a", "b"]
    assert not Scrape(client).value("expired_messages_total", topic="orders", group="keyed")


def test_each_instance_counts_for_itself(client: Client, topic: Topic, group: Group) -> None:
    topic.produce("a")
    other = client.another()
    assert Scrape(other).value("produced_messages_total", topic="orders") is None
    assert Scrape(client).processes != Scrape(other).processes


def test_requests_and_sweeps_are_timed(client: Client, group: Group, clock: Clock, store: TroubledStore) -> None:
    group.pop(wait_ms=1_000)
    store.before = lambda _verb, _about: clock.sleep(20)
    client.get("/topics/unknown")
    client.api.service.sweeps.forward()
    store.before = unavailable()
    scrape = Scrape(client)
    assert scrape.value("request_duration_seconds_count", operation="pop") == 1
    assert scrape.value("request_duration_seconds_bucket", operation="pop", le="0.005") == 1
    assert scrape.value("request_duration_seconds_bucket", operation="get_topic", le="0.01") == 0
    assert scrape.value("request_duration_seconds_sum", operation="get_topic") == 0.02
    assert scrape.value("problems_total", operation="get_topic", code="TopicNotFound") == 1
    assert scrape.value("sweep_duration_seconds_count", sweep="forward") == 1
    assert scrape.value("sweep_timestamp_seconds", sweep="forward") == clock.ms / 1_000


def test_a_sweep_that_fails_did_not_come_to_its_end(client: Client, clock: Clock, store: TroubledStore) -> None:
    def fail() -> None:
        store.before = unavailable("read")
        with pytest.raises(StoreUnavailable):
            client.api.service.sweeps.forward()
        store.before = lambda *_: None

    fail()
    assert Scrape(client).value("sweep_timestamp_seconds", sweep="forward") is None
    client.api.service.sweeps.forward()
    ended_at_s = clock.ms / 1_000
    clock.sleep(60_000)
    fail()
    assert Scrape(client).value("sweep_timestamp_seconds", sweep="forward") == ended_at_s


def test_what_the_store_was_asked_is_counted(client: Client, topic: Topic, group: Group) -> None:
    before, scrape = client.store.meter.copy(), Scrape(client)
    earlier = {name: scrape.value(f"{name}_total") or 0 for name in ("read_units", "write_units", "store_calls")}
    looked = client.store.meter.since(before)
    before = client.store.meter.copy()
    topic.produce("a")
    group.take_one()
    spent, scrape = client.store.meter.since(before), Scrape(client)
    assert scrape.value("write_units_total") == earlier["write_units"] + spent.write_units
    assert scrape.value("read_units_total") == earlier["read_units"] + spent.read_units + looked.read_units
    assert scrape.value("store_retries_total") == 0


def test_series_are_bounded(client: Client, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PLACES_MAX", 1)
    topic.produce("a")
    client.topic("second").produce("b", "c")
    client.topic("third").produce("d")
    scrape = Scrape(client)
    assert scrape.value("produced_messages_total", topic="orders") == 1
    assert scrape.value("produced_messages_total", topic="_other") == 3


def test_the_documented_metrics_are_those_given(client: Client, group: Group) -> None:
    page = (ROOT / "docs/observing.md").read_text()
    families = {family.name for family in text_string_to_metric_families(client.get("/metrics").json)}
    for name in families:
        assert f"`{name}`" in page or f"`{name}_total`" in page, name


def test_the_dashboard_reads_only_metrics_that_are_given(client: Client, topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.pop()
    given = {family.name for family in text_string_to_metric_families(client.get("/metrics").json)}
    read = set(re.findall(r"\bdecant_\w+", (ROOT / "infra/grafana.json").read_text()))
    assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in read} - given == set()
    assert given - {re.sub("_(total|bucket|sum|count)$", "", name) for name in read} == {
        "decant_build_info",
        "decant_buried_messages",
        "decant_extended_messages",
        "decant_moved_messages",
    }


def test_the_alert_rules_read_only_metrics_that_are_given(client: Client, topic: Topic) -> None:
    given = {family.name for family in text_string_to_metric_families(client.get("/metrics").json)}
    read = set(re.findall(r"\bdecant_\w+", (ROOT / "infra/alerts.yaml").read_text()))
    assert {re.sub("_(total|bucket)$", "", name) for name in read} - given == set()
