"""The topics of a group: their ids, their partitions, and the hash by which a change of them is seen.

Pure.  Kafka: Utils.computeTopicHash, computeGroupHash (KIP-1101).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.server.coordination.consumer_groups.xxh3 import xxh3_64
from kctl.server.coordination.newer_groups import ClusterTopics

_MAGIC = 0
_INT = struct.Struct("<i")
_LONG = struct.Struct("<Q")
_SIGN = 1 << 63


def existing_ids(names: Iterable[str], topics: ClusterTopics) -> dict[str, UUID]:
    """Return the ids of those topics that exist and have an id."""
    ids = {name: topics.topic_id(name) for name in names if topics.partition_count(name)}
    return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}


class TopicHashes:
    """The hashes of the topics of a group, which are computed again when the number of partitions has changed.

    A change of the racks alone is not seen: no assignor looks at them.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[UUID, int | None, int]] = {}

    def of_topics(self, names: Iterable[str], topics: ClusterTopics) -> int:
        """Return the hash of the topics of a group, as a signed number; 0 if none of them exists."""
        return self.of_ids(existing_ids(names, topics), topics)

    def of_ids(self, ids: Mapping[str, UUID], topics: ClusterTopics) -> int:
        """As `of_topics`, for topics that exist."""
        known: dict[str, tuple[UUID, int | None, int]] = {}
        for name, topic_id in sorted(ids.items()):
            count = topics.partition_count(name)
            entry = self._known.get(name)
            if entry is None or entry[:2] != (topic_id, count):
                entry = topic_id, count, topic_hash(name, topic_id, topics)
            known[name] = entry
        self._known = known
        return _signed(xxh3_64(b"".join(_LONG.pack(entry[2]) for entry in known.values()))) if known else 0


def topics_hash(names: Iterable[str], topics: ClusterTopics) -> int:
    """Return the hash of the topics of a group."""
    return TopicHashes().of_topics(names, topics)


def topic_hash(name: str, topic_id: UUID, topics: ClusterTopics) -> int:
    """Return the hash of id, name, partitions and racks of a topic."""
    high, low = divmod(topic_id.int, 1 << 64)
    parts = [bytes([_MAGIC]), _LONG.pack(high), _LONG.pack(low), _text(name)]
    racks = topics.partition_racks(name)
    parts.append(_INT.pack(len(racks)))
    for number, of_partition in enumerate(racks):
        parts.append(_INT.pack(number))
        for rack in sorted(of_partition):
            encoded = _text(rack)
            parts += encoded[-_INT.size :], encoded
    return xxh3_64(b"".join(parts))


def _text(text: str) -> bytes:
    """As hash4j writes a string: UTF-16, then its length in characters."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + _INT.pack(len(encoded) // 2)


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value >= _SIGN else value
