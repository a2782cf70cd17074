"""The consumer of share groups for applications without an event loop: an AsyncShareConsumer on a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, overload
from uuid import UUID

from kctl.client.application.async_share_consumer import ITERATION_POLL_MS, AsyncShareConsumer, ShareRecord
from kctl.client.application.consumer_records import K, V
from kctl.client.application.settings import Deserializer
from kctl.client.application.share_settings import ShareConsumerConfig
from kctl.client.connections.loop_thread import LoopThread
from kctl.client.consuming.groups.consumer import CLOSE_MS
from kctl.client.consuming.sharing.session import AcknowledgeType
from kctl.client.consuming.sharing.share_group import OnAcknowledged
from kctl.errors import ApiError, UsageError
from kctl.model import TopicPartition

T = TypeVar("T")


class ShareConsumer(Generic[K, V]):
    """Processes records that the members of a share group have in common; use as a context manager.  For one thread.

    Heartbeats and requests go on in the background.  If the block raises, the last records are released.  Only `wakeup`
    and `close` may be called by other threads.
    """

    @overload
    def __init__(
        self: ShareConsumer[Any, Any],
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
        """As AsyncShareConsumer; `on_acknowledged` is called on the background thread, which it must not block."""
        self._config = config
        self._deserializers = (
            key_deserializer or config.key_deserializer,
            value_deserializer or config.value_deserializer,
        )
        self._on_acknowledged = on_acknowledged
        self._thread: LoopThread | None = None
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        """Return the client; nothing is sent yet."""
        self._thread = LoopThread("kctl share consumer")
        self._thread.run(self._open())
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        self.close(accept=error_type is None)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Shares the records of these topics with the other members of the group, which `poll` joins.

        Replaces an earlier subscription.  Raises UsageError.
        """
        self._opened().run(self._consumer.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leaves the group, after the last records were accepted in the implicit mode."""
        self._opened().run(self._consumer.unsubscribe())

    def close(self, *, accept: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Send acknowledgements, release the other records, leave the group and close the connections.

        In the implicit mode the records of the last `poll` are accepted, or, unless `accept`, released.  Called by
        another thread, it makes the call in progress raise WokenUp.
        """
        thread = self._thread
        if thread is None:
            return
        if self._pid != os.getpid():
            self._thread = None  # The member and the thread belong to the process that has forked.
            return
        closing = self._consumer.close(accept=accept, timeout_ms=timeout_ms)
        asyncio.run_coroutine_threadsafe(closing, thread.loop)
        try:
            thread.run(self._consumer.close())
        finally:
            self._thread = None
            thread.close()

    def wakeup(self) -> None:
        """Make the `poll` in progress, or else the next one, raise WokenUp.  For any thread."""
        if self._thread is not None:
            self._consumer.wakeup()

    def poll(self, timeout_ms: int = 1_000) -> list[ShareRecord[K, V]]:
        """Return the next records, about `max_poll_records`, of any order; empty if none arrived in time.

        In the implicit mode those returned before are accepted.  In the explicit mode they must have been acknowledged
        (else UsageError).  Raises as AsyncShareConsumer.poll.
        """
        return self._opened().run(self._consumer.poll(timeout_ms))

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """All records, without end; in the explicit mode each must be acknowledged.  Raises as `poll` does."""
        while True:
            yield from self.poll(ITERATION_POLL_MS)

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Says what was done with a record of the last `poll`; the next `poll`, `commit` or `close` sends it.

        After RENEW the record is still held and acknowledged again later.  Raises UsageError in the implicit mode, and
        for a record that is not held.
        """
        self._on_loop(lambda: self._consumer.acknowledge(record, kind))

    def commit(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, ApiError | None]:
        """Send acknowledgements, in the implicit mode of all records that were returned; return the outcome by
        partition.

        Raises ClusterUnreachable, UsageError, and ApiError if renewals are not served.
        """
        return self._opened().run(self._consumer.commit(timeout_ms=timeout_ms))

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the broker waits for the acknowledgement of a record; None before the first response."""
        return self._on_loop(lambda: self._consumer.acquisition_lock_timeout_ms)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions of which records are fetched; other members may have the same ones."""
        return self._on_loop(lambda: self._consumer.assignment)

    def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError with enable_metrics_push=False.
        """
        return self._opened().run(self._consumer.client_instance_id(timeout_ms))

    def metrics(self) -> dict[str, float]:
        """Totals since the subscription; names as of Kafka's metrics of share consumers."""
        return self._on_loop(self._consumer.metrics)

    async def _open(self) -> None:
        key_deserializer, value_deserializer = self._deserializers
        self._consumer: AsyncShareConsumer[K, V] = AsyncShareConsumer(
            self._config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_acknowledged=self._on_acknowledged,
        )

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._opened().run(run())

    def _opened(self) -> LoopThread:
        if self._pid != os.getpid():
            raise UsageError("the consumer was created before this process was forked: create one in each process")
        if self._thread is None:
            raise UsageError("the consumer is closed, or was not opened: use it in a with statement")
        return self._thread
