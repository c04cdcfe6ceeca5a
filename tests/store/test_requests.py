"""The DynamoDB store under failures: its retries, when it gives up, and what it knows then. The client is a script, the
clock is virtual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from chalicelib.core.base.deadline import ending, hasty, one_call, part_until, within
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import READ_TIMEOUT_MS, STORE_DEADLINE_MS
from chalicelib.core.store import Keys, Range, Throttled
from chalicelib.core.store.dynamodb.expressions import typed_item
from chalicelib.core.store.dynamodb.requests import (
    STORE_PAUSE_MS_MAX,
    STORE_PAUSE_MS_MIN,
    Failed,
    KeptConnectionClosed,
    NeverSent,
    NoAnswer,
    Trying,
    Unusable,
)
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.writes import Absent, Exists, Item, Key, Refused, RemoveItem, Set, Write, never_landed
from tests.support.clock import Clock

KEY = Key("p", "s")
MADE = {"pk": "p", "sk": "s", "id": "mine"}
MAKING = Write(KEY, (Absent(("id",)),), (Set(("id",), "mine"),), landed=lambda before: before == MADE)

Answer = dict[str, Any] | Exception
Answering = Callable[[dict[str, Any]], Answer]

ENOUGH = 20_000
"""The number of requests that a test takes for a loop."""


class ScriptedClient:
    """Answers each request with the next of the script, which tests write down."""

    def __init__(self, script: Sequence[Answer | Answering] | Iterator[Answer | Answering]) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.timeouts_ms: list[int] = []
        self._script = iter(script)

    def ask(self, action: str, parameters: dict[str, Any], timeout_ms: int) -> Trying[Any]:
        self.sent.append((action, parameters))
        self.timeouts_ms.append(timeout_ms)
        assert len(self.sent) < ENOUGH, "sent without end"
        yield 0
        answer = next(self._script)
        if callable(answer):
            answer = answer(parameters)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


Storing = Callable[..., tuple[DynamoStore, ScriptedClient]]


@pytest.fixture
def storing(clock: Clock) -> Storing:
    """Makes a store on a client with this script."""

    def make(
        *script: Answer | Answering, forever: Answer | Answering | None = None
    ) -> tuple[DynamoStore, ScriptedClient]:
        client = ScriptedClient(repeat(forever) if forever is not None else script)
        return DynamoStore(client, "table", clock.runtime()), client

    return make


def refusal(found: Item | None) -> Failed:
    return Failed("ConditionalCheckFailedException", item=typed_item(found) if found else None)


def cancelled(*codes: str, found: Item | None = None) -> Failed:
    reasons: list[dict[str, Any]] = [{"Code": code} for code in codes]
    for reason in reasons:
        if reason["Code"] == "ConditionalCheckFailed" and found:
            reason["Item"] = typed_item(found)
    return Failed("TransactionCanceledException", reasons=reasons)


def read_timeout() -> Exception:
    return NoAnswer("timed out")


def slowly(clock: Clock, trouble: Exception) -> Answering:
    """A read timeout takes its time."""

    def answer(_: dict[str, Any]) -> Answer:
        clock.ms += READ_TIMEOUT_MS
        return trouble

    return answer


def done(item: Item) -> dict[str, Any]:
    return {"Attributes": typed_item(item)}


THROTTLED = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
]
NEVER_SENT = [NeverSent("no connection")]
DOUBTFUL = [
    NoAnswer("timed out"),
    Failed("InternalServerError", status=500),
    Failed("ServiceUnavailable", status=503),
]
FINAL = [
    Failed("ValidationException"),
    Failed("ItemCollectionSizeLimitExceededException"),
]
LASTING = {
    "create it, or set DECANT_TABLE": Failed("ResourceNotFoundException"),
    "create it, or set DECANT_BUCKET": Failed("NoSuchBucket"),
    "grant the right": Failed("AccessDeniedException"),
    "renew them": Failed("ExpiredTokenException"),
    "correct them": Failed("UnrecognizedClientException"),
    "configure some": Unusable("configure some"),
}
"""The remedy, and the trouble that lasts until somebody applies it."""


# -- sent again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", THROTTLED)
def test_a_throttled_write_is_sent_again_until_it_is_taken(storing: Storing, clock: Clock, code: str) -> None:
    store, client = storing(*[Failed(code)] * 3, done(MADE))
    assert store.write(MAKING) == MADE
    assert client.sent == [client.sent[0]] * 4
    assert len(clock.slept) == 3


@pytest.mark.parametrize("trouble", [*NEVER_SENT, *DOUBTFUL], ids=repr)
def test_a_write_that_got_lost_is_sent_again(storing: Storing, trouble: Exception) -> None:
    store, client = storing(trouble, trouble, done(MADE))
    assert store.write(MAKING) == MADE
    assert len(client.sent) == 3


@pytest.mark.parametrize("trouble", FINAL, ids=repr)
def test_a_request_that_no_repeat_would_help_is_not_sent_again(
    storing: Storing, clock: Clock, trouble: Exception
) -> None:
    store, client = storing(trouble)
    with pytest.raises(type(trouble)):
        store.write(MAKING)
    assert len(client.sent) == 1
    assert clock.slept == []


@pytest.mark.parametrize("remedy", LASTING)
def test_trouble_that_lasts_says_at_once_what_has_to_be_done(storing: Storing, clock: Clock, remedy: str) -> None:
    store, client = storing(LASTING[remedy])
    with pytest.raises(StoreUnavailable, match=remedy) as raised:
        store.write(MAKING)
    assert not raised.value.outcome_unknown
    assert len(client.sent) == 1
    assert clock.slept == []


def test_an_unknown_outcome_stays_unknown_when_a_repeat_fails(storing: Storing) -> None:
    store, _ = storing(read_timeout(), Failed("ExpiredTokenException"))
    with pytest.raises(StoreUnavailable) as raised:
        store.write(MAKING)
    assert raised.value.outcome_unknown


def test_a_process_stopped_between_two_tries_does_not_repeat_a_late_write(
    storing: Storing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = clock.sleep
    monkeypatch.setattr(clock, "sleep", lambda ms: sleep(ms + 62_000))
    store, client = storing(read_timeout(), done(MADE))
    with pytest.raises(StoreUnavailable) as raised:
        store.write(MAKING)
    assert raised.value.outcome_unknown
    assert len(client.sent) == 1


def test_a_clock_that_is_set_back_does_not_make_a_call_longer(storing: Storing, clock: Clock) -> None:
    store, _ = storing(forever=Failed("ThrottlingException"))
    began, clock.now = clock.ms, lambda: clock.ms - 60_000  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        store.write(MAKING)
    assert clock.ms - began <= STORE_DEADLINE_MS


def test_pauses_are_random_and_at_most_double(storing: Storing, clock: Clock) -> None:
    store, _ = storing(forever=Failed("ThrottlingException"))
    with pytest.raises(StoreUnavailable):
        store.write(MAKING)
    bounds = [min(STORE_PAUSE_MS_MIN * 2**number, STORE_PAUSE_MS_MAX) for number in range(len(clock.slept))]
    assert all(1 <= slept <= bound for slept, bound in zip(clock.slept, bounds, strict=True))
    assert any(slept < bound for slept, bound in zip(clock.slept, bounds, strict=True))
    assert len(clock.slept) >= 8


def test_a_call_gives_up_in_time_and_never_sleeps_just_to_give_up(storing: Storing, clock: Clock) -> None:
    store, client = storing(forever=Failed("ThrottlingException"))
    began = clock.now()
    with pytest.raises(StoreUnavailable):
        store.write(MAKING)
    assert STORE_DEADLINE_MS - STORE_PAUSE_MS_MAX <= clock.now() - began <= STORE_DEADLINE_MS
    assert len(client.sent) == len(clock.slept) + 1


def test_a_kept_connection_that_was_closed_costs_one_try_and_no_time(storing: Storing, clock: Clock) -> None:
    store, client = storing(KeptConnectionClosed("closed"), done(MADE))
    assert store.write(MAKING) == MADE
    assert len(client.sent) == 2
    assert clock.slept == []


def test_connections_that_keep_being_closed_are_not_tried_without_pause(storing: Storing, clock: Clock) -> None:
    store, _ = storing(forever=KeptConnectionClosed("closed"))
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.outcome_unknown
    assert len(clock.slept) >= 8


def test_a_closed_connection_that_is_noticed_late_is_not_tried_again(storing: Storing, clock: Clock) -> None:
    """The process was stopped while it waited for the answer."""

    def stopped(_: dict[str, Any]) -> Answer:
        clock.ms += 62_000
        return KeptConnectionClosed("closed")

    store, client = storing(stopped, done(MADE))
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.outcome_unknown
    assert len(client.sent) == 1


def test_a_write_that_was_sent_beside_one_that_failed_may_have_landed(storing: Storing) -> None:
    store, _ = storing(Failed("ValidationException"), done(MADE))
    others = [Write(Key("p", sk), (), (Set(("n",), 1),)) for sk in "ab"]
    with one_call(0) as call, suppress(Failed):
        store.write_each(others)
    assert call.has_written


def test_a_try_takes_no_longer_than_its_call_may(storing: Storing, clock: Clock) -> None:
    store, client = storing(done(MADE), done(MADE))
    store.write(MAKING)
    with within(clock.uptime() + 700):
        store.write(MAKING)
    assert client.timeouts_ms == [READ_TIMEOUT_MS, 700]


@pytest.mark.parametrize("trouble", [Failed("302", status=302), Failed("PermanentRedirect", status=301)])
def test_an_endpoint_that_redirects_is_not_followed(storing: Storing, trouble: Failed) -> None:
    store, client = storing(trouble)
    with pytest.raises(StoreUnavailable, match=r"redirects|another region"):
        store.read([Keys([KEY])])
    assert len(client.sent) == 1


# -- what is known afterwards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [*(Failed(code) for code in THROTTLED), *NEVER_SENT], ids=repr)
def test_a_write_that_never_arrived_has_surely_not_landed(storing: Storing, trouble: Exception) -> None:
    store, _ = storing(forever=trouble)
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.members == {}


@pytest.mark.parametrize("trouble", DOUBTFUL, ids=repr)
def test_a_write_without_an_answer_may_have_landed(storing: Storing, clock: Clock, trouble: Exception) -> None:
    store, _ = storing(forever=slowly(clock, trouble))
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.members == {"outcome": "unknown"}


def test_an_unknown_outcome_stays_unknown_when_repeats_are_throttled(storing: Storing) -> None:
    store, _ = storing(read_timeout(), *[Failed("ThrottlingException")] * 100)
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.outcome_unknown


def test_a_repeat_that_finds_its_own_effect_has_succeeded(storing: Storing) -> None:
    store, client = storing(read_timeout(), refusal(MADE))
    assert store.write(MAKING) == MADE
    assert len(client.sent) == 2


def test_a_repeat_that_finds_the_effect_of_another_is_refused(storing: Storing) -> None:
    theirs = {**MADE, "id": "theirs"}
    store, _ = storing(read_timeout(), refusal(theirs))
    with pytest.raises(Refused) as refused:
        store.write(MAKING)
    assert refused.value.before == theirs


def test_a_repeat_of_a_removal_that_finds_nothing_has_succeeded(storing: Storing) -> None:
    store, client = storing(read_timeout(), refusal(None))
    removal = Write(KEY, (Exists(("id",)),), (RemoveItem(),), landed=lambda before: not before)
    assert store.write(removal) == {}
    assert [action for action, _ in client.sent] == ["DeleteItem"] * 2


@pytest.mark.parametrize("read", [Keys([KEY]), Range("p", "a", "z")], ids=repr)
def test_a_read_without_an_answer_has_no_unknown_outcome(storing: Storing, clock: Clock, read: Keys | Range) -> None:
    store, _ = storing(forever=slowly(clock, read_timeout()))
    with pytest.raises(StoreUnavailable) as unavailable:
        store.read([read])
    assert not unavailable.value.outcome_unknown


def test_every_write_asks_for_the_item_that_refuses_it(storing: Storing) -> None:
    store, client = storing(done(MADE), {}, {})
    store.write(MAKING)
    store.write(Write(KEY, (Exists(("id",)),), (RemoveItem(),)))
    store.write_together([MAKING])
    parameters = [client.sent[0][1], client.sent[1][1], client.sent[2][1]["TransactItems"][0]["Update"]]
    assert [each["ReturnValuesOnConditionCheckFailure"] for each in parameters] == ["ALL_OLD"] * 3


# -- several writes ---------------------------------------------------------------------------------------------------


def test_writes_side_by_side_fail_each_for_itself(storing: Storing) -> None:
    def answer(parameters: dict[str, Any]) -> Answer:
        match parameters["Key"]["sk"]["S"]:
            case "throttled":
                return Failed("ThrottlingException")
            case "refused":
                return refusal(MADE)
        return done(MADE)

    store, _ = storing(forever=answer)
    writes = [Write(Key("p", sk), (), (Set(("n",), 1),)) for sk in ("throttled", "fine", "refused")]
    throttled, fine, refused = store.write_each(writes)
    assert isinstance(throttled, StoreUnavailable)
    assert not throttled.outcome_unknown
    assert fine == MADE
    assert isinstance(refused, Refused)
    assert refused.before == MADE


def test_a_transaction_that_met_another_is_sent_again_under_the_same_token(storing: Storing) -> None:
    store, client = storing(
        cancelled("None", "TransactionConflict"),
        cancelled("ThrottlingError", "None"),
        Failed("TransactionInProgressException"),
        read_timeout(),
        {},
    )
    store.write_together([MAKING, Write(Key("p", "t"), (), (RemoveItem(),))])
    assert len(client.sent) == 5
    assert client.sent == [client.sent[0]] * 5
    assert len(client.sent[0][1]["ClientRequestToken"]) <= 36


def test_two_transactions_have_two_tokens(storing: Storing) -> None:
    store, client = storing({}, {})
    store.write_together([MAKING])
    store.write_together([MAKING])
    first, second = (parameters["ClientRequestToken"] for _, parameters in client.sent)
    assert first != second


@pytest.mark.parametrize(
    "codes", [("None", "ConditionalCheckFailed"), ("TransactionConflict", "ConditionalCheckFailed")]
)
def test_a_transaction_with_a_refused_write_is_not_sent_again(storing: Storing, codes: tuple[str, ...]) -> None:
    theirs = {**MADE, "id": "theirs"}
    store, client = storing(cancelled(*codes, found=theirs))
    with pytest.raises(Refused) as refused:
        store.write_together([MAKING, MAKING])
    assert refused.value.before == theirs
    assert len(client.sent) == 1


def test_a_transaction_that_finds_its_own_effect_has_landed(storing: Storing) -> None:
    store, client = storing(cancelled("ConditionalCheckFailed", "None", found=MADE))
    store.write_together([MAKING, MAKING])
    assert len(client.sent) == 1


@pytest.mark.parametrize("landed", [bool, never_landed])
def test_a_call_knows_that_a_try_without_an_answer_may_have_landed(storing: Storing, landed: Any) -> None:
    store, _ = storing(read_timeout(), refusal(MADE))

    def call() -> None:
        with one_call(0):
            with suppress(Refused):
                store.write(replace(MAKING, landed=landed))
            raise StoreUnavailable("a later request of the same call")

    with pytest.raises(StoreUnavailable) as unavailable:
        call()
    assert unavailable.value.outcome_unknown


def test_an_item_that_would_be_too_large_is_refused_for_want_of_room(storing: Storing) -> None:
    text = "Item size to update has exceeded the maximum allowed size"
    store, client = storing(Failed("ValidationException", text))
    with pytest.raises(StoreUnavailable, match="too large") as unavailable:
        store.write(MAKING)
    assert not unavailable.value.outcome_unknown
    assert len(client.sent) == 1


def test_the_requests_of_one_call_share_its_time(storing: Storing, clock: Clock) -> None:
    store, _ = storing(forever=slowly(clock, Failed("ThrottlingException")))
    began = clock.ms
    with suppress(StoreUnavailable), one_call(clock.uptime()):
        for _ in range(3):
            with suppress(StoreUnavailable):
                store.write(MAKING)
    assert clock.ms - began < 2 * STORE_DEADLINE_MS


@pytest.mark.parametrize("trouble", [Failed("ThrottlingException"), Failed("InternalServerError", status=500)])
def test_no_request_outlasts_the_deadline_of_its_caller(storing: Storing, clock: Clock, trouble: Failed) -> None:
    """Neither one that was not applied nor one in doubt, nor what a part of the time was given to."""
    store, _ = storing(forever=trouble)
    until_ms = clock.uptime() + 700
    limits = (one_call(clock.uptime()), within(until_ms), within(until_ms + 1_000), part_until(until_ms + 1_000))
    with limits[0], limits[1], limits[2], limits[3], pytest.raises(StoreUnavailable) as unavailable:
        store.write(MAKING)
    assert unavailable.value.outcome_unknown == (trouble.code == "InternalServerError")
    assert sum(clock.slept) <= 700


def test_no_request_begins_once_the_call_has_ended(storing: Storing, clock: Clock) -> None:
    sent_ms: list[int] = []

    def slow(parameters: dict[str, Any]) -> Answer:
        sent_ms.append(clock.uptime())
        answering = slowly(clock, Failed("InternalServerError", status=500))
        return answering(parameters)

    store, _ = storing(forever=slow)
    ends_at_ms = clock.uptime() + 5_000
    with suppress(StoreUnavailable), one_call(clock.uptime()), ending(ends_at_ms):
        for _ in range(2):
            with suppress(StoreUnavailable):
                store.write(MAKING)
        assert clock.uptime() >= ends_at_ms
        sent = len(sent_ms)
        with pytest.raises(StoreUnavailable, match="no time left"):
            store.write(MAKING)
    assert len(sent_ms) == sent
    assert max(sent_ms) < ends_at_ms


def test_a_transaction_that_is_wrong_in_itself_is_not_sent_again(storing: Storing) -> None:
    store, client = storing(cancelled("ValidationError", "None"))
    with pytest.raises(Failed):
        store.write_together([MAKING, MAKING])
    assert len(client.sent) == 1


def test_a_transaction_in_conflict_to_the_end_has_surely_not_landed(storing: Storing) -> None:
    store, _ = storing(forever=cancelled("TransactionConflict", "None"))
    with pytest.raises(StoreUnavailable) as unavailable:
        store.write_together([MAKING, MAKING])
    assert not unavailable.value.outcome_unknown


# -- batches ----------------------------------------------------------------------------------------------------------


def items(*sort_keys: str) -> list[dict[str, Any]]:
    return [typed_item({"pk": "p", "sk": sk}) for sk in sort_keys]


def asked_keys(parameters: dict[str, Any]) -> list[str]:
    return [key["sk"]["S"] for key in parameters["RequestItems"]["table"]["Keys"]]


def test_keys_that_were_left_out_are_asked_for_again(storing: Storing) -> None:
    rest = {"table": {"Keys": items("c", "a"), "ConsistentRead": True}}
    store, client = storing(
        {"Responses": {"table": items("b")}, "UnprocessedKeys": rest},
        {"Responses": {}, "UnprocessedKeys": rest},
        {"Responses": {"table": items("a", "c")}, "UnprocessedKeys": {}},
    )
    read = store.read([Keys([Key("p", sk) for sk in "abcd"], strong=True)])[0]
    assert [item["sk"] for item in read] == ["a", "b", "c"]
    assert [asked_keys(parameters) for _, parameters in client.sent] == [list("abcd"), list("ca"), list("ca")]
    assert all(parameters["RequestItems"]["table"]["ConsistentRead"] for _, parameters in client.sent)


def test_items_that_were_left_out_are_put_again(storing: Storing) -> None:
    rest = {"table": [{"PutRequest": {"Item": items("b")[0]}}]}
    store, client = storing({"UnprocessedItems": rest}, {"UnprocessedItems": {}})
    store.put_all([{"pk": "p", "sk": "a"}, {"pk": "p", "sk": "b"}])
    assert [parameters["RequestItems"] for _, parameters in client.sent[1:]] == [rest]


def give_nothing(parameters: dict[str, Any]) -> Answer:
    """As when a partition is throttled altogether."""
    return {
        "Responses": {},
        "UnprocessedKeys": parameters["RequestItems"],
        "UnprocessedItems": parameters["RequestItems"],
    }


@pytest.mark.parametrize("verb", ["read", "put", "remove"])
def test_a_batch_that_is_never_taken_is_given_up(storing: Storing, clock: Clock, verb: str) -> None:
    store, _ = storing(forever=give_nothing)
    acts: dict[str, Callable[[], object]] = {
        "read": lambda: store.read([Keys([KEY])]),
        "put": lambda: store.put_all([MADE]),
        "remove": lambda: store.remove_all([KEY]),
    }
    with pytest.raises(StoreUnavailable):
        acts[verb]()
    assert sum(clock.slept) <= STORE_DEADLINE_MS
    assert len(clock.slept) >= 8


def test_batches_are_as_big_as_dynamodb_takes(storing: Storing) -> None:
    def answer(parameters: dict[str, Any]) -> Answer:
        return {"Responses": {}, "UnprocessedKeys": {}, "UnprocessedItems": {}}

    store, client = storing(forever=answer)
    store.read([Keys([Key("p", str(number)) for number in range(201)])])
    store.put_all([{"pk": "p", "sk": str(number)} for number in range(51)])
    sizes = sorted(
        len(asked) if isinstance(asked := parameters["RequestItems"]["table"], list) else len(asked["Keys"])
        for _, parameters in client.sent
    )
    assert sizes == [1, 1, 25, 25, 100, 100]


def test_pages_of_a_range_follow_each_other_up_to_the_limit(storing: Storing) -> None:
    last = typed_item({"pk": "p", "sk": "b"})
    store, client = storing(
        {"Items": items("a", "b"), "LastEvaluatedKey": last},
        Failed("ThrottlingException"),
        {"Items": items("c"), "LastEvaluatedKey": last},
    )
    assert [item["sk"] for item in store.read([Range("p", "a", "z", limit=3)])[0]] == ["a", "b", "c"]
    assert [parameters["Limit"] for _, parameters in client.sent[1:]] == [1, 1]
    assert [parameters["ExclusiveStartKey"] for _, parameters in client.sent[1:]] == [last, last]


def test_a_page_without_items_is_not_the_end(storing: Storing) -> None:
    last = typed_item({"pk": "p", "sk": "b"})
    store, _ = storing({"Items": [], "LastEvaluatedKey": last}, {"Items": items("c")})
    assert [item["sk"] for item in store.read([Range("p", "a", "z")])[0]] == ["c"]


# -- callers that know a better way than to send it again -------------------------------------------------------------


def test_a_hasty_caller_learns_of_the_first_throttle(storing: Storing, clock: Clock) -> None:
    store, client = storing(forever=Failed("ThrottlingException"))
    with hasty():
        [outcome] = store.write_each([MAKING])
    assert isinstance(outcome, Throttled)
    assert not outcome.outcome_unknown
    assert (len(client.sent), clock.slept) == (1, [])


@pytest.mark.parametrize("trouble", [NoAnswer("no answer"), NeverSent("no connection"), Failed("Internal", "", 500)])
def test_a_hasty_caller_waits_where_the_store_does_not_throttle(storing: Storing, trouble: Exception) -> None:
    store, client = storing(trouble, {"Attributes": typed_item(MADE)})
    with hasty():
        assert store.write_each([MAKING]) == [MADE]
    assert len(client.sent) == 2


def test_a_hasty_write_that_may_have_landed_is_not_left_in_doubt(storing: Storing) -> None:
    store, client = storing(
        NoAnswer("no answer"),
        Failed("ThrottlingException"),
        Failed("ThrottlingException"),
        {"Attributes": typed_item(MADE)},
    )
    with hasty():
        assert store.write_each([MAKING]) == [MADE]
    assert len(client.sent) == 4
