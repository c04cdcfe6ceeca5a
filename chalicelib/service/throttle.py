"""Holds a group to its rate, over any number of instances: what a pop is to take is counted before it is leased."""

from __future__ import annotations

from contextlib import suppress

from chalicelib.errors import StoreUnavailable
from chalicelib.rate import Rate, Window
from chalicelib.runtime import Runtime
from chalicelib.service.looking import View
from chalicelib.store import Store
from chalicelib.writes import Refused


class Throttle:
    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def take(self, view: View, rate: Rate, wanted: int) -> int:
        """How many of these messages may be leased now; they are counted as taken."""
        while True:
            now = self._runtime.now()
            count = min(wanted, view.window.left(rate, now))
            if not count:
                return 0
            try:
                view.window = Window.of(view.window.key, self._store.write(view.window.take(count, rate, now)))
                return count
            except Refused as refused:
                view.window = Window.of(view.window.key, refused.before)

    def give_back(self, view: View, count: int) -> None:
        """Those that were not there after all, in a transaction, which is known again: a repeat would give them back
        twice. That it fails makes the group slower for a moment."""
        if count:
            with suppress(Refused, StoreUnavailable):
                self._store.write_together([view.window.give_back(count)])

    def next_in_ms(self, view: View, rate: Rate) -> int:
        return view.window.next_in_ms(rate, self._runtime.now())
