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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kctl.config.dynamic import ConfigView
from kctl.environment import Clock
from kctl.errors import ConnectionLossError, NoNodeError, SessionLostError, ZooKeeperError
from kctl.server.dynamic_passwords import DynamicPasswords
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_KEEP_MS = 15 * 60_000
_TOPICS = "topics/"
_CLIENTS = ("users/", "clients/", "ips/")
_BROKERS = "brokers/"


class ClientConfigs(Protocol):
    """Takes the configuration of users, client ids and IP addresses, by path below /config."""

    def replace(self, configs: Mapping[str, Mapping[str, str]]) -> Awaitable[None]:
        """Takes that of all entities; there are no others."""
        ...

    def change(self, path: str, config: Mapping[str, str]) -> Awaitable[None]:
        """Takes that of one entity."""
        ...


class ConfigChanges:
    """Keeps a ConfigView and the configuration of clients up to date.

    `topic_changed` is called for each topic after the view is updated.
    """

    def __init__(
        self,
        broker_id: int,
        zookeeper: ZooKeeper,
        view: ConfigView,
        clients: Sequence[ClientConfigs],
        clock: Clock,
        topic_changed: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._view = view
        self._clients = clients
        self._clients_lock = asyncio.Lock()
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
        await self._load_clients()

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
            log.warning(
                "cannot read configuration changes, reading all in the next session path=%s error=%s",
                paths.CONFIG_CHANGES,
                error,
            )
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
            log.error(
                "ignoring invalid configuration change, the former values stay in use path=%s error=%s", path, error
            )
        except Exception:
            # Otherwise later changes would not be read before the next notification.
            log.exception("cannot apply configuration change, the former values stay in use path=%s", path)

    async def _load_clients(self) -> None:
        async with self._clients_lock:
            entities: list[str] = []
            for folder in _CLIENTS:
                entities += [folder + name for name in await self._children(folder.rstrip("/"))]
            users = [entity for entity in entities if entity.startswith("users/")]
            folders = [f"{user}/clients/" for user in users]
            names = await asyncio.gather(*(self._children(folder.rstrip("/")) for folder in folders))
            entities += [folder + name for folder, own in zip(folders, names, strict=True) for name in own]
            configs = await asyncio.gather(*(self._valid_overrides(entity) for entity in entities))
            for clients in self._clients:
                await clients.replace(dict(zip(entities, configs, strict=True)))

    async def _children(self, folder: str) -> list[str]:
        try:
            return await self._zookeeper.children(paths.config_entity(folder))
        except NoNodeError:
            return []

    async def _apply(self, entity: str) -> None:
        try:
            if entity.startswith(_TOPICS):
                self._apply_topic(entity.removeprefix(_TOPICS), await self._overrides(entity))
            elif entity.startswith(_CLIENTS):
                # While all are being loaded, a later change must not be replaced by what was read before it.
                async with self._clients_lock:
                    config = await self._overrides(entity) or {}
                    for clients in self._clients:
                        await clients.change(entity, config)
            else:
                self._apply_broker(entity, await self._overrides(entity) or {})
        except ValueError as error:
            log.error(
                "ignoring invalid configuration, the former values stay in use path=/config/%s error=%s", entity, error
            )

    async def _valid_overrides(self, entity: str) -> dict[str, str]:
        try:
            return await self._overrides(entity) or {}
        except ValueError as error:
            log.error(
                "ignoring invalid configuration, the former values stay in use path=/config/%s error=%s", entity, error
            )
            return {}

    async def _overrides(self, entity: str) -> dict[str, str] | None:
        """The overrides of an entity; None if it has no node.  Raises ValueError for an invalid one."""
        path = paths.config_entity(entity)
        try:
            data, _ = await self._zookeeper.get(path)
        except NoNodeError:
            return None  # Every topic has a node: this one was deleted in the meantime.
        return znodes.decode_config(path, data)

    def _apply_topic(self, topic: str, overrides: dict[str, str] | None) -> None:
        if overrides is None:
            self._view.forget_topic(topic)
        else:
            for problem in self._view.set_topic(topic, overrides):
                log.warning("ignoring invalid property topic=%s error=%s", topic, problem)
        self._topic_changed(topic)

    def _apply_broker(self, entity: str, stored: dict[str, str]) -> None:
        overrides = DynamicPasswords(self._view.current).decoded(stored)
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
