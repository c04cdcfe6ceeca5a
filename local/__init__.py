"""`python -m local` serves the app on this machine. Nothing of this package is deployed."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python should show this message, not a SyntaxError
    sys.exit("decant: Python 3.11 or newer is needed, this is {}.{}".format(*sys.version_info))


class StartupError(Exception):
    """The reason why the server does not start, in one line."""
