"""Dynamic configuration: read from ZooKeeper at start, and again after each change notification.

/config/changes has a sequential node for each change, with the name of the entity, whose configuration is then read, so
a missing or repeated notification is harmless.  The creation of a topic has no notification, though its configuration
is written just before it: `topics_appeared` reads it when the controller sends the topic's metadata.
Notifications older than 15 minutes are deleted.  Kafka: DynamicConfigManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kctl.config.dynamic import ConfigView
from kctl.environment import Clock
from kctl.errors import ConnectionLossError, NoNodeError, SessionLostError, ZooKeeperError
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_KEEP_MS = 15 * 60_000
_TOPICS = "topics/"
_BROKERS = "brokers/"


class ConfigChanges:
    """Keeps a ConfigView up to date.  `topic_changed` is called for each topic after the view is updated."""

    def __init__(
        self,
        broker_id: int,
        zookeeper: ZooKeeper,
        view: ConfigView,
        clock: Clock,
        topic_changed: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._view = view
        self._clock = clock
        self._topic_changed = topic_changed
        self._last_seen = -1
        self._reading: asyncio.Task[None] | None = None
        self._is_stale = False
        self._fresh: dict[str, None] = {}

    async def load(self) -> None:
        """Reads all configuration, and watches for changes."""
        announced = await self._zookeeper.children(paths.CONFIG_CHANGES, watch=True)
        self._last_seen = max((number for number, _ in _numbered(announced)), default=-1)
        for entity in ("brokers/<default>", f"brokers/{self._broker_id}"):
            await self._apply(entity)
        topics = await self._zookeeper.children(paths.CONFIG + "/topics")
        await asyncio.gather(*(self._apply(_TOPICS + topic) for topic in topics))

    def on_watch(self, event: WatchEvent) -> None:
        """Handles a watch event of the session; watches of other components are ignored."""
        if event.path == paths.CONFIG_CHANGES:
            self._is_stale = True
            self._start_reading()

    def topics_appeared(self, topics: Iterable[str]) -> None:
        """Reads the configuration of those topics in an UpdateMetadata that are new to this broker."""
        for topic in topics:
            if topic not in self._view.topic_overrides:
                self._fresh[topic] = None
        if self._fresh:
            self._start_reading()

    async def close(self) -> None:
        """Cancels pending reads."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _start_reading(self) -> None:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read(), name="config-changes")

    async def _read(self) -> None:
        try:
            while self._is_stale or self._fresh:
                if self._fresh:
                    topics, self._fresh = self._fresh, {}
                    await asyncio.gather(*(self._apply(_TOPICS + topic) for topic in topics))
                    continue
                self._is_stale = False
                names = await self._zookeeper.children(paths.CONFIG_CHANGES, watch=True)
                for number, name in _numbered(names):
                    if number > self._last_seen:
                        await self._take(name)
                        self._last_seen = number
                await self._clear_old(names)
        except ZooKeeperError as error:
            # Everything is read again in the next session.
            log.warning("cannot read configuration changes error=%s", error)
        finally:
            self._reading = None

    async def _take(self, name: str) -> None:
        path = f"{paths.CONFIG_CHANGES}/{name}"
        try:
            data, _ = await self._zookeeper.get(path)
            await self._apply(znodes.decode_config_change(path, data))
        except NoNodeError:
            return
        except (ConnectionLossError, SessionLostError):
            raise
        except (ValueError, ZooKeeperError) as error:
            log.error("ignoring invalid configuration change path=%s error=%s", path, error)
        except Exception:
            # Otherwise later changes would not be read before the next notification.
            log.exception("cannot apply configuration change path=%s", path)

    async def _apply(self, entity: str) -> None:
        path = paths.config_entity(entity)
        overrides: dict[str, str] | None = None
        try:
            data, _ = await self._zookeeper.get(path)
            overrides = znodes.decode_config(path, data)
        except NoNodeError:
            pass  # Every topic has a node: this one was deleted in the meantime.
        except ValueError as error:
            log.error("ignoring invalid configuration path=%s error=%s", path, error)
            return
        if entity.startswith(_TOPICS):
            self._apply_topic(entity.removeprefix(_TOPICS), overrides)
        else:
            self._apply_broker(entity, overrides or {})

    def _apply_topic(self, topic: str, overrides: dict[str, str] | None) -> None:
        if overrides is None:
            self._view.forget_topic(topic)
        else:
            for problem in self._view.set_topic(topic, overrides):
                log.warning("ignoring invalid property topic=%s error=%s", topic, problem)
        self._topic_changed(topic)

    def _apply_broker(self, entity: str, overrides: dict[str, str]) -> None:
        if entity == "brokers/<default>":
            for each in self._view.set_dynamic_default(overrides):
                log.warning("ignoring invalid property broker=<default> error=%s", each)
        elif entity == f"{_BROKERS}{self._broker_id}":
            for each in self._view.set_dynamic_broker(overrides):
                log.warning("ignoring invalid property broker=%s error=%s", self._broker_id, each)

    async def _clear_old(self, names: list[str]) -> None:
        oldest_ms = self._clock.now_ms() - _KEEP_MS
        for name in names:
            path = f"{paths.CONFIG_CHANGES}/{name}"
            stat = await self._zookeeper.exists(path)
            if stat is not None and stat.ctime_ms < oldest_ms:
                await self._zookeeper.delete(path, recursive=True)


def _numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    """Notifications in order; nodes without a number, created by other programs, are skipped and logged."""
    numbered: list[tuple[int, str]] = []
    for name in names:
        try:
            numbered.append((paths.sequence_number(name), name))
        except ValueError:
            log.error("ignoring znode that is no configuration change path=%s/%s", paths.CONFIG_CHANGES, name)
    return sorted(numbered)
