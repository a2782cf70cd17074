"""A deadline for a whole HTTP request: the timeout of a socket restarts with each byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def shut_down_after(timeout_s: float, sock: socket.socket, expired: threading.Event) -> Iterator[None]:
    """Closes the connection at the deadline and sets `expired`."""

    def give_up() -> None:
        expired.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(timeout_s, give_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
