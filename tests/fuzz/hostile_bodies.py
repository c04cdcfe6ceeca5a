"""Bodies of up to 100 KB that are to cost as much time as they can, each with a name."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

from tests.fuzz.hostile import BODY_BYTES, FORM, GROUP, JSON, MESSAGES, MQ, QUEUE, SEND, Named, listed, request, texts

ATTRIBUTE = '{"QueueUrl":"/q","MessageBody":"a","MessageAttributes":{"a":{"DataType":"Number","StringValue":%s}}}'
TEXTS = {
    "body": ("POST", MESSAGES, '{"messages":[{"body":%s}]}'),
    "key": ("POST", MESSAGES, '{"messages":[{"body":"a","key":%s}]}'),
    "base64": ("POST", MESSAGES, '{"messages":[{"body_base64":%s}]}'),
    "property": ("POST", MESSAGES, '{"messages":[{"body":"a","properties":{"a":%s}}]}'),
    "receipt": ("POST", f"{GROUP}/ack", '{"receipts":[%s]}'),
    "filter": ("PUT", GROUP, '{"filter":{"expression":%s}}'),
    "tags": ("PUT", GROUP, '{"filter":{"tags":[%s]}}'),
    "url": ("PUT", GROUP, '{"push":{"url":%s}}'),
    "dead letters": ("PUT", GROUP, '{"dead_letters":%s}'),
    "start": ("PUT", GROUP, '{"start":%s}'),
    "consumer": ("POST", f"{GROUP}/pop", '{"consumer_id":%s,"wait_ms":0}'),
    "right": ("POST", "/tokens", '{"name":"a","rights":[{"operations":["read"],"topics":%s}]}'),
    "token": ("POST", "/tokens", '{"rights":[],"name":%s}'),
}
SQS_TEXTS = {
    "number": ("SendMessage", ATTRIBUTE),
    "type": ("SendMessage", ATTRIBUTE.replace("%s", '"a"').replace('"Number"', "%s")),
    "name": ("SendMessage", ATTRIBUTE.replace("%s", '"1"').replace('"a":{', "%s:{")),
    "message": ("SendMessage", '{"QueueUrl":"/q","MessageBody":%s}'),
    "queue": ("SendMessage", '{"MessageBody":"a","QueueUrl":%s}'),
    "handle": ("DeleteMessage", '{"QueueUrl":"/q","ReceiptHandle":%s}'),
    "redrive": ("SetQueueAttributes", '{"QueueUrl":"/q","Attributes":{"RedrivePolicy":%s}}'),
    "policy": ("SetQueueAttributes", '{"QueueUrl":"/q","Attributes":{"Policy":%s}}'),
    "timeout": ("SetQueueAttributes", '{"QueueUrl":"/q","Attributes":{"VisibilityTimeout":%s}}'),
    "label": ("AddPermission", '{"QueueUrl":"/q","AWSAccountIds":["1"],"Actions":["*"],"Label":%s}'),
    "tag": ("TagQueue", '{"QueueUrl":"/q","Tags":{"decant:filter":%s}}'),
    "prefix": ("ListQueues", '{"QueueNamePrefix":%s}'),
    "page": ("ListQueues", '{"NextToken":%s}'),
    "task": ("CancelMessageMoveTask", '{"TaskHandle":%s}'),
    "source": ("StartMessageMoveTask", '{"SourceArn":%s}'),
}


def json_texts() -> Named:
    """Long ones, and some that may be as long as they are."""
    for unit, text in (*texts(BODY_BYTES // 2), *texts(1_000), *texts(90)):
        value = json.dumps(text, ensure_ascii=False)
        for place, (method, target, form) in TEXTS.items():
            yield f"{place}: {unit}", request(method, target, JSON, form.replace("%s", value).encode())
        for place, (action, form) in SQS_TEXTS.items():
            headers = {**SEND, "x-amz-target": f"AmazonSQS.{action}"}
            yield f"sqs {place}: {unit}", request("POST", "/", headers, form.replace("%s", value).encode())


LISTS = {
    "integers": "1",
    "long integers": "9" * 4_000,
    "objects": '{"a":#}',
    "empty lists": "[]",
    "nested often": "[" * 195 + "]" * 195,
    "texts": '"#"',
    "long texts": '"' + "a" * 380 + '"',
    "globs": '{"operations":["read"],"topics":"' + "*a" * 45 + '"}',
}
VALUES = {name: "[" + listed(form) + "]" for name, form in LISTS.items()} | {
    "dedup ids": "[" + listed('{"body":"a","dedup_id":"#"}', most=256) + "]",
    "one long integer": "9" * BODY_BYTES,
    "one long number": "0." + "9" * BODY_BYTES,
    "names": "{" + listed('"#":1') + "}",
    "one name": "{" + listed('"a":1') + "}",
    "nested": "[" * (BODY_BYTES // 2),
    "nested objects": '{"a":' * (BODY_BYTES // 6),
    "escapes": '"' + "\\u0041" * (BODY_BYTES // 6) + '"',
    "halves": '"' + "\\ud83d" * (BODY_BYTES // 6) + '"',
    "spaces": " " * BODY_BYTES + "1",
    "properties": '[{"body":"a","properties":{' + listed('"#":""', 15_000) + "}}]",
}


def json_shapes() -> Named:
    places = {
        "messages": MESSAGES,
        "receipts": f"{GROUP}/ack",
        "ack": f"{GROUP}/pop",
        "rights": "/tokens",
        "a": MESSAGES,
    }
    for name, value in VALUES.items():
        for field, target in places.items():
            yield f"{field}: {name}", request("POST", target, JSON, f'{{"{field}":{value}}}'.encode())
        for field in ("MessageBody", "MessageAttributes", "Entries"):
            action = "SendMessageBatch" if field == "Entries" else "SendMessage"
            body = f'{{"QueueUrl":"/q","{field}":{value}}}'.encode()
            yield f"sqs {field}: {name}", request("POST", "/", {**SEND, "x-amz-target": f"AmazonSQS.{action}"}, body)


FORMS = {
    "names": "a#=b",
    "one name": "a=b",
    "no values": "a",
    "nested": "A.1.B.2.C.3.D.4.E.#=1",
    "dots": "." * 40 + "#=1",
    "attributes": "Attribute.99#.Name=a&Attribute.99#.Value=b",
    "message attributes": "MessageAttribute.#.Name=a#&MessageAttribute.#.Value.DataType=String",
    "entries": "SendMessageBatchRequestEntry.#.Id=a#&SendMessageBatchRequestEntry.#.MessageBody=b",
    "tags": "Tag.#.Key=a#&Tag.#.Value=b",
    "handles": "DeleteMessageBatchRequestEntry.#.Id=a#",
}


def forms() -> Named:
    for action in ("SendMessage", "SendMessageBatch", "TagQueue", "SetQueueAttributes", "DeleteMessageBatch"):
        begun = f"Action={action}&Version=2012-11-05&"
        for name, form in FORMS.items():
            most = 1_900 // (form.count("&") + 1)
            for number in (most, BODY_BYTES):
                body = begun + listed(form, most=number, joined="&")
                yield f"{action}, {number} {name}", request("POST", QUEUE, FORM, body.encode())
        index = f"Attribute.{'9' * 90_000}.Name=a&Attribute.999999999.Value=b"
        yield f"{action}, large index", request("POST", QUEUE, FORM, (begun + index).encode())
    for unit, text in texts(BODY_BYTES):
        for member in ("MessageBody", "DelaySeconds", "Action", "MessageAttribute.1.Value.StringValue"):
            form = f"Action=SendMessage&{member}={text}"
            yield f"form {member}: {unit}", request("POST", QUEUE, FORM, form.encode())


XML = {
    "attributes": "<Message {}/>".format(listed('a#="1"', joined=" ")),
    "namespaces": "<Message {}/>".format(listed('xmlns:a#="#"', joined=" ")),
    "elements": "<Message>" + "<a/>" * (BODY_BYTES // 4) + "</Message>",
    "nested": "<Message>" * (BODY_BYTES // 9),
    "entities": "<!DOCTYPE a [" + '<!ENTITY a "b">' * (BODY_BYTES // 15) + "]><Message/>",
    "sections": "<Message><MessageBody>" + "<![CDATA[a]]>" * (BODY_BYTES // 13) + "</MessageBody></Message>",
    "ends of sections": "<Message><MessageBody><![CDATA[" + "]]>" * (BODY_BYTES // 3) + "</MessageBody></Message>",
    "bodies": "<Message>" + "<MessageBody></MessageBody>" * (BODY_BYTES // 27) + "</Message>",
    "comments": "<Message>" + " <!---->" * (BODY_BYTES // 8) + "</Message>",
    "properties": f"<Message><Properties>{listed('a#:b', joined='|')}</Properties></Message>",
    "one open": "<Message><MessageBody>" + "a" * BODY_BYTES,
}


def documents() -> Named:
    for name, document in XML.items():
        yield name, request("POST", MESSAGES, MQ, document.encode())
        handles = document.replace("MessageBody", "ReceiptHandle").replace("Message", "ReceiptHandles")
        yield f"handles, {name}", request("DELETE", f"{MESSAGES}?consumer=billing", MQ, handles[:BODY_BYTES].encode())
    for unit, text in texts(BODY_BYTES // 2):
        inside = escape(text)[:BODY_BYTES]
        for element in ("MessageBody", "MessageTag", "Properties"):
            body = f"<Message><MessageBody>a</MessageBody><{element}>{inside}</{element}></Message>"
            yield f"{element}: {unit}", request("POST", MESSAGES, MQ, body.encode())
        yield f"raw: {unit}", request("POST", MESSAGES, MQ, text.encode())


def chunks() -> Named:
    """A body that is sent in pieces, each with a size of its own."""
    head = request("POST", MESSAGES, {**JSON, "transfer-encoding": "chunked"}).replace(b"content-length: 0\r\n", b"")
    for size in (1, 2, 10, 100):
        for extension in ("", ";a", " ;" + "a" * 90, ";" + "a" * 1_000):
            piece = f"{size:x}{extension}\r\n{' ' * size}\r\n".encode()
            yield f"{size} bytes, then {extension[:3]}", head + piece * (BODY_BYTES // len(piece)) + b"0\r\n\r\n"
    yield "zeros in front", head + b"0000000000000001\r\n \r\n" * (BODY_BYTES // 21) + b"0\r\n\r\n"
    yield "trailers", head + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 99 + b"\r\n"
