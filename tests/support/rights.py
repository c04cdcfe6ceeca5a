"""Sets of rights, each of which allows some operations on a group of the topic `orders` and not others."""

from __future__ import annotations

from chalicelib.core.access.rights import VERBS
from tests.support.client import ALL_RIGHTS, Json


def rights_around(group: str) -> dict[str, list[Json]]:
    return {
        "all": [ALL_RIGHTS],
        "in its topic": [{**ALL_RIGHTS, "topics": "ord*"}],
        "in its group": [{**ALL_RIGHTS, "topics": "orders", "groups": group}],
        "elsewhere": [{**ALL_RIGHTS, "topics": "refunds"}],
        "in another group": [{**ALL_RIGHTS, "groups": "shipping"}],
        "denied in its topic": [ALL_RIGHTS, {**ALL_RIGHTS, "topics": "orders", "deny": True}],
        "denied in its group": [ALL_RIGHTS, {**ALL_RIGHTS, "groups": f"{group[:4]}*", "deny": True}],
        "denied elsewhere": [ALL_RIGHTS, {**ALL_RIGHTS, "topics": "refunds", "deny": True}],
        **{f"only {verb}": [{"operations": [verb], "topics": "*"}] for verb in VERBS},
        **{f"all but {verb}": [ALL_RIGHTS, {"operations": [verb], "topics": "*", "deny": True}] for verb in VERBS},
    }
