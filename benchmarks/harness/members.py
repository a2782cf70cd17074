"""Members of consumer groups, reduced to the protocol: many of them in one process, sending requests when called."""

from __future__ import annotations

import asyncio

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Connection
from kctl.errors import ErrorCode
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kctl.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)

TIMEOUT_MS = 300_000
COORDINATOR_RETRY_S = 0.1
COORDINATOR_ATTEMPTS = 300


async def connect(bootstrap: str) -> Connection:
    host, _, port = bootstrap.rpartition(":")
    return await AsyncioTransport().connect(
        host, int(port), client_id="benchmark", connect_timeout_ms=10_000, timeout_ms=TIMEOUT_MS
    )


async def create_topic(connection: Connection, topic: str, partitions: int) -> None:
    """And the internal topic of offsets, which a first question for a coordinator brings about."""
    requested = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    await connection.send(CreateTopicsRequest(topics=[requested], timeout_ms=60_000), CreateTopicsResponse)
    for _ in range(COORDINATOR_ATTEMPTS):
        if not (await connection.send(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, version=3)).error_code:
            return
        await asyncio.sleep(COORDINATOR_RETRY_S)
    raise SystemExit("there is no group coordinator")


class Member:
    """One member of one group, on a connection that it may share."""

    def __init__(self, connection: Connection, group_id: str, topic: str) -> None:
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._subscription = encode_subscription(ConsumerProtocolSubscription(topics=[topic]))
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.is_leader = False

    async def join(self) -> list[str]:
        """The members of the new generation if this one leads it, else nothing."""
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=self._subscription)],
            )
            response = await self._connection.send(request, JoinGroupResponse)
            self.member_id = response.member_id
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        _expect(response.error_code)
        self.generation = response.generation_id
        return [member.member_id for member in response.members]

    async def sync(self, assignments: dict[str, bytes] | None = None) -> bool:
        """Whether there is an assignment; else the group rebalances once more."""
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        )
        response = await self._connection.send(request, SyncGroupResponse)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        _expect(response.error_code)
        self.assignment = bytes(response.assignment)
        return True

    async def join_and_sync(self, partitions: int) -> None:
        """A rebalance as this member takes part in it; whoever leads shares the partitions out."""
        has_assignment = False
        while not has_assignment:
            members = await self.join()
            self.is_leader = bool(members)
            has_assignment = await self.sync(share_out(members, self._topic, partitions) if members else None)

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self._group_id, generation_id=self.generation, member_id=self.member_id)
        return ErrorCode.of((await self._connection.send(request, HeartbeatResponse)).error_code)


def share_out(members: list[str], topic: str, partitions: int) -> dict[str, bytes]:
    """Each member's part, as consumers write it."""
    return {
        member_id: encode_assignment(
            ConsumerProtocolAssignment(
                assigned_partitions=[
                    TopicPartitions(topic=topic, partitions=list(range(number, partitions, len(members))))
                ]
            )
        )
        for number, member_id in enumerate(sorted(members))
    }


def _expect(code: int) -> None:
    if code != ErrorCode.NONE:
        raise SystemExit(f"a member of a group got {ErrorCode.of(code).name}")
