"""`decant serve`: the whole service in one process."""

from __future__ import annotations

import os
from pathlib import Path

import click

from decant.cli.extras import needing

OPTIONS = {"host": "HOST", "port": "PORT", "data": "DATA", "access": "ACCESS", "log": "LOG", "seed": "SEED"}
"""The variable of the server that each option sets."""


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, 0 for any free one.  [default: 8000]")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1] Others need --access on, or --open.")
@click.option("--open", "is_open", is_flag=True, help="Let everybody in who reaches --host.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name by which clients may call an open server.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder that keeps the messages.  [default: memory alone]"
)
@click.option("--access", type=click.Choice(["on", "off"]), help="Demand tokens; the first is printed.  [default: off]")
@click.option(
    "--seed", type=click.Path(path_type=Path), help="TOML or JSON file of topics and groups to make at start."
)
@click.option("--log", type=click.Choice(["0", "1", "json"]), help="A line for each request.  [default: 0]")
def serve(is_open: bool, allow_host: tuple[str, ...], **options: object) -> None:
    """Serve Decant on this machine, until Ctrl-C.

    Options win over the variables PORT, HOST, OPEN, ALLOW_HOST, DATA, ACCESS, SEED and LOG. FIRST_TOKEN sets the first
    token, AWS_ENDPOINT_URL_DYNAMODB a table of DynamoDB in place of --data.

    \b
    decant serve
    decant serve --data ./messages --seed topics.toml
    decant serve --host 0.0.0.0 --access on
    """
    chosen = {OPTIONS[name]: str(value) for name, value in options.items() if value is not None}
    if is_open:
        chosen["OPEN"] = "1"
    if allow_host:
        chosen["ALLOW_HOST"] = ",".join(allow_host)
    os.environ.update(chosen)
    with needing("serve"):
        from local.__main__ import BY_COMMAND, leave, run
    leave(run(BY_COMMAND))
