"""The code of docs/client.md runs, block after block, against the service."""

from __future__ import annotations

import re
import sys
import threading
import types
from pathlib import Path

import pytest

from decant import Decant

PAGE = Path(__file__).parent.parent.parent / "docs" / "client.md"


def test_the_code_of_the_guide_runs(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECANT_URL", url)
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    with Decant(url) as mq:
        mq.api.put_topic("sums")
        mq.api.put_group("sums", "adders")

        def add() -> None:
            (message,) = mq.api.pop("sums", "adders", wait_ms=20_000)["messages"]
            mq.api.reply(message["correlation_id"], body="3")

        worker = threading.Thread(target=add)
        worker.start()
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), vars(module))  # noqa: S102 - it is our own page
        worker.join()
    module.mq.close()
    shown = capsys.readouterr().out
    assert "billing 1" in shown
    assert "3\n" in shown
