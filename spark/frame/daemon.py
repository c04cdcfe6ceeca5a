"""The process that Spark forks Python workers from on one machine: PySpark's own, with workers that suit short tasks.

Over TCP the JVM sends the beginning of a task in small pieces, and each waits for the last to be acknowledged, which
systems do after 40 ms. After a task PySpark collects garbage and looks at all that was ever imported. Both take longer
than a task on a small file."""

from __future__ import annotations

import gc
import socket
from functools import cache

from pyspark import daemon

_run_task = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs a task. Returns its exit code."""
    if hasattr(socket, "TCP_QUICKACK") and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    code: int = _run_task(sock, authenticated)
    _spare_imports()
    return code


@cache
def _spare_imports() -> None:
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
