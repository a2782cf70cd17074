"""How topics of a copy are created, and how two logs are compared."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kctl.admin.copy.comparing import Compared, Side, compare
from kctl.admin.copy.targets import plan_target
from kctl.admin.topics.offsets import OffsetRange
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.metadata import Partition, Topic
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster


def topic_of(name: str, partitions: int, replicas: int = 1, error: ErrorCode = ErrorCode.NONE) -> Topic:
    brokers = tuple(range(replicas))
    found = tuple(Partition(number, 0, 0, brokers, brokers, (), ErrorCode.NONE) for number in range(partitions))
    return Topic(name, UUID(int=1), False, found, error)


ABSENT = topic_of("copy", 0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@for_rows(
    "replicas, brokers, overrides, factor, configs, not_copied",
    [
        (3, 5, {"retention.ms": "7"}, 3, {"retention.ms": "7"}, ()),
        (3, 2, {}, 2, {}, ()),
        (3, 2, {"min.insync.replicas": "2"}, 2, {"min.insync.replicas": "2"}, ()),
        (3, 1, {"min.insync.replicas": "2"}, 1, {"min.insync.replicas": "1"}, ()),
        (1, 3, {"message.format.version": "2.8", "x": None}, 1, {}, ("message.format.version",)),
    ],
)
def test_topic_is_created_within_the_brokers_of_the_target(
    replicas: int, brokers: int, overrides: Any, factor: int, configs: Any, not_copied: Any
) -> None:
    target = plan_target(topic_of("orders", 4, replicas), "copy", ABSENT, overrides, brokers)
    assert target.new is not None
    assert (target.new.partitions, target.new.replication_factor, dict(target.new.configs)) == (4, factor, configs)
    assert (target.not_copied, target.has_fewer_replicas) == (not_copied, factor < replicas)


def test_topics_that_exist_need_as_many_partitions() -> None:
    equal = plan_target(topic_of("orders", 4), "copy", topic_of("copy", 4), {}, 1)
    assert (equal.new, equal.problem) == (None, "")
    other = plan_target(topic_of("orders", 4), "copy", topic_of("copy", 1), {}, 1)
    assert (other.new, other.problem) == (None, "copy has 1 partition, orders has 4")
    invalid = topic_of("copy", 0, error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "topic 'copy'" in plan_target(topic_of("orders", 4), "copy", invalid, {}, 1).problem


@for_rows(
    "source, target, compacted, expected",
    [
        ("abc", "abc", False, Compared(3)),
        ("", "", False, Compared(0)),
        ("abc", "ab", False, Compared(2, "the record at offset 2 of orders-0 is not in copy-0")),
        ("ab", "abb", False, Compared(2, "the record at offset 2 of copy-0 is not one of orders-0, or a second copy")),
        ("abc", "axc", False, Compared(1, "the records at offset 1 of orders-0 and 1 of copy-0 differ")),
        ("abcd", "__cd", False, Compared(2, "", "2 records that the target has deleted")),
        ("__cd", "abcd", False, Compared(2, "", "2 records that the source has deleted")),
        ("_bcd", "__cd", False, Compared(2, "", "1 record that the target has deleted")),
        ("__cd", "_bcd", False, Compared(2, "", "1 record that the source has deleted")),
        ("abcd", "____", False, Compared(0, "", "4 records that the target has deleted")),
        ("aab", "ab", True, Compared(2)),
        ("aab", "aA", True, Compared(2, "2 keys of orders-0 with another last value in copy-0")),
    ],
)
def test_logs_are_compared(source: str, target: str, compacted: bool, expected: Compared) -> None:
    """Each letter is a record, with the lower-case letter as its key; _ is one that was deleted."""
    with FakeCluster() as cluster:
        for name, letters in (("orders", source), ("copy", target)):
            (log,) = cluster.create(name)
            for letter in letters:
                log.append(build_batch([Record(0, 1, letter.lower().encode(), letter.encode(), ())]))
            log.start = letters.count("_")

        async def main() -> Compared:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                sides = [
                    Side(
                        client,
                        TopicPartition(name, 0),
                        OffsetRange(letters.count("_"), len(letters)),
                        IsolationLevel.READ_COMMITTED,
                        FetchLimits(),
                        may_begin_later="_" in letters,
                    )
                    for name, letters in (("orders", source), ("copy", target))
                ]
                return await compare(*sides, is_compacted=compacted, with_times=True)

        assert asyncio.run(main()) == expected
