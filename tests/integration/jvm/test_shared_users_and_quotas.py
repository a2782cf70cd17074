"""One cluster of kctl and Apache Kafka 2.8.2 with TLS, SCRAM and ACLs: what one broker is told, the other enforces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.client.connections.security import client_security
from kctl.errors import AuthenticationFailed, ErrorCode
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kctl.protocol.apis.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kctl.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers import probe
from tests.peers.apache_kafka import OLDEST_JUDGE, apache_kafka, run_broker_tool
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
APACHE, OURS = "apache", "ours"
BOTH = (APACHE, OURS)
IDS = {APACHE: 0, OURS: 1}
OTHER = {APACHE: OURS, OURS: APACHE}
ADMIN, USER, SECRET = "admin", "bob", "a-secret"
TOPIC = "orders"
"""With one partition for each broker, of its id."""
TIMEOUT_S = 60


@dataclass(frozen=True)
class Cluster:
    """The addresses of both brokers, and what clients need."""

    sasl: dict[str, str]
    zookeeper: str
    authority: CertificateAuthority

    def properties(self, user: str, mechanism: str) -> dict[str, str]:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} username="{user}" password="{SECRET}";',
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.authority.pkcs12),
            "ssl.truststore.password": PASSWORD,
        }

    @contextlib.asynccontextmanager
    async def connected(self, who: str, user: str, mechanism: str = "PLAIN") -> AsyncIterator[AsyncioConnection]:
        host, port = probe.address(self.sasl[who])
        connection = await AsyncioTransport().connect(
            host,
            port,
            client_id=user,
            connect_timeout_ms=30_000,
            timeout_ms=60_000,
            security=client_security(self.properties(user, mechanism)),
        )
        try:
            yield connection
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("shared-users")
    authority = CertificateAuthority.create(folder)
    store = authority.issue("broker")
    plain = {who: probe.free_port() for who in BOTH}
    sasl = {who: f"localhost:{probe.free_port()}" for who in BOTH}
    jaas = f'{PLAIN} username="{ADMIN}" password="{SECRET}" user_{ADMIN}="{SECRET}" user_{USER}="{SECRET}";'
    properties = {
        who: {
            "broker.id": str(IDS[who]),
            "listeners": f"PLAINTEXT://127.0.0.1:{plain[who]},SASL_SSL://{sasl[who]}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store.pkcs12),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(authority.pkcs12),
            "ssl.truststore.password": PASSWORD,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN}",
            "allow.everyone.if.no.acl.found": "false",
        }
        for who in BOTH
    }
    # The probes of the tests connect without SASL; they need no permission for Metadata of no topic.
    with (
        embedded_zookeeper(folder / "zookeeper") as zookeeper,
        kctl_broker(folder / OURS / "data", zookeeper=zookeeper.connect, port=plain[OURS], properties=properties[OURS]),
        apache_kafka(
            OLDEST_JUDGE,
            folder / APACHE,
            zookeeper=zookeeper.connect,
            port=plain[APACHE],
            properties=properties[APACHE],
        ),
    ):
        started = Cluster(sasl, zookeeper.connect, authority)
        asyncio.run(create_topic(started))
        yield started


async def create_topic(cluster: Cluster) -> None:
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=broker_id, broker_ids=[broker_id]) for broker_id in IDS.values()
        ],
        configs=[],
    )
    codes: set[int] = set()
    for who in BOTH:  # only the controller creates it
        async with cluster.connected(who, ADMIN) as admin:
            created = await admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
            codes |= {topic.error_code for topic in created.topics}
    assert 0 in codes
    for who in BOTH:
        async with cluster.connected(who, ADMIN) as admin:
            await until(lambda admin=admin: has_leaders(admin), "the topic")


async def has_leaders(connection: AsyncioConnection) -> bool:
    response = await connection.send(MetadataRequest(topics=None), MetadataResponse, version=7)
    return any(sorted(partition.leader_id for partition in topic.partitions) == [0, 1] for topic in response.topics)


async def until(is_true, what: str) -> None:  # type: ignore[no-untyped-def]  # an async function without arguments
    async with asyncio.timeout(TIMEOUT_S):
        while not await is_true():  # noqa: ASYNC110 - polled
            await asyncio.sleep(0.05)


async def produce(connection: AsyncioConnection, who: str, size: int = 100) -> tuple[int, int]:
    """Appends a batch to the partition of the broker; returns the error code and the throttle time."""
    batch = memoryview(bytearray(build_batch([Record(0, 1_600_000_000_000, None, bytes(size), ())])))
    topics = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=IDS[who], records=batch)])]
    response = await connection.send(
        ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), ProduceResponse, version=7
    )
    return response.responses[0].partition_responses[0].error_code, response.throttle_time_ms


async def until_both_answer(cluster: Cluster, expected: int) -> None:
    for who in BOTH:
        async with cluster.connected(who, USER) as user:

            async def answers(who: str = who, user: AsyncioConnection = user) -> bool:
                return (await produce(user, who))[0] == expected

            await until(answers, f"{expected} from {who}")


@pytest.mark.parametrize("told", BOTH)
def test_acls_that_one_broker_is_told_decide_at_both(cluster: Cluster, told: str) -> None:
    acl = AclCreation(
        resource_type=2, resource_name=TOPIC, principal=f"User:{USER}", host="*", operation=4, permission_type=3
    )
    chosen = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=TOPIC,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    async def main() -> None:
        await until_both_answer(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with cluster.connected(told, ADMIN) as admin:
            created = await admin.send(CreateAclsRequest(creations=[acl]), CreateAclsResponse, version=1)
            assert [result.error_code for result in created.results] == [0]
        await until_both_answer(cluster, ErrorCode.NONE)
        async with cluster.connected(OTHER[told], ADMIN) as admin:
            deleted = await admin.send(DeleteAclsRequest(filters=[chosen]), DeleteAclsResponse, version=1)
            assert [len(result.matching_acls) for result in deleted.filter_results] == [1]
        await until_both_answer(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    asyncio.run(main())


async def alter_quota(cluster: Cluster, told: str, value: float | None) -> None:
    operation = OpData(key="producer_byte_rate", value=value or 0.0, remove=value is None)
    entity = [RequestEntityData(entity_type="user", entity_name=ADMIN)]
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=[operation])], validate_only=False)
    async with cluster.connected(told, ADMIN) as admin:
        response = await admin.send(request, AlterClientQuotasResponse, version=0)
    assert [entry.error_code for entry in response.entries] == [0]


@pytest.mark.parametrize("told", BOTH)
def test_quotas_that_one_broker_is_told_throttle_at_both(cluster: Cluster, told: str) -> None:
    async def until_throttled(expected: bool) -> None:
        for who in BOTH:
            async with cluster.connected(who, ADMIN) as admin:

                async def is_so(who: str = who, admin: AsyncioConnection = admin) -> bool:
                    code, throttle_ms = await produce(admin, who, 20_000)
                    assert code == 0
                    return (throttle_ms > 0) is expected

                await until(is_so, f"throttling {expected} at {who}")

    async def main() -> None:
        await until_throttled(False)
        await alter_quota(cluster, told, 1_000_000)  # a response waits at most for what a few requests exceed it by
        await alter_quota(cluster, told, 1_500)
        await until_throttled(True)
        await alter_quota(cluster, OTHER[told], None)
        await until_throttled(False)

    asyncio.run(main())


async def may_log_in(cluster: Cluster, who: str, user: str, mechanism: str) -> bool:
    try:
        async with cluster.connected(who, user, mechanism):
            return True
    except AuthenticationFailed:
        return False


async def until_login(cluster: Cluster, user: str, mechanism: str, expected: bool) -> None:
    for who in BOTH:

        async def is_so(who: str = who) -> bool:
            return await may_log_in(cluster, who, user, mechanism) is expected

        await until(is_so, f"login {expected} at {who}")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("how", ["kctl", "kctl-zookeeper", "kafka-configs", "kafka-configs-zookeeper"])
def test_users_may_log_in_at_both(cluster: Cluster, tmp_path: Path, how: str, mechanism: str) -> None:
    user = f"user-of-{how}"
    config = tmp_path / "admin.properties"
    config.write_text(
        "".join(f"{name}={value}\n" for name, value in cluster.properties(ADMIN, "PLAIN").items())
        + f"bootstrap.servers={','.join(cluster.sasl.values())}\n"
    )
    where = (
        ["--zookeeper", cluster.zookeeper]
        if how.endswith("zookeeper")
        else ["--bootstrap-server", ",".join(cluster.sasl.values()), "--command-config", str(config)]
    )
    if how.startswith("kctl"):
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        create = ["users", "create", user, "--mechanism", mechanism, "--password-file", str(secret), *where]
        delete = ["users", "delete", user, "--yes", *where]
    else:
        entity = ["--alter", "--entity-type", "users", "--entity-name", user]
        create = [*where, *entity, "--add-config", f"{mechanism}=[password={SECRET}]"]
        delete = [*where, *entity, "--delete-config", mechanism]

    def change(words: list[str]) -> None:
        if how.startswith("kctl"):
            ran = run_kctl(*words)
            assert ran.returncode == 0, ran.stderr
        else:
            done = run_broker_tool(OLDEST_JUDGE, "kafka.admin.ConfigCommand", words)
            assert done.returncode == 0, done.stdout + done.stderr

    asyncio.run(until_login(cluster, user, mechanism, False))
    change(create)
    asyncio.run(until_login(cluster, user, mechanism, True))
    change(delete)
    asyncio.run(until_login(cluster, user, mechanism, False))
