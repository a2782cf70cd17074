"""Splits a controller's request into requests that the event loop can apply without a pause.

Each piece has the sender, the epochs and the brokers of the whole request, so that every check is made again for each
piece.  The pieces name the same partitions in the same order.  Pieces are created when they are iterated, because a
request may have a hundred thousand partitions.  Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kctl.limits import SLICE_OBJECTS, Subject, bound
from kctl.model import TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.apis.stop_replica import StopReplicaRequest
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LOGS_CREATED_PER_SLICE_MAX = bound(
    Subject.PARTITIONS,
    "logs that a LeaderAndIsr request creates together",
    20,
    "logs",
    on_excess="other connections are served in between; later requests of the controller wait",
)
ROLES_PER_SLICE_MAX = bound(
    Subject.PARTITIONS,
    "roles of replicas with a log that a LeaderAndIsr request changes without a pause",
    80,
    "partitions",
    on_excess="other connections are served in between; later requests of the controller wait",
)
"""One takes 50 us to 100 us."""
LOGS_STOPPED_PER_SLICE_MAX = bound(
    Subject.PARTITIONS,
    "replicas that a StopReplica request stops or deletes without a pause",
    50,
    "partitions",
    on_excess="other connections are served in between; later requests of the controller wait",
)


T = TypeVar("T")
_TOPIC_COST = 3
"""A topic in UpdateMetadata takes as long as so many partitions."""
_TopicState = Any
"""A message with the fields topic_name and partition_states, as in all three requests."""


def pieces_of_leader_and_isr(
    request: LeaderAndIsrRequest, has_log: Callable[[TopicPartition], bool]
) -> Iterator[LeaderAndIsrRequest]:
    """Yield pieces of at most ROLES_PER_SLICE_MAX partitions, LOGS_CREATED_PER_SLICE_MAX of whose logs are new
    to this broker.

    `has_log` is called when the piece before has been applied.
    """
    new_log = -(-ROLES_PER_SLICE_MAX // LOGS_CREATED_PER_SLICE_MAX)

    def cost_of(topic: str, partition: int) -> int:
        return 1 if has_log(TopicPartition(topic, partition)) else new_log

    for topics in _cut(request.topic_states, cost_of, ROLES_PER_SLICE_MAX):
        yield replace(request, topic_states=topics, ungrouped_partition_states=[])
    flat = ((cost_of(state.topic_name, state.partition_index), state) for state in request.ungrouped_partition_states)
    for states in _batches(flat, ROLES_PER_SLICE_MAX):
        yield replace(request, topic_states=[], ungrouped_partition_states=states)


def pieces_of_stop_replica(request: StopReplicaRequest) -> Iterator[StopReplicaRequest]:
    """Yield pieces of at most LOGS_STOPPED_PER_SLICE_MAX partitions."""
    for topics in _cut(request.topic_states, lambda _topic, _partition: 1, LOGS_STOPPED_PER_SLICE_MAX):
        yield replace(request, topic_states=topics)


def pieces_of_update_metadata(request: UpdateMetadataRequest) -> Iterator[UpdateMetadataRequest]:
    """Return the pieces of whole topics, of about SLICE_OBJECTS partitions; there is one piece at least, for the
    brokers.

    Topics are not divided: a producer that saw only some partitions of a topic would assign keys to the wrong ones.
    """
    flat: dict[str, UpdateMetadataTopicState] = {}
    _group(request.ungrouped_partition_states, flat)
    return _whole_topics(request, deque([*request.topic_states, *flat.values()]))


def parts_of_update_metadata(
    request: UpdateMetadataRequest, *, may_clear: bool = False
) -> Iterator[tuple[UpdateMetadataRequest, bool]]:
    """Yield parts of about SLICE_OBJECTS partitions, for work that may be done on a part of a topic.

    True with the last part of each of `pieces_of_update_metadata`: all its topics are complete then.  With
    `may_clear`, removes the partitions from the request meanwhile: freeing the states of 100,000 at once takes tens of
    milliseconds.  A request within the process of the controller shares its topics with those to other brokers.

    Where the request itself takes long, because its partitions are listed flat or the states of a large topic are
    freed, there are parts without partitions too.
    """
    nothing = replace(request, topic_states=[], ungrouped_partition_states=[])
    flat: dict[str, UpdateMetadataTopicState] = {}
    for start in range(0, len(request.ungrouped_partition_states), SLICE_OBJECTS):
        if start:
            yield nothing, False
        _group(request.ungrouped_partition_states[start : start + SLICE_OBJECTS], flat)
    topics = deque([*request.topic_states, *flat.values()])
    flat.clear()
    for piece in _whole_topics(request, topics):
        if sum(len(topic.partition_states) for topic in piece.topic_states) < 2 * SLICE_OBJECTS:
            yield piece, True
        else:
            last: UpdateMetadataRequest | None = None
            for cut in _cut(piece.topic_states, lambda _topic, _partition: 1, SLICE_OBJECTS):
                if last is not None:
                    yield last, False
                last = replace(nothing, topic_states=cut)
            if last is not None:
                yield last, True
        if may_clear:
            for topic in piece.topic_states:
                while len(topic.partition_states) > SLICE_OBJECTS:
                    del topic.partition_states[-SLICE_OBJECTS:]
                    yield nothing, False
                topic.partition_states = []


def _whole_topics(
    request: UpdateMetadataRequest, topics: deque[UpdateMetadataTopicState]
) -> Iterator[UpdateMetadataRequest]:
    """Yield the pieces with these topics, which are removed from the queue: freeing 80,000 of them at once takes
    15 ms.
    """
    sized = ((_TOPIC_COST + len(topics[0].partition_states), topics.popleft()) for _ in range(len(topics)))
    is_empty = True
    for batch in _batches(sized, SLICE_OBJECTS):
        is_empty = False
        yield replace(request, topic_states=batch, ungrouped_partition_states=[])
    if is_empty:
        yield request


def _group(flat: Iterable[UpdateMetadataPartitionState], topics: dict[str, UpdateMetadataTopicState]) -> None:
    """Add partitions of versions before 5, which are listed flat, to their topics."""
    for state in flat:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = UpdateMetadataTopicState(
                topic_name=state.topic_name, partition_states=[]
            )
        topic.partition_states.append(state)


def _batches(sized: Iterable[tuple[int, T]], cost_max: int) -> Iterator[list[T]]:
    """Yield lists of objects whose costs are `cost_max` together, or more if the last one alone exceeds it."""
    batch: list[T] = []
    left = cost_max
    for cost, object_ in sized:
        batch.append(object_)
        left -= cost
        if left <= 0:
            yield batch
            batch, left = [], cost_max
    if batch:
        yield batch


def _cut(
    topics: Sequence[_TopicState], cost_of: Callable[[str, int], int], cost_max: int
) -> Iterator[list[_TopicState]]:
    """As `_batches`, for the partitions of topics; a topic may be cut into several."""
    flat = (
        (cost_of(topic.topic_name, state.partition_index), (topic, state))
        for topic in topics
        for state in topic.partition_states
    )
    for batch in _batches(flat, cost_max):
        cut: dict[int, tuple[_TopicState, list[Any]]] = {}
        for topic, state in batch:
            cut.setdefault(id(topic), (topic, []))[1].append(state)
        yield [replace(topic, partition_states=states) for topic, states in cut.values()]
