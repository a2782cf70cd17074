"""Asking partitions something through whoever leads them, wherever leadership moves meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import LEADER_MOVED
from kctl.client.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

T = TypeVar("T")

Outcomes = dict[TopicPartition, T | ApiError]
"""What each partition answered; one bad partition does not spoil the others."""

Ask = Callable[[Connection, list[TopicPartition]], Awaitable[Outcomes[T]]]
"""Asks one broker about partitions that it should lead."""


async def ask_leaders(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    ask: Ask[T],
    *,
    known: ClusterMetadata | None = None,
) -> Outcomes[T]:
    """What every partition answers, in the order of topic and partition.

    Who leads is looked up first unless it is `known` from before.  Partitions whose leader is away or has moved are
    asked again until the client's time-out; then their last error is the outcome.  Raises ClusterUnreachable when no
    broker at all answers.
    """
    outcomes: Outcomes[T] = {}
    open_partitions = sorted(partitions)
    deadline = client.deadline()
    while True:
        metadata = known or await client.metadata({tp.topic for tp in open_partitions})
        outcomes.update(await _ask_once(client, metadata, open_partitions, ask))
        known = None
        open_partitions = [tp for tp in open_partitions if _may_change(outcomes[tp])]
        if not open_partitions or not await deadline.pause():
            return {tp: outcomes[tp] for tp in sorted(outcomes)}


async def _ask_once(
    client: ClusterClient, metadata: ClusterMetadata, partitions: list[TopicPartition], ask: Ask[T]
) -> Outcomes[T]:
    outcomes: Outcomes[T] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        leader, code = metadata.leader_of(tp)
        if code is ErrorCode.NONE:
            by_leader.setdefault(leader, []).append(tp)
        else:
            topic = metadata.topics.get(tp.topic)
            is_there = topic is not None and topic.error is ErrorCode.NONE
            text = f"{tp.topic} has no partition {tp.partition}" if is_there else f"{tp.topic}: no such topic"
            outcomes[tp] = ApiError(code, text if _is_unknown_topic(code) else None)

    async def ask_one(leader: int, tps: list[TopicPartition]) -> Outcomes[T]:
        try:
            return await ask(await client.broker(leader), tps)
        except ConnectionLost as lost:
            return {tp: ApiError(ErrorCode.NETWORK_EXCEPTION, str(lost)) for tp in tps}
        except ApiError as error:
            return dict.fromkeys(tps, error)

    for answered in await client.gather([ask_one(leader, tps) for leader, tps in sorted(by_leader.items())]):
        outcomes.update(answered)
    return outcomes


def _may_change(outcome: T | ApiError) -> bool:
    return isinstance(outcome, ApiError) and outcome.code in LEADER_MOVED


def _is_unknown_topic(code: ErrorCode) -> bool:
    return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
