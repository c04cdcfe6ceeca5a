"""Serves Decant, on 127.0.0.1 unless told otherwise: `python -m local`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from errno import EADDRINUSE
from typing import NoReturn

from local import StartupError, background, endpoint, server, startup
from local.asyncio_server import Server
from local.connection import HOST
from local.endpoint import Endpoint, answering, demand_admin
from local.memory import opening
from local.startup import open_store

HELP = """
environment:
  PORT                        port to listen on, 0 for any free one (default 8000)
  HOST                        address to listen on (default 127.0.0.1); any but loopback needs ACCESS=on or OPEN=1
  OPEN                        1 lets everybody in who reaches HOST
  ALLOW_HOST                  names, with commas between, by which clients may call a server that is open
  DATA                        folder that keeps what is stored; without it, all is gone when the server stops
  DYNAMODB_PORT               port of the store's read-only DynamoDB endpoint, 0 for any free one
                              (default: PORT + 1, or any free one if that is in use)
  AWS_ENDPOINT_URL_DYNAMODB   DynamoDB endpoint to use; without it, the store is in memory
  DECANT_TABLE                name of the table, which is created if it is missing (default decant)
  DECANT_STORE                'memory', or 'dynamodb', which uses AWS when no endpoint is set
  SEED                        file of topics and groups to make where they are missing, in TOML or JSON
  ACCESS                      'on' demands tokens, and prints a first one and its access key (default off)
  FIRST_TOKEN                 the first token, of the form dct_<id>_<secret>, in place of one that is printed
  DECANT_HOOKS                module to import, which registers hooks
  LOG                         1 logs a line to stderr for each request, json one to stdout that says more, where
                              defects and warnings are lines too; all else then goes to stderr
"""

PORT_MAX = 65_535

ENDINGS = (signal.SIGINT, signal.SIGTERM)

READY = """Decant listens on http://{host}:{port}
store: {store}
{seeded}DynamoDB endpoint{access}: {endpoint}
{token}Try, one after the other:
{steps}"""

BY_CURL = """  {curl} -X PUT {name}:{port}/topics/orders
  {curl} -X PUT {name}:{port}/topics/orders/groups/billing
  {curl} {name}:{port}/topics/orders/messages -d '{{"messages":[{{"body":"hello"}}]}}'
  {curl} {name}:{port}/topics/orders/groups/billing/pop -d '{{"wait_ms":1000}}'
"""
BY_COMMAND = """  export DECANT_URL=http://{name}:{port}{secret}
  decant topic set orders && decant group set orders billing
  decant send orders hello
  decant take orders billing
"""


def main(arguments: list[str]) -> int:
    """Serves until interrupted. Returns the exit code."""
    argparse.ArgumentParser(
        prog="python -m local",
        description="Serve Decant on 127.0.0.1, or HOST, until Ctrl-C.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    return run()


def run(steps: str = BY_CURL) -> int:
    """As the environment says, until interrupted. `steps`: what a person may try first. Returns the exit code."""
    for ending in ENDINGS:
        signal.signal(ending, signal.default_int_handler)
    try:
        serve(steps)
    except KeyboardInterrupt:
        return 0
    except StartupError as reason:
        print(f"decant: {reason}", file=sys.stderr)
        return 1
    return 0


def serve(steps: str) -> None:
    startup.choose()
    host = startup.host()
    listening = listen(port_of(os.environ.get("PORT") or "8000"), host)
    store = open_store()
    seeded = startup.seeded()
    port = listening.port
    offered = offer_store(port)
    access = ", read-only" if offered else ""
    where = offered.url if offered else os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") or "AWS"
    token = startup.first_token()
    curl = 'curl -s -H "authorization: Bearer $TOKEN"' if token else "curl -s"
    shown = f"[{host}]" if ":" in host else host
    name = "localhost" if host in (HOST, "localhost", "0.0.0.0", "::", "::1") else shown  # noqa: S104
    first = steps.format(name=name, port=port, curl=curl, secret=" DECANT_TOKEN=$TOKEN" if token else "")
    ready = {"host": shown, "port": port, "store": store, "seeded": seeded, "token": token, "steps": first}
    startup.say(READY.format(**ready, access=access, endpoint=where))
    background.start()
    listening.end_at(*ENDINGS)
    listening.serve_forever()


def port_of(text: str, name: str = "PORT") -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= PORT_MAX):
        raise StartupError(f"{name} must be a number from 0 to {PORT_MAX}; it is {text!r}")
    return int(text)


def offer_store(port: int) -> Endpoint | None:
    """Offers the memory store as a DynamoDB endpoint. Returns None for a real DynamoDB, which has an endpoint."""
    answers = answering()
    if answers is None:
        return None
    chosen = os.environ.get("DYNAMODB_PORT")
    wanted = port_of(chosen, "DYNAMODB_PORT") if chosen else (port + 1) % (PORT_MAX + 1)
    try:
        offered = Endpoint(wanted, answers, demand_admin)
    except OSError as error:
        if chosen:
            reason = "it is taken" if error.errno == EADDRINUSE else error.strerror
            raise StartupError(f"cannot listen on port {wanted}, which DYNAMODB_PORT names: {reason}") from error
        offered = Endpoint(0, answers, demand_admin)
    endpoint.start(offered)
    return offered


def listen(port: int, host: str) -> Server:
    is_logging = os.environ.get("LOG") == "1"
    try:
        return server.listen(port, is_logging, host, startup.own_names(host))
    except OSError as error:
        reason = "it is taken; PORT= names another" if error.errno == EADDRINUSE else error.strerror
        where = f"port {port}" if host == HOST else f"port {port} of {host!r}"
        raise StartupError(f"cannot listen on {where}: {reason}") from error


def leave(exit_code: int) -> NoReturn:
    """Not by `sys.exit`: long polls may still run, and would meet an interpreter that is shutting down."""
    opening.close()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
