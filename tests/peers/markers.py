"""Waits for transaction markers, observed through confluent-kafka.

A coordinator responds to EndTxn when it has logged the decision; the markers that allow read_committed readers to
continue follow later.  A test that reads such records has to wait for them.
"""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, TopicPartition

from tests.peers.probe import wait_until

TIMEOUT_S = 60


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """Returns when no partition of the topic contains an open transaction; raises TimeoutError."""
    ends = [_consumer(bootstrap, isolation) for isolation in ("read_committed", "read_uncommitted")]
    partitions = [
        TopicPartition(topic, index) for index in ends[0].list_topics(topic, TIMEOUT_S).topics[topic].partitions
    ]

    def are_written() -> bool:
        last_stable, high = (
            [end.get_watermark_offsets(partition, TIMEOUT_S)[1] for partition in partitions] for end in ends
        )
        return last_stable == high

    try:
        wait_until(are_written, what=f"markers in {topic}", timeout_s=TIMEOUT_S)
    finally:
        for end in ends:
            end.close()


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "group.id": str(uuid.uuid4()),
            "isolation.level": isolation,
        }
    )
