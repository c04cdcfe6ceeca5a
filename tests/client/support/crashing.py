"""Handlers that run in processes of their own, and how these end. Such a process imports this module."""

from __future__ import annotations

import os
import signal
import sys
import time

from decant import Decant, Message, Retry

mq = Decant("http://127.0.0.1:1")


@mq.consumer("orders", group="billing", executor="process", concurrency=2, lease=30)
def bill(order: str, message: Message[str]) -> str | None:
    if order == "exit":
        os._exit(3)
    if order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "sys.exit":
        sys.exit(1)
    if order == "raise":
        raise ValueError("no such customer")
    if order == "retry":
        raise Retry(7, "busy")
    if order == "hang":
        time.sleep(1_000)
    return f"{order} by {os.getpid()}"
