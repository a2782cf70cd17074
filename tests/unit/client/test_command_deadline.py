"""A command has one deadline, batches requests per broker, and does not wait for unavailable parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kctl.admin.groups.groups import describe_groups, list_groups
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingConnection, BlockingTransport, run_blocking
from kctl.client.connections.transport import ABSENCE_WAIT_MS, Budget, Connection
from kctl.client.consuming.list_offsets import LATEST, list_offsets
from kctl.client.leaders import COORDINATION_TOPICS, on_coordinators
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.list_offsets import ListOffsetsRequest
from kctl.protocol.apis.metadata import MetadataRequest
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup, no_coordinator
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

GROUPS = [f"group-{number:03}" for number in range(150)]


class CountingTransport(NoPauseBlockingTransport):
    """Counts connection attempts by port, and the time that was spent in pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: Counter[int] = Counter()

    async def connect(self, host: str, port: int, **more: Any) -> BlockingConnection:
        self.attempts[port] += 1
        return await BlockingTransport.connect(self, host, port, **more)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as started:
        yield started


def test_leaderless_partitions_of_many_lookups_share_one_short_wait(cluster: FakeCluster) -> None:
    topics = [f"topic-{number}" for number in range(20)]
    for topic in topics:
        cluster.create(topic, leaders=[-1, -1, 0])
    transport = CountingTransport()

    async def main() -> list[Any]:
        async with ClusterClient(cluster.settings(), transport) as client:
            with client.one_deadline():
                looks = [
                    await list_offsets(client, {TopicPartition(topic, number): LATEST for number in range(3)})
                    for topic in topics
                ]
        return [outcome for look in looks for outcome in look.values() if isinstance(outcome, ApiError)]

    errors = run_blocking(main())
    assert [error.code for error in errors] == [ErrorCode.LEADER_NOT_AVAILABLE] * 40
    assert transport.monotonic_ms() <= ABSENCE_WAIT_MS


def test_broker_that_refuses_is_tried_once_per_command(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0, 1, 2])
    cluster.kill(1)
    transport = CountingTransport()
    tps = [TopicPartition("orders", number) for number in range(3)]

    async def main() -> list[Any]:
        async with ClusterClient(cluster.settings(), transport) as client:
            with client.one_deadline():
                return [await list_offsets(client, dict.fromkeys(tps, LATEST)) for _ in range(5)]

    for found in run_blocking(main()):
        errors = {tp.partition: error.code for tp, error in found.items() if isinstance(error, ApiError)}
        assert errors == {1: ErrorCode.NETWORK_EXCEPTION}
    assert transport.attempts == dict.fromkeys(cluster.ports, 1)


@pytest.mark.parametrize("is_dead_leader_known", [True, False])
def test_command_that_follows_elections_waits_for_the_successor_of_a_dead_leader(
    cluster: FakeCluster, *, is_dead_leader_known: bool
) -> None:
    """The controller reports the broker as dead before it has elected another leader."""
    (partition,) = cluster.create("orders", leaders=[1 if is_dead_leader_known else -1])
    partition.followers = (0,)
    cluster.kill(1)

    class ElectingTransport(CountingTransport):
        """The cluster elects broker 0 after two seconds of pauses."""

        async def sleep(self, duration_ms: int) -> None:
            await super().sleep(duration_ms)
            if self.monotonic_ms() >= 2_000:
                partition.leader = 0

    async def main() -> Any:
        async with ClusterClient(cluster.settings(), ElectingTransport()) as client:
            with client.one_deadline(follows_elections=True):
                return await list_offsets(client, {TopicPartition("orders", 0): LATEST})

    (found,) = run_blocking(main()).values()
    assert not isinstance(found, ApiError)


def test_command_that_follows_elections_waits_briefly_if_no_in_sync_replica_is_alive(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[-1])
    partition.followers = (7,)
    transport = CountingTransport()

    async def main() -> Any:
        async with ClusterClient(cluster.settings(), transport) as client:
            with client.one_deadline(follows_elections=True):
                return await list_offsets(client, {TopicPartition("orders", 0): LATEST})

    (found,) = run_blocking(main()).values()
    assert isinstance(found, ApiError)
    assert found.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert transport.monotonic_ms() <= ABSENCE_WAIT_MS


def test_next_command_tries_a_broker_again(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[1])
    cluster.kill(1)
    transport = CountingTransport()

    async def main() -> None:
        async with ClusterClient(cluster.settings(), transport) as client:
            for _ in range(2):
                with client.one_deadline():
                    await list_offsets(client, {TopicPartition("orders", 0): LATEST})

    run_blocking(main())
    assert transport.attempts[cluster.ports[1]] == 2


def test_all_groups_are_described_with_one_request_per_broker(cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0, 1, 2])
    offsets = {TopicPartition("orders", number): 0 for number in range(3)}
    cluster.groups.update({name: FakeGroup(offsets=offsets) for name in GROUPS})

    async def main() -> Any:
        async with ClusterClient(cluster.settings(), CountingTransport()) as client:
            with client.one_deadline():
                groups, _ = await list_groups(client)
                return await describe_groups(client, [group.group_id for group in groups])

    described = run_blocking(main())
    assert [group.outcome.name for group in described] == GROUPS
    assert all(group.offsets[2].log_end_offset == 0 for group in described)
    assert len(cluster.requested(DescribeGroupsRequest)) == 2  # a hundred groups each
    assert len(cluster.requested(FindCoordinatorRequest)) == 0
    assert sorted(broker for broker, _ in cluster.requested(ListOffsetsRequest)) == [0, 1, 2]
    assert len(cluster.requested(MetadataRequest)) == 2


@pytest.mark.parametrize(("has_topic", "waits_ms"), [(True, ABSENCE_WAIT_MS), (False, 30_000)])
def test_coordinators_are_waited_for_only_while_their_topic_is_created(
    cluster: FakeCluster, has_topic: bool, waits_ms: int
) -> None:
    if has_topic:
        cluster.create(next(iter(COORDINATION_TOPICS.values())), leaders=[-1])
    cluster.intercept(FindCoordinatorRequest, no_coordinator)
    transport = CountingTransport()

    async def nothing(_: Connection, keys: list[str]) -> dict[str, str | ApiError]:
        return dict.fromkeys(keys, "")

    async def main() -> dict[str, Any]:
        async with ClusterClient(cluster.settings(), transport) as client:
            with client.one_deadline():
                return {**await on_coordinators(client, GROUPS[:3], nothing)}

    assert [error.code for error in run_blocking(main()).values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert waits_ms / 2 < transport.monotonic_ms() <= waits_ms


def test_every_request_of_a_command_is_bounded_by_the_remaining_time() -> None:
    now_ms = 0
    budget = Budget(lambda: now_ms)
    assert budget.limited(700) == 700
    budget.begin(1_000)
    now_ms = 400
    assert budget.limited(700) == 600
    now_ms = 1_001
    assert budget.limited(700) == 0
    budget.end()
    assert budget.limited(700) == 700
