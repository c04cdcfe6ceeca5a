"""`decant completion`, and the names that a shell completes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from decant.errors import DecantError

TIMEOUT_S, KEPT_S = 0.3, 60
NAMES_MAX = 1_000


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options, topics and groups.

    For bash and zsh, put `eval "$(decant completion bash)"` into ~/.bashrc or the same for zsh into ~/.zshrc.

    \b
    decant completion bash > decant.bash
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has the three
    click.echo(found(context.find_root().command, {}, "decant", "_DECANT_COMPLETE").source())


def names(context: click.Context, topic: str | None) -> list[str]:
    """The names of topics, or of a topic's groups, if the service tells them at once. Kept for a minute."""
    from decant.cli.service import client

    url, chosen = context.params.get("url"), context.params.get("context")
    try:
        with client(url, chosen, timeout=TIMEOUT_S, asks=False) as mq:
            kept = _place(f"{mq.transport.address} {mq.settings.target.token} {topic}")
            if (found := _kept(kept)) is not None:
                return found
            if topic is None:
                found = [entry["topic"] for entry in mq.api.list_topics(limit=NAMES_MAX)["topics"]]
            else:
                found = [entry["group"] for entry in mq.api.list_groups(topic, limit=NAMES_MAX)["groups"]]
    except (DecantError, OSError):
        return []
    _keep(kept, found)
    return found


def _place(asked: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "decant" / f"names-{hashlib.sha256(asked.encode()).hexdigest()[:24]}.json"


def _kept(path: Path) -> list[str] | None:
    try:
        if time.time() - path.stat().st_mtime > KEPT_S:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def _keep(path: Path, found: list[str]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps(found), encoding="utf-8")
        new.replace(path)
    except OSError:
        pass
