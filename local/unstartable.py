"""Why the server does not start."""


class Unstartable(Exception):
    """The reason, in one line."""
