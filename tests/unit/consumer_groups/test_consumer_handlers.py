"""The handlers of the consumer protocol: what a client may not see, and several groups in one OffsetFetch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from kctl.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kctl.security.acls import Operation, ResourceType
from kctl.server.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from kctl.server.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from kctl.server.handlers.offset_fetch import OffsetFetchHandler
from kctl.server.requests.context import EverythingAllowed, Peer, RequestContext
from tests.unit.consumer_groups.test_on_a_coordinator import IDS, Cluster, play


class Denies(EverythingAllowed):
    """Access control that denies these resources."""

    def __init__(self, *denied: str) -> None:
        super().__init__()
        self._denied = denied

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        return name not in self._denied


def context(*denied: str, version: int = 1) -> RequestContext:
    return RequestContext(version, 1, "c", Peer("/127.0.0.1", "PLAINTEXT"), Denies(*denied), "api")


async def done(response: Any) -> Any:
    return await response if isinstance(response, Awaitable) else response


def joining(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    usual: dict[str, Any] = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 5_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, **usual | fields)


def test_heartbeat_needs_the_group_and_its_topics() -> None:
    async def story(cluster: Cluster) -> None:
        handler = ConsumerGroupHeartbeatHandler(cluster.coordinator)
        for denied, error in (
            ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("u", ErrorCode.NONE),
        ):
            assert (await done(handler.handle(joining(), context(denied)))).error_code == error
        regex = joining(subscribed_topic_names=None, subscribed_topic_regex="t|u")
        await done(handler.handle(regex, context("u")))
        await asyncio.sleep(0.1)
        response = await done(handler.handle(regex, context("u")))
        assert {topic.topic_id for topic in response.assignment.topic_partitions} == {IDS["t"]}

    play(story)


def test_description_needs_the_group_and_its_topics() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        handler = ConsumerGroupDescribeHandler(cluster.coordinator, cluster.topics, "uniform")
        request = ConsumerGroupDescribeRequest(group_ids=["g", "none"])
        for denied, error in (
            ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("u", ErrorCode.NONE),
        ):
            first, missing = (await handler.handle(request, context(denied))).groups
            assert (first.error_code, missing.error_code) == (error, ErrorCode.GROUP_ID_NOT_FOUND)
            assert [member.member_id for member in first.members] == (["a"] if error is ErrorCode.NONE else [])

    play(story)


def test_offsets_of_several_groups_are_fetched_with_the_epochs_of_members() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.heard("a")
        await cluster.commit("a", 2)
        handler = OffsetFetchHandler(cluster.coordinator, None, None)  # type: ignore[arg-type]
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        groups = [
            OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=topics)
            for member, epoch in (("a", 2), ("a", 1), ("b", 2), (None, -1))
        ]
        groups.append(OffsetFetchRequestGroup(group_id="other", topics=None))
        response = await done(handler.handle(OffsetFetchRequest(groups=groups), context(version=9)))
        assert [group.error_code for group in response.groups] == [
            ErrorCode.NONE,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        offsets = [p.committed_offset for p in response.groups[0].topics[0].partitions]
        assert offsets == [5, -1]

    play(story)
