"""Request and reply: messages that are answered, each by one reply, before a deadline."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.signing_key import SigningKey
from chalicelib.consuming import Consuming
from chalicelib.cursors.receipt import Receipts
from chalicelib.log import Log
from chalicelib.producing import Producing
from chalicelib.requests.arrivals import Arrivals
from chalicelib.requests.asking import Asker
from chalicelib.requests.correlation import Correlations
from chalicelib.requests.replying import Answerer
from chalicelib.requests.waiting import Waiter


class Requests:
    def __init__(self, env: Env, signing_key: SigningKey, log: Log, producing: Producing, consuming: Consuming) -> None:
        correlations, arrivals = Correlations(signing_key), Arrivals(env.runtime)
        waiter = Waiter(env, log.payloads, correlations, arrivals)
        answerer = Answerer(env, log.payloads, Receipts(signing_key), consuming, arrivals)
        self.ask = Asker(env, producing, correlations, waiter).ask
        self.fetch, self.reply, self.correlation = waiter.fetch, answerer.reply, correlations.read
