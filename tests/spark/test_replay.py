"""Replaying: each message once, in order, at its rate, whenever the sender or the service dies. The service is the real
one; its clock and the sender's are the same, and virtual."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from spark.errors import BadInput
from spark.replaying.journal import Journal
from spark.replaying.sending import DEDUP_SURE_MS, PROPERTY, SETTLED_MS, Clock, Sender
from spark.replaying.service import Rejected, TopicClient, Unavailable
from tests.support.client import Client

ABOUT = {"run": "r1", "topic": "copy"}
MINUTE = 60_000


class Died(Exception):
    """The sender, between two of its steps."""


class Target:
    """The service, where calls go wrong: `before` and `after` are called with the number of the call."""

    def __init__(self, client: Client) -> None:
        self.client, self.calls = client, 0
        self.before: Callable[[int], object] = lambda _: None
        self.after: Callable[[int], object] = lambda _: None

    def settings(self) -> dict[str, Any]:
        return dict(self.client.get("/topics/copy").json)

    def produce(self, messages: Sequence[dict[str, Any]]) -> None:
        self.calls += 1
        self.before(self.calls)
        answer = self.client.post("/topics/copy/messages", messages=list(messages))
        if answer.status != 200:
            raise Rejected(answer.json["detail"])
        self.after(self.calls)

    def stored_since(self, at_ms: int) -> Iterable[dict[str, Any]]:
        return list(self.client.get("/topics/copy/messages", at_ms=at_ms, limit=1000).json["messages"])


@pytest.fixture
def target() -> Target:
    client = Client()
    client.topic("copy", queues=2)
    return Target(client)


def plan(count: int = 7) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"id": f"m{number}", "body": f"{number}", "key": f"k{number % 2}", "properties": {"n": str(number)}}


def send(target: Target, journal: Path, rate: float = 2, count: int = 7, doubtful: str | None = None) -> int:
    clock = Clock(target.client.clock.now, target.client.clock.sleep)
    with Journal(journal, ABOUT) as opened:
        return Sender("r1", target, opened, clock, rate, doubtful=doubtful).run(plan(count))


def stored(target: Target) -> list[str]:
    """The bodies of all queues, each queue in order."""
    pages = [target.client.get("/topics/copy/messages", queue=queue, offset=0, limit=1000).json for queue in (0, 1)]
    messages = [message for page in pages for message in page["messages"]]
    assert all(
        message["properties"] == {"n": message["body"], PROPERTY: f"r1/m{message['body']}"} for message in messages
    )
    return [message["body"] for message in messages]


def assert_each_once(target: Target, count: int = 7) -> None:
    bodies = stored(target)
    assert sorted(bodies) == [str(number) for number in range(count)]
    for parity in (0, 1):
        of_key = [body for body in bodies if int(body) % 2 == parity]
        assert of_key == sorted(of_key)


def once(number: int, error: Exception) -> Callable[[int], None]:
    def fail(call: int) -> None:
        if call == number:
            raise error

    return fail


def test_messages_go_at_their_rate_and_a_finished_run_sends_nothing_again(target: Target, tmp_path: Path) -> None:
    began = target.client.clock.now()
    assert send(target, tmp_path / "journal") == 7
    assert target.client.clock.now() - began == 3000  # 2 at once, and 2 a second from then on
    assert send(target, tmp_path / "journal") == 0
    assert_each_once(target)


@pytest.mark.parametrize("later_ms", [0, DEDUP_SURE_MS, DEDUP_SURE_MS + 1, 6 * MINUTE, 60 * MINUTE])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_sender_that_died_goes_on_without_sending_anything_twice(
    target: Target, tmp_path: Path, is_stored: bool, later_ms: int
) -> None:
    if is_stored:
        target.after = once(2, Died())
    else:
        target.before = once(2, Died())
    with pytest.raises(Died):
        send(target, tmp_path / "journal")
    target.client.clock.sleep(later_ms)
    began = target.client.clock.now()
    assert send(target, tmp_path / "journal") == 5
    if DEDUP_SURE_MS < later_ms < SETTLED_MS:
        assert target.client.clock.now() - began >= SETTLED_MS - later_ms
    assert_each_once(target)


def test_a_sender_that_dies_again_and_again_sends_each_message_once(target: Target, tmp_path: Path) -> None:
    def fail(call: int) -> None:
        if call % 3:
            raise Died

    target.after = fail
    for later_ms in [7 * MINUTE, 0, 4 * MINUTE, 2 * MINUTE] * 4:
        try:
            send(target, tmp_path / "journal")
        except Died:
            target.client.clock.sleep(later_ms)
    assert_each_once(target)


def test_a_lost_answer_is_asked_for_again(target: Target, tmp_path: Path) -> None:
    target.after = once(1, Unavailable("the answer was lost"))
    assert send(target, tmp_path / "journal") == 7
    assert_each_once(target)


def test_a_service_that_stays_away_ends_the_run_which_goes_on_later(target: Target, tmp_path: Path) -> None:
    def away(_: int) -> None:
        raise Unavailable("503 the store is not there")

    target.before = away
    with pytest.raises(BadInput, match="503 the store is not there; the same command goes on from here"):
        send(target, tmp_path / "journal")
    target.before = lambda _: None
    target.client.clock.sleep(60 * MINUTE)
    assert send(target, tmp_path / "journal") == 7
    assert_each_once(target)


def test_what_is_refused_is_not_in_doubt(target: Target, tmp_path: Path) -> None:
    assert target.client.delete("/topics/copy").status == 204
    with pytest.raises(BadInput, match="refuses a batch from m0 on: topic 'copy' does not exist"):
        send(target, tmp_path / "journal")
    target.client.topic("copy", queues=2)
    target.client.clock.sleep(60 * MINUTE)
    began = target.client.clock.now()
    assert send(target, tmp_path / "journal") == 7
    assert target.client.clock.now() - began == 3000
    assert_each_once(target)


@pytest.mark.parametrize(("doubtful", "bodies"), [("send", 7), ("skip", 5)])
def test_a_doubt_that_the_topic_cannot_settle_any_more_is_for_a_person(
    target: Target, tmp_path: Path, doubtful: str, bodies: int
) -> None:
    target.before = once(1, Died())
    with pytest.raises(Died):
        send(target, tmp_path / "journal")
    target.client.clock.sleep(4 * 24 * 60 * MINUTE)
    with pytest.raises(
        BadInput, match=r"messages m0 to m1 may have been stored, .* --doubtful send or skip settles it"
    ):
        send(target, tmp_path / "journal")
    assert target.calls == 1
    send(target, tmp_path / "journal", doubtful=doubtful)
    assert len(stored(target)) == bodies


def test_a_journal_is_of_one_run_and_process_and_drops_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, ABOUT) as journal:
        journal.sending(0, 2, 17)
        journal.sent(2)
        with pytest.raises(BadInput, match="another process is at work"), Journal(path, ABOUT):
            pass
    path.write_bytes(path.read_bytes() + b'{"sending":[2,4],"at')
    with Journal(path, ABOUT) as journal:
        assert (journal.stored, journal.doubt) == (2, None)
    with pytest.raises(BadInput, match="run r1 was begun with topic 'copy', not 'other'"):
        Journal(path, {**ABOUT, "topic": "other"}).__enter__()
    path.write_bytes(path.read_bytes() + b"what?\n")
    with pytest.raises(BadInput, match="is not the journal of a replay: line 4"), Journal(path, ABOUT):
        pass


class _Answers(BaseHTTPRequestHandler):
    """Answers what its server was told to, one after another; None: closes the connection instead."""

    def do_POST(self) -> None:
        status, body = self.server.answers.pop(0)  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers["content-length"]))
        if status:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(orjson.dumps(body))

    def log_message(self, *_: object) -> None:
        pass


def test_over_http_lasting_errors_differ_from_passing_ones() -> None:
    answers: list[tuple[int, Any]] = [
        (200, {"messages": [{"offset": 0}]}),
        (207, {"messages": [{"error": {"code": "QueueFull", "detail": "full"}}, {"offset": 1}]}),
        (503, {"detail": "not now"}),
        (429, {"detail": "slower"}),
        (400, {"detail": "field 'key' is bad"}),
        (0, None),
    ]
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.answers = answers  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        service = TopicClient(f"http://127.0.0.1:{server.server_port}/", "copy")
        try:
            service.produce([{"body": "x"}])
            for said in ("1 of 2 messages were not stored: full", "503 not now", "429 slower"):
                with pytest.raises(Unavailable, match=said):
                    service.produce([{"body": "x"}] * 2)
            with pytest.raises(Rejected, match="400 field 'key' is bad"):
                service.produce([{"body": "x"}])
            with pytest.raises(Unavailable):
                service.produce([{"body": "x"}])
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(BadInput, match="/topics/copy: URLError"):
        service.settings()
