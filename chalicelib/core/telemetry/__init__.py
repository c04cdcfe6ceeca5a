"""What operators see: log lines, metrics of CloudWatch and of Prometheus. `docs/observing.md` names all of them."""
