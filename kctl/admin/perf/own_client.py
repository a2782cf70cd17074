"""Produces and consumes test records by kctl's own client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from kctl import __version__
from kctl.admin.perf.load_client import LoadRun, ProducedRecords
from kctl.admin.perf.measurement import NS_PER_S
from kctl.admin.topics.offsets import partitions_of
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.producing.batches import RECORD_OVERHEAD
from kctl.client.producing.producer import Delivery, Producer
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode
from kctl.limits import PERF_BUFFERED_BYTES_MAX
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

_BUFFERED_RECORDS_MAX = 100_000
_RUN_MAX = 200
"""Records that get the same time, that of the first one; the others follow within 0.2 ms."""


class OwnClient:
    """kctl's client on an event loop."""

    name = f"kctl {__version__}"

    def __init__(self, settings: ClientSettings, limits: FetchLimits, isolation: IsolationLevel) -> None:
        self._settings = settings
        self._limits = limits
        self._isolation = isolation

    def produce(self, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(run, lambda client: self._produce(client, topic, records, run))

    def consume(self, ranges: Mapping[TopicPartition, tuple[int, int]], run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(run, lambda client: self._consume(client, ranges, run))

    def round_trips(self, ends: Mapping[TopicPartition, int], records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""
        self._run(run, lambda client: self._with_reader(client, ends, records, run))

    def _run(self, run: LoadRun, work: Callable[[ClusterClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with ClusterClient(self._settings, AsyncioTransport()) as client:
                await work(client)

        asyncio.run(run.until_signal(main()))

    async def _produce(self, client: ClusterClient, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        partitions = [tp.partition for tp in await partitions_of(client, [topic])]
        sent: dict[int, deque[tuple[int, int]]] = {partition: deque() for partition in partitions}
        """Time and number of the records of each run that is not acknowledged."""
        refused = 0

        def delivered(delivery: Delivery) -> None:
            nonlocal refused
            if is_sending:  # A record is larger than max.request.size.
                refused += delivery.count
                run.measured.fail(str(delivery.error), records=delivery.count)
                return
            now_ns = time.perf_counter_ns()
            sizes = [len(value or b"") for _, _, _, value, _ in delivery.fields]
            runs = sent[delivery.tp.partition]
            done = 0
            while done < len(sizes):
                sent_ns, count = runs.popleft()
                if done + count > len(sizes):  # the rest is in the next batch
                    runs.appendleft((sent_ns, done + count - len(sizes)))
                    count = len(sizes) - done
                if delivery.error is None:
                    run.measured.add(sum(sizes[done : done + count]), now_ns, sent_ns=sent_ns, records=count)
                else:
                    run.measured.fail(str(delivery.error), records=count)
                done += count

        producer = _producer(client, records, delivered)
        schedule = run.schedule()
        turn, is_sending = 0, False
        try:
            while (wait_ns := schedule.wait_ns(now_ns := time.perf_counter_ns())) is not None:
                run.report()
                if wait_ns > 0:
                    await asyncio.sleep(min(wait_ns, NS_PER_S) / NS_PER_S)
                    continue
                values = _take(records.values, schedule.due(now_ns, _RUN_MAX), records.settings.batch_bytes)
                while values:
                    partition = partitions[turn % len(partitions)]
                    refused, is_sending = 0, True
                    added = producer.send_run_at_once(topic, values, partition=partition)
                    is_sending = False
                    if not added:
                        await producer.ready(topic, partition)
                        continue
                    if not refused:
                        sent[partition].append((now_ns, added))
                    schedule.sent(now_ns, added)
                    del values[:added]
                    if values:  # The batch is full: the next one goes to the next partition.
                        turn += 1
                        await asyncio.sleep(0)
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
    settings = replace(
        records.settings,
        buffered_records_max=_BUFFERED_RECORDS_MAX,
        buffered_bytes_max=PERF_BUFFERED_BYTES_MAX,
    )
    return Producer(client, settings, delivered)


def _take(values: Iterator[bytes], count_max: int, bytes_max: int) -> list[bytes]:
    """Return the next values, as many as a batch has room for."""
    taken, left = [], bytes_max
    for value in islice(values, count_max):
        taken.append(value)
        left -= len(value) + RECORD_OVERHEAD
        if left <= 0:
            break
    return taken
