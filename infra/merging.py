"""Templates in YAML, and how one is laid over another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from infra.errors import Stop

Template = dict[str, Any]


def merged(below: Any, above: Any) -> Any:
    """`below` with what `above` changes: dicts key by key, everything else as a whole, lists too. A null removes its
    key, as in a JSON merge patch (RFC 7396)."""
    if not isinstance(above, dict):
        return above
    kept = dict(below) if isinstance(below, dict) else {}
    for key, value in above.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = merged(kept.get(key), value)
    return kept


def load(path: Path) -> Template:
    """A file of a mapping. CloudFormation's short forms (`!Ref`, `!Sub`) may be used."""
    try:
        content = yaml.load(path.read_text(), _Loader)  # noqa: S506 - it is a safe one
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise Stop(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Stop(f"{path} must be a mapping, as templates are")
    return content


MAPPINGS = (
    "Globals.Function.Environment.Variables",
    "Outputs.*",
    "Resources.*.Properties",
    "Resources.Ingest.Properties.Environment.Variables",
    "Resources.Ingest.Properties.Events.*.Properties",
)
"""Places in a template, and all above them, that are merged key by key. `*` is any key."""


def load_template(path: Path) -> Template:
    template = load(path)
    check_mappings(template, path)
    return template


def check_mappings(template: Any, path: Path) -> None:
    """Raises Stop if something else stands where a mapping must. `path`: the file it is from."""
    for place in MAPPINGS:
        _check_mapping(template, place.split("."), [], path)


def _check_mapping(value: Any, below: list[str], names: list[str], path: Path) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise Stop(f"'{'.'.join(names)}' in {path} must be a mapping; it is {value!r}")
    for name in (value if below[0] == "*" else below[:1]) if below else ():
        _check_mapping(value.get(name), below[1:], [*names, str(name)], path)


class _Loader(yaml.SafeLoader):
    """With `!Name value` for `{"Fn::Name": value}`, and without dates: templates have `Version: 2012-10-17`."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> Template:
    value: Any = None
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
