"""The client of Decant, a message queue without brokers.

from decant import Decant

mq = Decant()  # DECANT_URL, or http://127.0.0.1:8000
mq.api.put_topic("orders")
mq.send("orders", "4711 paid", key="customer-7")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decant.client import Decant as Decant
    from decant.errors import DecantError as DecantError
    from decant.errors import NotDecant as NotDecant
    from decant.errors import OutcomeUnknown as OutcomeUnknown
    from decant.errors import PartlySent as PartlySent
    from decant.errors import Problem as Problem
    from decant.errors import SettingError as SettingError
    from decant.errors import Unreachable as Unreachable
    from decant.messages import Bury as Bury
    from decant.messages import Message as Message
    from decant.messages import Outgoing as Outgoing
    from decant.messages import Reply as Reply
    from decant.messages import Retry as Retry
    from decant.messages import Sent as Sent
    from decant.payloads import Codec as Codec
    from decant.payloads import Topic as Topic

_PLACES = {
    "decant.client": ("Decant",),
    "decant.errors": (
        *("DecantError", "NotDecant", "OutcomeUnknown", "PartlySent", "Problem", "SettingError", "Unreachable"),
    ),
    "decant.messages": ("Bury", "Message", "Outgoing", "Reply", "Retry", "Sent"),
    "decant.payloads": ("Codec", "Topic"),
}
"""Imported at the first use: `import decant` alone costs next to nothing."""
__all__ = sorted(name for names in _PLACES.values() for name in names)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("decant-mq")
    from importlib import import_module

    for place, names in _PLACES.items():
        if name in names:
            value: object = getattr(import_module(place), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'decant' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
