"""Under access control the DynamoDB endpoint of `make run` serves only callers that may do everything. The client is
boto3."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.local.serving import Running, endpoint_in, environment, running
from tests.support.emulators import ROOT

Pair = tuple[str, str]

EXPORT_SECONDS_MAX = 30
ALL = {"operations": ["produce", "consume", "read", "admin"], "topics": "*"}
ADMIN = {"operations": ["admin"], "topics": "*"}
WEAKER: dict[str, list[dict[str, Any]]] = {
    "no admin": [{"operations": ["produce", "consume", "read"], "topics": "*"}],
    "admin of some topics": [{"operations": ["admin"], "topics": "orders*"}],
    "admin of some groups": [{"operations": ["admin"], "topics": "*", "groups": "billing"}],
    "something is denied": [ALL, {"operations": ["read"], "topics": "secret", "deny": True}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ACCESS="on", DYNAMODB_PORT="0") as server:
        yield server


def printed(server: Running, name: str) -> str:
    return server.banner.partition(f"{name}=")[2].split()[0]


def first(server: Running) -> Pair:
    return printed(server, "AWS_ACCESS_KEY_ID"), printed(server, "AWS_SECRET_ACCESS_KEY")


def made(server: Running, rights: list[dict[str, Any]]) -> Pair:
    new, bearer = json.dumps({"name": "a", "rights": rights}), f"Bearer {printed(server, 'TOKEN')}"
    status, _, answer = server.ask("POST", "/tokens", new, authorization=bearer)
    assert status == 201
    return json.loads(answer)["access_key_id"], json.loads(answer)["secret_access_key"]


def client(server: Running, pair: Pair | None, **config: Any) -> Any:
    make: Any = boto3.client
    settings = Config(retries={"total_max_attempts": 1}, **config)
    keys = {"aws_access_key_id": pair[0], "aws_secret_access_key": pair[1]} if pair else {}
    return make(
        "dynamodb", endpoint_url=endpoint_in(server.banner), region_name="eu-central-1", config=settings, **keys
    )


def refused(client: Any) -> str:
    """The one code with which everything is refused."""
    key = {"pk": {"S": "topics"}, "sk": {"S": "a"}}
    codes = set()
    for call, asked in (
        (client.list_tables, {}),
        (client.describe_table, {"TableName": "decant"}),
        (client.scan, {"TableName": "decant"}),
        (client.get_item, {"TableName": "decant", "Key": key}),
        (client.batch_get_item, {"RequestItems": {"decant": {"Keys": [key]}}}),
        (client.put_item, {"TableName": "decant", "Item": key}),
    ):
        with pytest.raises(ClientError) as caught:
            call(**asked)
        codes.add(caught.value.response["Error"]["Code"])
    [code] = codes
    return str(code)


@pytest.mark.parametrize("rights", [[ALL], [ADMIN]], ids=["everything", "admin alone"])
def test_whoever_may_administer_everything_reads_it(server: Running, rights: list[dict[str, Any]]) -> None:
    server.ask("PUT", "/topics/orders", "{}", authorization=f"Bearer {printed(server, 'TOKEN')}")
    for pair in (first(server), made(server, rights)):
        items = client(server, pair).scan(TableName="decant")["Items"]
        assert {"topics", "tokens"} <= {item["pk"]["S"] for item in items}


def test_the_signing_key_is_not_shown_to_those_either(server: Running) -> None:
    admin = client(server, first(server))
    key = {"pk": {"S": "service"}, "sk": {"S": "signing-key"}}
    assert "Item" not in admin.get_item(TableName="decant", Key=key)
    assert key not in [{"pk": item["pk"], "sk": item["sk"]} for item in admin.scan(TableName="decant")["Items"]]


@pytest.mark.parametrize("rights", WEAKER.values(), ids=WEAKER)
def test_fewer_rights_read_nothing(server: Running, rights: list[dict[str, Any]]) -> None:
    assert refused(client(server, made(server, rights))) == "AccessDeniedException"


def test_nobody_reads_without_a_key_that_is_known(server: Running) -> None:
    own, other = first(server), made(server, [ALL])
    assert refused(client(server, (own[0], other[1]))) == "InvalidSignatureException"
    assert refused(client(server, ("local", "local"))) == "UnrecognizedClientException"
    assert refused(client(server, None, signature_version=UNSIGNED)) == "MissingAuthenticationTokenException"


def test_a_token_that_is_deleted_reads_nothing_more(server: Running) -> None:
    pair = made(server, [ALL])
    path = f"/tokens/{pair[0].removeprefix('DCTK')}"
    assert server.ask("DELETE", path, authorization=f"Bearer {printed(server, 'TOKEN')}")[0] in (200, 204)
    assert refused(client(server, pair)) == "UnrecognizedClientException"


def test_a_signature_for_sqs_opens_nothing(server: Running) -> None:
    boto: Any = boto3.client
    sqs = boto(
        "sqs",
        endpoint_url=endpoint_in(server.banner),
        region_name="eu-central-1",
        aws_access_key_id=first(server)[0],
        aws_secret_access_key=first(server)[1],
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError, match="The service in Credential must be 'dynamodb'"):
        sqs.list_queues()


def test_a_request_that_is_not_signed_learns_nothing(server: Running) -> None:
    answers = set()
    for target, body in (("DynamoDB_20120810.Scan", b'{"TableName": "none"}'), ("", b"no JSON"), ("a.b", b"")):
        connection = http.client.HTTPConnection(urlsplit(endpoint_in(server.banner)).netloc, timeout=10)
        connection.request("POST", "/", body, {"x-amz-target": target} if target else {})
        answers.add(connection.getresponse().read())
        connection.close()
    [answer] = answers
    assert json.loads(answer)["__type"].endswith("#MissingAuthenticationTokenException")


def test_an_export_signs_with_the_key_that_is_printed(server: Running, tmp_path: Path) -> None:
    def exported(**keys: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "spark.exporting", "--to", str(tmp_path)]
        settings = environment(AWS_ENDPOINT_URL_DYNAMODB=endpoint_in(server.banner), **keys)
        done = subprocess.run(
            command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=EXPORT_SECONDS_MAX
        )
        return done.returncode, done.stdout + done.stderr

    pair = first(server)
    code, said = exported()
    assert (code, len(said.splitlines()), list(tmp_path.iterdir())) == (1, 1, [])
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
    code, said = exported(AWS_ACCESS_KEY_ID=pair[0], AWS_SECRET_ACCESS_KEY=pair[1])
    assert (code, "items of table decant" in said) == (0, True), said
