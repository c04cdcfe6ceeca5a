"""A stage: what one deployment is called, who may call it, and how its template differs from that of others.

`infra/stages/<stage>.yaml`, or a file of your own, has these keys, of which only `access` is required:

    access: tokens      # or iam, or none: everybody who knows the URL may do everything
    alarms: off         # on by default; each costs $0.10 a month
    concurrency: 400    # instances of the function for HTTP requests, at most; all that the account has by default
    warm_throughput:    # units a second that the table serves from its first second on; DynamoDB's own by default
      read: 24000
      write: 20000
    tags:               # of the stack, and so of its resources; costs can be told apart by them
      team: payments
    settings:           # environment variables of all functions, see docs/running.md
      DECANT_LOG: json
    template:           # laid over the parts in infra/parts
      Resources: ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.console import Stop
from infra.templates import INFRA, Template, check_mappings, load

STAGES = INFRA / "stages"

ACCESSES = ("tokens", "iam", "none")
KEYS = ("access", "alarms", "concurrency", "warm_throughput", "tags", "settings", "template")
MAPPINGS = ("settings", "template", "tags", "warm_throughput")
CHOICES = {"DECANT_LOG": ("json", "off"), "DECANT_FUNCTION_ACCESS": ("iam", "tokens")}
"""The valid values of some settings: with any other no function would start."""

CONCURRENCY_MIN = 1
WARM_UNITS_MIN = {"read": 12_000, "write": 4_000}
"""Units a second that every new on-demand table serves; DynamoDB accepts no smaller number."""

TAGS_MAX, TAG_NAME_CHARS_MAX, TAG_CHARS_MAX = 40, 128, 256
"""AWS accepts 50 tags per resource, which include ours, Chalice's and its own."""

NAME = re.compile(r"[a-z][a-z0-9]{0,19}")
"""Names of buckets, of at most 63 characters, contain it."""


@dataclass(frozen=True)
class Stage:
    name: str
    access: str
    settings: dict[str, str] = field(default_factory=dict)
    template: Template = field(default_factory=dict)
    has_alarms: bool = True
    own_tags: dict[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    warm_throughput: dict[str, int] = field(default_factory=dict)

    @property
    def stack(self) -> str:
        return f"decant-{self.name}"

    @property
    def tags(self) -> dict[str, str]:
        return {**self.own_tags, "application": "decant", "stage": self.name}

    @property
    def environment(self) -> dict[str, str]:
        return {**self.settings, "DECANT_ACCESS": self.access}

    @property
    def capacity(self) -> Template:
        """Laid over the parts: the most instances, and the least units of the table."""
        cap = {"ReservedConcurrentExecutions": self.concurrency} if self.concurrency else {}
        warm = {f"{name.capitalize()}UnitsPerSecond": units for name, units in self.warm_throughput.items()}
        table = {"WarmThroughput": warm} if warm else {}
        return {"Resources": {"APIHandler": {"Properties": cap}, "Table": {"Properties": table}}}


def read_stage(chosen: str, folder: Path = STAGES) -> Stage:
    """`chosen`: the name of a stage in the folder, or the path of a file of one, which ends with `.yaml`."""
    path = Path(chosen) if chosen.endswith(".yaml") else folder / f"{chosen}.yaml"
    name = path.stem
    if not NAME.fullmatch(name) or not path.exists():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml"))) or "none"
        raise Stop(
            f"there is no stage {chosen!r}; stages are {known}, each a file in {folder}, or a path ending in .yaml, "
            "named by at most 20 letters a to z and digits, a letter first"
        )
    return _checked(name, path, load(path))


def _checked(name: str, path: Path, content: Template) -> Stage:
    for key in content:
        if key not in KEYS:
            raise Stop(f"{path} has a key {key!r}; keys are {', '.join(KEYS)}")
    access = content.get("access")
    if access not in ACCESSES:
        raise Stop(
            f"{path} must have 'access', one of {', '.join(ACCESSES)} (none: everybody may call it); it is {access!r}"
        )
    has_alarms = content.get("alarms", True)
    if not isinstance(has_alarms, bool):
        raise Stop(f"'alarms' in {path} must be on or off; it is {has_alarms!r}")
    settings, template, tags, warm = (_mapping(content, key, path) for key in MAPPINGS)
    _check_capacity(content.get("concurrency"), warm, path)
    _check_settings(settings, access, path)
    _check_tags(tags, path)
    check_mappings(template, path)
    return Stage(name, access, settings, template, has_alarms, tags, content.get("concurrency"), warm)


def _mapping(content: Template, key: str, path: Path) -> dict[str, Any]:
    value = content.get(key) or {}
    if not isinstance(value, dict):
        raise Stop(f"'{key}' in {path} must be a mapping")
    return value


def _check_capacity(concurrency: Any, warm: dict[str, Any], path: Path) -> None:
    if concurrency is not None:
        _check_number("'concurrency'", concurrency, CONCURRENCY_MIN, path)
    for name, units in warm.items():
        if name not in WARM_UNITS_MIN:
            raise Stop(f"'warm_throughput' in {path} has 'read' and 'write', in units a second; it has {name!r}")
        _check_number(f"'{name}' in 'warm_throughput'", units, WARM_UNITS_MIN[name], path)


def _check_number(what: str, value: Any, least: int, path: Path) -> None:
    if type(value) is not int or value < least:
        raise Stop(f"{what} of {path} must be a whole number, {least} or more; it is {value!r}")


def _check_settings(settings: dict[str, Any], access: str, path: Path) -> None:
    for variable, value in settings.items():
        if not isinstance(value, str):
            raise Stop(f"'{variable}' in 'settings' of {path} must be a text, in quotes; it is {value!r}")
        if value not in CHOICES.get(variable, (value,)):
            raise Stop(
                f"'{variable}' in 'settings' of {path} must be {' or '.join(CHOICES[variable])}; it is {value!r}"
            )
    if settings.get("DECANT_FUNCTION_ACCESS") == "tokens" != access:
        raise Stop(f"'DECANT_FUNCTION_ACCESS' in {path} can be 'tokens' only with access: tokens; that is {access}")


def _check_tags(tags: dict[str, Any], path: Path) -> None:
    if len(tags) > TAGS_MAX:
        raise Stop(f"'tags' in {path} can be {TAGS_MAX} at most; there are {len(tags)}")
    for name, value in tags.items():
        if not isinstance(name, str) or not 0 < len(name) <= TAG_NAME_CHARS_MAX or name.lower().startswith("aws:"):
            raise Stop(
                f"the name of each of the 'tags' in {path} must be a text of at most {TAG_NAME_CHARS_MAX} characters "
                f"that does not begin with 'aws:'; it is {name!r}"
            )
        if name in ("application", "stage"):
            raise Stop(f"'{name}' in 'tags' of {path} is a tag that each stage has already")
        if not isinstance(value, str) or len(value) > TAG_CHARS_MAX:
            raise Stop(
                f"'{name}' in 'tags' of {path} must be a text, in quotes, of at most {TAG_CHARS_MAX} characters; "
                f"it is {value!r}"
            )
