"""Records as an application sends them: what may be in them, and interceptors that see each record and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import time_ns
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kctl.client.producing.batches import RECORD_OVERHEAD, RecordMetadata, size_of_headers
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import INT32_MAX, topic_name_problem
from kctl.output.quantities import counted
from kctl.records.build import RecordFields
from kctl.records.header import NO_TIMESTAMP, TIMESTAMP_MAX

_KNOWN_TOPICS_MAX = 10_000
"""Names that are remembered to be valid."""


class ProducerRecord(NamedTuple):
    """A record before serialization.  `partition` None lets the partitioner select, `timestamp_ms` None is now."""

    topic: str
    value: Any
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Is called for every record; subclasses override what they need.  ProducerInterceptor of Kafka's clients.

    `on_send` runs in the caller of `send`, and its exceptions are raised there.  `on_result` runs on the event loop of
    the producer and must not block.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead, before serialization."""
        return record

    def on_result(self, record: ProducerRecord, result: RecordMetadata | KctlError) -> None:
        """Note that the record was acknowledged or has failed."""


@runtime_checkable
class TopicSerializer(Protocol):
    """A serializer that depends on the topic, and that may have to wait before the first record of a topic."""

    def serialize(self, topic: str, value: Any, *, is_key: bool) -> bytes | None:
        """Return the bytes of a key or a value."""

    def is_prepared(self, topic: str, *, is_key: bool) -> bool:
        """Whether `serialize` does not wait."""

    def prepare(self, topic: str, *, is_key: bool) -> None:
        """Do what `serialize` would wait for.  May be called in any thread."""


Serializer = Callable[[Any], bytes | None] | TopicSerializer


class RecordRules:
    """Serializes the records of an application and refuses what cannot be written, at the call that sends it."""

    def __init__(
        self,
        key_serializer: Serializer,
        value_serializer: Serializer,
        interceptors: Sequence[ProducerInterceptor],
        size_max: int,
    ) -> None:
        """`size_max` is max.request.size."""
        self._key_serializer = _by_topic(key_serializer, is_key=True)
        self._value_serializer = _by_topic(value_serializer, is_key=False)
        self._keeps_bytes_of_keys = key_serializer is as_bytes
        self._keeps_bytes_of_values = value_serializer is as_bytes
        self._interceptors = tuple(interceptors)
        self._size_max = size_max
        self._topics: set[str] = set()
        self._topic_serializers = tuple(
            (serializer, is_key)
            for serializer, is_key in ((key_serializer, True), (value_serializer, False))
            if isinstance(serializer, TopicSerializer)
        )
        self.depends_on_topic = bool(self._topic_serializers)
        """Whether a serializer may have to wait before the first record of a topic."""

    def preparation(self, topic: Any) -> Callable[[], None] | None:
        """Return what the serializers have to wait for before a record of a topic; None if they are prepared."""
        missing = [
            (serializer, is_key)
            for serializer, is_key in self._topic_serializers
            if isinstance(topic, str) and not serializer.is_prepared(topic, is_key=is_key)
        ]
        if not missing:
            return None
        self._check_topic(topic)

        def prepare() -> None:
            for serializer, is_key in missing:
                serializer.prepare(topic, is_key=is_key)

        return prepare

    def serialize(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
    ) -> tuple[str, int | None, RecordFields, int, ProducerRecord | None]:
        """Topic, partition, fields, size in bytes, and for interceptors the record before serialization.

        Raises UsageError, which names the argument; ApiError(MESSAGE_TOO_LARGE); and what interceptors and serializers
        raise.
        """
        record = None
        if self._interceptors:
            headers = _checked_headers(headers)
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            for interceptor in self._interceptors:
                record = interceptor.on_send(record)
            topic, value, key, headers, partition, timestamp_ms = record
        if type(topic) is not str or topic not in self._topics:
            self._check_topic(topic)
        if partition is not None and (type(partition) is not int or not 0 <= partition <= INT32_MAX):
            raise UsageError(f"partition must be an int from 0 to {INT32_MAX} or None, not {_shown(partition)}")
        if timestamp_ms is None:
            timestamp_ms = time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or not NO_TIMESTAMP <= timestamp_ms <= TIMESTAMP_MAX:
            raise UsageError(
                f"timestamp_ms must be an int from 0 to {TIMESTAMP_MAX}, -1 for no timestamp, or None,"
                f" not {_shown(timestamp_ms)}"
            )
        size = RECORD_OVERHEAD
        if key is not None or not self._keeps_bytes_of_keys:
            if type(key) is not bytes or not self._keeps_bytes_of_keys:
                key = _serialized("key", self._key_serializer(topic), key)
            size += 0 if key is None else len(key)
        if type(value) is not bytes or not self._keeps_bytes_of_values:
            value = _serialized("value", self._value_serializer(topic), value)
        if value is not None:
            size += len(value)
        if headers:
            headers = _checked_headers(headers)
            size += size_of_headers(headers)
        if size > self._size_max:
            text = f"a record of {counted(size, 'byte')} is larger than max.request.size={self._size_max}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)
        return topic, partition, (0, timestamp_ms, key, value, headers or ()), size, record

    def _check_topic(self, topic: Any) -> None:
        if not isinstance(topic, str):
            raise UsageError(f"topic must be a str, not {_shown(topic)}")
        if problem := topic_name_problem(topic):
            raise UsageError(f"topic: {problem}")
        if len(self._topics) < _KNOWN_TOPICS_MAX:
            self._topics.add(topic)


def as_bytes(data: Any) -> bytes | None:
    """Return the default serializer: bytes, text as UTF-8, and None.  Raises UsageError for other types."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text has no encoding in UTF-8: {error.reason}") from None
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise UsageError(f"a {type(data).__name__} needs a serializer")


def _by_topic(serializer: Serializer, *, is_key: bool) -> Callable[[str], Callable[[Any], bytes | None]]:
    """Return the serializer for a topic."""
    if isinstance(serializer, TopicSerializer):
        return lambda topic: partial(serializer.serialize, topic, is_key=is_key)
    return lambda _: serializer


def _serialized(name: str, serializer: Callable[[Any], bytes | None], data: Any) -> bytes | None:
    try:
        serialized: Any = serializer(data)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    if serialized is None or isinstance(serialized, bytes):
        return serialized
    if isinstance(serialized, (bytearray, memoryview)):
        return bytes(serialized)
    raise UsageError(f"{name}_serializer must return bytes or None, not {_shown(serialized)}")


def _checked_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    if isinstance(headers, (str, bytes, dict)) or not isinstance(headers, Sequence):
        raise UsageError(f"headers must be a sequence of (name, value), not {_shown(headers)}")
    return tuple(_checked_header(index, header) for index, header in enumerate(headers))


def _checked_header(index: int, header: Any) -> tuple[str, bytes | None]:
    if not isinstance(header, (tuple, list)) or len(header) != 2:
        raise UsageError(f"headers[{index}] must be a pair (name, value), not {_shown(header)}")
    name, value = header
    if not isinstance(name, str):
        raise UsageError(f"headers[{index}]: the name must be a str, not {_shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"headers[{index}]: the name has no encoding in UTF-8: {error.reason}") from None
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if value is not None and not isinstance(value, bytes):
        raise UsageError(f"headers[{index}]: the value of '{name[:100]}' must be bytes or None, not {_shown(value)}")
    return name, value


def _shown(value: object) -> str:
    """Return the type of a wrong value, and a short number or text itself."""
    text = repr(value) if isinstance(value, (int, float)) else ""
    return f"{type(value).__name__} {text}".strip() if len(text) <= 40 else type(value).__name__
