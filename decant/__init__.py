"""The client of Decant, a message queue without brokers.

from decant import Decant

mq = Decant()  # DECANT_URL, or http://127.0.0.1:8000
mq.api.put_topic("orders")
mq.send("orders", "4711 paid", key="customer-7")
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, whose import costs more than all else here
if TYPE_CHECKING:
    from decant.aio import AsyncDecant as AsyncDecant
    from decant.client import Decant as Decant
    from decant.errors import AlreadyDelivered as AlreadyDelivered
    from decant.errors import AlreadyReplied as AlreadyReplied
    from decant.errors import DecantError as DecantError
    from decant.errors import Forbidden as Forbidden
    from decant.errors import GroupIsPushed as GroupIsPushed
    from decant.errors import GroupNotFound as GroupNotFound
    from decant.errors import Internal as Internal
    from decant.errors import InvalidField as InvalidField
    from decant.errors import InvalidFilter as InvalidFilter
    from decant.errors import InvalidJson as InvalidJson
    from decant.errors import InvalidName as InvalidName
    from decant.errors import MessageNotFound as MessageNotFound
    from decant.errors import MessageTooLarge as MessageTooLarge
    from decant.errors import MethodNotAllowed as MethodNotAllowed
    from decant.errors import NotDecant as NotDecant
    from decant.errors import NotFound as NotFound
    from decant.errors import OutcomeUnknown as OutcomeUnknown
    from decant.errors import PartlySent as PartlySent
    from decant.errors import Problem as Problem
    from decant.errors import QueueFull as QueueFull
    from decant.errors import QueuesDraining as QueuesDraining
    from decant.errors import ReplyTimeout as ReplyTimeout
    from decant.errors import RequestExpired as RequestExpired
    from decant.errors import RequestNotFound as RequestNotFound
    from decant.errors import SettingError as SettingError
    from decant.errors import StoreUnavailable as StoreUnavailable
    from decant.errors import TokenNotFound as TokenNotFound
    from decant.errors import TopicNotFound as TopicNotFound
    from decant.errors import TransactionEnded as TransactionEnded
    from decant.errors import TransactionNotFound as TransactionNotFound
    from decant.errors import Unauthenticated as Unauthenticated
    from decant.errors import UnknownField as UnknownField
    from decant.errors import Unreachable as Unreachable
    from decant.messages import Bury as Bury
    from decant.messages import Message as Message
    from decant.messages import Outgoing as Outgoing
    from decant.messages import Reply as Reply
    from decant.messages import Retry as Retry
    from decant.messages import Sent as Sent
    from decant.payloads import Codec as Codec
    from decant.payloads import Topic as Topic

    __version__: str

_PLACES = {
    "decant.aio": "AsyncDecant",
    "decant.client": "Decant",
    "decant.errors": (
        "AlreadyDelivered AlreadyReplied DecantError Forbidden GroupIsPushed GroupNotFound Internal "
        "InvalidField InvalidFilter InvalidJson InvalidName MessageNotFound MessageTooLarge MethodNotAllowed "
        "NotDecant NotFound OutcomeUnknown PartlySent Problem QueueFull QueuesDraining "
        "ReplyTimeout RequestExpired RequestNotFound SettingError StoreUnavailable TokenNotFound TopicNotFound "
        "TransactionEnded TransactionNotFound Unauthenticated UnknownField Unreachable"
    ),
    "decant.messages": "Bury Message Outgoing Reply Retry Sent",
    "decant.payloads": "Codec Topic",
}
"""Each module is imported when one of its names is first used, so that `import decant` costs next to nothing."""

if not TYPE_CHECKING:  # to type checkers there are no names but those above

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return _version()
        for place, names in _PLACES.items():
            if name in names.split():
                from importlib import import_module

                value: object = getattr(import_module(place), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'decant' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *(name for names in _PLACES.values() for name in names.split())})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("decant-mq")
    except metadata.PackageNotFoundError:  # a clone
        return "unknown"
