"""Access control: every operation, with every right, over every way in; refusals reveal nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import app as functions
from app import app
from chalicelib import wiring
from chalicelib.api import OPERATIONS, Api, Demand
from chalicelib.core.base.fields import declarations
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.http.openapi import document
from local.memory.store import MemoryStore
from tests.http.provoked import Provoked
from tests.support import documented, events
from tests.support.client import ALL_RIGHTS, Answer, Client, Json, Topic
from tests.support.events import Sent
from tests.support.rights import rights_around

UNAUTHENTICATED, FORBIDDEN = (401, "Unauthenticated"), (403, "Forbidden")
EVERYTHING = {operation.id: operation for operation in OPERATIONS.values()}
GUARDED = {name: operation for name, operation in EVERYTHING.items() if operation.right != "anyone"}
WHOLE = {name for name, operation in GUARDED.items() if not operation.path_names or "token_id" in operation.path_names}
"""Operations about the whole service, and the lists that show what the caller may see."""
FILTERED = {name for name, operation in GUARDED.items() if operation.is_filtered}
IN_GROUPS = {name for name, operation in GUARDED.items() if "group" in operation.path_names}

# -- ways in ----------------------------------------------------------------------------------------------------------

Way = Callable[[Client, str, str, Any], Answer]


def by(front: Callable[[Sent], Json]) -> Way:
    def ask(client: Client, method: str, path: str, body: Any) -> Answer:
        wiring.use(client.api)
        response = app(front(Sent(method, path, client.encoded(body), **client.credentials())), None)
        lists = response.get("multiValueHeaders") or {}
        headers = response.get("headers") or {name: values[0] for name, values in lists.items()}
        return Answer(response["statusCode"], headers, response["body"].encode())

    return ask


def by_make_run(client: Client, method: str, path: str, body: Any) -> Answer:
    return client.ask(method, path, body)


WAYS: dict[str, Way] = {**{name: by(front) for name, front in events.FRONTS.items()}, "make run": by_make_run}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    wiring.use(None)


def outcome(answer: Answer) -> tuple[int, str] | None:
    """None: the caller was let in."""
    return answer.problem if answer.status in (401, 403) else None


# -- operations x rights x ways in ------------------------------------------------------------------------------------

RIGHTS = rights_around("billing")


def is_allowed(name: str, rights: str) -> bool:
    """Restates the rules of the page on access."""
    operation = EVERYTHING[name]
    verb, has_group = operation.right, name in IN_GROUPS
    sends = verb == "produce" or name == "reply"
    if verb == "anyone":
        return True
    if name == "checkTransactions" and rights in ("only produce", "all but consume"):
        return False  # it answers bodies
    if rights.startswith("only "):
        return rights == f"only {verb}"
    if rights.startswith("all but "):
        return rights != f"all but {verb}" and (name not in WHOLE or name in FILTERED or verb != "admin")
    if name in FILTERED:
        return True
    return {
        "all": True,
        "in its topic": name not in WHOLE,
        "in its group": has_group or sends,
        "elsewhere": False,
        "in another group": sends,
        "denied in its topic": False,
        "denied in its group": name == "reply",
        "denied elsewhere": name not in WHOLE,
    }[rights]


@pytest.mark.parametrize(
    ("rights", "way"),
    [*((rights, by_make_run) for rights in RIGHTS), *(("in its group", WAYS[name]) for name in events.FRONTS)],
    ids=[*RIGHTS, *events.FRONTS],
)
def test_an_operation_needs_its_right_in_its_place(rights: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rights by one way in, and by each other one those of which most depends on the place."""
    provoked = Provoked(monkeypatch)
    provoked.guarded.token = provoked.client.make_token(*RIGHTS[rights])
    refused = {name for name in EVERYTHING if not is_allowed(name, rights)}
    before = items(provoked.store)
    assert {name: outcome(way(provoked.guarded, *provoked.requests[name])) for name in refused} == dict.fromkeys(
        refused, FORBIDDEN
    )
    assert items(provoked.store) == before, "a refused call changes nothing"
    allowed = sorted(EVERYTHING.keys() - refused, key=_destroys)
    assert {name: outcome(way(provoked.guarded, *provoked.requests[name])) for name in allowed} == dict.fromkeys(
        allowed
    )


def _destroys(name: str) -> bool:
    return name.startswith("delete")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_without_a_token_only_health_answers(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    before = items(provoked.store)
    answers = {name: way(provoked.guarded, *request) for name, request in provoked.requests.items()}
    assert {name for name, answer in answers.items() if outcome(answer) is None} == {"getHealth"}
    assert {name for name, answer in answers.items() if outcome(answer) == UNAUTHENTICATED} == GUARDED.keys()
    assert items(provoked.store) == before


def test_every_operation_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Provoked(monkeypatch).requests.keys() == EVERYTHING.keys()


# -- what hands bodies out --------------------------------------------------------------------------------------------

SETTINGS_THAT_HAND_OUT = {"putGroup": {"push", "dead_letters"}, "putTopic": set[str]()}
"""The settings of each PUT that send bodies elsewhere. Add each new setting here or below."""
SETTINGS_THAT_DO_NOT = {
    "putGroup": {
        *("start", "mode", "ordered", "invisible_ms", "max_attempts", "backoff_ms", "max_in_flight", "rate_limit"),
        *("paused", "filter", "delay_ms", "settle_by"),
        "alarm",  # its messages have counts, and go to a topic of their own
    },
    "putTopic": {"queues", "retention_ms", "max_depth", "index_keys", "zones", "trace"},
}
OWN_REPLIES = {"request", "getReply"}
"""A reply belongs to the caller that asked, and only that caller got the id."""


def answers_of_operations() -> dict[str, Json]:
    return {each["operationId"]: each["responses"] for each in documented.operations().values()}


def has_body(schema: Any) -> bool:
    """Whether an answer of this schema can have the body of a message."""
    if isinstance(schema, list):
        return any(map(has_body, schema))
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema:
        kind, name = schema["$ref"].split("/")[-2:]
        return has_body(document()["components"][kind][name])
    return "body" in schema.get("properties", {}) or any(map(has_body, schema.values()))


def test_who_gets_to_see_bodies_has_a_right_to_see_them() -> None:
    shown = {name for name, answers in answers_of_operations().items() if has_body(answers.get("200"))}
    assert {"pop", "readMessages", "listDead", "checkTransactions"} <= shown
    for name in shown - OWN_REPLIES:
        operation = EVERYTHING[name]
        assert operation.right in ("read", "consume") or "" in operation.hands_out, name


@pytest.mark.parametrize("name", SETTINGS_THAT_HAND_OUT)
def test_each_setting_is_judged_by_whether_it_hands_bodies_out(name: str) -> None:
    operation = EVERYTHING[name]
    assert operation.request
    assert declarations(operation.request).keys() == SETTINGS_THAT_HAND_OUT[name] | SETTINGS_THAT_DO_NOT[name]
    assert {*operation.hands_out} == SETTINGS_THAT_HAND_OUT[name]


HANDING_OUT: dict[str, tuple[str, str, Json]] = {
    "push": ("PUT", "/topics/orders/groups/{group}", {"push": {"url": "https://hooks.example/all"}}),
    "dead_letters": ("PUT", "/topics/orders/groups/{group}", {"dead_letters": {"topic": "mine"}}),
    "check": ("POST", "/topics/orders/transactions/check", {}),
}


@pytest.mark.parametrize("group", ["billing", "leak"])
@pytest.mark.parametrize("way", HANDING_OUT)
def test_who_may_not_see_bodies_has_none_handed_out(way: str, group: str) -> None:
    """Neither a group of its own nor one that stands."""
    client, (method, path, body) = Client(demand=Demand(requests=True)), HANDING_OUT[way]
    insider = Client(client.store, client.clock, seed=3)
    insider.topic("orders").group("billing")
    insider.topic("mine")
    before = items(client.store)
    blind: Json = {"operations": ["read", "consume"], "topics": "orders", "deny": True}
    client.token = client.make_token(ALL_RIGHTS, blind)
    made = items(client.store)
    refused = client.ask(method, path.format(group=group), body)
    assert refused.problem == FORBIDDEN
    assert items(client.store) == made != before
    client.token = client.make_token(ALL_RIGHTS)
    assert client.ask(method, path.format(group=group), body).status in (200, 201)


def test_an_administrator_who_sees_nothing_takes_a_push_away() -> None:
    client = Client(demand=Demand(requests=True))
    insider = Client(client.store, client.clock, seed=3)
    insider.topic("orders").group("billing", push={"function": "worker"})
    client.token = client.make_token({"operations": ["admin"], "topics": "*"})
    settings: Json
    for settings in ({"push": {}}, {"dead_letters": None}, {"paused": True}):
        assert client.put("/topics/orders/groups/billing", **settings).status == 200


# -- direct invocation ------------------------------------------------------------------------------------------------

FUNCTIONS = ("produce", "pop", "ack", "nack", "extend", "bury", "request", "reply")
HAS_TOKEN, NEEDS_TOKEN = Demand(requests=True), Demand(requests=True, invocations=True)


def invoked(provoked: Provoked, name: str, demand: Demand, **more: Any) -> tuple[int, str] | None:
    """Status and code of a refusal by the function; None if the caller was let in."""
    wiring.use(Api(provoked.client.api.service, demand))
    names = {"topic": "orders", "group": "billing", "correlation_id": provoked.correlation_id}
    named = {kind: names[kind] for kind in OPERATIONS[name].path_names}
    result = getattr(functions, name)({**named, **(provoked.requests[name][2] or {}), **more}, None)
    problem = result.get("error", {"status": 200})
    return (problem["status"], problem["code"]) if problem["status"] in (401, 403) else None


@pytest.mark.parametrize("demand", [HAS_TOKEN, NEEDS_TOKEN])
@pytest.mark.parametrize("rights", RIGHTS)
def test_a_function_needs_the_rights_of_its_operation(
    rights: str, demand: Demand, monkeypatch: pytest.MonkeyPatch
) -> None:
    provoked = Provoked(monkeypatch)
    token = provoked.client.make_token(*RIGHTS[rights])
    for name in FUNCTIONS:
        expected = None if is_allowed(name, rights) else FORBIDDEN
        assert invoked(provoked, name, demand, token=token) == expected, name


def test_who_invokes_a_function_needs_no_token_unless_the_stage_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    assert {invoked(provoked, name, NEEDS_TOKEN) for name in FUNCTIONS} == {UNAUTHENTICATED}
    assert {invoked(provoked, name, HAS_TOKEN) for name in FUNCTIONS} == {None}


def test_who_shows_no_token_to_a_function_learns_nothing_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    for name in FUNCTIONS:
        for kind in OPERATIONS[name].path_names:
            value: object
            for value in (None, 7, [], {}, "a/b", "none", "a" * 9_000):
                named: Json = {kind: value}
                assert invoked(provoked, name, NEEDS_TOKEN, **named) == UNAUTHENTICATED
                assert invoked(provoked, name, HAS_TOKEN, **named, token="nonsense") == UNAUTHENTICATED


@pytest.mark.parametrize("token", ["", "nonsense", "Bearer x", "a" * 9_000, "dct_\n"])
def test_a_bad_token_in_an_event_is_401_although_none_is_needed(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoked(Provoked(monkeypatch), "pop", HAS_TOKEN, token=token) == UNAUTHENTICATED


@pytest.mark.parametrize("front", events.FRONTS.values(), ids=events.FRONTS)
def test_a_request_that_a_function_serves_needs_a_token(
    front: Callable[[Sent], Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A front sends long polls to `pop`: IAM has let the front in, not the caller."""
    provoked = Provoked(monkeypatch)
    wiring.use(Api(provoked.client.api.service, HAS_TOKEN))
    response = functions.pop(front(Sent("POST", "/topics/orders/groups/billing/pop", b"{}")), None)
    assert (response["statusCode"], "Unauthenticated" in response["body"]) == (401, True)


def items(store: MemoryStore) -> Any:
    return {key: dict(partition) for key, partition in store._items.items()}


# -- what a refusal tells ---------------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Client:
    """It demands tokens, and shows one for topic `orders` alone."""
    client = Client(demand=Demand(requests=True))
    insider = Client(client.store, client.clock, seed=3)
    for name in ("orders", "secret"):
        insider.topic(name).group("billing")
    client.token = client.make_token({**ALL_RIGHTS, "topics": "orders"})
    return client


SECRET = "QJ7ZK3XW5B2NDM4T_" + 43 * "a"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        f"dct_{SECRET}",
        f"Bearer dct_{SECRET}",
        f"Bearer  dct_{SECRET} ",
        f"Bearer dct_{SECRET}, Bearer dct_{SECRET}",
        f"Bearer dct_{SECRET[:-1]}",
        f"Bearer dct_{SECRET}a",
        f"Bearer dcx_{SECRET}",
        f"Bearer dct_{SECRET.lower()}",
        "Bearer dct__",
        "Bearer " + "a" * 60_000,
        "Bearer \u00e4",
        "AWS4-HMAC-SHA256 Credential=a/20260101/eu-central-1/sqs/aws4_request, SignedHeaders=host, Signature=a",
    ],
)
def test_a_bad_token_is_401_and_says_how_to_do_better(client: Client, authorization: str | None) -> None:
    client.token = None
    sent: Json = {} if authorization is None else {"authorization": authorization}
    answer = client.ask("GET", "/topics/orders", **sent)
    assert answer.problem == UNAUTHENTICATED
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "a" * 43 not in answer.raw.decode()


def test_the_scheme_may_be_written_in_any_case(client: Client) -> None:
    token, client.token = client.token, None
    for scheme in ("Bearer", "bearer", "BEARER", "Bearer "):
        assert client.ask("GET", "/topics/orders", authorization=f"{scheme} {token}").status == 200


def test_unknown_wrong_expired_and_revoked_tokens_get_the_same_answer(client: Client) -> None:
    expired = client.make_token(expires_at_ms=client.clock.ms + 1)
    revoked = client.make_token()
    client.api.delete_token(revoked.split("_")[1])
    client.clock.ms += 1
    wrong = f"{client.token}"[:-1] + ("A" if f"{client.token}"[-1] != "A" else "B")
    answers = set()
    for client.token in (expired, revoked, wrong, f"dct_{SECRET}", "nonsense"):
        answer = client.get("/topics/orders")
        answers.add((answer.status, answer.raw))
    assert len(answers) == 1


def test_what_one_may_not_see_is_403_whether_it_is_there_or_not(client: Client) -> None:
    answers = {
        (answer.status, answer.raw.replace(name.encode(), b"?"))
        for name in ("secret", "absent")
        for answer in (client.get(f"/topics/{name}"), client.get(f"/topics/{name}/groups/billing"))
    }
    assert {status for status, _ in answers} == {403}
    assert len(answers) == 2  # one for each kind of path
    assert client.get("/topics/orders/groups/absent").problem == (404, "GroupNotFound")


@pytest.mark.parametrize("sent", [{"raw": b"{"}, {"body": {"messages": 7}}, {"query": {"limt": 1}}, {"raw": b"a" * 99}])
def test_a_bad_request_without_the_right_is_403_and_without_token_401(client: Client, sent: Json) -> None:
    def ask(path: str) -> tuple[int, str]:
        return client.ask("POST", path, **sent).problem

    assert ask("/topics/orders/messages")[0] == 400
    assert ask("/topics/secret/messages") == FORBIDDEN
    assert ask("/topics/not%20a%20name/messages") == FORBIDDEN
    client.token = None
    assert ask("/topics/orders/messages") == UNAUTHENTICATED


def test_paths_and_methods_are_public(client: Client) -> None:
    client.token = None
    assert client.ask("PATCH", "/topics/orders").problem == (405, "MethodNotAllowed")


def test_a_list_shows_the_topics_that_the_caller_may_read(client: Client) -> None:
    assert topics(client) == ["orders"]
    client.token = client.make_token()
    assert topics(client) == ["orders", "secret"]
    client.token = client.make_token({"operations": ["produce"], "topics": "orders"})
    assert client.get("/topics").problem == FORBIDDEN


def topics(client: Client) -> list[str]:
    return [topic["topic"] for topic in client.get("/topics").json["topics"]]


def test_a_page_of_topics_names_none_that_the_caller_may_not_read(client: Client) -> None:
    insider = Client(client.store, client.clock, seed=4)
    for number in range(7):
        insider.topic(f"a{number}")
        insider.topic(f"{'bd'[number % 2]}{number}")
    client.token = client.make_token({"operations": ["read"], "topics": "b*"}, {"operations": ["read"], "topics": "d*"})
    seen: list[str] = []
    page = client.get("/topics", limit=2).json
    while True:
        seen += [topic["topic"] for topic in page["topics"]]
        if page["next"] is None:
            break
        page = client.get("/topics", limit=2, next=page["next"]).json
    assert seen == ["b0", "b2", "b4", "b6", "d1", "d3", "d5"]
    client.token = client.make_token({"operations": ["read"], "topics": "absent"})
    assert client.get("/topics", limit=1).json == {"topics": [], "next": None}


def test_a_request_is_judged_by_the_topic_that_its_id_tells(client: Client) -> None:
    insider = Client(client.store, client.clock, seed=5)
    ids = [insider.post(f"/topics/{name}/requests", body="a", wait_ms=0).json["correlation_id"] for name in PLACES]
    assert [client.get(f"/requests/{correlation_id}").status for correlation_id in ids] == [202, 403]
    forged = ids[0][:-1] + ("A" if ids[0][-1] != "A" else "B")
    for unknown in (forged, "x", "a" * 3_000):
        assert client.get(f"/requests/{unknown}").problem == FORBIDDEN
        assert client.get(f"/requests/{unknown}").json == client.get(f"/requests/{ids[1]}").json
        assert client.post(f"/requests/{unknown}/reply", body="a").problem == FORBIDDEN
    client.token = client.make_token()
    assert client.get("/requests/x").problem == (404, "RequestNotFound")


PLACES = ("orders", "secret")


def test_dead_messages_move_only_where_one_may_send(client: Client) -> None:
    refusals = {
        (answer.problem, answer.raw.replace(name.encode(), b"?"))
        for name in ("secret", "absent")
        for answer in [client.put("/topics/orders/groups/billing", dead_letters={"topic": name})]
    }
    assert {problem for problem, _ in refusals} == {FORBIDDEN}
    assert len(refusals) == 1, "it tells nothing of what exists"
    client.token = client.make_token(
        {**ALL_RIGHTS, "topics": "orders"}, {"operations": ["produce"], "topics": "secret"}
    )
    assert client.put("/topics/orders/groups/billing", dead_letters={"topic": "secret"}).status == 200


def test_who_makes_a_topic_again_needs_the_right_for_its_name_only(client: Client) -> None:
    assert client.put("/topics/orders").status == 200
    assert client.delete("/topics/orders").status == 204
    assert client.put("/topics/orders").status == 201
    assert client.put("/topics/orders2").problem == FORBIDDEN


# -- who has to show a token ------------------------------------------------------------------------------------------


def test_the_rights_of_one_call_limit_no_later_one_of_its_thread(client: Client) -> None:
    open_to_all = Client(client.store, client.clock, seed=4)
    assert (topics(client), topics(open_to_all)) == (["orders"], ["orders", "secret"])


def test_without_access_control_tokens_are_not_looked_at() -> None:
    client = Client()
    Topic(client, client.topic("orders").name).produce("a")
    client.token = "nonsense"
    assert client.get("/topics/orders").status == 200
    assert "authorization" in client.credentials()


@pytest.mark.parametrize(
    ("settings", "demand"),
    [
        ({}, Demand()),
        ({"DECANT_ACCESS": "none"}, Demand()),
        ({"DECANT_ACCESS": "iam"}, Demand(iam=True)),
        ({"DECANT_ACCESS": "tokens"}, Demand(requests=True)),
        ({"DECANT_ACCESS": "tokens", "DECANT_FUNCTION_ACCESS": "iam"}, Demand(requests=True)),
        ({"DECANT_ACCESS": "tokens", "DECANT_FUNCTION_ACCESS": "tokens"}, Demand(True, True)),
    ],
)
def test_the_stage_says_who_has_to_show_a_token(
    settings: dict[str, str], demand: Demand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DECANT_ACCESS", "DECANT_FUNCTION_ACCESS", "AWS_LAMBDA_FUNCTION_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert wiring.settings.demand == demand


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-prod"}, "DECANT_ACCESS must be one of tokens, iam, none; it is None"),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-prod", "DECANT_ACCESS": ""}, "DECANT_ACCESS"),
        ({"DECANT_ACCESS": "open"}, "DECANT_ACCESS must be one of tokens, iam, none; it is 'open'"),
        ({"DECANT_ACCESS": "iam", "DECANT_FUNCTION_ACCESS": "tokens"}, "DECANT_FUNCTION_ACCESS"),
        ({"DECANT_FUNCTION_ACCESS": "on"}, "DECANT_FUNCTION_ACCESS"),
    ],
)
def test_a_stage_is_never_open_by_accident(
    settings: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DECANT_ACCESS", "DECANT_FUNCTION_ACCESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=named):
        _ = wiring.settings.demand


def test_the_first_token_is_made_without_showing_one() -> None:
    client = Client(demand=Demand(requests=True))
    wiring.use(client.api)
    client.token = wiring.first_token("first", [ALL_RIGHTS])["token"]
    assert client.put("/topics/orders").status == 201


# -- what instances remember ------------------------------------------------------------------------------------------


def test_an_instance_forgets_an_unknown_token_as_soon_as_a_known_one(client: Client) -> None:
    """A table that is restored has tokens that it had not."""
    token, client.token = client.token, None
    token_id = f"{token}".split("_")[1]
    kept = client.store._items["tokens"].pop(token_id)
    client.token = token
    assert client.get("/topics/orders").problem == UNAUTHENTICATED
    client.store.put_all([kept])
    client.clock.ms += METADATA_AGE_MS_MAX
    assert client.get("/topics/orders").problem == UNAUTHENTICATED
    client.clock.ms += 1
    assert client.get("/topics/orders").status == 200
