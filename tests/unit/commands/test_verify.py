"""`kctl cluster verify` and brokers that do not respond."""

from __future__ import annotations

import pytest

from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.list_offsets import ListOffsetsRequest
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

PARTITIONS = 40
"""More than one request of records contains."""


def fill(cluster: FakeCluster) -> None:
    for partition in cluster.create("orders", leaders=PARTITIONS):
        partition.append(build_batch([Record(0, 0, None, b"x")]))


@pytest.mark.long
def test_broker_that_does_not_return_offsets_is_waited_for_once(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.intercept(ListOffsetsRequest, lambda _: b"")
    ran = kctl("cluster verify --timeout 1s --format json")
    assert ran.status == 1
    assert {row["error"] for row in ran.document} == {"NETWORK_EXCEPTION"}
    assert len(cluster.requested(MetadataRequest)) == 1


@pytest.mark.long
def test_broker_that_does_not_return_records_is_waited_for_once(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.intercept(FetchRequest, lambda _: b"")
    ran = kctl("cluster verify --timeout 1s --format json")
    assert [row["error"] for row in ran.document] == ["NETWORK_EXCEPTION"] * PARTITIONS
    fetching = {broker for broker, _ in cluster.requested(FetchRequest)}
    assert len(cluster.requested(FetchRequest)) == len(fetching)
