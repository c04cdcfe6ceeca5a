"""Sends sample traffic to a running Decant: messages that are acked, retried, delayed and dead.

    python3 examples/orders.py [PORT]

The tables and the report of the data pipeline then have something to show; see docs/pipeline.md. The topic is `shop`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

HOST = "127.0.0.1"


def main(port: int) -> None:
    url = f"http://{HOST}:{port}"

    def call(method: str, path: str, **body: Any) -> Any:
        request = Request(f"{url}/topics/shop{path}", json.dumps(body).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request) as response:
                return json.loads(response.read() or b"null")
        except HTTPError:
            raise
        except URLError:
            sys.exit(f"nothing answers at {url}: start it with make run")

    call("PUT", "", queues=2)
    call("PUT", "/groups/billing")
    orders = [{"body": f"order {number}", "key": f"customer-{number % 10}", "tag": "new"} for number in range(20)]
    call("POST", "/messages", messages=orders)
    call("POST", "/messages", messages=[{"body": "remind", "delay_ms": 500}, {"body": "expire", "delay_ms": 3_600_000}])
    receipts = [message["receipt"] for message in call("POST", "/groups/billing/pop", max_messages=6)["messages"]]
    call("POST", "/groups/billing/ack", receipts=receipts[:-2])
    call("POST", "/groups/billing/nack", receipts=receipts[-2:-1], delay_ms=600_000)
    call("POST", "/groups/billing/bury", receipts=receipts[-1:], reason="no such <customer>")
    time.sleep(2)  # the sweep delivers the reminder meanwhile
    print("20 orders and 2 delayed messages: 4 acked, 1 waiting for its retry, 1 dead, 1 delayed one delivered")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
