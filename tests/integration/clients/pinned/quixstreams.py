"""Quix Streams 3.28: a stream application that counts in a state store with a changelog topic, on librdkafka."""

import json
import sys
import tempfile

from quixstreams import Application

bootstrap, name, group, first, second = sys.argv[1:]


def application(state_dir):
    return Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state_dir,
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        loglevel="ERROR",
    )


def consume(state_dir, count):
    app = application(state_dir)
    topic = app.topic(name, key_deserializer="str", value_deserializer="str")
    with app.get_producer() as producer:
        for number in range(count):
            producer.produce(name, key=str(number % 7), value=str(number))
    values = []

    def count_value(value, state):
        state.set("count", state.get("count", 0) + 1)
        values.append(value)
        return value

    stream = app.dataframe(topic)
    stream.update(count_value, stateful=True)
    app.run(count=count, timeout=60)
    return values


with tempfile.TemporaryDirectory() as folder:
    print(json.dumps([consume(folder, int(first)), consume(folder, int(second))]))
