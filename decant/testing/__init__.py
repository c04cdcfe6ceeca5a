"""The real service in the process of a test, with a clock that the test moves.

    from decant.testing import Server

    with Server() as server:
        mq = server.client
        mq.api.put_topic("orders")
        mq.api.put_group("orders", "billing")
        mq.send("orders", "4711")
        mq.api.pop("orders", "billing")
        server.clock.advance(seconds=30)  # the lease ends
        assert mq.api.pop("orders", "billing")["messages"][0]["attempt"] == 2

pytest has the fixtures `decant` (the client), `decant_server`, `decant_clock` and `decant_url`. It needs the extra
`serve`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decant.testing.clock import Clock as Clock
    from decant.testing.server import Server as Server

__all__ = ["Clock", "Server"]

_EXTRA = {"orjson", "zstandard", "jmespath", "prometheus_client"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'decant.testing' has no attribute {name!r}")
    try:
        from decant.testing import clock, server
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ModuleNotFoundError(
            f"decant.testing runs the real service, which needs {error.name}: pip install 'decant-mq[serve]'",
            name=error.name,
        ) from error
    return {"Clock": clock.Clock, "Server": server.Server}[name]
