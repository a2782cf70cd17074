"""kafka-python 1.4.7, of 2019: versions before 1.4 cannot be imported by the Pythons of these tests."""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer

bootstrap, topic, group, first, second = sys.argv[1:]


def produce(count):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, key=b"%d" % (number % 7), value=b"%d" % number)
    producer.flush()
    producer.close()


def consume(count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    values = [next(consumer).value.decode() for _ in range(count)]
    consumer.commit()
    consumer.close()
    return values


rounds = []
for size in (int(first), int(second)):
    produce(size)
    rounds.append(consume(size))
print(json.dumps(rounds))
