"""The interface that every client library implements here, so that one test covers all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as a consumer received it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """The records that a group of two read, and how many partitions each member had at the end."""

    entries: list[Entry]
    partitions_of_members: list[int]


class Family(Protocol):
    """A client library connected to one broker.  Methods raise if an operation fails."""

    codecs: tuple[str, ...]

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        """Sends (key, value) pairs with acks=all and returns when all are acknowledged."""

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        """Reads `count` records, from the beginning or from the committed offset of `group`, and commits
        for `group`.
        """


class Administrator(Family, Protocol):
    """A client library that can also create and delete topics."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Returns when the topic has leaders."""

    def delete_topic(self, topic: str) -> None: ...


class GroupMember(Family, Protocol):
    """A client library whose consumers share partitions by subscription."""

    def share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        """Two members join; when all partitions are assigned, `records` are sent, read and committed."""
