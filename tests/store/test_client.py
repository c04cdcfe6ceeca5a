"""Our own client: the endpoints that it asks, and its reaction to endpoints that misbehave."""

from __future__ import annotations

import datetime
import os
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import READ_TIMEOUT_MS
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.dynamodb import client, connections
from chalicelib.core.store.dynamodb.boto import Boto
from chalicelib.core.store.dynamodb.client import OwnClient
from chalicelib.core.store.dynamodb.requests import Failed, KeptConnectionClosed, NeverSent, NoAnswer, Unusable, run
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.writes import Key

NOTHING = b'{"Items":[]}'
SETTINGS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "eu-west-1"}
FOUND: dict[str, Any] = {"Items": []}

CLOSE = b""
"""A step without an answer: the connection closes."""
HANG = None
"""A step without an answer: silence."""

Step = bytes | None


def answer(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Endpoint:
    """Answers each request with the next step, in small pieces, and closes after a `last` one."""

    steps: list[Step]
    closes_after: bool = False
    asked: list[bytes] = field(default_factory=list)
    connections: int = 0

    def serve(self, listener: socket.socket) -> None:
        self._open: list[socket.socket] = []
        while self.steps:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._answer_all, args=(connection,), daemon=True).start()

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def _answer_all(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client closes first
            self._answer_each(connection)
        connection.close()

    def _answer_each(self, connection: socket.socket) -> None:
        while asked := connection.recv(65_536):
            self.asked.append(asked)
            step = self.steps.pop(0) if self.steps else HANG
            if step == HANG:
                connection.recv(1)
                return
            for at in range(0, len(step or b""), 7):
                connection.sendall((step or b"")[at : at + 7])
            if step == CLOSE or self.closes_after:
                return


@contextmanager
def serving(*steps: Step, closes_after: bool = False) -> Iterator[tuple[Endpoint, str]]:
    endpoint = Endpoint(list(steps), closes_after)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=endpoint.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield endpoint, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.close()
            endpoint.close()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*client._FOR_BOTO, *client._PROXIES, *client._OF_PROFILES, "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def asking(settings: pytest.MonkeyPatch, url: str) -> OwnClient:
    settings.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
    opened = client.open_client(system(), os.environ)
    assert isinstance(opened, OwnClient)
    return opened


def ask(own: OwnClient, timeout_ms: int = READ_TIMEOUT_MS) -> Any:
    [found] = run([own.ask("Query", {"TableName": "t"}, timeout_ms)], system())
    return found


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answered",
    [
        answer(NOTHING),
        answer(NOTHING, f"x-amz-crc32: {zlib.crc32(NOTHING)}"),
        answer(NOTHING, "CONNECTION: keep-alive"),
    ],
)
def test_requests_follow_each_other_on_one_connection(settings: pytest.MonkeyPatch, answered: bytes) -> None:
    with serving(answered, answered) as (endpoint, url):
        own = asking(settings, url)
        assert [ask(own), ask(own)] == [FOUND, FOUND]
        assert endpoint.connections == 1


def test_requests_side_by_side_have_a_connection_each(settings: pytest.MonkeyPatch) -> None:
    with serving(*[answer(NOTHING)] * 4) as (endpoint, url):
        own = asking(settings, url)
        for _ in range(2):
            asked = [own.ask("Query", {}, READ_TIMEOUT_MS) for _ in range(2)]
            assert run(asked, system()) == [FOUND, FOUND]
        assert endpoint.connections == 2


@pytest.mark.parametrize("is_told", [True, False])
def test_a_connection_that_was_closed_after_an_answer_is_not_used_again(
    settings: pytest.MonkeyPatch, is_told: bool
) -> None:
    answered = answer(NOTHING, *["connection: close"] * is_told)
    with serving(answered, answered, closes_after=not is_told) as (endpoint, url):
        own = asking(settings, url)
        assert ask(own) == FOUND
        while not is_told and own._connections._idle and own._connections._idle[0].recv(1, socket.MSG_PEEK):
            pass
        assert ask(own) == FOUND
        assert endpoint.connections == 2


def test_a_kept_connection_that_is_closed_without_an_answer_says_so(settings: pytest.MonkeyPatch) -> None:
    with serving(answer(NOTHING), CLOSE, answer(NOTHING)) as (endpoint, url):
        own = asking(settings, url)
        ask(own)
        with pytest.raises(KeptConnectionClosed):
            ask(own)
        assert ask(own) == FOUND
        assert endpoint.connections == 2


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (CLOSE, "the server closed the connection"),
        (answer(NOTHING, length=100)[:-1], "timed out"),
        (HANG, "timed out"),
        (answer(NOTHING, "x-amz-crc32: 1"), "checksum"),
        (answer(NOTHING, "x-amz-crc32: one"), "one"),
        (answer(b"<html>"), "not JSON"),
        (answer(b"[]"), "no object"),
        (answer(b"{}"), "without Items"),
        (answer(b"[]", length=-1), "without a length"),
        (answer(b"{}", length=10**9), "1000000000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "without a length"),
        (b"SSH-2.0-OpenSSH\r\nContent-Length: 0\r\n\r\n", "not HTTP"),
        (b"x" * 70_000, "without an end"),
    ],
)
def test_without_a_sound_answer_the_request_may_have_been_carried_out(
    settings: pytest.MonkeyPatch, step: Step, reason: str
) -> None:
    with serving(step) as (_, url):
        own = asking(settings, url)
        with pytest.raises(NoAnswer, match=reason) as trouble:
            ask(own, timeout_ms=200 if reason == "timed out" else READ_TIMEOUT_MS)
        assert not isinstance(trouble.value, KeptConnectionClosed)


def test_answers_that_are_there_are_read_after_one_that_never_came(settings: pytest.MonkeyPatch) -> None:
    with serving(HANG, answer(NOTHING)) as (endpoint, url):
        own = asking(settings, url)
        silent, answered = (own.ask("Query", {}, 500) for _ in range(2))
        next(silent)
        while len(endpoint.steps) > 1:  # or the other request could meet the first step
            time.sleep(0.001)
        next(answered)
        with pytest.raises(NoAnswer, match="timed out"):
            next(silent)
        assert run([answered], system()) == [FOUND]


def test_an_answer_that_drips_is_cut_off_in_time(settings: pytest.MonkeyPatch) -> None:
    class Slowly(bytes):
        def __getitem__(self, part: Any) -> bytes:  # type: ignore[override]
            time.sleep(0.05)
            return bytes(bytes.__getitem__(self, part))

    with serving(Slowly(answer(NOTHING * 100))) as (_, url):
        own = asking(settings, url)
        with pytest.raises(NoAnswer, match="timed out"):
            ask(own, timeout_ms=300)


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (answer(b"<html>", status="503 Busy"), ("503", 503)),
        (answer(b"[]", status="500 Bad"), ("500", 500)),
        (answer(b"", "Location: /", status="302 Found"), ("302", 302)),
        (
            answer(b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}', status="400 Bad"),
            ("ThrottlingException", 400),
        ),
        (answer(b'{"__type":"com.amazon#Odd","Message":"why"}', status="500 Bad"), ("Odd", 500)),
    ],
)
def test_an_answer_that_is_an_error_has_its_code(
    settings: pytest.MonkeyPatch, answered: bytes, expected: tuple[str, int]
) -> None:
    with serving(answered) as (_, url):
        own = asking(settings, url)
        with pytest.raises(Failed) as failed:
            ask(own)
        assert (failed.value.code, failed.value.status) == expected


def test_where_nobody_listens_nothing_was_sent(settings: pytest.MonkeyPatch) -> None:
    with serving() as (_, url):
        pass
    with pytest.raises(NeverSent, match=r"no connection to 127.0.0.1:\d+: .*refused"):
        ask(asking(settings, url))


def test_an_endpoint_that_does_not_speak_tls_gets_nothing(settings: pytest.MonkeyPatch) -> None:
    with serving(answer(NOTHING)) as (endpoint, url), pytest.raises(NeverSent):
        ask(asking(settings, url.replace("http:", "https:")))
    assert not any(b"POST" in asked for asked in endpoint.asked)


def test_a_call_of_several_requests_is_answered_although_one_was_cut(settings: pytest.MonkeyPatch) -> None:
    """Through the store: it sends requests of closed connections again, and the reader does not notice."""
    none = answer(b'{"Responses":{}}')
    with serving(answer(NOTHING), CLOSE, none, none) as (endpoint, url):
        store = DynamoStore(asking(settings, url), "t", system())
        store.read([Range("p", "a", "z")])
        assert store.read([Keys([Key("p", "s")])]) == [[]]
        assert endpoint.connections == 2


def test_an_endpoint_that_is_no_dynamodb_makes_the_store_unavailable(settings: pytest.MonkeyPatch) -> None:
    with serving(answer(b"<html>", status="302 Found")) as (_, url):
        store = DynamoStore(asking(settings, url), "t", system())
        with pytest.raises(StoreUnavailable, match="redirects"):
            store.read([Range("p", "a", "z")])


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that `localhost` has signed itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


@contextmanager
def serving_tls(certificate: Path, *steps: Step) -> Iterator[tuple[Endpoint, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    endpoint = Endpoint([*steps])
    listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
    with closing(listener):
        threading.Thread(target=endpoint.serve, args=(listener,), daemon=True).start()
        try:
            yield endpoint, f"https://localhost:{listener.getsockname()[1]}"
        finally:
            listener.close()
            endpoint.close()


def test_a_certificate_of_a_trusted_authority_is_accepted(settings: pytest.MonkeyPatch, certificate: Path) -> None:
    settings.setenv("AWS_CA_BUNDLE", str(certificate))
    closing_answer = answer(NOTHING, "connection: close")
    with serving_tls(certificate, answer(NOTHING), closing_answer, answer(NOTHING)) as (endpoint, url):
        own = asking(settings, url)
        assert [ask(own), ask(own)] == [FOUND, FOUND]
        assert endpoint.connections == 1
        assert ask(own) == FOUND
        again = endpoint._open[1]
        assert isinstance(again, ssl.SSLSocket)
        assert again.session_reused


def test_a_process_has_only_so_many_requests_under_way(settings: pytest.MonkeyPatch) -> None:
    settings.setattr(connections, "UNDER_WAY_MAX", 2)
    with serving(*[answer(NOTHING)] * 5) as (endpoint, url):
        own = asking(settings, url)
        first, second, third = (own.ask("Query", {}, READ_TIMEOUT_MS) for _ in range(3))
        assert [next(first), next(second)] == [0, 0]
        with pytest.raises(NeverSent, match=r"2 requests to .* are under way"):
            next(third)
        assert run([first], system()) == [FOUND]
        second.close()  # one that is given up makes room too
        assert run([own.ask("Query", {}, READ_TIMEOUT_MS) for _ in range(2)], system()) == [FOUND, FOUND]
    assert endpoint.connections == 3, "the one that was given up is closed"


def test_a_certificate_of_nobody_we_trust_gets_nothing(settings: pytest.MonkeyPatch, certificate: Path) -> None:
    with serving_tls(certificate, answer(NOTHING)) as (endpoint, url), pytest.raises(NeverSent, match="self-signed"):
        ask(asking(settings, url))
    assert endpoint.asked == []


def test_certificates_that_cannot_be_read_are_named(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AWS_CA_BUNDLE", "/none")
    with pytest.raises(ValueError, match=r"AWS_CA_BUNDLE names cannot be read: '/none'"):
        asking(settings, "https://127.0.0.1:1")


# -- whom it asks -----------------------------------------------------------------------------------------------------


def test_in_lambda_the_environment_says_all(settings: pytest.MonkeyPatch) -> None:
    settings.delenv("AWS_ENDPOINT_URL_DYNAMODB", raising=False)
    settings.setenv("AWS_LAMBDA_FUNCTION_NAME", "decant-dev")
    settings.setenv("AWS_SESSION_TOKEN", "token\n")
    own = client.open_client(system(), os.environ)
    assert isinstance(own, OwnClient)
    assert own._connections.host == "dynamodb.eu-west-1.amazonaws.com"
    assert own._signer._credentials() == ("a", "b", "token")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-gov-west-1", "dynamodb.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "dynamodb.cn-north-1.amazonaws.com.cn"),
        ("us-iso-east-1", "dynamodb.us-iso-east-1.c2s.ic.gov"),
    ],
)
def test_each_region_has_its_own_endpoint(settings: pytest.MonkeyPatch, region: str, host: str) -> None:
    settings.delenv("AWS_ENDPOINT_URL_DYNAMODB", raising=False)
    settings.setenv("AWS_DEFAULT_REGION", region)
    own = client.open_client(system(), os.environ)
    assert isinstance(own, OwnClient)
    assert own._connections.host == host


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:8000", "ftp://127.0.0.1", "http://:8000", "http://h:99999", "http://h:x", "http://h:0", "http://h?a"],
)
def test_an_endpoint_that_is_none_is_refused(settings: pytest.MonkeyPatch, endpoint: str) -> None:
    settings.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    with pytest.raises(ValueError, match=re.escape(endpoint)):
        client.open_client(system(), os.environ)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("https_proxy", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1/below"),
    ],
)
def test_odd_settings_are_left_to_boto3(settings: pytest.MonkeyPatch, name: str, value: str) -> None:
    settings.setenv(name, value)
    assert isinstance(client.open_client(system(), os.environ), Boto)


@pytest.mark.parametrize("setting", ["use_fips_endpoint=true", "use_dualstack_endpoint=true"])
def test_a_file_of_settings_counts_outside_lambda(settings: pytest.MonkeyPatch, tmp_path: Path, setting: str) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(f"[default]\n{setting}\n")
    settings.setenv("HOME", str(tmp_path))
    settings.setattr(boto3, "DEFAULT_SESSION", None)
    assert isinstance(client.open_client(system(), os.environ), Boto)


def test_a_profile_is_read_by_boto3_and_asked_by_ourselves(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[profile shop]\nregion=eu-north-1\naws_access_key_id=mine\naws_secret_access_key=secret\n")
    for name in SETTINGS:
        settings.delenv(name)
    settings.setenv("AWS_CONFIG_FILE", str(config))
    settings.setenv("AWS_PROFILE", "shop")
    settings.setattr(boto3, "DEFAULT_SESSION", None)
    own = client.open_client(system(), os.environ)
    assert isinstance(own, OwnClient)
    assert own._connections.host == "dynamodb.eu-north-1.amazonaws.com"
    assert own._signer._credentials() == ("mine", "secret", None)
    config.write_text(f"{config.read_text()}use_fips_endpoint=true\n")
    settings.setattr(boto3, "DEFAULT_SESSION", None)
    assert isinstance(client.open_client(system(), os.environ), Boto)


def test_credentials_that_were_not_found_are_looked_for_again(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        settings.delenv(name, raising=False)
    settings.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    settings.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings.setattr(boto3, "DEFAULT_SESSION", None)
    with serving(answer(NOTHING)) as (endpoint, url):
        own = asking(settings, url)
        with pytest.raises(Unusable, match="no usable credentials"):
            ask(own)
        assert endpoint.asked == []
        shared.write_text("[default]\naws_access_key_id=late\naws_secret_access_key=secret\n")
        assert ask(own) == FOUND
        assert b"Credential=late/" in endpoint.asked[0]
