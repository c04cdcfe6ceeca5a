"""Runs what is on a schedule, every second: on a laptop nobody wants to wait for a minute."""

from __future__ import annotations

import sys
import threading
import traceback

from chalicelib import wiring
from chalicelib.errors import StoreUnavailable

PERIOD_SECONDS = 1.0


def start() -> threading.Thread:
    """Sweeps in a thread of its own until the process ends."""
    sweeping = threading.Thread(target=_sweep_for_ever, name="decant-sweeps", daemon=True)
    sweeping.start()
    return sweeping


def _sweep_for_ever() -> None:
    pause = threading.Event()
    while not pause.wait(PERIOD_SECONDS):
        sweep()


def sweep() -> None:
    """All sweeps once. Trouble is told, and the next round comes all the same."""
    api = wiring.api()
    for each in (api.forward, api.revive, api.expire, api.check):
        try:
            each()
        except StoreUnavailable as trouble:
            sys.stderr.write(f"decant: a sweep failed: {trouble.detail}\n")
        except Exception:  # noqa: BLE001 - a defect in a sweep must not end the others
            sys.stderr.write(f"decant: a sweep failed\n{traceback.format_exc()}")
