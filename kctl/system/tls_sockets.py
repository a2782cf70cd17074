"""Sockets with TLS, which are closed whatever fails."""

from __future__ import annotations

import socket
import ssl


def wrap_socket(
    context: ssl.SSLContext, sock: socket.socket, server_name: str, *, handshakes: bool = True
) -> ssl.SSLSocket:
    """Return the client's end of a TLS connection, after the handshake unless that is left to the caller.

    Raises OSError and ValueError; the connection is closed then.  `SSLContext.wrap_socket` of Python 3.11 leaves one
    open that the peer has reset: the new object has taken the descriptor over, and only the traceback refers to it.
    """
    try:
        return context.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=handshakes)
    except (OSError, ValueError) as error:
        step = error.__traceback__
        while step is not None:
            owner = step.tb_frame.f_locals.get("self")
            if isinstance(owner, ssl.SSLSocket):
                owner.close()
            step = step.tb_next
        sock.close()
        raise
