"""A client of SQS with an access key."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from chalicelib.api import Demand
from tests.sqs.signing import sign
from tests.support.client import ALL_RIGHTS, Answer, Client, Json


class Keyed(Client):
    """A client of a stage that demands tokens; it signs its requests with the access key of one."""

    def __init__(self, insider: Client, *rights: Json) -> None:
        super().__init__(insider.store, insider.clock, 9, demand=Demand(requests=True))
        self.pair: Json = insider.api.make_token({"name": "a", "rights": [*rights] or [ALL_RIGHTS]})

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, query: Any = (), **headers: str
    ) -> Answer:
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        host = headers.pop("host")
        about: Json = {"key_id": self.pair["access_key_id"], "secret": self.pair["secret_access_key"], **headers}
        signed = sign(method, f"http://{host}{target}", raw or b"", self.clock.ms, **about)
        return super().ask(method, path, raw=raw or b"", query=query, **signed.headers)
