from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kctl.protocol.apis
from kctl.protocol.apis.fetch import FetchRequest, FetchResponse
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription
from kctl.protocol.definition import definition_of
from kctl.protocol.registry import all_apis, api, api_named, api_of
from tests.rows import for_rows

APIS = all_apis()


@for_rows("key", APIS)
def test_request_and_response_have_the_same_key_and_versions(key: int) -> None:
    entry = APIS[key]
    for definition in (definition_of(entry.request), definition_of(entry.response)):
        assert (definition.key, definition.versions) == (key, entry.versions)
        assert [definition.is_flexible(version) for version in entry.versions] == [
            entry.is_flexible(version) for version in entry.versions
        ]


def test_every_module_of_apis_is_listed() -> None:
    folder = Path(kctl.protocol.apis.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {entry.name for entry in APIS.values()}


@for_rows("key", APIS)
def test_modules_are_headed_by_name_key_and_versions(key: int) -> None:
    entry = APIS[key]
    heading = sys.modules[entry.request.__module__].__doc__ or ""
    first, last = entry.versions[0], entry.version_max
    versions = f"version {first}" if first == last else f"versions {first}-{last}"
    assert heading.startswith(f"{entry.kafka_name} (key {key}, {versions}): ")


@for_rows("key", APIS)
def test_what_our_broker_serves_begins_with_the_oldest_version(key: int) -> None:
    entry = APIS[key]
    assert entry.served == entry.versions[: len(entry.served)]


def test_apis_are_found_by_key_name_and_message() -> None:
    assert api(1) is api_named("fetch") is api_of(FetchRequest) is api_of(FetchResponse)
    assert api(9999) is None
    with pytest.raises(KeyError):
        api_named("fetsch")
    with pytest.raises(KeyError):
        api_of(ConsumerProtocolSubscription)


def _definitions_imported_by(program: str) -> set[str]:
    program += "\nimport sys\nprint(*(name for name in sys.modules if name.startswith('kctl.protocol.apis.')))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.rpartition(".")[2] for name in ran.stdout.split()}


def test_importing_the_registry_imports_no_api() -> None:
    """Commands start fast because they import only the messages that they use."""
    assert _definitions_imported_by("import kctl.protocol.registry") == set()


def test_headers_of_an_imported_request_and_response_import_no_other_api() -> None:
    program = """
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.headers import RequestHeader, encode_request_header, response_header_version
encode_request_header(RequestHeader(3, 9, 1, "client"))
response_header_version(3, 9)
"""
    assert _definitions_imported_by(program) == {"metadata"}


@pytest.mark.long
def test_an_api_that_is_not_imported_is_found_by_its_key() -> None:
    """Whether a header is flexible does not depend on what was imported before."""
    program = "from kctl.protocol.headers import request_header_version\nassert request_header_version(3, 9) == 2"
    assert "metadata" in _definitions_imported_by(program)


def test_an_api_of_the_client_alone_has_no_served_versions() -> None:
    assert [entry.name for entry in APIS.values() if not entry.served] == [
        "describe_quorum",
        "unregister_broker",
        "consumer_group_heartbeat",
        "consumer_group_describe",
        "get_telemetry_subscriptions",
        "push_telemetry",
        "share_group_heartbeat",
        "share_group_describe",
        "share_fetch",
        "share_acknowledge",
        "initialize_share_group_state",
        "read_share_group_state",
        "write_share_group_state",
        "delete_share_group_state",
        "read_share_group_state_summary",
        "streams_group_heartbeat",
        "streams_group_describe",
        "describe_share_group_offsets",
        "alter_share_group_offsets",
        "delete_share_group_offsets",
    ]
    assert (api_named("describe_log_dirs").versions, api_named("describe_log_dirs").served) == (range(6), range(4))
    assert (api_named("offset_fetch").versions, api_named("offset_fetch").served) == (range(11), range(11))


def test_the_client_may_send_fewer_versions_than_there_are() -> None:
    assert (api_named("fetch").versions, api_named("fetch").sent) == (range(19), range(13))
    assert api_named("heartbeat").sent == api_named("heartbeat").versions
