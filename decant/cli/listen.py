"""`decant listen`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

import click

from decant import calls, operations
from decant.cli import options, webhook
from decant.cli.failures import note
from decant.cli.output import Out
from decant.cli.popping import POLL_MS, Popping
from decant.errors import DecantError, GroupNotFound

if TYPE_CHECKING:
    from decant.client import Decant

MARGIN_MS = 15_000
PAUSE_S = 1.0
REASON_MAX = 200


@click.command()
@options.topic
@click.argument("place", nargs=-1, required=True, metavar="[GROUP] URL")
@click.option("--keep", is_flag=True, help="Do not delete the group at the end.")
@click.option("--batch", type=click.IntRange(1, 256), default=10, show_default=True, help="Messages in a call.")
@click.option("--timeout", type=options.DURATION, default="10s", show_default=True, help="How long a call may take.")
@options.writing("at_ms", "status", "took_ms", "messages", "reason")
@options.calling
def listen(topic: str, place: tuple[str, ...], keep: bool, batch: int, timeout: int, out: Out, mq: Decant) -> None:
    """Bring the messages of a topic to a webhook on this machine, as a push would, until Ctrl-C.

    Makes a group that begins with the messages sent from now on, and deletes it at the end; keeps a GROUP that exists.
    2xx acks, anything else nacks. Calls are signed as Standard Webhooks are, with the secret in DECANT_LISTEN_SECRET,
    or with a new one, which is printed. A port alone means http://127.0.0.1:PORT/.

    \b
    decant listen orders http://localhost:3000/hooks
    decant listen orders billing 3000 --keep
    """
    if len(place) > 2:
        raise click.UsageError("give [GROUP] URL after the topic")
    group = place[0] if len(place) == 2 else f"listen-{os.urandom(4).hex()}"
    url = webhook.target_of(place[-1])
    given = os.environ.get("DECANT_LISTEN_SECRET")
    secret = given or webhook.new_secret()
    listening = Listening(mq, topic, group, url, webhook.key_of(secret), timeout, out)
    is_new = not _is_there(mq, topic, group)
    try:
        if is_new:
            mq.api.put_group(topic, group, start="latest")
        note(f"listening as group {group}" + ("" if given else f"; the secret is {secret}"))
        while True:
            listening.once(batch)
    finally:
        out.end()
        if is_new and not keep:
            _delete(mq, topic, group)


def _is_there(mq: Decant, topic: str, group: str) -> bool:
    try:
        mq.api.get_group(topic, group)
    except GroupNotFound:
        return False
    return True


def _delete(mq: Decant, topic: str, group: str) -> None:
    try:
        mq.call(operations.delete_group(topic, group), timeout=5)
        note(f"removed group {group} of {topic}")
    except GroupNotFound:
        pass
    except (DecantError, KeyboardInterrupt) as error:
        note(f"group {group} of {topic} is left: {error or 'interrupted'}")
        if isinstance(error, KeyboardInterrupt):
            raise


class Listening:
    """Pops, posts and settles."""

    def __init__(
        self, mq: Decant, topic: str, group: str, url: SplitResult, key: bytes, timeout_ms: int, out: Out
    ) -> None:
        self._mq, self._topic, self._group, self._url, self._key = mq, topic, group, url, key
        self._timeout_ms, self._out = timeout_ms, out
        self._popping = Popping(mq, topic, group, timeout_ms + MARGIN_MS, fill=False)

    def once(self, batch: int) -> None:
        """One call, if there is a message."""
        messages = self._popping.pop(batch, POLL_MS)
        if not messages:
            return
        ids = [message["message_id"] for message in messages]
        body = webhook.body_of(self._topic, self._group, messages)
        headers = webhook.headers_of(self._group, ids, body, self._key)
        began = time.monotonic()
        answer = webhook.post(self._url, body, headers, self._timeout_ms / 1_000)
        took_ms = round((time.monotonic() - began) * 1_000)
        self._settle(messages, answer)
        self._out.many([_call(headers["webhook-id"], answer, took_ms, ids)])
        if answer.reason is not None:
            time.sleep(PAUSE_S)

    def _settle(self, messages: list[Any], answer: webhook.Answer) -> None:
        acked = []
        for message in messages:
            failure = None if answer.failed is None else answer.failed.get(message["message_id"])
            if answer.failed is not None and failure is None:
                acked.append(message["receipt"])
                continue
            reason = str((failure or {}).get("reason") or answer.reason or "reported as failed")[:REASON_MAX]
            delay_ms = failure.get("delay_ms") if failure else answer.delay_ms
            fields = calls.given(reason=reason, delay_ms=delay_ms)
            self._mq.api.nack(self._topic, self._group, receipts=[message["receipt"]], **fields)
        self._popping.ack(acked)


def _call(id_: str, answer: webhook.Answer, took_ms: int, ids: list[str]) -> dict[str, Any]:
    return {
        "at_ms": time.time_ns() // 1_000_000,
        "webhook_id": id_,
        "status": answer.status,
        "took_ms": took_ms,
        "messages": ids,
        "failed": len(ids) if answer.failed is None else len(answer.failed),
        "reason": answer.reason,
    }
