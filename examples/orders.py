"""Gives a running Decant something of everything: messages that are acked, retried, delayed, and given up.

    python3 examples/orders.py [PORT]

Then the tables and the report of the data pipeline have something to show; see docs/pipeline.md.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from urllib.request import Request, urlopen

HOST = "127.0.0.1"


def main(port: int) -> None:
    def ask(method: str, path: str, **body: Any) -> Any:
        asked = Request(f"http://{HOST}:{port}/topics/orders{path}", json.dumps(body).encode(), method=method)
        asked.add_header("Content-Type", "application/json")
        with urlopen(asked) as answer:
            return json.loads(answer.read() or b"null")

    ask("PUT", "", queues=2)
    ask("PUT", "/groups/billing")
    orders = [{"body": f"order {number}", "key": f"customer-{number % 5}", "tag": "new"} for number in range(20)]
    ask("POST", "/messages", messages=orders)
    ask("POST", "/messages", messages=[{"body": "remind", "delay_ms": 500}, {"body": "expire", "delay_ms": 3_600_000}])
    receipts = [each["receipt"] for each in ask("POST", "/groups/billing/pop", max_messages=6)["messages"]]
    ask("POST", "/groups/billing/ack", receipts=receipts[:-2])
    ask("POST", "/groups/billing/nack", receipts=receipts[-2:-1], delay_ms=600_000)
    ask("POST", "/groups/billing/bury", receipts=receipts[-1:], reason="no such <customer>")
    time.sleep(2)  # until the sweep has delivered the reminder
    print("20 orders and 2 delayed messages: some acked, one to be retried, one dead, one delivered late")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
