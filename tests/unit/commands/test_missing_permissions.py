"""What a user without permission reads: the item, the error, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kctl.commands.frame.denials import OPERATIONS, grant_line, principal_of
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.root import all_commands
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kctl.security.acls import SUPPORTED_OPERATIONS, ResourceType
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
DENIED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@pytest.fixture
def denying(cluster: FakeCluster) -> None:
    def users(request: Any) -> Any:
        assert request.users is not None  # Apache Kafka never responds to that without permission.
        return DescribeUserScramCredentialsResponse(error_code=DENIED, error_message=None, results=[])

    def acls(_: Any) -> Any:
        message = "Request Request(processor=5, connectionId=127.0.0.1:9092, envelope=None) is not authorized."
        return DescribeAclsResponse(error_code=DENIED, error_message=message, resources=[])

    cluster.intercept(DescribeUserScramCredentialsRequest, users)
    cluster.intercept(DescribeAclsRequest, acls)


@pytest.mark.usefixtures("denying")
@pytest.mark.parametrize(
    ("line", "item"),
    [
        ("users create zed --mechanism SCRAM-SHA-256 --password-file {password}", "zed\t"),
        ("users delete zed --yes", "zed\t"),
        ("users list zed", "zed\t"),
        ("users list", ""),
        ("acls list", ""),
    ],
)
def test_refused_commands_name_the_item_the_error_and_the_remedy(
    kctl: Kctl, tmp_path: Path, line: str, item: str
) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    ran = kctl(line.format(password=password))
    assert ran.status == ExitStatus.FAILED
    assert ran.out.startswith(item)
    text = ran.out if item else ran.err
    assert "CLUSTER_AUTHORIZATION_FAILED" in text
    assert "Cluster authorization failed; the user lacks a permission for the cluster" in text
    assert text.count("an administrator grants it with 'kctl acls add'") == 1


def test_group_that_cannot_be_backed_up_is_not_deleted(kctl: Kctl, cluster: FakeCluster) -> None:
    """The others are; without a backup, the broker decides."""
    cluster.create("orders")
    for name in ("open", "secret"):
        cluster.groups[name] = FakeGroup({TopicPartition("orders", 0): 0})

    def describe(request: Any) -> Any:
        response = cluster._describe_groups(0, request)
        for group in response.groups:
            if group.group_id == "secret":
                group.error_code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return response

    cluster.intercept(DescribeGroupsRequest, describe)
    ran = kctl("groups delete secret open --yes")
    assert ran.status == ExitStatus.FAILED
    assert [row[:3] for row in ran.rows] == [["open", "deleted", "-"], ["secret", "-", "GROUP_AUTHORIZATION_FAILED"]]
    assert "an administrator grants it with 'kctl acls add'" in ran.out
    assert "group 'secret' is not deleted: its offsets cannot be backed up" in ran.err
    ((_, request),) = cluster.requested(DeleteGroupsRequest)
    assert request.groups_names == ["open"]
    assert kctl("groups delete secret --no-backup --yes").status == ExitStatus.DONE


@pytest.mark.parametrize("line", ["transactions find-hanging", "topics list", "groups list"])
def test_empty_list_says_that_brokers_omit_what_the_user_may_not_describe(
    kctl: Kctl, cluster: FakeCluster, line: str
) -> None:
    response = DescribeClusterResponse(
        error_code=0, cluster_id="fake", controller_id=0, brokers=[], cluster_authorized_operations=0
    )
    cluster.intercept(DescribeClusterRequest, lambda _: response)
    ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.DONE, "")
    assert "a broker omits" in ran.err


def test_line_that_grants_what_was_denied_is_shown(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 0})

    def deletion(request: Any) -> Any:
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        responses = [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in request.topics
        ]
        return DeleteTopicsResponse(responses=responses)

    def description(request: Any) -> Any:
        response = cluster._describe_groups(0, request)
        for group in response.groups:
            group.error_code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return response

    cluster.intercept(DeleteTopicsRequest, deletion)
    cluster.intercept(DescribeGroupsRequest, description)
    line = "to allow it, an administrator runs: kctl acls add --allow"
    ran = kctl("topics delete orders --yes")
    assert ran.status == ExitStatus.FAILED
    assert f"{line} User:ANONYMOUS --operation delete --topic orders\n" in ran.err
    assert f"{line} User:ANONYMOUS --operation describe --group billing\n" in kctl("groups describe billing").err


@pytest.mark.usefixtures("denying")
def test_line_names_the_operation_on_the_cluster(kctl: Kctl, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    line = "kctl acls add --allow User:ANONYMOUS --operation"
    assert f"{line} describe --cluster\n" in kctl("acls list").err
    made = kctl(f"users create zed --mechanism SCRAM-SHA-256 --password-file {password}")
    assert f"{line} alter --cluster\n" in made.err


GRANTS = {
    "a verb without an entry needs describe": (("topics describe", TOPIC, ["a"]), "describe --topic a"),
    "several topics": (("consume", TOPIC, ["a", "b", "a"]), "read --topic a --topic b"),
    "no name is known": (("produce", TOPIC, []), "write --topic NAME"),
    "idempotent producer": (("produce", CLUSTER, ["a"]), "idempotentwrite --cluster"),
    "two operations": (("reassign execute", CLUSTER, []), "alter --operation describe --cluster"),
    "a name with a space": (("groups delete", GROUP, ["a b"]), "delete --group 'a b'"),
}


@for_rows("name", GRANTS)
def test_line_of_each_command_has_its_operation(name: str) -> None:
    (command, code, names), expected = GRANTS[name]
    assert grant_line(command, code, names, "User:bob") == f"kctl acls add --allow User:bob --operation {expected}"


def test_operations_belong_to_commands_and_resources_that_exist() -> None:
    commands = {noun if noun == verb else f"{noun} {verb}" for noun, verbs in all_commands().items() for verb in verbs}
    kinds = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP, CLUSTER: ResourceType.CLUSTER}
    for command, by_code in OPERATIONS.items():
        assert command in commands
        for code, operations in by_code.items():
            supported = SUPPORTED_OPERATIONS[kinds.get(code, ResourceType.TRANSACTIONAL_ID)]
            assert {operation.label.lower() for operation in supported} >= set(operations), command


def test_principal_is_that_of_the_properties() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{module} username="alice" password="secret";'
    assert principal_of({}) == "User:ANONYMOUS"
    assert principal_of({"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas}) == "User:alice"
    assert principal_of({"security.protocol": "SASL_SSL", "sasl.jaas.config": "nonsense"}) is None
    assert principal_of({"security.protocol": "SSL"}) is None
