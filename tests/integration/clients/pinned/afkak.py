"""afkak 21.5: a client for Twisted with its own protocol code."""

import json
import sys

from afkak import OFFSET_COMMITTED, Consumer, KafkaClient, Producer
from twisted.internet import defer, reactor, task

bootstrap, topic, group, first, second = sys.argv[1:]


@defer.inlineCallbacks
def consume(client, count):
    """Produces to partition 0 and reads from the committed offset, or from the beginning without one."""
    producer = Producer(client)
    for number in range(count):
        yield producer.send_messages(topic, key=b"0", msgs=[b"%d" % number])
    yield producer.stop()
    values, are_read = [], defer.Deferred()

    def read(_, messages):
        values.extend(message.message.value.decode() for message in messages)
        if len(values) >= count:
            are_read.callback(None)

    consumers = [
        Consumer(client, topic, partition, read, consumer_group=group, auto_commit_every_n=None)
        for partition in client.topic_partitions[topic]
    ]
    ends = [consumer.start(OFFSET_COMMITTED) for consumer in consumers]
    yield are_read
    yield task.deferLater(reactor, 0)  # The last call of `read` has returned.
    for consumer in consumers:
        yield consumer.shutdown()
    yield defer.DeferredList(ends, consumeErrors=True)
    return values


@defer.inlineCallbacks
def main(reactor):
    client = KafkaClient(bootstrap, reactor=reactor)
    yield client.load_metadata_for_topics(topic)
    rounds = []
    for size in (int(first), int(second)):
        rounds.append((yield consume(client, size)))
    yield client.close()
    print(json.dumps(rounds))


task.react(main)
