"""Frames encoded by hand from the protocol's specification, byte by byte."""

from __future__ import annotations

import pytest

from kctl.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.apis.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.codec import decode, encode_bytes
from kctl.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)


def octets(*lines: str) -> bytes:
    """The bytes of lines of hex; text after a `;` is a comment."""
    return bytes.fromhex("".join(line.partition(";")[0] for line in lines))


REQUESTS = [
    pytest.param(
        # The first request of a Java client of 2.4 or later.
        octets(
            "0012 0003        ; ApiVersions, version 3",
            "0000002a         ; correlation id",
            "0008 70726f6475636572 ; client id 'producer', its length in 2 bytes though the header is flexible",
            "00               ; no tagged fields in the header",
            "12 6170616368652d6b61666b612d6a617661 ; 'apache-kafka-java', length 17 + 1",
            "06 322e382e31    ; '2.8.1'",
            "00               ; no tagged fields in the body",
        ),
        RequestHeader(18, 3, 42, "producer"),
        ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="2.8.1"),
        id="ApiVersions-3",
    ),
    pytest.param(
        octets(
            "0007 0000 00000005 ; ControlledShutdown version 0: the one header without a client id",
            "00000002         ; broker",
        ),
        RequestHeader(7, 0, 5),
        ControlledShutdownRequest(broker_id=2),
        id="ControlledShutdown-0",
    ),
    pytest.param(
        octets("0003 0001 00000001 ffff ; no client id", "ffffffff ; all topics"),
        RequestHeader(3, 1, 1),
        MetadataRequest(topics=None),
        id="Metadata-1",
    ),
    pytest.param(
        octets(
            "0000 0007 00000003 0001 63 ; Produce version 7, client id 'c'",
            "ffff             ; no transactional id",
            "ffff 00007530    ; acks -1, timeout 30 s",
            "00000001 0001 74 ; one topic, 't'",
            "00000001 00000000 ; one partition, 0",
            "00000004 deadbeef ; its records",
        ),
        RequestHeader(0, 7, 3, "c"),
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"\xde\xad\xbe\xef")])
            ],
        ),
        id="Produce-7",
    ),
]


@pytest.mark.parametrize(("frame", "header", "body"), REQUESTS)
def test_request_frames_are_read_and_written_alike(frame: bytes, header: RequestHeader, body: object) -> None:
    read, offset = decode_request_header(frame)
    assert read == header
    assert decode(type(body), frame, header.api_version, offset) == (body, len(frame))
    assert encode_request_header(header) + encode_bytes(body, header.api_version) == frame


def test_api_versions_response_to_a_version_that_is_too_new_has_the_format_of_version_0() -> None:
    """KIP-511: error 35 and the versions that the broker supports."""
    frame = octets("0000002a", "0023", "00000001 0012 0000 0003")
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)], throttle_time_ms=7
    )
    assert encode_response_header(18, 9, 42) + encode_bytes(response, 0) == frame


def test_api_versions_response_is_flexible_under_a_plain_header() -> None:
    frame = octets(
        "0000002a         ; correlation id, no tagged fields",
        "0000             ; no error",
        "02 0000 0000 0009 00 ; one API: Produce, 0 to 9",
        "00000000         ; throttle time",
        "01               ; one tagged field",
        "01 08 000000000000000c ; tag 1, 8 bytes: epoch of the features",
    )
    correlation_id, offset = decode_response_header(frame, 18, 3)
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[ApiVersion(api_key=0, min_version=0, max_version=9)],
        finalized_features_epoch=12,
    )
    assert correlation_id == 42
    assert decode(ApiVersionsResponse, frame, 3, offset) == (response, len(frame))
    assert encode_response_header(18, 3, 42) + encode_bytes(response, 3) == frame


FETCH_RESPONSE_12 = (
    "00000009 00      ; correlation id, no tagged fields",
    "00000000 0000 00000000 ; throttle time, error, session",
    "02 02 74         ; one topic, 't'",
    "02               ; one partition",
    "00000003 0000    ; partition, error",
    "0000000000000064 0000000000000064 0000000000000000 ; high watermark, last stable offset, log start offset",
    "00               ; aborted transactions: null",
    "ffffffff         ; no preferred replica",
    "03 abcd          ; records",
)


def test_diverging_epoch_of_a_fetch_response_is_tagged() -> None:
    """KIP-595: followers truncate to it."""
    frame = octets(
        *FETCH_RESPONSE_12,
        "01 00 0d 00000005 0000000000000032 00 ; tag 0, 13 bytes: epoch 5 ends at 50",
        "00 00            ; no tagged fields in topic and body",
    )
    partition = PartitionData(
        partition_index=3,
        error_code=0,
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch=5, end_offset=50),
        aborted_transactions=None,
        records=b"\xab\xcd",
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    assert decode_response_header(frame, 1, 12) == (9, 5)
    assert decode(FetchResponse, frame, 12, 5) == (response, len(frame))
    assert encode_response_header(1, 12, 9) + encode_bytes(response, 12) == frame


def test_unknown_tagged_fields_are_skipped() -> None:
    frame = octets(
        *FETCH_RESPONSE_12,
        "02 09 02 ffff    ; tag 9, 2 bytes",
        "   8101 00       ; tag 129, empty",
        "00               ; topic",
        "01 00 03 010203  ; tag 0 of the body, which is unknown to us, 3 bytes",
    )
    response, end = decode(FetchResponse, frame, 12, 5)
    assert end == len(frame)
    assert response.responses[0].partitions[0].diverging_epoch is None
