"""The errors that clients of MQ over HTTP know: the one table from kind to code and status, and the kinds of the
service's own errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chalicelib.core.base.errors import DecantError
from chalicelib.doors.dispatch import DoorError
from chalicelib.doors.http.exchange import PROBLEMS

_FAULT = 500


class Shape(NamedTuple):
    code: str
    status: int = 400


ERRORS: dict[str, Shape] = {
    "InvalidArgument": Shape("InvalidArgument"),
    "InvalidQueryString": Shape("InvalidQueryString"),
    "InvalidDigest": Shape("InvalidDigest"),
    "MalformedXML": Shape("MalformedXML"),
    "ReceiptHandleError": Shape("ReceiptHandleError"),
    "MissingAuthorizationHeader": Shape("MissingAuthorizationHeader"),
    "InvalidAuthorizationHeader": Shape("InvalidAuthorizationHeader"),
    "MissingDateHeader": Shape("MissingDateHeader"),
    "InvalidDateHeader": Shape("InvalidDateHeader"),
    "TimeExpired": Shape("TimeExpired", 408),
    "InvalidAccessKeyId": Shape("InvalidAccessKeyId", 403),
    "SignatureDoesNotMatch": Shape("SignatureDoesNotMatch", 403),
    "AccessDenied": Shape("AccessDenied", 403),
    "TopicNotExist": Shape("TopicNotExist", 404),
    "SubscriptionNotExist": Shape("SubscriptionNotExist", 404),
    "MessageNotExist": Shape("MessageNotExist", 404),
    "ServiceUnavailable": Shape("InternalServerError", 503),
    "InternalServerError": Shape("InternalServerError", 500),
}
"""By kind."""

NO_MESSAGE = "Message not exist."

_KINDS = {
    "TopicNotFound": "TopicNotExist",
    "GroupNotFound": "SubscriptionNotExist",
    "Unauthenticated": "AccessDenied",
    "Forbidden": "AccessDenied",
    "QueueFull": "ServiceUnavailable",
    "StoreUnavailable": "ServiceUnavailable",
    "Internal": "InternalServerError",
}
"""The kinds of the service's errors, by their codes. The others are of the request."""


class MqError(DoorError):
    """`code`: one of `ERRORS`."""

    @property
    def shape(self) -> Shape:
        return ERRORS[self.code]


class HandlesFailed(MqError):
    """Some handles of a request did not count; the others did. `failed`: those, each with the code of its error."""

    def __init__(self, failed: Sequence[tuple[str, str]]) -> None:
        super().__init__("MessageNotExist", NO_MESSAGE)
        self.failed = failed


def of_service(error: DecantError) -> MqError:
    """The error of MQ that comes closest."""
    kind = "InternalServerError" if PROBLEMS[error.code][0] >= _FAULT else "InvalidArgument"
    return MqError(_KINDS.get(error.code, kind), error.detail)


def wrong(detail: str) -> MqError:
    return MqError("InvalidArgument", detail)
