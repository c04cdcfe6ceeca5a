"""boto3, Celery and both SDKs of MQ, unchanged, against `ACCESS=on python -m local`: with the key that it prints, and
others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from mq_http_sdk.mq_client import MQClient
from mq_http_sdk.mq_exception import MQServerException

from tests.local.serving import Running, environment, running
from tests.sqs.query_client import form
from tests.sqs.signing import sign
from tests.support.emulators import ROOT
from tests.support.mq_clients import ROUND, by_node, by_python, puts

Pair = tuple[str, str]

ANOTHER_PROGRAM_SECONDS_MAX = 30

PRODUCE = {"operations": ["produce"], "topics": "orders"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ACCESS="on") as server:
        yield server


@pytest.fixture(scope="module")
def pair(server: Running) -> Pair:
    """The access key that the server prints. A topic exists, with a group."""
    token = f"Bearer {printed(server, 'TOKEN')}"
    for path in ("/topics/orders", "/topics/orders/groups/billing"):
        assert server.ask("PUT", path, "{}", authorization=token)[0] == 201
    return printed(server, "AWS_ACCESS_KEY_ID"), printed(server, "AWS_SECRET_ACCESS_KEY")


def printed(server: Running, name: str) -> str:
    value: str = re.findall(rf"\b{name}=(\S+)", server.banner)[0]
    return value


@pytest.fixture(scope="module")
def producer(server: Running) -> Pair:
    """A key that may send to a topic."""
    new = json.dumps({"name": "producer", "rights": [PRODUCE]})
    status, _, made = server.ask("POST", "/tokens", new, authorization=f"Bearer {printed(server, 'TOKEN')}")
    assert status == 201
    return json.loads(made)["access_key_id"], json.loads(made)["secret_access_key"]


def sqs(server: Running, pair: Pair) -> Any:
    make: Any = boto3.client
    options = {"region_name": "eu-central-1", "config": Config(retries={"max_attempts": 0})}
    keys = {"aws_access_key_id": pair[0], "aws_secret_access_key": pair[1]}
    return make("sqs", endpoint_url=f"http://127.0.0.1:{server.port}", **options, **keys)


def code_of(call: Any, **members: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**members)
    code: str = caught.value.response["Error"]["Code"]
    return code


def test_boto3_works_with_the_key_that_is_printed(server: Running, pair: Pair) -> None:
    client = sqs(server, pair)
    url = client.create_queue(QueueName="jobs")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="grüß")
    [message] = client.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert message["Body"] == "grüß"
    assert client.list_queues(QueueNamePrefix="j")["QueueUrls"] == [url]


def test_boto3_hears_what_is_wrong_with_its_key(server: Running, pair: Pair, producer: Pair) -> None:
    assert code_of(sqs(server, (pair[0], producer[1])).list_queues) == "SignatureDoesNotMatch"
    assert code_of(sqs(server, ("AKIDEXAMPLE", pair[1])).list_queues) == "InvalidClientTokenId"
    limited = sqs(server, producer)
    assert code_of(limited.list_queues) == "AccessDenied"
    assert code_of(limited.send_message, QueueUrl="http://x/1/refunds", MessageBody="a") == "AccessDenied"


def printed_by(*command: str, **settings: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=ANOTHER_PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_celery_carries_out_tasks_at_once_later_and_again(server: Running, pair: Pair) -> None:
    broker = f"sqs://{pair[0]}:{pair[1]}@127.0.0.1:{server.port}//"
    said = printed_by(sys.executable, "-m", "tests.local.celery_tasks", BROKER=broker)
    assert said.splitlines()[-1] == "[3, 7, 11, 15]"
    client = sqs(server, pair)
    url = client.get_queue_url(QueueName="celery")["QueueUrl"]
    left = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (left["ApproximateNumberOfMessages"], left["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")


def test_a_signed_form_is_let_in(server: Running, pair: Pair, producer: Pair) -> None:
    def asked(secret: str) -> tuple[int, bytes]:
        body = form("GetQueueUrl", {"QueueName": "none"}).encode()
        url, at_ms = f"http://127.0.0.1:{server.port}/", time.time_ns() // 1_000_000
        request = sign(
            "POST", url, body, at_ms, secret, key_id=pair[0], content_type="application/x-www-form-urlencoded"
        )
        status, _, answer = server.ask("POST", "/", body, **request.headers)
        return status, answer

    for secret, status, code in ((pair[1], 400, b"NonExistentQueue"), (producer[1], 403, b"SignatureDoesNotMatch")):
        answer = asked(secret)
        assert (answer[0], code in answer[1]) == (status, True)


@pytest.mark.parametrize("by_sdk", [by_python, by_node])
def test_the_sdks_of_mq_do_all_that_they_can(server: Running, pair: Pair, by_sdk: Callable[..., Any]) -> None:
    token = f"Bearer {printed(server, 'TOKEN')}"
    for path, settings in puts(by_sdk.__name__).items():
        assert server.ask("PUT", path, json.dumps(settings), authorization=token)[0] == 201
    assert by_sdk(f"http://127.0.0.1:{server.port}", *pair, by_sdk.__name__) == ROUND


@pytest.mark.parametrize(
    ("key", "code"), [(0, "SignatureDoesNotMatch"), (1, "InvalidAccessKeyId"), (2, "AccessDenied")]
)
def test_the_sdk_of_mq_hears_what_is_wrong_with_its_key(
    server: Running, pair: Pair, producer: Pair, key: int, code: str
) -> None:
    used = [(pair[0], producer[1]), ("AKIDEXAMPLE", pair[1]), producer][key]
    mq = MQClient(f"http://127.0.0.1:{server.port}", *used)
    with pytest.raises(MQServerException) as caught:
        mq.get_consumer("", "orders", "billing").consume_message()
    mq.close_connection()
    assert (caught.value.type, bool(caught.value.req_id)) == (code, True)
