"""ShareGroupDescribe (key 77, version 1): epochs, members and assignments of share groups (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols.  A group that is missing or of another type gets
GROUP_ID_NOT_FOUND.  A client that may not describe one of the topics of a group gets TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import ApiError, ErrorCode
from kctl.limits import DESCRIBED_BYTES_MAX, SLICE_OBJECTS
from kctl.protocol.apis.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.share_groups.assignor import SIMPLE
from kctl.server.coordination.share_groups.group import ShareGroup
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NOT_REQUESTED, authorized_operations

_OBJECTS_PER_GROUP = 10
_BYTES_PER_PARTITION = 4
_BYTES_PER_MEMBER = 200


class ShareGroupDescribeHandler:
    """Serves ShareGroupDescribe requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: ClusterTopics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def handle(self, request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
        """Serve one request and return the response."""
        described = self._groups(request, context)
        return ShareGroupDescribeResponse(groups=[group async for group in sliced(described, SLICE_OBJECTS, _size)])

    def _groups(self, request: ShareGroupDescribeRequest, context: RequestContext) -> Iterator[DescribedGroup]:
        left = DESCRIBED_BYTES_MAX
        for group_id in dict.fromkeys(request.group_ids):
            try:
                if left < 0:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
                group = self._describe(group_id, self._coordinator.find(group_id, ShareGroup), context)
                if request.include_authorized_operations:
                    group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
                left -= sum(map(_bytes_of, group.members))
            except ApiError as error:
                group = _failed(group_id, error)
            yield group

    def _describe(self, group_id: str, group: ShareGroup, context: RequestContext) -> DescribedGroup:
        members = [self._member(group, member_id) for member_id in group.members]
        names = {topic.topic_name for member in members for topic in member.assignment.topic_partitions}
        if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names | group.topic_counts.keys()):
            message = "The group has described topic(s) that the client is not authorized to describe."
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch.epoch,
            assignment_epoch=group.target.epoch,
            assignor_name=SIMPLE,
            members=members,
        )

    def _member(self, group: ShareGroup, member_id: str) -> Member:
        member, assignment = group.members[member_id], group.assignment(member_id)
        named = (
            (topic_id, self._topics.topic_name(topic_id), numbers)
            for topic_id, numbers in assignment.partitions.items()
        )
        return Member(
            member_id=member_id,
            rack_id=member.rack_id,
            member_epoch=assignment.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            assignment=Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
                    for topic_id, name, numbers in named
                    if name is not None
                ]
            ),
        )


def _failed(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message or error.code.description,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_REQUESTED,
    )


def _size(group: DescribedGroup) -> int:
    return _OBJECTS_PER_GROUP + sum(1 + len(member.assignment.topic_partitions) for member in group.members)


def _bytes_of(member: Member) -> int:
    size = _BYTES_PER_MEMBER + sum(map(len, member.subscribed_topic_names))
    return size + sum(
        len(topic.topic_name) + _BYTES_PER_PARTITION * len(topic.partitions)
        for topic in member.assignment.topic_partitions
    )
