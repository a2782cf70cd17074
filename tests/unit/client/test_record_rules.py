"""What cannot be written is refused by the call that sends it, which names the argument, and harms no other record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kctl.client import AsyncProducer, Producer, ProducerConfig
from kctl.errors import ApiError, KctlError, UsageError
from kctl.records.build import build_batch
from tests.unit.client.fake_cluster import FakeCluster

WAIT_S = 60.0
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "topic must be a str, not NoneType"),
    ({"topic": b"orders"}, "topic must be a str, not bytes"),
    ({"topic": ["orders"]}, "topic must be a str, not list"),
    ({"topic": ""}, "topic: topic name is empty"),
    ({"topic": "a/b"}, "topic: topic name 'a/b' has characters"),
    ({"topic": "x" * 250}, "topic: topic name is longer than 249"),
    ({"value": 7}, "value: a int needs a serializer"),
    ({"value": "\ud800"}, "value: the text has no encoding in UTF-8"),
    ({"key": 1.5}, "key: a float needs a serializer"),
    ({"key": ["k"]}, "key: a list needs a serializer"),
    ({"partition": "0"}, "partition must be an int from 0"),
    ({"partition": True}, "partition must be an int from 0"),
    ({"partition": 0.0}, "partition must be an int from 0"),
    ({"partition": -1}, "partition must be an int from 0"),
    ({"partition": 1 << 31}, "partition must be an int from 0"),
    ({"partition": 99}, "has no partition 99: it has 2 partitions"),
    ({"timestamp_ms": 1.5}, "timestamp_ms must be an int"),
    ({"timestamp_ms": 1 << 63}, "timestamp_ms must be an int"),
    ({"timestamp_ms": -2}, "timestamp_ms must be an int"),
    ({"timestamp_ms": "1"}, "timestamp_ms must be an int"),
    ({"timestamp_ms": 10**400}, "timestamp_ms must be an int"),
    ({"headers": {"h": b"x"}}, "headers must be a sequence of (name, value), not dict"),
    ({"headers": "h"}, "headers must be a sequence of (name, value), not str"),
    ({"headers": 7}, "headers must be a sequence of (name, value), not int"),
    ({"headers": [("h", "x")]}, "headers[0]: the value of 'h' must be bytes or None, not str"),
    ({"headers": [("h", b"x"), (b"h", b"x")]}, "headers[1]: the name must be a str, not bytes"),
    ({"headers": [("h", b"x", 1)]}, "headers[0] must be a pair"),
    ({"headers": [("h", 1)]}, "headers[0]: the value of 'h' must be bytes or None"),
    ({"headers": [("\udfff", b"")]}, "headers[0]: the name has no encoding"),
    ({"headers": [("h", b"x" * 2_000_000)]}, "larger than max.request.size=1048576"),
    ({"headers": [("é" * 600_000, None)]}, "larger than max.request.size=1048576"),
    ({"headers": [("", None)] * 200_000}, "larger than max.request.size=1048576"),
]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as started:
        started.create("orders", leaders=[0, 0])
        yield started


def check_refusals(send: Callable[..., Any]) -> None:
    for arguments, text in REFUSED:
        complete = {"topic": "orders", "value": b"v"} | arguments
        try:
            error = send(**complete)
        except KctlError as raised:
            error = raised
        assert isinstance(error, (UsageError, ApiError)), (arguments, error)
        assert text in str(error), (arguments, error)


def test_record_that_cannot_be_written_is_refused_and_the_others_are_written(cluster: FakeCluster) -> None:
    with Producer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
        before = [producer.send("orders", f"{number}", partition=0) for number in range(50)]
        # A partition that does not exist is known by the metadata only, as unknown topics are.
        check_refusals(lambda **record: producer.send(**record).exception(WAIT_S))
        after = [producer.send("orders", f"{number}", partition=0) for number in range(50, 100)]
        assert [future.result(WAIT_S).offset for future in before + after] == list(range(100))
        headers: Any = [["h", bytearray(b"x")]]
        accepted = producer.send(
            "orders",
            bytearray(b"v"),
            key=memoryview(b"k"),
            headers=headers,
            partition=1,
            timestamp_ms=-1,
        )
        assert accepted.result(WAIT_S).timestamp_ms == -1
    (record,) = cluster.records_of("orders", 1)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))


def test_refusals_of_the_asynchronous_producer_leave_its_transaction_whole(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
            for arguments, text in REFUSED:
                with pytest.raises((UsageError, ApiError)) as raised:
                    await producer.send(**({"topic": "orders", "value": b"v"} | arguments))
                assert text in str(raised.value), arguments
            assert (await (await producer.send("orders", b"v", partition=0))).offset == 0

    asyncio.run(main())


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_fails_in_the_background_is_the_result_of_the_records(
    cluster: FakeCluster, codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = ["bug"]

    def build(*args: Any, **options: Any) -> bytes:
        if failing:
            raise ValueError(failing.pop())
        return build_batch(*args, **options)

    monkeypatch.setattr("kctl.client.producing.requests.build_batch", build)
    config = ProducerConfig(bootstrap_servers=cluster.bootstrap, buffer_memory=1_000, max_block_ms=30_000)
    with Producer(config) as producer:
        error = producer.send("orders", b"v" * 900, partition=0).exception(WAIT_S)
        assert "ValueError: bug" in str(error)
        for _ in range(5):  # the buffer is not leaked
            assert producer.send("orders", b"v" * 900, partition=0).exception(WAIT_S) is None
    assert len(cluster.records_of("orders", 0)) == 5
