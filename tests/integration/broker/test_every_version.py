"""Every version of every advertised API gets a response that decodes in that version."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.model import ZERO_UUID
from kctl.protocol import registry
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kctl.protocol.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kctl.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kctl.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from kctl.protocol.apis.api_versions import ApiVersionsRequest
from kctl.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from kctl.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from kctl.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kctl.protocol.apis.describe_acls import DescribeAclsRequest
from kctl.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from kctl.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kctl.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kctl.protocol.apis.elect_leaders import ElectLeadersRequest
from kctl.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.apis.list_config_resources import ListConfigResourcesRequest
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kctl.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.offset_delete import OffsetDeleteRequest
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kctl.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.apis.sync_group import SyncGroupRequest
from kctl.protocol.apis.update_features import UpdateFeaturesRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.kctl_broker import KctlBroker
from tests.rows import for_rows

TOPIC = "every-version"
FIRST_DELETION_BY_ID = 6
NOT_FOR_CLIENTS = {
    "leader_and_isr",
    "update_metadata",
    "stop_replica",
    "controlled_shutdown",
    "write_txn_markers",
    "alter_partition",
}
"""Inter-broker APIs, whose forged requests would change the state of the broker."""
BATCH = build_batch([Record(0, 1_600_000_000_000, b"k", b"v"), Record(1, 1_600_000_000_001, None, None)])

ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

Make = Callable[[int], Any]


def _fetch_partition(partition: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)


def _delete_topics(version: int) -> DeleteTopicsRequest:
    if version >= FIRST_DELETION_BY_ID:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name="nowhere", topic_id=ZERO_UUID)], timeout_ms=1000)
    return DeleteTopicsRequest(topic_names=["nowhere"], timeout_ms=1000)


REQUESTS: dict[str, Make] = {
    "produce": lambda v: ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=BATCH)])],
    ),
    "fetch": lambda v: FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic=TOPIC, partitions=[_fetch_partition(p) for p in (0, 99)])],
    ),
    "list_offsets": lambda v: ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=TOPIC,
                partitions=[
                    ListOffsetsPartition(partition_index=p, timestamp=t) for p, t in ((0, -1), (0, 0), (7, -2))
                ][: 1 if v else 3],
            ),
            ListOffsetsTopic(
                name="nowhere", partitions=[ListOffsetsPartition(partition_index=0, timestamp=1_600_000_000_001)]
            ),
        ],
    ),
    "metadata": lambda v: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="a b")]),
    "offset_commit": lambda v: OffsetCommitRequest(
        group_id="every",
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
                ],
            )
        ],
    ),
    "offset_fetch": lambda v: (
        OffsetFetchRequest(group_id="every", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])])
        if v < 8
        else OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="every", topics=None)])
    ),
    "find_coordinator": lambda v: (
        FindCoordinatorRequest(key="every") if v < 4 else FindCoordinatorRequest(coordinator_keys=["every"])
    ),
    "join_group": lambda v: JoinGroupRequest(
        group_id=f"join-{v}",  # its own: a member of the same group would wait for that of the version before
        session_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    "heartbeat": lambda v: HeartbeatRequest(group_id="every", generation_id=1, member_id="nobody"),
    "leave_group": lambda v: (
        LeaveGroupRequest(group_id="every", member_id="nobody")
        if v < 3
        else LeaveGroupRequest(group_id="every", members=[MemberIdentity(member_id="nobody")])
    ),
    "sync_group": lambda v: SyncGroupRequest(group_id="every", generation_id=1, member_id="nobody", assignments=[]),
    "describe_groups": lambda v: DescribeGroupsRequest(groups=["every", "nothing"]),
    "list_groups": lambda v: ListGroupsRequest(),
    "api_versions": lambda v: ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    "create_topics": lambda v: CreateTopicsRequest(
        topics=[
            CreatableTopic(name=f"created-{v}", num_partitions=1, replication_factor=1, assignments=[], configs=[]),
            CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]),
            CreatableTopic(name="bad name", num_partitions=1, replication_factor=1, assignments=[], configs=[]),
        ],
        timeout_ms=10_000,
    ),
    "delete_topics": _delete_topics,
    "delete_records": lambda v: DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]),
            DeleteRecordsTopic(name="nowhere", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]),
        ],
        timeout_ms=1000,
    ),
    "init_producer_id": lambda v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    "offset_for_leader_epoch": lambda v: OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=p, leader_epoch=0)])
            for p in (0, 99)
        ],
    ),
    "describe_configs": lambda v: DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None),
            DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None),
            DescribeConfigsResource(resource_type=2, resource_name="nowhere", configuration_keys=None),
        ],
    ),
    "alter_configs": lambda v: AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2, resource_name=TOPIC, configs=[AlterableConfig(name="retention.ms", value="100000000")]
            )
        ],
        validate_only=False,
    ),
    "incremental_alter_configs": lambda v: IncrementalAlterConfigsRequest(resources=[], validate_only=False),
    "describe_log_dirs": lambda v: DescribeLogDirsRequest(topics=None),
    "alter_replica_log_dirs": lambda v: AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]
    ),
    "create_partitions": lambda v: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="nowhere", count=3, assignments=None)], timeout_ms=1000, validate_only=False
    ),
    "delete_groups": lambda v: DeleteGroupsRequest(groups_names=["nothing"]),
    "elect_leaders": lambda v: ElectLeadersRequest(topic_partitions=None, timeout_ms=1000),
    "alter_partition_reassignments": lambda v: AlterPartitionReassignmentsRequest(topics=[], timeout_ms=1000),
    "list_partition_reassignments": lambda v: ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000),
    "offset_delete": lambda v: OffsetDeleteRequest(group_id="nothing", topics=[]),
    "describe_cluster": lambda v: DescribeClusterRequest(include_cluster_authorized_operations=True),
    "sasl_handshake": lambda v: SaslHandshakeRequest(mechanism="PLAIN"),
    "sasl_authenticate": lambda v: SaslAuthenticateRequest(auth_bytes=b""),
    "describe_acls": lambda v: DescribeAclsRequest(**ANY_ACL),
    "create_acls": lambda v: CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2, resource_name=TOPIC, principal="User:a", host="*", operation=3, permission_type=3
            )
        ]
    ),
    "delete_acls": lambda v: DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_ACL)]),
    "create_delegation_token": lambda v: CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    "renew_delegation_token": lambda v: RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1),
    "expire_delegation_token": lambda v: ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1),
    "describe_delegation_token": lambda v: DescribeDelegationTokenRequest(owners=None),
    "describe_client_quotas": lambda v: DescribeClientQuotasRequest(components=[], strict=False),
    "alter_client_quotas": lambda v: AlterClientQuotasRequest(
        entries=[
            RequestEntryData(
                entity=[RequestEntityData(entity_type="user", entity_name="every")],
                ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
            )
        ],
        validate_only=False,
    ),
    "describe_user_scram_credentials": lambda v: DescribeUserScramCredentialsRequest(users=None),
    "alter_user_scram_credentials": lambda v: AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
    ),
    "update_features": lambda v: UpdateFeaturesRequest(feature_updates=[]),
    "list_config_resources": lambda v: ListConfigResourcesRequest(),
    "describe_topic_partitions": lambda v: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]),
}


def on_connection(broker: KctlBroker, work: Callable[[AsyncioConnection], Awaitable[None]]) -> None:
    async def main() -> None:
        host, _, port = broker.bootstrap.partition(":")
        connection = await AsyncioTransport().connect(
            host, int(port), client_id="test", connect_timeout_ms=30_000, timeout_ms=60_000
        )
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(main())


@pytest.fixture(scope="module")
def topic(broker: KctlBroker) -> str:
    async def create(connection: AsyncioConnection) -> None:
        created = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[created], timeout_ms=10_000)
        await connection.send(request, registry.api_named("create_topics").response)
        produce = registry.api_named("produce")
        await connection.send(REQUESTS["produce"](7), produce.response, version=7)
        find = registry.api_named("find_coordinator")
        reply: Any = await connection.send(REQUESTS["find_coordinator"](0), find.response, version=0)
        while reply.error_code:  # the offsets topic is being created
            reply = await connection.send(REQUESTS["find_coordinator"](0), find.response, version=0)

    on_connection(broker, create)
    return TOPIC


def test_all_advertised_apis_are_tested(broker: KctlBroker) -> None:
    async def look(connection: AsyncioConnection) -> None:
        reply: Any = await connection.send(REQUESTS["api_versions"](3), registry.api_named("api_versions").response)
        apis = registry.all_apis()
        advertised = {apis[entry.api_key].name for entry in reply.api_keys}
        tried_elsewhere = {name for name in advertised if "txn" in name or "transaction" in name or "producers" in name}
        assert advertised - NOT_FOR_CLIENTS - tried_elsewhere == REQUESTS.keys()
        assert advertised == {api.name for api in apis.values() if api.served}
        for entry in reply.api_keys:
            assert range(entry.min_version, entry.max_version + 1) == apis[entry.api_key].served

    on_connection(broker, look)


CASES = [(name, version) for name in REQUESTS for version in registry.api_named(name).served]


@for_rows("name, version", CASES)
def test_every_request_version_gets_a_response(broker: KctlBroker, topic: str, name: str, version: int) -> None:
    api = registry.api_named(name)

    async def call(connection: AsyncioConnection) -> None:
        reply: Any = await connection.send(REQUESTS[name](version), api.response, version=version)
        assert dataclasses.is_dataclass(reply)

    on_connection(broker, call)
