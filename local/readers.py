"""Lets readers of the DynamoDB endpoint in. It shows all messages and tokens: whoever reads it may do everything."""

from __future__ import annotations

from chalicelib import wiring
from chalicelib.core.access.callers import demand
from chalicelib.core.access.rights import Need
from chalicelib.core.base.errors import DecantError
from chalicelib.doors.sqs.door import signer_of
from chalicelib.doors.sqs.errors import of_service
from local.browsers import refuse_pages
from local.request import Head
from local.server import request_of

SERVICE = "dynamodb"
"""What a signature names."""


def demand_admin(head: Head, body: bytes) -> None:
    """Under access control demands a signature with the access key of a token that may `admin` everything; without, it
    refuses web pages alone. Raises SqsError, whose types are those of every service of AWS."""
    api = wiring.api()
    try:
        request = request_of(head.method, head.target, head.headers, body)
        if api.is_open:
            refuse_pages(request.method, request.path, request.raw_query or "", request.headers)
        else:
            demand(signer_of(api, request, SERVICE), Need("admin"))
    except DecantError as error:
        raise of_service(error) from error
