"""The programs in examples/clients, on our broker."""

from __future__ import annotations

import asyncio
import http.client
import re
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from examples.clients import beside_aiokafka
from examples.clients.batch_job import CREATE, store
from examples.clients.batch_job import run as run_batch_job
from examples.clients.exactly_once import invoice, work
from examples.clients.tail import tail
from examples.clients.web_handler import BODY_BYTES_MAX, serve
from kctl.admin.groups.groups import look_up_group
from kctl.client import Consumer, ConsumerConfig, ConsumerRecord, Producer, ProducerConfig, TopicPartition
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Connection
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS = 3
PATIENCE_S = 60


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        futures = [
            producer.send(topic, value, partition=number % PARTITIONS, timestamp_ms=1_000_000 * (number + 1))
            for number, value in enumerate(values)
        ]
    assert [future.exception() for future in futures if future.exception() is not None] == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The committed values, when there are so many; and no more."""
    config = ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed")
    with Consumer(config) as consumer:
        consumer.assign(consumer.partitions_of(topic))
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in consumer.poll()]
        return values + [record.value for record in consumer.poll(300)]


def test_web_handler_responds_when_the_record_is_stored(bootstrap: str, topic: str) -> None:
    def request(port: int, method: str, body: bytes, path: str = "/customer-1") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            is_sent = len(body) <= BODY_BYTES_MAX  # A longer one is refused before it is read.
            connection.request(method, path, body if is_sent else b"", {"Content-Length": str(len(body))})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    async def play() -> None:
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(serve(bootstrap, topic, 0, started.set_result))
        port = await started
        stored = await asyncio.gather(
            *(asyncio.to_thread(request, port, "POST", b"%d apples" % count) for count in range(10))
        )
        assert {status for status, _ in stored} == {201}
        for method, body, path, status in (
            ("GET", b"", "/", 405),
            ("POST", b"x" * (BODY_BYTES_MAX + 1), "/", 413),
            ("POST", b"x" * BODY_BYTES_MAX, "/", 413),  # with its key and overhead, larger than max_request_size
        ):
            assert (await asyncio.to_thread(request, port, method, body, path))[0] == status, (method, len(body))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)

    asyncio.run(play())
    assert sorted(read(bootstrap, topic, 10)) == [b"%d apples" % count for count in range(10)]


def test_batch_job_continues_and_stores_each_record_once_after_a_failure(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    def store_and_fail(database: sqlite3.Connection, records: Sequence[ConsumerRecord]) -> None:
        store(database, records)
        raise OSError("the machine stops before the commit")

    path = str(tmp_path / "records.db")
    produce(bootstrap, topic, [f"{number} pears" for number in range(30)])
    assert run_batch_job(bootstrap, topic, "nightly", path) == 30
    assert run_batch_job(bootstrap, topic, "nightly", path) == 0
    produce(bootstrap, topic, [f"{number} pears" for number in range(30, 45)])
    with pytest.raises(OSError, match="before the commit"):
        run_batch_job(bootstrap, topic, "nightly", path, store_and_fail)
    assert run_batch_job(bootstrap, topic, "nightly", path) == 15, "they were not committed"
    with sqlite3.connect(path) as database:
        values = [value.decode() for (value,) in database.execute("SELECT value FROM records ORDER BY rowid")]
    database.close()
    assert sorted(values) == sorted(f"{number} pears" for number in range(45))


async def expel_members(bootstrap: str, group: str) -> None:
    """Removes all members, as the coordinator does with those that do not send heartbeats."""
    settings = ProducerConfig(bootstrap_servers=bootstrap).client_settings()
    async with ClusterClient(settings, AsyncioTransport()) as client:
        members = (await look_up_group(client, group)).members
        request = LeaveGroupRequest(
            group_id=group, members=[MemberIdentity(member_id=member.member_id) for member in members]
        )

        async def send_to(connection: Connection) -> None:
            assert (await connection.send(request, LeaveGroupResponse)).error_code == 0

        await client.on_coordinator(group, send_to)


def test_exactly_once_worker_writes_again_what_a_rebalance_has_interrupted(bootstrap: str, topic: str) -> None:
    calls: list[bytes] = []

    def transform(record: ConsumerRecord[bytes, bytes]) -> bytes:
        if not calls:
            asyncio.run(expel_members(bootstrap, topic))
        calls.append(record.value)
        return invoice(record)

    source, target = topic, f"{topic}-invoices"
    values = [f"{number} plums" for number in range(60)]
    produce(bootstrap, source, values)
    work(
        bootstrap,
        source,
        target,
        topic,
        "instance-1",
        transform=transform,
        is_over=lambda: len(calls) > len(values) and committed(bootstrap, source, topic) == len(values),
    )
    assert len(calls) > len(values), "some were written twice, once in a transaction that was aborted"
    written = read(bootstrap, target, len(values))
    assert sorted(written) == sorted(f"invoice for {value}".encode() for value in values)


def committed(bootstrap: str, topic: str, group: str) -> int:
    """The sum of the committed offsets."""
    with Consumer(ConsumerConfig(bootstrap_servers=bootstrap, group_id=group)) as consumer:
        return sum(consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)]).values())


@pytest.mark.parametrize("tail", [tail, beside_aiokafka.tail])
def test_tail_starts_at_the_last_records_or_at_a_time_and_follows(
    bootstrap: str, topic: str, tail: Callable[..., AsyncGenerator[Any, None]]
) -> None:
    async def take(records: AsyncGenerator[Any, None], count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            return sorted([(await anext(records)).value for _ in range(count)])

    async def play() -> None:
        numbers = [f"{number:02}" for number in range(30)]
        produce(bootstrap, topic, numbers)
        last = tail(bootstrap, topic, lines=2)
        assert await take(last, 6) == [value.encode() for value in numbers[-6:]]
        following = asyncio.create_task(take(last, 1))
        await asyncio.to_thread(produce, bootstrap, topic, ["new"])
        assert await following == [b"new"]
        await last.aclose()
        # Timestamps are 1,000 s apart, from 1970 on; "new" has the first of them, behind later ones.
        since = tail(bootstrap, topic, since_s=time.time() - 19_500)
        assert await take(since, 12) == [value.encode() for value in numbers[19:]] + [b"new"]
        await since.aclose()

    asyncio.run(play())


def test_programs_with_aiokafka_do_the_same(bootstrap: str, topic: str) -> None:
    target = f"{topic}-invoices"

    async def play() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(10):
                await beside_aiokafka.store(producer, topic, b"customer-%d" % number, b"%d figs" % number)
        with sqlite3.connect(":memory:") as database:
            database.execute(CREATE)
            assert await beside_aiokafka.copy(bootstrap, topic, f"{topic}-copy", database) == 10
            assert await beside_aiokafka.copy(bootstrap, topic, f"{topic}-copy", database) == 0
        database.close()

        def is_over() -> bool:
            return committed(bootstrap, topic, topic) == 10

        await beside_aiokafka.work(bootstrap, topic, target, topic, "instance-1", is_over)

    asyncio.run(play())
    assert sorted(read(bootstrap, target, 10)) == [b"invoice for %d figs" % number for number in range(10)]


def test_page_shows_the_programs_as_they_are() -> None:
    page = (ROOT / "docs/tutorials/client-programs.md").read_text(encoding="utf-8")
    programs = [program.read_text(encoding="utf-8") for program in (ROOT / "examples/clients").glob("*.py")]
    pieces = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(pieces) == 8
    for piece in pieces:
        lines = [line.strip() for line in piece.strip().split("\n")]
        assert any("\n".join(lines) in re.sub(r"\n +", "\n", program) for program in programs), piece
