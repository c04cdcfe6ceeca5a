"""Holds a group to its rate across instances: counts the messages of a pop before it leases them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.rate import Rate, Window
from chalicelib.core.consuming.view import GroupView
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused


class Throttle:
    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._ahead: BoundedCache[tuple[int | None, int]] = env.caches.bounded(lambda key, _: keys.owners(key.pk))
        """Windows in the future: their begin, and since when (`Runtime.uptime`) that was seen."""

    def take(self, view: GroupView, rate: Rate, wanted: int) -> int:
        """How many of these messages can be leased now; counts them as taken."""
        while True:
            now = self._runtime.now()
            window = self._judged(self._window(view), rate, now)
            count = min(wanted, window.left(rate, now))
            if not count:
                return 0
            try:
                view.window = self._store.write(window.take(count, rate, now))
                return count
            except Refused as refused:
                view.window = refused.before

    def _window(self, view: GroupView) -> Window:
        return Window.of(view.group.window_key, view.window)

    def _judged(self, window: Window, rate: Rate, now: int) -> Window:
        """Whether a window in the future is stuck. It is not while an instance whose clock is ahead continues it."""
        if not window.is_ahead(rate, now):
            return window
        uptime_ms = self._runtime.uptime()
        began_ms, since_ms = self._ahead.get(window.key) or (None, uptime_ms)
        if began_ms != window.began_ms:
            since_ms = uptime_ms
            self._ahead.keep(window.key, (window.began_ms, since_ms))
        return replace(window, is_stuck=uptime_ms - since_ms >= rate.window_ms)

    def give_back(self, view: GroupView, count: int) -> None:
        """Returns permits that were not used, in a transaction, so that a repeat does not return them twice. A failure
        makes the group slower for a moment."""
        if count:
            with suppress(Refused, StoreUnavailable):
                self._store.write_together([self._window(view).give_back(count)])

    def next_in_ms(self, view: GroupView, rate: Rate) -> int:
        return self._window(view).next_in_ms(rate, self._runtime.now())
