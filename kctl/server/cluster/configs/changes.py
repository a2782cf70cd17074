"""Dynamic configuration: read from ZooKeeper at start, and again after each change notification.

A notification below /config/changes names an entity, whose configuration is then read.  The creation of a topic has no
notification, though its configuration is written just before it: `topics_appeared` reads it when the controller sends
the topic's metadata.  Kafka: DynamicConfigManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kctl.config.dynamic import ConfigView
from kctl.errors import NoNodeError, ZooKeeperError
from kctl.limits import Subject, bound
from kctl.server.cluster.configs.alterations import DynamicPasswords
from kctl.server.loop.slices import batches, sliced_batches
from kctl.server.znodes.large import decoded
from kctl.server.znodes.notifications import ChangeNotifications
from kctl.server.znodes.problem_log import ProblemLog
from kctl.system.environment import Clock
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

CONFIGS_READ_TOGETHER = bound(
    Subject.LONG_WORK,
    "configurations of new topics that are read from ZooKeeper at the same time",
    100,
    "topics",
    on_excess="those of the others are read afterwards",
)
CONFIGS_APPLIED_PER_SLICE = bound(
    Subject.LONG_WORK,
    "configurations of topics that are applied without a pause, after they have been read from ZooKeeper",
    20,
    "topics",
    on_excess="other connections are served in between",
)


log = logging.getLogger(__name__)

_TOPICS = "topics/"
_CLIENTS = ("users/", "clients/", "ips/")
_BROKERS = "brokers/"
_GROUPS = "groups/"


class ClientConfigs(Protocol):
    """Receives the configuration of users, client ids and IP addresses, named by their paths below /config."""

    def replace(self, configs: Mapping[str, Mapping[str, str] | None]) -> Awaitable[None]:
        """Replace the configuration of all entities; others have none.  None marks an unreadable configuration."""
        ...

    def change(self, path: str, config: Mapping[str, str] | None) -> Awaitable[None]:
        """Replace the configuration of one entity; None if it is unreadable."""
        ...


class ConfigChanges:
    """Keeps a ConfigView and the configuration of clients up to date.

    `topics_changed` is called with some topics after the view is updated.
    """

    def __init__(
        self,
        broker_id: int,
        zookeeper: ZooKeeper,
        view: ConfigView,
        clients: Sequence[ClientConfigs],
        clock: Clock,
        topics_changed: Callable[[Collection[str]], None],
    ) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._view = view
        self._clients = clients
        self._clients_lock = asyncio.Lock()
        self._topics_changed = topics_changed
        self._unreadable = ProblemLog(
            log, "ignoring invalid configuration, the former values stay in use path=/config/%s error=%s"
        )
        self._invalid = ProblemLog(log, "ignoring invalid property path=/config/%s error=%s", logging.WARNING)
        self._notifications = ChangeNotifications(zookeeper, paths.CONFIG_CHANGES, self._apply_announced, clock)
        self._lock = asyncio.Lock()
        """Held while entities are read and applied, so that an earlier reading does not replace a later one."""
        self._fresh: dict[str, None] = {}
        self._being_read: set[str] = set()
        """Topics whose configuration is being read and that were not deleted meanwhile."""
        self._reading: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read all configuration, and watch for changes."""
        await self._notifications.watch()
        for entity in ("brokers/<default>", f"brokers/{self._broker_id}"):
            await self._apply(entity)
        await self._apply_topics(await self._zookeeper.children(paths.CONFIG + "/topics"))
        for group in await self._children(_GROUPS.rstrip("/")):
            await self._apply(_GROUPS + group)
        await self._load_clients()

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; watches of other components are ignored."""
        self._notifications.on_watch(event)

    def topics_appeared(self, topics: Iterable[str]) -> None:
        """Read the configuration of those topics in an UpdateMetadata that are new to this broker."""
        for topic in topics:
            if topic not in self._view.topic_overrides:
                self._fresh[topic] = None
        if self._fresh and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_fresh(), name="config-of-new-topics")

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove the configuration of topics that are deleted, also if it is being read at the moment.

        Otherwise a topic that is created again at once would have that of the former one.
        """
        for topic in topics:
            self._view.forget_topic(topic)
            self._fresh.pop(topic, None)
            self._being_read.discard(topic)

    async def close(self) -> None:
        """Cancel pending reads."""
        await self._notifications.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_fresh(self) -> None:
        try:
            while self._fresh:
                topics, self._fresh = self._fresh, {}
                async with self._lock:
                    await self._apply_topics(list(topics))
        except ZooKeeperError as error:
            # Everything is read again in the next session.
            log.warning("cannot read the configuration of new topics, reading all in the next session error=%s", error)
        finally:
            self._reading = None

    async def _apply_announced(self, path: str, data: bytes) -> None:
        """Apply an announced change; raise ValueError for an invalid notification, and ZooKeeperError."""
        entity = await decoded(znodes.decode_config_change, path, data)
        try:
            async with self._lock:
                await self._apply(entity)
        except ZooKeeperError:
            raise
        except Exception:
            # Otherwise later changes would not be read before the next notification.
            log.exception("cannot apply configuration change, the former values stay in use path=%s", path)

    async def _load_clients(self) -> None:
        """Read the configuration of all clients, some at a time, with one request for each: there may be 100,000."""
        async with self._clients_lock:
            configs: dict[str, dict[str, str] | None] = {}
            for folder in _CLIENTS:
                entities = [folder + name for name in await self._children(folder.rstrip("/"))]
                for together in batches(entities, CONFIGS_READ_TOGETHER):
                    await self._read_clients(together, configs)
            for clients in self._clients:
                await clients.replace(configs)

    async def _read_clients(self, entities: Sequence[str], configs: dict[str, dict[str, str] | None]) -> None:
        """Add the configuration of these entities, and that of the client ids of users among them."""
        found = await asyncio.gather(*(self._read_client(entity) for entity in entities))
        configs.update({entity: config for entity, (config, _) in zip(entities, found, strict=True)})
        for user in (entity for entity, (_, has_children) in zip(entities, found, strict=True) if has_children):
            folder = f"{user}/clients/"
            clients = [folder + name for name in await self._children(folder.rstrip("/"))]
            for together in batches(clients, CONFIGS_READ_TOGETHER):
                await self._read_clients(together, configs)

    async def _read_client(self, entity: str) -> tuple[dict[str, str] | None, bool]:
        """Return the overrides of a client, None if they are unreadable, and whether it has znodes below."""
        is_readable, overrides, has_children = await self._read_with_children(entity)
        return overrides or {} if is_readable else None, has_children

    async def _children(self, folder: str) -> list[str]:
        try:
            return await self._zookeeper.children(paths.config_entity(folder))
        except NoNodeError:
            return []

    async def _apply(self, entity: str) -> None:
        if entity.startswith(_CLIENTS):
            # While all are being loaded, a later change must not be replaced by what was read before it.
            async with self._clients_lock:
                config, _ = await self._read_client(entity)
                for clients in self._clients:
                    await clients.change(entity, config)
            return
        if entity.startswith(_TOPICS):
            await self._apply_topics([entity.removeprefix(_TOPICS)])
            return
        is_readable, overrides = await self._read(entity)
        if is_readable and entity.startswith(_GROUPS):
            group_id = paths.desanitize(entity.removeprefix(_GROUPS))
            self._invalid.report(entity, *self._view.set_group(group_id, overrides or {}))
        elif is_readable:
            self._apply_broker(entity, overrides or {})

    async def _apply_topics(self, topics: Sequence[str]) -> None:
        """Read and apply the configuration of topics, which takes about 0.1 ms for each.

        Responses from ZooKeeper arrive together, so that they are applied in slices.
        """
        for together in batches(topics, CONFIGS_READ_TOGETHER):
            self._being_read = set(together)
            read = await asyncio.gather(*(self._read(_TOPICS + topic) for topic in together))
            # Urgent: former values are in force meanwhile, and the long work of clients must not prolong that.
            pairs = list(zip(together, read, strict=True))
            async for batch in sliced_batches(pairs, CONFIGS_APPLIED_PER_SLICE, is_urgent=True):
                current = [
                    (topic, overrides)
                    for topic, (is_readable, overrides) in batch
                    if is_readable and topic in self._being_read
                ]
                for topic, overrides in current:
                    self._apply_topic(topic, overrides)
                self._topics_changed([topic for topic, _ in current])

    async def _read(self, entity: str) -> tuple[bool, dict[str, str] | None]:
        """Return whether the overrides of an entity are readable, and the overrides; None if it has no node."""
        is_readable, overrides, _ = await self._read_with_children(entity)
        return is_readable, overrides

    async def _read_with_children(self, entity: str) -> tuple[bool, dict[str, str] | None, bool]:
        """As `_read`, and whether there are znodes below."""
        path = paths.config_entity(entity)
        overrides, has_children = None, False
        try:
            data, stat = await self._zookeeper.get(path)
            has_children = stat.num_children > 0
            overrides = await decoded(znodes.decode_config, path, data)
        except NoNodeError:
            pass  # Every topic has a node: this one was deleted in the meantime.
        except ValueError as error:
            self._unreadable.report(entity, str(error))
            return False, None, has_children
        self._unreadable.report(entity)
        return True, overrides, has_children

    def _apply_topic(self, topic: str, overrides: dict[str, str] | None) -> None:
        entity = _TOPICS + topic
        if overrides is None:
            self._view.forget_topic(topic)
            self._invalid.report(entity)
        else:
            self._invalid.report(entity, *self._view.set_topic(topic, overrides))

    def _apply_broker(self, entity: str, stored: dict[str, str]) -> None:
        if entity == "brokers/<default>":
            change = self._view.set_dynamic_default
        elif entity == f"{_BROKERS}{self._broker_id}":
            change = self._view.set_dynamic_broker
        else:
            return
        overrides, problems = DynamicPasswords(self._view.current).decoded(stored)
        self._invalid.report(entity, *problems, *map(str, change(overrides)))
