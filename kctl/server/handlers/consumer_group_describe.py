"""ConsumerGroupDescribe (key 69, versions 0-1): epochs, members and assignments of groups of the consumer protocol.

Served with `consumer` in group.coordinator.rebalance.protocols.  A group that is missing or of the classic protocol
gets GROUP_ID_NOT_FOUND.  A client that may not describe one of the topics of a group gets TOPIC_AUTHORIZATION_FAILED.

Version notes: 1 the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import DESCRIBED_BYTES_MAX, SLICE_OBJECTS
from kctl.protocol.apis.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.state import PartitionEpochs
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NOT_REQUESTED, authorized_operations

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of member_type."""
_OBJECTS_PER_GROUP = 10
_BYTES_PER_PARTITION = 4
_BYTES_PER_MEMBER = 200


class ConsumerGroupDescribeHandler:
    """Serves ConsumerGroupDescribe requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: ClusterTopics, default_assignor: str) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._default_assignor = default_assignor

    async def handle(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        """Serve one request and return the response."""
        described = self._groups(request, context)
        groups = [group async for group in sliced(described, SLICE_OBJECTS, _objects_in)]
        return ConsumerGroupDescribeResponse(groups=groups)

    def _groups(self, request: ConsumerGroupDescribeRequest, context: RequestContext) -> Iterator[DescribedGroup]:
        left = DESCRIBED_BYTES_MAX
        for group_id in dict.fromkeys(request.group_ids):
            if left < 0:
                yield _failed(group_id, ErrorCode.INVALID_REQUEST)
                continue
            group = self._describe(group_id, context)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
            left -= sum(map(_size_of, group.members))
            yield group

    def _describe(self, group_id: str, context: RequestContext) -> DescribedGroup:
        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            group = self._coordinator.find(group_id, ConsumerGroup)
        except ApiError as error:
            return _failed(group_id, error.code, error.message)
        members = [self._member(group, member_id) for member_id in group.members]
        if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, _topics_of(members)):
            message = "The group has described topic(s) that the client is not authorized to describe."
            return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch.epoch,
            assignment_epoch=group.target.epoch,
            assignor_name=group.preferred_assignor(self._default_assignor),
            members=members,
        )

    def _member(self, group: ConsumerGroup, member_id: str) -> Member:
        member, assignment = group.members[member_id], group.assignment(member_id)
        return Member(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=assignment.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex or "",
            # What it has to revoke is still its own.
            assignment=self._assignment(_merged(assignment.assigned, assignment.revoking).items()),
            target_assignment=self._assignment(group.target_of(member_id).items()),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _assignment(self, partitions: Iterable[tuple[UUID, Iterable[int]]]) -> Assignment:
        named = ((topic_id, self._topics.topic_name(topic_id), numbers) for topic_id, numbers in partitions)
        return Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
                for topic_id, name, numbers in named
                if name is not None
            ]
        )


def _merged(*parts: PartitionEpochs) -> dict[UUID, set[int]]:
    merged: dict[UUID, set[int]] = {}
    for part in parts:
        for topic_id, numbers in part.items():
            merged.setdefault(topic_id, set()).update(numbers)
    return merged


def _failed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message or error.description,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_REQUESTED,
    )


def _assigned(member: Member) -> list[TopicPartitions]:
    return [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]


def _topics_of(members: Iterable[Member]) -> set[str]:
    assigned = {topic.topic_name for member in members for topic in _assigned(member)}
    return assigned.union(*(member.subscribed_topic_names for member in members))


def _objects_in(group: DescribedGroup) -> int:
    return _OBJECTS_PER_GROUP + sum(1 + len(_assigned(member)) for member in group.members)


def _size_of(member: Member) -> int:
    size = _BYTES_PER_MEMBER + sum(map(len, member.subscribed_topic_names))
    return size + sum(
        len(topic.topic_name) + _BYTES_PER_PARTITION * len(topic.partitions) for topic in _assigned(member)
    )
