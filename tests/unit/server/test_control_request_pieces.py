"""Long control requests are divided into pieces that name the same partitions in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.model import LEADER_DURING_DELETE, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.server.cluster.control import pieces
from kctl.server.cluster.control.pieces import (
    LOGS_CREATED_PER_SLICE_MAX,
    LOGS_STOPPED_PER_SLICE_MAX,
    ROLES_PER_SLICE_MAX,
    parts_of_update_metadata,
    pieces_of_leader_and_isr,
    pieces_of_stop_replica,
    pieces_of_update_metadata,
)
from kctl.server.peers.metadata import MetadataCache, MetadataUpdate

SIZES = st.lists(st.sampled_from([0, 1, 4, 5, 6, 49, 50, 51, 99, 100, 101, 260]), max_size=6)
"""Partitions of each topic."""
SLICE = 50
"""SLICE_OBJECTS within `small_slices`."""


def leader_and_isr(sizes: list[int], *, is_flat: bool = False) -> LeaderAndIsrRequest:
    topics = []
    for number, size in enumerate(sizes):
        states = [
            LeaderAndIsrPartitionState(
                topic_name=f"t{number}",
                partition_index=index,
                controller_epoch=1,
                leader=0,
                leader_epoch=0,
                isr=[0],
                partition_epoch=0,
                replicas=[0],
            )
            for index in range(size)
        ]
        topics.append(LeaderAndIsrTopicState(topic_name=f"t{number}", partition_states=states))
    request = LeaderAndIsrRequest(
        controller_id=7, controller_epoch=8, broker_epoch=9, topic_states=topics, live_leaders=[]
    )
    if is_flat:
        flat = [state for topic in topics for state in topic.partition_states]
        request = replace(request, topic_states=[], ungrouped_partition_states=flat)
    return request


def named(request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    ] + [
        TopicPartition(state.topic_name, state.partition_index)
        for state in getattr(request, "ungrouped_partition_states", [])
    ]


@given(SIZES, st.booleans(), st.booleans())
def test_roles_are_applied_in_order_and_few_logs_are_created_at_a_time(
    sizes: list[int], is_flat: bool, exist: bool
) -> None:
    request = leader_and_isr(sizes, is_flat=is_flat)
    pieces = list(pieces_of_leader_and_isr(request, lambda _: exist))
    assert [partition for piece in pieces for partition in named(piece)] == named(request)
    size_max = ROLES_PER_SLICE_MAX if exist else LOGS_CREATED_PER_SLICE_MAX
    assert all(0 < len(named(piece)) <= size_max for piece in pieces)
    assert len(pieces) == -(-sum(sizes) // size_max)
    assert {(p.controller_id, p.controller_epoch, p.broker_epoch) for p in pieces} <= {(7, 8, 9)}


@given(SIZES)
def test_replicas_are_stopped_in_order_and_few_at_a_time(sizes: list[int]) -> None:
    topics = [
        StopReplicaTopicState(
            topic_name=f"t{number}",
            partition_states=[
                StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
                for index in range(size)
            ],
        )
        for number, size in enumerate(sizes)
    ]
    request = StopReplicaRequest(controller_id=7, controller_epoch=8, broker_epoch=9, topic_states=topics)
    pieces = list(pieces_of_stop_replica(request))
    assert [partition for piece in pieces for partition in named(piece)] == named(request)
    assert all(0 < len(named(piece)) <= LOGS_STOPPED_PER_SLICE_MAX for piece in pieces)


@contextmanager
def small_slices() -> Iterator[None]:
    """Slices of SLICE partitions within the context; examples with the real size take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "SLICE_OBJECTS", SLICE)
        yield


def update_metadata(sizes: list[int], *, is_flat: bool) -> UpdateMetadataRequest:
    topics = []
    for number, size in enumerate(sizes):
        states = [
            UpdateMetadataPartitionState(
                topic_name=f"t{number}",
                partition_index=index,
                controller_epoch=1,
                leader=0,
                leader_epoch=0,
                isr=[0],
                zk_version=0,
                replicas=[0],
            )
            for index in range(size)
        ]
        topics.append(UpdateMetadataTopicState(topic_name=f"t{number}", partition_states=states))
    request = UpdateMetadataRequest(
        controller_id=7, controller_epoch=8, topic_states=topics, live_brokers=[UpdateMetadataBroker(id=7)]
    )
    if is_flat:
        flat = [state for topic in topics for state in topic.partition_states]
        request = replace(request, topic_states=[], ungrouped_partition_states=flat)
    return request


@given(st.lists(st.sampled_from([1, 10, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE + 20]), max_size=6), st.booleans())
def test_metadata_is_stored_by_whole_topics(sizes: list[int], is_flat: bool) -> None:
    request = update_metadata(sizes, is_flat=is_flat)
    with small_slices():
        pieces = list(pieces_of_update_metadata(request))
    assert [partition for piece in pieces for partition in named(piece)] == named(request)
    assert all([broker.id for broker in piece.live_brokers] == [7] for piece in pieces), "every piece has the brokers"
    assert len(pieces) >= 1
    topics = [topic.topic_name for piece in pieces for topic in piece.topic_states]
    if not is_flat or pieces[0].topic_states:
        assert len(topics) == len(set(topics)), "no topic is divided"
    for piece in pieces:
        *before, _ = [len(topic.partition_states) for topic in piece.topic_states] or [0]
        assert sum(before) < SLICE


@given(
    st.lists(st.sampled_from([1, SLICE - 1, SLICE, 2 * SLICE + 5, 4 * SLICE + 25]), max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_large_topics_are_converted_in_parts_and_stored_as_a_whole(
    sizes: list[int], is_flat: bool, may_clear: bool
) -> None:
    request = update_metadata(sizes, is_flat=is_flat)
    before = named(request)
    with small_slices():
        pieces = [named(piece) for piece in pieces_of_update_metadata(request)]
        stored: list[list[TopicPartition]] = [[]]
        for part, is_complete in parts_of_update_metadata(request, may_clear=may_clear):
            assert len(named(part)) < 2 * SLICE
            stored[-1] += named(part)
            if is_complete:
                stored.append([])
    assert stored.pop() == []
    assert stored == pieces
    if may_clear:
        assert not any(topic.partition_states for topic in request.topic_states), "they are freed meanwhile"
    else:
        assert named(request) == before, "topics of a request that is shared are unchanged"


def test_partitions_that_are_listed_flat_are_grouped_in_slices() -> None:
    request = update_metadata([1] * (10 * SLICE), is_flat=True)
    taken = 0
    with small_slices():
        for part, _ in parts_of_update_metadata(request):
            if part.topic_states:
                break
            taken += 1
    assert taken == 9, "all states are grouped before the first topic is complete"


def test_the_partitions_of_a_large_topic_are_freed_in_slices() -> None:
    request = update_metadata([20 * SLICE + 7], is_flat=False)
    (topic,) = request.topic_states
    with small_slices():
        left = [len(topic.partition_states) for _ in parts_of_update_metadata(request, may_clear=True)]
    assert not topic.partition_states
    assert max(before - after for before, after in pairwise([20 * SLICE + 7, *left, 0])) <= SLICE


@pytest.mark.long
def test_the_cache_is_the_same_after_an_update_in_parts() -> None:
    request, same = (update_metadata([5_000, 3, 9_000], is_flat=False) for _ in range(2))
    for state in same.topic_states[2].partition_states[:4_000]:
        state.leader = LEADER_DURING_DELETE
    for state in request.topic_states[2].partition_states[:4_000]:
        state.leader = LEADER_DURING_DELETE
    whole, divided = MetadataCache(), MetadataCache()
    for cache in (whole, divided):
        cache.update(update_metadata([1, 1, 9_000], is_flat=False))
    deleted: list[TopicPartition] = []
    update = MetadataUpdate()
    for part, is_complete in parts_of_update_metadata(request):
        update.add(part)
        if is_complete:
            deleted += divided.apply(part, update)
            update = MetadataUpdate()
    assert deleted == whole.update(same)
    assert [divided.partitions(topic) for topic in divided.topics] == [whole.partitions(t) for t in whole.topics]
