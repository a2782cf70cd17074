"""Notifications of changes as sequential znodes below one parent.  Kafka: ZkNodeChangeNotificationListener.

A writer changes something in ZooKeeper and then creates a notification with what every broker must read again.
A missing or repeated one is harmless, because the first reading and that of a new session are complete.
Notifications older than 15 minutes are deleted by any broker that reads a newer one.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kctl.errors import ConnectionLossError, NoNodeError, SessionLostError, ZooKeeperError
from kctl.server.loop.slices import sliced
from kctl.system.environment import Clock
from kctl.zookeeper import paths
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_KEEP_MS = 15 * 60_000


class ChangeNotifications:
    """Calls `apply` with path and data of each new notification, in order.

    `apply` raises ValueError if the notification is invalid, which is logged.
    """

    def __init__(
        self, zookeeper: ZooKeeper, parent: str, apply: Callable[[str, bytes], Awaitable[None]], clock: Clock
    ) -> None:
        self._zookeeper = zookeeper
        self._parent = parent
        self._apply = apply
        self._clock = clock
        self._last_seen = -1
        self._is_stale = False
        self._reading: asyncio.Task[None] | None = None

    async def watch(self) -> None:
        """Watch for notifications from now on; the caller then reads the state that present ones announce."""
        names = await self._zookeeper.children(self._parent, watch=True)
        self._last_seen = max((number for number, _ in await self._numbered(names)), default=-1)

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; other paths are ignored."""
        if event.path != self._parent:
            return
        self._is_stale = True
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read(), name=f"changes-{self._parent}")

    async def close(self) -> None:
        """Cancel pending reads."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                names = await self._zookeeper.children(self._parent, watch=True)
                for number, name in await self._numbered(names, after=self._last_seen):
                    await self._take(f"{self._parent}/{name}")
                    self._last_seen = number
                await self._delete_old(names)
        except ZooKeeperError as error:
            # Everything is read again in the next session.
            log.warning(
                "cannot read change notifications, reading all in the next session path=%s error=%s",
                self._parent,
                error,
            )
        finally:
            self._reading = None

    async def _take(self, path: str) -> None:
        try:
            data, _ = await self._zookeeper.get(path)
            await self._apply(path, data)
        except NoNodeError:
            return
        except (ConnectionLossError, SessionLostError):
            raise
        except (ValueError, ZooKeeperError) as error:
            log.error("ignoring invalid change notification path=%s error=%s", path, error)

    async def _delete_old(self, names: list[str]) -> None:
        """End at the first one that is kept, because looking at all of thousands would delay the next changes."""
        oldest_ms = self._clock.now_ms() - _KEEP_MS
        for name in sorted(names, key=paths.sequence_digits):
            path = f"{self._parent}/{name}"
            stat = await self._zookeeper.exists(path)
            if stat is None:
                continue  # Another broker has deleted it.
            if stat.ctime_ms >= oldest_ms:
                return
            await self._zookeeper.delete(path, recursive=True)

    async def _numbered(self, names: list[str], *, after: int = -1) -> list[tuple[int, str]]:
        """Return the notifications with larger numbers than `after`, in order.

        Nodes without a number, created by other programs, are skipped and logged.
        """
        numbered: list[tuple[int, str]] = []
        async for name in sliced(names):
            try:
                number = paths.sequence_number(name)
            except ValueError:
                log.error("ignoring znode that is not a change notification path=%s/%s", self._parent, name)
                continue
            if number > after:
                numbered.append((number, name))
        return sorted(numbered)
