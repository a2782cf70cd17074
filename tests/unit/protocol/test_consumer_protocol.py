from __future__ import annotations

import pytest

from kctl.errors import MalformedRequest
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["a"],
    owned_partitions=[TopicPartitions(topic="a", partitions=[0, 2])],
    generation_id=4,
    rack_id="r",
)


@pytest.mark.parametrize("version", range(4))
def test_older_versions_drop_fields_they_lack(version: int) -> None:
    read = decode_subscription(encode_subscription(SUBSCRIPTION, version))
    assert read.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert read.generation_id == (4 if version >= 2 else -1)
    assert read.rack_id == ("r" if version >= 3 else None)


def test_newer_version_is_read_as_our_newest_and_its_additions_are_ignored() -> None:
    blob = b"\0\x09" + encode_subscription(SUBSCRIPTION, 3)[2:] + b"something new"
    assert decode_subscription(blob) == SUBSCRIPTION


@pytest.mark.parametrize("blob", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\x05"])
def test_bytes_of_another_kind_of_client_are_refused(blob: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_subscription(blob)
    with pytest.raises(MalformedRequest):
        decode_assignment(blob)
