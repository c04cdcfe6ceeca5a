"""The OpenAPI document: that it is one, and that it says what the code does."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from chalicelib import VERSION
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import described
from chalicelib.core.base import limits
from chalicelib.core.base.fields import Answer
from chalicelib.core.base.limits import BACKOFF_MS
from chalicelib.core.catalogue import group
from chalicelib.core.producing.new_message import BASE64_CHARS_MAX
from chalicelib.doors.http.exchange import MEDIA_TYPE, PROBLEMS
from chalicelib.doors.http.openapi import document

SCHEMAS = document()["components"]["schemas"]
PARAMETERS = {parameter["name"]: parameter for parameter in document()["components"]["parameters"].values()}
DOCUMENTED = {
    operation["operationId"]: operation for methods in document()["paths"].values() for operation in methods.values()
}
OPERATIONS_BY_ID = {operation.id: operation for operation in OPERATIONS.values()}
BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")

PARAMETER_LIMITS = [
    ("topic", "pattern", "NAME_PATTERN"),
    ("group", "pattern", "NAME_PATTERN"),
    ("limit", "maximum", "PAGE_MAX"),
    ("limit", "default", "PAGE_DEFAULT"),
    ("offset", "maximum", "OFFSET_MAX"),
    ("at_ms", "maximum", "INSTANT_MS_MAX"),
    ("wait_ms", "maximum", "REPLY_WAIT_MS_MAX"),
]


def test_the_document_is_valid_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(document()).validate()


def test_the_document_is_json_and_carries_the_version() -> None:
    assert json.loads(json.dumps(document()))["info"]["version"] == VERSION


@pytest.mark.parametrize(("name", "keyword", "limit"), PARAMETER_LIMITS)
def test_a_parameter_has_the_limit_of_that_name(name: str, keyword: str, limit: str) -> None:
    assert PARAMETERS[name]["schema"][keyword] == getattr(limits, limit)


def test_every_type_and_every_field_of_it_is_described() -> None:
    for name, schema in SCHEMAS.items():
        assert schema["description"], name
        for field, part in schema["properties"].items():
            assert part.get("description") or "$ref" in part, f"{name}.{field}"


def test_no_type_shows_the_description_of_a_base_class() -> None:
    requests = {operation.request for operation in OPERATIONS.values() if operation.request}
    for kind in (kind for kind in {*requests, *subclasses(Answer)} if kind.__name__ in SCHEMAS):
        assert described(kind)[""] not in {described(base).get("") for base in kind.__mro__[1:]}, kind


def test_the_first_attempt_of_a_delivery_is_1() -> None:
    assert SCHEMAS["Delivery"]["properties"]["attempt"]["minimum"] == 1


def test_no_text_shows_a_docstring_as_it_is_written() -> None:
    for node in nodes(document()):
        assert not re.search(r"{[A-Z_]+}|\n    ", str(node.get("description", "")))


def test_no_bound_in_the_document_is_a_number_of_its_own() -> None:
    named = {value for value in vars(limits).values() if isinstance(value, int | float)}
    derived = {0, 1, limits.QUEUES_MAX - 1, limits.BATCH_MESSAGES_MAX - 1, BASE64_CHARS_MAX}
    bounds = {node[keyword] for node in nodes(document()) for keyword in BOUNDS if keyword in node}
    assert bounds <= named | derived


FIELDS = {
    "TopicSettings": "queues retention_ms index_keys max_depth trace zones",
    "GroupSettings": "start mode invisible_ms max_attempts dead_letters max_in_flight backoff_ms paused ordered"
    " delay_ms settle_by rate_limit filter alarm push",
    "NewMessage": "body body_base64 key tag properties queue zone ttl_ms delay_ms deliver_at_ms dedup_id",
    "HalfMessage": "body body_base64 key tag properties queue zone ttl_ms",
    "TransactionRequest": "messages check_after_ms rollback_after_ms",
    "CheckRequest": "max wait_ms",
    "AskRequest": "body body_base64 key tag properties queue zone timeout_ms wait_ms",
    "ReplyRequest": "body body_base64 properties receipt",
    "TokenRequest": "name rights expires_at_ms",
    "Right": "operations topics groups deny",
    "PopRequest": "max_messages invisible_ms wait_ms consumer_id attempt_id ack zone fill",
}


@pytest.mark.parametrize(("schema", "fields"), FIELDS.items())
def test_a_request_has_the_fields_of_the_contract(schema: str, fields: str) -> None:
    assert set(SCHEMAS[schema]["properties"]) == set(fields.split())


def test_a_group_documents_the_defaults_that_it_gets() -> None:
    properties = SCHEMAS["GroupSettings"]["properties"]
    assert {field: schema["default"] for field, schema in properties.items()} == {
        **group.DEFAULTS,
        "backoff_ms": list(BACKOFF_MS),
    }


def test_every_example_satisfies_its_schema() -> None:
    contents = [node for node in nodes(document()) if "example" in node and "schema" in node]
    assert len(contents) > len(document()["paths"])
    for content in contents:
        check(content["schema"], content["example"])


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name.endswith(("Request", "Settings"))])
def test_a_request_is_closed_and_takes_null_for_what_may_be_left_out(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["additionalProperties"] is False
    for field in set(schema["properties"]) - set(schema.get("required", ())):
        check(schema["properties"][field], None)


@pytest.mark.parametrize(
    ("new_message", "is_valid"),
    [
        ({"body": "a"}, True),
        ({"body_base64": "YQ=="}, True),
        ({"body": "a", "body_base64": None}, True),
        ({"body": None, "body_base64": "YQ=="}, True),
        ({}, False),
        ({"body": None}, False),
        ({"body": ""}, False),
        ({"body_base64": "YQ"}, False),
        ({"body_base64": "YR=="}, False),
        ({"body_base64": "YWI="}, True),
        ({"body_base64": "YWJ="}, False),
        ({"body": "a", "body_base64": "YQ=="}, False),
        ({"body": "a", "tag": "a b"}, True),
        ({"body": "a", "tag": "a|b"}, False),
        ({"body": "a", "tag": " a"}, False),
        ({"body": "a", "delay_ms": 1}, True),
        ({"body": "a", "delay_ms": 0}, True),
        ({"body": "a", "deliver_at_ms": 1}, True),
        ({"body": "a", "delay_ms": None, "deliver_at_ms": 1}, True),
        ({"body": "a", "delay_ms": 1, "deliver_at_ms": None}, True),
        ({"body": "a", "delay_ms": 1, "deliver_at_ms": 1}, False),
        ({"body": "a", "delay": 1}, False),
        ({"body": "a", "properties": {"region": "eu"}}, True),
        ({"body": "a", "properties": {"region": 1}}, False),
    ],
)
def test_a_new_message_has_exactly_one_body_and_a_plain_tag(new_message: dict[str, Any], is_valid: bool) -> None:
    assert validator({"$ref": "#/components/schemas/NewMessage"}).is_valid(new_message) is is_valid


def test_the_largest_body_as_bytes_is_as_long_as_its_bytes_in_base64() -> None:
    schema = SCHEMAS["NewMessage"]["properties"]["body_base64"]
    assert schema["maxLength"] == len(base64.b64encode(bytes(limits.BODY_BYTES_MAX)))
    assert schema["contentEncoding"] == "base64"


def test_a_pattern_of_names_has_their_characters_and_stars() -> None:
    schema = SCHEMAS["Right"]["properties"]["topics"]
    assert [validator(schema).is_valid(pattern) for pattern in ("a*.b", "a?", "")] == [True, False, False]


def test_of_all_lists_in_requests_only_the_acks_of_a_pop_may_be_empty() -> None:
    requests = [name for name in SCHEMAS if name.endswith("Request") or name == "Right"]
    lists = {f"{name}.{field}": part for name in requests for field, part in SCHEMAS[name]["properties"].items()}
    assert [name for name, part in lists.items() if "items" in part and not part["minItems"]] == ["PopRequest.ack"]


def test_every_operation_lists_every_status_that_it_can_answer() -> None:
    assert {name: " ".join(sorted(operation["responses"])) for name, operation in DOCUMENTED.items()} == {
        "listTopics": "200 400 401 403 405 413 500 503",
        "putTopic": "200 201 400 401 403 405 409 413 500 503",
        "getTopic": "200 400 401 403 404 405 413 500 503",
        "deleteTopic": "204 400 401 403 404 405 413 500 503",
        "produce": "200 204 207 400 401 403 404 405 413 429 500 503",
        "readMessages": "200 400 401 403 404 405 413 500 503",
        "getTrace": "200 400 401 403 404 405 413 500 503",
        "getMessage": "200 400 401 403 404 405 413 500 503",
        "listDelayed": "200 400 401 403 404 405 413 500 503",
        "countDelayed": "200 400 401 403 404 405 413 500 503",
        "cancelDelayed": "200 400 401 403 404 405 409 413 500 503",
        "beginTransaction": "201 400 401 403 404 405 413 500 503",
        "commitTransaction": "200 400 401 403 404 405 409 413 500 503",
        "rollbackTransaction": "200 400 401 403 404 405 409 413 500 503",
        "checkTransactions": "200 400 401 403 404 405 413 500 503",
        "listTransactions": "200 400 401 403 404 405 413 500 503",
        "listGroups": "200 400 401 403 404 405 413 500 503",
        "putGroup": "200 201 400 401 403 404 405 413 500 503",
        "getGroup": "200 400 401 403 404 405 413 500 503",
        "deleteGroup": "204 400 401 403 404 405 413 500 503",
        "resetGroup": "200 400 401 403 404 405 413 500 503",
        "pop": "200 400 401 403 404 405 409 413 500 503",
        "ack": "200 400 401 403 404 405 413 500 503",
        "nack": "200 400 401 403 404 405 413 500 503",
        "bury": "200 400 401 403 404 405 413 500 503",
        "listDead": "200 400 401 403 404 405 413 500 503",
        "redriveDead": "200 400 401 403 404 405 413 500 503",
        "purgeDead": "200 400 401 403 404 405 413 500 503",
        "extend": "200 400 401 403 404 405 413 500 503",
        "request": "200 202 400 401 403 404 405 413 429 500 503 504",
        "getReply": "200 202 400 401 403 404 405 413 500 503 504",
        "reply": "201 400 401 403 404 405 409 410 413 500 503",
        "makePushSecret": "201 400 401 403 404 405 413 500 503",
        "listPushSecrets": "200 400 401 403 404 405 413 500 503",
        "deletePushSecret": "204 400 401 403 404 405 413 500 503",
        "makeToken": "201 400 401 403 405 413 500 503",
        "listTokens": "200 400 401 403 405 413 500 503",
        "getToken": "200 400 401 403 404 405 413 500 503",
        "deleteToken": "204 400 401 403 404 405 413 500 503",
        "rotateToken": "200 400 401 403 404 405 413 500 503",
        "getHealth": "200 400 405 413 500 503",
        "getMetrics": "200 400 401 403 405 413 500 503",
        "getOpenapi": "200 400 401 403 405 413 500 503",
    }


def test_every_problem_is_one_named_object_with_its_status_and_its_codes() -> None:
    """Generators of clients leave out answers that are composed."""
    for operation in DOCUMENTED.values():
        for status, answer in responses(operation):
            schema = answer.get("content", {}).get(MEDIA_TYPE, {}).get("schema")
            assert (schema is None) == (status < 400)
            if schema:
                name = schema["$ref"].rpartition("/")[2]
                fields = SCHEMAS[name]["properties"]
                codes = fields["code"].get("enum", [fields["code"].get("const")])
                assert (SCHEMAS[name]["type"], fields["status"]["const"]) == ("object", status)
                assert all(PROBLEMS[code][0] == status for code in codes)
                assert name.endswith(f"{codes[-1]}Problem") or name.startswith("BadRequest")


def test_no_schema_is_composed_of_others_that_share_its_fields() -> None:
    """Generators of clients leave out such a schema, or split it in two."""
    assert not [node for node in nodes(document()) if "allOf" in node or ("oneOf" in node and "properties" in node)]


def test_every_enum_and_every_nested_object_has_a_title() -> None:
    """Without one, generators number its class."""
    for name, schema in SCHEMAS.items():
        for part in parts(schema):
            if "enum" in part or "object" in part.get("type", ()):
                assert part.get("title"), name


def test_a_request_body_is_required_where_an_empty_one_is_refused() -> None:
    bodies = {name: operation["requestBody"] for name, operation in DOCUMENTED.items() if "requestBody" in operation}
    for name, body in bodies.items():
        assert body["required"] is not validator(body["content"]["application/json"]["schema"]).is_valid({}), name
    assert bodies["request"]["required"] is bodies["reply"]["required"] is True


def test_the_example_of_a_token_ends_in_the_future() -> None:
    example = DOCUMENTED["makeToken"]["requestBody"]["content"]["application/json"]["example"]
    assert example["expires_at_ms"] > time.time() * 1000


def test_the_first_server_is_where_the_document_comes_from() -> None:
    """A stage, a base path and a function URL differ in it."""
    assert document()["servers"][0]["url"] == "."


LINKS = {
    "putTopic": "getTopic deleteTopic produce readMessages listDelayed countDelayed beginTransaction checkTransactions"
    " listTransactions listGroups putGroup request",
    "produce": "getMessage getTrace cancelDelayed",
    "beginTransaction": "commitTransaction rollbackTransaction",
    "commitTransaction": "getMessage getTrace cancelDelayed",
    "checkTransactions": "commitTransaction rollbackTransaction",
    "putGroup": "getGroup deleteGroup resetGroup pop makePushSecret listPushSecrets listDead redriveDead purgeDead",
    "pop": "getMessage getTrace cancelDelayed ack nack bury extend getReply reply",
    "extend": "ack nack bury",
    "makePushSecret": "deletePushSecret",
    "request": "getReply reply",
    "makeToken": "getToken deleteToken rotateToken",
}


def test_an_operation_that_makes_something_links_to_those_that_take_it() -> None:
    linked = {
        name: set().union(*(answer.get("links", ()) for _, answer in responses(operation)))
        for name, operation in DOCUMENTED.items()
    }
    assert {name: links for name, links in linked.items() if links} == {
        name: set(links.split()) for name, links in LINKS.items()
    }


def test_a_link_takes_every_name_that_must_exist_from_where_it_is() -> None:
    for name, operation in DOCUMENTED.items():
        for _, answer in responses(operation):
            for link in answer.get("links", {}).values():
                linked = OPERATIONS_BY_ID[link["operationId"]]
                assert link["parameters"].keys() == {*linked.existing}
                for expression in [*link["parameters"].values(), *link.get("requestBody", {}).get("receipts", ())]:
                    place, _, pointer = expression.partition("#")
                    names = OPERATIONS_BY_ID[name].path_names
                    assert place in ("$response.body", *(f"$request.path.{known}" for known in names))
                    if pointer:
                        assert at(pointer, answer["content"]["application/json"]["example"])


def test_405_says_which_methods_there_are() -> None:
    response = document()["components"]["responses"]["MethodNotAllowed"]
    assert response["headers"]["Allow"]["required"] is True


def responses(operation: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Its answers by status, the shared ones too."""
    for status, answer in operation["responses"].items():
        shared = document()["components"]["responses"]
        yield int(status), shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas of its fields, items and choices, and theirs."""
    items = [schema["items"]] if "items" in schema else []
    for part in [*schema.get("properties", {}).values(), *items, *schema.get("oneOf", ())]:
        yield part
        yield from parts(part)


def at(pointer: str, value: Any) -> Any:
    """The value at a JSON pointer."""
    for step in pointer.split("/")[1:]:
        value = value[int(step) if isinstance(value, list) else step]
    return value


def check(schema: dict[str, Any], value: object) -> None:
    validator(schema).validate(value)


def validator(schema: dict[str, Any]) -> OAS31Validator:
    return OAS31Validator({**schema, "components": document()["components"]})


def subclasses(kind: type) -> Iterator[type]:
    """Every class below this one."""
    child: type
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def nodes(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from nodes(child)
