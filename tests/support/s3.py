"""S3 on this machine: moto's server, and the settings with which Spark reaches it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from tests.support.emulators import ROOT, absent

JARS = ROOT / ".emulators/s3a"


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """Runs a server of its own on loopback, and yields the environment in which any AWS client uses it."""
    logging.getLogger("werkzeug").setLevel("ERROR")
    started = ThreadedMotoServer("127.0.0.1", 0)
    started.start()
    try:
        _, port = started.get_host_and_port()
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-central-1"}
        yield {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", **keys}
    finally:
        started.stop()


def new_bucket() -> str:
    """The name of an empty bucket of its own, on the S3 of the environment."""
    name = f"decant-{uuid4().hex}"
    _client().create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": os.environ["AWS_DEFAULT_REGION"]}
    )
    return name


def upload(folder: Path, bucket: str) -> None:
    """Puts all files of a folder into the bucket, by their paths in the folder."""
    client = _client()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), bucket, path.relative_to(folder).as_posix())


def keys(bucket: str) -> list[str]:
    return [found["Key"] for found in _client().list_objects_v2(Bucket=bucket).get("Contents", [])]


def jars() -> str:
    """The jars that Spark needs for `s3a://`, separated by commas."""
    found = sorted(JARS.glob("*.jar"))
    if not found:
        absent(f"{JARS.name} is not here: `make s3a-if-possible` installs it")
    return ",".join(str(jar) for jar in found)


def _client() -> Any:
    return boto3.client("s3")
