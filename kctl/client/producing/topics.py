"""The partitions and leaders of the topics that a producer writes to, kept up to date in the background.

Owner: event loop; `partition_counts` may be read by other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.metadata import Broker, Topic
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.system.reference_cycles import copy_of

CREATION_MS = 10_000
"""How long a topic that the brokers may create is waited for, after it was first unknown."""
_PASSING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class ProducerTopics:
    """Looks up topics, and looks them up again when a leader has moved and at the age of the metadata."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        creates_topics: bool,
        block_ms: int | None,
        on_change: Callable[[], None],
        busy: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`on_change` is called after each look-up.  `busy` are the addresses of brokers that do not respond now.

        `block_ms` (max.block.ms) bounds the waits of callers; None for the client's timeout.
        """
        self.partition_counts: dict[str, int] = {}
        self._client = client
        self._creates_topics = creates_topics
        self._block_ms = block_ms
        self._on_change = on_change
        self._busy = busy
        self._topics: dict[str, Topic] = {}
        self.brokers: dict[int, Broker] = {}
        self._due: set[str] = set()
        """Topics to look up."""
        self._moved: set[TopicPartition] = set()
        """Partitions whose leader has refused a request, or was not reached."""
        self._errors: dict[str, KctlError] = {}
        """Why the last look-up of a topic has not found it."""
        self._unknown_since_s: dict[str, float] = {}
        self.last_error: KctlError | None = None
        """Of the last look-up, if no broker has responded."""
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._looked_up_s: float | None = None

    def leader_of(self, tp: TopicPartition) -> int:
        """Return the node id of the leader; -1 if it is not known."""
        topic = self._topics.get(tp.topic)
        partition = None if topic is None or tp in self._moved else topic.partition(tp.partition)
        return -1 if partition is None or partition.leader not in self.brokers else partition.leader

    def leader_has_moved(self, tp: TopicPartition) -> None:
        """Forget the leader of a partition until it has been looked up again."""
        self._moved.add(tp)
        self.refresh([tp.topic])

    def refresh(self, topics: Collection[str]) -> None:
        """Look these topics up soon."""
        self._due.update(topics)
        if self._due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._look_up(), name="look up topics")

    def refresh_if_old(self) -> None:
        """Look all topics up again at the age of the metadata."""
        loop = asyncio.get_running_loop()
        age_s = self._client.settings.metadata_max_age_ms / 1000
        if self._looked_up_s is not None and loop.time() >= self._looked_up_s + max(age_s, 0.01):
            self.refresh(self._topics)

    async def wait_for(self, topic: str, partition: int | None) -> None:
        """Wait until the topic, and the partition if one is named, is known.

        Raises ApiError for one that does not exist or may not be written to, ClusterUnreachable, and what else prevents
        connections.
        """
        block_ms = self._client.settings.timeout_ms if self._block_ms is None else self._block_ms
        is_first = True
        try:
            async with asyncio.timeout(block_ms / 1000):
                while is_first or topic not in self.partition_counts:
                    self.refresh([topic])
                    await self._next_look_up()
                    is_first = False
                    self._raise_if_final(topic)
        except TimeoutError:
            name = f"the timeout of {block_ms} ms" if self._block_ms is None else f"max.block.ms={block_ms}"
            text = f"topic '{topic}' is not known within {name}"
            if isinstance(self.last_error, ClusterUnreachable):
                raise ClusterUnreachable(f"{text}: {self.last_error}") from None
            cause = self._errors.get(topic, self.last_error)
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text if cause is None else f"{text}: {cause}") from None
        count = self.partition_counts[topic]
        if partition is not None and partition >= count:
            text = f"topic '{topic}' has no partition {partition}: it has {counted(count, 'partition')}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def cancel(self) -> asyncio.Task[None] | None:
        """End the look-ups; return the task that is being cancelled."""
        task, self._task = self._task, None
        if task is None or task.done():
            return None
        task.cancel()
        return task

    async def _next_look_up(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _raise_if_final(self, topic: str) -> None:
        """Raise the error of a look-up that will not pass."""
        if self.last_error is not None and not isinstance(self.last_error, ClusterUnreachable):
            raise copy_of(self.last_error)
        error = self._errors.get(topic)
        if error is None:
            return
        code = error.code if isinstance(error, ApiError) else None
        if code not in _PASSING:
            raise copy_of(error)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            waited_ms = (asyncio.get_running_loop().time() - self._unknown_since_s[topic]) * 1000
            if not self._creates_topics or waited_ms >= CREATION_MS:
                raise copy_of(error)

    async def _look_up(self) -> None:
        """Look up what is due, with growing pauses while no broker responds or something has no leader."""
        settings = self._client.settings
        pause_ms = settings.retry_backoff_ms
        while self._due:
            requested, moved = set(self._due), set(self._moved)
            self._due.clear()
            try:
                await self._look_up_once(requested)
                self._moved -= {tp for tp in moved if tp.topic in requested}
                self.last_error = None
            except (ConnectionLost, ClusterUnreachable) as error:
                self.last_error = ClusterUnreachable(str(error))
                self._due |= requested & self._topics.keys()
            except KctlError as error:
                self.last_error = copy_of(error)
            except Exception as error:
                self.last_error = KctlError(f"look-up of topics: {type(error).__name__}: {error}")
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._on_change()
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, settings.retry_backoff_ms_max)

    async def _look_up_once(self, requested: Collection[str]) -> None:
        metadata = await self._client.refreshed(requested, creates_topics=self._creates_topics, avoided=self._busy())
        now_s = asyncio.get_running_loop().time()
        self._looked_up_s = now_s
        self.brokers = metadata.brokers
        for name in requested:
            found = metadata.topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
            if found is not None and code is ErrorCode.NONE and found.partitions:
                self._topics[name] = found
                self.partition_counts[name] = len(found.partitions)
                self._errors.pop(name, None)
                self._unknown_since_s.pop(name, None)
                continue
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown_since_s.setdefault(name, now_s)
                self._errors[name] = ApiError(code, f"topic '{name}' does not exist")
                self._topics.pop(name, None)
                self.partition_counts.pop(name, None)
            else:
                self._errors[name] = ApiError(code, f"{name}: {code.description}")
