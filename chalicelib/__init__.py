"""Decant: a message queue without brokers."""

VERSION = "0.1.0"
COMMIT = ""
"""Of this code. Whoever packages it sets it, behind these lines: elsewhere nobody knows it."""
