"""Runs the push in threads of this process."""

from __future__ import annotations

from threading import Thread

from chalicelib import wiring


def wake(topic_name: str, _is_staying: bool) -> None:
    """Starts a run for the topic. It need not stay: the sweeps start the next one within seconds."""
    Thread(target=_run, args=[topic_name], name="decant-push", daemon=True).start()


def _run(topic_name: str) -> None:
    wiring.api().service.pushing.run(topic_name)
