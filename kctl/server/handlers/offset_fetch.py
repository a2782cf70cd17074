"""OffsetFetch (key 9, versions 0-10): the committed offsets of a group.

A partition without a commit gets offset -1 and no error; so does every partition of a group that does not exist.

Version notes: 0 reads from ZooKeeper, and a missing commit is UNKNOWN_TOPIC_OR_PARTITION there; 2 null means all
partitions, and group-level errors move from the partitions to the top; 5 leader epochs; 7 require_stable makes
undecided commits UNSTABLE_OFFSET_COMMIT (KIP-447); 8 several groups (KIP-709); 9 member and epoch of the consumer
protocol, which are checked if they are present (KIP-848); 10 topic ids, UNKNOWN_TOPIC_ID if there is none, and no
commits of topics that have been deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence

from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import DESCRIBED_BYTES_MAX, SLICE_OBJECTS
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.config import ConsumerOffsetsInZooKeeper
from kctl.server.coordination.groups.coordinator import NO_MEMBER, OFFSET_OF_NOTHING, GroupCoordinator
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.ports import TopicNames
from kctl.server.loop.slices import pause, sliced, sliced_batches
from kctl.server.requests.context import RequestContext

STORED_IN_ZOOKEEPER = 0
FIRST_WITH_TOP_LEVEL_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10

_GROUP = 10
"""How many partitions take as long as a group."""

GroupMember = tuple[str | None, int]
"""Id and epoch of a member of the consumer protocol."""
Committed = tuple[ErrorCode, OffsetAndMetadata]
_UNKNOWN_ID: Committed = (ErrorCode.UNKNOWN_TOPIC_ID, OFFSET_OF_NOTHING)
_DENIED: Committed = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, OFFSET_OF_NOTHING)


class OffsetFetchHandler:
    """Serves OffsetFetch requests.  Owner: event loop."""

    def __init__(
        self, coordinator: GroupCoordinator, topics: TopicNames, zookeeper: ConsumerOffsetsInZooKeeper
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._zookeeper = zookeeper

    def handle(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if context.api_version >= FIRST_WITH_SEVERAL_GROUPS:
            return self._several_groups(request, context)
        return self._one_group(request, context, NO_MEMBER)

    async def _several_groups(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        response = OffsetFetchResponse(groups=[])
        async for group in sliced(request.groups, SLICE_OBJECTS, _objects_in):
            topics, unknown = group.topics, list[OffsetFetchResponseTopic]()
            if context.api_version >= FIRST_WITH_TOPIC_IDS:
                topics, unknown = await self._named(topics)
            asked = OffsetFetchRequest(group_id=group.group_id, topics=topics, require_stable=request.require_stable)
            result = self._one_group(asked, context, (group.member_id, group.member_epoch))
            fetched = await result if isinstance(result, Awaitable) else result
            if context.api_version >= FIRST_WITH_TOPIC_IDS:
                if fetched.error_code == ErrorCode.NONE:
                    fetched.topics += unknown
                await self._add_ids(fetched, keeps_deleted=group.topics is not None)
            response.groups.append(
                OffsetFetchResponseGroup(group_id=group.group_id, topics=fetched.topics, error_code=fetched.error_code)
            )
        return response

    async def _named(
        self, topics: list[OffsetFetchRequestTopic] | None
    ) -> tuple[list[OffsetFetchRequestTopic] | None, list[OffsetFetchResponseTopic]]:
        """Return the topics with the names that their ids stand for, and the response for those without one."""
        if topics is None:
            return None, []
        known: list[OffsetFetchRequestTopic] = []
        unknown: list[OffsetFetchResponseTopic] = []
        async for topic in sliced(topics, SLICE_OBJECTS, _size_of):
            name = self._topics.topic_name(topic.topic_id)
            if name is not None:
                topic.name = name
                known.append(topic)
                continue
            missing = {TopicPartition("", index): _UNKNOWN_ID for index in topic.partition_indexes}
            partitions = [partition for _, partition in _partitions(missing)]
            unknown.append(OffsetFetchResponseTopic(topic_id=topic.topic_id, partitions=partitions))
        return known, unknown

    async def _add_ids(self, fetched: OffsetFetchResponse, *, keeps_deleted: bool) -> None:
        """Set the ids of topics; without `keeps_deleted`, leave out those that have none."""
        kept: list[OffsetFetchResponseTopic] = []
        async for topic in sliced(fetched.topics, SLICE_OBJECTS):
            if topic.topic_id == ZERO_UUID:
                topic.topic_id = self._topics.topic_id(topic.name)
            if keeps_deleted or topic.topic_id != ZERO_UUID:
                kept.append(topic)
        fetched.topics = kept

    def _one_group(
        self, request: OffsetFetchRequest, context: RequestContext, member: GroupMember
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        if request.topics is not None and sum(len(topic.partition_indexes) for topic in request.topics) > SLICE_OBJECTS:
            return self._long_request(request, request.topics, context, member)
        requested = None if request.topics is None else list(_requested(request.topics))
        return self._fetch(request, context, requested, member)

    async def _long_request(
        self,
        request: OffsetFetchRequest,
        topics: Iterable[OffsetFetchRequestTopic],
        context: RequestContext,
        member: GroupMember,
    ) -> OffsetFetchResponse:
        requested = [tp async for tp in sliced(_requested(topics))]
        result = self._fetch(request, context, requested, member)
        return await result if isinstance(result, Awaitable) else result

    def _fetch(
        self,
        request: OffsetFetchRequest,
        context: RequestContext,
        requested: list[TopicPartition] | None,
        member: GroupMember,
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        """Fetch the commits; `requested` is None for all partitions with commits."""
        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
            return _failed(requested, ErrorCode.GROUP_AUTHORIZATION_FAILED, context.api_version)
        if requested is None:
            return self._all_committed(request, context, member)
        if len(requested) > SLICE_OBJECTS and context.api_version != STORED_IN_ZOOKEEPER:
            return self._long_response(request, context, requested, _DENIED, member)
        denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (tp.topic for tp in requested))
        refused = {tp: _DENIED for tp in requested if tp.topic in denied}
        readable = [tp for tp in requested if tp not in refused] if refused else requested
        if context.api_version == STORED_IN_ZOOKEEPER:
            return self._read_from_zookeeper(request.group_id, readable, refused)
        error, offsets = self._coordinator.committed(
            request.group_id, readable, require_stable=request.require_stable, member=member
        )
        if error is not ErrorCode.NONE:
            return _failed(requested, error, context.api_version)
        return _response(_partitions({**offsets, **refused}))

    def _all_committed(
        self, request: OffsetFetchRequest, context: RequestContext, member: GroupMember
    ) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
        """Return all commits of the group, for topics that the client may describe."""
        names = self._coordinator.committed_partitions(request.group_id)
        if len(names) > SLICE_OBJECTS:
            return self._long_response(request, context, names, None, member)
        error, offsets = self._coordinator.committed(
            request.group_id, names, require_stable=request.require_stable, member=member
        )
        hidden = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (tp.topic for tp in offsets))
        return _response(_partitions({tp: offset for tp, offset in offsets.items() if tp.topic not in hidden}), error)

    async def _long_response(
        self,
        request: OffsetFetchRequest,
        context: RequestContext,
        names: Sequence[TopicPartition],
        if_denied: Committed | None,
        member: GroupMember,
    ) -> OffsetFetchResponse:
        """Return the commits of many partitions; those that the client may not describe get `if_denied`, or are
        omitted.
        """
        offsets: dict[TopicPartition, Committed] = {}
        refused: dict[TopicPartition, Committed] = {}
        metadata_left = DESCRIBED_BYTES_MAX
        await pause()  # Several such requests may arrive together.
        async for batch in sliced_batches(names):
            denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (tp.topic for tp in batch))
            readable = [tp for tp in batch if tp.topic not in denied] if denied else batch
            error, committed = self._coordinator.committed(
                request.group_id, readable, require_stable=request.require_stable, member=member
            )
            if error is not ErrorCode.NONE:
                return _failed(names, error, context.api_version)
            offsets.update(committed)
            if denied and if_denied is not None:
                refused.update((tp, if_denied) for tp in batch if tp.topic in denied)
            metadata_left -= sum(len(offset.metadata or "") for _, offset in committed.values())
            if metadata_left < 0:
                return OffsetFetchResponse(topics=[], error_code=ErrorCode.INVALID_REQUEST)
        partitions = _partitions({**offsets, **refused})
        return _response([partition async for partition in sliced(partitions, SLICE_OBJECTS)])

    async def _read_from_zookeeper(
        self, group_id: str, readable: Iterable[TopicPartition], refused: Mapping[TopicPartition, Committed]
    ) -> OffsetFetchResponse:
        offsets = {tp: await self._offset_in_zookeeper(group_id, tp) for tp in readable}
        return _response(_partitions({**offsets, **refused}))

    async def _offset_in_zookeeper(self, group_id: str, tp: TopicPartition) -> tuple[ErrorCode, OffsetAndMetadata]:
        if not self._topics.has_partition(tp.topic, tp.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OF_NOTHING
        try:
            offset = await self._zookeeper.get(group_id, tp.topic, tp.partition)
        except ApiError as error:
            return error.code, OFFSET_OF_NOTHING
        except ZooKeeperError:
            return ErrorCode.UNKNOWN_SERVER_ERROR, OFFSET_OF_NOTHING
        if offset is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OF_NOTHING
        return ErrorCode.NONE, OffsetAndMetadata(offset=offset)


def _objects_in(group: OffsetFetchRequestGroup) -> int:
    return _GROUP + sum(map(_size_of, group.topics or ()))


def _size_of(topic: OffsetFetchRequestTopic) -> int:
    return 1 + len(topic.partition_indexes)


def _requested(topics: Iterable[OffsetFetchRequestTopic]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes)


def _failed(requested: Iterable[TopicPartition] | None, error: ErrorCode, version: int) -> OffsetFetchResponse:
    if version < FIRST_WITH_TOP_LEVEL_ERROR:
        return _response(_partitions(dict.fromkeys(requested or (), (error, OFFSET_OF_NOTHING))))
    return _response((), error)


_Found = Mapping[TopicPartition, Committed]


def _partitions(offsets: _Found) -> Iterator[tuple[str, OffsetFetchResponsePartition]]:
    for tp, (error, committed) in offsets.items():
        yield (
            tp.topic,
            OffsetFetchResponsePartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
            ),
        )


def _response(
    partitions: Iterable[tuple[str, OffsetFetchResponsePartition]], error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for name, partition in partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchResponseTopic(name=name, partitions=[])
        topic.partitions.append(partition)
    return OffsetFetchResponse(topics=list(topics.values()), error_code=error)
