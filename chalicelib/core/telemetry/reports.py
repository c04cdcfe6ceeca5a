"""Writes errors, warnings and all other records of `logging` as lines of JSON among those of the calls."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

from chalicelib.core.telemetry.record import current

_OF_CALL = ("trace_id", "defect", "sweep")
"""The fields of a call's record that its own line has."""


class _Line(logging.Formatter):
    """`trace_id`: of the running invocation, if the call has none; empty if there is none."""

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
    """Makes `logging` write a line of JSON for each record, in place of its handlers' output, and for each Python
    warning. Filters stay: that of Lambda's own handler adds the id of the request."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Line(trace_id))
    for former in logging.getLogger().handlers:
        for each in former.filters:
            handler.addFilter(each)
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
