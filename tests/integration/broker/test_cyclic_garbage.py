"""No kind of work leaves objects that only the garbage collector frees.

Three brokers and their clients run in this process, with the collector switched off, so that the objects that a
collection finds are what the work has left.  They must not grow with the amount of work.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import MethodType, TracebackType
from urllib.parse import urlsplit

import pytest

from kctl.admin.cluster.opening import open_cluster
from kctl.admin.placement.election import ElectionType, elect_leaders
from kctl.admin.placement.log_dirs import describe_log_dirs, move_replicas
from kctl.admin.placement.reassignment import alter_reassignments, list_reassignments
from kctl.admin.security.acls import create_acls, delete_acls
from kctl.admin.security.users import NewPassword, set_password
from kctl.admin.topics.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType, alter_configs
from kctl.admin.topics.topics import NewTopic, create_topics, delete_topics
from kctl.client import AsyncConsumer, AsyncProducer, Consumer, ConsumerConfig, Producer, ProducerConfig
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, AuthenticationFailed, NoNodeError
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern
from kctl.security.acls import ResourceType as AclResourceType
from kctl.security.scram import Mechanism
from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.network.acceptor import Acceptor
from kctl.server.process.data_folder import DataFolder
from kctl.server.process.host import BrokerHost
from kctl.zookeeper.session import ZooKeeperSession
from tests.peers import probe
from tests.peers.certificates import CertificateAuthority

BROKERS = (0, 1, 2)
USER, PASSWORD = "admin", "secret-4711"
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="{0}" password="{1}" '
    f'user_{USER}="{PASSWORD}";'
)
WAIT_S = 60
REPEATS = 3
_names = count()


class Cluster:
    """Three brokers in this process that use TLS and SASL among themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for number in BROKERS:
            for log_dir in self.log_dirs(number):
                Path(log_dir).mkdir(parents=True)
        self._authority = CertificateAuthority.create(folder)
        self._hosts: list[BrokerHost] = []
        self.zookeeper = ""
        self.bootstrap = ""
        self.metrics_url = ""

    async def start(self) -> None:
        identity = self._authority.issue("broker", hosts=("127.0.0.1",))
        for number in BROKERS:
            properties = {
                "broker.id": str(number),
                "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
                "security.inter.broker.protocol": "SASL_SSL",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS.format(USER, PASSWORD),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(identity.pem),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._authority.pem),
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": f"User:{USER};User:ANONYMOUS",
                "log.dirs": ",".join(self.log_dirs(number)),
                "auto.leader.rebalance.enable": "false",
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.num.partitions": "1",
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                "replica.fetch.backoff.ms": "50",
                "replica.fetch.wait.max.ms": "100",
                "zookeeper.connect": self.zookeeper,
                "metrics.port": str(probe.free_port()),
                "metrics.host": "127.0.0.1",
            }
            host = BrokerHost(DataFolder(self._folder / str(number)), properties, None)
            self._hosts.append(host)
            host.take()
            running = await host.start()
            self.zookeeper = running.zookeeper
            self.bootstrap = self.bootstrap or f"127.0.0.1:{running.port}"
            self.metrics_url = self.metrics_url or running.metrics_url

    async def stop(self) -> None:
        for host in reversed(self._hosts):
            await host.stop()

    def log_dirs(self, broker: int) -> list[str]:
        return [str(self._folder / str(broker) / name) for name in ("logs", "more")]

    def secured(self, password: str) -> ClusterClient:
        """A client of the listener with TLS and SASL."""
        endpoint = self._hosts[0]._broker.advertised[1]
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": JAAS.format(USER, password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.pem),
        }
        return open_cluster(f"127.0.0.1:{endpoint.port}", properties=properties)

    async def create_topic(self, client: ClusterClient, *replicas: int) -> TopicPartition:
        name = f"topic-{next(_names)}"
        (created,) = await create_topics(client, [NewTopic(name, assignment=(replicas,))])
        assert created.outcome.is_done, created
        return TopicPartition(name, 0)

    def drop_connections(self) -> None:
        """Every broker closes the connections of the others and of clients."""
        for host in self._hosts:
            listening = host._broker._listening
            assert isinstance(listening, Acceptor)
            for connection in list(listening._connections):
                connection.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def zookeeper_session(cluster: Cluster) -> AsyncIterator[ZooKeeperSession]:
    session = ZooKeeperSession(cluster.zookeeper)
    await session.start(10_000)
    try:
        yield session
    finally:
        await session.close()


Work = Callable[[Cluster, ClusterClient, int], Awaitable[None]]
KINDS: dict[str, Work] = {}


def kind(work: Work) -> Work:
    KINDS[work.__name__] = work
    return work


@kind
async def client_connections(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    host, port = cluster.bootstrap.split(":")
    for _ in range(repeats):
        connection = await AsyncioTransport().connect(
            host, int(port), client_id="c", connect_timeout_ms=5_000, timeout_ms=5_000
        )
        await connection.close()


@kind
async def refused_connections(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        for _ in range(repeats):
            with contextlib.suppress(ConnectionLost):
                await AsyncioTransport().connect(
                    *bound.getsockname(), client_id="c", connect_timeout_ms=5_000, timeout_ms=5_000
                )


@kind
async def malformed_requests(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    host, port = cluster.bootstrap.split(":")
    loop = asyncio.get_running_loop()
    for sent in (b"\0\0\0\4abcd", b"\xff\xff\xff\xff", b"\0\0\1\0\0\1", struct.pack(">ihhih", 10, 3, 999, 1, -1)):
        for _ in range(repeats):
            with socket.create_connection((host, int(port))) as sock:
                sock.setblocking(False)
                await loop.sock_sendall(sock, sent)
                if len(sent) > 4 and sent[:3] == b"\0\0\1":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    with contextlib.suppress(ConnectionError):
                        await loop.sock_recv(sock, 100)


@kind
async def dropped_connections(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0, 1, 2)
    for _ in range(repeats):
        cluster.drop_connections()
        async with AsyncProducer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
            await (await producer.send(tp.topic, b"x"))


@kind
async def topics(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    for _ in range(repeats):
        tp = await cluster.create_topic(client, 0, 1, 2)
        (outcome,) = await delete_topics(client, [tp.topic])
        assert outcome.is_done


@kind
async def elections(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0, 1)
    for number in range(repeats):
        replicas = (1, 0) if number % 2 == 0 else (0, 1)
        await reassign(client, tp, replicas)
        metadata = await client.metadata([tp.topic])
        (election,) = await elect_leaders(client, ElectionType.PREFERRED, [tp], metadata)
        assert election.is_elected, election


async def reassign(client: ClusterClient, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    outcomes = await alter_reassignments(client, {tp: replicas})
    assert outcomes[tp].is_done, outcomes

    async def is_done() -> bool:
        return tp not in await list_reassignments(client)

    await until(is_done)


@kind
async def reassignments(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0, 1)
    for number in range(repeats):
        await reassign(client, tp, (1, 2) if number % 2 == 0 else (0, 1))


@kind
async def groups(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)
    async with AsyncProducer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
        await (await producer.send(tp.topic, b"x"))
    for _ in range(repeats):
        config = ConsumerConfig(
            bootstrap_servers=cluster.bootstrap, group_id=f"g-{next(_names)}", auto_offset_reset="earliest"
        )
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([tp.topic])

            async def has_records() -> bool:
                return bool(await consumer.poll(100))

            await until(has_records)
            await consumer.commit()


@kind
async def transactions(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0, 1)
    for number in range(repeats):
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap, transactional_id=f"t-{next(_names)}")
        async with AsyncProducer(config) as producer:
            await producer.begin_transaction()
            await producer.send(tp.topic, b"x")
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()


@kind
async def zookeeper_sessions(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    for _ in range(repeats):
        async with zookeeper_session(cluster) as session:
            with contextlib.suppress(NoNodeError):
                await session.get("/missing")


@kind
async def peers_that_come_and_go(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    async def has_brokers(number: int) -> bool:
        return len((await client.metadata([])).brokers) == number

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        listeners = ("PLAINTEXT", "SASL_SSL")
        registration = {
            "version": 4,
            "host": "127.0.0.1",
            "port": bound.getsockname()[1],
            "jmx_port": -1,
            "timestamp": "1",
            "features": {},
            "listener_security_protocol_map": {name: name for name in listeners},
            "endpoints": [f"{name}://127.0.0.1:{bound.getsockname()[1]}" for name in listeners],
        }
        for _ in range(repeats):
            async with zookeeper_session(cluster) as session:
                await session.create("/brokers/ids/9", json.dumps(registration).encode(), ephemeral=True)
                await until(partial(has_brokers, 4))
            await until(partial(has_brokers, 3))


@kind
async def config_changes(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0, 1)
    for number in range(repeats):
        changes = {
            ConfigResource(ResourceType.TOPIC, tp.topic): [
                ConfigChange("retention.ms", ConfigOperation.SET, str(10**8 + number))
            ],
            ConfigResource(ResourceType.BROKER, "1"): [
                ConfigChange("log.cleaner.threads", ConfigOperation.SET, str(1 + number % 2))
            ],
            ConfigResource(ResourceType.TOPIC, "missing"): [ConfigChange("retention.ms", ConfigOperation.SET, "1")],
        }
        await alter_configs(client, changes)


@kind
async def log_moves(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)
    paths = cluster.log_dirs(0)

    async def is_at(path: str) -> bool:
        log_dirs, _ = await describe_log_dirs(client, [0])
        return any(
            log_dir.path == path and any(replica.tp == tp and not replica.is_future for replica in log_dir.replicas)
            for log_dir in log_dirs
        )

    start = 0 if await is_at(paths[0]) else 1
    for number in range(repeats):
        path = paths[(start + 1 + number) % 2]
        await move_replicas(client, {(0, tp): path})
        await until(partial(is_at, path))


@kind
async def delayed_fetches(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)
    async with AsyncProducer(ProducerConfig(bootstrap_servers=cluster.bootstrap)) as producer:
        await (await producer.send(tp.topic, b"x"))
    for number in range(repeats):
        connection = await client.broker(0)
        partition = FetchPartition(partition=0, fetch_offset=number % 3, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=2,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=tp.topic, partitions=[partition])],
        )
        for version in (3, 4, 11):
            await connection.send(request, FetchResponse, version=version)


@kind
async def secured_connections(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    for _ in range(repeats):
        async with cluster.secured(PASSWORD) as secured:
            await secured.metadata([])
        with contextlib.suppress(AuthenticationFailed):
            async with cluster.secured("wrong") as secured:
                await secured.metadata([])
        with socket.create_connection(("127.0.0.1", secured.settings.bootstrap[0][1])) as sock:
            sock.sendall(b"not TLS at all")


@kind
async def refused_work(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)
    for _ in range(repeats):
        for topic, value in ((tp.topic, bytes(2_000_000)), ("missing", b"x")):
            config = ProducerConfig(bootstrap_servers=cluster.bootstrap, max_request_size=4 << 20)
            async with AsyncProducer(config) as producer:
                with contextlib.suppress(ApiError):
                    await (await producer.send(topic, value))
        async with AsyncConsumer(ConsumerConfig(bootstrap_servers=cluster.bootstrap)) as consumer:
            await consumer.assign({tp: 99})
            with contextlib.suppress(ApiError):
                await consumer.poll(100)
        (created,) = await create_topics(client, [NewTopic(tp.topic, assignment=((0,),))])
        assert not created.outcome.is_done


@kind
async def unacknowledged_records(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)
    connection = await client.broker(0)
    for _ in range(repeats):
        data = TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(index=0, records=b"not a batch")])
        await connection.send(ProduceRequest(acks=-1, timeout_ms=10, topic_data=[data]), ProduceResponse)
        with contextlib.suppress(ConnectionLost):
            await connection.post(ProduceRequest(acks=0, timeout_ms=10, topic_data=[data]))
            await connection.send(ProduceRequest(acks=1, timeout_ms=10, topic_data=[data]), ProduceResponse)
        connection = await client.broker(0)


@kind
async def scrapes(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    loop = asyncio.get_running_loop()
    host, port = urlsplit(cluster.metrics_url).netloc.split(":")
    for path in (b"/metrics", b"/healthz", b"/missing"):
        for _ in range(repeats):
            with socket.create_connection((host, int(port))) as sock:
                sock.setblocking(False)
                await loop.sock_sendall(sock, b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\n\r\n")
                while await loop.sock_recv(sock, 1 << 20):
                    pass


@kind
async def controller_changes(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    async with zookeeper_session(cluster) as session:
        for _ in range(repeats):
            _, before = await session.get("/controller_epoch")
            await session.delete("/controller")

            async def is_elected(before: int = before.version) -> bool:
                return (await session.get("/controller_epoch"))[1].version > before

            await until(is_elected)
            await cluster.create_topic(client, 0, 1, 2)


@kind
async def applications_in_threads(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    tp = await cluster.create_topic(client, 0)

    def run() -> None:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap, max_request_size=4 << 20)
        with Producer(config) as producer:
            producer.send(tp.topic, b"x").result()
            with contextlib.suppress(ApiError):
                producer.send(tp.topic, bytes(2_000_000)).result()
        with Consumer(ConsumerConfig(bootstrap_servers=cluster.bootstrap)) as consumer:
            consumer.assign({tp: 99})
            with contextlib.suppress(ApiError):
                consumer.poll(100)

    for _ in range(repeats):
        await asyncio.to_thread(run)


@kind
async def credentials_and_acls(cluster: Cluster, client: ClusterClient, repeats: int) -> None:
    for number in range(repeats):
        new = NewPassword(f"password-{number}", (Mechanism.SCRAM_SHA_256,), 4_096)
        await set_password(client, "alice", new)
        pattern = ResourcePattern(AclResourceType.TOPIC, f"topic-{number}", PatternType.LITERAL)
        binding = AclBinding(pattern, AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW))
        await create_acls(client, [binding])
        await delete_acls(client, [binding])


async def garbage_of(work: Work, cluster: Cluster, repeats: int) -> int:
    """The number of objects that only the collector frees, after so much work."""
    async with open_cluster(cluster.bootstrap) as client:
        await client.metadata([])
        await work(cluster, client, repeats)
    tasks = len(asyncio.all_tasks())
    while tasks != (tasks := len(asyncio.all_tasks())):  # noqa: ASYNC110
        await asyncio.sleep(0)
    return gc.collect()


def described(objects: list[object]) -> str:
    """The most frequent types, and the exceptions and the methods among the objects."""
    names = Counter(type(found).__qualname__ for found in objects)
    names.update(repr(found)[:120] for found in objects if isinstance(found, BaseException | MethodType))
    names.update(f"{found.tb_frame.f_code.co_qualname}" for found in objects if isinstance(found, TracebackType))
    return "\n".join(f"{number:6} {name}" for name, number in names.most_common(40))


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Objects that exist when it is used are not visited: that would take most of the time."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.usefixtures("collector_off")
def test_no_kind_of_work_leaves_cyclic_garbage(tmp_path: Path) -> None:
    """Each broken connection between brokers left 65 KB, and each ZooKeeper session, fetcher and closed client too."""
    growing: list[str] = []

    async def main() -> None:
        cluster = Cluster(tmp_path)
        try:
            await cluster.start()
            for name, work in KINDS.items():
                await garbage_of(work, cluster, 1)
                few = await garbage_of(work, cluster, REPEATS)
                gc.set_debug(gc.DEBUG_SAVEALL)
                many = await garbage_of(work, cluster, 2 * REPEATS)
                gc.set_debug(0)
                if many - few >= REPEATS:
                    growing.append(f"{name}: {few} objects, then {many}:\n{described(gc.garbage)}")
                gc.garbage.clear()
        finally:
            await cluster.stop()

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    assert not growing, "\n".join(growing)
