"""Throttles on a fake cluster: set, recorded, restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.admin.placement.execution import look
from kctl.admin.placement.throttles import FOLLOWER_REPLICAS, RATES
from kctl.admin.placement.throttling import (
    ThrottleRecords,
    finished_keys,
    folder_of,
    key_of,
    release_throttles,
    set_throttles,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.protocol.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.admin.moving_cluster import BROKER, TOPIC, MovingCluster

TP = TopicPartition("orders", 0)
KEY = key_of([TP])


@pytest.fixture
def cluster() -> Iterator[MovingCluster]:
    with MovingCluster() as started:
        started.place("orders", [0, 1])
        yield started


@pytest.fixture
def records(tmp_path: Path) -> ThrottleRecords:
    return ThrottleRecords(tmp_path / "records")


def throttle(cluster: MovingCluster, records: ThrottleRecords, rate: int = 1000) -> list[str]:
    """Throttles the move of the partition to brokers 1 and 2; returns the brokers without a throttle."""

    async def work() -> list[str]:
        async with ClusterClient(cluster.settings(), BlockingTransport()) as client:
            situation = await look(client, {TP: (1, 2)})
            with records.locked():
                return [away.name for away in await set_throttles(client, records, KEY, situation.moves, rate)]

    return run_blocking(work())


def give_back(cluster: MovingCluster, records: ThrottleRecords) -> list[str]:
    """Restores all settings; returns the remaining records."""

    async def work() -> list[str]:
        async with ClusterClient(cluster.settings(), BlockingTransport()) as client:
            with records.locked():
                restored = await release_throttles(client, records, list(records.all()))
            return [resource.name for resource, _ in restored.failed]

    return run_blocking(work())


def test_throttle_is_set_and_restored(cluster: MovingCluster, records: ThrottleRecords) -> None:
    cluster.overrides[BROKER, "1"] = {RATES[0]: "777"}
    assert throttle(cluster, records) == []
    assert [cluster.set_for(BROKER, broker, RATES[0]) for broker in "012"] == ["1000"] * 3
    assert cluster.set_for(TOPIC, "orders", FOLLOWER_REPLICAS) == "0:2"
    assert give_back(cluster, records) == []
    assert {key: value for key, value in cluster.overrides.items() if value} == {(BROKER, "1"): {RATES[0]: "777"}}
    assert records.all() == {}


def test_record_is_written_before_anything_is_set(cluster: MovingCluster, records: ThrottleRecords) -> None:
    seen = []

    def look_at_records(_request: object) -> None:
        seen.append(records.path_of(KEY).exists())

    cluster.intercept(IncrementalAlterConfigsRequest, look_at_records)
    throttle(cluster, records)
    assert seen
    assert all(seen)


def test_unreachable_broker_is_not_throttled(cluster: MovingCluster, records: ThrottleRecords) -> None:
    cluster.away = {0}
    cluster.controller = 2
    assert throttle(cluster, records) == ["0"]
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1000"
    assert give_back(cluster, records) == []


def test_unreachable_broker_stays_in_the_record(cluster: MovingCluster, records: ThrottleRecords) -> None:
    throttle(cluster, records)
    cluster.away = {0}
    assert give_back(cluster, records) == ["0"]
    assert {rate.broker_id for rate in records.all()[KEY].rates} == {0}
    cluster.away = set()
    assert give_back(cluster, records) == []
    assert not any(cluster.overrides.values())


def test_deleted_topic_needs_no_release(cluster: MovingCluster, records: ThrottleRecords) -> None:
    throttle(cluster, records)
    del cluster.topics["orders"]
    assert give_back(cluster, records) == []
    assert records.all() == {}


def test_refused_setting_is_an_error_and_earlier_settings_are_recorded(
    cluster: MovingCluster, records: ThrottleRecords
) -> None:
    def refuse_topics(request: IncrementalAlterConfigsRequest) -> object:
        if request.resources[0].resource_type != TOPIC:
            return None
        refused = AlterConfigsResourceResponse(error_code=29, resource_type=TOPIC, resource_name="orders")
        return IncrementalAlterConfigsResponse(responses=[refused])

    cluster.intercept(IncrementalAlterConfigsRequest, refuse_topics)
    with pytest.raises(ApiError, match="topic orders") as raised:
        throttle(cluster, records)
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.intercepts.clear()
    assert give_back(cluster, records) == []
    assert not any(cluster.overrides.values())


def test_records_of_moves_under_way_are_not_finished(cluster: MovingCluster, records: ThrottleRecords) -> None:
    throttle(cluster, records)
    assert finished_keys(records, [TP]) == []
    assert finished_keys(records, [TopicPartition("other", 0)]) == [KEY]


def test_file_without_a_record_is_named(records: ThrottleRecords) -> None:
    records.folder.mkdir()
    records.path_of("x").write_text("{")
    with pytest.raises(KctlError, match=r"throttle-x\.json"):
        records.all()


def test_each_cluster_has_its_own_folder() -> None:
    assert folder_of(Path("/state"), "a-_b/../C") == Path("/state/a-_b____C")
    assert folder_of(Path("/state"), None) == Path("/state/unnamed-cluster")
