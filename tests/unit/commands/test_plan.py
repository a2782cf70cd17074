"""kctl plan and kctl apply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.admin.placement.throttles import RATES
from kctl.commands.frame.exit_status import ExitStatus
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from kctl.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kctl.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tests.rows import for_rows
from tests.unit.admin.moving_cluster import BROKER, MovingCluster
from tests.unit.client.fake_cluster import DROP, FakeCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.quota_cluster import QuotaCluster

Write = Callable[[str], Path]

ORDERS = """
version: 1
managed: {topics: [orders, team-*]}
topics:
  orders:
    partitions: 3
    configs:
      retention.ms: 86400000
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the document and returns its path."""

    def written(text: str) -> Path:
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return path

    return written


def test_plan_shows_drift_with_status_3_and_apply_ends_it(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    path = write(ORDERS)
    ran = kctl(f"plan {path}")
    assert ran.status == ExitStatus.UNMET
    assert ran.rows == [
        ["topic", "orders", "create", "-", "-", "partitions=3 retention.ms=86400000", "planned", "-", "-"]
    ]
    assert kctl(f"apply {path} --yes").rows[0][6] == "created"
    assert (len(cluster.topics["orders"]), cluster.configs["orders"]) == (3, {"retention.ms": "86400000"})
    assert kctl(f"plan {path}").status == ExitStatus.DONE
    before = len(cluster.requested(CreateTopicsRequest))
    again = kctl(f"apply {path} --yes")
    assert (again.status, again.out) == (ExitStatus.DONE, "")
    assert "the cluster has what the document requires" in again.err
    assert len(cluster.requested(CreateTopicsRequest)) == before


def test_apply_alters_partitions_and_properties(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    cluster.create("orders", leaders=2)
    cluster.configs["orders"] = {"retention.ms": "1"}
    path = write(ORDERS)
    changes = [row[2:7] for row in kctl(f"plan {path}").rows]
    assert changes == [
        ["alter", "partitions", "2", "3", "planned"],
        ["alter", "retention.ms", "1", "86400000", "planned"],
    ]
    assert [row[6] for row in kctl(f"apply {path} --yes").rows] == ["altered", "altered"]
    assert (len(cluster.topics["orders"]), cluster.configs["orders"]) == (3, {"retention.ms": "86400000"})


def test_document_that_removes_partitions_changes_nothing(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    cluster.create("orders", leaders=[0, 1, 0, 1])
    path = write(ORDERS)
    ran = kctl(f"plan {path} --format json")
    assert ran.status == ExitStatus.FAILED
    assert [row["message"] for row in ran.document] == ["the topic has 4 partitions, which cannot be removed", None]
    ran = kctl(f"apply {path} --yes")
    assert ran.status == ExitStatus.FAILED
    assert [row[6:8] for row in ran.rows] == [["-", "INVALID_REQUEST"], ["not done", "-"]]
    assert cluster.configs["orders"] == {}


def test_nothing_is_removed_without_the_option_and_outside_the_scope(
    kctl: Kctl, cluster: FakeCluster, write: Write
) -> None:
    for name in ("team-a", "other", "team-b"):
        cluster.create(name)
    cluster.create("orders", leaders=3)
    cluster.configs["orders"] = {"retention.ms": "86400000", "cleanup.policy": "compact"}
    path = write(ORDERS)
    assert [[*row[1:4], row[6]] for row in kctl(f"plan {path}").rows] == [
        ["orders", "reset", "cleanup.policy", "only with --delete"],
        ["team-a", "delete", "-", "only with --delete"],
        ["team-b", "delete", "-", "only with --delete"],
    ]
    ran = kctl(f"apply {path} --yes")
    assert (ran.status, "3 items that the document lacks are kept" in ran.err) == (ExitStatus.DONE, True)
    assert not cluster.requested(DeleteTopicsRequest)
    assert {row[6] for row in kctl(f"plan {path} --delete").rows} == {"planned"}
    assert [row[6] for row in kctl(f"apply {path} --delete --yes").rows] == ["reset", "deleted", "deleted"]
    assert sorted(cluster.topics) == ["orders", "other"]
    assert cluster.configs["orders"] == {"retention.ms": "86400000"}


def test_nothing_is_removed_after_a_failure(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    cluster.create("team-a")
    failed = CreatableTopicResult(name="orders", error_code=ErrorCode.POLICY_VIOLATION, error_message="no")
    cluster.intercept(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[failed]))
    ran = kctl(f"apply {write(ORDERS)} --delete --yes --format json")
    assert ran.status == ExitStatus.FAILED
    assert [(row["name"], row["status"], row["error"]) for row in ran.document] == [
        ("orders", None, "POLICY_VIOLATION"),
        ("team-a", "not done", None),
    ]
    assert "team-a" in cluster.topics


def test_lost_cluster_leaves_rows_of_what_was_and_was_not_done(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    text = "version: 1\ntopics:\n" + "".join(f"  {name}: {{partitions: 1}}\n" for name in "abc")
    requests = 0

    def second_is_lost(request: object) -> object:
        nonlocal requests
        requests += 1
        return DROP if requests > 1 else None

    cluster.intercept(CreateTopicsRequest, second_is_lost)
    ran = kctl(f"apply {write(text)} --yes --format json --timeout 20s")
    assert ran.status == ExitStatus.UNREACHABLE
    assert [row["status"] for row in ran.document] == ["created", "not done", "not done"]
    assert "unknown" in ran.err


def test_apply_requires_consent_and_dry_run_changes_nothing(kctl: Kctl, cluster: FakeCluster, write: Write) -> None:
    path = write(ORDERS)
    assert kctl(f"apply {path}").status == ExitStatus.REFUSED
    ran = kctl(f"apply {path} --dry-run")
    assert (ran.status, ran.rows[0][6]) == (ExitStatus.DONE, "planned")
    assert not cluster.topics
    assert all(request.validate_only for _, request in cluster.requested(CreateTopicsRequest))


def test_export_is_a_document_without_differences(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("orders", leaders=2)
    cluster.create("__consumer_offsets")
    cluster.configs["orders"] = {"retention.ms": "0777", "cleanup.policy": "compact,delete"}
    exported = kctl("plan --export")
    assert "__consumer_offsets" not in exported.out
    path = tmp_path / "exported.yaml"
    path.write_text(exported.out)
    assert kctl(f"plan {path}").rows == []
    path.write_text(json.dumps(kctl("plan --export --format json").document))
    assert kctl(f"plan {path}").status == ExitStatus.DONE


def test_replication_factor_starts_a_reassignment(kctl: Kctl, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    with MovingCluster() as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        cluster.place("orders", [0], [1])
        path = write("version: 1\ntopics: {orders: {replication_factor: 2}}")
        assert kctl(f"plan {path}").rows[0][2:6] == ["alter", "replication_factor", "1", "2"]
        assert kctl(f"apply {path} --dry-run").status == ExitStatus.DONE
        assert not cluster.requested(AlterPartitionReassignmentsRequest)
        assert kctl(f"apply {path} --yes").rows[0][6] == "reassignment started"
        assert kctl(f"plan {path}").status == ExitStatus.DONE, "an ongoing reassignment counts as done"
        cluster.arrive()
        assert all(len(cluster.replicas[TopicPartition("orders", number)]) == 2 for number in range(2))
        path = write("version: 1\ntopics: {orders: {replication_factor: 4}}")
        ran = kctl(f"apply {path} --yes")
        assert (ran.status, ran.rows[0][7]) == (ExitStatus.FAILED, "INVALID_REPLICATION_FACTOR")


def test_replication_factor_with_a_throttle_until_the_partitions_have_moved(
    kctl: Kctl, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with MovingCluster() as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        cluster.place("orders", [0], [1])
        path = write("version: 1\ntopics: {orders: {replication_factor: 2}}")
        ran = kctl(f"apply {path} --throttle 1k --yes")
        assert (ran.rows[0][6], "kctl reassign verify" in ran.err) == ("reassignment started", True)
        assert cluster.set_for(BROKER, "0", RATES[0]) == "1024"
        cluster.arrive()
        assert kctl("reassign verify").status == ExitStatus.DONE
        assert not any(cluster.overrides.values())


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuotaCluster]:
    with QuotaCluster() as started:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_quotas_are_set_and_removed_within_the_scope(kctl: Kctl, quotas: QuotaCluster, write: Write) -> None:
    quotas.quotas[("user", "team-a"),] = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    quotas.quotas[("user", "other"),] = {"producer_byte_rate": 3.0}
    path = write(
        "version: 1\nmanaged: {quotas: [user=team-*]}\n"
        "quotas:\n- {user: team-a, values: {producer_byte_rate: 1048576}}\n"
        "- {client_id: <default>, values: {request_percentage: 12.5}}\n"
    )
    assert [row[1:7] for row in kctl(f"apply {path} --delete --yes").rows] == [
        ["client-id=<default>", "alter", "request_percentage", "-", "12.5", "altered"],
        ["user=team-a", "alter", "producer_byte_rate", "1", "1048576", "altered"],
        ["user=team-a", "reset", "consumer_byte_rate", "2", "-", "reset"],
    ]
    assert quotas.quotas[("user", "team-a"),] == {"producer_byte_rate": 1048576.0}
    assert quotas.quotas[("user", "other"),] == {"producer_byte_rate": 3.0}
    count = len(quotas.requested(AlterClientQuotasRequest))
    assert kctl(f"apply {path} --delete --yes").status == ExitStatus.DONE
    assert len(quotas.requested(AlterClientQuotasRequest)) == count


def test_secret_that_cannot_be_read_stops_before_anything_is_changed(
    kctl: Kctl, quotas: QuotaCluster, write: Write
) -> None:
    path = write(
        "version: 1\ntopics: {orders: {partitions: 1}}\n"
        'users:\n- {name: alice, mechanism: SCRAM-SHA-256, password: "${env:NO_SUCH_PASSWORD}"}\n'
    )
    ran = kctl(f"apply {path} --yes")
    assert (ran.status, "password of alice: ${env:NO_SUCH_PASSWORD} does not exist" in ran.err) == (2, True)
    assert not quotas.topics


@for_rows(
    "text, reason",
    [
        ("", "the document: expected a mapping"),
        ("version: 2", "expected version: 1"),
        ("version: 1\ntopic: {}", "unknown field 'topic'; known fields: version, managed, topics"),
        ("version: 1\ntopics: {orders: {partitions: 0}}", "partitions of topic 'orders' is a whole number from 1"),
        ("version: 1\ntopics: {orders: {partitions: 1.5}}", "partitions of topic 'orders' is a whole number from 1"),
        ("version: 1\ntopics: {orders: {config: {}}}", "topic 'orders' has an unknown field 'config'"),
        ("version: 1\ntopics: {orders: {configs: {a: [1]}}}", "a of topic 'orders': expected a value"),
        ("version: 1\nacls: [{principal: x}]", "ACL 1: has no resource_type"),
        ("version: 1\nquotas: [{values: {}}]", "quota 1: expected user, client_id or both of them, or ip"),
        ("version: 1\nquotas: [{user: a, values: {x: 1}}]", "values of quota 1 has an unknown field 'x'"),
        ("version: 1\nquotas: [{user: a, values: {producer_byte_rate: -1}}]", "expected a number greater than 0"),
        ("version: 1\nusers: [{name: a, mechanism: PLAIN}]", "user 1: mechanism must be one of SCRAM-SHA-256"),
        (
            "version: 1\nusers: [{name: a, mechanism: SCRAM-SHA-256, password: geheim}]",
            "user 1: password must be a reference",
        ),
        ("topics:\n  - a\n b", "line 3, column 2: did not find expected key"),
        ("version: 1\nmanaged: {topics: orders}", "topics: expected a list"),
    ],
)
def test_invalid_document_is_refused_with_the_item(
    kctl: Kctl, cluster: FakeCluster, write: Write, text: str, reason: str
) -> None:
    path = write(text)
    for line in (f"plan {path}", f"apply {path} --yes"):
        ran = kctl(line)
        assert ran.status == ExitStatus.USAGE
        assert ran.err.startswith(f"kctl: {path}")
        assert reason in ran.err
        assert "geheim" not in ran.err
    assert not cluster.requests


def test_plan_needs_a_file_or_export(kctl: Kctl) -> None:
    assert kctl("plan").status == kctl("plan x --export").status == ExitStatus.USAGE
    assert "cannot read /no/such" in kctl("plan /no/such").err


def test_a_user_whose_credential_cannot_be_read_is_named(kctl: Kctl, cluster: FakeCluster) -> None:
    result = DescribeUserScramCredentialsResult(
        user="alice",
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        error_message="The stored SCRAM credential cannot be read",
        credential_infos=[],
    )
    response = DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=[result])
    cluster.intercept(DescribeUserScramCredentialsRequest, lambda _: response)
    ran = kctl("plan --export")
    assert ran.status == ExitStatus.FAILED
    assert "user 'alice': The stored SCRAM credential cannot be read" in ran.err
