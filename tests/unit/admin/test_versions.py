"""API versions, features and metadata versions of several brokers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kctl.admin.cluster.features import (
    BrokerApis,
    Feature,
    compare_apis,
    features_of,
    metadata_version_level,
    metadata_version_name,
)
from kctl.client.connections.versions import SINCE, BrokerVersions
from kctl.errors import ApiError, UsageError
from kctl.protocol.apis.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from kctl.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from kctl.protocol.registry import all_apis

LAST_KEY_OF_0_11 = 33
FETCH, VOTE, NEWER = 1, 52, 999


def test_apis_that_differ_are_marked_and_the_common_version_is_usable() -> None:
    old, new = BrokerApis(0, {FETCH: (0, 11), VOTE: (0, 1)}), BrokerApis(1, {FETCH: (4, 17), NEWER: (0, 0)})
    by_key = {api.key: api for api in compare_apis([old, new])}
    fetch = by_key[FETCH]
    assert (fetch.name, fetch.supported, fetch.differs, fetch.usable) == ("Fetch", (0, 12), True, 11)
    assert fetch.brokers == {0: (0, 11), 1: (4, 17)}
    assert (by_key[VOTE].name, by_key[VOTE].supported, by_key[VOTE].differs) == ("Vote", None, True)
    assert (by_key[NEWER].name, by_key[NEWER].usable) == ("unknown 999", None)
    assert by_key[0].brokers == {0: None, 1: None}
    assert not by_key[0].differs


@pytest.mark.parametrize(("theirs", "usable"), [((0, 3), 3), ((10, 20), 12), ((13, 20), None)])
def test_usable_version_is_the_highest_common_one(theirs: tuple[int, int], usable: int | None) -> None:
    (fetch,) = (api for api in compare_apis([BrokerApis(0, {FETCH: theirs})]) if api.key == FETCH)
    assert fetch.usable == usable


def response(epoch: int, finalized: dict[str, int], **supported: tuple[int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, (low, high) in supported.items()
        ],
        finalized_features_epoch=epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )


def test_a_level_is_supported_if_all_brokers_support_it() -> None:
    found = features_of(
        [
            response(7, {"a": 3}, a=(1, 5), b=(0, 1), c=(1, 2)),
            response(8, {"a": 4}, a=(2, 6), c=(3, 4)),
        ]
    )
    assert found.epoch == 8
    assert found.features == (
        Feature("a", 2, 5, 4, differs=True),
        Feature("b", None, None, 0, differs=True),
        Feature("c", None, None, 0, differs=True),
    )


def test_cluster_without_features_has_an_empty_list() -> None:
    assert features_of([response(-1, {})]).features == ()


def test_metadata_versions_have_names_and_levels() -> None:
    assert metadata_version_level("3.9-IV0") == metadata_version_level("3.9") == metadata_version_level("21") == 21
    assert metadata_version_level("3.3") == 7
    assert metadata_version_name(25) == "4.0-IV3"
    assert metadata_version_name(0) is metadata_version_name(900) is None
    for name in ("", "2.8", "4.", "4.0-IV9", "-1", "٣"):
        with pytest.raises(UsageError):
            metadata_version_level(name)


def test_error_about_a_missing_api_names_the_kafka_version_that_has_it() -> None:
    sources = [path.read_text() for folder in ("admin", "client") for path in Path("kctl", folder).rglob("*.py")]
    used = {name for source in sources for name in re.findall(r"\b([A-Z]\w+)Request\b", source)}
    names = {api.request.__name__.removesuffix("Request"): key for key, api in all_apis().items()}
    newer = {name for name in used & names.keys() if names[name] > LAST_KEY_OF_0_11}
    # Explained where they are used: no metadata quorum, SASL without that request, and lists without a note.
    assert newer - {"DescribeQuorum", "SaslAuthenticate", "DescribeCluster"} == set(SINCE)
    with pytest.raises(ApiError, match=r"does not support DescribeClientQuotas, which needs Kafka 2\.6 or newer"):
        BrokerVersions({}).highest(DescribeClientQuotasRequest)


def test_kraft_controller_is_told_from_an_old_broker() -> None:
    """A controller serves Vote (52) and no Metadata (3); a broker of Kafka 0.10 Metadata up to version 2."""
    for ranges, is_controller in (
        ({1: (0, 17), 18: (0, 4), 52: (0, 1)}, True),
        ({3: (0, 2), 18: (0, 0)}, False),
        ({3: (0, 13), 18: (0, 4), 55: (0, 2)}, False),
    ):
        assert BrokerVersions(ranges).is_controller == is_controller, ranges
