"""Makes the topics and groups of a seed file, where they are missing, before the server takes requests.

    [orders]                      # a topic and its settings, as `PUT /topics/orders` takes them
    queues = 8

    [orders.groups.billing]       # a group and its settings
    max_attempts = 5

In TOML, or the same as JSON in a file that ends with `.json`. Existing topics and groups stay as they are.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from chalicelib.api import Api
from chalicelib.core.base.errors import DecantError, GroupNotFound, TopicNotFound
from local import StartupError

Settings = dict[str, Any]
Call = Callable[[], object]


def apply(path: Path, api: Api) -> str:
    """Returns what it made, for people. Raises StartupError, which names the file and the entry."""
    made = []
    for name, get, put in _wanted(path, api):
        try:
            with suppress(TopicNotFound, GroupNotFound):
                get()
                continue
            put()
        except DecantError as error:
            raise StartupError(f"SEED: [{name}] of {str(path)!r}: {error.detail}") from error
        made.append(name)
    return f"seed: made {', '.join(made)}\n" if made else "seed: nothing is missing\n"


def _wanted(path: Path, api: Api) -> Iterator[tuple[str, Call, Call]]:
    """Each topic, then its groups: the name, and how to get and to put it."""
    for topic, entry in _entries(path, _read(path)):
        above = f"{topic}.groups."
        groups = _entries(path, entry.get("groups", {}), above)
        settings = {name: value for name, value in entry.items() if name != "groups"}
        yield topic, partial(api.get_topic, topic), partial(api.put_topic, topic, settings)
        for name, wanted in groups:
            group = name.removeprefix(above)
            yield name, partial(api.get_group, topic, group), partial(api.put_group, topic, group, wanted)


def _read(path: Path) -> object:
    try:
        text = path.read_text("utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise StartupError(f"SEED: {str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StartupError(f"SEED: {str(path)!r} is neither TOML nor, by its name, JSON: {error}") from error


def _entries(path: Path, found: object, above: str = "") -> list[tuple[str, Settings]]:
    """The tables by name, each name with its parents."""
    if not isinstance(found, dict):
        raise StartupError(f"SEED: [{above.rstrip('.')}] of {str(path)!r} must be a table of names; it is {found!r}")
    for name, entry in found.items():
        if not isinstance(entry, dict):
            raise StartupError(f"SEED: [{above}{name}] of {str(path)!r} must be a table of settings; it is {entry!r}")
    return [(above + name, entry) for name, entry in found.items()]
