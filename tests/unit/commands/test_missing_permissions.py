"""What a user without permission reads: the item, the error, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from kctl.commands.exit_status import ExitStatus
from kctl.commands.rows import MISSING_PERMISSION
from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

DENIED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@pytest.fixture
def denying(cluster: FakeCluster) -> None:
    def users(_: Any) -> Any:
        return DescribeUserScramCredentialsResponse(error_code=DENIED, error_message=None, results=[])

    def acls(_: Any) -> Any:
        return DescribeAclsResponse(error_code=DENIED, error_message=None, resources=[])

    cluster.intercept(DescribeUserScramCredentialsRequest, users)
    cluster.intercept(DescribeAclsRequest, acls)


@pytest.mark.usefixtures("denying")
@pytest.mark.parametrize(
    ("line", "item"),
    [
        ("users create zed --mechanism SCRAM-SHA-256 --password-file /dev/null", "zed\t"),
        ("users delete zed --yes", "zed\t"),
        ("users list zed", "zed\t"),
        ("users list", ""),
        ("acls list", ""),
    ],
)
def test_refused_commands_name_the_item_the_error_and_the_remedy(kctl: Kctl, line: str, item: str) -> None:
    ran = kctl(line)
    assert ran.status == ExitStatus.FAILED
    assert ran.out.startswith(item)
    assert "CLUSTER_AUTHORIZATION_FAILED" in (ran.out if item else ran.err)
    assert ran.err.count(MISSING_PERMISSION) == 1
    assert MISSING_PERMISSION not in kctl(f"{line} --quiet").err
