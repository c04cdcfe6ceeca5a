"""The reader of request bodies reads what any JSON reader reads, and refuses an object with one name twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.errors import InvalidJson
from chalicelib.doors.http.exchange import parsed

SPACES = st.sampled_from(["", " ", "\t", "\r\n"])
STRINGS = st.sampled_from(["a", "b", ":", "\\u003a", "\\u003A", "\\u0061", '\\":', "\\\\", "é", "{}"]).map(
    '"{}"'.format
)
SCALARS = STRINGS | st.sampled_from(["null", "true", "1", "-1.5e3", str(2**63)])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.builds("{}{}:{}{}".format, STRINGS, SPACES, SPACES, values)
    return st.lists(members, max_size=4).map(",".join).map("{{{}}}".format)


TEXTS = st.recursive(SCALARS, lambda inner: objects(inner) | st.lists(inner).map(",".join).map("[{}]".format))


@given(objects(TEXTS))
def test_only_objects_with_a_duplicate_name_are_refused(text: str) -> None:
    repeated: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        return dict(pairs)

    expected = json.loads(text, object_pairs_hook=once)
    if not repeated:
        assert parsed(text.encode()) == expected
        return
    with pytest.raises(InvalidJson) as refused:
        parsed(text.encode())
    assert any(json.dumps(name, ensure_ascii=False) in refused.value.detail for name in repeated)
