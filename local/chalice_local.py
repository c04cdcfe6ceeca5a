"""Makes `chalice local`, which only serves requests, begin as `make run` does, and work in the background."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlencode

from chalicelib import wiring
from chalicelib.doors.http.application import Application
from chalicelib.doors.http.exchange import Request
from local import StartupError, background, startup
from local.browsers import refuse_pages
from local.startup import open_store


def begin(app: Application) -> None:
    """Ends the process with one line of text if it cannot start: Chalice imports the app in a thread, and would wait on
    without it."""
    try:
        startup.choose()
        store = open_store()
        startup.say(f"store: {store}\n{startup.first_token()}")
    except StartupError as reason:
        sys.stderr.write(f"decant: {reason}\n")
        os._exit(1)
    app.admit = _admit
    background.start()


def _admit(request: Request) -> None:
    """Raises Forbidden for a web page that calls a server without access control."""
    if wiring.api().is_open:
        refuse_pages(request.method, request.path, urlencode(request.query), request.headers)
