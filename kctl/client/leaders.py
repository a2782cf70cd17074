"""Sends requests about partitions to leaders, and about groups to coordinators; follows them when they move.

Each broker gets one request for all that it leads or coordinates, and brokers are queried concurrently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import ABSENT, COORDINATOR_MOVED, LEADER_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

T = TypeVar("T")

Outcomes = dict[TopicPartition, T | ApiError]
"""Result or error of each partition."""

LeaderCall = Callable[[Connection, list[TopicPartition]], Awaitable[Outcomes[T]]]
"""Queries one broker about partitions that it should lead."""

CoordinatorCall = Callable[[Connection, list[str]], Awaitable[Mapping[str, T | ApiError]]]
"""Queries one broker about groups or transactional ids that it should coordinate."""

COORDINATION_TOPICS = {
    CoordinatorType.GROUP: "__consumer_offsets",
    CoordinatorType.TRANSACTION: "__transaction_state",
}
"""The internal topic whose partition leaders are the coordinators."""
NO_RESULT = "The broker's response does not contain this item."


async def on_leaders(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    send_to: LeaderCall[T],
    *,
    known: ClusterMetadata | None = None,
    note_metadata: Callable[[ClusterMetadata], None] = lambda _: None,
    is_repeated: bool = True,
) -> Outcomes[T]:
    """Return the outcome of every partition, in the order of topic and partition; after one attempt unless
    `is_repeated`.

    Leaders are looked up first unless `known` has them; each attempt passes the metadata that it uses to
    `note_metadata`.  Partitions whose leader has moved are retried until the client's timeout, and so are partitions
    without a reachable leader, but during most commands only for half a second (see Budget); then their last error is
    the outcome.  Raises ClusterUnreachable if no broker responds, and
    ApiError(UNSUPPORTED_VERSION) if all leaders are too old.
    """
    outcomes: Outcomes[T] = {}
    open_partitions = sorted(partitions)
    deadline = client.deadline()
    while True:
        metadata = known or await client.metadata({tp.topic for tp in open_partitions})
        note_metadata(metadata)
        outcomes.update(await _send_once(client, metadata, open_partitions, send_to))
        known = None
        open_partitions = [tp for tp in open_partitions if _code_of(outcomes[tp]) in LEADER_MOVED]
        is_absence = all(
            _code_of(outcomes[tp]) in ABSENT
            and not (client.budget.follows_elections and _may_get_leader(metadata, tp, outcomes[tp]))
            for tp in open_partitions
        )
        if not open_partitions or not is_repeated or not await deadline.pause(for_absent=is_absence):
            _raise_if_unknown_to_all(outcomes)
            return {tp: outcomes[tp] for tp in sorted(outcomes)}


async def on_coordinators(
    client: ClusterClient,
    keys: Iterable[str],
    send_to: CoordinatorCall[T],
    kind: CoordinatorType = CoordinatorType.GROUP,
) -> dict[str, T | ApiError]:
    """Return the outcome of every group or transactional id, in the order of keys.

    Retries as `on_leaders` does when a coordinator has moved or is unreachable.  Raises ClusterUnreachable.
    """
    outcomes: dict[str, T | ApiError] = {}
    open_keys = sorted(set(keys))
    deadline = client.deadline()
    while open_keys:
        outcomes.update(await _send_to_coordinators_once(client, open_keys, send_to, kind))
        codes = {key: _code_of(outcomes[key]) for key in open_keys}
        open_keys = [key for key in open_keys if codes[key] in COORDINATOR_MOVED or codes[key] in ABSENT]
        for key in open_keys:
            client.forget_coordinator(key, kind)
        is_absence = await _are_absent(client, {codes[key] for key in open_keys}, kind)
        if not open_keys or not await deadline.pause(for_absent=is_absence):
            break
    return {key: outcomes[key] for key in sorted(outcomes)}


async def _send_once(
    client: ClusterClient, metadata: ClusterMetadata, partitions: list[TopicPartition], send_to: LeaderCall[T]
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

    async def send_one(leader: int, tps: list[TopicPartition]) -> Outcomes[T]:
        try:
            results = await send_to(await client.broker(leader), tps)
            return {tp: results.get(tp, _no_result()) for tp in tps}
        except ConnectionLost as lost:
            return {tp: ApiError(ErrorCode.NETWORK_EXCEPTION, str(lost)) for tp in tps}
        except ApiError as error:
            return dict.fromkeys(tps, error)

    for results in await client.gather([send_one(leader, tps) for leader, tps in sorted(by_leader.items())]):
        outcomes.update(results)
    return outcomes


async def _send_to_coordinators_once(
    client: ClusterClient, keys: list[str], send_to: CoordinatorCall[T], kind: CoordinatorType
) -> dict[str, T | ApiError]:
    found = await client.find_coordinators(keys, kind)
    by_address: dict[tuple[str, int], list[str]] = {}
    outcomes: dict[str, T | ApiError] = {}
    for key, address in found.items():
        if isinstance(address, ApiError):
            outcomes[key] = address
        else:
            by_address.setdefault(address, []).append(key)

    async def send_one(some: list[str]) -> dict[str, T | ApiError]:
        try:
            results = await send_to(await client.coordinator(some[0], kind), some)
            return {key: results.get(key, _no_result()) for key in some}
        except ConnectionLost as lost:
            return dict.fromkeys(some, ApiError(ErrorCode.NETWORK_EXCEPTION, str(lost)))
        except ApiError as error:
            return dict.fromkeys(some, error)

    for results in await client.gather([send_one(some) for some in by_address.values()]):
        outcomes.update(results)
    return outcomes


def _raise_if_unknown_to_all(outcomes: Mapping[TopicPartition, T | ApiError]) -> None:
    """Raise one error if all brokers lack the API, instead of one error per partition."""
    errors = [outcome for outcome in outcomes.values() if _code_of(outcome) is ErrorCode.UNSUPPORTED_VERSION]
    if errors and len(errors) == len(outcomes) and isinstance(errors[0], ApiError):
        raise errors[0]


async def _are_absent(client: ClusterClient, codes: Collection[ErrorCode], kind: CoordinatorType) -> bool:
    """Return whether the coordinators are unreachable.  False if their topic is yet to be created on demand."""
    if ErrorCode.COORDINATOR_NOT_AVAILABLE not in codes:
        return ABSENT.issuperset(codes)
    name = COORDINATION_TOPICS[kind]
    topic = (await client.metadata([name])).topics.get(name)
    return (
        topic is not None
        and bool(topic.partitions)
        and ABSENT.issuperset(code for code in codes if code is not ErrorCode.COORDINATOR_NOT_AVAILABLE)
    )


def _code_of(outcome: T | ApiError) -> ErrorCode:
    return outcome.code if isinstance(outcome, ApiError) else ErrorCode.NONE


def _no_result() -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, NO_RESULT)


def _may_get_leader(metadata: ClusterMetadata, tp: TopicPartition, outcome: T | ApiError) -> bool:
    """Return whether the leader is unreachable and may be replaced, or the partition has none and one can be
    elected.
    """
    return _code_of(outcome) is ErrorCode.NETWORK_EXCEPTION or metadata.awaits_election(tp)


def _is_unknown_topic(code: ErrorCode) -> bool:
    return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
