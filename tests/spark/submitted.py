"""What the test of a cluster submits: `messages`, `audit` and `traffic` on an export. Its arguments are the export, the
tables, and whether it `dies` when it would commit."""

from __future__ import annotations

import os
import signal
import sys

from spark.files import Place
from spark.frame.job import main
from spark.jobs import audit, messages, traffic
from spark.landing import export_pass


def _die(place: Place, content: bytes) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


export, tables, dies = sys.argv[1:]
export_pass._TASK_BYTES = 1  # a task for each file, and a shuffle for the payloads, however small they are
export_pass._HERE_BYTES_MAX = 0
if dies == "dies":
    Place.create = _die  # type: ignore[method-assign]
for job in (messages, audit, traffic):
    if code := main(job.JOB, ["--export", export, "--tables", tables, "--traceback"]):
        sys.exit(code)
