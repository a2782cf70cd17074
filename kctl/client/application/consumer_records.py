"""The records that an application receives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.registry.schema import RegistryUnreachable
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.records.batch import placed_records
from kctl.records.header import BatchHeader, TimestampType

logger = logging.getLogger(__name__)

_REASON_CHARACTERS_MAX = 500

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record that was read; `key` and `value` are deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """Whether the producer or the broker has set the timestamp."""
    leader_epoch: int = -1
    """Of the leader that has written the record (KIP-320); -1 if it is unknown."""


class DeserializationFailed(KctlError):
    """A deserializer has raised an error, which is the cause.  Java's RecordDeserializationException."""

    def __init__(self, record: ConsumerRecord[Any, Any], error: Exception) -> None:
        self.tp = TopicPartition(record.topic, record.partition)
        """The partition of the record; `seek(error.tp, error.record.offset + 1)` continues after it."""
        self.record = record
        """The record with the bytes of its key and value."""
        text = str(error) if isinstance(error, KctlError) else f"{type(error).__name__}: {error}"
        reason = text[:_REASON_CHARACTERS_MAX]
        super().__init__(f"{self.tp} at offset {record.offset} cannot be deserialized: {reason}")


class Unprepared(Exception):
    """Raised on an event loop by a deserializer that would wait; `prepare` is called in a thread, then it again."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        super().__init__("the deserializer has to wait")
        self.prepare = prepare


def without_waiting(deserializer: Callable[[bytes | None], Any]) -> Callable[[bytes | None], Any]:
    """Return the form of a deserializer for an event loop, which raises Unprepared instead of waiting, if it has
    one.
    """
    form: Callable[[bytes | None], Any] = getattr(deserializer, "without_waiting", deserializer)
    return form


class ConsumerInterceptor:
    """Sees records and commits of a consumer; subclasses override what they need.  Java's ConsumerInterceptor.

    What a method raises is logged, and the record or commit passes unchanged.
    """

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Change records before the application gets them: one list of each `poll`, one record of an iteration."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Offsets that were committed; called on the event loop, which it must not block."""


RawRecord = ConsumerRecord[bytes | None, bytes | None]

_record: partial[RawRecord] = partial(tuple.__new__, ConsumerRecord)


def decode_raw(tp: TopicPartition, buffer: memoryview, header: BatchHeader) -> Iterator[tuple[list[RawRecord], int]]:
    """Yield the records of a batch, not deserialized, in lists with the offset after each.  Raises CorruptBatch."""
    for found, is_last in placed_records(buffer, header, tp):
        records = list(map(_record, found))
        yield records, header.next_offset if is_last else records[-1].offset + 1


def deserialized(
    record: RawRecord,
    key_deserializer: Callable[[bytes | None], Any],
    value_deserializer: Callable[[bytes | None], Any],
) -> ConsumerRecord[Any, Any]:
    """Return the record with key and value as the deserializers return them.

    Raises DeserializationFailed; and Unprepared and RegistryUnreachable, which are not about the record.
    """
    try:
        fields = (*record[:4], key_deserializer(record.key), value_deserializer(record.value), *record[6:])
    except (Unprepared, RegistryUnreachable):
        raise
    except Exception as error:
        raise DeserializationFailed(record, error) from error
    return _record(fields)


def intercepted(interceptors: Sequence[ConsumerInterceptor], records: list[Any]) -> list[Any]:
    """Return the records as the interceptors return them."""
    for interceptor in interceptors:
        try:
            records = interceptor.on_consume(records)
        except Exception:
            logger.exception("an interceptor has failed")
    return records


def announce_commit(
    interceptors: Sequence[ConsumerInterceptor], offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Tell the interceptors about a commit."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:
            logger.exception("an interceptor has failed")
