"""A client of MQ over HTTP with an access key."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from chalicelib.api import Demand
from tests.support.client import ALL_RIGHTS, Answer, Client, Json


class Keyed(Client):
    """A client of a stage that demands tokens; it signs its requests with the access key of one."""

    def __init__(self, insider: Client, *rights: Json) -> None:
        super().__init__(insider.store, insider.clock, 9, demand=Demand(requests=True))
        self.pair: Json = insider.api.make_token({"name": "a", "rights": [*rights] or [ALL_RIGHTS]})
        self.lag_ms = 0

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, query: Any = (), **headers: str
    ) -> Answer:
        signed = {**self.signed(method, path, query, headers), **headers}
        return super().ask(method, path, raw=raw or b"", query=query, **signed)

    def signed(self, method: str, path: str, query: Any, headers: Json) -> dict[str, str]:
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        at = datetime.fromtimestamp((self.clock.ms - self.lag_ms) / 1000, UTC)
        date = headers.get("date", f"{at:%a, %d %b %Y %H:%M:%S GMT}")
        about = (method, headers.get("content-md5", ""), headers["content-type"], date)
        text = "\n".join((*about, f"x-mq-version:{headers['x-mq-version']}", target))
        digest = hmac.new(
            self.pair["secret_access_key"].encode(), text.encode(errors="surrogatepass"), hashlib.sha1
        ).digest()
        return {"date": date, "authorization": f"MQ {self.pair['access_key_id']}:{base64.b64encode(digest).decode()}"}
