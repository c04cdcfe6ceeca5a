"""The app that Chalice deploys. Routes come from `chalicelib.protocols.http`. Scheduled functions are declared here,
since a blueprint's handlers would be deployed without this module."""

from typing import Any

from chalicelib import wiring
from chalicelib.protocols.http.application import application

app = application()


def _start_embedded() -> None:
    from local import embedded  # which is not deployed

    embedded.start()


wiring.embed_with(_start_embedded)


@app.schedule("rate(1 minute)")
def revive(_event: Any) -> dict[str, Any]:
    return wiring.api().service.sweeps.revive().as_json()


@app.schedule("rate(1 minute)")
def forward(_event: Any) -> dict[str, Any]:
    return wiring.api().service.sweeps.forward().as_json()


@app.schedule("rate(1 minute)")
def expire(_event: Any) -> dict[str, Any]:
    return wiring.api().service.sweeps.expire().as_json()


@app.schedule("rate(1 minute)")
def check(_event: Any) -> dict[str, Any]:
    return wiring.api().service.sweeps.check().as_json()


@app.schedule("rate(1 minute)")
def push_all(_event: Any) -> dict[str, Any]:
    service = wiring.api().service
    return service.sweeps.push(service.outside.wake).as_json()


@app.lambda_function()
def push(event: dict[str, Any], _context: Any) -> None:
    """Calls the consumers of one topic. Invoked by produces and by `push_all`, not waited for."""
    wiring.api().service.pushing.run(event["topic"], event["is_staying"])


@app.schedule("cron(0 3 * * ? *)")
def export(_event: Any) -> dict[str, Any]:
    return wiring.export()
