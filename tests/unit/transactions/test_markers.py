"""Markers: sent to each partition leader until written, and written only when allowed."""

from __future__ import annotations

import asyncio

import pytest

from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, NO_LEADER, ProducerIdAndEpoch, TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.control import ControlType, parse_end_transaction_marker
from kctl.records.header import parse_header
from kctl.server.coordination.transactions.markers import GONE_AFTER_MS, MarkerJob
from kctl.server.coordination.transactions.partition_markers import Marker, PartitionMarkers
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.transactions.hosting import Host, MarkedPartitions, ReportedGroups
from tests.unit.transactions.world import T0, T1, U0

PRODUCER = ProducerIdAndEpoch(7, 2)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 3)

MAY_PASS = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class Sending:
    """One job in progress."""

    def __init__(self, host: Host, *partitions: TopicPartition, producer: ProducerIdAndEpoch = PRODUCER) -> None:
        self.written: list[TopicPartition] = []
        self.job = MarkerJob(
            "id",
            producer,
            committed=True,
            coordinator_epoch=4,
            partitions=partitions,
            on_written=self.written.extend,
        )
        host.markers.send(self.job)


def test_partition_led_here_is_written_directly() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        sending = Sending(host, T0, T1)
        await asyncio.sleep(0.001)
        assert host.partitions.marked == sending.written == [T0, T1]
        assert sending.job.is_over
        assert host.others.requests == []
        await host.markers.close()

    simulate(main, seed=1)


def test_markers_for_other_leaders_are_sent_in_the_inter_broker_version() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: 1, T1: 1, U0: 2}
        sending = Sending(host, T0, T1, U0)
        await asyncio.sleep(0.001)
        assert sorted(sending.written) == [T0, T1, U0]
        assert [(broker, version) for broker, _, version in host.others.requests] == [(1, 1), (2, 1)]
        (marker,) = host.others.requests[0][1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 4)
        assert marker.transaction_result is True
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0, 1])]
        await host.markers.close()

    simulate(main, seed=1)


def test_one_marker_request_per_broker_is_in_flight_and_later_markers_are_batched() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: 1, T1: 1, U0: 1}
        host.others.gate = asyncio.Event()
        jobs = [Sending(host, T0, producer=ProducerIdAndEpoch(1, 0))]
        await asyncio.sleep(0.001)
        jobs += [Sending(host, tp, producer=ProducerIdAndEpoch(2 + tp.partition, 0)) for tp in (T1, U0)]
        await asyncio.sleep(0.001)
        assert len(host.others.requests) == 1
        host.others.gate.set()
        await asyncio.sleep(0.001)
        assert [len(request.markers) for _, request, _ in host.others.requests] == [1, 2]
        assert all(job.job.is_over for job in jobs)
        assert host.others.connects == 1
        await host.markers.close()

    simulate(main, seed=1)


@for_rows("error", MAY_PASS)
@for_rows("leader", [0, 1])
def test_retriable_error_is_retried(error: ErrorCode, leader: int) -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: leader}
        host.partitions.errors = {T0: error}
        host.others.responses = [error] * 3
        sending = Sending(host, T0)
        await asyncio.sleep(0.25)
        assert (sending.written, host.markers.waiting) == ([], 1)
        host.partitions.errors = {}
        await asyncio.sleep(0.2)
        assert (sending.written, host.markers.waiting) == ([T0], 0)
        await host.markers.close()

    simulate(main, seed=1)


def test_only_failed_partitions_are_retried() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.partitions.errors = {T1: ErrorCode.NOT_ENOUGH_REPLICAS}
        sending = Sending(host, T0, T1)
        await asyncio.sleep(0.05)
        assert sending.written == [T0]
        host.partitions.errors = {}
        await asyncio.sleep(0.2)
        assert host.partitions.marked == sending.written == [T0, T1]
        await host.markers.close()

    simulate(main, seed=1)


def test_unreachable_broker_is_retried_over_a_new_connection() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: 1}
        host.others.responses = [ConnectionLost("gone"), ConnectionLost("gone")]
        sending = Sending(host, T0)
        await asyncio.sleep(0.5)
        assert sending.written == [T0]
        assert host.others.connects == 3
        await host.markers.close()

    simulate(main, seed=1)


def test_marker_is_sent_to_a_moved_leader() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: NO_LEADER}
        sending = Sending(host, T0)
        await asyncio.sleep(0.25)
        host.leaders.others = {T0: 1}
        host.others.responses = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await asyncio.sleep(0.06)
        host.leaders.others = {T0: 2}
        await asyncio.sleep(0.2)
        assert [broker for broker, _, _ in host.others.requests] == [1, 2]
        assert sending.written == [T0]
        await host.markers.close()

    simulate(main, seed=1)


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_partition_that_cannot_store_markers_needs_none(error: ErrorCode) -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.partitions.errors = {T0: error}
        sending = Sending(host, T0)
        await asyncio.sleep(0.001)
        assert sending.written == [T0]
        await host.markers.close()

    simulate(main, seed=1)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_markers_of_a_fenced_coordinator_are_dropped(error: ErrorCode) -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T1: NO_LEADER}
        host.partitions.errors = {T0: error}
        sending = Sending(host, T0, T1)
        await asyncio.sleep(0.05)
        host.partitions.errors = {}
        host.leaders.others = {}
        await asyncio.sleep(1)
        assert sending.written == host.partitions.marked == []
        await host.markers.close()

    simulate(main, seed=1)


class TestDeletedPartition:
    def test_needs_no_marker_once_its_deletion_is_known(self) -> None:
        async def main(loop: SimLoop) -> None:
            host = Host(loop)
            host.leaders.others = {T0: NO_LEADER, T1: NO_LEADER}
            sending = Sending(host, T0, T1)
            host.markers.partitions_deleted([T0, U0])
            assert sending.written == [T0]
            await host.markers.close()

        simulate(main, seed=1)

    def test_counts_as_deleted_after_staying_unknown(self) -> None:
        async def main(loop: SimLoop) -> None:
            host = Host(loop)
            host.leaders.others = {T0: None}
            sending = Sending(host, T0)
            await asyncio.sleep(GONE_AFTER_MS / 1000 - 1)
            assert sending.written == []
            await asyncio.sleep(2)
            assert sending.written == [T0]
            await host.markers.close()

        simulate(main, seed=1)

    def test_does_not_count_as_deleted_before_metadata_arrived(self) -> None:
        """A broker that has just started coordinates before it has the metadata of all partitions."""

        async def main(loop: SimLoop) -> None:
            host = Host(loop)
            host.leaders.others = {T0: None}
            host.leaders.is_informed = False
            sending = Sending(host, T0)
            await asyncio.sleep(10 * GONE_AFTER_MS / 1000)
            assert sending.written == []
            host.leaders.is_informed = True
            host.leaders.others = {}
            await asyncio.sleep(0.2)
            assert host.partitions.marked == sending.written == [T0]
            await host.markers.close()

        simulate(main, seed=1)

    def test_counts_as_deleted_only_after_being_unknown_without_interruption(self) -> None:
        async def main(loop: SimLoop) -> None:
            host = Host(loop)
            sending = Sending(host, T1)  # no request is left waiting
            host.leaders.others = {T0: None}
            sending = Sending(host, T0)
            await asyncio.sleep(GONE_AFTER_MS / 1000 - 1)
            host.leaders.others = {T0: NO_LEADER}
            await asyncio.sleep(1)
            host.leaders.others = {T0: None}
            await asyncio.sleep(GONE_AFTER_MS / 1000 - 1)
            assert sending.written == []
            await host.markers.close()

        simulate(main, seed=1)


def test_no_marker_is_sent_after_stop() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.leaders.others = {T0: NO_LEADER, T1: 1}
        host.others.gate = asyncio.Event()
        sending = Sending(host, T0, T1)
        await asyncio.sleep(0.01)
        await host.markers.close()
        host.others.gate.set()
        host.leaders.others = {}
        await asyncio.sleep(1)
        assert sending.written == host.partitions.marked == []

    simulate(main, seed=1)


class TestAtTheLeader:
    """WriteTxnMarkers, called through its handler."""

    def test_marker_is_one_control_record_of_the_producer(self) -> None:
        async def main(loop: SimLoop) -> None:
            partitions, groups = MarkedPartitions(), ReportedGroups()
            markers = PartitionMarkers(partitions, groups, SimClock(loop.time), timeout_ms=1)
            outcomes = await markers.write([Marker(PRODUCER, False, 4, (T0,)), Marker(PRODUCER, True, 4, (T1,))])
            assert outcomes == [{T0: ErrorCode.NONE}, {T1: ErrorCode.NONE}]
            kinds = []
            for _, batch in partitions.batches:
                header = parse_header(batch)
                assert header.is_control
                assert header.is_transactional
                assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
                marker = parse_end_transaction_marker(next(iterate_records(batch)))
                assert marker is not None
                assert marker.coordinator_epoch == 4
                kinds.append(marker.type)
            assert kinds == [ControlType.ABORT, ControlType.COMMIT]
            assert groups.reported == []

        simulate(main, seed=1)

    def test_unknown_partition_is_an_error_and_does_not_block_others(self) -> None:
        async def main(loop: SimLoop) -> None:
            partitions = MarkedPartitions()
            partitions.absent = {T0}
            partitions.errors = {U0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
            markers = PartitionMarkers(partitions, ReportedGroups(), SimClock(loop.time), timeout_ms=1)
            (outcome,) = await markers.write([Marker(PRODUCER, True, 4, (T0, T1, U0))])
            assert outcome == {
                T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                T1: ErrorCode.NONE,
                U0: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }

        simulate(main, seed=1)

    def test_response_waits_until_the_markers_are_replicated(self) -> None:
        async def main(loop: SimLoop) -> None:
            partitions, groups = MarkedPartitions(), ReportedGroups()
            partitions.holds = True
            markers = PartitionMarkers(partitions, groups, SimClock(loop.time), timeout_ms=1)
            writing = asyncio.ensure_future(markers.write([Marker(PRODUCER, True, 4, (T0, OFFSETS))]))
            await asyncio.sleep(0.01)
            assert not writing.done()
            assert groups.reported == []
            partitions.release()
            assert await writing == [{T0: ErrorCode.NONE, OFFSETS: ErrorCode.NONE}]
            await asyncio.sleep(0)
            assert groups.reported == [(3, 7, True)]

        simulate(main, seed=1)

    def test_group_coordinator_ignores_markers_that_are_not_replicated(self) -> None:
        async def main(loop: SimLoop) -> None:
            partitions, groups = MarkedPartitions(), ReportedGroups()
            partitions.holds = True
            markers = PartitionMarkers(partitions, groups, SimClock(loop.time), timeout_ms=1)
            writing = asyncio.ensure_future(markers.write([Marker(PRODUCER, True, 4, (OFFSETS,))]))
            await asyncio.sleep(0.01)
            partitions.release(ErrorCode.REQUEST_TIMED_OUT)
            assert await writing == [{OFFSETS: ErrorCode.REQUEST_TIMED_OUT}]
            await asyncio.sleep(0.01)
            assert groups.reported == []

        simulate(main, seed=1)
