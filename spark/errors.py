"""What a job says before it ends with exit code 1."""

from __future__ import annotations


class BadInput(Exception):
    """What was given cannot be worked with. The message is one line that names the thing and what is wrong with it."""
