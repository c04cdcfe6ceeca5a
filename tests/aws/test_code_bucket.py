"""The bucket that code is deployed from."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.aws import Aws
from infra.code_bucket import CodeBucket
from infra.packaging import CODE
from infra.stage import Stage
from tests.support.ministack import Ministack

STAGE = Stage("trial", "tokens")


@pytest.fixture
def aws(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name, value in ministack.environment.items():
        monkeypatch.setenv(name, value)
    return Aws(None)


def _read(ministack: Ministack, bucket: CodeBucket, key: str) -> bytes:
    content: bytes = ministack.client("s3").get_object(Bucket=bucket.name, Key=key)["Body"].read()
    return content


def test_it_is_made_once_and_private(aws: Aws, ministack: Ministack) -> None:
    bucket = CodeBucket(aws, STAGE)
    bucket.ensure()
    bucket.ensure()
    assert bucket.name == "decant-trial-code-000000000000-eu-central-1"
    blocked = ministack.client("s3").get_public_access_block(Bucket=bucket.name)["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}


def test_it_has_the_tags_of_the_stage(aws: Aws, ministack: Ministack) -> None:
    bucket = CodeBucket(aws, Stage("tagged", "tokens", own_tags={"team": "payments"}))
    bucket.ensure()
    assert ministack.client("s3").get_bucket_tagging(Bucket=bucket.name)["TagSet"] == [
        {"Key": "team", "Value": "payments"}
    ]


@pytest.mark.usefixtures("aws")
def test_it_is_made_in_the_first_region_too() -> None:
    bucket = CodeBucket(Aws("us-east-1"), STAGE)
    bucket.ensure()
    bucket.ensure()


def test_the_template_says_where_the_code_is(aws: Aws, ministack: Ministack) -> None:
    bucket = CodeBucket(aws, STAGE)
    bucket.ensure()
    resources: dict[str, Any] = {
        "Pop": {"Properties": {"CodeUri": CODE, "Timeout": 29}},
        "Theirs": {"Properties": {"CodeUri": "s3://theirs/code.zip"}},
        "Table": {},
    }
    url = bucket.put(b"zip", {"Resources": resources, "Outputs": {}})
    put = json.loads(_read(ministack, bucket, urlsplit(url).path.split("/", 2)[2]))
    code = put["Resources"]["Pop"]["Properties"].pop("CodeUri")
    assert code["Bucket"] == bucket.name
    assert _read(ministack, bucket, code["Key"]) == b"zip"
    assert put == {
        "Resources": {**resources, "Pop": {"Properties": {"Timeout": 29}}},
        "Outputs": {},
    }


def test_the_same_is_put_in_the_same_place(aws: Aws) -> None:
    bucket = CodeBucket(aws, STAGE)
    bucket.ensure()
    template: dict[str, Any] = {"Resources": {"Pop": {"Properties": {"CodeUri": CODE}}}}
    assert bucket.put(b"one", template) == bucket.put(b"one", template) != bucket.put(b"two", template)


def test_every_request_names_the_owner(aws: Aws, ministack: Ministack) -> None:
    """Others could have made a bucket of this name, to get at the code or to change it."""
    bucket = CodeBucket(aws, Stage("theirs", "tokens"))
    sent: list[dict[str, Any]] = []
    bucket._s3.meta.events.register("provide-client-params.s3", lambda params, **_: sent.append(params))
    bucket.ensure()
    bucket.put(b"zip", {"Resources": {}})
    unowned = [params for params in sent if "ExpectedBucketOwner" not in params]
    assert [params.get("CreateBucketConfiguration") for params in unowned] == [{"LocationConstraint": "eu-central-1"}]
