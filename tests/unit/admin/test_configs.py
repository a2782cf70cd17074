"""The effective value of a property after a change."""

from __future__ import annotations

import re

import pytest

from kctl.admin.topics.configs import (
    RESOURCES_PER_BROKER_MIN,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSynonym,
    ResourceType,
    describe_configs,
    own_value,
    value_after,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.client.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.rows import for_rows
from tests.unit.client.fake_cluster import DROP, FakeCluster
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
OWN, INHERITED = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"


def entry(value: str, *, source: str = OWN) -> ConfigEntry:
    synonyms = (
        ConfigSynonym("cleanup.policy", value, source),
        ConfigSynonym("log.cleanup.policy", "delete", INHERITED),
    )
    return ConfigEntry("cleanup.policy", value, source, False, False, synonyms)


@for_rows(
    "operation, value, before, after",
    [
        (ConfigOperation.SET, "a=b", entry("delete"), "a=b"),
        (ConfigOperation.SET, "x", None, "x"),
        (ConfigOperation.DELETE, None, entry("compact"), "delete"),
        (ConfigOperation.DELETE, None, None, None),
        (ConfigOperation.APPEND, "compact", entry("delete"), "delete,compact"),
        (ConfigOperation.APPEND, "delete", entry("delete"), "delete"),
        (ConfigOperation.APPEND, "compact", None, "compact"),
        (ConfigOperation.SUBTRACT, "delete", entry("delete,compact"), "compact"),
        (ConfigOperation.SUBTRACT, "compact", entry("compact"), ""),
    ],
)
def test_value_is_computed_after_a_change(
    operation: ConfigOperation, value: str | None, before: ConfigEntry | None, after: str | None
) -> None:
    assert value_after(ConfigChange("cleanup.policy", operation, value), ORDERS, before) == after


def test_own_value_is_one_set_for_exactly_this_resource() -> None:
    assert own_value([entry("compact")], ORDERS, "cleanup.policy") == "compact"
    assert own_value([entry("delete", source=INHERITED)], ORDERS, "cleanup.policy") is None
    assert own_value([], ORDERS, "cleanup.policy") is None


@pytest.mark.parametrize(
    ("resource", "broker_id", "source"),
    [
        (ORDERS, None, "DYNAMIC_TOPIC_CONFIG"),
        (ConfigResource(ResourceType.BROKER, "7"), 7, "DYNAMIC_BROKER_CONFIG"),
        (ConfigResource(ResourceType.BROKER, ""), None, "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ],
)
def test_resources_are_described_by_the_right_broker_and_source(
    resource: ConfigResource, broker_id: int | None, source: str
) -> None:
    assert (resource.broker_id, resource.own_source) == (broker_id, source)


@pytest.mark.parametrize("kind", [ResourceType.GROUP, ResourceType.CLIENT_METRICS])
@pytest.mark.parametrize("is_new", [False, True])
def test_broker_without_properties_of_groups_or_client_metrics_is_too_old(kind: ResourceType, is_new: bool) -> None:
    name = "billing"
    refused = DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST, error_message="no", resource_type=kind, resource_name=name, configs=[]
    )

    async def main() -> list[ConfigEntry] | Outcome:
        async with ClusterClient(cluster.settings(), NoPauseBlockingTransport()) as client:
            resource = ConfigResource(kind, name)
            return (await describe_configs(client, [resource]))[resource]

    with FakeCluster(versions={69: (0, int(is_new))}) as cluster:
        advertised = cluster._api_versions(0, None)
        advertised.api_keys += [ApiVersion(api_key=74, min_version=0, max_version=1)] * is_new
        cluster.intercept(ApiVersionsRequest, lambda _: advertised)
        cluster.intercept(DescribeConfigsRequest, lambda _: DescribeConfigsResponse(results=[refused]))
        outcome = run_blocking(main())
    assert isinstance(outcome, Outcome)
    if is_new:
        assert outcome == Outcome(name, ErrorCode.INVALID_REQUEST, "no")
    else:
        assert outcome.error is ErrorCode.UNSUPPORTED_VERSION
        assert re.search(r"need Kafka [34]\.\d or newer without ZooKeeper", outcome.message)


@pytest.mark.parametrize("loses_a_connection", [False, True])
def test_many_topics_are_described_by_all_brokers_with_a_connection(loses_a_connection: bool) -> None:
    names = [f"topic-{number}" for number in range(2 * RESOURCES_PER_BROKER_MIN)]
    with FakeCluster(brokers=2) as cluster:
        for name in names:
            cluster.create(name)
        if loses_a_connection:
            cluster.intercept(
                DescribeConfigsRequest,
                lambda _: DROP if len(cluster.requested(DescribeConfigsRequest)) == 1 else None,
            )

        async def main() -> list[str]:
            async with ClusterClient(cluster.settings(), NoPauseBlockingTransport()) as client:
                await client.metadata([])
                for broker_id in range(2):
                    await client.broker(broker_id)
                found = await describe_configs(client, [ConfigResource(ResourceType.TOPIC, name) for name in names])
                return [resource.name for resource, entries in found.items() if isinstance(entries, list)]

        assert run_blocking(main()) == sorted(names)
        requested = cluster.requested(DescribeConfigsRequest)
        assert {broker for broker, _ in requested} == {0, 1}
        assert max(len(request.resources) for _, request in requested) == RESOURCES_PER_BROKER_MIN
