"""Durations, times, places and settings as people write them."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from decant.cli import values
from decant.cli.values import Position


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("0", 0),
    ],
)
def test_durations_are_written_with_units(text: str, ms: int) -> None:
    assert values.duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "10", "10 m", "m", "-5s", "1h30", "5y", "1e3s", "\u0661s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration such as 500ms"):
        values.duration_ms(text)


@pytest.mark.parametrize("ms", [0, 1, 999, 10_000, 60_000, 5_400_000, 86_400_000, 604_800_000, 90_061_001])
def test_shown_durations_mean_the_same(ms: int) -> None:
    assert values.duration_ms(values.shown_ms(ms)) == ms


def test_times_are_local_unless_they_name_a_zone() -> None:
    assert values.instant_ms("2026-12-01T09:00") == datetime(2026, 12, 1, 9).astimezone().timestamp() * 1_000
    assert values.instant_ms("2026-12-01") == datetime(2026, 12, 1).astimezone().timestamp() * 1_000
    assert values.instant_ms("2026-12-01T08:00Z") == 1_796_112_000_000
    assert values.instant_ms("2026-12-01T09:00:00.250+01:00") == 1_796_112_000_250
    assert values.instant_ms("1796112000000") == 1_796_112_000_000


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "09:00", "12", "9999-12-31T23:59:59+99:00"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time such as"):
        values.instant_ms(text)


def test_positions_are_names_counts_times_and_places() -> None:
    found = [values.position(text, ("earliest",), 10_000_000) for text in ("earliest", "-10", "-1h", "3:42")]
    assert found == [Position(name="earliest"), Position(newest=10), Position(at_ms=6_400_000), Position(place=(3, 42))]
    assert values.position("2026-12-01T08:00Z", (), 0) == Position(at_ms=1_796_112_000_000)
    with pytest.raises(ValueError, match=re.escape("'later' is none of earliest, -10, -1h")):
        values.position("later", ("earliest",), 0)


def test_settings_are_json_durations_or_text() -> None:
    pairs = ["max_attempts=5", "ordered=key", "backoff_ms=10s,1m", "invisible_ms=1m30s", "paused=true", "alarm=null"]
    assert values.settings(pairs) == {
        "max_attempts": 5,
        "ordered": "key",
        "backoff_ms": [10_000, 60_000],
        "invisible_ms": 90_000,
        "paused": True,
        "alarm": None,
    }
    assert values.settings(['filter={"tags": ["a"]}', "backoff_ms=[1, 2]"]) == {
        "filter": {"tags": ["a"]},
        "backoff_ms": [1, 2],
    }
    assert values.settings(["push.url=http://a/?b=c", "push.timeout_ms=5s"]) == {
        "push": {"url": "http://a/?b=c", "timeout_ms": 5_000}
    }
    assert values.settings(["start=latest"]) == {"start": "latest"}
    assert values.settings(["start=2026-12-01T08:00Z"]) == {"start": 1_796_112_000_000}


@pytest.mark.parametrize(
    "pairs", [["queues"], ["=5"], ["a.=5"], ["a=1", "a=2"], ["a=1", "a.b=2"], ["invisible_ms=soon"], ["start=soon"]]
)
def test_other_settings_are_refused(pairs: list[str]) -> None:
    with pytest.raises(ValueError, match=r"is no|given twice"):
        values.settings(pairs)
