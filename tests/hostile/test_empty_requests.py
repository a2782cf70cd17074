"""Requests without content, in every version of every API."""

from __future__ import annotations

from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol import codec
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.definition import Field, definition_of
from kctl.protocol.headers import RequestHeader, encode_request_header
from tests.hostile.fuzzing import advertised_apis, unexpected_lines
from tests.hostile.raw_client import Attacker, connected
from tests.peers.kctl_broker import KctlBroker

_ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "boolean": False, "float64": 0.0}


def empty_message(cls: type, version: int, *, has_nulls: bool, has_elements: bool) -> Any:
    """A message of zeros, with nulls where allowed, or with arrays of one such element."""

    def value(spec: Field) -> Any:
        if has_nulls and version in spec.nullable:
            return None
        if spec.struct is not None:
            return empty_message(spec.struct, version, has_nulls=has_nulls, has_elements=has_elements)
        if spec.element is not None:
            return [value(spec.element)] if has_elements else []
        if spec.kind == "uuid":
            return spec.default if spec.default is not None else None
        return _ZEROS.get(spec.kind, 0)

    fields = [field for field in definition_of(cls).fields if version in field.versions]
    return cls(**{field.name: value(field) for field in fields if field.kind != "uuid"})


def test_requests_without_content_leave_the_broker_serving(broker: KctlBroker) -> None:
    """CVE-2026-83525: FetchSnapshot with an empty array of topics ended the controller's process."""
    before = unexpected_lines(broker.log_text)
    sent = 0
    with connected(broker.bootstrap) as sock:
        apis = advertised_apis(sock)
    for known, version in apis:
        for has_nulls, has_elements in ((False, False), (True, False), (False, True)):
            try:
                body = codec.encode_bytes(
                    empty_message(known.request, version, has_nulls=has_nulls, has_elements=has_elements), version
                )
            except (ValueError, TypeError):
                continue  # A field without a default and without a null.
            header = RequestHeader(known.key, version, 1, "")
            with Attacker(broker.bootstrap) as attacker:
                # Some requests have no response, and some wait: the end of the connection marks the end of all
                # responses.
                attacker.send_and_end(encode_request_header(header) + body)
            sent += 1
    assert sent > 400
    assert unexpected_lines(broker.log_text) == before
    topic = CreatableTopic(name="after-them", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with Attacker(broker.bootstrap) as attacker:
        created = attacker.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse, 4)
    assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE]
