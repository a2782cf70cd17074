"""Topics that change while they are read: added partitions, deleted and re-created topics, moved brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

import pytest

from kctl.admin.topics.offsets import offset_ranges
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.following import Matches, TopicFollower
from kctl.client.metadata import TopicRecreated
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster, FakePartition
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

ORDERS = TopicPartition("orders", 0)
Next = Callable[[], Awaitable[list[str]]]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def batch(*values: str) -> bytes:
    return build_batch([Record(0, 1_000, None, value.encode()) for value in values])


def follow(
    cluster: FakeCluster,
    work: Callable[[Next, Consumer], Awaitable[None]],
    *,
    max_age_ms: int = 0,
    topics: Collection[str] = ("orders",),
    matches: Matches | None = None,
) -> list[str]:
    """Runs `work` with a function that polls until there are records; returns the notes."""
    notes: list[str] = []

    async def main() -> None:
        settings = cluster.settings()._replace(metadata_max_age_ms=max_age_ms)
        async with ClusterClient(settings, NoPauseBlockingTransport()) as client:
            consumer = Consumer(client, {TopicPartition(topic, 0): 0 for topic in topics})

            async def begin(tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
                return {tp: held.start for tp, held in (await offset_ranges(client, tps)).items()}

            follower = TopicFollower(
                client, consumer, topics, select=list, begin=begin, note=notes.append, matches=matches
            )

            async def read() -> list[str]:
                while not (polled := await follower.poll()):
                    await client.transport.sleep(100)
                return [(record.value or b"").decode() for _, records in polled for record in records]

            await work(read, consumer)

    run_blocking(main())
    return notes


def test_added_partitions_are_read_from_their_start(cluster: FakeCluster) -> None:
    cluster.create("orders")[0].append(batch("a"))

    async def work(read: Next, consumer: Consumer) -> None:
        assert await read() == ["a"]
        added = FakePartition(leader=1)
        added.append(batch("b"))
        cluster.topics["orders"].append(added)
        assert await read() == ["b"]
        assert consumer.positions == {ORDERS: 1, TopicPartition("orders", 1): 1}

    assert follow(cluster, work) == ["orders has 1 more partition, read from the start: 1"]


def test_metadata_is_kept_for_its_age(cluster: FakeCluster) -> None:
    cluster.create("orders")[0].append(batch("a"))

    async def work(read: Next, _: Consumer) -> None:
        assert await read() == ["a"]
        added = FakePartition(leader=1)
        added.append(batch("b"))
        cluster.topics["orders"].append(added)
        cluster.topics["orders"][0].append(batch("c"))
        assert await read() == ["c"]

    assert follow(cluster, work, max_age_ms=300_000) == []


def test_positions_are_not_carried_over_to_a_topic_with_another_id(cluster: FakeCluster) -> None:
    """The new topic is shorter, as long or longer than the position."""
    for values in ([], ["x"], ["x", "y"], ["x", "y", "z"]):
        for max_age_ms in (0, 300_000):
            cluster.create("orders")[0].append(batch("a", "b"))

            async def work(read: Next, _: Consumer, values: list[str] = values) -> None:
                assert await read() == ["a", "b"]
                (partition,) = cluster.create("orders", leaders=[1])  # the former leader does not lead it
                if values:
                    partition.append(batch(*values))
                else:
                    partition.append(batch("later"))
                assert await read() == (values or ["later"])

            (note,) = follow(cluster, work, max_age_ms=max_age_ms)
            assert note.startswith("orders was deleted and created again, or belongs to another cluster: "), values


def test_deleted_topic_is_awaited(cluster: FakeCluster) -> None:
    for has_ids in (True, False):
        cluster.create("orders")[0].append(batch("a"))
        if not has_ids:
            cluster.topic_ids.clear()

        async def work(read: Next, _: Consumer, *, has_ids: bool = has_ids) -> None:
            assert await read() == ["a"]
            del cluster.topics["orders"]
            looks = 0

            def create_again(request: object) -> None:
                nonlocal looks
                looks += 1
                if looks == 5:
                    cluster.create("orders", leaders=[1])[0].append(batch("x", "y"))
                    if not has_ids:
                        cluster.topic_ids.clear()

            cluster.intercept(MetadataRequest, create_again)
            assert await read() == ["x", "y"]
            cluster.intercepts.clear()

        assert follow(cluster, work) == [
            "orders does not exist any more; waiting until it is created again",
            "orders was created again; reading it from its start",
        ], has_ids


def test_reader_of_a_range_is_told_of_another_topic_and_other_errors_are_raised(cluster: FakeCluster) -> None:
    cluster.create("orders")[0].append(batch("a"))

    async def work(read: Next, consumer: Consumer) -> None:
        assert await read() == ["a"]
        consumer.positions[ORDERS] = 99
        with pytest.raises(ApiError) as outside:
            await read()
        assert outside.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        cluster.create("orders")
        with pytest.raises(TopicRecreated):
            await consumer.poll()

    assert follow(cluster, work) == []


def test_broker_that_does_not_know_the_topic_yet_changes_nothing(cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    partition.append(batch("a"))

    async def work(read: Next, _: Consumer) -> None:
        assert await read() == ["a"]
        partition.append(batch("b"))
        topics = cluster.topics
        cluster.topics = {}

        def know_again(request: object) -> None:
            cluster.topics = topics

        cluster.intercept(FetchRequest, know_again)
        assert await read() == ["b"]

    assert follow(cluster, work) == []


def test_deleted_topic_does_not_stop_the_others(cluster: FakeCluster) -> None:
    """One that is named is awaited; one that is selected by its name is new when it is created again."""
    for is_named in (True, False):
        for topic in ("orders", "payments"):
            cluster.create(topic)[0].append(batch(topic))

        async def work(read: Next, consumer: Consumer) -> None:
            first: list[str] = []
            while len(first) < 2:
                first += await read()
            assert sorted(first) == ["orders", "payments"]
            del cluster.topics["orders"]
            cluster.topics["payments"][0].append(batch("while it is deleted"))
            assert await read() == ["while it is deleted"]
            was_looked_up = False

            def create_again(request: MetadataRequest) -> None:
                nonlocal was_looked_up
                if was_looked_up and "orders" not in cluster.topics:
                    cluster.create("orders")[0].append(batch("again"))
                named = None if request.topics is None else [topic.name for topic in request.topics]
                was_looked_up |= named is None or named == ["orders"]

            cluster.intercept(MetadataRequest, create_again)
            assert await read() == ["again"]
            cluster.intercepts.clear()
            cluster.topics["payments"][0].append(batch("last"))
            assert await read() == ["last"]

        def matches(names: Iterable[str]) -> list[str]:
            return [name for name in names if name in {"orders", "payments"}]

        expected = [
            "orders does not exist any more; waiting until it is created again",
            "orders was created again; reading it from its start",
        ]
        if not is_named:
            expected = ["orders does not exist any more", "1 new topic, read from the start: orders"]
        assert follow(cluster, work, topics=["orders", "payments"], matches=None if is_named else matches) == expected
