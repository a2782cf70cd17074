"""Records that were fetched and not yet returned to the application.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from kctl.model import TopicPartition
from kctl.records.header import Record


class ReadyRecords:
    """Records in the order of their arrival, by partition."""

    def __init__(self) -> None:
        self._parts: deque[tuple[TopicPartition, deque[Record]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, fetched: Sequence[tuple[TopicPartition, Sequence[Record]]]) -> None:
        """Adds the records of one fetch."""
        self._parts.extend((tp, deque(records)) for tp, records in fetched if records)

    def take(self, count_max: int) -> Iterator[tuple[TopicPartition, Record]]:
        """The next records.  A record is removed when the iterator continues after it, so that a failure keeps it."""
        for _ in range(count_max):
            if not self._parts:
                return
            tp, records = self._parts[0]
            yield tp, records[0]
            records.popleft()
            if not records:
                self._parts.popleft()

    def drop(self, partitions: set[TopicPartition]) -> None:
        """Removes the records of these partitions."""
        self._parts = deque(part for part in self._parts if part[0] not in partitions)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Removes the records of all other partitions."""
        self._parts = deque(part for part in self._parts if part[0] in partitions)

    def first_offsets(self) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return {tp: records[0].offset for tp, records in reversed(self._parts)}
