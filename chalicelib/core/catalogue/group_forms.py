"""The settings of a group that have a form of their own: its backoff, the topic of its dead letters, its rate, its
alarm and its filter; and the items of its rate and its alarm."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

from chalicelib.core.base.errors import InvalidFilter
from chalicelib.core.base.fields import (
    Label,
    array,
    check,
    declarations,
    either,
    given,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    optional,
    request,
    required,
    shown,
    string,
)
from chalicelib.core.base.limits import (
    BACKOFF_MS,
    BACKOFF_STEPS_MAX,
    EXPRESSION_CHARS_MAX,
    FILTER_TAGS_MAX,
    MULTIPLIER_MAX,
    NACK_DELAY_MS_MAX,
    NAME_PATTERN,
    OFFSET_MAX,
    RATE_MAX,
    RATE_MIN,
    RETENTION_MS_MAX,
    SECOND_MS,
    TAG_CHARS_MAX,
)
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.settings import AsGiven
from chalicelib.core.table.writes import Absent, Add, AtMost, Equals, Guard, Item, Key, Set, Write

# -- backoff after a nack: a list of waits, or a growing one ----------------------------------------------------------


@record
class Growing:
    """A growing wait.

    initial_ms: The first wait.
    multiplier: The factor from each wait to the next.
    max_ms: The longest wait. At least `initial_ms`."""

    initial_ms: int = required(integer(1, NACK_DELAY_MS_MAX))
    multiplier: float = required(number(1, MULTIPLIER_MAX))
    max_ms: int = required(integer(1, NACK_DELAY_MS_MAX))


_WAITS = array(integer(most=NACK_DELAY_MS_MAX), minItems=1, maxItems=BACKOFF_STEPS_MAX)
BACKOFF = one_of(_WAITS, Growing, default=list(BACKOFF_MS))


class Backoff(AsGiven):
    """`given`: a list or an object."""

    def wait_ms(self, attempt: int) -> int:
        """The wait before the retry that follows this attempt, counted from 1. The last wait of a list repeats. A
        redriven message that was not delivered since waits as after its first attempt."""
        attempt = max(attempt, 1)
        if isinstance(self.given, list):
            return int(self.given[min(attempt, len(self.given)) - 1])
        most = int(self.given["max_ms"])
        try:
            grown = float(self.given["multiplier"]) ** (attempt - 1)
        except OverflowError:
            return most
        return int(min(self.given["initial_ms"] * grown, most))


def parse_backoff(data: object, label: Label) -> Backoff:
    """Raises InvalidField, UnknownField."""
    given = check(BACKOFF, data, label)
    if not isinstance(given, Growing):
        return Backoff(given)
    if given.max_ms < given.initial_ms:
        raise label.inside("max_ms").wrong(f"an integer from {given.initial_ms} to {NACK_DELAY_MS_MAX}", given.max_ms)
    return Backoff(asdict(given))


# -- `dead_letters`: the topic that dead messages move to -------------------------------------------------------------

_NAME = string(pattern=NAME_PATTERN, examples=["orders-dead"])
_SOURCE_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
"""Names of topics, of groups, and of subscriptions."""
_SOURCE = string(pattern=_SOURCE_PATTERN)


@request
class DeadLetterTarget:
    topic: str = required(_NAME)
    source: str | None = optional(_SOURCE)


DEAD_LETTERS = nullable(
    mapping(
        required=["topic"],
        properties={
            "topic": {**_NAME, "description": "The topic."},
            "source": {
                **nullable(_SOURCE),
                "description": "The property `sqs:source` of the moved messages. By default the group's name.",
            },
        },
        additionalProperties=False,
        default=None,
    )
)


class DeadLetterTopic(AsGiven):
    """`given`: the fields that are set, by name; empty: the group keeps dead letters."""

    @property
    def topic(self) -> str | None:
        return self._text("topic")

    @property
    def source(self) -> str | None:
        return self._text("source")


def parse_dead_letters(data: object, label: Label) -> DeadLetterTopic:
    """Raises InvalidField, UnknownField."""
    values: dict[str, Any] = {} if data is None else given(DeadLetterTarget, data, label)
    for name, value in values.items():
        pattern = _SOURCE_PATTERN if name == "source" else NAME_PATTERN
        if not re.fullmatch(pattern, check(string(), value, label.inside(name))):
            raise label.inside(name).wrong(f"a name that matches {pattern}", value)
    return DeadLetterTopic(values)


# -- rate: windows of about a second, each with a number of permits ---------------------------------------------------


class Rate(AsGiven):
    """`given`: messages a second, an integer or not."""

    given: float

    @property
    def count(self) -> int:
        """Messages in a window: those of a second, but at least one."""
        return max(1, math.floor(self.given))

    @property
    def window_ms(self) -> int:
        """The length of a window that gives exactly the rate: a second for whole rates."""
        return max(1, round(self.count * SECOND_MS / self.given))


RATE = number(RATE_MIN, RATE_MAX, default=None)


def parse_rate(data: object, label: Label) -> Rate:
    return Rate(check(RATE, data, label))


@record
class RateWindow:
    """The messages taken since `began_ms`, or None before the first. One item holds the current window of a group.
    Taking permits needs no compare-and-swap; starting the next window does."""

    key: Key
    began_ms: int | None = None
    taken: int = 0
    is_stuck: bool = False
    """Whether it begins in this instance's future and has not changed for a window: a clock was set back."""

    @classmethod
    def of(cls, key: Key, item: Item | None) -> RateWindow:
        return cls(key, item["w"], item["n"]) if item else cls(key)

    def is_over(self, rate: Rate, now: int) -> bool:
        return self.began_ms is None or self.is_stuck or now >= self.began_ms + rate.window_ms

    def is_ahead(self, rate: Rate, now: int) -> bool:
        return self.began_ms is not None and now < self.began_ms - rate.window_ms

    def left(self, rate: Rate, now: int) -> int:
        """Messages that can be taken now."""
        return rate.count if self.is_over(rate, now) else max(0, rate.count - self.taken)

    def next_in_ms(self, rate: Rate, now: int) -> int:
        """The wait until more can be taken."""
        return 0 if self.began_ms is None else min(max(0, self.began_ms + rate.window_ms - now), rate.window_ms)

    def take(self, count: int, rate: Rate, now: int) -> Write:
        """Takes up to this many of the messages left. If a repeat lands as well, it takes them twice: the group is then
        slower for a moment, never faster."""
        if not self.is_over(rate, now):
            return Write(self.key, (*self._same(), AtMost(("n",), rate.count - count)), (Add(("n",), count),))
        return Write(self.key, self._same(), (Set(("w",), self._next(rate, now)), Set(("n",), count)))

    def give_back(self, count: int) -> Write:
        """Returns unused messages while their window runs. Send it as a transaction: if a repeat landed as well, the
        group would exceed its rate."""
        return Write(self.key, self._same(), (Add(("n",), -count),))

    def _same(self) -> tuple[Guard, ...]:
        return (Absent(("w",)),) if self.began_ms is None else (Equals(("w",), self.began_ms),)

    def _next(self, rate: Rate, now: int) -> int:
        """The next window starts at the end of this one, which keeps the rate exact; after a pause, or when a clock was
        set back, it starts now."""
        if self.began_ms is not None and rate.window_ms <= now - self.began_ms < 2 * rate.window_ms:
            return self.began_ms + rate.window_ms
        return now


# -- alarm: thresholds on the number of ready messages and the age of the oldest --------------------------------------

ALARMS_TOPIC = "decant.alarms"
"""The topic of alarms, created with the first one; otherwise like any other."""


@request
class Thresholds:
    """When the backlog is too long. If it reaches one of these thresholds, a message goes to the topic `decant.alarms`,
    and another once it is below all of them. Backlogs are checked every minute. The topic is created when first needed,
    and is like any other. The messages have the tag `raised` or `cleared`, the key `topic/group`, the properties
    `topic` and `group`, and as their body JSON with `topic`, `group`, `state`, `ready`, `age_ms`, `thresholds` and
    `at_ms`. New thresholds replace both old ones. An object without any removes the alarm, and clears it if it was
    raised.

    ready: Messages that are ready.
    age_ms: How long ago the oldest ready message was stored, in milliseconds."""

    ready: int | None = optional(integer(1, OFFSET_MAX, examples=[10000]))
    age_ms: int | None = optional(integer(1, RETENTION_MS_MAX, examples=[600000]))


class Alarm(AsGiven):
    """`given`: the thresholds that are set, by their names."""

    def is_crossed(self, ready: int, age_ms: int) -> bool:
        """Whether either threshold is reached."""
        backlog = {"ready": ready, "age_ms": age_ms}
        return any(backlog[name] >= threshold for name, threshold in self.given.items())


def parse_alarm(data: object, label: Label) -> Alarm:
    return Alarm(given(Thresholds, data, label))


RAISED, CLEARED = "raised", "cleared"


@record
class AlarmState:
    """Whether a group's alarm is raised. `number` counts changes. `at_ms`: the time of the change, later than that of
    the previous one whatever the clocks say."""

    number: int = 0
    state: str = CLEARED
    at_ms: int = 0

    @classmethod
    def of(cls, item: Item | None) -> AlarmState:
        return cls(item["n"], item["state"], item["at"]) if item else cls()

    @property
    def is_raised(self) -> bool:
        return self.state == RAISED

    def next(self, state: str, now: int) -> AlarmState:
        return AlarmState(self.number + 1, state, max(now, self.at_ms + 1))


# -- filter: selects messages by tag, or by a JMESPath expression (see `filter_expressions`) --------------------------

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


def parse_filter(data: object, _label: Label | None = None) -> Filter:
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
