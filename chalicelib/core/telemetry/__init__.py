"""Telemetry for operators: log lines, and metrics for CloudWatch and Prometheus. `docs/observing.md` names all of
them."""
