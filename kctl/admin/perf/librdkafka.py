"""Produces and consumes test records by librdkafka, through the package confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import confluent_kafka

from kctl.admin.perf.load_client import LoadRun, ProducedRecords
from kctl.admin.perf.measurement import NS_PER_S
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.limits import PERF_BUFFERED_BYTES_MAX
from kctl.model import TopicPartition

_POLL_S = 0.1
"""How long a call may take before signals are handled."""
_SENDS_PER_POLL = 64
_BATCH = 500
_FATAL_LOG_LEVEL = 2
_BACKOFF_MS_MAX = 300_000
_REFRESH_MS_MAX = 3_600_000
_LINGER_MS_MAX = 900_000
_REQUEST_MS_MAX = 300_000
_MESSAGE_BYTES_MAX = 1_000_000_000
_MESSAGE_BYTES_MIN = 1_000_000
_FETCH_MIN_BYTES_MAX = 100_000_000
"""Bounds of librdkafka's properties."""


class Librdkafka:
    """Producers and consumers of librdkafka."""

    def __init__(self, settings: ClientSettings, limits: FetchLimits, isolation: IsolationLevel) -> None:
        self.name = f"librdkafka {confluent_kafka.libversion()[0]}"
        self._settings = settings
        self._limits = limits
        self._isolation = isolation
        self._last_error = ""

    def produce(self, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                run.measured.fail(error.str())
                return
            now_ns = time.perf_counter_ns()
            run.measured.add(len(message), now_ns, sent_ns=now_ns - int(message.latency() * NS_PER_S))

        producer = confluent_kafka.Producer(self._producer_settings(records))
        schedule = run.schedule()
        value: bytes | None = None
        sent = 0
        try:
            while (wait_ns := schedule.wait_ns(now_ns := time.perf_counter_ns())) is not None:
                if wait_ns > 0 or sent % _SENDS_PER_POLL == 0:
                    producer.poll(min(wait_ns / NS_PER_S, _POLL_S))
                    run.report()
                    if wait_ns > 0:
                        continue
                value = next(records.values) if value is None else value
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                except BufferError:
                    producer.poll(_POLL_S)
                    run.report()
                    continue
                value = None
                sent += 1
                schedule.sent(now_ns)
            _flush(producer, run)
        except BaseException:
            producer.purge()
            raise
        if run.measured.first_error is not None and self._last_error:
            run.measured.first_error = f"{run.measured.first_error} ({self._last_error})"

    def consume(self, ranges: Mapping[TopicPartition, tuple[int, int]], run: LoadRun) -> None:
        """Implement LoadClient."""
        consumer = confluent_kafka.Consumer(self._consumer_settings())
        try:
            waiting = {tp: bounds for tp, bounds in ranges.items() if bounds[0] < bounds[1]}
            consumer.assign([_with_offset(tp, start) for tp, (start, _) in waiting.items()])
            schedule = run.schedule()
            silent_since = time.monotonic()
            while waiting and schedule.wait_ns(time.perf_counter_ns()) is not None:
                run.report()
                messages = consumer.consume(_BATCH, _POLL_S)
                now_ns = time.perf_counter_ns()
                for message in messages:
                    tp = TopicPartition(message.topic() or "", message.partition() or 0)
                    if message.error() is not None:
                        _raise_unless_end(message.error())
                        waiting.pop(tp, None)
                    elif (message.offset() or 0) >= ranges[tp][1]:
                        waiting.pop(tp, None)
                    elif schedule.wait_ns(now_ns) is not None:
                        run.measured.add(len(message) + len(message.key() or b""), now_ns)
                        schedule.sent(now_ns)
                silent_since = time.monotonic() if messages else silent_since
                self._check_silence(silent_since)
        finally:
            consumer.close()

    def round_trips(self, ends: Mapping[TopicPartition, int], records: ProducedRecords, run: LoadRun) -> None:
        """Implement LoadClient."""
        producer = confluent_kafka.Producer(self._producer_settings(records))
        consumer = confluent_kafka.Consumer(self._consumer_settings() | {"isolation.level": "read_uncommitted"})
        try:
            consumer.assign([_with_offset(tp, end) for tp, end in ends.items()])
            schedule = run.schedule()
            partitions = sorted(ends)
            number = 0
            while (wait_ns := schedule.wait_ns(now_ns := time.perf_counter_ns())) is not None:
                run.report()
                if wait_ns > 0:
                    time.sleep(min(wait_ns / NS_PER_S, _POLL_S))
                    continue
                value, tp = next(records.values), partitions[number % len(partitions)]
                self._send_one(producer, tp, value, run)
                run.measured.add(len(value), self._arrival(consumer, tp, value, run), sent_ns=now_ns)
                schedule.sent(now_ns)
                number += 1
        finally:
            producer.purge()
            consumer.close()

    def _send_one(self, producer: Any, tp: TopicPartition, value: bytes, run: LoadRun) -> None:
        errors: list[Any] = []
        producer.produce(tp.topic, value, partition=tp.partition, on_delivery=lambda error, _: errors.append(error))
        while not errors:
            producer.poll(_POLL_S)  # ends after delivery.timeout.ms
            run.report()
        if errors[0] is not None:
            raise _error_of(errors[0])

    def _arrival(self, consumer: Any, tp: TopicPartition, value: bytes, run: LoadRun) -> int:
        """Wait for the record; others in the topic are skipped."""
        end = time.monotonic() + self._settings.timeout_ms / 1000
        while time.monotonic() < end:
            message = consumer.poll(_POLL_S)
            if message is None:
                run.report()
                continue
            if message.error() is not None:
                _raise_unless_end(message.error())
            elif message.value() == value:
                return time.perf_counter_ns()
        text = f"{tp}: a record that was written could not be read within {self._settings.timeout_ms} ms"
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _check_silence(self, since: float) -> None:
        if time.monotonic() - since > self._settings.timeout_ms / 1000:
            raise ClusterUnreachable(f"no records for {self._settings.timeout_ms} ms; {self._last_error}".rstrip("; "))

    def _settings_of_both(self) -> dict[str, Any]:
        def note_error(error: Any) -> None:
            self._last_error = error.str()

        return {
            "bootstrap.servers": ",".join(
                f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self._settings.bootstrap
            ),
            "client.id": self._settings.client_id,
            "client.rack": self._settings.rack,
            "socket.connection.setup.timeout.ms": max(1_000, self._settings.connect_timeout_ms),
            "retry.backoff.ms": min(self._settings.retry_backoff_ms, _BACKOFF_MS_MAX),
            "retry.backoff.max.ms": min(self._settings.retry_backoff_ms_max, _BACKOFF_MS_MAX),
            "topic.metadata.refresh.interval.ms": max(10, min(self._settings.metadata_max_age_ms, _REFRESH_MS_MAX)),
            "error_cb": note_error,
            "log_level": _FATAL_LOG_LEVEL,
        }

    def _producer_settings(self, records: ProducedRecords) -> dict[str, Any]:
        settings = records.settings
        found = self._settings_of_both() | {
            "acks": settings.acks,
            "enable.idempotence": settings.idempotent,
            "compression.type": settings.codec.name.lower(),
            "linger.ms": min(settings.linger_ms, _LINGER_MS_MAX),
            "batch.size": max(1, settings.batch_bytes),
            "message.max.bytes": max(1_000, min(settings.record_bytes_max or _MESSAGE_BYTES_MAX, _MESSAGE_BYTES_MAX)),
            "queue.buffering.max.kbytes": max(1, min(settings.buffered_bytes_max, PERF_BUFFERED_BYTES_MAX) >> 10),
            "delivery.timeout.ms": settings.delivery_timeout_ms or self._settings.timeout_ms,
            "request.timeout.ms": min(self._settings.response_timeout_ms, _REQUEST_MS_MAX),
        }
        return found if settings.retries is None else found | {"message.send.max.retries": settings.retries}

    def _consumer_settings(self) -> dict[str, Any]:
        limits = self._limits
        return self._settings_of_both() | {
            "group.id": f"kctl-perf-{uuid4()}",  # required, but never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": self._isolation.name.lower(),
            "fetch.wait.max.ms": min(limits.max_wait_ms, _REQUEST_MS_MAX),
            "fetch.min.bytes": max(1, min(limits.min_bytes, _FETCH_MIN_BYTES_MAX)),
            "fetch.max.bytes": max(limits.max_bytes, limits.partition_max_bytes, _MESSAGE_BYTES_MIN),
            "max.partition.fetch.bytes": max(1, min(limits.partition_max_bytes, _MESSAGE_BYTES_MAX)),
            "queued.max.messages.kbytes": PERF_BUFFERED_BYTES_MAX >> 10,
        }


def _flush(producer: Any, run: LoadRun) -> None:
    """Wait for the acknowledgements, at most for delivery.timeout.ms."""
    while producer.flush(_POLL_S):
        run.report()


def _with_offset(tp: TopicPartition, offset: int) -> Any:
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset)


def _raise_unless_end(error: Any) -> None:
    if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so by the package
        raise _error_of(error)


def _error_of(error: Any) -> KctlError:
    """Errors of brokers have Kafka's codes, those of librdkafka are negative."""
    if error.code() > 0:
        return ApiError(ErrorCode.of(error.code()), error.str())
    return ClusterUnreachable(error.str())
