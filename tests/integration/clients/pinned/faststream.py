"""FastStream 0.7: an application with a publisher and a subscriber, on aiokafka."""

import asyncio
import json
import sys

from faststream import AckPolicy
from faststream.kafka import KafkaBroker

bootstrap, topic, group, first, second = sys.argv[1:]


async def consume(count):
    broker = KafkaBroker(bootstrap)
    values = []
    are_read = asyncio.Event()

    @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    async def read(value: str) -> None:
        values.append(value)
        if len(values) == count:
            are_read.set()

    async with broker:
        for number in range(count):
            await broker.publish(str(number), topic=topic, key=b"%d" % (number % 7))
        await broker.start()
        await asyncio.wait_for(are_read.wait(), 60)
    return values


async def main():
    print(json.dumps([await consume(int(first)), await consume(int(second))]))


asyncio.run(main())
