"""Tokens and their rights: each step shows a token to one of two instances of the service, and asks the model who it is
and what it may do. What is let in answers as it would without access control."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from chalicelib import wiring
from chalicelib.api import Demand
from tests.model.model import altered
from tests.model.pair import edges, instances
from tests.model.rights import (
    ANYWHERE,
    GROUP,
    LISTED_MS,
    OLD_VALID_MS,
    OLD_VALID_MS_MAX,
    PUBLIC,
    REMEMBERED_MS,
    REPLY,
    SECRETS_MAX,
    SEND,
    SERVICE,
    TOPIC,
    Token,
    allows,
    as_granted,
)
from tests.model.values import Json
from tests.support.client import ALL_RIGHTS, Answer, Client

TOPICS = ("orders", "orders.eu", "audit", "absent", "no name")
GROUPS = ("billing", "shipping", "absent")
VERBS = ("produce", "consume", "read", "admin")
HOUR_MS = 3_600_000
INSIDER = 2
"""The instance that demands no token."""


class Operation(NamedTuple):
    """`path`: with the topic and the group to be filled in. `answers`: status and code of one that is let in, if the
    topic and the group exist."""

    verb: str
    place: str
    method: str
    path: str
    body: Json | None = None
    answers: tuple[tuple[int, str], ...] = ((200, ""),)


OF_TOPIC, OF_GROUP = "/topics/{topic}", "/topics/{topic}/groups/{group}"
MESSAGE_ID, TRANSACTION_ID = "5c0a7f3e91d2b8460111", "0d2f6b91c47e5a38b19b76e8eb00"
RECEIPTS = {"receipts": ["x"]}
NO_MESSAGE, NO_TRANSACTION = ((404, "MessageNotFound"),), ((404, "TransactionNotFound"),)
OPERATIONS = {
    "getHealth": Operation("", PUBLIC, "GET", "/health"),
    "getOpenapi": Operation("read", ANYWHERE, "GET", "/openapi.json"),
    "listTopics": Operation("read", ANYWHERE, "GET", "/topics"),
    "getMetrics": Operation("read", SERVICE, "GET", "/metrics"),
    "putTopic": Operation("admin", TOPIC, "PUT", OF_TOPIC, {"queues": 1}),
    "getTopic": Operation("read", TOPIC, "GET", OF_TOPIC),
    "deleteTopic": Operation("admin", TOPIC, "DELETE", OF_TOPIC, None, ((204, ""),)),
    "produce": Operation("produce", SEND, "POST", OF_TOPIC + "/messages", {"messages": [{"body": "a"}]}),
    "readMessages": Operation("read", TOPIC, "GET", OF_TOPIC + "/messages"),
    "getMessage": Operation("read", TOPIC, "GET", f"{OF_TOPIC}/messages/{MESSAGE_ID}", None, NO_MESSAGE),
    "getTrace": Operation("read", TOPIC, "GET", f"{OF_TOPIC}/messages/{MESSAGE_ID}/trace", None, NO_MESSAGE),
    "listDelayed": Operation("read", TOPIC, "GET", OF_TOPIC + "/delayed"),
    "countDelayed": Operation("read", TOPIC, "GET", OF_TOPIC + "/waiting"),
    "cancelDelayed": Operation("produce", SEND, "DELETE", f"{OF_TOPIC}/delayed/{MESSAGE_ID}", None, NO_MESSAGE),
    "beginTransaction": Operation(
        "produce", SEND, "POST", OF_TOPIC + "/transactions", {"messages": [{"body": "a"}]}, ((201, ""),)
    ),
    "commitTransaction": Operation(
        "produce", SEND, "POST", f"{OF_TOPIC}/transactions/{TRANSACTION_ID}/commit", None, NO_TRANSACTION
    ),
    "rollbackTransaction": Operation(
        "produce", SEND, "POST", f"{OF_TOPIC}/transactions/{TRANSACTION_ID}/rollback", None, NO_TRANSACTION
    ),
    "checkTransactions": Operation("produce", SEND, "POST", OF_TOPIC + "/transactions/check", {}),
    "listTransactions": Operation("read", TOPIC, "GET", OF_TOPIC + "/transactions"),
    "listGroups": Operation("read", TOPIC, "GET", OF_TOPIC + "/groups"),
    "putGroup": Operation("admin", GROUP, "PUT", OF_GROUP, {"paused": False}),
    "getGroup": Operation("read", GROUP, "GET", OF_GROUP),
    "deleteGroup": Operation("admin", GROUP, "DELETE", OF_GROUP, None, ((204, ""),)),
    "resetGroup": Operation("admin", GROUP, "POST", OF_GROUP + "/reset", {"to": "latest"}),
    "pop": Operation("consume", GROUP, "POST", OF_GROUP + "/pop", {}),
    "ack": Operation("consume", GROUP, "POST", OF_GROUP + "/ack", RECEIPTS),
    "nack": Operation("consume", GROUP, "POST", OF_GROUP + "/nack", RECEIPTS),
    "bury": Operation("consume", GROUP, "POST", OF_GROUP + "/bury", RECEIPTS),
    "extend": Operation("consume", GROUP, "POST", OF_GROUP + "/extend", {**RECEIPTS, "invisible_ms": 1}),
    "listDead": Operation("read", GROUP, "GET", OF_GROUP + "/dead"),
    "redriveDead": Operation("admin", GROUP, "POST", OF_GROUP + "/dead/redrive", {}),
    "purgeDead": Operation("admin", GROUP, "DELETE", OF_GROUP + "/dead"),
    "listPushSecrets": Operation("read", GROUP, "GET", OF_GROUP + "/push/secrets"),
    "deletePushSecret": Operation("admin", GROUP, "DELETE", OF_GROUP + "/push/secrets/x", None, ((404, "NotFound"),)),
    "request": Operation("produce", SEND, "POST", OF_TOPIC + "/requests", {"body": "a", "wait_ms": 0}, ((202, ""),)),
}
"""Those about tokens, requests by their ids, and groups that name a topic for their dead have rules of their own."""

rights_given = st.fixed_dictionaries(
    {
        "operations": st.one_of(
            st.just(list(VERBS)), st.lists(st.sampled_from(VERBS), min_size=1, max_size=3, unique=True)
        ),
        "topics": st.sampled_from(["*", "*", "**", "orders", "orders*", "*.eu", "o*s", "order*ders", "a*", "*d*t*"]),
    },
    optional={
        "groups": st.sampled_from(["*", "*", "**", "billing", "b*", "*ing", "bill*ling", "*i*p*"]),
        "deny": st.sampled_from([False, False, True]),
    },
)
rights_lists = st.lists(rights_given, min_size=1, max_size=3).flatmap(
    lambda rights: st.sampled_from([rights, [ALL_RIGHTS, *rights], rights])
)
lives_ms = st.sampled_from([None, None, None, 1, 1_000, 5_000, 20_000])
old_valid = st.sampled_from([None, 0, 0, 1, 1_000, 6_000, OLD_VALID_MS_MAX])
waits_ms = st.sampled_from([1, 2_500, 4_999, 5_001, 90_000_000])
places = st.tuples(
    st.sampled_from([*4 * TOPICS[:1], *2 * TOPICS[1:3], *TOPICS[3:]]), st.sampled_from([*3 * GROUPS[:2], *GROUPS])
)
several = st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=6, unique=True)
LOOKS = ("topics", "tokens", "token", "nothing")


class Access(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        first = Client(demand=Demand(requests=True))
        second = first.another()
        self.insider = Client(first.store, first.clock, seed=3)
        self.clients = [first, second, self.insider]
        self.clock = first.clock
        self.tokens: dict[str, Token] = {}
        self.topics: dict[str, set[str]] = {}
        """The groups of each."""
        self.requests: dict[str, str] = {}
        """The topic of each, by its correlation id."""
        self.refusals: dict[tuple[str, ...], bytes] = {}
        """What a refusal said, by what it may tell."""

    @property
    def now(self) -> int:
        return self.clock.ms

    def teardown(self) -> None:
        wiring.use(None)

    @initialize()
    def begin(self) -> None:
        """Topics, groups, and a token that may do everything."""
        self._make_topics()
        root = self._make(INSIDER, None, "root", [ALL_RIGHTS], None)
        assert root
        self.root = root

    def _make_topics(self) -> None:
        """Two topics with a group each, and one without, as far as they are missing."""
        for topic, groups in (("orders", ["billing"]), ("orders.eu", ["shipping"]), ("audit", [])):
            if topic not in self.topics:
                self.insider.put(f"/topics/{topic}", queues=1)
                self.topics[topic] = set()
            for group in groups:
                self.insider.put(f"/topics/{topic}/groups/{group}")
            self.topics[topic] |= {*groups}
            self._ask_at(topic)

    def _ask_at(self, topic: str) -> None:
        answer = self.insider.post(f"/topics/{topic}/requests", body="a", wait_ms=0, timeout_ms=HOUR_MS)
        self.requests[answer.json["correlation_id"]] = topic

    # -- time ---------------------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(["wait", "wait", "tidy", "make again"]), ms=waits_ms)
    def chore(self, kind: str, ms: int) -> None:
        if kind == "wait":
            self.clock.sleep(ms)
        elif kind == "tidy":
            self._tidy()
        else:
            self._make_topics()

    @rule(edge=edges, data=st.data())
    def approach(self, edge: int, data: st.DataObject) -> None:
        """Waits for something to end, or nearly."""
        ahead = sorted({limit for limit in self._limits() if limit > self.now})
        if ahead:
            self.clock.sleep(max(0, data.draw(st.sampled_from(ahead[:6])) + edge - self.now))

    def _limits(self) -> Iterator[int]:
        for token in self.tokens.values():
            yield from () if token.expires_at_ms is None else (token.expires_at_ms,)
            yield from (version.at_ms + REMEMBERED_MS for version in token.versions)
            yield from (end for end in (token.secrets or {}).values() if end is not None)

    def _tidy(self) -> None:
        """The store drops what has expired long ago."""
        self.insider.store.drop_expired(self.now)
        for token_id, token in [*self.tokens.items()]:
            if token.expires_at_ms is not None and (token.expires_at_ms + LISTED_MS) // 1_000 * 1_000 < self.now:
                del self.tokens[token_id]

    # -- operations ---------------------------------------------------------------------------------------------------

    @rule(instance=instances, names=several, place=places, is_spoiled=st.booleans(), data=st.data())
    def operate_often(
        self, instance: int, names: list[str], place: tuple[str, str], is_spoiled: bool, data: st.DataObject
    ) -> None:
        """Several operations with one token. `is_spoiled`: with a field that is unknown."""
        text = self._text(data)
        for name in names:
            self._operate(instance, text, name, *place, is_spoiled)

    @rule(names=several, place=places, data=st.data())
    def operate_through_both(self, names: list[str], place: tuple[str, str], data: st.DataObject) -> None:
        text = self._text(data)
        for number, name in enumerate(names):
            self._operate(number % 2, text, name, *place, is_spoiled=False)

    def _operate(self, instance: int, text: str | None, name: str, topic: str, group: str, is_spoiled: bool) -> None:
        operation = OPERATIONS[name]
        path = operation.path.format(topic=quote(topic), group=group)
        body = {"limt": 1} if is_spoiled and operation.method != "GET" else operation.body
        query = {"limt": 1} if is_spoiled and operation.method == "GET" else {}
        answer = self._sent(instance, text, operation.method, path, body, query)
        told = (name, topic, group) if operation.place == GROUP else (name, topic)
        if not self._is_let_in(instance, text, operation.verb, operation.place, topic, group, answer, told):
            return
        is_about_groups = operation.place == GROUP
        outcome = answer.problem if answer.status >= 400 else (answer.status, "")
        assert outcome in self._outcomes(name, topic, group, is_about_groups, is_spoiled)
        if operation.method == "GET" and name not in ("getMetrics", "listTopics"):
            again = self.insider.get(path, **query)
            assert (answer.status, answer.json) == (again.status, again.json)
        if name == "listTopics" and answer.status == 200:
            self._judge_topics(text, answer.json)
        if answer.status < 300:
            self._apply(name, topic, group)

    def _outcomes(
        self, name: str, topic: str, group: str, is_about_groups: bool, is_spoiled: bool
    ) -> tuple[tuple[int, str], ...]:
        """What one that is let in gets."""
        operation = OPERATIONS[name]
        is_new = name in ("putTopic", "putGroup")
        if "{topic}" in operation.path and topic == "no name":
            return ((400, "InvalidName"), *(((400, "UnknownField"),) if is_spoiled else ()))
        if is_spoiled:
            return ((400, "UnknownField"),)
        if "{topic}" not in operation.path:
            return operation.answers
        if topic not in self.topics:
            return ((201, ""),) if name == "putTopic" else ((404, "TopicNotFound"),)
        if is_about_groups and group not in self.topics[topic]:
            return ((201, ""),) if is_new else ((404, "GroupNotFound"),)
        return operation.answers

    def _apply(self, name: str, topic: str, group: str) -> None:
        if name == "putTopic":
            self.topics.setdefault(topic, set())
        elif name == "deleteTopic":
            del self.topics[topic]
        elif name == "putGroup":
            self.topics[topic].add(group)
        elif name == "deleteGroup":
            self.topics[topic].remove(group)

    def _judge_topics(self, text: str | None, answer: Json) -> None:
        """The list shows the topics that the caller may read, whole."""
        rights = self._rights(text)
        every = self.insider.get("/topics").json["topics"]
        shown = [topic for topic in every if allows(rights, "read", TOPIC, topic["topic"])]
        assert answer == {"topics": shown, "next": None}
        assert {topic["topic"] for topic in every} == self.topics.keys()

    def _list_topics(self, instance: int, text: str | None, limit: int) -> None:
        topics = self._listed(instance, text, ("read", ANYWHERE), "topics", limit)
        if topics is not None:
            self._judge_topics(text, {"topics": topics, "next": None})

    def _listed(
        self, instance: int, text: str | None, need: tuple[str, str], items: str, limit: int
    ) -> list[Json] | None:
        """All pages of a list. None: the caller is not let in."""
        listed: list[Json] = []
        more: Json = {}
        while True:
            answer = self._sent(instance, text, "GET", f"/{items}", None, {"limit": limit, **more})
            if not self._is_let_in(instance, text, *need, "", "", answer, (f"list {items}",)):
                return None
            assert len(answer.json[items]) <= limit
            listed += answer.json[items]
            if not answer.json["next"]:
                return listed
            more = {"next": answer.json["next"]}

    @rule(
        instance=instances,
        topic=st.sampled_from(TOPICS[:3]),
        receiver=st.sampled_from(TOPICS[:4]),
        group=st.sampled_from(GROUPS[:2]),
        data=st.data(),
    )
    def let_dead_move(self, instance: int, topic: str, receiver: str, group: str, data: st.DataObject) -> None:
        """A group whose dead messages move to a topic needs the right to send there as well."""
        text = self._text(data)
        path, body = f"/topics/{topic}/groups/{group}", {"dead_letters": {"topic": receiver}}
        answer = self._sent(instance, text, "PUT", path, body, {})
        if answer.status == 403 and self._may(text, "admin", GROUP, topic, group):
            assert topic in self.topics
            assert receiver != topic
            self._is_let_in(instance, text, "produce", SEND, receiver, "", answer, ("let_dead_move", receiver))
            return
        if not self._is_let_in(instance, text, "admin", GROUP, topic, group, answer, ("putGroup", topic, group)):
            return
        if topic not in self.topics:
            assert answer.problem == (404, "TopicNotFound")
        elif receiver == topic:
            assert answer.problem == (400, "InvalidField")
        else:
            assert self._may(text, "produce", SEND, receiver, "")
            if receiver not in self.topics:
                assert answer.problem == (400, "InvalidField")
                return
            assert answer.status == (200 if group in self.topics[topic] else 201)
            self.topics[topic].add(group)

    @rule(instance=instances, is_reply=st.booleans(), is_new=st.booleans(), data=st.data())
    def call(self, instance: int, is_reply: bool, is_new: bool, data: st.DataObject) -> None:
        """Fetches a reply, or replies."""
        if is_new and self.topics:
            self._ask_at(data.draw(st.sampled_from(sorted(self.topics))))
        known = st.sampled_from(list(self.requests))
        correlation_id = data.draw(st.one_of(known, known, st.builds(altered, known, st.integers(0, 99)), st.just("x")))
        text, topic = self._text(data), self.requests.get(correlation_id)
        path = f"/requests/{correlation_id}"
        if is_reply:
            answer = self._sent(instance, text, "POST", path + "/reply", {"body": "a"}, {})
        else:
            answer = self._sent(instance, text, "GET", path, None, {})
        verb, place = ("consume", REPLY) if is_reply else ("produce", SEND)
        told = ("reply" if is_reply else "getReply",)
        if not self._is_let_in(
            instance, text, verb, SERVICE if topic is None else place, topic or "", "", answer, told
        ):
            return
        if topic is None:
            assert answer.problem == (404, "RequestNotFound")
        elif is_reply:
            assert answer.status in (201, 410)
        else:
            again = self.insider.get(path)
            assert (answer.status, answer.json) == (again.status, again.json)

    @rule(instance=instances, kind=st.sampled_from(LOOKS), limit=st.integers(1, 3), data=st.data())
    def look(self, instance: int, kind: str, limit: int, data: st.DataObject) -> None:
        text = self._text(data)
        if kind == "topics":
            self._list_topics(instance, text, limit)
        elif kind == "tokens":
            self._list_tokens(instance, text, limit)
        elif kind == "token":
            self._get_token(instance, text, self._token_id(data))
        else:
            self._knock_at_nothing(instance, text)

    def _knock_at_nothing(self, instance: int, text: str | None) -> None:
        """Paths and methods are public."""
        assert self._sent(instance, text, "GET", "/nothing", None, {}).problem == (404, "NotFound")
        answer = self._sent(instance, text, "PATCH", "/topics/orders", None, {})
        assert answer.problem == (405, "MethodNotAllowed")

    # -- tokens -------------------------------------------------------------------------------------------------------

    @rule(instance=instances, rights=rights_lists, life_ms=st.sampled_from([None, 0, 1, 1_000]), data=st.data())
    def make_token(self, instance: int, rights: list[Json], life_ms: int | None, data: st.DataObject) -> None:
        self._make(instance, self._text(data), f"token {len(self.tokens)}", rights, life_ms)

    def _make(
        self, instance: int, text: str | None, name: str, rights: list[Json], life_ms: int | None
    ) -> Token | None:
        """The token, if the caller may make it."""
        expires_at_ms = None if life_ms is None else self.now + life_ms
        body = {"name": name, "rights": rights, "expires_at_ms": expires_at_ms}
        answer = self._sent(instance, text, "POST", "/tokens", body, {})
        if not self._is_let_in(instance, text, "admin", SERVICE, "", "", answer, ("makeToken",)):
            return None
        if life_ms == 0:
            assert answer.problem == (400, "InvalidField")
            return None
        assert answer.status == 201
        token_id = answer.json["token_id"]
        assert token_id not in self.tokens
        granted = [as_granted(right) for right in rights]
        token = Token(token_id, name, granted, expires_at_ms, self.now, [])
        token.change(self.now, instance, {self._judge_new(token, answer.json): None})
        self.tokens[token_id] = token
        return token

    def _judge_new(self, token: Token, made: Json) -> str:
        """The text of a token that is shown once."""
        text: str = made["token"]
        assert re.fullmatch(rf"dct_{token.id}_[A-Za-z0-9_-]{{43}}", text)
        assert not any(text in (version.secrets or ()) for version in token.versions)
        assert re.fullmatch("[A-Za-z0-9_-]{40}", made["secret_access_key"])
        assert made == {
            "token_id": token.id,
            "token": text,
            "access_key_id": f"DCTK{token.id}",
            "secret_access_key": made["secret_access_key"],
        }
        return text

    @rule(
        instance=instances,
        times=st.one_of(st.lists(old_valid, min_size=1, max_size=3), old_valid.map(lambda ms: SECRETS_MAX * [ms])),
        data=st.data(),
    )
    def rotate(self, instance: int, times: list[int | None], data: st.DataObject) -> None:
        """Once or more, for each of these times. Then perhaps until older secrets end, or nearly."""
        text, token_id = self._text(data), self._token_id(data)
        for old_valid_ms in times:
            self._rotate(instance, text, token_id, old_valid_ms)
        self._show_all(token_id, data)
        waits_ms = data.draw(st.sampled_from([None, *times]))
        if waits_ms:
            self.clock.sleep(waits_ms + data.draw(edges))
            self._show_all(token_id, data)

    def _rotate(self, instance: int, text: str | None, token_id: str, old_valid_ms: int | None) -> None:
        body = {} if old_valid_ms is None else {"old_valid_ms": old_valid_ms}
        answer = self._sent(instance, text, "POST", f"/tokens/{token_id}/rotate", body, {})
        token = self._judge_named(instance, text, answer, token_id, "rotateToken")
        if token is None:
            return
        older = token.rotated(OLD_VALID_MS if old_valid_ms is None else old_valid_ms, self.now)
        if len(older) >= SECRETS_MAX:
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.status == 200
        token.change(self.now, instance, {**older, self._judge_new(token, answer.json): None})

    @rule(instance=instances, data=st.data())
    def delete(self, instance: int, data: st.DataObject) -> None:
        text, token_id = self._text(data), self._token_id(data)
        self._show_all(token_id, data)
        answer = self._sent(instance, text, "DELETE", f"/tokens/{token_id}", None, {})
        token = self._judge_named(instance, text, answer, token_id, "deleteToken")
        if token:
            assert answer.status == 204
            token.change(self.now, instance, None)
        self._show_all(token_id, data)

    def _get_token(self, instance: int, text: str | None, token_id: str) -> None:
        answer = self._sent(instance, text, "GET", f"/tokens/{token_id}", None, {})
        token = self._judge_named(instance, text, answer, token_id, "getToken")
        if token:
            assert (answer.status, answer.json) == (200, token.as_json())

    def _judge_named(self, instance: int, text: str | None, answer: Answer, token_id: str, name: str) -> Token | None:
        """The token that an operation names, if its caller is let in and there is one."""
        if not self._is_let_in(instance, text, "admin", SERVICE, "", "", answer, (name,)):
            return None
        token = self.tokens.get(token_id)
        if token is None or token.secrets is None:
            assert answer.problem == (404, "TokenNotFound")
            return None
        return token

    def _list_tokens(self, instance: int, text: str | None, limit: int) -> None:
        listed = self._listed(instance, text, ("admin", SERVICE), "tokens", limit)
        there = [token for token in self.tokens.values() if token.secrets is not None]
        assert listed in (None, [token.as_json() for token in sorted(there, key=lambda token: token.id)])

    # -- who calls ----------------------------------------------------------------------------------------------------

    def _text(self, data: st.DataObject) -> str | None:
        """What the caller shows: mostly a token that was made, perhaps just now; perhaps one of its older secrets."""
        if len(self.tokens) < 2 or data.draw(st.sampled_from([False, False, True])):
            rights, life_ms = data.draw(rights_lists), data.draw(lives_ms)
            self._make(data.draw(instances), self._newest(self.root), "a", rights, life_ms)
        others = [token for token in self.tokens.values() if token is not self.root]
        valid = [token.id for token in others if token.stands(self.now)]
        ids = [*2 * valid, *valid[-3:], *(token.id for token in others[-3:]), self.root.id]
        texts = self._texts(self.tokens[data.draw(st.sampled_from(ids))])
        kinds = [*6 * [st.just(texts[-1])], *2 * [st.sampled_from(texts)], st.sampled_from([None, "x"])]
        return data.draw(st.one_of([*kinds, st.builds(altered, st.just(texts[-1]), st.integers(0, 70))]))

    def _newest(self, token: Token) -> str:
        return self._texts(token)[-1]

    def _texts(self, token: Token) -> list[str]:
        return list(dict.fromkeys(text for version in token.versions for text in version.secrets or ()))

    def _token_id(self, data: st.DataObject) -> str:
        """Mostly of a token that is there. The first one stays as it is."""
        there = [token.id for token in self.tokens.values() if token is not self.root and token.secrets is not None]
        gone = [token.id for token in self.tokens.values() if token.secrets is None]
        return data.draw(st.sampled_from([*there[-3:], *there, *gone[-1:], "x"]))

    def _show_all(self, token_id: str, data: st.DataObject) -> None:
        """Every secret of a token to both instances, perhaps."""
        token = self.tokens.get(token_id)
        for text in self._texts(token)[-4:] if token and data.draw(st.booleans()) else ():
            for instance in (0, 1):
                self._operate(instance, text, "listTopics", "orders", "billing", is_spoiled=False)

    def _sent(self, instance: int, text: str | None, method: str, path: str, body: Json | None, query: Json) -> Answer:
        shown: Json = {} if text is None else {"authorization": f"Bearer {text}"}
        return self.clients[instance].ask(method, path, body, query=query, **shown)

    def _holder(self, text: str | None) -> Token | None:
        """Whose token the text is, or was once."""
        return next((token for token in self.tokens.values() if text in self._texts(token)), None)

    def _rights(self, text: str | None) -> list[Json]:
        token = self._holder(text)
        return token.rights if token else []

    def _may(self, text: str | None, verb: str, place: str, topic: str, group: str) -> bool:
        return allows(self._rights(text), verb, place, topic, group)

    def _is_let_in(
        self,
        instance: int,
        text: str | None,
        verb: str,
        place: str,
        topic: str,
        group: str,
        answer: Answer,
        told: tuple[str, ...],
    ) -> bool:
        """Whether the caller is, which the answer must agree with. `told`: all that a refusal may depend on."""
        if place == PUBLIC or instance == INSIDER:
            assert answer.status not in (401, 403)
            return True
        token = self._holder(text)
        believed = token.believes(instance, text or "", self.now).values() if token else [False]
        assert (answer.status != 401) in believed
        if token and text:
            token.learn(instance, text, self.now, answer.status != 401)
        if answer.status == 401:
            assert answer.problem == (401, "Unauthenticated")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            self._judge_refusal(("401", "none" if text is None else "bad"), answer)
            return False
        is_allowed = self._may(text, verb, place, topic, group)
        assert (answer.status != 403) == is_allowed
        if not is_allowed:
            assert answer.problem == (403, "Forbidden")
            self._judge_refusal(("403", *told), answer)
        return is_allowed

    def _judge_refusal(self, told: tuple[str, ...], answer: Answer) -> None:
        assert self.refusals.setdefault(told, answer.raw) == answer.raw
