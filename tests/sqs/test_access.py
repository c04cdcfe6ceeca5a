"""Access control over SQS: every action with every right; refusals reveal nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from chalicelib import wiring
from chalicelib.api import Api, Demand
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.http.door import respond
from chalicelib.doors.sqs import query_wire
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.queues import QUEUES as QUEUE_ACTIONS
from tests.sqs.client import Sqs
from tests.sqs.keyed import Keyed
from tests.sqs.query_client import QuerySqs
from tests.sqs.signing import REGION, altered, changed, sign
from tests.support.client import ALL_RIGHTS, Answer, Client, Json
from tests.support.rights import rights_around


@pytest.fixture
def insider() -> Iterator[Client]:
    """A client that needs no key, of a table with the queue `orders`, and `billing`, which reads the same topic."""
    client = Client()
    furnish(client)
    yield client
    wiring.use(None)


def furnish(client: Client) -> None:
    sqs = Sqs(client)
    sqs.CreateQueue(QueueName="orders")
    sqs.CreateQueue(QueueName="billing", tags={"decant:topic": "orders"})


def outcome(answer: Answer) -> str | None:
    """None: the caller was let in."""
    return answer.headers["x-amzn-query-error"].split(";")[0] if answer.status == 403 else None


# -- actions x rights -------------------------------------------------------------------------------------------------

ENTRIES = [{"Id": "a", "MessageBody": "a", "ReceiptHandle": "a", "VisibilityTimeout": 1}]
MEMBERS: dict[str, Json] = {
    "CreateQueue": {},
    "GetQueueUrl": {},
    "ListQueues": {},
    "DeleteQueue": {},
    "PurgeQueue": {},
    "GetQueueAttributes": {"AttributeNames": ["All"]},
    "SetQueueAttributes": {"Attributes": {"VisibilityTimeout": "7"}},
    "TagQueue": {"Tags": {"a": "b"}},
    "UntagQueue": {"TagKeys": ["a"]},
    "ListQueueTags": {},
    "AddPermission": {"Label": "a", "AWSAccountIds": ["123456789012"], "Actions": ["*"]},
    "RemovePermission": {"Label": "a"},
    "SendMessage": {"MessageBody": "a"},
    "SendMessageBatch": {"Entries": ENTRIES},
    "ReceiveMessage": {},
    "DeleteMessage": {"ReceiptHandle": "a"},
    "DeleteMessageBatch": {"Entries": ENTRIES},
    "ChangeMessageVisibility": {"ReceiptHandle": "a", "VisibilityTimeout": 1},
    "ChangeMessageVisibilityBatch": {"Entries": ENTRIES},
    "ListDeadLetterSourceQueues": {},
    "StartMessageMoveTask": {},
    "ListMessageMoveTasks": {},
    "CancelMessageMoveTask": {},
}
SENDS = {"SendMessage", "SendMessageBatch"}
ON_TOPICS = {"CreateQueue", "DeleteQueue", "SetQueueAttributes"}
"""On a queue with a topic of its own, these act on the topic."""

QUEUES = {"orders": {}, "billing": {"decant:topic": "orders"}}
"""Each with the tags by which it is made; its group has its name."""


def request(action: str, queue: str) -> Json:
    members = MEMBERS[action]
    if action == "CreateQueue":
        return {"QueueName": queue, "tags": QUEUES.get(queue, {})}
    source = f"arn:aws:sqs:us-east-1:000000000000:{queue}"
    handle = base64.b64encode(json.dumps({"taskId": "a", "sourceArn": source}).encode()).decode()
    named = {
        "GetQueueUrl": {"QueueName": queue},
        "ListQueues": {},
        "StartMessageMoveTask": {"SourceArn": source},
        "ListMessageMoveTasks": {"SourceArn": source},
        "CancelMessageMoveTask": {"TaskHandle": handle},
    }
    return {**named.get(action, {"QueueUrl": f"http://sqs.test/000000000000/{queue}"}), **members}


def is_allowed(action: str, rights: str, queue: str) -> bool:
    """Restates the rules of the page on access."""
    verb = ACTIONS[action].right
    if action == "StartMessageMoveTask" and rights in ("only admin", "all but consume"):
        return False  # messages leave the queue
    if rights.startswith("only "):
        return rights == f"only {verb}"
    if rights.startswith("all but "):
        return rights != f"all but {verb}"
    if action == "ListQueues":
        return True
    is_about_group = action not in SENDS and not (queue == "orders" and action in ON_TOPICS)
    return {
        "all": True,
        "in its topic": True,
        "in its group": is_about_group or action in SENDS,
        "elsewhere": False,
        "in another group": action in SENDS,
        "denied in its topic": False,
        "denied in its group": False,
        "denied elsewhere": True,
    }[rights]


def test_every_action_is_tried() -> None:
    assert MEMBERS.keys() == ACTIONS.keys()


def test_an_action_that_forgets_to_demand_its_right_is_denied(insider: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUEUE_ACTIONS, "ListQueues", ACTIONS["ListQueues"]._replace(demands=False))
    monkeypatch.setattr("chalicelib.doors.sqs.actions.ACTIONS", QUEUE_ACTIONS)
    assert Sqs(Keyed(insider)).refused("ListQueues").code == "AccessDenied"
    assert len(Sqs(insider).ListQueues()["QueueUrls"]) == 2


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("rights", rights_around(""))
def test_an_action_needs_its_right_in_its_place(insider: Client, rights: str, queue: str) -> None:
    sqs = Sqs(Keyed(insider, *rights_around(queue)[rights]))
    refused = {action for action in ACTIONS if not is_allowed(action, rights, queue)}
    before = repr(insider.store._items)
    for action in refused:
        assert outcome(sqs.ask(action, **request(action, queue))) == "AccessDenied", action
    assert repr(insider.store._items) == before, "a refused call changes nothing"
    for action in sorted(ACTIONS.keys() - refused, key=lambda name: name == "DeleteQueue"):
        assert outcome(sqs.ask(action, **request(action, queue))) is None, action


# -- what a refusal tells ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [action for action in ACTIONS if action != "ListQueues"])
def test_what_one_may_not_touch_is_denied_whether_it_is_there_or_not(insider: Client, action: str) -> None:
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "refunds"}))
    refusals = {
        (refused.code, refused.message.replace(f"'{name}'", "?"))
        for name in ("orders", "billing", "absent", "not a name")
        for refused in [sqs.refused(action, **request(action, name))]
    }
    assert refusals == {("AccessDenied", f"The access key is not allowed to perform sqs:{action} on queue ?.")}


def test_a_queue_that_is_not_there_is_so_to_who_might_make_it(insider: Client) -> None:
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "refunds"}, {**ALL_RIGHTS, "topics": "q._refunds"}))
    for name in ("refunds", "_refunds"):
        for action in ("SendMessage", "ReceiveMessage", "GetQueueUrl", "DeleteQueue"):
            assert sqs.refused(action, **request(action, name)).code == "NonExistentQueue"
        sqs.CreateQueue(QueueName=name)
        sqs.SendMessage(**request("SendMessage", name))


def test_a_queue_of_another_place_is_not_given_away(insider: Client) -> None:
    """Its name is that of a place where the caller may do everything."""
    Sqs(insider).CreateQueue(QueueName="refunds", tags={"decant:topic": "orders"})
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "refunds"}))
    for action in ACTIONS.keys() - {"ListQueues"}:
        refused = sqs.refused(action, **request(action, "refunds"))
        assert (refused.code, "orders" in refused.message) == ("AccessDenied", False), action


def test_who_subscribes_a_queue_needs_the_right_where_it_reads(insider: Client) -> None:
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "orders", "groups": "audit*"}))
    tags = {"decant:topic": "orders"}
    assert sqs.refused("CreateQueue", QueueName="copies", tags=tags).code == "AccessDenied"
    assert sqs.refused("CreateQueue", QueueName="audit", tags={"decant:topic": "secret"}).code == "AccessDenied"
    assert sqs.refused("CreateQueue", QueueName="audit").code == "AccessDenied"
    sqs.CreateQueue(QueueName="audit", tags=tags)
    sqs.CreateQueue(QueueName="copies", tags={**tags, "decant:group": "audit-2"})
    assert sqs.ReceiveMessage(QueueUrl="copies") == {}


def test_who_makes_a_queue_with_its_topic_needs_the_right_for_all_groups(insider: Client) -> None:
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "refunds", "groups": "refunds"}))
    assert sqs.refused("CreateQueue", QueueName="refunds").code == "AccessDenied"


def test_a_topic_stays_if_its_last_queue_goes_by_who_may_not_delete_it(insider: Client) -> None:
    Sqs(insider).DeleteQueue(QueueUrl="orders")
    Sqs(Keyed(insider, {**ALL_RIGHTS, "groups": "billing"})).DeleteQueue(QueueUrl="billing")
    assert insider.get("/topics/orders").json["groups"] == []


def policy(target: str) -> Json:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:::{target}", "maxReceiveCount": 1})}


def test_messages_move_where_one_may_send(insider: Client) -> None:
    Sqs(insider).CreateQueue(QueueName="dead")
    Sqs(insider).CreateQueue(QueueName="mine-too", tags={"decant:topic": "orders"})
    own = {**ALL_RIGHTS, "topics": "mine*"}
    sqs = Sqs(Keyed(insider, own))
    sqs.CreateQueue(QueueName="mine")
    for target in ("dead", "absent", "mine-too"):
        for action, named in (("CreateQueue", {"QueueName": "mine-2"}), ("SetQueueAttributes", {"QueueUrl": "mine"})):
            refused = sqs.refused(action, **named, Attributes=policy(target))
            may_not = f"let messages move to queue '{target}', to which it may not send"
            assert (refused.code, refused.message) == ("AccessDenied", f"The access key is not allowed to {may_not}.")
    sender = Sqs(Keyed(insider, own, {"operations": ["produce"], "topics": "dead"}))
    sender.SetQueueAttributes(QueueUrl="mine", Attributes=policy("dead"))


def test_messages_leave_where_one_may_receive(insider: Client) -> None:
    """A caller that may administer a queue, but not receive from it, cannot move its messages to a queue of its own."""
    Sqs(insider).CreateQueue(QueueName="mine")
    deaf = {"operations": ["consume"], "topics": "orders", "deny": True}
    sqs = Sqs(Keyed(insider, ALL_RIGHTS, deaf))
    tags = {"decant:topic": "orders", "decant:group": "orders"}
    for action, named in (
        ("SetQueueAttributes", {"QueueUrl": "orders"}),
        ("SetQueueAttributes", {"QueueUrl": "billing"}),
        ("CreateQueue", {"QueueName": "leak", "tags": tags}),
    ):
        refused = sqs.refused(action, **named, Attributes=policy("mine"))
        may_not = f"let messages leave queue '{(named.get('QueueUrl') or 'leak')}', from which it may not receive"
        assert (refused.code, refused.message) == ("AccessDenied", f"The access key is not allowed to {may_not}.")
    sqs.SetQueueAttributes(QueueUrl="orders", Attributes={"RedrivePolicy": "", "VisibilityTimeout": "7"})


def test_a_move_task_needs_the_right_to_send_where_it_moves(insider: Client) -> None:
    """Or to administer the group that gets its messages back."""
    inside = Sqs(insider)
    for name, tags in (("dead", {}), ("lost", {"decant:topic": "orders"})):
        inside.CreateQueue(QueueName=name, tags=tags)
    for name in ("orders", "lost"):
        inside.SetQueueAttributes(QueueUrl=name, Attributes=policy("dead"))
    keeper: Json = {"operations": ["admin", "consume"], "topics": "dead"}
    sender = {"operations": ["produce"], "topics": "orders"}
    redriver = {**keeper, "topics": "orders", "groups": "lost"}
    task = {"SourceArn": "arn:aws:sqs:::dead"}
    for target, needed in (("orders", sender), ("lost", redriver)):
        to = {"DestinationArn": f"arn:aws:sqs:::{target}"}
        refused = Sqs(Keyed(insider, keeper)).refused("StartMessageMoveTask", **task, **to)
        may_not = f"move messages to queue '{target}'"
        assert (refused.code, refused.message) == ("AccessDenied", f"The access key is not allowed to {may_not}.")
        Sqs(Keyed(insider, keeper, needed)).StartMessageMoveTask(**task, **to)
    inside.CreateQueue(QueueName="other.fifo", Attributes={"FifoQueue": "true"})
    for name in ("absent", "other.fifo"):
        to = {"DestinationArn": f"arn:aws:sqs:::{name}"}
        assert Sqs(Keyed(insider, keeper)).refused("StartMessageMoveTask", **task, **to).code == "AccessDenied"
    for rights in ((sender,), (redriver,)):
        refused = Sqs(Keyed(insider, keeper, *rights)).refused("StartMessageMoveTask", **task)
        may_not = "move messages back to every queue that they can be from"
        assert (refused.code, refused.message) == ("AccessDenied", f"The access key is not allowed to {may_not}.")
    Sqs(Keyed(insider, keeper, sender, redriver)).StartMessageMoveTask(**task)


def test_lists_show_the_queues_that_the_caller_may_read(insider: Client) -> None:
    inside = Sqs(insider)
    for number in range(5):
        name = f"refunds-{number}"
        inside.CreateQueue(QueueName=name)
        inside.CreateQueue(QueueName=f"z{name}", tags={"decant:topic": name}, Attributes=policy("orders"))
    sqs = Sqs(Keyed(insider, {**ALL_RIGHTS, "topics": "refunds*", "groups": "*-3"}))
    assert names(sqs.ListQueues()["QueueUrls"]) == ["refunds-3", "zrefunds-3"]
    first = sqs.ListQueues(MaxResults=1)
    assert names(first["QueueUrls"]) == ["refunds-3"]
    second = sqs.ListQueues(MaxResults=1, NextToken=first["NextToken"])
    assert (names(second["QueueUrls"]), "NextToken" in second) == (["zrefunds-3"], False)
    assert sqs.ListQueues(QueueNamePrefix="refunds-2") == {}
    reader = Sqs(Keyed(insider, {"operations": ["read"], "topics": "*", "groups": "*2"}, {**READ, "topics": "orders"}))
    assert names(reader.ListDeadLetterSourceQueues(QueueUrl="orders")["queueUrls"]) == ["zrefunds-2"]
    assert sqs.refused("ListDeadLetterSourceQueues", QueueUrl="orders").code == "AccessDenied"
    assert Sqs(Keyed(insider, {**ALL_RIGHTS, "operations": ["admin"]})).refused("ListQueues").code == "AccessDenied"


READ = {"operations": ["read"]}


def names(urls: list[str]) -> list[str]:
    return [url.rpartition("/")[2] for url in urls]


@pytest.mark.parametrize("action", ["DeleteQueue", "PurgeQueue", "SetQueueAttributes", "TagQueue", "ListQueueTags"])
def test_a_queue_that_was_made_again_elsewhere_needs_the_right_there(insider: Client, action: str) -> None:
    """Though this instance still knows the one before."""
    keyed = Keyed(insider, {**ALL_RIGHTS, "topics": "orders"})
    sqs, inside = Sqs(keyed), Sqs(insider)
    assert sqs.ReceiveMessage(QueueUrl="billing") == {}
    inside.DeleteQueue(QueueUrl="billing")
    inside.CreateQueue(QueueName="secret")
    inside.CreateQueue(QueueName="billing", tags={"decant:topic": "secret"})
    assert sqs.refused(action, **request(action, "billing")).code == "AccessDenied"
    assert inside.ListQueueTags(QueueUrl="billing") == {"Tags": {"decant:topic": "secret"}}


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keyed(insider: Client) -> Keyed:
    """With a key that may do everything."""
    return Keyed(insider)


@pytest.fixture(params=[Sqs, QuerySqs])
def guarded(keyed: Keyed, request: pytest.FixtureRequest) -> Sqs:
    """In both encodings."""
    made: Sqs = request.param(keyed)
    return made


def said(sqs: Sqs) -> str | None:
    """The outcome of a request signed with the client's key."""
    return outcome(sqs.ask("SendMessage", **request("SendMessage", "orders")))


def test_whoever_signs_is_let_in(guarded: Sqs) -> None:
    sent = guarded.SendMessage(QueueUrl="orders", MessageBody="grüß & <>")
    [received] = guarded.ReceiveMessage(QueueUrl="orders", MaxNumberOfMessages=10)["Messages"]
    assert (received["MessageId"], received["Body"]) == (sent["MessageId"], "grüß & <>")


def test_a_receiver_hears_which_key_has_sent_a_message(guarded: Sqs, insider: Client) -> None:
    sender = Keyed(insider)
    Sqs(sender).SendMessage(QueueUrl="orders", MessageBody="a")
    [received] = guarded.ReceiveMessage(QueueUrl="orders", AttributeNames=["All"])["Messages"]
    assert received["Attributes"]["SenderId"] == sender.pair["access_key_id"]


def test_a_request_without_a_signature_learns_nothing(insider: Client) -> None:
    client = Client(insider.store, insider.clock, demand=Demand(requests=True))
    for sqs in (Sqs(client), QuerySqs(client)):
        for action in (*ACTIONS, "Fly"):
            assert sqs.refused(action, **MEMBERS.get(action, {})).code == "MissingAuthenticationToken"
    assert Sqs(client).ask("SendMessage", raw=b"{").status == 403


def test_the_form_of_a_stranger_is_not_read(insider: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can have millions of characters to decode."""
    client = Client(insider.store, insider.clock, demand=Demand(requests=True))
    monkeypatch.setattr(query_wire, "parse_qsl", None)
    assert QuerySqs(client).refused("ListQueues").code == "MissingAuthenticationToken"


def test_the_request_of_a_key_that_is_none_is_not_hashed(guarded: Sqs, keyed: Keyed) -> None:
    """It can be as long as the service takes."""
    wrong_hash = {"x_amz_content_sha256": "0" * 64}
    assert outcome(guarded.ask("ListQueues", headers=wrong_hash)) == "SignatureDoesNotMatch"
    keyed.pair = {**keyed.pair, "access_key_id": "DCTK" + 16 * "A"}
    assert outcome(guarded.ask("ListQueues", headers=wrong_hash)) == "InvalidClientTokenId"


def test_the_wrong_secret_and_a_key_that_is_none_are_told_apart(guarded: Sqs, keyed: Keyed) -> None:
    pair = keyed.pair
    keyed.pair = {**pair, "secret_access_key": "a" * 40}
    assert said(guarded) == "SignatureDoesNotMatch"
    for key_id in ("AKIDEXAMPLE", "DCTK" + 16 * "A"):
        keyed.pair = {**pair, "access_key_id": key_id}
        refused = guarded.refused("ListQueues")
        text = "The security token included in the request is invalid."
        told = (refused.status, refused.shape, refused.code, refused.message)
        assert told == (403, "UnrecognizedClientException", "InvalidClientTokenId", text)


def test_nothing_is_done_for_an_altered_request(insider: Client, keyed: Keyed) -> None:
    own: Json = {"key_id": keyed.pair["access_key_id"], "secret": keyed.pair["secret_access_key"]}
    body = b'{"MessageBody":"a"}'
    kind: Json = {"content_type": "application/x-amz-json-1.0", "content_length": "19"}
    target: Json = {"x_amz_target": "AmazonSQS.SendMessage"}
    request = sign("POST", "http://sqs.test/000000000000/orders?a=1", body, keyed.clock.ms, **own, **kind, **target)
    wiring.use(keyed.api)
    before = repr(insider.store._items)
    others = [
        *altered(request),
        request._replace(raw_query="a=1&X-Amz-Signature=0"),
        request._replace(raw_query="a=1&a=1"),
        request._replace(prefix="/api"),
        changed(request, authorization=f"Bearer {keyed.pair['token']}"),
        changed(request, x_amz_target=None),
        changed(request, x_mq_version="2015-06-06"),
        changed(request, host="sqs.test, sqs.test"),
    ]
    for other in others:
        assert 400 <= respond(other).status < 500, other
    assert repr(insider.store._items) == before
    keyed.clock.ms += 15 * 60_000
    assert respond(request).status == 200
    keyed.clock.ms += 1_000
    assert respond(request).status == 403


def test_a_deployed_stage_is_signed_for_its_own_region(guarded: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "decant-dev")
    monkeypatch.setenv("AWS_REGION", REGION)
    assert said(guarded) is None
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    refused = guarded.refused("ListQueues")
    text = f"The region in Credential must be 'us-east-1'; it is '{REGION}'."
    assert (refused.code, refused.message) == ("SignatureDoesNotMatch", text)


def test_a_key_of_aws_is_no_key_here(guarded: Sqs, keyed: Keyed) -> None:
    """That of a role comes with a session token."""
    keyed.pair = {"access_key_id": "ASIAIOSFODNN7EXAMPLE", "secret_access_key": "a" * 40}
    headers = {"x_amz_security_token": "a token"}
    answer = guarded.ask("ListQueues", headers=headers)
    assert outcome(answer) == "InvalidClientTokenId"


def test_a_key_ends_with_its_token(guarded: Sqs, keyed: Keyed, insider: Client) -> None:
    token_id = keyed.pair["token_id"]
    assert said(guarded) is None
    insider.api.delete_token(token_id)
    insider.clock.ms += METADATA_AGE_MS_MAX
    assert said(guarded) is None
    insider.clock.ms += 1
    assert said(guarded) == "InvalidClientTokenId"


def test_a_rotated_secret_signs_beside_the_new_one_until_it_ends(guarded: Sqs, keyed: Keyed, insider: Client) -> None:
    old = keyed.pair
    new = insider.api.rotate_token(old["token_id"], {"old_valid_ms": 60_000})
    assert said(guarded) is None
    keyed.pair = new
    assert said(guarded) is None
    insider.clock.ms += 60_000
    assert said(guarded) is None
    keyed.pair = old
    assert said(guarded) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(("demand", "has_keys"), [(Demand(iam=True), True), (Demand(requests=True), False)])
def test_a_stage_without_access_keys_refuses_all(insider: Client, demand: Demand, has_keys: bool) -> None:
    """Whom IAM let in has signed for another service; and who reads a table with the signing key could sign."""
    keyed = Keyed(insider)
    keyed.api = Api(keyed.api.service, demand)
    keyed.api.service.access.has_access_keys = has_keys
    refused = Sqs(keyed).refused("ListQueues")
    assert (refused.status, refused.code) == (403, "AccessDenied")
    assert "DECANT_ACCESS=tokens" in refused.message
    assert "DECANT_SIGNING_KEY_FROM" in refused.message
