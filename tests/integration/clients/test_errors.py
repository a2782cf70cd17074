"""The table of exceptions in docs/client.md: which one is raised, by which call, and what its text names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.client import AsyncConsumer, AsyncProducer, Consumer, ConsumerConfig, Producer, ProducerConfig
from kctl.errors import ApiError, AuthenticationFailed, ClusterUnreachable, ErrorCode, KctlError, UsageError
from tests.peers import probe
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, PLAIN_MODULE, PLAIN_PASSWORD, SaslBroker, sasl_broker

PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{ADMIN}",
    "auto.create.topics.enable": "false",
}
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """A broker on which alice has no permission, with a topic for batches of up to 2,000 bytes."""
    with sasl_broker(tmp_path_factory.mktemp("secured"), properties=PROPERTIES) as broker:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": ADMIN_PASSWORD}
        admin = AdminClient({"bootstrap.servers": broker.sasl, "security.protocol": "SASL_PLAINTEXT", **login})
        topic = NewTopic("orders", 1, 1, config={"max.message.bytes": "2000"})
        admin.create_topics([topic])["orders"].result(TIMEOUT_S)
        yield broker


def login(broker: SaslBroker, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="{user}" password="{password}";',
    }


def refused_send(properties: Mapping[str, str], block_ms: int, **record: Any) -> tuple[str, str, KctlError]:
    """Where AsyncProducer and Producer report the error of a record, and the error, which is the same."""
    config = ProducerConfig.from_properties(properties, max_block_ms=block_ms)
    places: list[str] = []

    async def send() -> None:
        async with AsyncProducer(config) as producer:
            places.append("send")
            future = await producer.send(**record)
            places[0] = "result"
            await future

    def send_and_wait() -> None:
        with Producer(config) as producer:
            places.append("send")
            future = producer.send(**record)
            places[1] = "result"
            future.result(TIMEOUT_S)

    with pytest.raises(KctlError) as of_async:
        asyncio.run(send())
    with pytest.raises(KctlError) as of_blocking:
        send_and_wait()
    assert (type(of_async.value), str(of_async.value)) == (type(of_blocking.value), str(of_blocking.value))
    return places[0], places[1], of_blocking.value


def refused_read(properties: Mapping[str, str], timeout_ms: int, call: str, group: str | None) -> KctlError:
    """The error of AsyncConsumer and of Consumer, which is the same."""
    config = ConsumerConfig.from_properties(properties, group_id=group, request_timeout_ms=timeout_ms)

    async def read() -> None:
        async with AsyncConsumer(config) as consumer:
            if call == "poll":
                await consumer.subscribe(["orders"])
                await consumer.poll(TIMEOUT_S * 1_000)
            else:
                await consumer.partitions_of(call)

    def read_and_wait() -> None:
        with Consumer(config) as consumer:
            if call == "poll":
                consumer.subscribe(["orders"])
                consumer.poll(TIMEOUT_S * 1_000)
            else:
                consumer.partitions_of(call)

    with pytest.raises(KctlError) as of_async:
        asyncio.run(read())
    with pytest.raises(KctlError) as of_blocking:
        read_and_wait()
    assert (type(of_async.value), str(of_async.value)) == (type(of_blocking.value), str(of_blocking.value))
    return of_blocking.value


def code_of(error: KctlError) -> ErrorCode | None:
    return error.code if isinstance(error, ApiError) else None


def test_what_a_producer_raises(secured: SaslBroker) -> None:
    admin, alice = login(secured, ADMIN, ADMIN_PASSWORD), login(secured, "alice", PLAIN_PASSWORD)
    nowhere = {"bootstrap.servers": f"127.0.0.1:{probe.free_port()}"}
    api, result = ApiError, "result"
    for properties, record, in_async, in_blocking, kind, code, text in (
        (admin, {"headers": [("a", "b")]}, "send", "send", UsageError, None, "headers[0]: the value of 'a' must be"),
        (admin, {"value": 7}, "send", "send", UsageError, None, "value: a int needs a serializer"),
        (admin, {"value": b"x" * (1 << 21)}, "send", "send", api, ErrorCode.MESSAGE_TOO_LARGE, "max.request.size"),
        (admin, {"value": b"x" * 3_000}, result, result, api, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes 2000"),
        (
            admin,
            {"topic": "nothing"},
            "send",
            result,
            api,
            ErrorCode.REQUEST_TIMED_OUT,
            "'nothing' is not known within max",
        ),
        (admin, {"partition": 9}, "send", result, api, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition 9"),
        (alice, {}, "send", result, api, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders: Topic authorization failed"),
        (login(secured, "alice", "wrong"), {}, "send", result, AuthenticationFailed, None, "check sasl.jaas.config"),
        (nowhere, {}, "send", result, ClusterUnreachable, None, "max.block.ms=300: cannot reach 127.0.0.1:"),
    ):
        block_ms = 300 if kind is ClusterUnreachable or code is ErrorCode.REQUEST_TIMED_OUT else TIMEOUT_S * 1_000
        *places, error = refused_send(properties, block_ms, **{"topic": "orders", "value": b"x"} | record)
        row = (record if len(str(record)) < 100 else text, places, error)
        assert (places, type(error), code_of(error)) == ([in_async, in_blocking], kind, code), row
        assert text in str(error), row
    named = ProducerConfig.from_properties(alice, transactional_id="loader")
    with pytest.raises(ApiError, match="Transactional id authorization failed: 'loader'"):
        Producer(named).__enter__()


def test_what_a_consumer_raises(secured: SaslBroker) -> None:
    admin, alice = login(secured, ADMIN, ADMIN_PASSWORD), login(secured, "alice", PLAIN_PASSWORD)
    wrong, nowhere = login(secured, "alice", "wrong"), {"bootstrap.servers": f"127.0.0.1:{probe.free_port()}"}
    for properties, call, group, kind, code, text in (
        (admin, "nothing", None, ApiError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing: The broker does not have"),
        (alice, "orders", None, ApiError, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders: Topic authorization failed"),
        (alice, "poll", "billing", ApiError, ErrorCode.GROUP_AUTHORIZATION_FAILED, "failed: 'billing'"),
        (wrong, "orders", None, AuthenticationFailed, None, "check sasl.jaas.config"),
        (wrong, "poll", "billing", AuthenticationFailed, None, "check sasl.jaas.config"),
        (nowhere, "orders", None, ClusterUnreachable, None, "cannot reach 127.0.0.1:"),
    ):
        error = refused_read(properties, 300 if kind is ClusterUnreachable else TIMEOUT_S * 1_000, call, group)
        row = (call, group, error)
        assert (type(error), code_of(error)) == (kind, code), row
        assert text in str(error), row
