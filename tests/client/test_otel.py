"""Traces, by the real OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from decant import Decant
from decant.testing import Server
from decant.testing.server import ADDRESS, InProcess


class Exporter(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[Any] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def test_the_span_of_a_handler_is_linked_to_that_of_the_sender(server: Server) -> None:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from decant.otel import Traced, spans

    exporter, provider = Exporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    mq = Decant(ADDRESS, transport=Traced(InProcess(server)))

    @mq.consumer("orders", group="billing", middleware=[spans(tracer)])
    def bill(order: str) -> None:
        if order == "fail":
            raise ValueError("no")

    with tracer.start_as_current_span("sale") as sale:
        sent = mq.send("orders", "well")
    mq.send("orders", "fail")
    assert mq.work() == 2
    _, well, fail = exporter.spans
    assert (well.name, well.kind.name) == ("process orders", "CONSUMER")
    assert [link.context.span_id for link in well.links] == [sale.get_span_context().span_id]
    assert well.attributes["messaging.message.id"] == sent.id
    assert (fail.links, fail.status.status_code.name, fail.events[0].name) == ((), "ERROR", "exception")


def test_without_the_extra_it_names_the_extra() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None\nimport decant.otel"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: decant.otel needs opentelemetry: pip install 'decant-mq[otel]'"
    )
