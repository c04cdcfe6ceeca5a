"""A client is shared by threads and tasks, survives interrupts, cancellations and forks, and speaks TLS."""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from decant import AsyncDecant, Decant, NotDecant
from decant.address import parsed
from decant.aio_transport import AsyncHttpTransport
from decant.transport import HttpTransport
from tests.client.support.servers import Received, Server, answer, serving


def echo(connection: Any, request: Received) -> None:
    answer(200, {"topic": request.target.rpartition("/")[2]})(connection, request)


def test_threads_share_a_client() -> None:
    wrong: list[Any] = []
    with serving(echo) as server, Decant(server.url) as mq:

        def work(thread: int) -> None:
            for number in range(50):
                name = f"{thread}-{number}"
                if mq.api.get_topic(name)["topic"] != name:
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(server.requests) == 16 * 50
    assert len(server.connections) <= 16


def test_tasks_share_a_client() -> None:
    async def main(url: str) -> list[str]:
        async with AsyncDecant(url) as mq:
            return [topic["topic"] for topic in await asyncio.gather(*(mq.api.get_topic(f"{n}") for n in range(50)))]

    with serving(echo) as server:
        assert asyncio.run(main(server.url)) == [f"{number}" for number in range(50)]


def again_and_again(mq: Decant) -> None:
    while True:
        mq.api.get_topic("first")


def test_an_interrupted_call_leaves_no_answer_to_the_next() -> None:
    def interrupts(connection: Any, request: Received) -> None:
        if len(server.requests) == 1:
            signal_main()
        echo(connection, request)

    def signal_main() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with serving(interrupts) as server, Decant(server.url) as mq:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it may come before anybody has the connection to close
            with pytest.raises(KeyboardInterrupt):
                again_and_again(mq)
            gc.collect()
        assert mq.api.get_topic("second")["topic"] == "second"


def test_a_cancelled_call_leaves_no_answer_to_the_next() -> None:
    async def main(server: Server) -> str:
        async with AsyncDecant(server.url) as mq:
            task = asyncio.create_task(mq.api.get_topic("first"))
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return str((await mq.api.get_topic("second"))["topic"])

    def slow(connection: Any, request: Received) -> None:
        server.over.wait(0.3)
        echo(connection, request)

    with serving(slow, echo) as server:
        assert asyncio.run(main(server)) == "second"


def test_a_client_is_used_in_one_loop_after_another() -> None:
    async def main(mq: AsyncDecant) -> list[str]:
        async with mq:
            return [(await mq.api.get_topic(name))["topic"] for name in "abc"]

    with serving(echo) as server:
        mq = AsyncDecant(server.url)
        assert [asyncio.run(main(mq)) for _ in range(3)] == [["a", "b", "c"]] * 3


def test_a_fork_has_connections_of_its_own() -> None:
    with serving(echo) as server, Decant(server.url) as mq:
        mq.api.get_topic("parent")
        transport: Any = mq.transport
        transport._process = -1  # as it looks after a fork
        kept = [connection for connection, _ in transport._idle]
        mq.api.get_topic("child")
        for connection in kept:
            connection.close()
    assert [request.connection for request in server.requests] == [0, 1]


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody else has signed, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
def guarded(certificate: Path) -> Iterator[str]:
    """The address of a server that speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(echo) as server:
        plain = server.serve

        def serve(connection: socket.socket, number: int) -> None:
            try:
                encrypted = context.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                return
            plain(encrypted, number)

        server.serve = serve  # type: ignore[method-assign]
        yield f"https://localhost:{server.port}"


def test_a_certificate_that_nobody_trusts_is_refused(guarded: str) -> None:
    with Decant(guarded) as mq, pytest.raises(NotDecant, match="certificate is refused: self"):
        mq.api.get_topic("orders")

    async def main() -> Any:
        async with AsyncDecant(guarded) as mq:
            return await mq.api.get_topic("orders")

    with pytest.raises(NotDecant, match="certificate is refused: self"):
        asyncio.run(main())


def test_a_certificate_for_another_host_is_refused(guarded: str, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    transport = HttpTransport(parsed(guarded.replace("localhost", "127.0.0.1")), context)
    with Decant(transport=transport) as mq, pytest.raises(NotDecant, match=r"IP address mismatch.*127\.0\.0\.1"):
        mq.api.get_topic("orders")


def test_tls_that_is_trusted_carries_calls(guarded: str, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    with Decant(transport=HttpTransport(parsed(guarded), context)) as mq:
        assert [mq.api.get_topic(name)["topic"] for name in "abc"] == ["a", "b", "c"]

    async def main() -> list[str]:
        async with AsyncDecant(transport=AsyncHttpTransport(parsed(guarded), context)) as mq:
            return [(await mq.api.get_topic(name))["topic"] for name in "abc"]

    assert asyncio.run(main()) == ["a", "b", "c"]
