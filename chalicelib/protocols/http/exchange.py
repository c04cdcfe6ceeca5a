"""Between Chalice's requests and responses and the operations' JSON."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import orjson
from chalice.app import Request, Response

from chalicelib.base.errors import DecantError, Internal, InvalidField, UnknownField
from chalicelib.base.fields import quoted
from chalicelib.base.runtime import system
from chalicelib.protocols.http import problems

_ID_CHARS = 16

_log = logging.getLogger("decant")


def answering(view: Callable[..., Response]) -> Callable[..., Response]:
    """Path parameters reach the view decoded, and what it raises becomes a problem. A defect becomes an id to look up
    in the log, and shows nothing of the inside."""

    @functools.wraps(view)
    def answer(**path: str) -> Response:
        try:
            return view(**{name: unquote(value) for name, value in path.items()})
        except DecantError as error:
            return problems.response(error)
        except Exception:  # noqa: BLE001 - the boundary: nothing of the inside leaves it
            defect_id = system().name(_ID_CHARS)
            _log.exception("defect %s", defect_id)
            return problems.response(Internal(f"look for {defect_id} in the log"))

    return answer


def query_of(request: Request) -> dict[str, str]:
    """The query parameters, each given once."""
    given = request.query_params
    if given is None:
        return {}
    for name in given:
        if len(given.getlist(name)) > 1:
            raise InvalidField(f"parameter {quoted(name)} must be given once, not {len(given.getlist(name))} times")
    return {name: given[name] for name in given}


def demand_known(query: Mapping[str, str], known: Sequence[str]) -> None:
    for name in query:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UnknownField(f"parameter {quoted(name)} is not known here; known are: {listed}")


def ok(body: Any, status: int = 200) -> Response:
    return Response(
        orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE).decode(), {"Content-Type": "application/json"}, status
    )


def nothing() -> Response:
    """204; Chalice would send `null` for None."""
    return Response("", status_code=204)
