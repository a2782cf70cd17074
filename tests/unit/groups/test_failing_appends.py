"""If a record cannot be built or appended, the request gets an error and nothing stays staged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.groups.actions import CommitOutcome, GroupState
from kctl.server.coordination.groups.events import CommitRequest, TransactionalCommit
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled
from tests.unit.groups.world import protocols

T0 = TopicPartition("t", 0)
PRODUCER = ProducerIdAndEpoch(7, 0)
OUT_OF_RANGE = 1 << 63
"""One more than a record can hold, so that building the batch fails."""


class FailingLog(MemoryOffsetsLog):
    """Makes the next append fail as `failure` names."""

    failure = ""

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        failure, self.failure = self.failure, ""
        if not failure or required_acks != ALL_IN_SYNC:
            return super().append(partition, batch, required_acks=required_acks, timeout_ms=timeout_ms)
        if failure == "raises":
            raise RuntimeError("the append failed")
        future: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        if failure == "cancelled later":
            future.cancel()
        else:
            future.set_exception(RuntimeError("the append failed later"))
        return future


EVERY_WAY = pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("raises", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("fails later", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("cancelled later", ErrorCode.NOT_COORDINATOR),
    ],
)


def run(play: Callable[[Host, FailingLog], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        offsets_log = FailingLog()
        host = await Host(loop, offsets_log).start()
        await play(host, offsets_log)
        await host.coordinator.stop()

    simulate(main, seed=1)


def commit(host: Host, offset: int = 5) -> Awaitable[CommitOutcome]:
    offsets = {T0: OffsetAndMetadata(offset, commit_timestamp_ms=host.clock.now_ms())}
    return settled(host.coordinator.commit("g", CommitRequest(offsets=offsets)))


def commit_in_transaction(
    host: Host, offset: int = 5, producer: ProducerIdAndEpoch = PRODUCER
) -> Awaitable[CommitOutcome]:
    offsets = {T0: OffsetAndMetadata(offset, commit_timestamp_ms=host.clock.now_ms())}
    return settled(host.coordinator.commit_in_transaction("g", TransactionalCommit(producer=producer, offsets=offsets)))


def stable_error(host: Host) -> ErrorCode:
    """The error of OffsetFetch with require_stable for the partition."""
    return host.coordinator.committed("g", [T0], require_stable=True)[1][T0][0]


@EVERY_WAY
def test_commit_whose_append_fails_is_not_staged(failure: str, error: ErrorCode) -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        offsets_log.failure = failure
        assert await commit(host) == {T0: error}
        assert stable_error(host) is ErrorCode.NONE
        assert await commit(host, 6) == {T0: ErrorCode.NONE}

    run(play)


@pytest.mark.parametrize("how", [commit, commit_in_transaction])
def test_commit_whose_record_cannot_be_built_is_not_staged(
    how: Callable[[Host, int], Awaitable[CommitOutcome]],
) -> None:
    async def play(host: Host, _offsets_log: FailingLog) -> None:
        assert await how(host, OUT_OF_RANGE) == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert stable_error(host) is ErrorCode.NONE

    run(play)


@EVERY_WAY
def test_transactional_commit_whose_append_fails_is_not_staged(failure: str, error: ErrorCode) -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        offsets_log.failure = failure
        assert await commit_in_transaction(host) == {T0: error}
        assert stable_error(host) is ErrorCode.NONE

    run(play)


def test_refused_transactional_commits_keep_no_producer() -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        offsets_log.error = ErrorCode.INVALID_PRODUCER_EPOCH
        for producer_id in range(50):
            await commit_in_transaction(host, producer=ProducerIdAndEpoch(producer_id, 0))
        assert open_producers(host) == 0
        offsets_log.error = ErrorCode.NONE
        await commit_in_transaction(host)
        assert open_producers(host) == 1

    run(play)


def open_producers(host: Host) -> int:
    """The number of producers of which the coordinator expects a marker."""
    opened = host.coordinator._runner._transactions.values()
    return sum(len(transactions._groups) for transactions in opened)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (ProducerIdAndEpoch(-1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdAndEpoch(7, -1), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_transactional_commit_without_a_producer_is_refused_before_anything_is_staged(
    producer: ProducerIdAndEpoch, error: ErrorCode
) -> None:
    async def play(host: Host, _offsets_log: FailingLog) -> None:
        assert await commit_in_transaction(host, producer=producer) == {T0: error}
        assert stable_error(host) is ErrorCode.NONE

    run(play)


@EVERY_WAY
def test_assignment_with_a_failed_append_gets_a_response_and_the_group_rebalances(
    failure: str, error: ErrorCode
) -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        joined = await settled(host.join())
        offsets_log.failure = failure
        synced = await settled(host.sync("g", joined.member_id, joined.generation, {joined.member_id: b"p0"}))
        assert synced.error is error
        again = await settled(host.join(member_id=joined.member_id))
        synced = await settled(host.sync("g", again.member_id, again.generation, {again.member_id: b"p0"}))
        assert synced.error is ErrorCode.NONE
        assert synced.assignment == b"p0"

    run(play)


@EVERY_WAY
def test_static_member_whose_append_fails_gets_a_response(failure: str, error: ErrorCode) -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        joined = await settled(host.join(group_instance_id="i"))
        await settled(host.sync("g", joined.member_id, joined.generation, {joined.member_id: b"p0"}))
        offsets_log.failure = failure
        assert (await settled(host.join(group_instance_id="i"))).error is error
        assert (await settled(host.join(group_instance_id="i"))).error is ErrorCode.NONE

    run(play)


@EVERY_WAY
def test_group_becomes_empty_although_the_append_failed(failure: str, error: ErrorCode) -> None:
    async def play(host: Host, offsets_log: FailingLog) -> None:
        await host.stable()
        offsets_log.failure = failure
        await asyncio.sleep(11)  # Virtual time: the session of the only member ends.
        assert host.coordinator.describe("g")[1].state is GroupState.EMPTY
        assert (await host.stable()).error is ErrorCode.NONE

    run(play)


def test_overlong_client_id_is_cut_in_the_member_id() -> None:
    async def play(host: Host, _offsets_log: FailingLog) -> None:
        joined = await settled(host.join(client_id="é" * 16_383, protocols=protocols("range")))
        assert joined.error is ErrorCode.NONE
        assert len(joined.member_id.encode()) <= 32_767
        synced = await settled(host.sync("g", joined.member_id, joined.generation, {joined.member_id: b"p0"}))
        assert synced.error is ErrorCode.NONE

    run(play)


def test_failing_expiry_does_not_stop_later_ones() -> None:
    async def play(host: Host, _offsets_log: FailingLog) -> None:
        await commit(host)
        looks: list[None] = []

        def look() -> None:
            looks.append(None)
            raise RuntimeError("the look failed")

        host.coordinator._checks.every(1_000, look)
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        await asyncio.sleep(3.5)
        assert len(looks) == len(failures) == 3

    run(play)
