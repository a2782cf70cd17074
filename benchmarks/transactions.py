"""Measures transactions per second, with 1 and with 100 messages each.

    python -m benchmarks.transactions [--runs 5] [--seconds 3] [--bootstrap-server HOST:PORT --pid PID]

confluent-kafka, one producer, messages of 100 bytes to one partition, each transaction committed before the next one
begins; beside it what a transaction costs the broker.  A client must not start the next transaction before the markers
of the last one are written: a request that is too early waits for 20 ms, so it matters that they are written at once.
The last figure is the coordinator alone, in this process: partitions added, committed, the marker written, completed.
"""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import Producer

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject
from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.markers import MarkerSender
from kctl.server.coordination.transactions.partition_markers import PartitionMarkers
from kctl.server.coordination.transactions.ports import TransactionConfig
from kctl.server.loop.tasks import SystemClock
from kctl.server.loop.timer import WheelTimer
from tests.unit.groups.hosting import MemoryOffsetsLog, settled
from tests.unit.transactions.hosting import (
    CountingProducerIds,
    Leaders,
    MarkedPartitions,
    OtherBrokers,
    ReportedGroups,
)

TOPIC = "transactions"
TIMEOUT_S = 30
WARM_UP = 20
IN_PROCESS = 2_000
TURNS_MAX = 100


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--seconds", type=float, default=3, help="length of one run")
    chosen = options.parse_args()
    figures = []
    with subject(chosen) as broker:
        librdkafka.create_topic(broker.bootstrap, TOPIC)
        producer = new_producer(broker.bootstrap)
        for messages in (1, 100):
            runs = [measure(broker, producer, messages, chosen.seconds) for _ in range(chosen.runs)]
            rates, used_us = zip(*runs, strict=True)
            what = "1 message" if messages == 1 else f"{messages} messages"
            figures += [
                Figure(f"{what}: transactions", "/s", rates),
                Figure(f"{what}: broker processor", "us/txn", used_us),
            ]
        librdkafka.delete_topic(broker.bootstrap, TOPIC)
    figures.append(Figure("coordinator alone", "us/txn", asyncio.run(in_process(chosen.runs))))
    report("transactions", figures, runs=chosen.runs)


def new_producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "benchmark",
            "linger.ms": 0,
            "log_level": 0,  # It outlives the broker.
        }
    )
    producer.init_transactions(TIMEOUT_S)
    transact(producer, WARM_UP, 1)
    return producer


def measure(broker: Subject, producer: Producer, messages: int, seconds: float) -> tuple[float, float]:
    """Transactions a second, and microseconds of the broker's processor for each."""
    started, used = time.perf_counter(), broker.cpu_s()
    count = 0
    while time.perf_counter() - started < seconds:
        transact(producer, WARM_UP, messages)
        count += WARM_UP
    return count / (time.perf_counter() - started), (broker.cpu_s() - used) / count * 1e6


def transact(producer: Producer, count: int, messages: int) -> None:
    for _ in range(count):
        producer.begin_transaction()
        for _ in range(messages):
            producer.produce(TOPIC, bytes(100), partition=0)
        producer.commit_transaction(TIMEOUT_S)


async def in_process(runs: int) -> list[float]:
    """Microseconds of processor time per transaction in the coordinator; logs are lists."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    timer = WheelTimer(clock, loop)
    coordinator = TransactionCoordinator(
        broker_id=0,
        config=TransactionConfig(),
        state_log=MemoryOffsetsLog(),
        producer_ids=CountingProducerIds(),
        markers=MarkerSender(
            0,
            leaders=Leaders(),
            local=PartitionMarkers(MarkedPartitions(), ReportedGroups(), clock, timeout_ms=1_000),
            peers=OtherBrokers(),
            version=lambda: 1,
            timer=timer,
            clock=clock,
        ),
        clock=clock,
        timer=timer,
    )
    coordinator.start()
    for partition in range(4):
        coordinator.partitions.on_leader(partition, 0)
    await coordinator.partitions.loaded()
    made = await settled(coordinator.init_producer("benchmark", timeout_ms=60_000, expected=None))
    samples = []
    for _ in range(runs):
        used = time.process_time()
        for _ in range(IN_PROCESS):
            await one_transaction(coordinator, made.producer)
        samples.append((time.process_time() - used) / IN_PROCESS * 1e6)
    await coordinator.stop()
    return samples


async def one_transaction(coordinator: TransactionCoordinator, producer: ProducerIdAndEpoch) -> None:
    for _ in range(TURNS_MAX):  # Until the markers of the transaction before are written.
        added = await settled(coordinator.add_partitions("benchmark", producer, [TopicPartition(TOPIC, 0)]))
        if added is not ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        await asyncio.sleep(0)
    ended = await settled(coordinator.end("benchmark", producer, committed=True))
    if {added, ended} != {ErrorCode.NONE}:
        raise SystemExit(f"a transaction got {added.name} and {ended.name}")


if __name__ == "__main__":
    main()
