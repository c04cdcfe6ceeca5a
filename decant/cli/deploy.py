"""`decant deploy`, `undeploy`, `package` and `first-token`: the commands of `infra`, for an installed tool."""

from __future__ import annotations

import sys

import click

from decant.cli.extras import needing

PASSED = {"ignore_unknown_options": True, "help_option_names": []}
"""The arguments are checked, and `--help` is answered, where the commands are."""


def _infra(command: str, arguments: tuple[str, ...]) -> None:
    with needing("deploy"):
        from infra.__main__ import main
    sys.exit(main([command, *arguments], "decant"))


@click.command(context_settings=PASSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def deploy(arguments: tuple[str, ...]) -> None:
    """Show what would change in AWS, ask, and carry it out: decant deploy --stage dev"""
    _infra("deploy", arguments)


@click.command(context_settings=PASSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def undeploy(arguments: tuple[str, ...]) -> None:
    """Remove a stage from AWS; its table and buckets are kept: decant undeploy --stage dev"""
    _infra("undeploy", arguments)


@click.command(context_settings=PASSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def package(arguments: tuple[str, ...]) -> None:
    """Make the zip and the template of a stage: decant package --stage dev"""
    _infra("package", arguments)


@click.command("first-token", context_settings=PASSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def first_token(arguments: tuple[str, ...]) -> None:
    """Write a token into a stage's table, and print it: decant first-token --stage dev --name me --rights JSON"""
    _infra("token", arguments)
