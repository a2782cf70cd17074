"""Clients that create groups, members, offsets, transactional ids, producers or fetch sessions without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import BatchHeader, Record, parse_header
from kctl.server.coordination.groups import coordinator as groups
from kctl.server.coordination.groups.actions import CommitOutcome, JoinOutcome
from kctl.server.coordination.groups.coordinator import MEMBER_METADATA_BYTES_MAX, MEMBER_PROTOCOLS_MAX
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.group import ProtocolSupport
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.rules import joining
from kctl.server.coordination.replies import Reply
from kctl.server.coordination.transactions import coordinator as transactions
from kctl.server.coordination.transactions import step as transaction_step
from kctl.server.replication.fetching import fetch_session
from kctl.server.replication.fetching.fetch_session import FetchPosition, FetchSessionCache
from kctl.storage.state import producer_state
from kctl.storage.state.producer_state import ProducerState
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import BATCH_BYTES_MAX, Host, settled
from tests.unit.transactions.hosting import Host as TransactionHost


def error_of(reply: Reply[JoinOutcome]) -> ErrorCode | None:
    """The error of a join; None while it waits for a rebalance."""
    return None if isinstance(reply, asyncio.Future) else reply.error


def commit(host: Host, group_id: str, *partitions: int) -> Reply[CommitOutcome]:
    offsets = {TopicPartition("t", index): OffsetAndMetadata(5) for index in partitions}
    return host.coordinator.commit(group_id, CommitRequest(offsets=offsets))


def test_groups_over_the_bound_are_refused_and_known_groups_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        for group_id in ("a", "b"):
            assert set((await settled(commit(host, group_id, 0))).values()) == {ErrorCode.NONE}
        assert set((await settled(commit(host, "c", 0))).values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert error_of(host.join("c")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert set((await settled(commit(host, "a", 1))).values()) == {ErrorCode.NONE}
        assert await host.coordinator.delete("a") is ErrorCode.NONE
        assert set((await settled(commit(host, "c", 0))).values()) == {ErrorCode.NONE}

    simulate(main, seed=1)


def member(number: int, *, is_static: bool) -> dict[str, Any]:
    if is_static:
        return {"group_instance_id": f"instance-{number}"}
    return {"requires_known_member_id": True}


@pytest.mark.parametrize("is_static", [False, True])
def test_members_over_the_bound_are_refused_also_before_they_join_with_their_id(
    monkeypatch: pytest.MonkeyPatch, is_static: bool
) -> None:
    monkeypatch.setattr(joining, "GROUP_MEMBERS_MAX", 3)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        errors = [error_of(host.join(**member(number, is_static=is_static))) for number in range(5)]
        accepted = None if is_static else ErrorCode.MEMBER_ID_REQUIRED
        assert errors == [accepted] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
        await asyncio.sleep(120)
        assert error_of(host.join(**member(7, is_static=is_static))) == accepted, "sessions have ended"

    simulate(main, seed=1)


def test_a_member_with_more_metadata_than_a_record_may_have_is_refused() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        metadata = bytes(MEMBER_METADATA_BYTES_MAX)
        assert error_of(host.join(protocols=(("range", metadata),))) is ErrorCode.INVALID_REQUEST
        assert (await host.coordinator.groups())[1] == []

    simulate(main, seed=1)


def test_a_member_with_too_many_protocols_is_refused() -> None:
    """Each member votes for one of them: a thousand members with 13,000 each would hold the event loop for a second."""

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        protocols = tuple((f"p{number}", b"") for number in range(MEMBER_PROTOCOLS_MAX + 1))
        assert error_of(host.join(protocols=protocols)) is ErrorCode.INVALID_REQUEST
        assert error_of(host.join(protocols=protocols[1:])) is None

    simulate(main, seed=1)


def test_the_metadata_of_all_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_METADATA_BYTES_MAX", 10_000)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        errors = [
            error_of(host.join(f"g{number}", session_timeout_ms=6_000, protocols=(("range", bytes(3_000)),)))
            for number in range(3)
        ]
        assert errors == [None, None, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await asyncio.sleep(600)
        assert host.coordinator._runner.metadata_bytes == 0, "sessions have ended"
        assert error_of(host.join("g9", protocols=(("range", bytes(3_000)),))) is None

    simulate(main, seed=1)


def test_ids_of_members_that_have_not_joined_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id repeats the client's id of up to 32 KB, and is kept for the session timeout of up to 30 minutes."""
    monkeypatch.setattr(groups, "MEMBERS_METADATA_BYTES_MAX", 100_000)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        options: dict[str, Any] = {"requires_known_member_id": True, "client_id": "c" * 30_000}
        errors = [error_of(host.join(f"g{number}", **options)) for number in range(4)]
        assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await asyncio.sleep(60)
        assert host.coordinator._runner.metadata_bytes == 0, "sessions have ended"
        assert error_of(host.join("g9", **options)) is ErrorCode.MEMBER_ID_REQUIRED

    simulate(main, seed=1)


def test_a_generation_that_is_too_large_for_the_log_is_refused_before_it_is_encoded() -> None:
    """Encoding the generation of 1,000 members with 42 KB each took 300 ms."""

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        half = bytes(BATCH_BYTES_MAX // 2 + 1)
        joined = await settled(host.join(protocols=(("range", half),)))
        synced = await settled(host.sync("g", joined.member_id, joined.generation, {joined.member_id: half}))
        assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert host.log.acks == []
        joined = await settled(host.join(member_id=joined.member_id, protocols=(("range", half),)))
        synced = await settled(host.sync("g", joined.member_id, joined.generation, {joined.member_id: b"p0"}))
        assert synced.error is ErrorCode.NONE

    simulate(main, seed=1)


def test_a_group_forgets_the_protocols_of_members_that_have_left() -> None:
    support = ProtocolSupport()
    support.add((("range", b"m"),))
    for number in range(100):
        support.add(((f"p{number}", b"metadata"),))
        support.remove(((f"p{number}", b"metadata"),))
    assert len(support._counts) == 1
    assert support.metadata_bytes == len("rangem")


def test_offsets_of_a_group_over_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUP_OFFSETS_MAX", 3)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        too_large = {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert set((await settled(commit(host, "g", 0, 1))).values()) == {ErrorCode.NONE}
        assert set((await settled(commit(host, "g", 2, 3))).values()) == too_large
        assert set((await settled(commit(host, "g", 0, 1, 2))).values()) == {ErrorCode.NONE}
        assert set((await settled(commit(host, "g", 3))).values()) == too_large
        assert set((await settled(commit(host, "new", 0, 1, 2, 3))).values()) == too_large

    simulate(main, seed=1)


def test_transactional_ids_over_the_bound_are_refused_and_known_ids_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "TRANSACTIONAL_IDS_MAX", 2)

    async def main(loop: SimLoop) -> None:
        host = TransactionHost(loop)
        await host.start()
        errors = [(await host.init(transactional_id)).error for transactional_id in ("a", "b", "c", "a")]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]

    simulate(main, seed=1)


def test_partitions_of_a_transaction_over_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_step, "TRANSACTION_PARTITIONS_MAX", 3)
    first, second, third, fourth = (TopicPartition("t", index) for index in range(4))

    async def main(loop: SimLoop) -> None:
        host = await TransactionHost(loop).start()
        producer = await host.ongoing(first, second)
        assert await host.add(producer, third, fourth) is ErrorCode.INVALID_REQUEST
        assert await host.add(producer, second, third) is ErrorCode.NONE
        _, snapshot = host.coordinator.describe("id")
        assert snapshot is not None
        assert snapshot.partitions == (first, second, third)
        assert await host.end(producer) is ErrorCode.NONE

    simulate(main, seed=1)


def header(producer_id: int, offset: int, *, is_transactional: bool = False) -> BatchHeader:
    batch = build_batch(
        [Record(0, 0, None, b"x")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )
    return parse_header(offset.to_bytes(8, "big") + batch[8:])


def test_a_partition_evicts_the_least_recent_producer_without_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_PARTITION_MAX", 3)
    state = ProducerState()
    state.append(header(1, 0, is_transactional=True))
    state.append(header(2, 1))
    state.append(header(3, 2))
    state.append(header(2, 3))
    state.append(header(4, 4))
    assert sorted(state.producers) == [1, 2, 4]
    assert state.first_unstable_offset == 0
    for producer_id in range(10, 60):
        state.append(header(producer_id, producer_id))
    assert len(state.producers) == 3
    assert 1 in state.producers


def positions(first: int, count: int) -> list[FetchPosition]:
    return [FetchPosition(TopicPartition("t", number), 0, 1) for number in range(first, first + count)]


def test_partitions_of_all_fetch_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "FETCH_SESSION_PARTITIONS_MAX", 10)
    cache = FetchSessionCache(100)
    one = cache.create(1, positions(0, 6), is_follower=False, now_ms=0)
    assert one is not None
    assert cache.create(2, positions(0, 5), is_follower=False, now_ms=0) is None
    assert cache.create(3, positions(0, 4), is_follower=False, now_ms=0) is not None
    cache.update(one, positions(0, 6), [])
    with pytest.raises(ApiError) as refused:
        cache.update(one, positions(6, 1), [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 1
    assert cache.create(4, positions(0, 6), is_follower=False, now_ms=0) is not None
