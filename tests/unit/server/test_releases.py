"""The APIs and versions of releases of Kafka, and the page that compares those of the newest with ours."""

from __future__ import annotations

import docs.reference.generate as pages
from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.errors import ErrorCode
from kctl.protocol.apis.api_versions import ApiVersionsResponse
from kctl.protocol.codec import decode
from kctl.protocol.registry import all_apis
from kctl.server.broker.releases import ServedVersions, api_names, versions_of_release
from tests.peers.api_versions import golden_api_versions
from tests.rows import for_rows

TELEMETRY = {71, 72}
"""Advertised by a broker that has a receiver of metrics, which those of the golden bytes have not."""
GOLDEN = golden_api_versions()
CORRELATION_ID_SIZE = 4


def significant(version: str) -> str:
    """The release of a version such as 2.8.2, as in KAFKA_RELEASES."""
    return ".".join(version.split(".")[:2])


@for_rows("kafka, version, blob", GOLDEN)
def test_the_table_has_what_kafka_advertises(kafka: str, version: str, blob: str) -> None:
    data = bytes.fromhex(blob)[CORRELATION_ID_SIZE:]
    is_refused = data[:2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    response, end = decode(ApiVersionsResponse, data, 0 if is_refused else int(version))
    assert end == len(data)
    if not is_refused:
        advertised = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}
        table = versions_of_release(significant(kafka))
        assert {key: versions for key, versions in table.items() if key not in TELEMETRY} == advertised


def test_every_release_of_the_table_has_golden_bytes() -> None:
    assert tuple(dict.fromkeys(significant(kafka) for kafka, _, _ in GOLDEN)) == KAFKA_RELEASES


def test_names_are_those_of_the_definitions() -> None:
    ours = {key: api.kafka_name for key, api in all_apis().items()}
    assert {key: name for key, name in api_names().items() if key in ours} == {
        key: name for key, name in ours.items() if key in api_names()
    }


def test_each_api_that_lacks_versions_of_the_newest_release_has_a_note_and_no_other() -> None:
    served = {key: ServedVersions(has_topic_ids=True).of(api) for key, api in all_apis().items()}
    newest = versions_of_release(KAFKA_RELEASES[-1])
    lacking = {key for key, versions in newest.items() if not set(versions) <= set(served.get(key, ()))}
    assert lacking == pages.kafka_api_notes().keys()
    assert all(pages.kafka_api_notes().values())


def test_topic_ids_are_served_only_where_topics_have_them() -> None:
    newest = {
        api.name: (ServedVersions(has_topic_ids=False).of(api), ServedVersions(has_topic_ids=True).of(api))
        for api in all_apis().values()
    }
    assert newest["metadata"] == (range(12), range(14))
    assert newest["offset_fetch"] == (range(10), range(11))
    assert newest["heartbeat"] == (range(5), range(5))


def test_what_brokers_use_among_each_other_is_served_whatever_is_advertised() -> None:
    versions = ServedVersions(has_topic_ids=True, release="4.3")
    apis = {api.name: api for api in all_apis().values()}
    assert versions.advertised(apis["leader_and_isr"]) == range(0)
    assert versions.of(apis["leader_and_isr"]) == apis["leader_and_isr"].served
    assert versions.of(apis["fetch"]) == versions.advertised(apis["fetch"]) == range(4, 19)
