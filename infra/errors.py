"""Why a command stops."""


class Stop(Exception):
    """The reason, and what to do about it, in one line."""
