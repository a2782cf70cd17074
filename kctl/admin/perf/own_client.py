"""Produces and consumes test records by kctl's own client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from kctl import __version__
from kctl.admin.perf.load_client import LoadRun, ProducedRecords
from kctl.admin.perf.measurement import NS_PER_S
from kctl.admin.topics.offsets import partitions_of
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.producing.batches import RECORD_OVERHEAD
from kctl.client.producing.producer import Delivery, Producer
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode
from kctl.limits import PERF_BUFFERED_BYTES_MAX
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

_BUFFERED_RECORDS_MAX = 100_000


class OwnClient:
    """kctl's client on an event loop."""

    name = f"kctl {__version__}"

    def __init__(self, settings: ClientSettings, limits: FetchLimits, isolation: IsolationLevel) -> None:
        self._settings = settings
        self._limits = limits
        self._isolation = isolation

    def produce(self, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(lambda client: self._produce(client, topic, records, run))

    def consume(self, ranges: Mapping[TopicPartition, tuple[int, int]], run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(lambda client: self._consume(client, ranges, run))

    def round_trips(self, ends: Mapping[TopicPartition, int], records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(lambda client: self._with_reader(client, ends, records, run))

    def _run(self, work: Callable[[ClusterClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with ClusterClient(self._settings, AsyncioTransport()) as client:
                await work(client)

        asyncio.run(main())

    async def _produce(self, client: ClusterClient, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        partitions = [tp.partition for tp in await partitions_of(client, [topic])]
        sent_ns: dict[int, deque[int]] = {partition: deque() for partition in partitions}
        buffered = _Buffered()

        def delivered(delivery: Delivery) -> None:
            now_ns = time.perf_counter_ns()
            times = sent_ns[delivery.tp.partition]
            for _, _, _, value, _ in delivery.fields:
                size = len(value or b"")
                sent = times.popleft()
                buffered.remove(size)
                if delivery.error is None:
                    run.measured.add(size, now_ns, sent_ns=sent)
                else:
                    run.measured.fail(str(delivery.error))

        producer = _producer(client, records, delivered)
        schedule = run.schedule()
        # A batch goes to one partition, the next one to the next.
        partition, left = 0, 0
        try:
            while (wait_ns := schedule.wait_ns(now_ns := time.perf_counter_ns())) is not None:
                run.report()
                if wait_ns > 0:
                    await asyncio.sleep(min(wait_ns, NS_PER_S) / NS_PER_S)
                    continue
                value = next(records.values)
                await buffered.add(len(value))
                left -= len(value) + RECORD_OVERHEAD
                if left < 0:
                    partition, left = (partition + 1) % len(partitions), records.settings.batch_bytes
                sent_ns[partitions[partition]].append(now_ns)
                if not producer.send_at_once(topic, value, partition=partitions[partition]):
                    await producer.send(topic, value, partition=partitions[partition])
                schedule.sent(now_ns)
                if left < len(value) + RECORD_OVERHEAD:
                    await asyncio.sleep(0)  # Lets full batches be sent.
            await producer.flush()
        except BaseException:
            producer.abandon()
            raise

    async def _consume(
        self,
        client: ClusterClient,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        run: LoadRun,
    ) -> None:
        positions = {tp: start for tp, (start, end) in ranges.items() if start < end}
        consumer = Consumer(client, positions, limits=self._limits, isolation=self._isolation)
        schedule = run.schedule()
        while consumer.positions and schedule.wait_ns(time.perf_counter_ns()) is not None:
            run.report()
            for tp, records in await consumer.poll():
                now_ns = time.perf_counter_ns()
                for record in records:
                    if record.offset >= ranges[tp][1] or schedule.wait_ns(now_ns) is None:
                        break
                    run.measured.add(len(record.key or b"") + len(record.value or b""), now_ns)
                    schedule.sent(now_ns)
            for tp in [tp for tp, position in consumer.positions.items() if position >= ranges[tp][1]]:
                consumer.drop(tp)

    async def _with_reader(
        self,
        client: ClusterClient,
        ends: Mapping[TopicPartition, int],
        records: ProducedRecords,
        run: LoadRun,
    ) -> None:
        # A broker handles the requests of a connection in order: a fetch that waits would delay the next record.
        async with ClusterClient(self._settings, AsyncioTransport()) as reading:
            await self._round_trips(client, reading, ends, records, run)

    async def _round_trips(
        self,
        client: ClusterClient,
        reading: ClusterClient,
        ends: Mapping[TopicPartition, int],
        records: ProducedRecords,
        run: LoadRun,
    ) -> None:
        deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        producer = _producer(client, records, deliveries.put_nowait)
        consumer = Consumer(reading, ends, limits=self._limits, isolation=IsolationLevel.READ_UNCOMMITTED)
        schedule = run.schedule()
        partitions = sorted(ends)
        number = 0
        while (wait_ns := schedule.wait_ns(now_ns := time.perf_counter_ns())) is not None:
            run.report()
            if wait_ns > 0:
                await asyncio.sleep(min(wait_ns, NS_PER_S) / NS_PER_S)
                continue
            value, tp = next(records.values), partitions[number % len(partitions)]
            arrival = asyncio.create_task(self._arrival(consumer, value))
            try:
                await producer.send(tp.topic, value, partition=tp.partition)
                await producer.flush()
                delivery = await deliveries.get()
                if delivery.error is not None:
                    raise copy_of(delivery.error)
                arrived_ns = await asyncio.wait_for(arrival, self._settings.timeout_ms / 1000)
            except TimeoutError:
                text = f"{tp}: a record that was written could not be read within {self._settings.timeout_ms} ms"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
            finally:
                arrival.cancel()
            run.measured.add(len(value), arrived_ns, sent_ns=now_ns)
            schedule.sent(now_ns)
            number += 1

    async def _arrival(self, consumer: Consumer, value: bytes) -> int:
        """Wait for the record; others in the topic are skipped."""
        while True:
            for _, records in await consumer.poll():
                if any(record.value == value for record in records):
                    return time.perf_counter_ns()


def _producer(client: ClusterClient, records: ProducedRecords, delivered: Callable[[Delivery], None]) -> Producer:
    return Producer(client, replace(records.settings, buffered_records_max=_BUFFERED_RECORDS_MAX), delivered)


class _Buffered:
    """Bounds the values that have not been acknowledged."""

    def __init__(self) -> None:
        self._bytes = 0
        self._has_room = asyncio.Event()

    async def add(self, size: int) -> None:
        """Wait for room; a single value may be larger than the bound."""
        while self._bytes and self._bytes + size > PERF_BUFFERED_BYTES_MAX:
            self._has_room.clear()
            await self._has_room.wait()
        self._bytes += size

    def remove(self, size: int) -> None:
        """Remove a value that was acknowledged or has failed."""
        self._bytes -= size
        self._has_room.set()
