"""Writes topics to ZooKeeper: the configuration first, then the assignment that the controller watches.

Kafka: AdminZkClient.

Owner: event loop.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from kctl.errors import ApiError, BadVersionError, ErrorCode, NodeExistsError, NoNodeError
from kctl.model import ZERO_UUID, uuid_text
from kctl.server.cluster.topics import placement
from kctl.server.znodes.large import decoded, encoded_topic
from kctl.system.environment import Random
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper

log = logging.getLogger(__name__)

Assignment = Mapping[int, tuple[int, ...]]
"""Partition to the brokers that replicate it, the preferred leader first."""

_METADATA_TOPIC_ID = UUID(int=1)


class TopicWriter:
    """Writes topics and configurations that are validated already."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        random: Random,
        *,
        racks: Callable[[], Mapping[int, str | None]] = dict,
        has_topic_ids: bool = True,
        created: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`racks` returns the racks of the live brokers, for a warning when replicas share one; `created` is called
        with each created topic.

        `has_topic_ids` is False while brokers older than 2.8 may be in the cluster.
        """
        self._zookeeper = zookeeper
        self._racks = racks
        self._random = random
        self._has_topic_ids = has_topic_ids
        self._created = created

    async def create(self, name: str, assignment: Assignment, overrides: Mapping[str, str]) -> UUID:
        """Create a topic; return its id, ZERO_UUID if topics have none.  Raises ApiError(TOPIC_ALREADY_EXISTS)."""
        if await self._zookeeper.exists(paths.topic(name)) is not None:
            raise _exists(name)
        await self._put(paths.topic_config(name), znodes.encode_config(overrides))
        topic_id = self._new_id() if self._has_topic_ids else None
        znode = znodes.TopicAssignment(assignment, topic_id)
        try:
            await self._zookeeper.create(paths.topic(name), await encoded_topic(znode))
        except NodeExistsError as error:
            raise _exists(name) from error
        self._created(name)
        self._warn_of_shared_racks(name, assignment)
        return ZERO_UUID if topic_id is None else topic_id

    async def assignment(self, name: str) -> znodes.TopicAssignment:
        """Return the stored assignment.  Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
        try:
            data, _ = await self._zookeeper.get(paths.topic(name))
        except NoNodeError as error:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.") from error
        with invalid_znode_as_api_error():
            return await decoded(znodes.decode_topic, paths.topic(name), data)

    async def add_partitions(self, name: str, added: Assignment) -> None:
        """Append partitions.  Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for a concurrent change."""
        path = paths.topic(name)
        try:
            data, stat = await self._zookeeper.get(path)
            with invalid_znode_as_api_error():
                known = await decoded(znodes.decode_topic, path, data)
            grown = znodes.TopicAssignment(
                {**known.replicas, **added}, known.topic_id, known.adding_replicas, known.removing_replicas
            )
            await self._zookeeper.set(path, await encoded_topic(grown), version=stat.version)
        except NoNodeError as error:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.") from error
        except BadVersionError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {name} was changed concurrently; try again") from error
        self._warn_of_shared_racks(name, added)

    async def request_deletion(self, name: str) -> None:
        """Request the deletion of the topic from the controller; idempotent."""
        try:
            await self._zookeeper.create(paths.delete_topic(name), None)
        except NodeExistsError:
            return

    async def change_config(self, entity_path: str, overrides: Mapping[str, str]) -> None:
        """Replace the overrides of `topics/NAME`, `brokers/N`, ... and notify all brokers."""
        await self._put(paths.config_entity(entity_path), znodes.encode_config(overrides))
        await self._announce_config(entity_path)

    async def update_config(self, entity_path: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Replace the overrides of an entity by the result of `change` and notify all brokers.

        No concurrent update is lost: `change` is called again if the overrides have changed in the meantime.
        Raises what `change` raises, and ZooKeeperError.
        """
        path = paths.config_entity(entity_path)
        is_written = False
        while not is_written:  # Each failure means that another writer has succeeded.
            is_written = await self._try_update(path, change)
        await self._announce_config(entity_path)

    async def config_entities(self, parent_path: str) -> list[str]:
        """Return the path elements of the entities below `users`, `users/NAME/clients`, ...; none if there is no
        node.
        """
        try:
            return await self._zookeeper.children(paths.config_entity(parent_path))
        except NoNodeError:
            return []

    async def config(self, entity_path: str) -> dict[str, str]:
        """Return the overrides of an entity; none if it has no node."""
        path = paths.config_entity(entity_path)
        try:
            data, _ = await self._zookeeper.get(path)
        except NoNodeError:
            return {}
        with invalid_znode_as_api_error():
            return await decoded(znodes.decode_config, path, data)

    async def _try_update(self, path: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> bool:
        """Return False if another writer changed the node first."""
        data, version = b"", None
        with contextlib.suppress(NoNodeError):
            data, stat = await self._zookeeper.get(path)
            version = stat.version
        with invalid_znode_as_api_error():
            current = await decoded(znodes.decode_config, path, data)
        changed = znodes.encode_config(change(current))
        try:
            if version is None:
                await self._zookeeper.create(path, changed, make_parents=True)
            else:
                await self._zookeeper.set(path, changed, version=version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            return False
        return True

    async def _announce_config(self, entity_path: str) -> None:
        await self._zookeeper.create(
            paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), sequence=True
        )

    async def _put(self, path: str, data: bytes) -> None:
        try:
            await self._zookeeper.set(path, data)
        except NoNodeError:
            try:
                await self._zookeeper.create(path, data, make_parents=True)
            except NodeExistsError:
                # Another writer created it first; the last write wins.
                await self._zookeeper.set(path, data)

    def _warn_of_shared_racks(self, name: str, assignment: Assignment) -> None:
        racks = self._racks()
        sharing = placement.partitions_sharing_racks(assignment, racks)
        if sharing:
            log.warning(
                "replicas of a partition are in the same rack topic=%s partitions=%s first=%s racks=%s brokers=%s",
                name,
                len(sharing),
                sharing[0],
                len({rack for rack in racks.values() if rack is not None}),
                len(racks),
            )

    def _new_id(self) -> UUID:
        """Return a random id whose text does not begin with a dash, which shells would treat as an option."""
        while True:
            candidate = UUID(int=self._random.getrandbits(128), version=4)
            is_reserved = candidate in {ZERO_UUID, _METADATA_TOPIC_ID}
            if not is_reserved and not uuid_text(candidate).startswith("-"):
                return candidate


def _exists(name: str) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


@contextlib.contextmanager
def invalid_znode_as_api_error() -> Iterator[None]:
    """Turn an invalid znode into an error that names it; Kafka has no error code for it."""
    try:
        yield
    except ValueError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
