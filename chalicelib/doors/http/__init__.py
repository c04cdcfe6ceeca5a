"""A message queue without brokers. Producers put messages into the queues of a *topic*. Each *group* of consumers reads
all of them: a *pop* leases messages for a while and gives a *receipt* for each, an *ack* settles them. A message that
is nacked, or not acked before its lease ends, is delivered again: every message is delivered at least once.

- JSON in, JSON out, UTF-8. An empty request body means `{}`. `null` means not given.
- A field or a query parameter that is not in this document is refused with 400 `UnknownField`.
- An object that has the same name twice is refused with 400 `InvalidJson`.
- Integers are JSON integers: neither `1.0` nor `true` is one. Text must not hold half of a surrogate pair.
- Every time is in milliseconds: `*_at_ms` and `*_until_ms` are instants since the Unix epoch, any other `*_ms` is a
  duration.
- Errors are problems as in RFC 9457. `code` is stable and is what clients switch on.
- A path that is not in this document is answered with 404 `NotFound`, as is one with an extra slash: `/topics/` is not
  `/topics`.
- `HEAD` is answered as `GET` is, without the body. It has the same rights and the same effects.
- 405 `MethodNotAllowed` is listed with every operation: it is the answer to any other method.
- 413 `MessageTooLarge` is the answer to any request of more than {REQUEST_BYTES_MAX} bytes.
- A request that failed has changed nothing, unless the answer is 503 and carries `"outcome": "unknown"`: then the
  store's answer was lost, and the request may have been carried out, in whole or in part.
- Lists are paged: as long as `next` is not null, pass it as the query parameter `next` to get the next page."""
