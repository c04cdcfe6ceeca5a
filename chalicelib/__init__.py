"""Decant: a message queue without brokers."""

VERSION = "0.1.0"
COMMIT = ""
"""The commit of this code. Packaging sets it, behind these lines; elsewhere it is empty."""
