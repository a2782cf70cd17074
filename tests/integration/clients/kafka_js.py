"""kafkajs: JavaScript, through a script that performs one operation per run and prints JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.clients.family import TIMEOUT_S, Entry, Shared
from tests.peers import kafkajs

SCRIPT = Path(__file__).with_name("kafkajs_client.js")


class KafkaJs:
    codecs: tuple[str, ...] = ("none", "gzip")  # the others are plugins there
    settings: Mapping[str, Any] = {}
    """Settings of all its clients: `ssl` and `sasl` as kafkajs documents them, with `token` for OAUTHBEARER."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        self.run("createTopic", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        self.run("deleteTopic", topic=topic)

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        self.run("produce", topic=topic, records=_pairs(records), codec=codec)

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        response = self.run("consume", topic=topic, count=count, group=group or str(uuid.uuid4()))
        return _entries(response["entries"])

    def share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        pairs = _pairs(records)
        response = self.run("share", topic=topic, group=group, records=pairs, codec="none", partitions=partitions)
        return Shared(_entries(response["entries"]), response["owned"])

    def run(self, action: str, **arguments: object) -> Any:
        """The outcome of one action of the script."""
        common = {"bootstrap": self.bootstrap, "timeoutMs": TIMEOUT_S * 1000, "settings": dict(self.settings)}
        request = json.dumps({**common, **arguments})
        finished = kafkajs.run_script(SCRIPT, action, request, timeout_s=TIMEOUT_S + 15)
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout)


def _pairs(records: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(key.decode(), value.decode()) for key, value in records]


def _entries(rows: list[tuple[int, int, str | None, str]]) -> list[Entry]:
    return [
        Entry(partition, offset, None if key is None else key.encode(), value.encode())
        for partition, offset, key, value in rows
    ]
