"""Performs the actions of a group member: sends its requests to the coordinator and passes the responses to `step`.

The rules are in kctl.client.consuming.membership; reading and committing are in kctl.client.consuming.groups.consumer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID, uuid4

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.membership import consumer_protocol
from kctl.client.consuming.membership.assignors import ASSIGNORS
from kctl.client.consuming.membership.classic_protocol import step
from kctl.client.consuming.membership.consumer_protocol import ConsumerMember
from kctl.client.consuming.membership.member import (
    Action,
    Assign,
    Assigned,
    Disconnected,
    Event,
    Fail,
    GroupHeartbeatResponseReceived,
    HeartbeatResponseReceived,
    Joined,
    LookUpCoordinator,
    LookUpTopicNames,
    Member,
    MembershipSettings,
    PartitionsChanged,
    Phase,
    Revoke,
    SendGroupHeartbeat,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartReading,
    StopReading,
    SubscriptionChanged,
    Synced,
    TopicsNamed,
)
from kctl.client.metadata import ClusterMetadata, text_of_id
from kctl.client.retrying import COORDINATOR_MOVED, Deadline
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupResponse
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kctl.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kctl.protocol.apis.sync_group import SyncGroupResponse
from kctl.system.reference_cycles import copy_of

T = TypeVar("T")

PURPOSE = "membership"
"""The connection of the member's requests: the coordinator delays its responses, and those of later requests."""
RESPONSE_MARGIN_MS = 5_000
"""How much longer than the largest rebalance timeout a JoinGroup may take."""
NAMES_MS = 5_000
"""How long one broker may take to respond with the names of topics."""
REGEX_VERSION_MIN = 1
"""First version of ConsumerGroupHeartbeat with a regular expression."""
LEAVERS_VERSION_MIN = 3
"""First version of LeaveGroup with several members."""


class MembershipRunner:
    """The member of a group and its requests.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MembershipSettings,
        on_assigned: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        """`on_assigned` gets the partitions that the member may read from now on."""
        self.member: Member | ConsumerMember = (
            Member(settings) if settings.protocol == "classic" else ConsumerMember(settings, text_of_id(uuid4()))
        )
        self.joins = 0
        """How many times the group was joined."""
        self.failure: ApiError | None = None
        """The error that ended the membership."""
        self.assigned_ms = 0
        """Time of the last assignment."""
        self.is_closing = False
        self._client = client
        self._on_assigned = on_assigned
        self._partition_counts: Mapping[str, int] = {}
        """Of the topics that members of the group subscribe to, as far as they exist."""
        self._subscribed: Collection[str] = ()
        self._counted_ms = 0
        self._must_count = False
        self._matched_ms: int | None = None
        """When topics were matched with the pattern."""
        self._deadline: Deadline = client.deadline()

    def step(self, event: Event) -> list[Action]:
        """Apply an event to the member and return the resulting actions, for `perform_all`."""
        member = self.member
        if isinstance(member, Member):
            return step(member, event, self.now_ms())
        return consumer_protocol.step(member, event, self.now_ms())

    async def drive(self, event: Event) -> None:
        """Apply an event to the member and perform the resulting actions, until none is left."""
        await self.perform_all(self.step(event))

    async def perform_all(self, actions: Collection[Action]) -> None:
        """Perform the actions and those that result from their outcomes.  Raises ApiError and ClusterUnreachable."""
        waiting = deque(actions)
        while waiting:
            outcome = await self._perform(waiting.popleft())
            if outcome is not None:
                waiting += self.step(outcome)

    async def look_for_changed_topics(self) -> None:
        """If the member is the leader, rejoins if subscribed topics have new partitions, are gone or are there again.

        After metadata.max.age.ms; at once while one does not exist, and after `expect_changed_topics`.  A member with a
        pattern also looks for topics that match, as often.
        """
        max_age_ms = self._client.settings.metadata_max_age_ms
        if self._matched_ms is None or self.now_ms() >= self._matched_ms + max_age_ms:
            await self.match_topics()
        if not (isinstance(self.member, Member) and self.member.is_leader):
            return  # With the consumer protocol, the coordinator looks at the topics.
        is_due = self.now_ms() >= self._counted_ms + max_age_ms
        if not (is_due or self._must_count or len(self._partition_counts) < len(self._subscribed)):
            return
        self._must_count = False
        if await self._counts(self._subscribed) != self._partition_counts:
            await self.drive(PartitionsChanged())

    async def match_topics(self) -> None:
        """Look up the topics that match the pattern.  Internal topics do not match, as in Java."""
        pattern = self.member.settings.pattern
        if pattern is None:
            return
        self._matched_ms = self.now_ms()
        metadata = await self._client.metadata(None)
        found = tuple(
            name
            for name, topic in metadata.topics.items()
            if topic.error is ErrorCode.NONE and not topic.is_internal and pattern.fullmatch(name)
        )
        if found != self.member.settings.topics:
            await self.drive(SubscriptionChanged(found))

    def expect_changed_topics(self) -> None:
        """Look a topic up soon that does not exist, as a broker has responded."""
        self._must_count = True

    async def connect(self, *, purpose: str = PURPOSE) -> Connection:
        """Return a connection to the coordinator of the group."""
        # LeaveGroup must not wait behind an abandoned JoinGroup on the same connection.
        purpose = "" if self.is_closing else purpose
        return await self._client.coordinator(self.member.settings.group_id, purpose=purpose)

    def forget_coordinator(self) -> None:
        """Look up the coordinator before the next request."""
        self._client.forget_coordinator(self.member.settings.group_id)

    async def look_elsewhere(self, problem: str) -> None:
        """Wait before the coordinator is looked up again.

        Raises ClusterUnreachable with the problem at the deadline.
        """
        self.forget_coordinator()
        if not await self._deadline.pause():
            raise ClusterUnreachable(f"group '{self.member.settings.group_id}': {problem}")

    def renew_deadline(self) -> None:
        """Restart the time within which the group must respond."""
        self._deadline = self._client.deadline()

    def now_ms(self) -> int:
        """Return the monotonic time in milliseconds."""
        return self._client.transport.monotonic_ms()

    async def _perform(self, action: Action) -> Event | None:
        match action:
            case SendJoin(request):
                self.joins += 1
                return await self._send_request(
                    request, JoinGroupResponse, self._joined, self._rebalance_request_timeout_ms
                )
            case SendSync(request):
                return await self._send_request(request, SyncGroupResponse, Synced, self._rebalance_request_timeout_ms)
            case SendHeartbeat(request):
                generation = request.generation_id
                return await self._send_request(
                    request, HeartbeatResponse, lambda reply: HeartbeatResponseReceived(reply, generation)
                )
            case SendGroupHeartbeat(request):
                self.joins += request.member_epoch == consumer_protocol.JOIN_EPOCH
                if self.member.settings.protocol == "share":
                    return await self._send_request(
                        share_heartbeat(request),
                        ShareGroupHeartbeatResponse,
                        lambda reply: self._group_heartbeat_received(consumer_heartbeat(reply), request),
                        check=lambda connection: require_share_groups(connection, request.group_id),
                    )
                return await self._send_request(
                    request,
                    ConsumerGroupHeartbeatResponse,
                    lambda reply: self._group_heartbeat_received(reply, request),
                    check=self._require_consumer_protocol,
                )
            case LookUpTopicNames(topic_ids):
                return TopicsNamed(await self._topic_names(topic_ids))
            case SendLeave(member_id):
                await self._send_leave(member_id)
            case Assign(assignor, members):
                topics = frozenset[str]().union(*(member.topics for member in members))
                self._subscribed = topics
                self._partition_counts = await self._counts(topics)
                return Assigned(ASSIGNORS[assignor](members, self._partition_counts))
            case StartReading(partitions):
                self._on_assigned(partitions)
                self.assigned_ms = self.now_ms()
            case LookUpCoordinator():
                self.forget_coordinator()
                if self.member.phase is Phase.OUTSIDE:
                    await self.look_elsewhere("its coordinator does not respond")
            case Fail(error):
                self.failure = copy_of(error)
            case Revoke() | StopReading():
                pass  # The consumer examines the phase at the next poll.
        return None

    async def _send_leave(self, member_id: str) -> None:
        """Send LeaveGroup.  Raises ConnectionLost and ApiError."""
        connection = await self.connect()
        request = LeaveGroupRequest(group_id=self.member.settings.group_id)
        if connection.versions.highest(LeaveGroupRequest) < LEAVERS_VERSION_MIN:
            request.member_id = member_id
        else:
            request.members = [MemberIdentity(member_id=member_id)]
        await connection.send(request, LeaveGroupResponse)

    async def _send_request(
        self,
        request: object,
        response_class: type[T],
        event: Callable[[T], Event | None],
        timeout_ms: int | None = None,
        *,
        check: Callable[[Connection], None] = lambda _: None,
    ) -> Event | None:
        """`check` may raise ApiError for a broker that cannot respond."""
        during = self.member.phase
        try:
            connection = await self.connect()
            check(connection)
            return event(await connection.send(request, response_class, timeout_ms=timeout_ms))
        except (ConnectionLost, ClusterUnreachable):
            return Disconnected(during)
        except ApiError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            return Disconnected(during)

    def _group_heartbeat_received(
        self, response: ConsumerGroupHeartbeatResponse, request: ConsumerGroupHeartbeatRequest
    ) -> GroupHeartbeatResponseReceived:
        if response.error_code == ErrorCode.NONE:
            self.renew_deadline()
        return GroupHeartbeatResponseReceived(response, request)

    def _require_consumer_protocol(self, connection: Connection) -> None:
        """Raise ApiError unless the broker serves what the settings require."""
        group_id, versions = self.member.settings.group_id, connection.versions
        if not versions.supports(ConsumerGroupHeartbeatRequest):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"group '{group_id}': {connection.address} does not serve the consumer group protocol (KIP-848), which "
                f"needs Kafka 4.0 or newer: {consumer_protocol.REMEDY}",
            )
        version = versions.highest(ConsumerGroupHeartbeatRequest)
        if self.member.settings.regex is not None and version < REGEX_VERSION_MIN:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"group '{group_id}': {connection.address} does not serve a SubscriptionPattern, which needs Kafka 4.0 "
                "or newer: subscribe to a pattern of re.compile",
            )

    async def _topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of topics: of those that are subscribed to, else of all, because the broker has matched
        them.

        Empty if no broker responds: the names are looked up again after the next heartbeat.
        """
        names: dict[UUID, str] = {}
        subscribed = self.member.settings.topics
        with contextlib.suppress(ConnectionLost, ClusterUnreachable):
            for topics in (subscribed, None) if subscribed else (None,):
                metadata = await self._request_metadata(topics)
                names.update((topic.topic_id, name) for name, topic in metadata.topics.items())
                if names.keys() >= set(topic_ids):
                    break
        return {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}

    async def _request_metadata(self, topics: Collection[str] | None) -> ClusterMetadata:
        """One attempt, which a broker that does not respond ends soon: heartbeats wait meanwhile."""
        connection = await self._client.any_broker()
        try:
            return await self._client.metadata_from(connection, topics, timeout_ms=NAMES_MS)
        except ConnectionLost:
            await connection.close()  # The next attempt is made with another broker.
            raise

    def _joined(self, response: JoinGroupResponse) -> Joined:
        if response.error_code == ErrorCode.NONE:
            self.renew_deadline()
        return Joined(response)

    @property
    def _rebalance_request_timeout_ms(self) -> int:
        """Timeout of JoinGroup and SyncGroup: the largest rebalance timeout, with a margin."""
        return self.member.settings.rebalance_timeout_ms + RESPONSE_MARGIN_MS

    async def _counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition counts of the topics that exist."""
        metadata = await self._client.metadata(topics)
        self._counted_ms = self.now_ms()
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.partitions}


# Heartbeats of share groups, which are those of the consumer protocol without what is about revocation.


def share_heartbeat(request: ConsumerGroupHeartbeatRequest) -> ShareGroupHeartbeatRequest:
    """Return the heartbeat of a member of a share group."""
    return ShareGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=request.subscribed_topic_names,
    )


def consumer_heartbeat(response: ShareGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    """Return the response to the heartbeat of a member of a share group, as one of the consumer protocol."""
    assignment = None
    if response.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in response.assignment.topic_partitions
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=response.error_code,
        error_message=response.error_message,
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=assignment,
    )


def require_share_groups(connection: Connection, group_id: str) -> None:
    """Raise ApiError unless the broker serves share groups in a version that is not a preview."""
    key, version = 76, 1
    if not connection.versions.has(key, version):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"group '{group_id}': {connection.address} does not serve it: {consumer_protocol.SHARE_REMEDY}",
        )
