"""`python -m infra` packages and deploys. Exit codes: 0 done, 1 failed, 64 wrong arguments, 130 interrupted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from infra import deployed, deploying, packaging
from infra.aws import Aws, explained
from infra.console import Stop
from infra.stage import read_stage

MISUSED = 64

REGION = "us-east-1"
"""The region of packages made without one. Chalice asks for a region, and writes the same for all but China's."""


class InfraParser(argparse.ArgumentParser):
    """Exits with 64 and prints one line if the arguments are wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"decant: {message}; --help says more\n")


def main(arguments: Sequence[str] | None = None, program: str = "python -m infra") -> int:
    given = _parser(program).parse_args(arguments)
    try:
        with explained():
            given.run(given)
    except Stop as reason:
        return _failed(str(reason), 1)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    return 0


def _failed(reason: str, code: int) -> int:
    print(f"decant: {reason}", file=sys.stderr)
    return code


def _package(given: argparse.Namespace) -> None:
    region = given.region or os.environ.get("AWS_DEFAULT_REGION") or REGION
    made = packaging.package(read_stage(given.stage), given.infra, region, given.out)
    print(f"{made.code}: {made.code.stat().st_size / 1e6:.2f} MB, sha256 {made.hash}")
    print(made.code.with_name(packaging.TEMPLATE))


def _deploy(given: argparse.Namespace) -> None:
    stage = read_stage(given.stage)
    deploying.deploy(Aws(given.region), stage, given.infra, given.out, given.yes)


def _undeploy(given: argparse.Namespace) -> None:
    stage = read_stage(given.stage)
    deploying.undeploy(Aws(given.region), stage, given.yes)


def _token(given: argparse.Namespace) -> None:
    stage = read_stage(given.stage)
    deployed.make_token(Aws(given.region), stage, given.name, given.rights)


def _parser(program: str) -> InfraParser:
    made = InfraParser(prog=program, description="Packages Decant, and deploys it to AWS.", epilog=ENVIRONMENT)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    package = _command(commands, "package", "make the zip and the template of a stage, in packages/<stage>")
    deploy = _command(commands, "deploy", "package a stage, show what would change in AWS, and carry it out")
    undeploy = _command(commands, "undeploy", "remove a stage; its table and buckets are kept")
    token = _command(commands, "token", "make a token for a deployed stage, and print it as JSON, this once")
    token.add_argument("--name", required=True, help="to know it by in lists")
    token.add_argument("--rights", required=True, metavar="JSON", help=f"such as {deployed.RIGHTS_EXAMPLE}")
    for command in (package, deploy):
        command.add_argument("--infra", type=Path, action="append", default=[], metavar="FILE", help=OWN)
        command.add_argument("--out", type=Path, default=packaging.PACKAGES, metavar="DIR", help="(default: packages)")
    for command in (deploy, undeploy):
        command.add_argument("--yes", action="store_true", help="do not ask")
    for command, run in ((package, _package), (deploy, _deploy), (undeploy, _undeploy), (token, _token)):
        command.set_defaults(run=run)
    return made


ENVIRONMENT = "AWS's own variables are used: AWS_PROFILE, AWS_DEFAULT_REGION; AWS_ENDPOINT_URL names an emulator."
OWN = "a template of your own, in YAML, laid over that of the stage; may be repeated"


def _command(commands: argparse._SubParsersAction[InfraParser], name: str, about: str) -> InfraParser:
    made = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    made.add_argument(
        "--stage",
        required=True,
        metavar="NAME",
        help="such as dev, of infra/stages, or ./blue.yaml",
    )
    made.add_argument("--region", metavar="NAME", help="of AWS (default: what the environment or the profile says)")
    return made


if __name__ == "__main__":
    sys.exit(main())
