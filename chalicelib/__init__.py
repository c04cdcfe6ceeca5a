"""Decant: a message queue without brokers."""

VERSION = "0.2.0.dev0"
"""The release that this code is, or becomes (`.dev0`). Packages, answers, metrics and stacks take it from here."""
COMMIT = ""
"""The commit of this code. Packaging sets it, behind these lines; elsewhere it is empty."""
