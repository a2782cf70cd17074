"""The consumer of share groups (KIP-932) for applications with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from kctl.client.application.async_consumer import WokenUp
from kctl.client.application.consumer_records import K, RawRecord, Unprepared, V, decode_raw, without_waiting
from kctl.client.application.offset_lookups import ApplicationClient
from kctl.client.application.settings import Deserializer
from kctl.client.application.share_settings import ShareConsumerConfig
from kctl.client.application.telemetry.payload import Metric
from kctl.client.application.telemetry.standard_metrics import share_consumer_metrics
from kctl.client.connections.traffic import Window
from kctl.client.consuming.groups.consumer import CLOSE_MS
from kctl.client.consuming.sharing.session import AcknowledgeType
from kctl.client.consuming.sharing.share_group import Delivery, OnAcknowledged, ShareGroup
from kctl.errors import ApiError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.header import TimestampType

T = TypeVar("T")

ITERATION_POLL_MS = 60_000
PREPARATION_CHECK_S = 1.0
"""How long a preparation is waited for before the locks of the records that need it are checked again."""


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record that this consumer holds until it is acknowledged or its acquisition lock expires."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: TimestampType
    """Whether the producer or the broker has set the timestamp."""
    leader_epoch: int
    delivery_count: int
    """How many times the record was handed out to a member of the group, with this time."""


class AsyncShareConsumer(ApplicationClient, Generic[K, V]):
    """Processes records that the members of a share group have in common; use as an async context manager.

    Owner: event loop.  A call that is cancelled leaves the consumer as it was.
    """

    @overload
    def __init__(
        self: AsyncShareConsumer[Any, Any],
        config: ShareConsumerConfig,
        *,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: ShareConsumerConfig,
        *,
        key_deserializer: Callable[[bytes | None], K],
        value_deserializer: Callable[[bytes | None], V],
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None: ...

    def __init__(
        self,
        config: ShareConsumerConfig,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        """Prepare the consumer; the deserializers replace those of the settings, and give the records their types.

        `on_acknowledged` gets a partition, the offsets whose acknowledgement has a response, and its error or None.  It
        is called on the event loop, which it must not block.
        """
        super().__init__(config.client_settings(), has_telemetry=config.enable_metrics_push)
        self._config = config
        self._key_deserializer = without_waiting(key_deserializer or config.key_deserializer)
        self._value_deserializer = without_waiting(value_deserializer or config.value_deserializer)
        self._on_acknowledged = on_acknowledged
        self._group: ShareGroup[RawRecord] | None = None
        self._held: dict[tuple[str, int, int], Delivery[RawRecord]] = {}
        """Records of the last `poll` without an acknowledgement, by topic, partition and offset."""
        self._renewed: dict[tuple[str, int, int], Delivery[RawRecord]] = {}
        """Records whose lock was renewed; they are acknowledged later."""
        self._ending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        await self.close(accept=error_type is None)

    @property
    def _is_explicit(self) -> bool:
        return self._config.share_acknowledgement_mode == "explicit"

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Shares the records of these topics with the other members of the group, which `poll` joins.

        Replaces an earlier subscription.  Raises UsageError.
        """
        if isinstance(topics, str):
            raise UsageError("subscribe takes a list of topics")
        settings = self._config.membership(topics)
        self._require_open()
        await self.unsubscribe()
        self._group = ShareGroup(
            self._client, settings, decode_raw, self._config.limits(), self._on_acknowledged or (lambda *_: None)
        )

    async def unsubscribe(self, *, accept: bool = True) -> None:
        """Leaves the group; `accept` as in `close`."""
        await self._end(accept=accept, timeout_ms=CLOSE_MS)

    async def close(self, *, accept: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Send acknowledgements, release the other records, leave the group and close the connections.

        In the implicit mode the records of the last `poll` are accepted, or, unless `accept`, released.  Takes about
        twice the timeout at most.  Does not raise for an unreachable cluster.  If the call is cancelled, closing goes
        on, and another call waits for it.
        """
        if self._pid != os.getpid():
            self._is_closed = True
            return  # The member belongs to the process that has forked.
        self._is_closed = True
        self._notify()
        last_push = self._start_last_push(timeout_ms)
        await self._end(accept=accept, timeout_ms=timeout_ms)
        for task in list(self._shared):
            task.cancel()
        await asyncio.gather(*self._shared, last_push, return_exceptions=True)
        await self._client.close()

    async def _end(self, *, accept: bool, timeout_ms: int) -> None:
        """End the subscription; this goes on if the caller is cancelled."""
        if self._group is not None and (self._ending is None or self._ending.done()):
            self._ending = asyncio.create_task(self._leave(self._group, accept=accept, timeout_ms=timeout_ms))
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _leave(self, group: ShareGroup[RawRecord], *, accept: bool, timeout_ms: int) -> None:
        try:
            if accept and not self._is_explicit:
                self._accept_all()
            self._held.clear()
            self._renewed.clear()
            await group.close(timeout_ms)
        finally:
            self._group = self._ending = None

    # Records.

    async def poll(self, timeout_ms: int = 1_000) -> list[ShareRecord[K, V]]:
        """Return the next records, about `max_poll_records`, of any order; empty if none arrived in time.

        In the implicit mode those returned before are accepted.  In the explicit mode they must have been acknowledged
        (else UsageError).  Raises ApiError (not authorized, no share groups, ...), CorruptBatch, ClusterUnreachable if
        the group cannot be joined, WokenUp, and what a deserializer raises, after which the record is released.
        """
        self._require_open()
        group = self._require_subscription()
        self._loop = asyncio.get_running_loop()
        if self._is_explicit and self._held:
            topic, partition, offset = next(iter(self._held))
            held = counted(len(self._held), "record")
            raise UsageError(
                f"{held} of the last poll not acknowledged, among them offset {offset} of {topic}-{partition}:"
                " acknowledge all, or use share_acknowledgement_mode='implicit'"
            )
        self._accept_all()
        end_s = self._loop.time() + timeout_ms / 1000
        while True:
            self._raise_if_woken()
            deliveries = await group.poll(end_s, self._config.max_poll_records)
            if self._is_woken or self._is_closed:
                group.put_back(deliveries)
            self._raise_if_woken()
            try:
                records = self._records(group, deliveries)
            except Unprepared as unprepared:
                await self._prepare(group, unprepared.prepare, end_s)
                records = []
            if records or self._loop.time() >= end_s or self._group is not group or self._ending is not None:
                return records

    async def _prepare(self, group: ShareGroup[RawRecord], prepare: Callable[[], None], end_s: float) -> None:
        """Run in a thread what a deserializer waits for; return as `_run_preparation` does, or after a while."""
        group.changed.clear()
        if not (self._is_woken or self._is_closed):
            check_s = asyncio.get_running_loop().time() + PREPARATION_CHECK_S
            await self._run_preparation(prepare, group.changed, min(end_s, check_s))

    def _records(self, group: ShareGroup[RawRecord], deliveries: list[Delivery[RawRecord]]) -> list[ShareRecord[K, V]]:
        """Return the records up to one that cannot be deserialized now, which is released or, if the deserializer has
        to wait, taken again by the next `poll`.
        """
        records: list[ShareRecord[K, V]] = []
        for index, delivery in enumerate(deliveries):
            raw = delivery.record
            try:
                key, value = self._key_deserializer(raw.key), self._value_deserializer(raw.value)
            except Unprepared:
                group.put_back(deliveries[index:])
                if records:
                    return records
                raise
            except Exception:
                for other in deliveries[index:]:
                    group.acknowledge(other, AcknowledgeType.RELEASE)
                if records:
                    return records  # The records before it; those that are released are handed out again.
                raise
            records.append(ShareRecord(*raw[:4], key, value, *raw[6:], delivery.delivery_count))
            self._held[raw.topic, raw.partition, raw.offset] = delivery
        return records

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """All records, without end; in the explicit mode each must be acknowledged before the next `poll`.

        Raises as `poll` does.
        """
        while True:
            for record in await self.poll(ITERATION_POLL_MS):
                yield record

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Says what was done with a record of the last `poll`; the next `poll`, `commit` or `close` sends it.

        After RENEW the record is still held and acknowledged again later, before its lock expires.  Raises UsageError
        in the implicit mode, and for a record that is not held.
        """
        if not self._is_explicit:
            raise UsageError("acknowledge requires share_acknowledgement_mode='explicit'")
        group = self._require_subscription()
        place = record.topic, record.partition, record.offset
        delivery = self._held.get(place) or self._renewed.get(place)
        if delivery is None:
            raise UsageError(
                f"offset {record.offset} of {record.topic}-{record.partition} is not held by this consumer: it was "
                "acknowledged before, or is of an earlier subscription"
            )
        kind = AcknowledgeType(kind)
        group.acknowledge(delivery, kind)
        self._held.pop(place, None)
        self._renewed.pop(place, None)
        if kind is AcknowledgeType.RENEW:
            self._renewed[place] = delivery

    async def commit(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, ApiError | None]:
        """Send acknowledgements, in the implicit mode of all records that were returned; return the outcome by
        partition.

        If the call is cancelled, sending goes on.  Raises ClusterUnreachable, UsageError, and ApiError if renewals are
        not served.  An error of a partition (INVALID_RECORD_STATE: the lock has expired, ...) is in the result.
        """
        self._require_open()
        group = self._require_subscription()
        if self._renewed:
            await self._share(group.require_renewals())
        self._accept_all()
        if timeout_ms is None:
            timeout_ms = self._config.default_api_timeout_ms or self._config.request_timeout_ms
        return await self._share(group.flush(timeout_ms))

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the broker waits for the acknowledgement of a record; None before the first response."""
        return None if self._group is None else self._group.lock_timeout_ms

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions of which records are fetched; other members may have the same ones."""
        return set() if self._group is None else set(self._group.partitions)

    def wakeup(self) -> None:
        """Make the `poll` in progress, or else the next one, raise WokenUp.  For any thread."""
        self._is_woken = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._notify)

    def metrics(self) -> dict[str, float]:
        """Totals since the subscription; names as of Kafka's metrics of share consumers."""
        if self._group is None:
            return {}
        counts = self._group.counts
        return {
            "records-consumed-total": counts.records,
            "bytes-consumed-total": counts.bytes,
            "fetch-total": counts.requests,
            "fetch-error-total": counts.errors,
            "acknowledgements-send-total": counts.acknowledged,
            "acknowledgements-error-total": counts.acknowledgement_errors,
            "assigned-partitions": len(self._group.partitions),
            "join-total": self._group.joins,
        }

    def _telemetry(self, window: Window) -> list[Metric]:
        return share_consumer_metrics(self.metrics(), window)

    def _telemetry_resource(self) -> dict[str, str]:
        attributes = {"client_rack": self._config.client_rack, "group_id": self._config.group_id}
        return {name: text for name, text in attributes.items() if text}

    # Internals.

    def _accept_all(self) -> None:
        group = self._group
        if group is None or self._is_explicit:
            return
        for delivery in self._held.values():
            group.acknowledge(delivery, AcknowledgeType.ACCEPT)
        self._held.clear()

    def _notify(self) -> None:
        if self._group is not None:
            self._group.interrupt()

    def _raise_if_woken(self) -> None:
        if self._is_closed:
            raise WokenUp("the consumer was closed")
        if self._is_woken:
            self._is_woken = False
            if self._group is not None:
                self._group.is_interrupted = False
            raise WokenUp("wakeup was called")

    def _require_subscription(self) -> ShareGroup[RawRecord]:
        if self._group is None or self._ending is not None:
            raise UsageError("subscribe first")
        return self._group
