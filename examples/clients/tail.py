#!/usr/bin/env python3
"""Prints the last records of each partition, or those since a time, and then new ones as they are written.

python examples/clients/tail.py localhost:9092 orders --lines 10
python examples/clients/tail.py localhost:9092 orders --since 3600
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator

from kctl.client import AsyncConsumer, ConsumerConfig, ConsumerRecord


async def tail(
    bootstrap: str, topic: str, *, lines: int = 10, since_s: float | None = None
) -> AsyncGenerator[ConsumerRecord, None]:
    """Yield records without end; without a group, so that nothing is committed."""
    async with AsyncConsumer(ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        partitions = await consumer.partitions_of(topic)
        starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        await consumer.assign({partition: max(starts[partition], ends[partition] - lines) for partition in partitions})
        if since_s is not None:
            time_ms = int((time.time() - since_s) * 1000)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
            for partition, first in found.items():
                consumer.seek(partition, ends[partition] if first is None else first.offset)
        async for record in consumer:
            yield record


async def main() -> None:
    """Print records until Ctrl-C."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("bootstrap")
    options.add_argument("topic")
    options.add_argument("--lines", type=int, default=10)
    options.add_argument("--since", type=float, metavar="SECONDS")
    chosen = options.parse_args()
    async for record in tail(chosen.bootstrap, chosen.topic, lines=chosen.lines, since_s=chosen.since):
        print(record.partition, record.offset, record.key, record.value, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
