"""Every declared field of every request: its type, its least and its greatest value, null, and what is beyond."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from chalicelib.api import OPERATIONS
from chalicelib.core.base.fields import Declaration, declarations, encodable
from tests.http.provoked import Provoked
from tests.support.client import Answer

REQUESTS = {operation.id: operation for operation in OPERATIONS.values() if operation.request}
NESTED: dict[str, Any] = {
    "alarm": {},
    "backoff_ms": {"initial_ms": 1, "multiplier": 1, "max_ms": 365 * 86_400_000},
    "filter": {},
    "messages": [{"body": "a"}],
    "push": {"function": "bill"},
    "rights": [{"operations": ["read"], "topics": "*"}],
    "to": {},
}
"""A field that holds objects, as it is when one of their fields is tried."""
ELSEWHERE = {
    *("body", "body_base64", "mode", "ordered", "key", "expires_at_ms", "at_ms", "offset", "queue"),
    *(f"messages[0].{name}" for name in ("body", "body_base64", "key", "queue", "deliver_at_ms")),
    *(
        "filter.tags",
        "filter.expression",
        "push.url",
        "push.function",
        "push.secret_id",
        "to.at_ms",
        "to.offset",
        "to.queue",
    ),
}
"""Fields whose valid values depend on more than their schemas. The tests of their operations try them."""
VALUES: list[Any] = [True, -1, 5, 1.0, 1.5, 2**64, 10**30, "", "5", "\ud800", "no such choice", [], [1], {}, {"no": 1}]
_LONG = 100_000

Path = tuple[str | int, ...]


def fields(kind: type, inside: Path = ()) -> Iterator[tuple[Path, Declaration]]:
    """Paths and declarations, those of nested objects too."""
    for name, declared in declarations(kind).items():
        path, schema = (*inside, name), declared.schema
        yield path, declared
        if isinstance(schema, type):
            yield from fields(schema, path)
            continue
        for choice in schema.get("oneOf", ()):
            if isinstance(choice, type):
                yield from fields(choice, path)
        if isinstance(schema.get("items"), type):
            yield from fields(schema["items"], (*path, 0))


def named(path: Path) -> str:
    return re.sub(r"\.(\[)", r"\1", ".".join(f"[{step}]" if isinstance(step, int) else step for step in path))


FIELDS: dict[str, tuple[str, Path, Declaration]] = {
    f"{operation.id} {named(path)}": (operation.id, path, declared)
    for operation in REQUESTS.values()
    for path, declared in fields(operation.request or object)
}
IN_A_BODY = [field for field in FIELDS if REQUESTS[FIELDS[field][0]].method != "GET"]
IN_A_QUERY = [field for field in FIELDS if field not in IN_A_BODY]


BOUNDS = """
    ack 0 256; age_ms 1 31536000000; at_ms 0 253402300799999; attempt_id 1 128; backoff_ms 1 100; batch 1 256;
    body 1 4194304; body_base64 1 5592408; check_after_ms 1 31536000000 60000; concurrency 1 100;
    consumer_id 1 128; dedup_id 1 128; delay_ms 0 31536000000; delay_ms 0 900000 0;
    deliver_at_ms 0 253402300799999; expires_at_ms 0 253402300799999; expression 1 1024; function 1 170;
    groups 1 100 *; initial_ms 1 31536000000; invisible_ms 0 43200000; invisible_ms 0 43200000 30000; key 1 256;
    limit 1 1000 100; max 1 100 16; max_attempts 1 1000 16; max_depth 1 999999999999999;
    max_in_flight 1 20000 1000; max_messages 1 256 10; max_ms 1 31536000000; message_ids 1 256; messages 1 256;
    messages 1 32; multiplier 1 100; name 1 100; offset 0 999999999999999; old_valid_ms 0 604800000 86400000;
    operations 1 4; queue 0 127; queues 1 128 4; rate_limit 0.001 1000000; ready 1 999999999999999; reason 0 256;
    receipt 0 512; receipts 1 256; retention_ms 60000 31536000000 259200000; rights 1 32;
    rollback_after_ms 1 31536000000 86400000; secret_id 1 128; start 0 253402300799999 earliest; tag 1 128;
    tags 1 100; timeout_ms 1 3600000 3000; timeout_ms 100 60000; topics 1 100; ttl_ms 1 31536000000; url 1 2048;
    wait_ms 0 20000 0; wait_ms 0 25000; wait_ms 0 25000 0
"""
"""A name, the least and the greatest value or length, and the default, of the first form that the field takes."""


def test_a_field_has_the_bounds_that_clients_know() -> None:
    found = {bounds for _, path, declared in FIELDS.values() if (bounds := bounds_of(path, declared.schema))}
    assert found == {tuple(each.split()) for each in BOUNDS.split(";")}


def bounds_of(path: Path, schema: Any) -> tuple[str, ...]:
    choices = [] if isinstance(schema, type) else schema.get("oneOf", [schema])
    for choice in choices:
        for least, most in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
            if not isinstance(choice, type) and most in choice:
                default = schema.get("default")
                given = [] if default in (None, "") or isinstance(default, list) else [default]
                return tuple(map(str, (path[-1], choice.get(least, 0), choice[most], *given)))
    return ()


def fits(schema: Any, value: Any) -> bool:
    if isinstance(schema, type):
        return isinstance(value, dict)
    if "oneOf" in schema:
        return any(fits(choice, value) for choice in schema["oneOf"])
    if "enum" in schema:
        return isinstance(value, str) and value in schema["enum"]
    kind, *null = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return bool(null)
    match kind:
        case "integer" | "number":
            kinds = (int,) if kind == "integer" else (int, float)
            return type(value) in kinds and bool(schema["minimum"] <= value <= schema["maximum"])
        case "string":
            is_long_enough = isinstance(value, str) and len(value) >= schema.get("minLength", 0)
            is_short_enough = is_long_enough and len(value) <= schema.get("maxLength", _LONG)
            return is_short_enough and encodable(value) and bool(re.search(schema.get("pattern", ""), value))
        case "array":
            lengths = range(schema["minItems"], schema["maxItems"] + 1)
            is_list = isinstance(value, list) and len(value) in lengths
            return is_list and all(fits(schema["items"], item) for item in value)
    return isinstance(value, {"boolean": bool, "object": dict}[kind])


def edges(schema: Any) -> Iterator[Any]:
    """The least and the greatest value, and those just beyond."""
    if isinstance(schema, type):
        return
    for choice in schema.get("oneOf", ()):
        yield from edges(choice)
    yield from schema.get("enum", ())
    if "minimum" in schema:
        step = 1 if "integer" in schema["type"] else schema["minimum"] / 2
        yield from (schema["minimum"], schema["minimum"] - step, schema["maximum"], schema["maximum"] + 1)
    if schema.get("maxLength", _LONG) < _LONG:
        longest, shortest = schema["maxLength"], schema.get("minLength", 0)
        yield from ("x" * shortest, "x" * longest, "日" * longest, "x" * (longest + 1))
    if "maxItems" in schema and not isinstance(schema["items"], type):
        item = next(value for value in [*edges(schema["items"]), "x"] if fits(schema["items"], value))
        lists = ([item] * count for count in (schema["minItems"], schema["maxItems"], schema["maxItems"] + 1))
        yield from (*lists, [None], *([value] for value in [*edges(schema["items"]), *VALUES]))


class Asked:
    """One operation, asked again and again with another value of one field."""

    def __init__(self, operation: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.provoked = Provoked(monkeypatch)
        self.method, self.url, body = self.provoked.requests[operation]
        self.body, self.path = body or {}, path

    def answer(self, value: Any, beside: str | None = None) -> Answer:
        """`beside`: the value is that of another field of the same object."""
        *outer, last = self.path
        body = place = deepcopy(self.body)
        for step in outer:
            if isinstance(step, str):
                place[step] = deepcopy(NESTED[step]) if step in NESTED else place.get(step, {})
            place = place[step]
        place[beside or last] = value
        return self.provoked.client.ask(self.method, self.url, body)

    @property
    def stored(self) -> str:
        return repr(self.provoked.store._items)


def is_refused(answer: Answer, path: Path) -> bool:
    """By its name, or that of the object that it is in."""
    is_invalid = answer.status == 400 and answer.json["code"] in ("InvalidField", "InvalidFilter")
    names = [named(path), named(path[:-1]) or named(path)]
    return is_invalid and any(f"'{name}" in answer.json["detail"] for name in names)


@pytest.mark.parametrize("field", IN_A_BODY)
def test_a_value_beyond_a_field_is_refused_by_its_name(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, path, declared = FIELDS[field]
    asked = Asked(operation, path, monkeypatch)
    before = asked.stored
    nothing = [None] if declared.is_required else []
    for value in [*nothing, *VALUES, *edges(declared.schema)]:
        if not fits(declared.schema, value):
            answer = asked.answer(value)
            assert is_refused(answer, path), f"{value}: {answer.json}"
    answer = asked.answer(None, beside="recipes")
    assert answer.problem in ((400, "UnknownField"), (400, "InvalidFilter"))
    assert f"'{named((*path[:-1], 'recipes'))}'" in answer.json["detail"] or path[0] == "filter"
    assert asked.stored == before


@pytest.mark.parametrize("field", [field for field in IN_A_BODY if named(FIELDS[field][1]) not in ELSEWHERE])
def test_a_value_within_a_field_is_not_refused(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, path, declared = FIELDS[field]
    asked = Asked(operation, path, monkeypatch)
    for value in [*([] if declared.is_required else [None]), *edges(declared.schema)]:
        if value is None or fits(declared.schema, value):
            assert not is_refused(asked.answer(value), path), value


@pytest.mark.parametrize("field", IN_A_QUERY)
def test_a_parameter_has_its_bounds_and_is_given_once(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, (name,), declared = FIELDS[field]
    provoked = Provoked(monkeypatch)
    method, url, _ = provoked.requests[operation]

    def asked(value: object) -> Answer:
        return provoked.client.ask(method, url, query={name: value})

    wrong: list[object] = ["", ["0", "0"]]
    if declared.schema["type"] == "integer":
        least, most = declared.schema["minimum"], declared.schema["maximum"]
        wrong += [least - 1, most + 1, " 1", "1.0", "1e2", "true", "ten", "٣", "9" * 30]
        if name not in ELSEWHERE:
            assert 400 not in [asked(value).status for value in (least, most)]
    for value in wrong:
        answer = asked(value)
        assert answer.problem == (400, "InvalidField"), value
        assert f"parameter '{name}' " in answer.json["detail"]
