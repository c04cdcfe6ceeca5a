"""Receives messages as a webhook: Decant calls it, and settles each message by the answer.

    python webhook.py             # listens on port 9000
    decant send shipments 4711    # in another shell

The consumer is an application of WSGI; `label.asgi` is one of ASGI. It answers 401 to calls without a valid signature.
A deployed Decant calls only https addresses.
"""

import os
import sys
from wsgiref.simple_server import make_server

from decant import Decant


def new_secret(mq: Decant) -> str:
    """Decant shows a secret only once; a group has ten at most."""
    secret = mq.api.make_push_secret("shipments", "labels")["secret"]
    print(f"export WEBHOOK_SECRET={secret}", flush=True)
    return secret


def main(mq: Decant, port: int) -> None:
    mq.api.put_topic("shipments")
    mq.api.put_group("shipments", "labels")

    @mq.consumer("shipments", group="labels", secrets=[os.environ.get("WEBHOOK_SECRET") or new_secret(mq)])
    def label(shipment: str) -> None:
        print(f"label for {shipment}", flush=True)

    with make_server("127.0.0.1", port, label.wsgi) as server:
        mq.api.put_group("shipments", "labels", push={"url": f"http://127.0.0.1:{server.server_port}/"})
        server.serve_forever()


if __name__ == "__main__":
    with Decant() as mq:
        main(mq, int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
