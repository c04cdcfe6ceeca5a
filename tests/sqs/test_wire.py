"""The wire of the SQS door: paths, encodings, errors."""

from __future__ import annotations

import json

import pytest

from chalicelib.api.admission import Demand
from tests.sqs.client import Refused, Sqs
from tests.support.client import Client


def test_an_unknown_action_is_refused_in_both_encodings(sqs: Sqs) -> None:
    refused = sqs.refused("Fly")
    assert refused == Refused(
        404, "UnknownOperationException", "InvalidAction", "The action 'Fly' is not valid for this service."
    )
    answer = sqs.client.ask("POST", "/", raw=b"Action=SendMessage&Version=2012-11-05")
    assert (answer.status, answer.headers["Content-Type"]) == (400, "text/xml")
    assert b"<Code>InvalidAction</Code>" in answer.raw


def test_other_paths_and_other_requests_are_as_before(client: Client) -> None:
    for method, path in (("POST", "/"), ("GET", "/"), ("POST", "/123456789012/orders"), ("POST", "/12/orders")):
        assert client.ask(method, path, raw=b"{}").problem == (404, "NotFound")
    target = {"x-amz-target": "AmazonSQS.ListQueues"}
    for path in ("/12/orders", "/topics/", "//", "/123456789012/orders/more", "/123456789012/"):
        assert client.ask("POST", path, raw=b"{}", **target).status == 404
        assert client.ask("POST", path, raw=b"{}", **target).headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("demand", [Demand(requests=True), Demand(iam=True)])
def test_a_stage_that_lets_callers_in_by_other_means_refuses_all(demand: Demand) -> None:
    refused = Sqs(Client(demand=demand)).refused("ListQueues")
    assert (refused.status, refused.shape) == (403, "AccessDeniedException")
    assert "access keys" in refused.message


def test_nothing_of_the_door_is_in_the_document(client: Client) -> None:
    assert "sqs" not in json.dumps(client.get("/openapi.json").json["paths"]).lower()
