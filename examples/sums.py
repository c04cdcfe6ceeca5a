"""Asks a running Decant for sums, and answers: three callers and a worker, in threads of one process.

    python3 examples/sums.py [PORT]

The worker could as well be another process, or a Lambda function that the group pushes to: see client/worker.py. The
topic is `sums`.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parent.parent))  # where `client` is

from client.worker import Message, Service

HOST = "127.0.0.1"


def main(port: int) -> None:
    url = f"http://{HOST}:{port}"
    for path in ("/topics/sums", "/topics/sums/groups/adders"):
        try:
            urlopen(Request(url + path, b"{}", method="PUT")).close()
        except HTTPError:
            raise
        except URLError:
            sys.exit(f"nothing answers at {url}: start it with make run")
    service = Service(url)
    is_over = threading.Event()

    @service.worker
    def add(message: Message) -> str:
        return str(sum(map(int, message.text.split("+"))))

    worker = threading.Thread(target=add.run, args=("sums", "adders", is_over.is_set), kwargs={"wait_ms": 500})
    worker.start()
    callers = [threading.Thread(target=ask, args=(service, sum_)) for sum_ in ("1 + 1", "2 + 3 + 4", "one + one")]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    is_over.set()
    worker.join()


def ask(service: Service, question: str) -> None:
    """Waits for the reply in the same call. Nobody can answer every question: after two seconds it gives up."""
    status, answer = service.post("/topics/sums/requests", {"body": question, "timeout_ms": 2_000})
    print(f"{question} = {answer['reply']['body'] if status == 200 else json.dumps(answer['code'])}")


if __name__ == "__main__":
    if not (port := sys.argv[1] if len(sys.argv) > 1 else "8000").isdecimal():
        sys.exit(__doc__)
    main(int(port))
