"""The errors that clients of SQS know: the one table from kind to shape, code and status, and the kinds of the
service's own errors."""

from __future__ import annotations

from typing import NamedTuple

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import shown
from chalicelib.doors.dispatch import DoorError
from chalicelib.doors.http.exchange import PROBLEMS

SQS = "com.amazonaws.sqs"
_CORAL = "com.amazon.coral.service"
_PREFIX = "AWS.SimpleQueueService."
_FAULT = 500


class Shape(NamedTuple):
    """`type`: as JSON spells it. `code`: as the query protocol does, and the header of JSON errors."""

    type: str
    code: str
    status: int = 400

    @property
    def is_senders(self) -> bool:
        return self.status < _FAULT


def _own(name: str, code: str | None = None, status: int = 400) -> Shape:
    return Shape(f"{SQS}#{name}", code or name, status)


def _prefixed(name: str, code: str | None = None) -> Shape:
    return _own(name, _PREFIX + (code or name))


def _common(code: str, name: str | None = None, status: int = 400) -> Shape:
    return Shape(f"{_CORAL}#{name or code + 'Exception'}", code, status)


ERRORS: dict[str, Shape] = {
    "QueueDoesNotExist": _prefixed("QueueDoesNotExist", "NonExistentQueue"),
    "QueueNameExists": _own("QueueNameExists", "QueueAlreadyExists"),
    "EmptyBatchRequest": _prefixed("EmptyBatchRequest"),
    "TooManyEntriesInBatchRequest": _prefixed("TooManyEntriesInBatchRequest"),
    "BatchEntryIdsNotDistinct": _prefixed("BatchEntryIdsNotDistinct"),
    "InvalidBatchEntryId": _prefixed("InvalidBatchEntryId"),
    "BatchRequestTooLong": _prefixed("BatchRequestTooLong"),
    "UnsupportedOperation": _prefixed("UnsupportedOperation"),
    "InvalidAttributeName": _own("InvalidAttributeName"),
    "InvalidAttributeValue": _own("InvalidAttributeValue"),
    "InvalidMessageContents": _own("InvalidMessageContents"),
    "ReceiptHandleIsInvalid": _own("ReceiptHandleIsInvalid"),
    "RequestThrottled": _own("RequestThrottled"),
    "OverLimit": _own("OverLimit", status=403),
    "ResourceNotFoundException": _own("ResourceNotFoundException", status=404),
    "InvalidParameterValue": _common("InvalidParameterValue"),
    "MissingParameter": _common("MissingParameter", "MissingRequiredParameterException"),
    "Serialization": _common("InvalidParameterValue", "SerializationException"),
    "InvalidAction": _common("InvalidAction", "UnknownOperationException", 404),
    "UnknownOperation": _common("UnknownOperationException", "UnknownOperationException", 404),
    "MissingAction": _common("MissingAction"),
    "NoSuchVersion": _common("NoSuchVersion"),
    "MissingAuthenticationToken": _common("MissingAuthenticationToken", status=403),
    "IncompleteSignature": _common("IncompleteSignature"),
    "InvalidClientTokenId": _common("InvalidClientTokenId", "UnrecognizedClientException", 403),
    "SignatureDoesNotMatch": _common("SignatureDoesNotMatch", "InvalidSignatureException", 403),
    "AccessDenied": _common("AccessDenied", status=403),
    "ServiceUnavailable": _common("ServiceUnavailable", status=503),
    "InternalFailure": _common("InternalFailure", "InternalFailure", 500),
}
"""By kind."""

QUERY_STATUS = {"InvalidAction": 400}
"""Kinds that have another status in the query protocol."""

NO_QUEUE = "The specified queue does not exist."
QUERY_TEXT = {"QueueDoesNotExist": "The specified queue does not exist for this wsdl version."}
"""Kinds that have another text in the query protocol."""

_KINDS = {
    "InvalidJson": "Serialization",
    "TopicNotFound": "QueueDoesNotExist",
    "GroupNotFound": "QueueDoesNotExist",
    "GroupIsPushed": "UnsupportedOperation",
    "QueueFull": "RequestThrottled",
    "Unauthenticated": "AccessDenied",
    "Forbidden": "AccessDenied",
    "StoreUnavailable": "ServiceUnavailable",
    "Internal": "InternalFailure",
}
"""The kinds of the service's errors, by their codes. The others are of the request."""


class SqsError(DoorError):
    """`code`: one of `ERRORS`."""

    @property
    def shape(self) -> Shape:
        return ERRORS[self.code]

    @property
    def fault(self) -> str:
        return "Sender" if self.shape.is_senders else "Receiver"

    @property
    def entry_code(self) -> str:
        """The code of a failed entry of a batch."""
        return self.shape.code.removeprefix(_PREFIX)


def of_service(error: DecantError) -> SqsError:
    """The error of SQS that comes closest."""
    kind = _KINDS.get(error.code) or ("InternalFailure" if _is_fault(error) else "InvalidParameterValue")
    return SqsError(kind, NO_QUEUE if kind == "QueueDoesNotExist" else error.detail)


def _is_fault(error: DecantError) -> bool:
    return PROBLEMS[error.code][0] >= _FAULT


def denied(what: str) -> SqsError:
    return SqsError("AccessDenied", f"The access key is not allowed to {what}.")


def missing(parameter: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {parameter}.")


def bad_value(value: object, parameter: str, reason: str) -> SqsError:
    return SqsError("InvalidParameterValue", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def wrong_kind(path: str, wanted: str, value: object) -> SqsError:
    return SqsError("Serialization", f"{path} must be {wanted}; it is {shown(value)}")
