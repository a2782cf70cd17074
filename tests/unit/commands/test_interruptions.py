"""SIGINT and SIGTERM during a change, on clusters that tests/integration/cli/test_shell.py does not have."""

from __future__ import annotations

import gc
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.client.connections.guard import SentChanges, changed_items, is_refusal
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, RequestEntityData, RequestEntryData
from kctl.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kctl.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kctl.protocol.apis.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kctl.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from kctl.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kctl.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kctl.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kctl.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from kctl.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from kctl.protocol.apis.update_features import UpdateFeaturesRequest
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.client.fake_cluster import DROP, FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """Three brokers; orders-0 is on the first two."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with MovingCluster() as started:
        started.place("orders", [0, 1])
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def interrupt(cluster: FakeCluster, request_class: type, number: signal.Signals, *, is_answered: bool = False) -> None:
    """Sends the signal to the main thread when the first such request arrives; none has a response unless
    `is_answered`.
    """
    is_first = threading.Lock()

    def reply(_: object) -> bytes | None:
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        if is_first.acquire(blocking=False):
            signal.pthread_kill(main_thread, number)
        return None if is_answered else b""

    cluster.intercept(request_class, reply)


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), SIGNALS)
@pytest.mark.parametrize(
    ("line", "request_class"),
    [
        ("reassign execute orders:0=1,2", AlterPartitionReassignmentsRequest),
        ("reassign execute orders:0=1,2 --throttle 1k", IncrementalAlterConfigsRequest),
        ("reassign cancel orders:0", AlterPartitionReassignmentsRequest),
        ("topics set-replication orders --factor 3 --yes", AlterPartitionReassignmentsRequest),
        ("cluster remove-broker 0 --yes", AlterPartitionReassignmentsRequest),
        ("cluster add-broker 2 --yes", AlterPartitionReassignmentsRequest),
        ("cluster maintenance on 0 --yes", AlterPartitionReassignmentsRequest),
        ("tokens renew 7nBcGm7JQuqhCbVdNdrUyA", RenewDelegationTokenRequest),
        ("tokens expire 7nBcGm7JQuqhCbVdNdrUyA --yes", ExpireDelegationTokenRequest),
        ("features upgrade --feature f=2 --yes", UpdateFeaturesRequest),
        ("features downgrade --feature f=1 --yes", UpdateFeaturesRequest),
    ],
)
def test_interrupted_change_shows_what_was_done(
    kctl: Kctl,
    cluster: MovingCluster,
    line: str,
    request_class: type,
    number: signal.Signals,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prepare(kctl, cluster, line)
    interrupt(cluster, request_class, number)
    ran = kctl(line)
    assert ran.status == status, ran.err
    assert "Traceback" not in ran.err
    (report,) = [text for text in ran.err.splitlines() if "interrupted: " in text]
    name = request_class.__name__.removesuffix("Request")
    assert re.search(rf"the outcome of \d {name} requests?( \(.+\))? is unknown", report), report
    gc.collect()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_signal_waits_until_throttles_are_restored(
    kctl: Kctl, cluster: MovingCluster, number: signal.Signals, status: int
) -> None:
    prepare(kctl, cluster, "reassign verify")
    interrupt(cluster, IncrementalAlterConfigsRequest, number, is_answered=True)
    ran = kctl("reassign verify")
    assert ran.status == status, ran.err
    assert not any(cluster.overrides.values())
    assert "there are responses to" in ran.err


def prepare(kctl: Kctl, cluster: MovingCluster, line: str) -> None:
    """A move to cancel or to verify, a share to move, or a feature to update."""
    if line.startswith("cluster add-broker"):
        cluster.place("events", *[[0, 1]] * 4)
    if line.startswith(("reassign cancel", "reassign verify")):
        assert kctl("reassign execute orders:0=1,2 --throttle 1k").status == 0
    if line == "reassign verify":
        cluster.arrive()
    if line.startswith("tokens"):
        token = DescribedDelegationToken(
            principal_type="User",
            principal_name="alice",
            issue_timestamp=0,
            expiry_timestamp=1,
            max_timestamp=2,
            token_id=line.split()[2],
            hmac=b"hmac",
            renewers=[],
        )
        cluster.intercept(
            DescribeDelegationTokenRequest, lambda _: DescribeDelegationTokenResponse(error_code=0, tokens=[token])
        )
    if line.startswith("features"):
        level = 1 if "upgrade" in line else 2
        cluster.intercept(ApiVersionsRequest, with_feature(cluster, level))


def with_feature(cluster: MovingCluster, level: int) -> Callable[[object], ApiVersionsResponse]:
    """The usual response of brokers with the feature f of this level."""

    def reply(request: object) -> ApiVersionsResponse:
        response: ApiVersionsResponse = cluster._api_versions(0, request)
        response.supported_features = [SupportedFeatureKey(name="f", min_version=0, max_version=3)]
        response.finalized_features = [FinalizedFeatureKey(name="f", min_version_level=level, max_version_level=level)]
        response.finalized_features_epoch = 1
        return response

    return reply


def test_interruption_at_the_question_changes_nothing(
    kctl: Kctl, cluster: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kctl.output.console.Console.confirm", interrupted)
    ran = kctl("topics delete orders")
    assert ran.status == 130
    assert ran.err.splitlines()[-1] == ("kctl: warning: interrupted: no request that changes something was sent")


def test_report_has_the_requests_with_and_without_a_response() -> None:
    changes = SentChanges()
    for _ in range(2):
        with changes.sending("CreateAcls request"):
            pass
    with pytest.raises(ApiError), changes.sending("DeleteAcls request"):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    assert str(changes) == "there are responses to 2 CreateAcls requests, and no other change was requested"
    with pytest.raises(KeyboardInterrupt), changes.sending("DeleteAcls request"):
        raise KeyboardInterrupt
    assert str(changes) == (
        "there are responses to 2 CreateAcls requests, the outcome of 1 DeleteAcls request is unknown, and no other"
        " change was requested"
    )


def test_report_leaves_out_what_was_refused() -> None:
    changes = SentChanges()
    with changes.sending("CreateTopics request", ["orders"]) as sending:
        sending.is_refused = True
    assert not changes.has_any


def token_response(code: ErrorCode) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type="User",
        principal_name="alice",
        issue_timestamp_ms=0,
        expiry_timestamp_ms=0,
        max_timestamp_ms=0,
        token_id="",
        hmac=b"",
    )


def deleted(*codes: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="billing", error_code=code) for code in codes])


@pytest.mark.parametrize(
    ("response", "is_refused"),
    [
        (token_response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED), True),
        (token_response(ErrorCode.NONE), False),
        (deleted(ErrorCode.NON_EMPTY_GROUP), True),
        (deleted(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE), False),
        (deleted(), False),
    ],
)
def test_response_with_nothing_but_errors_is_a_refusal(response: object, is_refused: bool) -> None:
    assert is_refusal(response) is is_refused


def test_refused_command_does_not_report_changes(kctl: Kctl, cluster: MovingCluster) -> None:
    refused = token_response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    cluster.intercept(CreateDelegationTokenRequest, lambda _: refused)
    ran = kctl("tokens create")
    assert ran.status == 1
    assert ran.err.rstrip() == (
        "kctl: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Requests about delegation tokens need a listener with SASL or"
        " client certificates, and no token as credential; give the credentials of a user with --command-config"
    )


def test_report_names_what_the_requests_change() -> None:
    changes = SentChanges()
    for group in ("billing", "audit"):
        with changes.sending("OffsetCommit request", [group]):
            pass
    with changes.sending("CreateTopics request", [f"t{number}" for number in range(12)]):
        pass
    with pytest.raises(KeyboardInterrupt), changes.sending("OffsetCommit request", ["mail"]):
        raise KeyboardInterrupt
    assert str(changes) == (
        "there are responses to 2 OffsetCommit requests (billing, audit) and 1 CreateTopics request (t0, t1, t2, t3,"
        " t4, t5, t6, t7, t8, t9 and 2 more), the outcome of 1 OffsetCommit request (mail) is unknown, and no"
        " other change was requested"
    )


@pytest.mark.parametrize(
    ("request_", "items"),
    [
        (
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name="bob", mechanism=1)],
                upsertions=[
                    ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"", salted_password=b"")
                ],
            ),
            ["bob", "alice"],
        ),
        (
            AlterClientQuotasRequest(
                entries=[
                    RequestEntryData(
                        entity=[
                            RequestEntityData(entity_type="user", entity_name="bob"),
                            RequestEntityData(entity_type="client-id", entity_name=None),
                        ],
                        ops=[],
                    )
                ],
                validate_only=False,
            ),
            ["user bob client-id <default>"],
        ),
        (
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=2,
                        resource_name="orders",
                        principal="User:bob",
                        host="*",
                        operation=3,
                        permission_type=3,
                    )
                ]
            ),
            ["User:bob on orders"],
        ),
        (
            DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=1,
                        resource_name_filter=None,
                        principal_filter="User:bob",
                        host_filter=None,
                        operation=1,
                        permission_type=1,
                    )
                ]
            ),
            ["User:bob on any"],
        ),
        (DeleteTopicsRequest(topic_names=["orders", "events"], timeout_ms=1), ["orders", "events"]),
    ],
)
def test_report_names_users_quotas_acls_and_topics(request_: object, items: list[str]) -> None:
    assert changed_items(request_) == items


SEVERAL_CHANGES = {
    "reassign execute orders:0=1,2 --throttle 1k": 5,
    "topics alter orders events --partitions 4 --set retention.ms=5 --yes": 4,
    "groups reset-offsets a b c --topic orders --to-latest --yes": 3,
    "groups import {offsets} --yes": 3,
    "configs alter broker 0 1 2 --set log.cleaner.threads=2 --yes": 3,
    "loggers set kafka=DEBUG --yes": 3,
}
"""Command line -> the number of its requests that change something."""


class Stopping:
    """Responds to requests that change something up to the n-th, which does not arrive or ends the connection."""

    def __init__(self, number: int, *, drops: bool) -> None:
        self.number = number
        self.drops = drops
        self.seen = 0
        self._lock = threading.Lock()

    def __call__(self, _: object) -> Any:
        with self._lock:
            self.seen += 1
            if self.seen < self.number:
                return None
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            if self.seen == self.number and not self.drops:
                signal.pthread_kill(main_thread, signal.SIGINT)
            return DROP if self.drops else b""


@pytest.mark.long
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize(
    ("line", "number"), [(line, number) for line, last in SEVERAL_CHANGES.items() for number in range(2, last + 1)]
)
def test_every_later_change_that_fails_leaves_a_report(
    kctl: Kctl, cluster: MovingCluster, tmp_path: Path, line: str, number: int, *, drops: bool
) -> None:
    """Of what has a response, and of what has not; a command that shows a row for each item needs no other report."""
    cluster.place("orders", [0, 1], [1, 2])
    cluster.place("events", [1, 0])
    document: dict[str, Any] = {"version": 1, "groups": []}
    for group in ("a", "b", "c"):
        cluster.groups[group] = FakeGroup({TopicPartition("orders", 0): 0})
        document["groups"].append({"group": group, "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]})
    (tmp_path / "offsets").write_text(json.dumps(document))
    cluster.on_change = stopping = Stopping(number, drops=drops)
    ran = kctl(line.replace("{offsets}", str(tmp_path / "offsets")) + " --timeout 5s")
    assert stopping.seen >= number
    assert "Traceback" not in ran.err
    if drops:
        has_rows = "NETWORK_EXCEPTION" in ran.out
        assert ran.status == (1 if has_rows else 4), ran.err
        if has_rows:
            return
    else:
        assert ran.status == 130, ran.err
    word = "not completed: " if drops else "interrupted: "
    (report,) = [text for text in ran.err.splitlines() if word in text]
    assert "is unknown, and no other change was requested" in report
    answered, _, unknown = report.partition("the outcome of ")
    counts = [sum(map(int, re.findall(r"(\d+) \w+ requests? \(", text))) for text in (answered, unknown)]
    assert counts[0] < number, report
    assert sum(counts) >= stopping.seen, report
