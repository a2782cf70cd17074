"""kctl plan and kctl apply against kctl's and Apache Kafka's brokers."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.conftest import Kctl, command_line
from tests.peers.kctl_broker import kctl_broker

TOPICS = """
version: 1
managed: {topics: [planned-*]}
topics:
  planned-orders: {partitions: 3, replication_factor: 1, configs: {retention.ms: 86400000, cleanup.policy: compact}}
  planned-audit: {partitions: 1}
"""
SECURITY = """
version: 1
managed: {acls: ["User:*"], quotas: ["user=*"], users: ["*"]}
acls:
- {resource_type: Topic, resource_name: orders, principal: "User:alice", operation: Read, permission: Allow}
- {resource_type: Group, resource_name: team-, pattern_type: Prefixed, principal: "User:bob", operation: All,
   permission: Deny}
quotas:
- {user: alice, values: {producer_byte_rate: 1048576}}
- {user: <default>, client_id: app, values: {request_percentage: 12.5}}
users:
- {name: alice, mechanism: SCRAM-SHA-512, iterations: 4096, password: "${env:PASSWORD_OF_ALICE}"}
"""


def test_topics_are_applied_exported_and_deleted(kctl: Kctl, tmp_path: Path) -> None:
    document, exported = tmp_path / "topics.yaml", tmp_path / "exported.yaml"
    document.write_text(TOPICS)
    assert kctl(f"plan {document}").status == 3
    applied = kctl(f"apply {document} --yes")
    assert {row[6] for row in applied.rows} == {"created"}, applied
    again = kctl(f"plan {document}")
    assert (again.status, again.out) == (0, "")
    exported.write_text(kctl("plan --export").out)
    assert "planned-orders:" in exported.read_text()
    document.write_text(TOPICS.replace("partitions: 3", "partitions: 4").replace("compact", "delete"))
    changed = kctl(f"apply {document} --yes")
    assert {row[3]: row[6] for row in changed.rows} == {"partitions": "altered", "cleanup.policy": "altered"}
    assert kctl(f"plan {document}").status == 0
    document.write_text("version: 1\nmanaged: {topics: [planned-*]}\n")
    assert {row[6] for row in kctl(f"apply {document} --delete --yes").rows} == {"deleted"}


def test_acls_quotas_and_users_make_the_round_trip(tmp_path: Path) -> None:
    properties = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with kctl_broker(tmp_path / "data", properties=properties) as broker:
        kctl = command_line({"KCTL_BOOTSTRAP_SERVER": broker.bootstrap, "PASSWORD_OF_ALICE": "geheim"})
        document, exported = tmp_path / "security.yaml", tmp_path / "exported.yaml"
        document.write_text(SECURITY)
        applied = kctl(f"apply {document} --yes")
        assert (applied.status, {row[6] for row in applied.rows}) == (0, {"created", "altered"})
        assert "geheim" not in applied.out + applied.err
        assert (kctl(f"plan {document}").status, kctl(f"apply {document} --yes").out) == (0, "")
        exported.write_text(kctl("plan --export").out)
        assert kctl(f"plan {exported}").status == 0
        document.write_text('version: 1\nmanaged: {acls: ["User:*"], quotas: ["user=*"], users: ["*"]}\n')
        removed = kctl(f"apply {document} --delete --yes")
        assert (removed.status, len(removed.rows)) == (0, 5)
        assert kctl(f"plan {document}").status == 0
        exported.write_text(kctl("plan --export").out)
        assert kctl("acls list").rows == []
