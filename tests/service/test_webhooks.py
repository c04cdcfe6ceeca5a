"""Webhooks over real sockets: what is sent, which answers count, and which addresses are refused."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks.webhooks import Webhook

from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.push import dispatcher, webhooks
from chalicelib.push.outside import ConsumerResponse, Outside
from chalicelib.push.webhooks import Webhooks
from chalicelib.service import Service
from local.memory.store import MemoryStore

Respond = Callable[[BaseHTTPRequestHandler, bytes], None]


class Server(ThreadingHTTPServer):
    """Answers as `respond` does, and remembers what came."""

    daemon_threads = True

    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, headers, body))
        self.server.respond(self, body)

    def log_message(self, *_arguments: Any) -> None: ...


def answering(status: int, body: bytes = b"", **headers: str) -> Respond:
    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


@contextmanager
def serving(respond: Respond, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(respond)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(url: str, timeout_ms: int = 5_000, allows_loopback: bool = True) -> ConsumerResponse:
    return Webhooks(system(), allows_loopback).post(url, {"x-a": "b"}, b"{}", timeout_ms)


def resolving(*addresses: str) -> Callable[[str, int], Sequence[str]]:
    return lambda _host, _port: addresses


def test_a_post_carries_path_query_headers_and_body() -> None:
    with serving(answering(200, b"yes")) as server:
        for target in ("/hooks?a=b%20c", "/hooks", "?a", ""):
            assert post(server.url + target) == ConsumerResponse(200, b"yes")
        assert [target for target, _, _ in server.seen] == ["/hooks?a=b%20c", "/hooks", "/?a", "/"]
        _, headers, body = server.seen[0]
    assert (body, headers["x-a"]) == (b"{}", "b")
    assert headers["host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize("status", [200, 204, 400, 410, 500, 503])
def test_the_status_and_the_retry_after_are_told(status: int) -> None:
    with serving(answering(status, retry_after="7")) as server:
        assert post(server.url) == ConsumerResponse(status, b"", "7")


def test_a_redirect_is_not_followed() -> None:
    with serving(answering(200)) as other, serving(answering(307, location=other.url)) as server:
        assert post(server.url).status == 307
        assert other.seen == []


def trickle(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    """Sends a byte now and then: no read waits long, but the answer never ends."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(100):
        time.sleep(0.05)
        try:
            handler.wfile.write(b".")
        except OSError:
            return


@pytest.mark.parametrize("respond", [lambda *_: time.sleep(1), trickle], ids=["silent", "trickling"])
def test_an_answer_that_takes_too_long_is_none(respond: Respond) -> None:
    with serving(respond) as server:
        calls = Webhooks(
            system(), allows_loopback=True, resolve=resolving("::1", "127.0.0.1")
        )  # nobody is at the first
        began = time.monotonic()
        answer = calls.post(f"http://shop.example:{server.server_port}/", {}, b"", 200)
        assert answer == ConsumerResponse.missing("no answer within 200 ms")
        assert time.monotonic() - began < 0.9


TIMEOUT_MS = 300
SPARE_S = 1.0
"""How much longer than its time-out a call may take on a busy machine; without a deadline these take five seconds."""
STALL_S = 5.0


@contextmanager
def accepting(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that passes its first connection to `serve`. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with suppress(OSError), listening.accept()[0] as connected:
                serve(connected)

        threading.Thread(target=run, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def in_time(url: str, body: bytes = b"{}", **options: Any) -> None:
    """A call that ends without an answer when its time is over."""
    calls, began = Webhooks(system(), allows_loopback=True, **options), time.monotonic()
    answer = calls.post(url, {}, body, TIMEOUT_MS)
    assert time.monotonic() - began < TIMEOUT_MS / 1_000 + SPARE_S
    assert answer == ConsumerResponse.missing(f"no answer within {TIMEOUT_MS} ms")


def drip(connected: socket.socket) -> None:
    """Sends a head, then a byte now and then, for `STALL_S`."""
    connected.recv(1 << 16)
    connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _ in range(int(STALL_S / 0.05)):
        time.sleep(0.05)
        connected.sendall(b".")


def drip_head(connected: socket.socket) -> None:
    for _ in range(int(STALL_S / 0.05)):
        time.sleep(0.05)
        connected.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def stall(connected: socket.socket) -> None:
    """Reads nothing."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    time.sleep(STALL_S)


@pytest.mark.parametrize("serve", [drip, drip_head, stall])
def test_no_answer_outlives_the_time_of_its_call(serve: Callable[[socket.socket], None]) -> None:
    with accepting(serve) as server:
        in_time(f"http://{server}/", body=b"x" * (8 << 20) if serve is stall else b"{}")


def test_a_late_connection_and_a_late_handshake_have_one_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, connect = certified(tmp_path, "shop.example"), socket.socket.connect
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))

    def late(self: socket.socket, address: Any) -> None:
        time.sleep(0.2)
        connect(self, address)

    def serve(connected: socket.socket) -> None:
        time.sleep(0.25)
        with context.wrap_socket(connected, server_side=True) as secured:
            drip(secured)

    monkeypatch.setattr(socket.socket, "connect", late)
    with accepting(serve) as server:
        in_time(f"https://shop.example:{server.rpartition(':')[2]}/", resolve=resolving("127.0.0.1"))


def test_a_name_that_is_found_late_does_not_hold_up_its_call() -> None:
    given_up = threading.Event()

    def resolve(_host: str, _port: int) -> Sequence[str]:
        given_up.wait(STALL_S)
        return ["127.0.0.1"]

    in_time("http://shop.example/", resolve=resolve)
    given_up.set()


def test_look_ups_that_nobody_waits_for_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "RESOLVING_MAX", 2)
    begun, given_up = list[str](), threading.Event()

    def resolve(host: str, _port: int) -> Sequence[str]:
        begun.append(host)
        given_up.wait(STALL_S)
        return ["10.0.0.1"]

    calls = Webhooks(system(), allows_loopback=True, resolve=resolve)
    for number in range(4):
        calls.post("http://shop-0.example/", {}, b"", 50)
        trouble = calls.post(f"http://shop-{number}.example/", {}, b"", 50).trouble
        full = "no answer: TimeoutError: 2 other names are being looked up"
        assert trouble == ("no answer within 50 ms" if number < 2 else full)
    assert begun == ["shop-0.example", "shop-1.example"]
    given_up.set()
    assert "10.0.0.1, which is not public" in calls.post("http://shop-0.example/", {}, b"", 5_000).trouble


def test_a_name_that_cannot_be_resolved_gave_no_answer() -> None:
    for error in (OSError("unknown name"), UnicodeError("label too long")):
        calls = Webhooks(system(), allows_loopback=True, resolve=Mock(side_effect=error))
        assert calls.post("http://shop.example/", {}, b"", 5_000).trouble.endswith(str(error))


def test_a_first_call_imports_no_package() -> None:
    """Callers begin at once, and each would see what another has imported half."""
    program = """
import sys
from chalicelib.core.base.runtime import system
from chalicelib.push.webhooks import Webhooks
webhooks, before = Webhooks(system(), allows_loopback=True), {*sys.modules}
assert webhooks.post("http://127.0.0.1:1/", {}, b"", 5_000).trouble
assert webhooks.post("https://127.0.0.1:1/", {}, b"", 5_000).trouble
print(*{name.partition(".")[0] for name in {*sys.modules} - before} - sys.stdlib_module_names)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize("size", [b"-1", b"fffffff"])
def test_chunks_of_any_size_are_read_up_to_a_bound(size: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "WIRE_BYTES_MAX", 100_000)

    def serve(connected: socket.socket) -> None:
        connected.recv(1 << 16)
        connected.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + size + b"\r\n")
        while True:
            connected.sendall(b"x" * 65_536)

    with accepting(serve) as server:
        answer = post(f"http://{server}/")
    assert answer.trouble == "no answer: OSError: the answer has more than 100000 bytes"


def test_an_answer_that_is_cut_off_is_none() -> None:
    with serving(answering(200, b"half", **{"content-length": "8", "connection": "close"})) as server:
        assert post(server.url).trouble.startswith("no answer: IncompleteRead")


def test_an_answer_that_is_too_long_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "ANSWER_BYTES_MAX", 100)
    with serving(answering(200, b"x" * 101)) as server:
        assert post(server.url).trouble == "status 200, and more than 100 bytes"
        server.respond = answering(200, b"x" * 100)
        assert post(server.url).status == 200
        server.respond = answering(200, b"x" * 101, **{"content-length": "1000"})  # and the rest never comes
        assert post(server.url).trouble == "status 200, and more than 100 bytes"


def test_an_answer_is_taken_as_it_is_sent() -> None:
    """A small one that says that it is compressed may be endless."""
    with serving(answering(200, packed := gzip.compress(b"{}"), content_encoding="gzip")) as server:
        assert post(server.url) == ConsumerResponse(200, packed)


def hang_up(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.close_connection = True


def test_a_server_that_hangs_up_or_is_not_there_gave_no_answer() -> None:
    with serving(hang_up) as server:
        assert post(server.url).trouble.startswith("no answer: ")
    assert post(server.url).trouble.startswith("no answer: ")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_takes_no_connection_is_given_up_in_time(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s: list[float] = []

    def connect(_server: tuple[str, int], timeout: float, **_options: Any) -> socket.socket:
        waited_s.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    assert post(f"{scheme}://127.0.0.1/", timeout_ms=2_000).trouble.startswith("no answer: ")
    assert 0 < waited_s[0] <= 2


def test_a_name_that_has_a_private_address_reaches_nothing() -> None:
    with serving(answering(200)) as server:
        for addresses in (["10.0.0.1"], ["8.8.8.8", "169.254.169.254"], ["::ffff:127.0.0.1"], ["127.0.0.1"]):
            calls = Webhooks(system(), resolve=resolving(*addresses))
            answer = calls.post(f"https://shop.example:{server.server_port}/", {}, b"", 5_000)
            assert answer.trouble == f"refused: shop.example has the address {addresses[-1]}, which is not public"
        assert server.seen == []


def test_a_url_without_a_port_has_that_of_its_scheme() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(*server: Any) -> list[str]:
        asked.append(server)
        return ["10.0.0.1"]

    for scheme in ("http", "https"):
        Webhooks(system(), allows_loopback=True, resolve=resolve).post(f"{scheme}://shop.example/", {}, b"", 5_000)
    assert asked == [("shop.example", 80), ("shop.example", 443)]


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    with serving(answering(200, b"here")) as server:
        calls = Webhooks(system(), allows_loopback=True, resolve=resolving("127.0.0.1"))
        answer = calls.post(f"http://nowhere.invalid:{server.server_port}/", {}, b"", 5_000)
        assert answer == ConsumerResponse(200, b"here")
        assert server.seen[0][1]["host"] == f"nowhere.invalid:{server.server_port}"


def test_a_server_without_the_names_certificate_gets_no_request() -> None:
    with serving(answering(200)) as server:
        calls = Webhooks(system(), allows_loopback=True, resolve=resolving("127.0.0.1"))
        answer = calls.post(f"https://shop.example:{server.server_port}/", {}, b"secret", 5_000)
        assert answer.trouble.startswith("no answer: ")
        assert server.seen == []


def test_plain_http_is_refused_where_loopback_is() -> None:
    assert post("http://shop.example/", allows_loopback=False).trouble == "refused: the URL is not https"


def certified(folder: Path, name: str) -> ssl.SSLContext:
    """A server's context with a certificate for the name, which stands in `folder` as the only authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "authority.pem").write_bytes(public)
    (folder / "server.pem").write_bytes(key.private_bytes(*form) + public)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


def test_a_certificate_must_be_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, asked = certified(tmp_path, "shop.example"), list[str | None]()
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with serving(answering(200, b"yes"), context) as server:
        calls = Webhooks(system(), allows_loopback=True, resolve=resolving("127.0.0.1"))
        assert calls.post(f"https://shop.example:{server.server_port}/", {}, b"a", 5_000) == ConsumerResponse(
            200, b"yes"
        )
        refused = calls.post(f"https://other.example:{server.server_port}/", {}, b"b", 5_000)
        assert "Hostname mismatch" in refused.trouble
        assert [body for _, _, body in server.seen] == [b"a"]
    assert asked == ["shop.example", "other.example"]


# -- the whole way ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are on the machine's clock: a run ends when nothing is ready."""
    monkeypatch.setattr(dispatcher, "LOOKING_MS", 0)


def pushed(server: Server, **settings: Any) -> Api:
    """An instance whose group is pushed to the server, one message a call."""
    calls = Webhooks(system(), allows_loopback=True)
    outside = Outside(calls.post, calls.post, lambda *_: None, allows_loopback=True)  # type: ignore[arg-type]
    api = Api(Service(MemoryStore(), system(), outside=outside))
    api.put_topic("orders", {"queues": 8})
    api.put_group("orders", "billing", {"push": {"url": f"{server.url}/hooks", "batch": 1, **settings}})
    return api


def test_what_is_pushed_is_signed_and_acked() -> None:
    with serving(answering(200)) as server:
        api = pushed(server)
        secret = api.make_push_secret("orders", "billing")["secret"]
        api.produce("orders", {"messages": [{"body": "ä"}]})
        api.service.pushing.run("orders")
        [(_, headers, body)] = server.seen
        assert Webhook(secret).verify(body, headers)["messages"][0]["body"] == "ä"
        assert json.loads(body)["group"] == "billing"
        assert api.get_group("orders", "billing")["lag"] == 0


def test_no_more_calls_are_under_way_than_the_concurrency() -> None:
    counts = {"now": 0, "most": 0}
    lock, all_here = threading.Lock(), threading.Barrier(3)

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with lock:
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
        if len(handler.server.seen) <= 3:  # type: ignore[attr-defined]
            all_here.wait(timeout=5)  # three calls are under way at once
        with lock:
            counts["now"] -= 1
        answering(200)(handler, body)

    with serving(respond) as server:
        api = pushed(server, concurrency=3)
        api.produce("orders", {"messages": [{"body": str(n), "queue": n % 8} for n in range(24)]})
        runs = [threading.Thread(target=api.service.pushing.run, args=["orders"]) for _ in range(3)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert len(server.seen) == 24
    assert counts == {"now": 0, "most": 3}


def test_a_consumer_that_hangs_does_not_hold_up_another() -> None:
    released = threading.Event()

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if json.loads(body)["group"] == "billing":
            released.wait(timeout=5)
        else:
            released.set()  # only this ends the call of the other group
        answering(200)(handler, body)

    with serving(respond) as server:
        api = pushed(server)
        api.put_group("orders", "shipping", {"push": {"url": server.url}})
        api.produce("orders", {"messages": [{"body": "a"}]})
        api.service.pushing.run("orders")
        assert len(server.seen) == 2
    assert [api.get_group("orders", group)["lag"] for group in ("billing", "shipping")] == [0, 0]
