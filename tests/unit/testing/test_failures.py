"""Which requests fail, and the responses with errors of all APIs and versions; kctl/server/process/test_control."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.protocol import codec, registry
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.definition import Role, definition_of
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.world import real_world
from kctl.server.process.test_control import traffic as traffic_module
from kctl.server.process.test_control.error_responses import (
    ERROR_MESSAGE,
    blank,
    check_failure,
    error_response,
    name_topics,
    topics_of,
    without_topic,
)
from kctl.server.process.test_control.failures import FAILURES_MAX, KIT_CLIENT_ID, Failure, Failures
from kctl.server.process.test_control.possible_errors import OF_FETCH_SESSIONS, possible_errors
from kctl.server.process.test_control.requests import ControlledRequests, Slowness
from kctl.server.process.test_control.traffic import RECORDED_MAX, Traffic
from kctl.server.requests.context import Peer
from tests.rows import for_rows

TOPIC = "orders"
CODE = ErrorCode.UNKNOWN_SERVER_ERROR
PRODUCE = 0


def filled(message: type, version: int) -> Any:
    """A message in which every array has one element."""
    made = blank(message)
    for field in definition_of(message).fields:
        if version not in field.versions:
            continue
        if field.element is not None:
            element = field.element
            value: Any = [filled(element.struct, version) if element.struct is not None else plain(element)]
        elif field.kind == "struct":
            value = filled(field.struct, version) if field.struct is not None else None
        else:
            value = plain(field)
        setattr(made, field.name, value)
    return made


def plain(field: Any) -> Any:
    if field.role is Role.TOPIC:
        return TOPIC
    return {"string": "x", "bytes": b"x", "records": b"", "boolean": True, "uuid": UUID(int=0), "float64": 1.0}.get(
        field.kind, 3
    )


FIRST_BY_ID = {"produce": 13, "fetch": 13, "offset_commit": 10}


def codes(message: Any) -> Iterator[int]:
    for field in definition_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif field.element is not None and field.element.struct is not None:
            for element in value or ():
                yield from codes(element)


def served() -> Iterator[tuple[registry.Api, int]]:
    """The oldest and the newest version of each API: all of them would take seconds to compile."""
    for api in registry.all_apis().values():
        if possible_errors(api.name) and api.served:
            yield from ((api, version) for version in sorted({api.served[0], api.served[-1]}))


@for_rows("api, version", served)
def test_every_response_with_an_error_has_it_for_all_that_was_requested(api: registry.Api, version: int) -> None:
    failed = error_response(api, filled(api.request, version), version, CODE)
    decoded: Any = codec.decode(api.response, codec.encode_bytes(failed, version), version)[0]
    assert CODE in set(codes(decoded))
    assert set(codes(decoded)) <= {CODE, ErrorCode.NONE}


@for_rows("api, version", served)
def test_a_topic_fails_with_its_partitions_where_requests_and_responses_name_topics(
    api: registry.Api, version: int
) -> None:
    try:
        check_failure(api, CODE, TOPIC)
    except ValueError as refusal:
        assert re.search(r"leave out topic=", str(refusal))  # noqa: PT017 - a refusal is the other correct outcome
        return
    request = filled(api.request, version)
    if TOPIC not in topics_of(request):
        is_by_id = version >= FIRST_BY_ID.get(api.name, version + 1)
        of_groups_or_transactions = {"offset_fetch", "metadata", "add_partitions_to_txn"}
        assert version in range(9, 10) or is_by_id or api.name in of_groups_or_transactions
        return
    failed = error_response(api, request, version, CODE, TOPIC)
    decoded: Any = codec.decode(api.response, codec.encode_bytes(failed, version), version)[0]
    assert CODE in set(codes(decoded))
    assert without_topic(request, TOPIC) is None
    assert error_response(api, request, version, CODE, "another") is None


def test_every_possible_error_is_one_of_kafka_and_none_is_success() -> None:
    assert all(ErrorCode.NONE not in possible_errors(api.name) for api in registry.all_apis().values())
    assert possible_errors("fetch") > OF_FETCH_SESSIONS


def failed_response(api: registry.Api, request: Any, version: int, code: ErrorCode = CODE) -> Any:
    return error_response(api, request, version, code)


def test_an_error_has_a_text_where_the_version_has_one() -> None:
    api = registry.api_named("produce")
    messages = [
        failed_response(api, filled(api.request, version), version).responses[0].partition_responses[0].error_message
        for version in (7, 8)
    ]
    assert messages == [None, ERROR_MESSAGE]


def test_fetches_without_partitions_cannot_fail_except_as_a_whole() -> None:
    api = registry.api_named("fetch")
    assert error_response(api, blank(FetchRequest), 11, ErrorCode.NOT_LEADER_OR_FOLLOWER) is None
    response = failed_response(api, blank(FetchRequest), 11, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert error_response(api, blank(FetchRequest), 6, ErrorCode.FETCH_SESSION_ID_NOT_FOUND) is None


# Which requests fail.


def set_fault(failures: Failures, **changes: Any) -> Failure:
    return failures.add(PRODUCE, CODE, draw=changes.pop("draw", random.Random(1).random), **changes)


def test_a_fault_ends_after_its_times_and_the_next_one_counts() -> None:
    failures = Failures()
    first, second = set_fault(failures, times=2), set_fault(failures, times=None)
    chosen = []
    for _ in range(4):
        failure = failures.choose(PRODUCE, "app", ())
        assert failure is not None
        failures.count(failure)
        chosen.append(failure.id)
    assert chosen == [first.id, first.id, second.id, second.id]
    assert failures.find(first.id) is first
    assert (first.failed, first.times, second.failed) == (2, 0, 2)
    failures.remove(second.id)
    assert failures.choose(PRODUCE, "app", ()) is None
    assert len(failures) == 0


@for_rows(
    "changes, client_id, topics, fails",
    [
        ({}, "app", (), True),
        ({}, "broker-0-replica", (), False),
        ({}, KIT_CLIENT_ID, (), False),
        ({"client_id": "broker-0-replica"}, "broker-0-replica", (), True),
        ({"client_id": "app"}, "other", (), False),
        ({"topic": "a"}, "app", ("b", "a"), True),
        ({"topic": "a"}, "app", ("b",), False),
        ({"probability": 0.5, "draw": lambda: 0.49}, "app", (), True),
        ({"probability": 0.5, "draw": lambda: 0.5}, "app", (), False),
    ],
)
def test_a_fault_concerns_its_requests_only(
    changes: dict[str, Any], client_id: str, topics: tuple[str, ...], fails: bool
) -> None:
    failures = Failures()
    set_fault(failures, **changes)
    assert (failures.choose(PRODUCE, client_id, topics) is not None) is fails
    assert failures.choose(PRODUCE + 1, client_id, topics) is None


def test_faults_are_bounded() -> None:
    failures = Failures()
    for _ in range(FAILURES_MAX):
        set_fault(failures)
    with pytest.raises(ValueError, match="clear some"):
        set_fault(failures)


# Requests that pass.


def produce_frame(client_id: str = "app") -> memoryview:
    request = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=b"records")])],
    )
    return memoryview(encode_request_header(RequestHeader(0, 8, 1, client_id)) + codec.encode_bytes(request, 8))


def test_a_broker_that_no_test_controls_handles_requests_itself() -> None:
    def handle(frame: memoryview, peer: Peer) -> list[Chunk]:
        return [bytes(frame)]

    assert real_world().around(handle) is handle


def test_frames_without_faults_are_passed_on_as_they_are() -> None:
    handled: list[memoryview] = []

    def handle(frame: memoryview, peer: Peer) -> list[Chunk]:
        handled.append(frame)
        return [b"response"]

    control = ControlledRequests(lambda: 0)
    set_fault(control.failures, client_id="another")
    frame = produce_frame()
    assert control.around(handle)(frame, Peer("/127.0.0.1", "PLAINTEXT")) == [b"response"]
    assert handled[0] is frame
    (exchange,) = control.traffic.after(0)
    assert (exchange.request, exchange.response) == (bytes(frame), b"response")


def test_requests_that_cannot_be_decoded_are_left_to_the_broker() -> None:
    control = ControlledRequests(lambda: 0)
    assert control.around(lambda frame, _: [b"closes"])(memoryview(b"\0"), Peer("/::1", "PLAINTEXT")) == [b"closes"]
    assert list(control.traffic.after(0)) == []


@for_rows("latency_ms, rate, size, delay_s", [(250, None, 10_000, 0.25), (0, 1_000, 500, 0.5), (100, 1_000, 500, 0.6)])
def test_a_slow_network_delays_by_latency_and_size(
    latency_ms: int, rate: int | None, size: int, delay_s: float
) -> None:
    assert Slowness(latency_ms, rate, None).delay_s(size) == pytest.approx(delay_s)


# The recorded traffic.


def test_only_the_latest_requests_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic()
    for _ in range(RECORDED_MAX + 5):
        traffic.answered(traffic.begin(PRODUCE, "app", 0, memoryview(b"frame")), [b"response"])
    assert [exchange.number for exchange in traffic.after(0)] == list(range(6, RECORDED_MAX + 6))
    monkeypatch.setattr(traffic_module, "RECORDED_BYTES_MAX", 20)
    late = traffic.begin(PRODUCE, "app", 0, memoryview(b"frame"))
    assert [exchange.number for exchange in traffic.after(0)] == [late.number - 1, late.number]
    traffic.answered(late, [b"x" * 30])
    assert list(traffic.after(0)) == []


def test_long_messages_are_recorded_without_their_contents() -> None:
    traffic = Traffic()
    long = memoryview(bytes(traffic_module.MESSAGE_BYTES_MAX + 1))
    exchange = traffic.begin(PRODUCE, "app", 0, long)
    traffic.answered(exchange, [long])
    assert (exchange.request, exchange.response, exchange.is_answered) == (b"", None, True)


TOPIC_ID = UUID(int=5)


@pytest.mark.parametrize(("name", "version"), [("produce", 13), ("produce", 3), ("fetch", 18), ("fetch", 12)])
def test_a_topic_fails_whether_clients_name_it_or_give_its_id(name: str, version: int) -> None:
    api = registry.api_named(name)
    request = filled(api.request, version)
    topics = request.topic_data if name == "produce" else request.topics
    for topic in topics:
        if version >= FIRST_BY_ID[name]:
            topic.topic_id = TOPIC_ID
    received: Any = codec.decode(api.request, codec.encode_bytes(request, version), version)[0]
    name_topics(received, {TOPIC_ID.bytes: TOPIC})
    failed = error_response(api, received, version, CODE, TOPIC)
    assert error_response(api, received, version, CODE, "another") is None
    decoded: Any = codec.decode(api.response, codec.encode_bytes(failed, version), version)[0]
    [topic] = decoded.responses
    if version >= FIRST_BY_ID[name]:
        assert topic.topic_id == TOPIC_ID
    else:
        assert TOPIC in {getattr(topic, "name", None), getattr(topic, "topic", None)}
