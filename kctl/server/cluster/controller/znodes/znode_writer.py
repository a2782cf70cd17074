"""Writes znodes on behalf of the active controller; every write checks that its epoch is still current in ZooKeeper.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from kctl.errors import BadVersionError, NodeExistsError, NoNodeError
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import AlterStates, WriteStates
from kctl.server.cluster.controller.events import StatesAltered, StatesWritten
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import (
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SetData,
    ZnodeStat,
    ZooKeeper,
)

log = logging.getLogger(__name__)

_OPERATIONS_PER_MULTI = 400
"""Keeps a multi well below ZooKeeper's default frame limit of 1 MiB (jute.maxbuffer)."""


_States = Mapping[TopicPartition, LeaderAndIsr]


class ControllerMoved(Exception):
    """Another broker is the controller now."""


class ZnodeWriter:
    """Writes znodes on behalf of the active controller.  Methods raise ControllerMoved and ZooKeeper's errors."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.epoch_version = -1
        """ZooKeeper version of /controller_epoch when this controller was elected."""

    async def write_states(self, action: WriteStates) -> StatesWritten:
        """Create and change partition states; return the current state of those that another writer changed."""
        written: dict[TopicPartition, LeaderAndIsr] = {}
        conflicts: dict[TopicPartition, LeaderAndIsr] = {}
        topics: dict[str, list[TopicPartition]] = {}
        for topic_partition in action.created:
            topics.setdefault(topic_partition.topic, []).append(topic_partition)
        for topic, partitions in topics.items():
            await self._make_parents(topic, partitions)
            for topic_partition, current in await self._create_states(action, partitions):
                if current is not None:
                    (written if current is action.created[topic_partition] else conflicts)[topic_partition] = current
        for bundle in _bundles(action.changed):
            for topic_partition, (is_written, found) in (await self._change_states(bundle)).items():
                if found is not None:
                    (written if is_written else conflicts)[topic_partition] = found
        return StatesWritten(written, conflicts)

    async def alter_states(self, action: AlterStates) -> StatesAltered:
        """Change partition states on behalf of leaders; states that no longer exist are skipped."""
        written: dict[TopicPartition, LeaderAndIsr] = {}
        conflicts: dict[TopicPartition, LeaderAndIsr] = {}
        missing: list[TopicPartition] = []
        for bundle in _bundles(action.changed):
            for topic_partition, (is_written, found) in (await self._alter_states(bundle)).items():
                if found is None:
                    missing.append(topic_partition)
                else:
                    (written if is_written else conflicts)[topic_partition] = found
        return StatesAltered(written, conflicts, tuple(missing), action.outcome, action.token)

    async def _make_parents(self, topic: str, partitions: list[TopicPartition]) -> None:
        parents = [paths.topic_partitions(topic), *(paths.partition(topic, tp.partition) for tp in partitions)]
        try:
            for start in range(0, len(parents), _OPERATIONS_PER_MULTI):
                await self.multi([Create(p, None) for p in parents[start : start + _OPERATIONS_PER_MULTI]])
        except NodeExistsError:
            # Some may exist: a new partition of an existing topic, or an earlier controller stopped half-way.
            for path in parents:
                try:
                    await self.multi([Create(path, None)])
                except NodeExistsError:
                    continue

    async def _create_states(
        self, action: WriteStates, partitions: list[TopicPartition]
    ) -> list[tuple[TopicPartition, LeaderAndIsr | None]]:
        outcome: list[tuple[TopicPartition, LeaderAndIsr | None]] = []
        for start in range(0, len(partitions), _OPERATIONS_PER_MULTI):
            some = partitions[start : start + _OPERATIONS_PER_MULTI]
            creates: list[Operation] = [
                Create(paths.partition_state(*tp), znodes.encode_partition_state(action.created[tp])) for tp in some
            ]
            try:
                await self.multi(creates)
                outcome += [(tp, action.created[tp]) for tp in some]
            except NodeExistsError:
                for topic_partition, create in zip(some, creates, strict=True):
                    outcome.append((topic_partition, await self._create_state(action, topic_partition, create)))
        return outcome

    async def _create_state(
        self, action: WriteStates, topic_partition: TopicPartition, create: Operation
    ) -> LeaderAndIsr | None:
        try:
            await self.multi([create])
        except NodeExistsError:
            return await self._current_state(topic_partition)
        return action.created[topic_partition]

    async def _alter_states(self, requested: _States) -> dict[TopicPartition, tuple[bool, LeaderAndIsr | None]]:
        """As `_change_states`, but a missing node does not prevent the other writes."""
        try:
            return await self._change_states(requested)
        except NoNodeError:
            if len(requested) == 1:
                return dict.fromkeys(requested, (False, None))
        outcome: dict[TopicPartition, tuple[bool, LeaderAndIsr | None]] = {}
        for topic_partition, state in requested.items():
            outcome.update(await self._alter_states({topic_partition: state}))
        return outcome

    async def _change_states(self, requested: _States) -> dict[TopicPartition, tuple[bool, LeaderAndIsr | None]]:
        """For each partition, whether it was written, and its current state.

        Written in batches, because a failed broker changes thousands of partitions; one by one where another writer
        changed a state, which must not prevent the other writes.
        """
        try:
            stats = await self.multi([_change(topic_partition, state) for topic_partition, state in requested.items()])
        except BadVersionError:
            if len(requested) == 1:
                return {
                    topic_partition: (False, await self._current_state(topic_partition))
                    for topic_partition in requested
                }
            outcome: dict[TopicPartition, tuple[bool, LeaderAndIsr | None]] = {}
            for topic_partition, state in requested.items():
                outcome.update(await self._change_states({topic_partition: state}))
            return outcome
        return {
            topic_partition: (True, _written(state, stat))
            for (topic_partition, state), stat in zip(requested.items(), stats, strict=True)
        }

    async def _current_state(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the current state; None if the node does not exist or is invalid, in which case it is left
        unchanged.
        """
        path = paths.partition_state(*topic_partition)
        try:
            data, stat = await self._zookeeper.get(path)
            return znodes.decode_partition_state(path, data, stat.version)
        except NoNodeError:
            return None
        except ValueError as error:
            log.error("skipping partition with an invalid state partition=%s error=%s", topic_partition, error)
            return None

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic's states, then its assignment, configuration and deletion request.

        The latter are deleted in one transaction: a topic of the same name that is created as soon as the assignment is
        gone has a configuration of its own, and no request to delete it.
        """
        roots = (paths.topic(topic), paths.topic_config(topic), paths.delete_topic(topic))
        trees = [await self._tree(root) for root in roots]
        await self._delete([path for tree in trees for path in tree[:-1]])
        await self._delete([path for tree in trees for path in tree[-1:]])

    async def delete_tree(self, root: str) -> None:
        """Delete a node and all its descendants; a missing node is not an error."""
        await self._delete(await self._tree(root))

    async def _delete(self, node_paths: list[str]) -> None:
        for start in range(0, len(node_paths), _OPERATIONS_PER_MULTI):
            await self.multi([Delete(path) for path in node_paths[start : start + _OPERATIONS_PER_MULTI]])

    async def _tree(self, root: str) -> list[str]:
        """Return the node and all below it, children before parents; empty when it does not exist."""
        try:
            names = await self._zookeeper.children(root)
        except NoNodeError:
            return []
        return [path for name in names for path in await self._tree(f"{root}/{name}")] + [root]

    async def multi(self, operations: list[Operation]) -> list[str | ZnodeStat | bool]:
        """Perform a write that only the current controller may do.  Raises ControllerMoved or an operation's error."""
        check = Check(paths.CONTROLLER_EPOCH, self.epoch_version)
        try:
            return (await self._zookeeper.multi([check, *operations]))[1:]
        except BadVersionError as error:
            if error.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved from error
            raise

    async def set_up_features(self, *, are_supported: bool) -> None:
        """Create /feature, or change its status, as the first controller of an inter.broker.protocol.version does.

        From 2.7 on features are enabled and keep their levels; before, they are disabled and have none.  Kafka:
        KafkaController.maybeSetupFeatureVersioning (KIP-584).
        """
        disabled = znodes.Features(znodes.FEATURES_DISABLED)
        try:
            data, _ = await self._zookeeper.get(paths.FEATURE)
        except NoNodeError:
            created = znodes.Features() if are_supported else disabled
            await self.multi([Create(paths.FEATURE, znodes.encode_features(created))])
            return
        found = znodes.decode_features(paths.FEATURE, data)
        if are_supported and found.status != znodes.FEATURES_ENABLED:
            await self.multi([SetData(paths.FEATURE, znodes.encode_features(znodes.Features(levels=found.levels)))])
        elif not are_supported and found.status != znodes.FEATURES_DISABLED:
            await self.multi([SetData(paths.FEATURE, znodes.encode_features(disabled))])

    async def finish_requested_reassignments(self, remaining: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Leave these in /admin/reassign_partitions; delete the node when none remain."""
        path = paths.REASSIGN_PARTITIONS
        try:
            if remaining:
                await self.multi([SetData(path, znodes.encode_reassignment(remaining))])
            else:
                await self.delete_tree(path)
        except NoNodeError:
            return


def _bundles(states: _States) -> Iterator[_States]:
    changes = iter(states.items())
    while bundle := dict(islice(changes, _OPERATIONS_PER_MULTI)):
        yield bundle


def _change(topic_partition: TopicPartition, state: LeaderAndIsr) -> Operation:
    path = paths.partition_state(*topic_partition)
    return SetData(path, znodes.encode_partition_state(state), state.partition_epoch)


def _written(state: LeaderAndIsr, stat: OperationResult) -> LeaderAndIsr:
    assert isinstance(stat, ZnodeStat)
    return replace(state, partition_epoch=stat.version)
