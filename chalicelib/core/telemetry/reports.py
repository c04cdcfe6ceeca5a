"""Defects and warnings, and all else that `logging` is told, as lines of JSON among those of the calls."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

from chalicelib.core.telemetry.record import current

_OF_CALL = ("trace_id", "defect", "sweep")
"""What the record of a call knows about it, as its own line tells it."""


class _Line(logging.Formatter):
    """`trace_id`: that of the running invocation, where the call has none; empty if there is none."""

    def __init__(self, trace_id: Callable[[], str]) -> None:
        super().__init__()
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "aws_request_id", ""),
            "trace_id": self._trace_id(),
            **_of_call(),
        }
        if record.exc_info and record.exc_info[0]:
            fields |= {"error": record.exc_info[0].__name__, "stack": self.formatException(record.exc_info)}
        said = {name: value for name, value in fields.items() if value}
        return json.dumps({"at_ms": int(record.created * 1_000), **said})  # unlike orjson, it spells half a character


def _of_call() -> dict[str, object]:
    call = current()
    if call is None:
        return {}
    about = {name: call.about[name] for name in _OF_CALL if call.about.get(name)}
    return {"operation": call.operation, "topic": call.topic, "group": call.group, **about}


def report_to_stdout(trace_id: Callable[[], str]) -> None:
    """Has `logging` write a line of JSON for each record, in place of what its handlers write, and for each warning of
    Python. Filters stay: that of Lambda's own handler tells the id of the request."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Line(trace_id))
    for former in logging.getLogger().handlers:
        for each in former.filters:
            handler.addFilter(each)
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
