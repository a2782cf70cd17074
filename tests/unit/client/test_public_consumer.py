"""The consumer for applications, without group membership: positions, seek, pause, commits, offsets for times."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, assert_type

import pytest

import kctl.client
from kctl.client import (
    AsyncConsumer,
    CommittedOffset,
    Consumer,
    ConsumerConfig,
    ConsumerInterceptor,
    ConsumerRecord,
    DeserializationFailed,
    LogTruncated,
    Position,
    Producer,
    ProducerConfig,
    ShareConsumer,
    ShareConsumerConfig,
    SubscriptionPattern,
    TopicRecreated,
    WokenUp,
)
from kctl.client import TopicPartition as Tp
from kctl.client.connections.loop_thread import LoopThread
from kctl.errors import ApiError, ConfigError, ErrorCode, UsageError
from kctl.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kctl.protocol.apis.fetch import FetchRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster

WAIT_MS = 60_000
ORDERS = Tp("orders", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as started:
        started.create("orders")
        with Producer(ProducerConfig(bootstrap_servers=started.bootstrap)) as producer:
            for number in range(10):
                producer.send("orders", str(number), timestamp_ms=1_000 * number)
                producer.flush()
        yield started


def config(cluster: FakeCluster, **settings: Any) -> ConsumerConfig:
    return ConsumerConfig(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=10, **settings
    )


def values(records: list[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


def read(consumer: Consumer, count: int) -> list[Any]:
    """The values of the next records."""
    return [record.value for _, record in zip(range(count), consumer, strict=False)]


def test_reads_from_the_beginning_in_bounded_lists(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, max_poll_records=4, value_deserializer=lambda data: int(data or b""))) as consumer:
        consumer.assign([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [0, 1, 2, 3]
        assert consumer.position(ORDERS) == 4
        assert values(consumer.poll(WAIT_MS)) == [4, 5, 6, 7]
        assert values(consumer.poll(WAIT_MS)) == [8, 9]
        assert consumer.poll(20) == []


def test_iteration_counts_only_returned_records(cluster: FakeCluster) -> None:
    with Consumer(config(cluster)) as consumer:
        consumer.assign({ORDERS: 3})
        for record in consumer:
            if record.offset == 5:
                break
        assert consumer.position(ORDERS) in {5, 6}  # the record in progress may be returned again
        assert consumer.poll(WAIT_MS)[-1].offset == 9


def test_a_topic_that_was_created_again_gets_no_commit_of_the_earlier_one(cluster: FakeCluster) -> None:
    """With topic ids (OffsetCommit and OffsetFetch 10); older brokers compare only names."""
    for versions, commits in (((0, 10), {}), ((0, 9), {ORDERS: 8})):
        cluster.versions[8] = cluster.versions[9] = versions
        group = f"billing-{versions[1]}"
        with Consumer(config(cluster, group_id=group)) as consumer:
            consumer.assign([ORDERS])
            assert read(consumer, 1) == [b"0"]
            consumer.pause([ORDERS])
            consumer.commit({ORDERS: 7})
            assert consumer.committed([ORDERS]) == {ORDERS: 7}
            cluster.create("orders")
            if commits:
                consumer.commit({ORDERS: 8})
            else:
                with pytest.raises(ApiError, match="orders-0") as refused:
                    consumer.commit({ORDERS: 8})
                assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert consumer.committed([ORDERS]) == commits
            with Producer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
                producer.send("orders", "0").result()


def test_seek_moves_back_and_forth(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, max_poll_records=2)) as consumer:
        consumer.assign([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [b"0", b"1"]
        consumer.seek(ORDERS, 8)
        assert values(consumer.poll(WAIT_MS)) == [b"8", b"9"]
        consumer.poll(0)  # starts a fetch at the end, which a seek back makes obsolete
        consumer.seek(ORDERS, 1)
        assert values(consumer.poll(WAIT_MS)) == [b"1", b"2"]
        consumer.seek_to_end([ORDERS])
        assert consumer.position(ORDERS) == 10
        consumer.seek_to_beginning([ORDERS])
        assert consumer.position(ORDERS) == 0
        with pytest.raises(UsageError, match="orders-7 is not assigned"):
            consumer.seek(Tp("orders", 7), 0)


def test_paused_partition_is_not_read_and_loses_nothing(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, max_poll_records=3)) as consumer:
        consumer.assign([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [b"0", b"1", b"2"]
        consumer.pause([ORDERS])
        assert consumer.paused == {ORDERS}
        assert consumer.poll(50) == []
        consumer.resume([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [b"3", b"4", b"5"]


def test_offsets_are_looked_up(cluster: FakeCluster) -> None:
    with Consumer(config(cluster)) as consumer:
        assert consumer.partitions_of("orders") == [ORDERS]
        assert consumer.beginning_offsets([ORDERS]) == {ORDERS: 0}
        assert consumer.end_offsets([ORDERS]) == {ORDERS: 10}
        (found,) = consumer.offsets_for_times({ORDERS: 3_500}).values()
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (4, 4_000)
        assert consumer.offsets_for_times({ORDERS: 99_000}) == {ORDERS: None}
        with pytest.raises(ApiError) as missing:
            consumer.partitions_of("missing")
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_commits_of_an_assigned_consumer(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, group_id="g", max_poll_records=4)) as consumer:
        consumer.assign([ORDERS])
        consumer.poll(WAIT_MS)
        consumer.commit()
        assert consumer.committed([ORDERS]) == {ORDERS: 4}
        consumer.commit_async({ORDERS: 7}).result(WAIT_MS / 1000)
    with Consumer(config(cluster, group_id="g")) as consumer:
        consumer.assign([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [b"7", b"8", b"9"]
    with Consumer(config(cluster)) as consumer:
        consumer.assign([ORDERS])
        with pytest.raises(UsageError, match="group_id"):
            consumer.commit()


def test_record_that_cannot_be_deserialized_is_not_lost(cluster: FakeCluster) -> None:
    def number(data: bytes | None) -> int:
        if data == b"2":
            raise ValueError("two")
        return int(data or b"")

    with Consumer(config(cluster, value_deserializer=number)) as consumer:
        consumer.assign([ORDERS])
        assert values(consumer.poll(WAIT_MS)) == [0, 1]
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match=r"orders-0 at offset 2 .* ValueError: two") as raised:
                consumer.poll(WAIT_MS)
        assert consumer.position(ORDERS) == 2
        with pytest.raises(DeserializationFailed):
            next(iter(consumer))
        assert isinstance(raised.value.__cause__, ValueError)
        assert raised.value.record.value == b"2"
        consumer.seek(raised.value.tp, raised.value.record.offset + 1)
        assert values(consumer.poll(WAIT_MS))[0] == 3


def test_auto_offset_reset_none_and_wrong_use(cluster: FakeCluster) -> None:
    with Consumer(ConsumerConfig(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none")) as consumer:
        with pytest.raises(ApiError, match="auto_offset_reset is 'none'"):
            consumer.assign([ORDERS])
        with pytest.raises(UsageError, match="subscribe or assign first"):
            consumer.poll(0)
        with pytest.raises(UsageError, match="subscribe requires group_id"):
            consumer.subscribe(["orders"])
    with pytest.raises(UsageError, match="closed"):
        consumer.poll(0)


def test_position_outside_the_log_is_reset(cluster: FakeCluster) -> None:
    with Consumer(config(cluster)) as consumer:
        consumer.assign({ORDERS: 99})
        assert values(consumer.poll(WAIT_MS))[0] == b"0"
    settings = ConsumerConfig(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none")
    with Consumer(settings) as consumer:
        consumer.assign({ORDERS: 99})
        with pytest.raises(ApiError) as lost:
            consumer.poll(WAIT_MS)
    assert lost.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_async_iteration_returns_records(cluster: FakeCluster) -> None:
    async def main() -> list[Any]:
        found = []
        async with AsyncConsumer(config(cluster)) as consumer:
            await consumer.assign([ORDERS])
            async for record in consumer:
                found.append(record.value)
                if len(found) == 10:
                    break
        return found

    assert asyncio.run(main()) == [str(number).encode() for number in range(10)]


def test_client_properties_become_settings() -> None:
    made = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "group.id": "g",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
        }
    )
    assert (made.group_id, made.assignors, made.enable_auto_commit) == ("g", ("sticky",), False)
    assert made.isolation.name == "READ_COMMITTED"
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        ConsumerConfig.from_properties({"bootstrap.servers": "a:1", "enable.auto.commit": "yes"})
    with pytest.raises(UsageError, match="heartbeat_interval_ms must be less"):
        ConsumerConfig(bootstrap_servers="a:1", heartbeat_interval_ms=10, session_timeout_ms=10)


def test_calls_on_the_callers_thread_may_use_the_loop_again() -> None:
    thread = LoopThread("test")
    found: list[int] = []

    async def value(number: int) -> int:
        return number

    async def work() -> None:
        await thread.in_caller(lambda: found.append(thread.run(value(1))))
        with pytest.raises(ZeroDivisionError):
            await thread.in_caller(lambda: found.append(1 // 0))

    try:
        thread.run(work())
        assert found == [1]
    finally:
        thread.close()


def test_public_names_are_loaded_when_they_are_used() -> None:
    for name in kctl.client.__all__:
        assert getattr(kctl.client, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = kctl.client.Missing
    program = "import sys, kctl.client; print(sorted(one for one in sys.modules if one.startswith('kctl.')))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['kctl.client']"


def lose_after(cluster: FakeCluster, end: int, count: int) -> None:
    """An unclean election: the log ends at `end`, and other records follow."""
    (log,) = cluster.topics["orders"]
    log.elect(leader=0, end=end)
    for number in range(count):
        log.append(build_batch([Record(0, 1_000, None, b"new-%d" % number)]))


def test_commits_have_the_leader_epochs_of_the_records_before_them(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, group_id="billing", max_poll_records=4)) as consumer:
        consumer.assign([ORDERS])
        consumer.commit()
        assert cluster.groups["billing"].epochs[ORDERS] == -1  # nothing has been read
        consumer.poll(WAIT_MS)
        cluster.topics["orders"][0].elect(leader=0)
        cluster.topics["orders"][0].append(build_batch([Record(0, 1_000, None, b"10")]))
        consumer.commit()
        assert (cluster.groups["billing"].offsets[ORDERS], cluster.groups["billing"].epochs[ORDERS]) == (4, 0)
        while consumer.position(ORDERS) < 11:
            consumer.poll(WAIT_MS)
        consumer.commit({ORDERS: 10})
        assert cluster.groups["billing"].epochs[ORDERS] == 0
        consumer.commit()
        assert cluster.groups["billing"].epochs[ORDERS] == 1
        assert consumer.with_epochs({ORDERS: 11}) == {ORDERS: Position(11, 1, is_of_record=True)}
        assert consumer.with_epochs({ORDERS: 500}) == {ORDERS: Position(500)}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["while reading", "at the start"])
def test_lost_records_are_found_and_reading_follows_the_reset_policy(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, is_restarted: bool
) -> None:
    settings: dict[str, Any] = {"group_id": "billing", "max_poll_records": 100}
    reader = Consumer(config(cluster, **settings))
    strict = Consumer(ConsumerConfig(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none", **settings))
    with reader, strict:
        reader.assign([ORDERS])
        while reader.position(ORDERS) < 10:
            reader.poll(WAIT_MS)
        reader.commit()
        strict.assign([ORDERS])
        if not is_restarted:
            assert strict.poll(20) == []
        lose_after(cluster, end=6, count=10)  # the log is longer than the position
        for _ in range(2):  # an error that nothing has been done about stays
            with pytest.raises(LogTruncated, match="offsets 6 to 9") as truncated:
                strict.poll(WAIT_MS)
            (divergence,) = truncated.value.divergences
            assert (divergence.tp, divergence.end_offset, divergence.leader_epoch) == (ORDERS, 6, 0)
        strict.seek(ORDERS, Position(6, 0))
        assert values(strict.poll(WAIT_MS))[0] == b"new-0"
        if is_restarted:
            reader.assign([ORDERS])
        records = [record for _, record in zip(range(10), reader, strict=False)]
        assert values(records) == [b"new-%d" % number for number in range(10)]
        assert "reading continues at offset=6" in caplog.text


def test_topic_that_was_created_again_is_not_read_from_the_old_position(cluster: FakeCluster) -> None:
    with Consumer(ConsumerConfig(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none")) as consumer:
        consumer.assign({ORDERS: 0})
        assert read(consumer, 10)[-1] == b"9"
        cluster.topics["orders"][0].leader = -1  # the new topic has another leader epoch
        cluster.create("orders")
        lose_after(cluster, end=0, count=20)
        with pytest.raises(TopicRecreated, match="deleted and created again"):
            consumer.poll(WAIT_MS)


def test_position_at_the_end_is_checked_before_anything_was_read(cluster: FakeCluster) -> None:
    """The log is truncated below the position, and is longer again when the reader comes back."""
    settings = ConsumerConfig(bootstrap_servers=cluster.bootstrap, auto_offset_reset="latest", fetch_max_wait_ms=10)
    with Consumer(settings) as consumer:
        consumer.assign([ORDERS])
        assert consumer.poll(20) == []
        lose_after(cluster, end=6, count=10)
        assert read(consumer, 10) == [b"new-%d" % number for number in range(10)]


def test_broker_that_does_not_respond_delays_its_own_partitions_only() -> None:
    with FakeCluster(brokers=3) as cluster:
        for partition in cluster.create("orders", leaders=[0, 1, 2]):
            for _ in range(50):
                partition.append(build_batch([Record(0, 1_000, None, b"x" * 100)]))
        cluster.intercept(FetchRequest, lambda _: b"" if cluster.requests[-1][0] == 1 else None)
        with Consumer(config(cluster, max_partition_fetch_bytes=400, max_poll_records=10)) as consumer:
            consumer.assign({Tp("orders", number): 0 for number in range(3)})
            found: list[ConsumerRecord] = []
            while len(found) < 100:
                found += consumer.poll(WAIT_MS)
            assert {record.partition for record in found} == {0, 2}
            assert [record.offset for record in found if record.partition == 2] == list(range(50))


def test_records_that_wait_take_no_more_than_the_buffer(cluster: FakeCluster) -> None:
    for partition in cluster.create("large", leaders=[0] * 8):
        for _ in range(20):
            partition.append(build_batch([Record(0, 1_000, None, b"x" * 1_000)]))
    settings = {"max_partition_fetch_bytes": 2_000, "fetch_buffer_bytes": 6_000, "max_poll_records": 1}
    with Consumer(config(cluster, **settings)) as consumer:
        consumer.assign({Tp("large", number): 0 for number in range(8)})
        seen: dict[Tp, int] = {}
        for _ in range(160):
            for record in consumer.poll(WAIT_MS):
                tp = Tp(record.topic, record.partition)
                assert record.offset == seen.get(tp, 0)
                seen[tp] = record.offset + 1
        assert seen == {Tp("large", number): 20 for number in range(8)}
    assert max(request.max_bytes for _, request in cluster.requested(FetchRequest)) == 6_000


def test_wakeup_and_close_by_another_thread_end_the_call_in_progress(cluster: FakeCluster) -> None:
    with Consumer(config(cluster)) as consumer:
        consumer.assign({ORDERS: 10})
        for end in (consumer.wakeup, consumer.close):
            thread = threading.Timer(0.05, end)
            thread.start()
            with pytest.raises(WokenUp):
                next(iter(consumer))
            thread.join(10)
            assert not thread.is_alive()
        with pytest.raises(UsageError, match="closed"):
            consumer.poll(0)
    with Consumer(config(cluster)) as consumer:
        consumer.assign({ORDERS: 0})
        consumer.wakeup()
        with pytest.raises(WokenUp):  # also the next call, although records wait
            consumer.poll(WAIT_MS)
        assert values(consumer.poll(WAIT_MS))[0] == b"0"


def test_consumer_of_another_process_says_so(cluster: FakeCluster) -> None:
    with Consumer(config(cluster)) as consumer:
        consumer.assign({ORDERS: 0})
        assert consumer.poll(WAIT_MS)
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                try:
                    consumer.poll(0)
                except UsageError as error:
                    consumer.close()
                    status = 0 if "forked" in str(error) else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        consumer.seek(ORDERS, 3)
        assert values(consumer.poll(WAIT_MS))[0] == b"3"


def test_records_have_the_types_of_the_deserializers_and_where_they_come_from(cluster: FakeCluster) -> None:
    cluster.topics["orders"][0].elect(leader=0)
    cluster.topics["orders"][0].append(build_batch([Record(0, 1_000, None, b"10")]))

    def number(data: bytes | None) -> int:
        return int(data or b"0")

    with Consumer(config(cluster), key_deserializer=number, value_deserializer=number) as consumer:
        assert_type(consumer, Consumer[int, int])
        consumer.assign({ORDERS: 9})
        records = [record for _, record in zip(range(2), consumer, strict=False)]
        assert_type(records, list[ConsumerRecord[int, int]])
        assert [(record.key, record.value, record.leader_epoch) for record in records] == [(0, 9, 0), (0, 10, 1)]
        assert records[0].timestamp_type.name == "CREATE_TIME"


def test_commits_have_metadata(cluster: FakeCluster) -> None:
    with Consumer(config(cluster, group_id="g")) as consumer:
        consumer.assign({ORDERS: 0})
        consumer.poll(WAIT_MS)
        consumer.commit({ORDERS: CommittedOffset(5, metadata="file-7")})
        assert consumer.committed_details([ORDERS]) == {ORDERS: CommittedOffset(5, 0, "file-7")}


def test_interceptors_see_records_and_commits(cluster: FakeCluster) -> None:
    class Note(ConsumerInterceptor):
        commits: ClassVar[list[Any]] = []

        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record._replace(value=b"seen " + record.value) for record in records if record.offset % 2]

        def on_commit(self, offsets: Any) -> None:
            self.commits.append(offsets)

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            raise ZeroDivisionError

    with Consumer(config(cluster, group_id="g", interceptors=(Broken(), Note()))) as consumer:
        consumer.assign({ORDERS: 0})
        assert read(consumer, 2) == [b"seen 1", b"seen 3"]
        consumer.seek(ORDERS, 6)
        assert values(consumer.poll(WAIT_MS)) == [b"seen 7", b"seen 9"]
        consumer.commit()
        assert Note.commits == [{ORDERS: CommittedOffset(10, 0)}]
        metrics = consumer.metrics()
        assert (metrics["assigned-partitions"], metrics["records-lag.orders-0"], metrics["buffered-bytes"]) == (1, 0, 0)


def test_a_broker_without_the_consumer_protocol_is_refused_with_the_remedy(cluster: FakeCluster) -> None:
    """Our broker and Kafka 2 and 3; and Kafka 4 whose feature group.version is 0."""
    settings = config(cluster, group_id="billing", group_protocol="consumer")
    for _ in range(2):
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            with pytest.raises(ApiError, match=r"KIP-848.*group_protocol='classic'") as refused:
                consumer.poll(WAIT_MS)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        cluster.intercept(
            ConsumerGroupHeartbeatRequest,
            lambda _: ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION),
        )


def test_a_broker_without_share_groups_is_refused_with_the_remedy(cluster: FakeCluster) -> None:
    with ShareConsumer(ShareConsumerConfig(bootstrap_servers=cluster.bootstrap, group_id="billing")) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ApiError, match=r"share groups \(KIP-932\) need Kafka 4\.2.*use a Consumer") as refused:
            consumer.poll(WAIT_MS)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with (
        pytest.raises(UsageError, match="subscribe first"),
        ShareConsumer(
            ShareConsumerConfig.from_properties(
                {"bootstrap.servers": "a:1", "share.acknowledgement.mode": "explicit"}, group_id="g"
            )
        ) as consumer,
    ):
        consumer.poll(1)
    for name in ("auto.offset.reset", "isolation.level"):
        with pytest.raises(UsageError, match=f"{name} cannot be set"):
            ShareConsumerConfig.from_properties({"bootstrap.servers": "a:1", name: "x"}, group_id="g")
    for settings in ({"share_acquire_mode": "x"}, {"share_acknowledgement_mode": "x"}, {"max_poll_records": 0}):
        (name,) = settings
        with pytest.raises(UsageError, match=name):
            ShareConsumerConfig(bootstrap_servers="a:1", group_id="g", **settings)


def test_what_a_consumer_does_not_do_is_refused_by_name() -> None:
    for settings, named in (
        ({"group_protocol": "streams"}, "use classic or consumer"),
        ({"group_protocol": "consumer", "assignors": ("range",)}, "group_remote_assignor names"),
        ({"group_protocol": "consumer", "session_timeout_ms": 10_000}, r"consumer\.session\.timeout\.ms"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 3_000}, r"consumer\.heartbeat\.interval\.ms"),
        ({"group_protocol": "consumer", "group_remote_assignor": ""}, "group_remote_assignor is empty"),
        ({"group_remote_assignor": "range"}, "group_protocol='consumer'"),
        ({"fetch_buffer_bytes": 0}, "fetch_buffer_bytes"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms"),
    ):
        with pytest.raises(UsageError, match=named):
            ConsumerConfig(bootstrap_servers="a:1", **settings)
    with pytest.raises(UsageError, match=r"use re\.compile"):
        ConsumerConfig(bootstrap_servers="a:1", group_id="g").membership(SubscriptionPattern("a.*"))
    with pytest.raises(UsageError, match=r"fetch\.max\.byte\b"):
        ConsumerConfig.from_properties({"bootstrap.servers": "a:1", "fetch.max.byte": "1"})
