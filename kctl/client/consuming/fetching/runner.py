"""Keeps the fetches of a consumer going in the background: metadata, checks of positions, requests, resets.

The rules are in kctl.client.consuming.fetching.fetcher.  Each broker has a request of its own, and look-ups run beside
them, so that a broker that does not respond delays its own partitions only.  An outage delays the records and is
logged; it becomes an error only if no broker has responded since the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.fetching.batches import fetch_batches
from kctl.client.consuming.fetching.fetcher import GONE, Fetcher, Request
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import (
    Begin,
    Divergence,
    LogTruncated,
    check_positions,
    leader_epochs,
    lost_positions,
    reset_positions,
)
from kctl.client.metadata import ClusterMetadata, TopicIds, TopicRecreated
from kctl.client.retrying import LEADER_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

R = TypeVar("R")

PURPOSE = "fetch"
"""The connections of fetches: a broker delays their responses, and those of later requests."""
ANOTHER_BROKER_MS = 5_000
"""How long one broker may take to respond with metadata, if there are others."""
INCOMPLETE_METADATA_MS = 1_000
"""How soon metadata is looked up again when topics were missing in it."""
IDLE_MS = 60_000
MISSES_REPORTED = 2
"""A broker that has just started may not know a topic at the first look-up."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens with positions that the logs do not have."""

    begin: Begin
    """Start positions, for those outside of the log, and those of a topic with another id."""
    on_lost: Callable[[TopicPartition, int, int], None] = lambda *_: None
    """Gets a partition, its position outside the log, and the new one."""
    on_truncated: Callable[[Divergence, int], None] | None = None
    """Gets a divergence and where reading continues; None: the consumer raises LogTruncated."""
    on_recreated: Callable[[str], None] | None = logger.warning
    """Gets a sentence about a topic with another id; None: the consumer raises TopicRecreated."""
    on_gone: Callable[[], None] | None = None
    """A broker does not know a topic; None: the consumer raises the error."""


class FetchRunner(Generic[R]):
    """Fetches what the fetcher needs.  Owner: event loop."""

    def __init__(
        self, client: ClusterClient, fetcher: Fetcher[R], isolation: IsolationLevel, recovery: Recovery
    ) -> None:
        self.fetcher = fetcher
        self.arrived = asyncio.Event()
        """Set when there may be records or an error for the application."""
        self._client = client
        self._isolation = isolation
        self._recovery = recovery
        self._metadata: ClusterMetadata | None = None
        self._metadata_end_ms = 0
        self._topic_ids = TopicIds()
        """Those that the positions belong to."""
        self._misses: dict[str, int] = {}
        self._failure: KctlError | None = None
        """An error of no partition, which the application has not seen yet."""
        self._wake = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._main: asyncio.Task[None] | None = None
        self._is_looking_up = False
        self._looked_up: set[str] = set()
        """The topics of the last look-up."""
        self._started_ms = client.transport.monotonic_ms()
        self._backoff_ms = client.settings.retry_backoff_ms
        self._broker_backoff_ms: dict[int, int] = {}
        self._reported: KctlError | None = None

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of the topic that the positions belong to, as far as it is known."""
        return self._topic_ids.get(topic)

    def start(self) -> None:
        """Start the fetches, unless they are running."""
        if self._main is None:
            self._main = asyncio.create_task(self._run(), name="fetch records")

    async def close(self) -> None:
        """End all requests."""
        main, self._main = self._main, None
        tasks = [*self._tasks, *([main] if main is not None else [])]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def metadata(self) -> ClusterMetadata | None:
        """What is known about the topics."""
        return self._metadata

    def note_change(self) -> None:
        """Partitions or positions have changed, or records were taken: there may be something to fetch."""
        self._wake.set()

    def raise_failure(self) -> None:
        """Raise the error of the client, or of a partition without records that wait, if there is one.

        An error of a partition is raised at once, and again while no other partition has records.
        """
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        problem = next(iter(self.fetcher.problems.values()), None)
        if problem is None:
            self._reported = None
        elif problem is not self._reported or not self.fetcher.has_records:
            self._reported = problem
            try:
                raise copy_of(problem)
            finally:
                del problem

    # The loop.

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self._now_ms()
            wait_ms = IDLE_MS
            names = {tp.topic for tp in self.fetcher.partitions}
            is_due = now_ms >= self._metadata_end_ms or not names <= self._looked_up
            if names and is_due and not self._is_looking_up:
                self._is_looking_up = True
                self._looked_up = names
                self._spawn(self._look_up(names))
            if (metadata := self._metadata) is not None:
                if due := self.fetcher.to_check(metadata):
                    self._spawn(self._check(metadata, due))
                requests, is_leaderless = self.fetcher.due(metadata, now_ms)
                if is_leaderless:
                    self._refresh_soon()
                for broker, request in requests.items():
                    self._spawn(self._fetch(broker, request))
                if (retry_ms := self.fetcher.next_retry_ms(now_ms)) is not None:
                    wait_ms = min(wait_ms, retry_ms - now_ms)
                if not self._is_looking_up and names:
                    wait_ms = min(wait_ms, max(0, self._metadata_end_ms - now_ms))
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks[task] = None

        def forget(done: asyncio.Task[None]) -> None:
            self._tasks.pop(done, None)
            work.close()  # Python would warn about a coroutine that was cancelled before its start.

        task.add_done_callback(forget)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """No error of the background is lost: the application gets it."""
        try:
            await work
        except Exception as error:  # A bug must not stop the consumer silently.
            self._report(error if isinstance(error, KctlError) else KctlError(f"{type(error).__name__}: {error}"))
            logger.debug("work of a consumer has failed", exc_info=error)
        self._wake.set()

    def _report(self, error: KctlError) -> None:
        self._failure = copy_of(error)
        self.arrived.set()

    # Metadata.

    def _refresh_soon(self) -> None:
        """Look up the leaders after a pause."""
        self._metadata_end_ms = min(self._metadata_end_ms, self._now_ms() + self._backoff_ms)

    async def _look_up(self, names: Collection[str]) -> None:
        try:
            found = await self._request_metadata(names)
        except (ConnectionLost, ClusterUnreachable) as lost:
            settings = self._client.settings
            if self._metadata is None and self._now_ms() >= self._started_ms + settings.timeout_ms:
                self._report(ClusterUnreachable(str(lost)))
            if self._backoff_ms == settings.retry_backoff_ms:
                logger.warning("cannot look up leaders: %s", lost)
            self._metadata_end_ms = self._now_ms() + self._backoff_ms
            self._backoff_ms = min(2 * self._backoff_ms, settings.retry_backoff_ms_max)
        except KctlError as error:
            self._report(error)
            self._metadata_end_ms = self._now_ms() + INCOMPLETE_METADATA_MS
        else:
            await self._note(found, names)
        finally:
            self._is_looking_up = False

    async def _request_metadata(self, names: Collection[str]) -> ClusterMetadata:
        client = self._client
        connection = await client.any_broker()
        has_others = self._metadata is not None and len(self._metadata.brokers) > 1
        try:
            async with asyncio.timeout(ANOTHER_BROKER_MS / 1000 if has_others else None):
                return await client.metadata_from(connection, names)
        except (ConnectionLost, TimeoutError) as lost:
            await connection.close()  # The next attempt is made with another broker.
            raise ConnectionLost(str(lost) or f"{connection.address}: no metadata in time") from None

    async def _note(self, found: ClusterMetadata, names: Collection[str]) -> None:
        """Use the metadata; of topics that are missing in it, what was known before."""
        now_ms = self._now_ms()
        settings = self._client.settings
        self._metadata_end_ms = now_ms + settings.metadata_max_age_ms
        known = {} if self._metadata is None else self._metadata.topics
        topics = dict(found.topics)
        recreated = []
        is_leaderless = False
        for name in sorted(names):
            topic = found.topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code is ErrorCode.NONE:
                self._misses.pop(name, None)
                try:
                    self._topic_ids.check(found, [name])
                except TopicRecreated as change:
                    recreated.append(change)
                continue
            if name in known:
                topics[name] = known[name]
            if code in LEADER_MOVED:
                is_leaderless = True
                continue
            self._metadata_end_ms = min(self._metadata_end_ms, now_ms + INCOMPLETE_METADATA_MS)
            self._miss(name, code)
        if is_leaderless:
            self._refresh_soon()
            self._backoff_ms = min(2 * self._backoff_ms, settings.retry_backoff_ms_max)
        else:
            self._backoff_ms = settings.retry_backoff_ms
        self._metadata = found._replace(topics=topics)
        self.fetcher.forget_checks(self._metadata)
        self._wake.set()
        for other_topic in recreated:
            await self._restart_topic(other_topic)

    def _miss(self, name: str, code: ErrorCode) -> None:
        """Note that a topic has an error, or does not exist."""
        self._misses[name] = self._misses.get(name, 0) + 1
        if code in GONE and self._recovery.on_gone is not None:
            self._recovery.on_gone()
        elif code not in GONE or self._misses[name] >= MISSES_REPORTED:
            self._report(ApiError(code, f"{name}: {code.description}"))

    # Positions.

    async def _check(self, metadata: ClusterMetadata, due: Mapping[TopicPartition, Any]) -> None:
        """Compare the history before positions with the logs of the leaders."""
        rounds = {tp: self.fetcher.round_of(tp) for tp in due}
        try:
            outcomes = await check_positions(self._client, due, known=metadata)
        except (ConnectionLost, ClusterUnreachable) as lost:
            logger.warning("cannot check positions: %s", lost)
            outcomes = {tp: ApiError(ErrorCode.NETWORK_EXCEPTION) for tp in due}
        now_ms = self._now_ms()
        truncated: list[Divergence] = []
        checked: list[TopicPartition] = []
        for tp, outcome in outcomes.items():
            if self.fetcher.round_of(tp) != rounds[tp]:
                continue  # The position was set in the meantime.
            if isinstance(outcome, Divergence):
                truncated.append(outcome)
            elif isinstance(outcome, ApiError) and outcome.code in LEADER_MOVED:
                self.fetcher.release(tp, is_checked=False, retry_ms=now_ms + self._backoff_ms)
                self._refresh_soon()
            else:
                checked.append(tp)  # The fetch reports other errors.
        self.fetcher.history.note_checked(metadata, checked)
        for tp in checked:
            self.fetcher.release(tp, is_checked=True)
        if truncated:
            await self._continue_after(truncated)

    async def _continue_after(self, truncated: Collection[Divergence]) -> None:
        """Set the positions that the log no longer has to where the histories part, or report LogTruncated."""
        report = self._recovery.on_truncated
        if report is None:
            self._fail([divergence.tp for divergence in truncated], LogTruncated(truncated))
            return
        tps = [divergence.tp for divergence in truncated]
        rounds = {tp: self.fetcher.round_of(tp) for tp in tps}
        try:
            positions = await reset_positions(truncated, self._recovery.begin)
        except KctlError as error:
            self._retry_or_fail(tps, error)
            return
        for divergence in truncated:
            tp = divergence.tp
            if self.fetcher.round_of(tp) == rounds[tp]:
                report(divergence, positions[tp].offset)
                self.fetcher.set({tp: positions[tp]})

    async def _recover(self, tps: Collection[TopicPartition]) -> None:
        """Find out why positions are outside of the log, and set others."""
        rounds = {tp: self.fetcher.round_of(tp) for tp in tps}
        try:
            names = {tp.topic for tp in tps}
            found = await self._client.metadata(names)
            for name in sorted(names):
                try:
                    self._topic_ids.check(found, [name])
                except TopicRecreated as change:
                    await self._restart_topic(change)
            same = {tp: self.fetcher.positions[tp] for tp in tps if self.fetcher.round_of(tp) == rounds[tp]}
            lost = await lost_positions(self._client, same)
        except KctlError as error:
            self._retry_or_fail([tp for tp in tps if self.fetcher.round_of(tp) == rounds[tp]], error)
            return
        history = self.fetcher.history
        await self._find_truncations(found, {tp: same[tp] for tp, is_after in lost.items() if is_after})
        early = [tp for tp, is_after in lost.items() if not is_after and self.fetcher.round_of(tp) == rounds[tp]]
        try:
            begun = await self._recovery.begin(early) if early else {}
        except KctlError as error:
            self._retry_or_fail(early, error)
            begun = {}
        for tp, position in begun.items():
            if self.fetcher.round_of(tp) == rounds[tp]:
                self._recovery.on_lost(tp, same[tp], position.offset)
                self.fetcher.set({tp: position})
        for tp in same.keys() - lost.keys():
            history.forget_checks()
            self.fetcher.release(tp, is_checked=False, retry_ms=self._now_ms() + self._backoff_ms)

    async def _find_truncations(self, metadata: ClusterMetadata, after: Mapping[TopicPartition, int]) -> None:
        """Positions after the end of the log: finds where the histories part, where that is known."""
        if not after:
            return
        positions = {tp: self.fetcher.history.position(tp, offset) for tp, offset in after.items()}
        outcomes = await check_positions(self._client, positions, known=metadata)
        await self._continue_after([
            outcome if isinstance(outcome, Divergence) else Divergence(tp, positions[tp], None)
            for tp, outcome in outcomes.items()
        ])  # fmt: skip

    async def _restart_topic(self, change: TopicRecreated) -> None:
        """Replace the positions of a topic that belong to an earlier one of its name, or raise the error."""
        tps = [tp for tp in self.fetcher.partitions if tp.topic == change.topic]
        report = self._recovery.on_recreated
        if report is None:
            self._topic_ids.forget(change.topic)
            self._fail(tps, change)
            return
        self.fetcher.hold(tps)
        try:
            begun = await self._recovery.begin(tps)
        except KctlError as error:
            self._retry_or_fail(tps, error)
            return
        report(str(change))
        self._topic_ids.forget(change.topic)
        self.fetcher.set({tp: position for tp, position in begun.items() if tp in self.fetcher})
        self._wake.set()

    def _retry_or_fail(self, tps: Collection[TopicPartition], error: KctlError) -> None:
        is_passing = isinstance(error, (ConnectionLost, ClusterUnreachable))
        if is_passing or (isinstance(error, ApiError) and (error.code.retriable or error.code in GONE)):
            retry_ms = self._now_ms() + INCOMPLETE_METADATA_MS
            for tp in tps:
                self.fetcher.release(tp, is_checked=False, retry_ms=retry_ms)
            self._metadata_end_ms = min(self._metadata_end_ms, retry_ms)
        else:
            self._fail(tps, error)

    def _fail(self, tps: Iterable[TopicPartition], error: KctlError) -> None:
        kept = copy_of(error)
        for tp in tps:
            self.fetcher.fail(tp, kept)
        self.arrived.set()

    # Fetches.

    async def _fetch(self, broker: int, request: Request) -> None:
        """One request; what it needs afterwards runs beside the next one."""
        connection = None
        try:
            connection = await self._client.connected(request.metadata.brokers[broker], purpose=PURPOSE)
            fetched = await fetch_batches(
                connection,
                request.offsets,
                limits=request.limits,
                isolation=self._isolation,
                rack=self._client.settings.rack,
                current_leader_epochs=leader_epochs(request.metadata, request.offsets),
            )
        except ConnectionLost as lost:
            if broker not in self._broker_backoff_ms:
                logger.warning("cannot fetch from broker=%d: %s", broker, lost)
            backoff_ms = self._broker_backoff_ms.get(broker, self._client.settings.retry_backoff_ms)
            self._broker_backoff_ms[broker] = min(2 * backoff_ms, self._client.settings.retry_backoff_ms_max)
            self.fetcher.failed(broker, request, self._now_ms() + backoff_ms)
            self._refresh_soon()
            if connection is not None:
                await connection.close()
            return
        except BaseException:
            self.fetcher.failed(broker, request, self._now_ms() + INCOMPLETE_METADATA_MS)
            raise
        self._broker_backoff_ms.pop(broker, None)
        completed = self.fetcher.completed(broker, request, fetched, self._now_ms())
        if completed.is_stale:
            self._refresh_soon()
        if completed.gone and self._recovery.on_gone is not None:
            self._recovery.on_gone()
        if held := self.fetcher.hold(completed.outside):
            self._spawn(self._recover(held))
        if self.fetcher.has_records or self.fetcher.problems:
            self.arrived.set()

    def _now_ms(self) -> int:
        return self._client.transport.monotonic_ms()
