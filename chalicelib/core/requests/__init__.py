"""Request and reply: messages that consumers answer with one reply before a deadline."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.consuming import Consuming
from chalicelib.core.cursors.lease import Receipts
from chalicelib.core.log import Log
from chalicelib.core.producing import Producing
from chalicelib.core.requests.asking import Answerer, Arrivals, Asker, ReplyWaiter
from chalicelib.core.requests.correlation import Correlations


class Requests:
    def __init__(self, env: Env, signing_key: SigningKey, log: Log, producing: Producing, consuming: Consuming) -> None:
        correlations, arrivals = Correlations(signing_key), Arrivals(env.runtime)
        waiter = ReplyWaiter(env, log.payloads, correlations, arrivals)
        answerer = Answerer(env, log.payloads, Receipts(signing_key), consuming, arrivals)
        self.ask = Asker(env, producing, correlations, waiter).ask
        self.fetch, self.reply, self.correlation = waiter.fetch, answerer.reply, correlations.read
