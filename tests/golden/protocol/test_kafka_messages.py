"""What Apache Kafka wrote, read and written again: messages that no Python client supports.

2.8.2 wrote those between controller, brokers and token owners, 4.4.0 those about groups of the consumer protocol and
share groups.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kctl.protocol.codec import decode, encode_bytes
from kctl.protocol.definition import definition_of
from tests.property.protocol_json import json_leaves, leaves
from tests.property.protocol_messages import CLASSES
from tests.rows import for_rows
from tests.unit.protocol.reference_codec import decode_walk, encode_walk

LINES = [
    line.split(" ", 3)
    for file in ("kafka-2.8.2.txt", "kafka-4.4.0.txt")
    for line in Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
BY_NAME = {cls.__name__: cls for cls in CLASSES}


@for_rows("name, version, blob, meaning", LINES)
def test_bytes_written_by_kafka_are_decoded_alike(name: str, version: str, blob: str, meaning: str) -> None:
    cls, number, data = BY_NAME[name], int(version), bytes.fromhex(blob)
    message: Any
    message, end = decode(cls, data, number)
    assert end == len(data)
    assert leaves(message, number) == json_leaves(cls, json.loads(meaning))
    assert encode_bytes(message, number) == data
    assert decode_walk(cls, data, number) == (message, len(data))
    assert encode_walk(message, number) == data


def test_every_version_of_the_golden_messages_exists() -> None:
    there = {(name, int(version)) for name, version, _, _ in LINES}
    assert there == {(name, version) for name, _ in there for version in definition_of(BY_NAME[name]).versions}
