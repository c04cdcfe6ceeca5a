"""The error that a job prints before it exits with code 1."""

from __future__ import annotations


class BadInput(Exception):
    """The input cannot be used. The message is one line that names the input and the reason."""
