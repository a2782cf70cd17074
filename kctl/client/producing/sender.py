"""Sends the batches of the accumulator to the leaders of their partitions, until each has a result.

Requests of one broker carry the batches of several partitions, and up to `in_flight_max` of them are in flight; brokers
do not wait for each other.  Whatever fails, every batch gets a result, after `delivery_timeout_ms` at the latest.  In a
transaction nothing is sent after the first error, because the transaction can then only be aborted.

The accumulator has the rules; this module has the clock, the timer and the tasks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.leaders import NO_RESULT
from kctl.client.producing.accumulator import RETRIED, Accumulator, Decision, PartitionQueue, Plan
from kctl.client.producing.batches import Batch
from kctl.client.producing.brokers import ProducerBroker, ProducerBrokers
from kctl.client.producing.requests import initialise_producer_id, produce_request, results_of
from kctl.client.producing.results import Results, as_kctl_error
from kctl.client.producing.settings import ProducerSettings
from kctl.client.producing.topics import ProducerTopics
from kctl.client.producing.transaction import Transaction
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.protocol.apis.produce import ProduceResponse
from kctl.system.reference_cycles import copy_of, weak_call

logger = logging.getLogger(__name__)


class Sender:
    """Carries out the plans of the accumulator.  Owner: event loop.

    Other threads may call `look_soon` if `loop` is given; `lock` is then held around each use of the accumulator.
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ProducerSettings,
        accumulator: Accumulator,
        results: Results,
        *,
        lock: threading.RLock,
        loop: asyncio.AbstractEventLoop | None,
        jitter: Callable[[], float],
    ) -> None:
        self.transaction: Transaction | None = None
        self.topics = ProducerTopics(
            client,
            creates_topics=settings.creates_topics,
            block_ms=settings.max_block_ms,
            on_change=weak_call(self.look_soon, None),
            busy=weak_call(self._late_addresses, ()),
        )
        self.brokers = ProducerBrokers(
            client,
            settings.in_flight_max,
            find_broker=lambda node_id, topics=self.topics: topics.brokers.get(node_id),  # type: ignore[misc]
            on_open=weak_call(self.look_soon, None),
            on_failure=weak_call(self._connecting_failed, None),
            jitter=jitter,
        )
        self._client = client
        self._settings = settings
        self._accumulator = accumulator
        self._results = results
        self._lock = lock
        self._is_shared = loop is not None
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._allocating: asyncio.Task[None] | None = None
        self._adding: asyncio.Task[None] | None = None
        self._last_error: KctlError | None = None
        """Why nothing can be sent now: no producer id, or the transaction's coordinator is away."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_look_due = False
        self._is_stopped = False

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer; that of the first caller if none was given."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def now_ms(self) -> int:
        """Return the time of the event loop."""
        return int((self._loop or self.bind()).time() * 1000)

    def look_soon(self) -> None:
        """Look for what is to be done; may be called by any thread that may add records."""
        if self._is_look_due or self._is_stopped:
            return
        self._is_look_due = True
        loop = self._loop or self.bind()
        if self._is_shared:
            loop.call_soon_threadsafe(self._look)
        else:
            loop.call_soon(self._look)

    def fail_unsent(self, error: KctlError) -> None:
        """Make the error the result of all batches that are not in flight."""
        with self._lock:
            taken = self._accumulator.take_unsent()
        for queue, batch in taken:
            self._results.fail(queue, batch, error)

    def cancel(self) -> None:
        """Stop sending, and cancel all tasks."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if (looking_up := self.topics.cancel()) is not None:
            self._tasks[looking_up] = None
        for task in self._running():
            task.cancel()

    async def wait_for_tasks(self) -> None:
        """Wait for the end of the tasks that were cancelled."""
        if tasks := self._running():
            await asyncio.wait(tasks)

    def _running(self) -> list[asyncio.Task[None]]:
        tasks = [*self._tasks, self._allocating, self._adding, *self.brokers.running()]
        return [task for task in tasks if task is not None and not task.done()]

    def _start(self, work: Any, name: str) -> None:
        task = self.bind().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _look(self) -> None:
        """Send what is to be sent.  Whatever is wrong here is the result of the records."""
        self._is_look_due = False
        if self._is_stopped:
            return
        try:
            self._act()
        except Exception as error:
            logger.exception("sending failed")
            self.fail_unsent(as_kctl_error(error))

    def _act(self) -> None:
        now_ms = self.now_ms()
        if self._results.failure is not None and self.transaction is not None:
            self.fail_unsent(self._results.failure)
        with self._lock:
            plan = self._accumulator.step(now_ms, self.topics.leader_of, self.brokers.rooms)
        for queue, batch in plan.expired:
            self._results.fail(queue, batch, self._expiry(queue, batch))
        for node_id, batches in plan.requests:
            broker = self.brokers[node_id]
            broker.in_flight += 1
            self._start(self._produce(broker, batches), "produce")
        self._prepare(plan)
        self.topics.refresh_if_old()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.next_ms is not None:
            self._timer = self.bind().call_at(plan.next_ms / 1000 + 0.0005, self._look)

    def _prepare(self, plan: Plan) -> None:
        """Start what the batches wait for."""
        if plan.leaderless:
            self.topics.refresh(plan.leaderless)
        for node_id in plan.unconnected:
            self.brokers.connect(node_id)
        if plan.needs_producer_id and (self._allocating is None or self._allocating.done()):
            self._allocating = self.bind().create_task(self._allocate(), name="get a producer id")
        if plan.unadded and (self._adding is None or self._adding.done()):
            self._adding = self.bind().create_task(self._add(plan.unadded), name="add partitions to a transaction")

    def _late_addresses(self) -> list[str]:
        return self.brokers.late_addresses()

    def _connecting_failed(self, node_id: int, error: Exception) -> None:
        """Let the batches of a broker wait for the next attempt, or fail them if there will be none."""
        is_passing = isinstance(error, ConnectionLost)
        with self._lock:
            waiting = self._accumulator.take_unsent(
                lambda tp: self.topics.leader_of(tp) == node_id, is_removed=not is_passing
            )
        if not is_passing:
            failure = as_kctl_error(error)
            for queue, batch in waiting:
                self._results.fail(queue, batch, copy_of(failure))
            return
        self._results.counters.connections_failed += 1
        for _, batch in waiting:
            batch.last_error = ApiError(ErrorCode.NETWORK_EXCEPTION, str(error))
        self.topics.refresh({queue.tp.topic for queue, _ in waiting})

    async def _allocate(self) -> None:
        """Get a producer id; batches wait for it."""
        try:
            # A broker that is allocating its next block of ids responds COORDINATOR_LOAD_IN_PROGRESS (seen with 3.9.1).
            producer = await self._client.on_any_broker(initialise_producer_id, codes=COORDINATOR_MOVED)
            with self._lock:
                self._accumulator.producer = producer
            self._last_error = None
        except Exception as error:
            await self._fail_or_pause(error)
        self.look_soon()

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction; their batches wait for it."""
        transaction = self.transaction
        assert transaction is not None
        try:
            await transaction.add(partitions)
            self._last_error = None
        except Exception as error:
            if transaction is self.transaction:
                await self._fail_or_pause(error)
        self.look_soon()

    async def _fail_or_pause(self, error: Exception) -> None:
        """Fails the records that wait, unless the error may pass while they have time."""
        failure = as_kctl_error(error)
        is_passing = isinstance(failure, ClusterUnreachable) or (
            isinstance(failure, ApiError) and failure.code in RETRIED
        )
        if not is_passing or self._settings.delivery_timeout_ms is None:
            self.fail_unsent(failure)
            return
        self._last_error = failure
        await asyncio.sleep(self._client.settings.retry_backoff_ms_max / 1000)

    async def _produce(self, broker: ProducerBroker, batches: list[tuple[PartitionQueue, Batch]]) -> None:
        """Send one request, and pass the results to the batches."""
        loop = self.bind()
        connection = broker.connection
        error: KctlError | None = None
        results: dict[TopicPartition, tuple[int, int] | ApiError] = {}
        try:
            assert connection is not None
            sent = [(queue, batch) for queue, batch in batches if not batch.is_done]
            request = produce_request(
                [(queue.tp, batch) for queue, batch in sent],
                acks=self._settings.acks,
                codec=self._settings.codec,
                level=self._settings.codec_level,
                timeout_ms=self._client.settings.response_timeout_ms,
                transactional_id=None if self.transaction is None else self.transaction.transactional_id,
            )
            started_s = broker.sent_s = loop.time()
            for _, batch in sent:
                if batch.attempts == 1:
                    self._results.counters.queue_times.add(started_s * 1000 - batch.opened_ms)
            if self._settings.acks == 0:
                await connection.post(request)
                results = {queue.tp: (-1, -1) for queue, _ in sent}
            else:
                results = results_of(await connection.send(request, ProduceResponse))
            self._results.counters.add_request(loop.time() - started_s)
        except ConnectionLost as lost:
            error = ApiError(ErrorCode.NETWORK_EXCEPTION, str(lost))
            if broker.connection is connection:
                broker.connection = None
            if connection is not None and connection.is_open:  # it does not respond
                self._start(connection.close(), "close a connection")
        except Exception as problem:
            error = as_kctl_error(problem)
        finally:
            broker.in_flight -= 1
            broker.sent_s = loop.time()
        for queue, batch in batches:
            result = error or results.get(queue.tp)
            self._settle(queue, batch, result or ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, NO_RESULT))
        self.look_soon()

    def _settle(self, queue: PartitionQueue, batch: Batch, result: tuple[int, int] | KctlError) -> None:
        """Handle the result of a batch, which is not always the last one."""
        if not isinstance(result, KctlError):
            with self._lock:
                is_new = self._accumulator.acknowledged(queue, batch)
            if is_new:
                self._results.acknowledge(queue, batch, *result)
            return
        code = result.code if isinstance(result, ApiError) else None
        settings = self._client.settings
        pause_ms = min(settings.retry_backoff_ms << min(batch.attempts - 1, 20), settings.retry_backoff_ms_max)
        with self._lock:
            decision = self._accumulator.refused(queue, batch, result, self.now_ms() + pause_ms)
        if code in LEADER_MOVED or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.topics.leader_has_moved(queue.tp)
        self._results.counters.retries += decision is Decision.RETRY
        self._results.counters.splits += decision is Decision.SPLIT
        if decision is Decision.FAIL:
            if isinstance(result, ApiError):
                result = ApiError(result.code, f"{queue.tp}: {result}")
            self._results.fail(queue, batch, result)

    def _expiry(self, queue: PartitionQueue, batch: Batch) -> KctlError:
        """Return the error of a batch whose time is over."""
        timeout_ms = self._settings.delivery_timeout_ms
        last = batch.last_error or self._last_error or self.topics.last_error
        if timeout_ms is None and last is not None:
            return ApiError(last.code, f"{queue.tp}: {last}") if isinstance(last, ApiError) else copy_of(last)
        name = f"{self._client.settings.timeout_ms} ms" if timeout_ms is None else f"delivery.timeout.ms={timeout_ms}"
        if last is None and not batch.attempts and self.topics.leader_of(queue.tp) < 0:
            return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{queue.tp}: no leader within {name}; was not sent")
        cause = "" if last is None else f" ({last})"
        written = "may have been written" if batch.attempts else "was not sent"
        text = f"{queue.tp}: not acknowledged within {name}{cause}; {written}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text)
