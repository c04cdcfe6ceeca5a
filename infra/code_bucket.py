"""The bucket that code and templates are deployed from. It is not part of the stack, which needs it first. Nothing is
ever removed from it: when a change fails, CloudFormation returns to the earlier code."""

from __future__ import annotations

import hashlib
import json

from botocore.exceptions import ClientError

from infra.aws import Aws, is_missing
from infra.console import Stop
from infra.packaging import CODE
from infra.stage import Stage
from infra.templates import Template

FIRST_REGION = "us-east-1"
"""The region of buckets made without a location constraint."""

PRIVATE = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)


class CodeBucket:
    """Keeps each zip and each template under its hash. Anyone can guess the bucket's name, so each request names its
    owner."""

    def __init__(self, aws: Aws, stage: Stage) -> None:
        self._s3 = aws.client("s3")
        self._region = aws.region
        self._own_tags = stage.own_tags
        self._owner = {"ExpectedBucketOwner": aws.account}
        self.name = f"{stage.stack}-code-{aws.account}-{aws.region}"

    def ensure(self) -> None:
        """Makes the bucket if it is missing, with the tags of the stage. Nothing in it can be made public."""
        try:
            self._s3.head_bucket(Bucket=self.name, **self._owner)
        except ClientError as error:
            if not is_missing(error):
                raise Stop(f"the bucket {self.name} cannot be used; it may be another account's: {error}") from error
            place = {"LocationConstraint": self._region}
            made = {} if self._region == FIRST_REGION else {"CreateBucketConfiguration": place}
            self._s3.create_bucket(Bucket=self.name, **made)
        self._s3.put_public_access_block(Bucket=self.name, PublicAccessBlockConfiguration=PRIVATE, **self._owner)
        if self._own_tags:
            tags = {"TagSet": [{"Key": name, "Value": value} for name, value in self._own_tags.items()]}
            self._s3.put_bucket_tagging(Bucket=self.name, Tagging=tags, **self._owner)

    def put(self, code: bytes, template: Template) -> str:
        """Returns the URL of the template, which refers to the functions' code in the bucket."""
        zipped = {"Bucket": self.name, "Key": self._put(code, "zip")}
        written = json.dumps(_located(template, zipped), separators=(",", ":"))
        return f"{self._s3.meta.endpoint_url}/{self.name}/{self._put(written.encode(), 'json')}"

    def _put(self, content: bytes, suffix: str) -> str:
        key = f"{hashlib.sha256(content).hexdigest()}.{suffix}"
        self._s3.put_object(Bucket=self.name, Key=key, Body=content, **self._owner)
        return key


def _located(template: Template, code: dict[str, str]) -> Template:
    resources = dict(template["Resources"])
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        if properties.get("CodeUri") == CODE:
            resources[name] = {**resource, "Properties": {**properties, "CodeUri": code}}
    return {**template, "Resources": resources}
