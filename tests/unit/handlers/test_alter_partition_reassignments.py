"""AlterPartitionReassignments: parsing of the request."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.server.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from tests.rows import for_rows
from tests.unit.handlers.world import World, exchange, play


@for_rows(
    "targets, code",
    [
        (([1, 0], [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((None, [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (([9], None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
@for_rows("is_topic_named_twice", [False, True])
def test_the_last_entry_for_a_partition_wins(
    targets: Sequence[list[int] | None], code: ErrorCode, is_topic_named_twice: bool
) -> None:
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas) for replicas in targets]
    parts = [[partition] for partition in partitions] if is_topic_named_twice else [partitions]
    topics = [ReassignableTopic(name="a", partitions=part) for part in parts]
    request = AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics)

    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        handler = AlterPartitionReassignmentsHandler(world.controller)
        response = await exchange(handler.handle, request, 0)
        outcomes = [
            (topic.name, partition.error_code) for topic in response.responses for partition in topic.partitions
        ]
        assert outcomes == [("a", code)]
        assert (await world.topics.assignment("a")).replicas == {0: (0, 1)}

    play(scene, others=1)


def test_the_number_of_replicas_changes_only_if_that_is_allowed() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        handler = AlterPartitionReassignmentsHandler(world.controller)
        for replicas, is_allowed, version, code in (
            ([0], False, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
            ([0, 1, 2], False, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
            ([1, 2], False, 1, ErrorCode.NONE),
            # The replicas that are being removed do not count.
            ([1], False, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
            ([0, 2], False, 1, ErrorCode.NONE),
            ([1], True, 1, ErrorCode.NONE),
            ([0, 1, 2], True, 0, ErrorCode.NONE),
        ):
            partition = ReassignablePartition(partition_index=0, replicas=replicas)
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name="a", partitions=[partition])],
                allow_replication_factor_change=is_allowed,
            )
            response = await exchange(handler.handle, request, version)
            assert response.allow_replication_factor_change == is_allowed
            assert response.responses[0].partitions[0].error_code == code, (replicas, is_allowed)

    play(scene, others=2)
