"""Calls are signed as Standard Webhooks are: the convention's own library verifies them."""

from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from chalicelib.core.catalogue.push import Push, PushSecret, signing
from chalicelib.push.courier import secret_text, signed, webhook_id

BODY = b'{"topic":"orders","messages":[{"body":"\xc3\xa4"}]}'


def secret(number: int) -> PushSecret:
    return PushSecret(f"s{number}", bytes([number]) * 32, number)


def test_the_signature_is_that_of_the_test_vector_of_the_convention() -> None:
    known = PushSecret("s", base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0)
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}', [known])
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_verifies_the_call_and_no_other_does() -> None:
    headers = signed("msg_1", int(time.time()), BODY, [secret(2), secret(1)])
    for known in (secret(1), secret(2)):
        Webhook(secret_text(known)).verify(BODY, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(secret(3))).verify(BODY, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(secret(1))).verify(BODY + b" ", headers, json_parse=False)


def test_a_call_without_secrets_is_not_signed() -> None:
    assert signed("msg_1", 1, BODY, []) == {"webhook-id": "msg_1", "webhook-timestamp": "1"}


def test_the_named_secret_signs_first_and_older_ones_beside_it() -> None:
    secrets = [secret(1), secret(2), secret(3)]
    assert [each.id for each in signing(secrets, Push({}))] == ["s3", "s2", "s1"]
    assert [each.id for each in signing(secrets, Push({"secret_id": "s2"}))] == ["s2", "s1"]
    assert [each.id for each in signing(secrets, Push({"secret_id": "s1"}))] == ["s1"]


def test_the_same_messages_have_the_same_id_and_no_others_have_it() -> None:
    ids = {webhook_id("g", ["a", "b"]), webhook_id("g", ["a"]), webhook_id("g", ["b", "a"]), webhook_id("h", ["a"])}
    assert len(ids) == 4
    assert webhook_id("g", ["a", "b"]) in ids
