"""Measures cost and speed: `python -m benchmarks`. README.md explains the figures."""
