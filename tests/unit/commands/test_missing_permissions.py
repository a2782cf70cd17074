"""What a user without permission reads: the item, the error, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest
from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

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
