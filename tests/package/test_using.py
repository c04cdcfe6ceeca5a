"""A user's first steps with the installed wheel: the command line, the client, a consumer, a test of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.local.serving import environment
from tests.package.conftest import Installed
from tests.package.test_serving import serving

CONSUMER = """
from decant import Decant, Retry

mq = Decant()
seen = []

@mq.consumer("mails", group="mail")
def mail(body, message):
    seen.append(message.attempt)
    if message.attempt == 1:
        raise Retry(delay=0)
    print(body, seen)
    mq.stop()

mq.api.put_topic("mails")
mq.api.put_group("mails", "mail")
mq.send("mails", "4711")
mq.run()
"""

USERS_TEST = """
def test_a_message_comes_back(decant, decant_clock):
    decant.api.put_topic("orders")
    decant.api.put_group("orders", "billing")
    decant.send("orders", "4711")
    assert len(decant.api.pop("orders", "billing")["messages"]) == 1
    assert decant.api.pop("orders", "billing")["messages"] == []
    decant_clock.advance(seconds=30)
    [again] = decant.api.pop("orders", "billing")["messages"]
    assert again["attempt"] == 2
"""


@pytest.fixture(scope="module")
def url(installed: Installed) -> Iterator[str]:
    with serving(installed) as server:
        yield f"http://127.0.0.1:{server.port}"


def said(installed: Installed, url: str, *command: str) -> str:
    done = subprocess.run(
        [str(installed.bin / command[0]), *command[1:]],
        cwd=installed.folder,
        env=environment(DECANT_URL=url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_messages_are_sent_and_taken_from_the_shell(installed: Installed, url: str) -> None:
    said(installed, url, "decant", "topic", "set", "orders", "queues=1")
    said(installed, url, "decant", "group", "set", "orders", "billing")
    sent = said(installed, url, "decant", "send", "orders", "hello", "bye").splitlines()
    taken = said(installed, url, "decant", "take", "orders", "billing", "-n", "2").splitlines()
    assert [json.loads(line)["message_id"] for line in taken] == [json.loads(line)["message_id"] for line in sent]
    assert said(installed, url, "decant", "take", "orders", "billing") == ""


def test_a_consumer_retries(installed: Installed, url: str) -> None:
    assert said(installed, url, "python", "-c", CONSUMER) == "4711 [1, 2]\n"


def test_a_user_tests_with_the_real_service(installed: Installed, url: str) -> None:
    (installed.folder / "test_mine.py").write_text(USERS_TEST)
    assert "1 passed" in said(installed, url, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
