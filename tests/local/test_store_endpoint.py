"""`make run` offers the store in its memory as a DynamoDB endpoint that can be read, and says where."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import urlsplit

from local.endpoint import OPERATIONS
from tests.local.serving import endpoint_in, refusal, running
from tests.support.emulators import client_of


def status_of(endpoint: str, **headers: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=10)
    connection.request("POST", "/", b"{}", headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_endpoint_reads_what_was_produced_and_writes_nothing() -> None:
    with running(DYNAMODB_PORT="0") as server:
        assert "store: memory" in server.banner
        endpoint = endpoint_in(server.banner)
        assert endpoint.startswith("http://127.0.0.1:")
        server.ask("PUT", "/topics/orders")
        client = client_of(endpoint)
        names = [item["sk"]["S"] for item in client.scan(TableName="decant")["Items"] if item["pk"]["S"] == "topics"]
        assert names == ["orders"]
        try:
            client.delete_table(TableName="decant")
        except client.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "AccessDeniedException"
            assert all(name in str(error) for name in OPERATIONS)
        else:
            raise AssertionError("it was written")
        assert status_of(endpoint) == 400
        assert status_of(endpoint, **{"content-length": str(1 << 30)}) == 413
        assert server.ask("GET", "/topics/orders")[0] == 200


def test_a_port_that_was_asked_for_and_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}, which DYNAMODB_PORT names: it is taken" in refusal(PORT="0", DYNAMODB_PORT=port)
    assert "DYNAMODB_PORT must be a number from 0 to 65535; it is 'x'" in refusal(PORT="0", DYNAMODB_PORT="x")


def test_the_endpoint_of_another_store_is_printed_as_it_is(dynoxide: str) -> None:
    with running(AWS_ENDPOINT_URL_DYNAMODB=dynoxide) as server:
        assert f"DynamoDB endpoint: {dynoxide}\n" in server.banner
