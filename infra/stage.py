"""A stage: what one deployment is called, who may call it, and how its template differs from that of others.

`infra/stages/<stage>.yaml` has these keys, of which only `access` is required:

    access: tokens      # or iam, or none: everybody who knows the URL may do everything
    alarms: off         # on by default; each costs $0.10 a month
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

from infra.errors import Stop
from infra.merging import Template, check_mappings, load

INFRA = Path(__file__).parent
PARTS = INFRA / "parts"
STAGES = INFRA / "stages"

ACCESSES = ("tokens", "iam", "none")
KEYS = ("access", "alarms", "settings", "template")
CHOICES = {"DECANT_LOG": ("json", "off"), "DECANT_FUNCTION_ACCESS": ("iam", "tokens")}
"""Settings that have only these values: with another one no function would start."""

NAME = re.compile(r"[a-z][a-z0-9]{0,19}")
"""Names of buckets, of at most 63 characters, contain it."""


@dataclass(frozen=True)
class Stage:
    name: str
    access: str
    settings: dict[str, str] = field(default_factory=dict)
    template: Template = field(default_factory=dict)
    has_alarms: bool = True

    @property
    def stack(self) -> str:
        return f"decant-{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {**self.settings, "DECANT_ACCESS": self.access}


def read_stage(name: str, folder: Path = STAGES) -> Stage:
    path = folder / f"{name}.yaml"
    if not NAME.fullmatch(name) or not path.exists():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml"))) or "none"
        raise Stop(
            f"there is no stage {name!r}; stages are {known}, each a file in {folder}, "
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
    settings, template = (_mapping(content, key, path) for key in ("settings", "template"))
    _check_settings(settings, access, path)
    check_mappings(template, path)
    return Stage(name, access, settings, template, has_alarms)


def _mapping(content: Template, key: str, path: Path) -> dict[str, Any]:
    value = content.get(key) or {}
    if not isinstance(value, dict):
        raise Stop(f"'{key}' in {path} must be a mapping")
    return value


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
