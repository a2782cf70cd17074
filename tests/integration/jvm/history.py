"""Writes the same log for the same seed, as input for log cleaners, with a clean shutdown.

The records are in parts with some hours between them: `min.compaction.lag.ms` determines how many parts a cleaner may
clean, and each part is cleaned in a separate pass.  Only the active segment is never cleaned.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.names import LOG_SUFFIX

HOUR_MS = 3_600_000
PARTS_AGO_MS = tuple(hours * HOUR_MS for hours in (17, 13, 9, 5))
LAGS_MS = tuple(ago_ms - 2 * HOUR_MS for ago_ms in PARTS_AGO_MS)
"""The lags with which the first part may be cleaned, the first two, and so on."""
SEGMENT_BYTES = 4096
BATCHES = 70
"""The number of records in each part."""
KEYS = 25
"""Keys that are written in each part, and as many that are written in one part only."""
LONG_KEY = b"a key that is much longer than keys are in most topics, for which cleaners keep a digest %d"
IDEMPOTENT = (101, 102, 103)
TRANSACTIONAL = (201, 202, 203, 204)
RETIRING = (301, 302, 303)
"""Transactional producers that write in the first part only; the last transaction of each times out."""


class _Clock:
    """The position of the history."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def set(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms


@dataclass
class _Producer:
    """The state from which a producer continues."""

    epoch: int = 0
    sequence: int = 0
    has_transaction: bool = False

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.sequence = 0


class _History:
    def __init__(self, log: Log, seed: int, codecs: Sequence[Codec], clock: _Clock) -> None:
        self._log = log
        self._random = random.Random(seed)
        self._codecs = codecs
        self._clock = clock
        self._part = 0
        self._producers = {producer_id: _Producer() for producer_id in (*IDEMPOTENT, *TRANSACTIONAL, *RETIRING)}

    def write_part(self, transactional: Sequence[int]) -> None:
        self._part += 1
        for _ in range(BATCHES):
            self._clock.set(self._clock.now_ms() + self._random.randint(1, 1000))
            choice = self._random.random()
            if choice < 0.2:
                self._put()
            elif choice < 0.45:
                self._put_idempotently(self._random.choice(IDEMPOTENT))
            elif choice < 0.75:
                self._put_in_transaction(self._random.choice(transactional))
            else:
                self._end_somehow(self._random.choice(transactional))

    def retire(self) -> None:
        """After a last transaction that times out."""
        for producer_id in RETIRING:
            self._put_in_transaction(producer_id)
            self._end(producer_id, ControlType.ABORT, takes_epoch=True)

    def end_transactions(self) -> None:
        for producer_id, producer in self._producers.items():
            if producer.has_transaction:
                self._end_somehow(producer_id)

    def _put(self) -> None:
        self._append(build_batch(self._records(), codec=self._codec()))

    def _put_idempotently(self, producer_id: int) -> None:
        producer = self._producers[producer_id]
        if self._random.random() < 0.1:
            producer.begin_epoch()
        self._put_for(producer_id, producer)

    def _put_in_transaction(self, producer_id: int) -> None:
        producer = self._producers[producer_id]
        producer.has_transaction = True
        self._put_for(producer_id, producer, is_transactional=True)

    def _put_for(self, producer_id: int, producer: _Producer, *, is_transactional: bool = False) -> None:
        records = self._records()
        batch = build_batch(
            records,
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_transactional=is_transactional,
        )
        producer.sequence += len(records)
        self._append(batch)

    def _end_somehow(self, producer_id: int) -> None:
        """Also for a transaction without a record here."""
        kind = self._random.choice((ControlType.COMMIT, ControlType.ABORT))
        self._end(producer_id, kind, takes_epoch=kind is ControlType.ABORT and self._random.random() < 0.3)

    def _end(self, producer_id: int, kind: ControlType, *, takes_epoch: bool) -> None:
        """A coordinator that aborts a transaction after its timeout uses the next epoch for that."""
        producer = self._producers[producer_id]
        if takes_epoch:
            producer.begin_epoch()
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            timestamp=self._clock.now_ms(),
        )
        producer.has_transaction = False
        self._append(marker)
        self._log.producer_state.on_high_watermark(self._log.log_end_offset)

    def _append(self, batch: bytes) -> None:
        now_ms = self._clock.now_ms()
        self._log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=now_ms, from_client=False)

    def _records(self) -> list[Record]:
        return [self._record() for _ in range(self._random.choice((1, 2, 3, 8)))]

    def _record(self) -> Record:
        draw = self._random
        number = draw.randrange(KEYS) + KEYS * draw.choice((0, 0, self._part))
        key: bytes | None = LONG_KEY % number if number % 5 == 0 else b"key %d" % number
        if draw.random() < 0.03:
            key = None  # Written before the topic was compacted.
        value = None if draw.random() < 0.2 else draw.randbytes(draw.choice((0, 20, 100)))
        headers = (("number", b"%d" % number), ("null", None)) if draw.random() < 0.2 else ()
        return Record(0, self._clock.now_ms() - draw.randrange(1000), key, value, headers)

    def _codec(self) -> Codec:
        return self._random.choice(self._codecs)


def write_history(
    logs_dir: Path, topics: Mapping[str, Sequence[Codec]], seeds: Sequence[int], now_ms: int
) -> dict[str, list[list[int]]]:
    """Topics with the codecs of their batches: one partition for each seed.

    Returns for each partition of each topic the offsets up to which the passes clean it, one for each lag.  The
    modification time of each segment's file is the time of its last record.
    """
    clock = _Clock(now_ms)
    manager = LogManager([str(logs_dir)], files=RealFiles(), clock=clock, random=random.Random(0))
    manager.load()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    logs = {
        topic: [
            manager.get_or_create(TopicPartition(topic, partition), config=config) for partition in range(len(seeds))
        ]
        for topic in topics
    }
    ends = {
        topic: [_write(log, seed, topics[topic], clock, now_ms) for log, seed in zip(of_topic, seeds, strict=True)]
        for topic, of_topic in logs.items()
    }
    modified_ms = {
        segment.path(LOG_SUFFIX): segment.largest_timestamp
        for of_topic in logs.values()
        for log in of_topic
        for segment in log.segments
    }
    manager.clean_shutdown()
    for path, time_ms in modified_ms.items():
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))
    return ends


def _write(log: Log, seed: int, codecs: Sequence[Codec], clock: _Clock, now_ms: int) -> list[int]:
    """The offsets up to which the passes clean."""
    history = _History(log, seed, codecs, clock)
    starts = []
    for number, ago_ms in enumerate(PARTS_AGO_MS):
        clock.set(now_ms - ago_ms)
        starts.append(log.log_end_offset)
        if number == 0:
            history.write_part((*TRANSACTIONAL, *RETIRING))
            history.retire()
        else:
            history.write_part(TRANSACTIONAL)
    history.end_transactions()
    log.flush()
    bases = [segment.base_offset for segment in log.segments]
    # A segment with the first record of the next part is too young.
    return [max(base for base in bases if base <= start) for start in (*starts[1:], log.log_end_offset)]
