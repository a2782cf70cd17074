"""Fetch versions 0 to 3: message formats 0 and 1, with the limits and errors of these versions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kctl.records.batch import crc_ok, iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.records.old_formats.legacy import build_messages
from kctl.server.handlers.fetch import FetchHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.fetching.fetch_session import FetchSessionCache
from kctl.server.replication.fetching.partition_reading import SOURCE_BYTES_MAX
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.partition import Partition
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import exchange

RECORDS = [Record(0, 1000 + i, b"k%d" % i, b"value %d" % i) for i in range(3)]
OLD_VERSIONS = pytest.mark.parametrize("version", range(4))


class NoIsrChanges:
    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """Ignores followers."""


def play(
    folder: Path, scene: Callable[[Disk], Awaitable[None]], *, properties: Mapping[str, str] | None = None
) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, folder, properties=properties)
        try:
            await scene(disk)
        finally:
            disk.close()

    simulate(main, seed=1)


def append(
    disk: Disk, partition: Partition, records: list[Record] = RECORDS, codec: Codec = Codec.NONE, **options: Any
) -> None:
    batch = bytearray(build_batch(records, codec=codec, **options))
    disk.replicas.append(partition, memoryview(batch), required_acks=1, request_version=9)
    disk.replicas.partition_moved(partition.topic_partition)


def append_marker(disk: Disk, partition: Partition) -> None:
    marker = bytearray(
        build_end_transaction_marker(
            EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=5
        )
    )
    disk.replicas.append(partition, memoryview(marker), required_acks=1, request_version=9, from_client=False)
    disk.replicas.partition_moved(partition.topic_partition)


async def fetch(
    disk: Disk,
    version: int,
    positions: Mapping[str, int],
    *,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    replica_id: int = -1,
) -> dict[str, PartitionData]:
    handler = FetchHandler(
        disk.replicas,
        disk.replicas._fetch_purgatory,
        FetchSessionCache(10),
        NoIsrChanges(),  # type: ignore[arg-type]
        throttles=ReplicationThrottles(0, disk.configs),
        selector=ReplicaSelector(disk.metadata, None),
        clock=disk.clock,
        random=random.Random(1),
        work=RecordWork(),
        fetch_max_bytes=57_671_680,
        metadata=MetadataCache(),
    )
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)],
            )
            for topic, offset in positions.items()
        ],
    )
    response = await exchange(handler.handle, request, version)
    return {topic.topic: topic.partitions[0] for topic in response.responses}


def data_of(reply: PartitionData) -> memoryview | bytes:
    assert isinstance(reply.records, (memoryview, bytes))
    return reply.records


def read(reply: PartitionData) -> list[Record]:
    assert reply.error_code == ErrorCode.NONE
    data = bytes(data_of(reply))
    headers = list(iterate_batches(data))
    assert all(crc_ok(data, header) for header in headers)
    return [record for header in headers for record in iterate_records(data, header)]


@OLD_VERSIONS
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_fetch_versions_get_their_message_format(tmp_path: Path, version: int, codec: Codec) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append(disk, partition, codec=codec)
        append(disk, partition, codec=codec)
        reply = (await fetch(disk, version, {"a": 0}))["a"]
        expected = [record._replace(offset=i) for i, record in enumerate(RECORDS * 2)]
        if version < 2:
            expected = [record._replace(timestamp=-1) for record in expected]
        assert read(reply) == expected
        assert {header.magic for header in iterate_batches(data_of(reply))} == {0 if version < 2 else 1}
        assert {header.codec for header in iterate_batches(data_of(reply))} == {codec}
        assert reply.high_watermark == 6

    play(tmp_path, scene)


@OLD_VERSIONS
def test_reading_starts_at_the_requested_offset(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        append(disk, disk.lead("a"))
        results = await fetch(disk, version, {"a": 2})
        assert [record.offset for record in read(results["a"])] == [2]
        results = await fetch(disk, version, {"a": 3})
        assert read(results["a"]) == []
        results = await fetch(disk, version, {"a": 4})
        assert results["a"].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    play(tmp_path, scene)


@OLD_VERSIONS
def test_a_batch_above_the_limit_is_announced_up_to_version_2_and_sent_whole_from_3_on(
    tmp_path: Path, version: int
) -> None:
    async def scene(disk: Disk) -> None:
        append(disk, disk.lead("a"), [Record(0, 5, None, b"v" * 500)])
        for limit in (1, 20, 100):
            reply = (await fetch(disk, version, {"a": 0}, partition_max_bytes=limit))["a"]
            if version == 3:
                assert len(read(reply)) == 1
                continue
            assert reply.error_code == ErrorCode.NONE
            assert 0 < len(reply.records or b"") <= max(limit, 12)
            assert read(reply) == [], "a message that is cut off"

    play(tmp_path, scene)


@OLD_VERSIONS
def test_the_second_partition_gets_nothing_rather_than_a_part_of_a_batch(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        append(disk, disk.lead("a"), [Record(0, 5, None, b"v" * (SOURCE_BYTES_MAX - 100))])
        append(disk, disk.lead("b"), [Record(0, 5, None, b"v" * 500)])
        results = await fetch(disk, version, {"a": 0, "b": 0})
        assert (len(read(results["a"])), results["b"].records) == (1, b"")
        results = await fetch(disk, version, {"b": 0, "a": 0})
        assert (len(read(results["b"])), results["a"].records) == (1, b"")

    play(tmp_path, scene)


@OLD_VERSIONS
def test_one_response_converts_a_bounded_number_of_bytes(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        for _ in range(8):
            append(disk, partition, [Record(0, 5, None, b"v" * 100_000)])
        offset, rounds = 0, 0
        while offset < 8:
            offset = read((await fetch(disk, version, {"a": offset}))["a"])[-1].offset + 1
            rounds += 1
        assert rounds == 2

    play(tmp_path, scene)


@OLD_VERSIONS
def test_transaction_markers_are_skipped(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append(disk, partition, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        append_marker(disk, partition)
        partition.log.roll(disk.clock.now_ms())
        append_marker(disk, partition)
        append(disk, partition)
        results = await fetch(disk, version, {"a": 3})
        assert [record.offset for record in read(results["a"])] == [5, 6, 7]
        results = await fetch(disk, version, {"a": 0})
        assert [record.offset for record in read(results["a"])][:3] == [0, 1, 2]

    play(tmp_path, scene)


@OLD_VERSIONS
def test_a_fetch_waits_when_only_markers_follow(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append_marker(disk, partition)
        started = disk.loop.time()
        assert read((await fetch(disk, version, {"a": 0}, max_wait_ms=500))["a"]) == []
        assert disk.loop.time() - started == pytest.approx(0.5, abs=0.1)
        waiting = asyncio.ensure_future(fetch(disk, version, {"a": 0}, max_wait_ms=60_000))
        await asyncio.sleep(1)
        append_marker(disk, partition)
        await asyncio.sleep(1)
        assert not waiting.done()
        append(disk, partition)
        assert [record.offset for record in read((await waiting)["a"])] == [2, 3, 4]

    play(tmp_path, scene)


@OLD_VERSIONS
@pytest.mark.parametrize("min_bytes", [0, -1])
@pytest.mark.parametrize("has_markers", [False, True])
def test_a_fetch_without_min_bytes_does_not_wait(
    tmp_path: Path, version: int, min_bytes: int, has_markers: bool
) -> None:
    """Such a fetch once read repeatedly without end, without yielding to the event loop."""

    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        if has_markers:
            append_marker(disk, partition)
        started = disk.loop.time()
        reply = await fetch(disk, version, {"a": 0}, max_wait_ms=2**31 - 1, min_bytes=min_bytes)
        assert read(reply["a"]) == []
        assert disk.loop.time() - started < 1

    play(tmp_path, scene)


@OLD_VERSIONS
def test_a_fetch_waits_for_records_after_markers_that_are_enough_bytes(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        waiting = asyncio.ensure_future(fetch(disk, version, {"a": 0}, max_wait_ms=60_000, min_bytes=100))
        for _ in range(3):
            append_marker(disk, partition)
            await asyncio.sleep(1)
        assert not waiting.done()
        append(disk, partition)
        assert [record.offset for record in read((await waiting)["a"])] == [3, 4, 5]

    play(tmp_path, scene)


@OLD_VERSIONS
def test_zstd_is_refused_after_earlier_records_were_returned(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append(disk, partition)
        append(disk, partition, codec=Codec.ZSTD)
        results = await fetch(disk, version, {"a": 0})
        assert [record.offset for record in read(results["a"])] == [0, 1, 2]
        results = await fetch(disk, version, {"a": 3})
        assert results["a"].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    play(tmp_path, scene)


@OLD_VERSIONS
def test_topics_can_refuse_down_conversion_for_consumers_but_not_for_followers(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        append(disk, disk.lead("a"))
        results = await fetch(disk, version, {"a": 0})
        assert results["a"].error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (results["a"].high_watermark, results["a"].records) == (-1, b"")
        results = await fetch(disk, version, {"a": 0}, replica_id=7)
        assert len(read(results["a"])) == 3

    play(tmp_path, scene, properties={"log.message.downconversion.enable": "false"})


@OLD_VERSIONS
def test_a_topic_with_zstd_compression_refuses_old_consumers(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        disk.lead("a")
        results = await fetch(disk, version, {"a": 0})
        assert results["a"].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    play(tmp_path, scene, properties={"compression.type": "zstd"})


@OLD_VERSIONS
def test_old_messages_are_returned_unconverted_where_the_version_allows(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        old = [Record(i, 1000 + i, b"k", b"v%d" % i) for i in range(4)]
        stored = build_messages(old[:2], magic=0, codec=Codec.LZ4) + build_messages(old[2:], magic=1, codec=Codec.GZIP)
        partition.log.append_as_follower(stored)
        partition.advance_high_watermark(0)
        reply = (await fetch(disk, version, {"a": 0}))["a"]
        expected = [r._replace(timestamp=-1) if r.offset < 2 or version < 2 else r for r in old]
        assert read(reply) == expected
        if version >= 2:
            assert reply.records == stored

    play(tmp_path, scene)


@OLD_VERSIONS
def test_damage_in_the_log_is_an_error_of_its_partition(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append(disk, partition)
        append(disk, disk.lead("b"))
        partition.log.active_segment.file.write_at(61, b"\x7f\x7f\x7f")
        results = await fetch(disk, version, {"a": 0, "b": 0})
        assert results["a"].error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(read(results["b"])) == 3

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_old_clients_get_another_error_for_a_failed_disk(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        append(disk, partition)
        partition.log.log_directory.fail(OSError("gone"))
        results = await fetch(disk, version, {"a": 0})
        assert results["a"].error_code == code

    play(tmp_path, scene)
