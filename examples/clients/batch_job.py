#!/usr/bin/env python3
"""A batch job: copies what a topic contains now into a table of SQLite; the next run continues where this one ended.

python examples/clients/batch_job.py localhost:9092 orders nightly orders.db
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence

from kctl.client import Consumer, ConsumerConfig, ConsumerRecord

CREATE = "CREATE TABLE IF NOT EXISTS records (partition, offset, key, value, PRIMARY KEY (partition, offset))"
INSERT = "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)"


def store(database: sqlite3.Connection, records: Sequence[ConsumerRecord]) -> None:
    """Add rows; a record that an interrupted run has stored already is ignored."""
    with database:  # one transaction
        rows = ((record.partition, record.offset, record.key, record.value) for record in records)
        database.executemany(INSERT, rows)


def run(
    bootstrap: str,
    topic: str,
    group: str,
    path: str,
    store: Callable[[sqlite3.Connection, Sequence[ConsumerRecord]], None] = store,
) -> int:
    """Copy the records up to the ends that the partitions have now; return how many."""
    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    database = sqlite3.connect(path)
    count = 0
    with Consumer(config) as consumer:
        database.execute(CREATE)
        partitions = consumer.partitions_of(topic)
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)  # at the committed offsets of the group
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = consumer.poll()
            store(database, records)
            consumer.commit()  # after the rows: if the job fails between the two, records are read again, not lost
            count += len(records)
    database.close()
    return count


if __name__ == "__main__":
    bootstrap, topic, group, path = sys.argv[1:]
    print(run(bootstrap, topic, group, path), "records")
