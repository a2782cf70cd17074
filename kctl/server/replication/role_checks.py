"""Validates the contents of a controller's requests before they are applied.

Names become paths and ids become keys, so nothing is applied unchecked, from any sender.  Each partition is checked on
its own, so that one that was created by hand under an invalid name does not block the others.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.errors import ApiError, ErrorCode
from kctl.model import INT32_MAX, LEADER_DURING_DELETE, NO_LEADER, TopicPartition, partition_problem, topic_name_problem
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

_PORT_MAX = 65535


def check_partition_name(partition: TopicPartition) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) for an invalid topic name or partition index."""
    problem = partition_problem(*partition)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_role(state: LeaderAndIsrPartitionState) -> None:
    """Raise ApiError(INVALID_REQUEST) for an invalid partition state."""
    problem = (
        _state_problem(state.leader, state.leader_epoch, state.partition_epoch, state.replicas, state.isr)
        or _ids_problem("adding replicas", state.adding_replicas)
        or _ids_problem("removing replicas", state.removing_replicas)
    )
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def check_live_brokers(brokers: Iterable[UpdateMetadataBroker]) -> None:
    """Raise ApiError(INVALID_REQUEST) for an invalid broker id or port."""
    for broker in brokers:
        if broker.id < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker id {broker.id} is negative")
        for endpoint in broker.endpoints:
            if not 0 <= endpoint.port <= _PORT_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker.id} has port {endpoint.port}")


def remove_invalid_partitions(request: UpdateMetadataRequest) -> list[str]:
    """Remove invalid partitions from the request; return the problem of each."""
    problems: list[str] = []
    for topic in request.topic_states:
        name_problem = topic_name_problem(topic.topic_name)
        if name_problem is not None:
            problems.append(name_problem)
            topic.partition_states = []
            continue
        topic.partition_states = _valid(topic.partition_states, problems)
    named: list[UpdateMetadataPartitionState] = []
    for state in request.ungrouped_partition_states:
        name_problem = topic_name_problem(state.topic_name)
        if name_problem is None:
            named.append(state)
        else:
            problems.append(name_problem)
    request.topic_states = [topic for topic in request.topic_states if topic.partition_states]
    request.ungrouped_partition_states = _valid(named, problems)
    return problems


def _valid(states: Iterable[UpdateMetadataPartitionState], problems: list[str]) -> list[UpdateMetadataPartitionState]:
    possible: list[UpdateMetadataPartitionState] = []
    for state in states:
        problem = _metadata_problem(state)
        if problem is None:
            possible.append(state)
        else:
            problems.append(f"partition {state.partition_index}: {problem}")
    return possible


def _metadata_problem(state: UpdateMetadataPartitionState) -> str | None:
    if not 0 <= state.partition_index <= INT32_MAX:
        return "the partition index is negative"
    if state.leader == LEADER_DURING_DELETE:
        return None
    return _state_problem(state.leader, state.leader_epoch, state.zk_version, state.replicas, state.isr)


def _state_problem(
    leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]
) -> str | None:
    if leader < NO_LEADER:
        return f"leader {leader} is not a broker id"
    if leader_epoch < 0 or partition_epoch < 0:
        return f"leader epoch {leader_epoch} or partition epoch {partition_epoch} is negative"
    return _ids_problem("replicas", replicas) or _ids_problem("in-sync replicas", isr)


def _ids_problem(what: str, ids: Sequence[int]) -> str | None:
    if ids and min(ids) < 0:
        return f"the {what} contain the negative broker id {min(ids)}"
    return f"the {what} list a broker twice" if len(set(ids)) < len(ids) else None
