"""Dynamic configuration: read from ZooKeeper at start, and again after each change notification.

A notification below /config/changes names an entity, whose configuration is then read.  The creation of a topic has no
notification, though its configuration is written just before it: `topics_appeared` reads it when the controller sends
the topic's metadata.  Kafka: DynamicConfigManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kctl.config.dynamic import ConfigView
from kctl.environment import Clock
from kctl.errors import NoNodeError, ZooKeeperError
from kctl.limits import CONFIGS_READ_TOGETHER
from kctl.server.change_notifications import ChangeNotifications
from kctl.server.dynamic_passwords import DynamicPasswords
from kctl.server.problem_log import ProblemLog
from kctl.server.requests.slices import pieces
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_TOPICS = "topics/"
_CLIENTS = ("users/", "clients/", "ips/")
_BROKERS = "brokers/"


class ClientConfigs(Protocol):
    """Receives the configuration of users, client ids and IP addresses, named by their paths below /config."""

    def replace(self, configs: Mapping[str, Mapping[str, str] | None]) -> Awaitable[None]:
        """Replaces the configuration of all entities; others have none.  None marks an unreadable configuration."""
        ...

    def change(self, path: str, config: Mapping[str, str] | None) -> Awaitable[None]:
        """Replaces the configuration of one entity; None if it is unreadable."""
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
        self._topic_changed = topic_changed
        self._unreadable = ProblemLog(
            log, "ignoring invalid configuration, the former values stay in use path=/config/%s error=%s"
        )
        self._invalid = ProblemLog(log, "ignoring invalid property path=/config/%s error=%s", logging.WARNING)
        self._notifications = ChangeNotifications(zookeeper, paths.CONFIG_CHANGES, self._apply_announced, clock)
        self._lock = asyncio.Lock()
        """Held while entities are read and applied, so that an earlier reading does not replace a later one."""
        self._fresh: dict[str, None] = {}
        self._reading: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Reads all configuration, and watches for changes."""
        await self._notifications.watch()
        for entity in ("brokers/<default>", f"brokers/{self._broker_id}"):
            await self._apply(entity)
        topics = await self._zookeeper.children(paths.CONFIG + "/topics")
        await asyncio.gather(*(self._apply(_TOPICS + topic) for topic in topics))
        await self._load_clients()

    def on_watch(self, event: WatchEvent) -> None:
        """Handles a watch event of the session; watches of other components are ignored."""
        self._notifications.on_watch(event)

    def topics_appeared(self, topics: Iterable[str]) -> None:
        """Reads the configuration of those topics in an UpdateMetadata that are new to this broker."""
        for topic in topics:
            if topic not in self._view.topic_overrides:
                self._fresh[topic] = None
        if self._fresh and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_fresh(), name="config-of-new-topics")

    async def close(self) -> None:
        """Cancels pending reads."""
        await self._notifications.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_fresh(self) -> None:
        try:
            while self._fresh:
                topics, self._fresh = self._fresh, {}
                async with self._lock:
                    for some in pieces(list(topics), CONFIGS_READ_TOGETHER):
                        await asyncio.gather(*(self._apply(_TOPICS + topic) for topic in some))
        except ZooKeeperError as error:
            # Everything is read again in the next session.
            log.warning("cannot read the configuration of new topics, reading all in the next session error=%s", error)
        finally:
            self._reading = None

    async def _apply_announced(self, path: str, data: bytes) -> None:
        """Raises ValueError for an invalid notification, and ZooKeeperError."""
        entity = znodes.decode_config_change(path, data)
        try:
            async with self._lock:
                await self._apply(entity)
        except ZooKeeperError:
            raise
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
        if entity.startswith(_CLIENTS):
            # While all are being loaded, a later change must not be replaced by what was read before it.
            async with self._clients_lock:
                config = await self._valid_overrides(entity)
                for clients in self._clients:
                    await clients.change(entity, config)
            return
        try:
            overrides = await self._overrides(entity)
        except ValueError as error:
            self._unreadable.report(entity, str(error))
            return
        self._unreadable.report(entity)
        if entity.startswith(_TOPICS):
            self._apply_topic(entity, overrides)
        else:
            self._apply_broker(entity, overrides or {})

    async def _valid_overrides(self, entity: str) -> dict[str, str] | None:
        """The overrides of a client; None if they are unreadable."""
        try:
            overrides = await self._overrides(entity) or {}
        except ValueError as error:
            self._unreadable.report(entity, str(error))
            return None
        self._unreadable.report(entity)
        return overrides

    async def _overrides(self, entity: str) -> dict[str, str] | None:
        """The overrides of an entity; None if it has no node.  Raises ValueError for an invalid one."""
        path = paths.config_entity(entity)
        try:
            data, _ = await self._zookeeper.get(path)
        except NoNodeError:
            return None  # Every topic has a node: this one was deleted in the meantime.
        return znodes.decode_config(path, data)

    def _apply_topic(self, entity: str, overrides: dict[str, str] | None) -> None:
        topic = entity.removeprefix(_TOPICS)
        if overrides is None:
            self._view.forget_topic(topic)
            self._invalid.report(entity)
        else:
            self._invalid.report(entity, *self._view.set_topic(topic, overrides))
        self._topic_changed(topic)

    def _apply_broker(self, entity: str, stored: dict[str, str]) -> None:
        if entity == "brokers/<default>":
            change = self._view.set_dynamic_default
        elif entity == f"{_BROKERS}{self._broker_id}":
            change = self._view.set_dynamic_broker
        else:
            return
        overrides, problems = DynamicPasswords(self._view.current).decoded(stored)
        self._invalid.report(entity, *problems, *map(str, change(overrides)))
