"""read_committed fetches: each response has the aborted transactions of its range.

In pieces of any size, a reader that applies the rules of clients returns exactly the committed records, and no response
lists the transactions of the whole log.  Random transactions of several producers are read in pieces of random size.
"""

from __future__ import annotations

import heapq
from random import Random

import pytest

from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.control import ControlType, control_type
from kctl.storage.config import LogConfig
from kctl.storage.segments.transaction_index import AbortedTransaction
from tests.rows import for_rows
from tests.unit.storage.log_builder import LogOnDisk

PRODUCERS = range(1, 6)


class Written:
    """A log of random transactions, and the values that were committed."""

    def __init__(self, chance: Random, *, transactions: int, segment_bytes: int) -> None:
        self.builder = LogOnDisk(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=256))
        self.committed: list[bytes] = []
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        written: dict[int, list[bytes]] = {}
        order: list[bytes] = []
        ended = 0
        while ended < transactions:
            producer = chance.choice(PRODUCERS)
            if producer in written and chance.random() < 0.4:
                kind = chance.choice((ControlType.ABORT, ControlType.COMMIT))
                self.builder.end_transaction(kind, producer_id=producer)
                values = written.pop(producer)
                if kind is ControlType.COMMIT:
                    self.committed += values
                ended += 1
                continue
            value = b"%d-%d" % (producer, len(order))
            self.builder.append(value, producer_id=producer, sequence=self._sequences[producer], transactional=True)
            self._sequences[producer] += 1
            order.append(value)
            written.setdefault(producer, []).append(value)
        for producer in written:
            self.builder.end_transaction(ControlType.ABORT, producer_id=producer)
        committed = set(self.committed)
        self.committed = [value for value in order if value in committed]


class Reader:
    """A consumer of committed records, piece by piece."""

    def __init__(self, builder: LogOnDisk) -> None:
        self.values: list[bytes] = []
        self.reported: list[int] = []
        """The number of aborted transactions in each piece."""
        self._log = builder.log
        self._offset = 0

    @property
    def is_at_the_end(self) -> bool:
        return self._offset >= self._log.log_end_offset

    def read(self, max_bytes: int) -> None:
        end = self._log.log_end_offset
        piece = self._log.read(self._offset, max_bytes, max_offset=end)
        reported = self._log.aborted_transactions(self._offset, piece.upper_bound(end))
        self.reported.append(len(reported))
        self._take(piece.read(), reported)

    def _take(self, data: bytes, reported: list[AbortedTransaction]) -> None:
        aborted = [(transaction.first_offset, transaction.producer_id) for transaction in reported]
        heapq.heapify(aborted)
        ignored: set[int] = set()
        for header in iterate_batches(data):
            self._offset = header.next_offset
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(heapq.heappop(aborted)[1])
            if header.is_control:
                (record,) = iterate_records(data, header)
                if control_type(record) is ControlType.ABORT:
                    ignored.discard(header.producer_id)
            elif header.producer_id not in ignored:
                self.values += [record.value or b"" for record in iterate_records(data, header)]


@for_rows("seed", range(20))
@for_rows("segment_bytes", [1_000, 20_000, 1 << 30])
@pytest.mark.long
def test_reader_sees_committed_records_for_any_fetch_size(seed: int, segment_bytes: int) -> None:
    chance = Random(seed)
    written = Written(chance, transactions=60, segment_bytes=segment_bytes)
    reader = Reader(written.builder)
    while not reader.is_at_the_end:
        reader.read(chance.randint(1, 3_000))
    assert reader.values == written.committed


def test_reader_gets_aborted_transactions_of_its_range_only() -> None:
    written = Written(Random(1), transactions=2_000, segment_bytes=1 << 30)
    reader = Reader(written.builder)
    while not reader.is_at_the_end:
        reader.read(2_000)
    assert reader.values == written.committed
    assert max(reader.reported) < 60
