"""Where the service is, and with which token: arguments, else the environment, else a context of the file.

~/.config/decant/contexts.json
{"current": "prod", "contexts": {"prod": {"url": "https://queue.example", "token": "dct_..."}}}
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

from decant.errors import SettingError

URL = "http://127.0.0.1:8000"


class Context(TypedDict):
    """An address, and the token to show there."""

    url: str
    token: NotRequired[str]


class Contexts(NamedTuple):
    """The content of the file. `current`: the context that counts unless `DECANT_CONTEXT` names another."""

    current: str | None
    by_name: dict[str, Context]


class Target(NamedTuple):
    """Where the service is. `source`: what says so, for error texts."""

    url: str
    token: str | None
    source: str

    def __repr__(self) -> str:  # without the token
        return f"Target({self.url!r}, source={self.source!r})"


def target(url: str | None, token: str | None, environment: Mapping[str, str]) -> Target:
    """The arguments win over `DECANT_URL` and `DECANT_TOKEN`, these over the context. The token of a context goes to
    no other address. An empty token is none. Raises SettingError."""
    has_argument = token is not None
    token = _token(token, "the token") if has_argument else _token(environment.get("DECANT_TOKEN"), "DECANT_TOKEN")
    if url is not None:
        return Target(url, token, "the url")
    if named := environment.get("DECANT_URL"):
        return Target(named, token, "DECANT_URL")
    path = path_in(environment)
    held = read(path)
    name = environment.get("DECANT_CONTEXT") or held.current
    if name is None:
        return Target(URL, token, "the url")
    if name not in held.by_name:
        known = ", ".join(sorted(held.by_name)) or "none"
        raise SettingError(f"there is no context {name!r} in {path}; there are: {known}")
    context = held.by_name[name]
    source = f"the context {name!r}"
    if token is None and not has_argument:
        token = _token(context.get("token"), f"the token of {source}")
    return Target(context["url"], token, source)


def _token(token: str | None, source: str) -> str | None:
    if token and not re.fullmatch(r"[!-~]+", token):
        raise SettingError(f"{source} has a space or another character that no token has")
    return token or None


def path_in(environment: Mapping[str, str]) -> Path:
    """Where the file is."""
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(home) / "decant" / "contexts.json"


def read(path: Path) -> Contexts:
    """The contexts of the file, none if there is no file. Raises SettingError for one that others may read, or that is
    malformed."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(None, {})
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    if os.name == "posix" and mode & 0o077:
        raise SettingError(f"{path} may hold tokens, and others may read it (mode {mode:04o}): chmod 600 {path}")
    try:
        return _contexts(json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path} is malformed: {error}") from None


def _contexts(value: object) -> Contexts:
    if not isinstance(value, dict) or not isinstance(value.get("contexts"), dict):
        raise ValueError('it must be {"current": NAME, "contexts": {NAME: {"url": ..., "token": ...}}}')
    for name, context in value["contexts"].items():
        texts = context.values() if isinstance(context, dict) else [None]
        if not all(isinstance(text, str) for text in texts) or "url" not in context:
            raise ValueError(f'the context {name!r} must be {{"url": ..., "token": ...}}')
    current = value.get("current")
    return Contexts(current if isinstance(current, str) else None, value["contexts"])


def write(path: Path, contexts: Contexts) -> None:
    """Replaces the file as a whole. Only its owner may read it. Raises SettingError."""
    text = json.dumps({"current": contexts.current, "contexts": contexts.by_name}, indent=2) + "\n"
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise SettingError(f"cannot write {path}: {error.strerror}") from error
