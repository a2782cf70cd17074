"""Features of a cluster of three brokers: `kctl features`, what a level enables, and what is stored."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection
from kctl.errors import ErrorCode
from kctl.protocol.apis import consumer_group_describe, consumer_group_heartbeat, share_fetch, share_group_describe
from kctl.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestedGroup,
)
from tests.integration.broker.test_every_version import on_connection
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker
from tests.peers.three_brokers import forked_cluster

pytestmark = pytest.mark.long

PROPERTIES = {"group.coordinator.rebalance.protocols": "classic,consumer,share"}
WAIT_S = 30


def kctl(broker: KctlBroker, *words: str, status: int = 0) -> Any:
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": broker.bootstrap}
    ran = run_kctl(*words, "--format", "json", environment=environment)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def levels(broker: KctlBroker) -> dict[str, int]:
    return {row["feature"]: row["finalized"] for row in kctl(broker, "features", "describe")}


def heartbeat(broker: KctlBroker) -> int:
    codes: list[int] = []
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"]
    )

    async def play(connection: AsyncioConnection) -> None:
        response = await connection.send(request, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse, version=1)
        codes.append(response.error_code)

    on_connection(broker, play)
    return codes[0]


def check_that_groups_are_refused(broker: KctlBroker) -> None:
    async def play(connection: AsyncioConnection) -> None:
        described = await connection.send(
            consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["g", "h"]),
            consumer_group_describe.ConsumerGroupDescribeResponse,
            version=1,
        )
        shared = await connection.send(
            share_group_describe.ShareGroupDescribeRequest(group_ids=["g"]),
            share_group_describe.ShareGroupDescribeResponse,
            version=1,
        )
        offsets = await connection.send(
            DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id="g")]),
            DescribeShareGroupOffsetsResponse,
            version=1,
        )
        fetched = await connection.send(
            share_fetch.ShareFetchRequest(
                group_id="g",
                member_id="m",
                share_session_epoch=0,
                max_wait_ms=0,
                min_bytes=1,
                max_records=1,
                batch_size=1,
                topics=[],
                forgotten_topics_data=[],
            ),
            share_fetch.ShareFetchResponse,
            version=1,
        )
        groups: list[Any] = [*described.groups, *shared.groups, *offsets.groups]
        assert [group.group_id for group in groups] == ["g", "h", "g", "g"]
        assert {fetched.error_code, *(group.error_code for group in groups)} == {ErrorCode.UNSUPPORTED_VERSION}

    on_connection(broker, play)


def test_a_level_is_changed_for_the_whole_cluster_and_decides_what_is_served(tmp_path: Path) -> None:
    with forked_cluster(tmp_path, lambda _: PROPERTIES) as brokers:
        first = brokers[0]
        names = {"group.version": 1, "share.version": 1, "transaction.version": 0}
        assert levels(first) == names
        assert heartbeat(first) != ErrorCode.UNSUPPORTED_VERSION
        kctl(first, "features", "upgrade", "--feature", "transaction.version=2", "--yes")
        kctl(first, "features", "upgrade", "--feature", "transaction.version=3", "--yes", status=1)
        lower = ("--feature", "group.version=0", "--feature", "share.version=0")
        kctl(first, "features", "downgrade", *lower, "--dry-run")
        assert heartbeat(first) != ErrorCode.UNSUPPORTED_VERSION
        kctl(first, "features", "downgrade", *lower, "--yes")
        lowered = {"group.version": 0, "share.version": 0, "transaction.version": 2}
        deadline = time.monotonic() + WAIT_S
        for broker in brokers:
            # The others notice the change of the znode.
            while heartbeat(broker) != ErrorCode.UNSUPPORTED_VERSION:
                assert time.monotonic() < deadline
            check_that_groups_are_refused(broker)
        assert levels(first) == lowered
        last = brokers[2]
        last.kill9()
        last.start()
        assert levels(last) == lowered
        kctl(last, "features", "upgrade", "--feature", "group.version=1", "--feature", "share.version=1", "--yes")
        assert levels(last) == names | {"transaction.version": 2}
