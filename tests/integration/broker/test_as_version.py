"""`kctl broker start --as-version`: what a broker of a release of Apache Kafka advertises and serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection
from kctl.client.connections.transport import ConnectionLost
from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.errors import ErrorCode
from kctl.protocol import codec
from kctl.protocol.apis.api_versions import ApiVersionsResponse
from kctl.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.registry import all_apis
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.server.broker.releases import ServedVersions, versions_of_release
from tests.integration.broker.test_every_version import on_connection
from tests.peers.api_versions import golden_api_versions, request_api_versions
from tests.peers.kctl_broker import KctlBroker, kctl_broker

KEYLESS = [Record(0, 1_600_000_000_000, None, b"v")]
CORRELATION_ID_SIZE = 4
FIRST_RELEASE_WITHOUT_ALL_VERSIONS = "3.9"
"""Of this one and newer ones some versions are not served: docs/reference/apis.md."""
SEEN = {
    "0.11": (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    "1.1": (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    "2.0": (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    "2.4": (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "2.8": (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "3.9": (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}
"""What brokers of 0.11.0.3, 1.1.1, 2.0.1, 2.4.1, 2.8.2 and 3.9.1 respond in Produce 3 to a record without a key in a
compacted topic, and to zstd."""


@contextmanager
def broker_as(release: str, folder: Path) -> Iterator[KctlBroker]:
    with kctl_broker(folder / release, options=["--as-version", release]) as broker:
        yield broker


def check_api_versions(broker: KctlBroker, release: str) -> None:
    """The bytes are those of Kafka where all of the release is served."""
    for kafka, version, blob in golden_api_versions():
        if not kafka.startswith(f"{release}."):
            continue
        response = request_api_versions(broker.bootstrap, int(version))
        if KAFKA_RELEASES.index(release) < KAFKA_RELEASES.index(FIRST_RELEASE_WITHOUT_ALL_VERSIONS):
            assert response.hex() == blob, (release, version)
        else:
            decoded, _ = codec.decode(ApiVersionsResponse, response, int(version), CORRELATION_ID_SIZE)
            versions = ServedVersions(has_topic_ids=True, release=release)
            ours = {api.key: versions.advertised(api) for api in all_apis().values() if versions.advertised(api)}
            assert {api.api_key: range(api.min_version, api.max_version + 1) for api in decoded.api_keys} == ours
            assert ours.keys() <= versions_of_release(release).keys()


async def refused(connection: AsyncioConnection, topic: str, batch: bytes) -> int:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=data)
    response: Any = await connection.send(request, ProduceResponse, version=3)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def check_error_codes(broker: KctlBroker, release: str) -> None:
    async def play(connection: AsyncioConnection) -> None:
        compact = CreatableTopicConfig(name="cleanup.policy", value="compact")
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
            for name, configs in (("compacted", [compact]), ("plain", []))
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
        created: Any = await connection.send(request, CreateTopicsResponse, version=2)
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE] * 2
        codes = (
            await refused(connection, "compacted", build_batch(KEYLESS)),
            await refused(connection, "plain", build_batch(KEYLESS, codec=Codec.ZSTD)),
        )
        assert codes == SEEN[release]

    on_connection(broker, play)


def check_other_versions_are_refused(broker: KctlBroker, release: str) -> None:
    beyond = versions_of_release(release)[3].stop

    async def play(connection: AsyncioConnection) -> None:
        await connection.send(MetadataRequest(topics=[]), MetadataResponse, version=beyond - 1)
        with pytest.raises(ConnectionLost):
            await connection.send(MetadataRequest(topics=[]), MetadataResponse, version=beyond)

    on_connection(broker, play)


@pytest.mark.parametrize(
    "release",
    [release if release in {"2.0", "2.8"} else pytest.param(release, marks=pytest.mark.matrix) for release in SEEN],
)
def test_a_broker_advertises_and_serves_what_the_release_does(release: str, tmp_path: Path) -> None:
    with broker_as(release, tmp_path) as broker:
        check_api_versions(broker, release)
        check_other_versions_are_refused(broker, release)
        check_error_codes(broker, release)


@pytest.mark.matrix
def test_a_broker_advertises_the_groups_of_the_newest_release(tmp_path: Path) -> None:
    with broker_as("4.3", tmp_path) as broker:
        check_api_versions(broker, "4.3")
