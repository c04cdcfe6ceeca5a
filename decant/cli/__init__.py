"""The command line: `decant`. Each command is imported when it runs."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "serve": ("decant.cli.serve", "Serve Decant on this machine."),
    "deploy": ("decant.cli.deploy", "Deploy Decant to AWS, or update it."),
    "undeploy": ("decant.cli.deploy", "Remove a deployed stage; its table is kept."),
    "package": ("decant.cli.deploy", "Make the zip and the template of a stage."),
}
"""By name: the module that has it, as a function of that name, and what it does."""


class Commands(click.Group):
    """Imports a command when it runs, and lists all without that."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(COMMANDS[name][0]), name)
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="decant-mq", prog_name="decant")
def main() -> None:
    """Decant: a message queue without a broker."""
