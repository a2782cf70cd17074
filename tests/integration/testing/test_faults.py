"""Faults on demand, as three clients see them; one broker for all."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

from kctl.admin import AdminClient as KctlAdminClient
from kctl.admin import AdminConfig, NewTopic
from kctl.errors import ErrorCode
from kctl.server.process.starting import TEST_CONTROL
from kctl.server.process.test_control.possible_errors import possible_errors
from kctl.testing import KafkaBroker, KafkaCluster
from kctl.testing.brokers.broker_process import BrokerProcess
from kctl.testing.brokers.control import ControlFailed, ControlRefused
from tests.integration.testing.applications import APPLICATIONS, TIMEOUT_S, AioKafka, Application, Confluent, Python
from tests.peers.probe import wait_until

OF_CLIENTS = [pytest.param(application, id=application.client_id) for application in APPLICATIONS]
pytestmark = pytest.mark.filterwarnings(
    # kafka-python leaves sockets to the garbage collector when connections fail.
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def shared() -> Iterator[KafkaBroker]:
    with KafkaBroker(control=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: KafkaBroker) -> KafkaBroker:
    """The broker without faults, and without the requests of earlier tests."""
    if not shared.is_running:
        shared.start()
    shared.clear_faults()
    shared.forget_requests()
    return shared


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: KafkaBroker) -> str:
    name = re.sub(r"[^a-z]+", "-", request.node.name)
    create(broker, name)
    return name


def create(broker: BrokerProcess, topic: str, **configs: str) -> None:
    with KctlAdminClient(AdminConfig(bootstrap_servers=broker.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(topic, configs={name.replace("_", "."): text for name, text in configs.items()})])


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def holds(claim: Callable[[], bool]) -> None:
    wait_until(claim, what="what the test waits for", timeout_s=TIMEOUT_S)


def api_name(api: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", api).lower()


def retriable_errors(api: str) -> list[ErrorCode]:
    errors = {error for error in possible_errors(api_name(api)) if error.retriable}
    return sorted(errors - ONLY_OF_NEWER_VERSIONS.get(api, set()))


ONLY_OF_NEWER_VERSIONS = {api: {ErrorCode.CONCURRENT_TRANSACTIONS} for api in ("Produce", "TxnOffsetCommit")}
"""Errors of versions that no client here sends without transaction.version 2: brokers add the partitions (KIP-890)."""
CALLS: dict[str, Callable[[Application, str], object]] = {
    "Produce": lambda application, topic: application.send(topic, b"1"),
    "Fetch": lambda application, topic: application.read(topic, 1),
    "JoinGroup": lambda application, topic: application.read(topic, 1, group=f"{topic}-readers"),
    "TxnOffsetCommit": lambda application, topic: application.commit_in_transaction(topic, f"{topic}-readers", 1),
}


@pytest.mark.parametrize("application_class", OF_CLIENTS)
@pytest.mark.parametrize("api", CALLS)
def test_applications_survive_each_retriable_error(
    broker: KafkaBroker, topic: str, api: str, application_class: type[Application]
) -> None:
    application = application_class(broker.bootstrap_servers)  # type: ignore[call-arg]
    if api in {"Fetch", "JoinGroup"}:
        Confluent(broker.bootstrap_servers).send(topic, b"1")
    faults = {error: broker.fail_next(api, error.name) for error in retriable_errors(api)}
    CALLS[api](application, topic)
    assert {error.name: fault.failed for error, fault in faults.items()} == dict.fromkeys(
        [error.name for error in faults], 1
    )
    sent = broker.wait_for(api, client_id=application.client_id, count=len(faults) + 1)
    assert [recorded.fault for recorded in sent if recorded.fault is not None] == [
        fault.id for fault in faults.values()
    ]
    assert [
        code for recorded in sent if recorded.fault is not None for code in error_codes(recorded.response) if code
    ] == [int(error) for error in faults]
    if api == "Produce":  # What has failed was not appended.
        Confluent(broker.bootstrap_servers).send(topic, b"2")
        assert application.read(topic, 2) == [b"1", b"2"]


def error_codes(message: Any) -> Iterator[int]:
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for element in value:
                if hasattr(element, "__dataclass_fields__"):
                    yield from error_codes(element)


def test_one_topic_of_a_request_fails_and_the_others_are_served(broker: KafkaBroker, topic: str) -> None:
    other = f"{topic}-other"
    create(broker, other)
    faults = [broker.fail_next(api, "NOT_LEADER_OR_FOLLOWER", topic=topic) for api in ("Produce", "Fetch")]

    async def run() -> list[bytes]:
        common = {"bootstrap_servers": broker.bootstrap_servers, "client_id": "both"}
        async with AIOKafkaProducer(**common, acks="all", linger_ms=50) as producer:
            await producer.client.force_metadata_update()
            both = [await producer.send(name, name.encode(), partition=0) for name in (topic, other)]
            await asyncio.gather(*both)
        consumer = AIOKafkaConsumer(**common, auto_offset_reset="earliest")
        consumer.assign([AioTopicPartition(name, 0) for name in (topic, other)])
        async with consumer:
            return sorted([(await consumer.getone()).value for _ in range(2)])

    assert asyncio.run(run()) == [topic.encode(), other.encode()]
    assert [fault.failed for fault in faults] == [1, 1]
    (produced,) = [sent for sent in broker.requests("Produce", client_id="both") if sent.fault is not None]
    assert {data.name for data in produced.request.topic_data} == {topic, other}
    assert {answer.name: answer.partition_responses[0].error_code for answer in produced.response.responses} == {
        topic: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        other: ErrorCode.NONE,
    }
    (fetched,) = [sent for sent in broker.requests("Fetch", client_id="both") if sent.fault is not None]
    assert {answer.topic: answer.partitions[0].error_code for answer in fetched.response.responses} == {
        topic: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        other: ErrorCode.NONE,
    }


def test_a_share_of_requests_fails_in_the_same_order_for_the_same_seed(broker: KafkaBroker, topic: str) -> None:
    def failures() -> list[bool]:
        broker.clear_faults()
        broker.forget_requests()
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None, probability=0.5, seed=7)
        for _ in range(5):
            AioKafka(broker.bootstrap_servers).send(topic, b"x")
        return [sent.fault is not None for sent in broker.requests("Produce")]

    first, second = failures(), failures()
    assert True in first
    assert first == second


def test_a_failed_request_without_acknowledgement_ends_its_connection_as_kafka_does(
    broker: KafkaBroker, topic: str
) -> None:
    fault = broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 0, "log_level": 0})
    producer.produce(topic, b"lost", partition=0)
    producer.flush(TIMEOUT_S)
    holds(lambda: fault.failed == 1)

    def has_produced() -> bool:
        producer.produce(topic, b"kept", partition=0)
        producer.flush(TIMEOUT_S)
        return any(sent.fault is None for sent in broker.requests("Produce"))

    holds(has_produced)
    assert Confluent(broker.bootstrap_servers).read(topic, 1) == [b"kept"]


@pytest.mark.parametrize("application_class", OF_CLIENTS)
def test_applications_reconnect_when_their_connections_are_dropped(
    broker: KafkaBroker, topic: str, application_class: type[Application]
) -> None:
    application = application_class(broker.bootstrap_servers)  # type: ignore[call-arg]
    reading = in_thread(lambda: application.read(topic, 1))
    broker.wait_for("Fetch", client_id=application.client_id)
    assert broker.drop_connections(client_id="another") == 0
    assert broker.drop_connections(client_id=application.client_id) > 0
    broker.forget_requests()
    broker.wait_for("Fetch", client_id=application.client_id)
    Confluent(broker.bootstrap_servers).send(topic, b"1")
    assert reading.result(TIMEOUT_S) == [b"1"]


def test_clients_time_out_on_a_slow_network(broker: KafkaBroker) -> None:
    broker.slow(latency_ms=600_000)
    servers = broker.bootstrap_servers
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=0.3)
    with pytest.raises(PythonError):
        KafkaProducer(bootstrap_servers=servers, bootstrap_timeout_ms=300, request_timeout_ms=300)

    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=300)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        asyncio.run(start())
    broker.slow()
    assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=TIMEOUT_S).brokers


def test_applications_survive_the_end_of_the_zookeeper_session(broker: KafkaBroker, topic: str) -> None:
    def registrations() -> int:
        return broker.output.count("registered broker=0")

    before = registrations()
    broker.expire_session()
    holds(lambda: registrations() > before)
    for application in APPLICATIONS:
        application(broker.bootstrap_servers).send(topic, application.client_id.encode())
    assert Confluent(broker.bootstrap_servers).read(topic, 3) == [each.client_id.encode() for each in APPLICATIONS]


def test_transactions_expire_for_each_client(broker: KafkaBroker, topic: str) -> None:
    servers = broker.bootstrap_servers

    made = Producer({"bootstrap.servers": servers, "transactional.id": "confluent-expires", "log_level": 0})
    made.init_transactions(TIMEOUT_S)
    made.begin_transaction()
    made.produce(topic, b"confluent")
    made.flush(TIMEOUT_S)
    broker.expire_transactions()
    with pytest.raises(KafkaException):
        made.commit_transaction(TIMEOUT_S)

    python = KafkaProducer(bootstrap_servers=servers, transactional_id="python-expires")
    python.init_transactions()
    python.begin_transaction()
    python.send(topic, b"python").get(TIMEOUT_S)
    broker.expire_transactions()
    with pytest.raises(PythonError):
        python.commit_transaction()
    python.close(timeout=1)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aiokafka-expires")
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aiokafka")
        broker.expire_transactions()
        with pytest.raises(AioKafkaError):
            await producer.commit_transaction()
        await producer.stop()

    asyncio.run(run())


def test_the_clock_of_the_broker_makes_retention_and_session_timeouts_due(broker: KafkaBroker) -> None:
    topic = "advanced"
    create(broker, topic, retention_ms="3600000")
    Confluent(broker.bootstrap_servers).send(topic, b"old")
    reading = {
        application.client_id: in_thread(
            partial(application(broker.bootstrap_servers).read, topic, 2, f"group-{application.client_id}")
        )
        for application in APPLICATIONS
    }
    for client_id in reading:
        broker.wait_for("Heartbeat", client_id=client_id)
    broker.forget_requests()
    before_ms = broker.clock.now_ms()
    broker.clock.advance(hours=2)
    assert broker.clock.now_ms() - before_ms >= 2 * 3_600_000
    for client_id in reading:  # Their sessions have expired.
        broker.wait_for("JoinGroup", client_id=client_id)
    Confluent(broker.bootstrap_servers).send(topic, b"new")
    for read in reading.values():
        assert read.result(TIMEOUT_S)[-1] == b"new"
    holds(lambda: Confluent(broker.bootstrap_servers).read(topic, 1) == [b"new"])


@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_records_are_kept_over_a_full_disk(broker: KafkaBroker, topic: str) -> None:
    for application in APPLICATIONS:
        application(broker.bootstrap_servers).send(topic, b"before")
    broker.fill_disk()
    sending = [
        in_thread(partial(application(broker.bootstrap_servers).send, topic, b"after")) for application in APPLICATIONS
    ]
    holds(lambda: not broker.is_running)
    assert "No space left on device" in broker.output
    advanced_ms = broker.clock.advanced_ms
    broker.start()
    for sent in sending:
        sent.result(TIMEOUT_S)
    assert Python(broker.bootstrap_servers).read(topic, 6) == [b"before"] * 3 + [b"after"] * 3
    assert broker.clock.advanced_ms == advanced_ms
    gc.collect()  # Sockets that a client has left open when it could not connect.


def test_what_cannot_be_is_refused_by_name(broker: KafkaBroker) -> None:
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: broker.fail_next("Produce", "ILLEGAL_GENERATION"), "Produce never has the error ILLEGAL_GENERATION"),
        (lambda: broker.fail_next("Produce", "NONE"), "'NONE' is not an error of Kafka"),
        (lambda: broker.fail_next("Consume", "NOT_COORDINATOR"), "'Consume' is not an API of Kafka"),
        (lambda: broker.fail_next("Heartbeat", "NOT_COORDINATOR", topic="a"), "Heartbeat requests name no topic"),
        (lambda: broker.fail_next("LeaderAndIsr", "NOT_COORDINATOR"), "LeaderAndIsr cannot be failed"),
        (lambda: broker.fail_next("Fetch", "FETCH_SESSION_ID_NOT_FOUND", topic="a"), "an error of the session"),
        (lambda: broker.fail_next("Produce", "CORRUPT_MESSAGE", times=0), "times must be 1 or more"),
        (lambda: broker.fail_next("Produce", "CORRUPT_MESSAGE", probability=2), "probability must be above 0"),
        (lambda: broker.slow(latency_ms=-1), "latency_ms must be a whole number from 0"),
        (lambda: broker.ask("stop"), "there is no command 'stop'"),
        (lambda: broker.ask("heal", now=True), "heal has no argument now"),
        (lambda: broker.clock.advance(hours=-1), "cannot be set back"),
    ]
    for refused, text in refusals:
        with pytest.raises(ValueError, match=re.escape(text)):
            refused()
    with pytest.raises(ControlRefused):
        broker.ask("fault", fault=999)
    assert broker.requests() == []


def test_topics_of_production_are_created_on_one_broker(tmp_path: Path) -> None:
    with KafkaBroker(max_replication_factor=1, data_dir=tmp_path) as single:
        client = AdminClient({"bootstrap.servers": single.bootstrap_servers})
        client.create_topics([ConfluentTopic("orders", 2, 3)])["orders"].result(TIMEOUT_S)
        assert len(client.list_topics("orders", timeout=TIMEOUT_S).topics["orders"].partitions[0].replicas) == 1


def test_a_line_that_is_no_command_ends_only_its_connection(broker: KafkaBroker) -> None:
    with pytest.raises(ControlFailed, match="does not accept so long a command"):
        broker.ask("cut", addresses=["x" * 100_000])
    assert broker.drop_connections(client_id="another") == 0


def test_only_a_broker_whose_test_asked_for_it_has_the_socket(tmp_path: Path) -> None:
    with pytest.raises(ControlFailed, match="needs control=True"):
        BrokerProcess(tmp_path).fail_next("Produce", "CORRUPT_MESSAGE")
    with pytest.raises(ControlFailed, match="does not run"):
        BrokerProcess(tmp_path, control=True).drop_connections()
    public = tmp_path / "public"
    public.mkdir(mode=0o755)
    for options, path, reason in (
        ([], tmp_path / "control", "start them with --stop-with"),
        (["--stop-with", str(os.getpid())], public / "control", "its folder must be private"),
        (["--stop-with", str(os.getpid())], tmp_path / "absent" / "control", "No such file or directory"),
    ):
        command = [sys.executable, "-m", "kctl", "broker", "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
        ended = subprocess.run(
            [*command, *options],
            env={**os.environ, TEST_CONTROL: str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert (ended.returncode, reason in ended.stderr) == (1, True), ended.stderr
        assert not (tmp_path / "data").exists()


SHORT_TIMES = {"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "2000"}


@pytest.mark.matrix  # It starts three brokers.
def test_brokers_are_cut_off_from_each_other_and_from_zookeeper() -> None:
    with KafkaCluster(control=True, properties=SHORT_TIMES) as cluster:
        with KctlAdminClient(AdminConfig(bootstrap_servers=cluster.bootstrap_servers)) as admin:
            admin.create_topics([NewTopic("a", replication_factor=3, configs={"min.insync.replicas": "2"})]).require()
        leader = cluster.leader("a", 0)
        cut_off, other = (broker for broker in range(3) if broker != leader)
        with KctlAdminClient(AdminConfig(bootstrap_servers=cluster.brokers[other].bootstrap_servers)) as admin:

            def partition() -> Any:
                return admin.describe_topics(["a"]).require()["a"].partitions[0]

            cluster.partition(leader, cut_off)
            producer = Producer({"bootstrap.servers": cluster.brokers[leader].bootstrap_servers, "log_level": 0})
            producer.produce("a", b"1")
            producer.poll(0)
            holds(lambda: set(partition().isr) == {leader, other})
            assert producer.flush(TIMEOUT_S) == 0
            cluster.heal()
            holds(lambda: len(partition().isr) == 3)
            cluster.partition(leader, "zookeeper")
            holds(lambda: partition().leader not in {leader, -1})
            cluster.heal()
            holds(lambda: len(partition().isr) == 3)
