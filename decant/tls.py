"""TLS. A module of its own, since plain HTTP does without it and its import is long."""

from __future__ import annotations

import socket
import ssl

from decant.calls import NotSent
from decant.errors import NotDecant

Context = ssl.SSLContext
Error = ssl.SSLError


def context() -> Context:
    """Trusts what the system trusts, and what `SSL_CERT_FILE` names."""
    return ssl.create_default_context()


def wrapped(context: Context, connection: socket.socket, host: str) -> socket.socket:
    """The connection with TLS. Raises NotDecant, NotSent."""
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except (OSError, ValueError) as error:
        connection.close()
        raise refusal(error, host) from error


def refusal(error: Exception, host: str) -> NotDecant | NotSent:
    """NotDecant if the handshake fails every time, NotSent if another may succeed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotDecant(f"its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
        return NotDecant("it speaks no TLS: its address must begin with http://")
    if isinstance(error, ssl.SSLError | ValueError):
        return NotDecant(f"the TLS handshake failed: {getattr(error, 'reason', None) or error}")
    return NotSent(f"{host} ended the TLS handshake: {error}")


_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
