"""The program that the test of a cluster submits. Its arguments are the export and the tables.

The job `messages` dies when it would commit, and runs again; then another job reads what it has written."""

from __future__ import annotations

import sys
from contextlib import suppress

from spark.files import Place
from spark.frame.job import main
from spark.jobs import messages, traffic
from spark.landing import export_pass


class Killed(BaseException):
    """No job catches it."""


def _die(self: Place, content: bytes) -> bool:
    raise Killed


export, tables = sys.argv[1:]
arguments = ["--export", export, "--tables", tables, "--traceback"]
export_pass._TASK_BYTES = 1  # a task for each file, and more than one bucket, however small they are
export_pass._BUCKET_BYTES = 1_000
create, Place.create = Place.create, _die  # type: ignore[method-assign]
with suppress(Killed):
    main(messages.JOB, arguments)
Place.create = create  # type: ignore[method-assign]
for job in (messages, traffic):
    if code := main(job.JOB, arguments):
        sys.exit(code)
