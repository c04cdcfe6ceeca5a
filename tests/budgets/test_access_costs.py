"""Access control costs nothing while a token is cached, one read when it is not, and nothing at all where it is off."""

from __future__ import annotations

from chalicelib.api import OPERATIONS, Api, Demand
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from local.memory.meter import Meter
from tests.budgets.shop import Shop, within
from tests.sqs.client import Sqs
from tests.sqs.keyed import Keyed
from tests.support.client import ALL_RIGHTS, Client

MESSAGES = {"messages": [{"body": "a" * 200}]}
DAY_MS = 86_400_000


class Guarded:
    """A shop whose producer demands a token."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.api = Api(self.shop.producer.service, Demand(requests=True))
        made = self.api.make_token({"name": "a", "rights": [ALL_RIGHTS]})
        self.token, self.access_key_id = made["token"], made["access_key_id"]

    def produce(self, after_ms: int = 0) -> Meter:
        self.shop.clock.ms += after_ms
        operation, names = OPERATIONS["produce"], ["t"]

        def act() -> None:
            with self.api.admitted(operation, names, f"Bearer {self.token}"):
                operation.call(self.api.service, names, MESSAGES)

        return self.shop.cost(act)


def test_a_cached_token_costs_nothing() -> None:
    guarded = Guarded()
    guarded.produce()
    for _ in range(5):
        assert within(guarded.produce(100), 1, 0, 1)


def test_a_token_is_read_once_in_five_seconds_beside_the_topic() -> None:
    guarded = Guarded()
    guarded.produce(METADATA_AGE_MS_MAX + 1)
    again = guarded.produce(METADATA_AGE_MS_MAX + 1)
    assert again.round_trips == 2, "as many as without a token: the topic is read again anyway"
    assert within(again, 1, 2, 2)
    shop = Shop()
    shop.clock.ms += METADATA_AGE_MS_MAX + 1
    assert shop.produce(["a" * 200]).round_trips == 2


def test_a_token_alone_costs_a_read_and_a_round_trip() -> None:
    guarded = Guarded()
    guarded.shop.produce(["a"])  # the topic is cached
    assert within(guarded.produce(), 1, 1, 2)


def test_without_access_control_nothing_is_read() -> None:
    shop = Shop()
    operation = OPERATIONS["produce"]

    def act() -> None:
        with shop.producer.admitted(operation, ["t"], "Bearer nonsense"):
            operation.call(shop.producer.service, ["t"], MESSAGES)

    assert within(shop.cost(act), 1, 0, 1)


def test_malformed_tokens_cost_nothing_and_unknown_ones_a_read() -> None:
    guarded = Guarded()
    callers = guarded.api.service.access.callers

    def refused(token: str) -> Meter:
        def act() -> None:
            try:
                callers.bearer(f"Bearer {token}", "t")
            except Exception as error:  # noqa: BLE001 - whatever it is, it must be this
                assert type(error).__name__ == "Unauthenticated"

        return guarded.shop.cost(act)

    guarded.produce()
    unknown = f"dct_{'A' * 16}_{'b' * 43}"
    assert refused("nonsense") == Meter()
    assert within(refused(unknown), 0, 1, 1)
    assert [refused(unknown) for _ in range(3)] == [Meter()] * 3
    guarded.shop.clock.ms += METADATA_AGE_MS_MAX + 1
    assert refused(unknown).round_trips == 1


def test_an_access_key_costs_what_its_token_does() -> None:
    guarded = Guarded()

    def sign(after_ms: int = 0) -> Meter:
        guarded.shop.clock.ms += after_ms
        callers = guarded.api.service.access.callers
        return guarded.shop.cost(lambda: callers.signer(guarded.access_key_id, lambda _: True))

    assert within(sign(), 0, 1, 1)
    assert [sign() for _ in range(3)] == [Meter()] * 3
    assert within(sign(METADATA_AGE_MS_MAX + 1), 0, 1, 1)


def test_signed_requests_of_sqs_clients_cost_what_others_do() -> None:
    insider = Client()
    sqs, keyed = Sqs(insider), Keyed(insider)
    sqs.CreateQueue(QueueName="orders")

    def send(client: Client) -> Meter:
        insider.clock.ms += 100
        before = insider.store.meter.copy()
        Sqs(client).SendMessage(QueueUrl="orders", MessageBody="a")
        return insider.store.meter.since(before)

    open_costs, signed_costs = ([send(client) for _ in range(2)] for client in (insider.another(), keyed))
    assert signed_costs[1] == open_costs[1]
    assert signed_costs[0].read_units <= open_costs[0].read_units + 2, (
        "the token, and the signing key, which the table keeps"
    )


def test_an_instance_remembers_a_bounded_number_of_ids() -> None:
    guarded = Guarded()
    callers = guarded.api.service.access.callers
    assert callers._tokens._size_max == 10_000


def test_changing_a_token_costs_a_few_units() -> None:
    guarded = Guarded()
    api, shop = guarded.api, guarded.shop
    token_id = guarded.token.split("_")[1]
    new = {"name": "a", "rights": [ALL_RIGHTS], "expires_at_ms": shop.clock.ms + DAY_MS}
    assert within(shop.cost(lambda: api.make_token(new)), 2, 1, 2)
    assert within(shop.cost(lambda: api.rotate_token(token_id)), 1, 2, 3)
    assert within(shop.cost(lambda: api.delete_token(token_id)), 1, 1, 2)
