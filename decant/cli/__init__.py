"""The command line: `decant`. Each command is imported when it runs."""

from __future__ import annotations

import importlib
from typing import Any

import click

COMMANDS = {
    "serve": ("decant.cli.serve", "Serve Decant on this machine."),
    "send": ("decant.cli.send", "Send messages: arguments, lines of a pipe, or a file."),
    "take": ("decant.cli.take", "Take messages as a consumer; print each, or run a command for it."),
    "peek": ("decant.cli.peek", "Read messages without leasing them."),
    "listen": ("decant.cli.listen", "Bring the messages of a topic to a webhook on this machine."),
    "request": ("decant.cli.requests", "Send a request, and print its reply."),
    "reply": ("decant.cli.requests", "Reply to requests by a command."),
    "topic": ("decant.cli.topics", "List, show, set and remove topics."),
    "group": ("decant.cli.groups", "List, show, set, move, pause and remove groups."),
    "dead": ("decant.cli.dead", "List, show, redrive and purge dead letters."),
    "delayed": ("decant.cli.delayed", "List and cancel messages that wait for their time."),
    "transaction": ("decant.cli.transactions", "List, commit and roll back transactions."),
    "token": ("decant.cli.tokens", "List, make, rotate and remove tokens."),
    "trace": ("decant.cli.trace", "Show what became of a message in each group."),
    "top": ("decant.cli.top", "Watch the backlog of all groups."),
    "export": ("decant.cli.transfers", "Write the messages of a topic as JSON Lines."),
    "copy": ("decant.cli.transfers", "Copy the messages of a topic into another."),
    "bench": ("decant.cli.bench", "Measure how fast a service sends, pops and acks."),
    "api": ("decant.cli.api", "Call any operation of the contract."),
    "context": ("decant.cli.context", "Keep addresses and tokens by name."),
    "completion": ("decant.cli.completion", "Print the completion of a shell."),
    "deploy": ("decant.cli.deploy", "Deploy Decant to AWS, or update it."),
    "undeploy": ("decant.cli.deploy", "Remove a deployed stage; its table is kept."),
    "package": ("decant.cli.deploy", "Make the zip and the template of a stage."),
    "first-token": ("decant.cli.deploy", "Make the first token of a deployed stage."),
    "spark": ("decant.cli.spark", "Run a job of the data pipeline."),
}
"""By name: the module that has it, as a function of that name, with `_` for `-`, and what it does."""


class Commands(click.Group):
    """Imports a command when it runs, and lists all without that. Turns errors into a line and an exit code."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(COMMANDS[name][0]), name.replace("-", "_"))
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except (OSError, KeyboardInterrupt) as error:  # what `invoke` does not see: `--help` into a full disk
            from decant.cli.failures import told

            raise SystemExit(told(error)) from error

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (Exception, KeyboardInterrupt) as error:
            from decant.cli.failures import is_known, told

            if not is_known(error):
                raise
            raise SystemExit(told(error)) from error


def _version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        import decant

        click.echo(f"decant, version {decant.__version__}")
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def main() -> None:
    """Decant: a message queue without a broker."""
