"""One round of the client that openapi-python-client makes: a topic and a group, a message sent, taken and acked."""

from __future__ import annotations

import json
import sys
from typing import Any

from decant_client import Client
from decant_client.api.consuming import ack, pop
from decant_client.api.groups import put_group
from decant_client.api.messages import produce
from decant_client.api.topics import get_topic, put_topic
from decant_client.models import AckRequest, GroupSettings, NewMessage, PopRequest, ProduceRequest, TopicSettings


def round_of(client: Any) -> dict[str, Any]:
    put_topic.sync(client=client, topic="orders", body=TopicSettings(queues=1))
    group = put_group.sync(client=client, topic="orders", group="billing", body=GroupSettings(ordered="key"))
    messages = [NewMessage(body="paid", key="customer-42")]
    produce.sync(client=client, topic="orders", body=ProduceRequest(messages=messages))
    popped = pop.sync(client=client, topic="orders", group="billing", body=PopRequest(max_messages=1))
    receipts = [message.receipt for message in popped.messages]
    acked = ack.sync(client=client, topic="orders", group="billing", body=AckRequest(receipts=receipts))
    missing = get_topic.sync(client=client, topic="invoices")
    return {
        "ordered": group.ordered,
        "taken": [[message.body, message.key] for message in popped.messages],
        "acked": acked.acked,
        "missing": missing.code,
    }


if __name__ == "__main__":
    json.dump(round_of(Client(base_url=sys.argv[1])), sys.stdout)
