"""Events as Lambda gives them to a function, in the shape that the documentation of each source shows."""

from __future__ import annotations

import base64
from typing import Any

Json = dict[str, Any]

REGION, ACCOUNT = "eu-central-1", "123456789012"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
FIFO = f"{QUEUE}.fifo"
SNS_TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:orders"
STREAM = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/orders"
TABLE_STREAM = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders/stream/2026-01-01T00:00:00.000"
BUCKET = "arn:aws:s3:::orders"


class Context:
    """That of an invocation with so much time left."""

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


def event(*records: Json) -> Json:
    return {"Records": list(records)}


def sqs(body: str, number: int = 1, attributes: Json | None = None, queue: str = QUEUE) -> Json:
    return {
        "messageId": f"059f36b4-87a3-44ab-83d2-{number:012}",
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1545082649183",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1545082649185",
        },
        "messageAttributes": attributes or {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": queue,
        "awsRegion": REGION,
    }


def fifo(body: str, number: int = 1, group: str = "g") -> Json:
    record = sqs(body, number, queue=FIFO)
    order = {"SequenceNumber": f"{18849496460467696128 + number}", "MessageGroupId": group}
    record["attributes"] |= {**order, "MessageDeduplicationId": str(number)}
    return record


def sns(message: str, number: int = 1, subject: str | None = None, attributes: Json | None = None) -> Json:
    return {
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": f"{SNS_TOPIC}:21be56ed-a058-49f5-8c98-aedd2564c486",
        "Sns": {
            "Type": "Notification",
            "MessageId": f"95df01b4-ee98-5cb9-9903-{number:012}",
            "TopicArn": SNS_TOPIC,
            "Subject": subject,
            "Message": message,
            "Timestamp": "2026-01-02T12:45:07.000Z",
            "SignatureVersion": "1",
            "Signature": "tcc6faL2yUC6dgZdmrwh1Y4cGa/ebXEkAi6RibDsvpi+tE/1+82j",
            "MessageAttributes": attributes or {},
        },
    }


def eventbridge(detail: Any, number: int = 1, kind: str = "Order paid") -> Json:
    return {
        "version": "0",
        "id": f"6a7e8feb-b491-4cf7-a9f1-{number:012}",
        "detail-type": kind,
        "source": "shop",
        "account": ACCOUNT,
        "time": "2026-01-02T17:00:00Z",
        "region": REGION,
        "resources": [],
        "detail": detail,
    }


def s3(key: str, number: int = 1) -> Json:
    """`key`: quoted, as S3 sends it."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": REGION,
        "eventTime": "2026-01-02T12:45:07.000Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAINPONIXQXHT3IKHL2"},
        "requestParameters": {"sourceIPAddress": "205.255.255.255"},
        "responseElements": {"x-amz-request-id": "D82B88E5F771F645"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "828aa6fc-f7b5-4305-8584-487c791949c1",
            "bucket": {"name": "orders", "ownerIdentity": {"principalId": "A3I5XTEXAMAI3E"}, "arn": BUCKET},
            "object": {
                "key": key,
                "size": 1305107,
                "eTag": "b21b84d653bb07b05b1e6b3368",
                "sequencer": f"{number:018X}",
            },
        },
    }


def kinesis(data: bytes, number: int = 1, key: str = "k") -> Json:
    sequence = f"49590338271490256608559692538361571095921575989136{number:06}"
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": sequence,
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": 1545084650.987,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"shardId-000000000006:{sequence}",
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": f"arn:aws:iam::{ACCOUNT}:role/lambda-role",
        "awsRegion": REGION,
        "eventSourceARN": STREAM,
    }


def dynamodb(keys: Json, number: int = 1, kind: str = "INSERT") -> Json:
    return {
        "eventID": f"c4ca4238a0b923820dcc509a{number:08}",
        "eventName": kind,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
        "dynamodb": {
            "ApproximateCreationDateTime": 1479499740,
            "Keys": keys,
            "NewImage": {**keys, "total": {"N": "12.50"}},
            "SequenceNumber": f"{4421584500000000017450000 + number}",
            "SizeBytes": 26,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": TABLE_STREAM,
    }
