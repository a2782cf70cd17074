"""pykafka 2.8.0: a client of Python with its own protocol code, whose group members share partitions in ZooKeeper or,
as here, through the coordinator.
"""

import json
import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

bootstrap, name, group, first, second = sys.argv[1:]
client = KafkaClient(hosts=bootstrap, broker_version="1.0.0")
topic = client.topics[name]


def produce(count):
    with topic.get_producer(linger_ms=5) as producer:
        for number in range(count):
            producer.produce(b"%d" % number, partition_key=b"%d" % (number % 7))


def consume(count):
    consumer = topic.get_balanced_consumer(
        group,
        managed=True,
        auto_offset_reset=OffsetType.EARLIEST,
        reset_offset_on_start=False,
        consumer_timeout_ms=60_000,
    )
    values = [consumer.consume().value.decode() for _ in range(count)]
    consumer.commit_offsets()
    consumer.stop()
    return values


rounds = []
for size in (int(first), int(second)):
    produce(size)
    rounds.append(consume(size))
print(json.dumps(rounds))
