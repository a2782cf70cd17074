"""Notifies the service manager that started this process, such as systemd, of its state: sd_notify(3).

The messages are datagrams of `NAME=value` lines to the socket in NOTIFY_SOCKET.  The watchdog is a message that the
event loop sends at half of the interval in WATCHDOG_USEC: when the loop does not run any more, the message is missing,
and the service manager restarts the broker.

The supervisor of several brokers (`kctl.server.process.machine`) gets the same messages over a stream.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import MutableMapping
from typing import NamedTuple, Self

from kctl.server.loop.tasks import run_every

log = logging.getLogger(__name__)

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_ABSTRACT = "@"
_INTERVAL = re.compile("[0-9]{1,19}")
_SEND_S = 5.0
"""How long to wait while the queue of the service manager is full."""


class ServiceSettings(NamedTuple):
    """The settings in the environment variables of the service manager."""

    address: str | None
    """The socket of the service manager, in the form of `socket.connect`; None if there is none."""
    watchdog_ms: int | None
    """The interval of the watchdog; None without one."""

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> Self:
        """Remove the settings from the environment, so that programs started by this one do not use them.

        Malformed values, and a watchdog of another process, are ignored, as by sd_watchdog_enabled(3).
        """
        address, interval, watched = (environment.pop(name, "") for name in _VARIABLES)
        if not address.startswith(("/", _ABSTRACT)):
            return cls(None, None)
        is_watched = _INTERVAL.fullmatch(interval) is not None and watched in {"", str(pid)}
        interval_ms = int(interval) // 1000 if is_watched else 0
        path = "\0" + address[1:] if address.startswith(_ABSTRACT) else address
        return cls(path, interval_ms if interval_ms > 1 else None)


class ServiceManager:
    """Does nothing without a service manager.  Call `ready` when the broker serves, `stopping`, and `close`."""

    def __init__(self, settings: ServiceSettings, stream: socket.socket | None = None) -> None:
        """`stream` leads to a supervisor, in place of the address in the settings."""
        self._settings = settings
        self._socket = stream
        self._end = "" if stream is None else "\n"
        self._watchdog: asyncio.Task[None] | None = None
        if stream is not None:
            stream.setblocking(False)
        elif settings.address is not None:
            self._socket = _connected(settings.address)

    @classmethod
    def of_process(cls) -> Self:
        """Return the service manager that started this process."""
        return cls(ServiceSettings.take(os.environ, os.getpid()))

    async def ready(self, status: str) -> None:
        """Report that the broker serves, and start the watchdog."""
        await self._notify(f"READY=1\nSTATUS={status}")
        interval_ms = self._settings.watchdog_ms
        if self._socket is not None and interval_ms is not None:
            self._watchdog = asyncio.create_task(
                run_every(interval_ms // 2, lambda: self._notify("WATCHDOG=1"), first_after_ms=0), name="watchdog"
            )

    async def stopping(self) -> None:
        """Report that the broker stops.  The watchdog continues until `close`."""
        await self._notify("STOPPING=1\nSTATUS=stopping")

    async def close(self) -> None:
        """End the watchdog."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.gather(self._watchdog, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _notify(self, message: str) -> None:
        """Wait while the queue of the service manager is full, but not for long; a failure is logged."""
        if self._socket is None:
            return
        try:
            async with asyncio.timeout(_SEND_S):
                await asyncio.get_running_loop().sock_sendall(self._socket, (message + self._end).encode())
        except OSError as error:
            first_line = message.partition("\n")[0]
            log.warning(
                "cannot notify the service manager message=%s error=%s", first_line, error or "its queue is full"
            )


def _connected(address: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.connect(address)
    except (OSError, ValueError) as error:
        sock.close()
        log.warning("cannot connect to the service manager, NOTIFY_SOCKET is ignored error=%s", error)
        return None
    return sock
