"""The app that Chalice deploys. Routes come from `chalicelib.doors.http`. The other functions are declared here,
since a blueprint's handlers would be deployed without this module."""

from typing import Any

from chalicelib import wiring
from chalicelib.doors import functions
from chalicelib.doors.http.application import application

Json = dict[str, Any]

app = application()


if wiring.is_served_by_chalice():
    from local import chalice_local  # which is not deployed

    chalice_local.begin(app)


# -- direct invocation ------------------------------------------------------------------------------------------------


@app.lambda_function()
def produce(event: Any, context: Any) -> Json:
    return functions.invoked("produce", event, context)


@app.lambda_function()
def pop(event: Any, context: Any) -> Json:
    return functions.invoked("pop", event, context)


@app.lambda_function()
def ack(event: Any, context: Any) -> Json:
    return functions.invoked("ack", event, context)


@app.lambda_function()
def nack(event: Any, context: Any) -> Json:
    return functions.invoked("nack", event, context)


@app.lambda_function()
def extend(event: Any, context: Any) -> Json:
    return functions.invoked("extend", event, context)


@app.lambda_function()
def bury(event: Any, context: Any) -> Json:
    return functions.invoked("bury", event, context)


@app.lambda_function()
def request(event: Any, context: Any) -> Json:
    return functions.invoked("request", event, context)


@app.lambda_function()
def reply(event: Any, context: Any) -> Json:
    return functions.invoked("reply", event, context)


@app.lambda_function()
def ingest(event: Any, context: Any) -> Json:
    """Stores the records of event sources as messages: docs/ingest.md."""
    from chalicelib.doors.ingest.delivery import ingested  # which no other function needs

    return ingested(event, context)


@app.lambda_function()
def sweep(event: Any, _context: Any) -> Json:
    """Runs a sweep now: `{"sweep": "revive"}`."""
    return functions.swept(event)


# -- scheduled work ---------------------------------------------------------------------------------------------------


@app.schedule("rate(1 minute)")
def revive(_event: Any) -> Json:
    return functions.SWEEPS["revive"]()


@app.schedule("rate(1 minute)")
def forward(_event: Any) -> Json:
    return functions.SWEEPS["forward"]()


@app.schedule("rate(1 minute)")
def expire(_event: Any) -> Json:
    return functions.SWEEPS["expire"]()


@app.schedule("rate(1 minute)")
def check(_event: Any) -> Json:
    return functions.SWEEPS["check"]()


@app.schedule("rate(1 minute)")
def push_all(_event: Any) -> Json:
    return functions.SWEEPS["push_all"]()


@app.schedule("rate(1 minute)")
def move(_event: Any) -> Json:
    return functions.SWEEPS["move"]()


@app.schedule("cron(0 3 * * ? *)")
def export(_event: Any) -> Json:
    return functions.SWEEPS["export"]()


@app.lambda_function()
def push(event: Any, _context: Any) -> Json:
    """Calls the consumers of one topic. Invoked by produces and by `push_all`, not waited for."""
    return functions.pushed(event)


wiring.start()
