"""A group's filter selects messages by tag or by a JMESPath expression (see `filter_expressions`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from chalicelib.core.base.errors import InvalidFilter
from chalicelib.core.base.fields import Label, array, check, declarations, either, optional, request, shown, string
from chalicelib.core.base.limits import EXPRESSION_CHARS_MAX, FILTER_TAGS_MAX, TAG_CHARS_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.settings import AsGiven

_FORMS = '{"tags": [tag, ...]} or {"expression": JMESPath over tag, key and properties}'


@request
class FilterForms:
    """Selects the messages that the group receives: those with one of these tags, or those for which a JMESPath
    expression over `tag`, `key` and `properties` is true. A pop skips and settles messages that do not match; until
    then they count as `ready`. A changed filter applies to messages that no pop has skipped yet; the expression `'all'`
    selects every message again. The number of steps that an expression may take grows with the message's `tag`, `key`
    and `properties`; a message that needs more does not match. After some hundred thousand steps, a pop leaves further
    messages to the next pop.

    tags: The tags to receive.
    expression: The JMESPath expression."""

    RULES: ClassVar[Any] = either("tags", "expression")

    tags: list[str] | None = optional(array(string(TAG_CHARS_MAX), minItems=1, maxItems=FILTER_TAGS_MAX))
    expression: str | None = optional(string(EXPRESSION_CHARS_MAX))


@mutable
class Steps:
    """How many steps filters have taken."""

    taken: int = 0


@record
class Filter(AsGiven):
    """`given`: `{"tags": [...]}` or `{"expression": "..."}`. `steps`: counts the steps of its expression."""

    steps: Steps | None = None

    def counted(self, steps: Steps) -> Self:
        return replace(self, steps=steps)

    @property
    def takes_steps(self) -> bool:
        """Whether filtering a message takes longer than reading it."""
        return "expression" in self.given

    def wants(self, message: Message) -> bool:
        """Whether the group receives this message."""
        if not self.takes_steps:
            return message.tag in self.given["tags"]
        from chalicelib.core.catalogue import filter_expressions  # JMESPath, for which a cold start should not wait

        is_wanted, taken = filter_expressions.judge(self.given["expression"], message)
        if self.steps:
            self.steps.taken += taken
        return is_wanted


def parse(data: object, _label: Label | None = None) -> Filter:
    """Raises InvalidFilter, with the position of the error; InvalidField for a lone surrogate."""
    given = {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else {}
    if not isinstance(data, dict) or not data.keys() <= declarations(FilterForms).keys() or len(given) != 1:
        raise InvalidFilter(f"field 'filter' must be {_FORMS}; it is {shown(data)}")
    if "tags" in given:
        _demand_tags(given["tags"])
    else:
        _demand_expression(given["expression"])
    return Filter(given)


def _demand_tags(tags: object) -> None:
    if not isinstance(tags, list) or not 1 <= len(tags) <= FILTER_TAGS_MAX:
        raise InvalidFilter(f"field 'filter.tags' must be a list of 1 to {FILTER_TAGS_MAX} tags; it is {shown(tags)}")
    for index, tag in enumerate(tags):
        is_tag = isinstance(tag, str) and 1 <= len(tag) <= TAG_CHARS_MAX and "|" not in tag and tag == tag.strip()
        if not is_tag:
            raise InvalidFilter(
                f"field 'filter.tags[{index}]' must be a tag that a message can have; it is {shown(tag)}"
            )
        check(string(), tag, Label(f"filter.tags[{index}]"))


def _demand_expression(expression: object) -> None:
    if not isinstance(expression, str) or not 1 <= len(expression) <= EXPRESSION_CHARS_MAX:
        wanted = f"a JMESPath expression of 1 to {EXPRESSION_CHARS_MAX} characters"
        raise InvalidFilter(f"field 'filter.expression' must be {wanted}; it is {shown(expression)}")
    check(string(), expression, Label("filter.expression"))
    from chalicelib.core.catalogue import filter_expressions  # as above

    filter_expressions.demand_sound(expression)
