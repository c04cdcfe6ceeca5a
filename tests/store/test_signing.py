"""Signatures match AWS's rules: its published test vectors, and botocore."""

from __future__ import annotations

import datetime
import re
from unittest import mock

import botocore.auth
import botocore.credentials
from botocore.awsrequest import AWSRequest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import DAY_MS, SECOND_MS
from chalicelib.core.store.dynamodb.client import Credentials, Signer

EXAMPLE = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOON_MS = 1_440_938_160 * SECOND_MS
"""2015-08-30 12:36:00, of the vectors."""
AUTHORIZATION = re.compile(r"authorization:(.*)\r\n")


def authorization(signer: Signer, target: str, body: bytes, now_ms: int) -> str:
    found = AUTHORIZATION.search(signer.headers(target, body, now_ms))
    assert found
    return found[1]


def test_a_request_has_the_signature_of_the_published_vector_post_vanilla() -> None:
    signer = Signer("example.amazonaws.com", "us-east-1", lambda: EXAMPLE, "service")
    assert authorization(signer, "", b"", NOON_MS) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    )


@given(
    host=st.sampled_from(["127.0.0.1:8000", "dynamodb.eu-west-1.amazonaws.com"]),
    token=st.none() | st.text("abc/+=", min_size=1),
    secret=st.text("abc/+", min_size=1),
    body=st.binary(min_size=1),
    at_ms=st.integers(0, 4_000_000_000 * SECOND_MS),
)
def test_a_request_is_signed_as_botocore_signs_it(
    host: str, token: str | None, secret: str, body: bytes, at_ms: int
) -> None:
    signer = Signer(host, "eu-west-1", lambda: Credentials("AKID", secret, token))
    for now_ms in (at_ms, at_ms, at_ms + DAY_MS):
        now = datetime.datetime.fromtimestamp(now_ms // SECOND_MS, datetime.UTC)
        request = AWSRequest("POST", f"http://{host}/", headers={"x-amz-target": "DynamoDB_20120810.Query"}, data=body)
        signing = botocore.auth.SigV4Auth(
            botocore.credentials.Credentials("AKID", secret, token), "dynamodb", "eu-west-1"
        )
        with mock.patch.object(botocore.auth, "get_current_datetime", lambda now=now: now):
            signing.add_auth(request)
        mine = authorization(signer, "DynamoDB_20120810.Query", body, now_ms)
        assert mine == request.headers["Authorization"]


def test_credentials_that_were_renewed_sign_from_then_on() -> None:
    found = [EXAMPLE, EXAMPLE._replace(secret_key="new"), EXAMPLE]
    signer = Signer("host", "eu-west-1", iter(found).__next__)
    first, second, third = (authorization(signer, "Query", b"{}", NOON_MS) for _ in found)
    assert first == third != second
