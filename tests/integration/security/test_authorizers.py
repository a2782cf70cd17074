"""The authorizer of a broker: a plug-in, super users, and configurations that are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.kctl_broker import OWN_PROGRAM, kctl_broker

PLUG_IN = '''
from kctl.security.acls import ResourceType
from kctl.security.authorization import Decision, Reason


class Authorizer:
    """Denies everything about topics of the name in the broker's property `plugin.secret.topic`."""

    def __init__(self, properties):
        self.secret = properties["plugin.secret.topic"]

    async def start(self):
        print("plug-in started", flush=True)

    async def close(self):
        print("plug-in closed", flush=True)

    def authorize(self, client, operation, kind, name):
        return Decision(not (kind is ResourceType.TOPIC and name == self.secret), Reason.PLUG_IN)

    def authorize_on_any(self, client, operation, kind):
        return Decision(True, Reason.PLUG_IN)

    def acls(self):
        return ()

    async def create(self, bindings):
        return []

    async def delete(self, filters):
        return []
'''
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def kctl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kctl", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def install_plug_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with an entry point, as pip leaves it, for the processes that are started from now on."""
    metadata = folder / "topic_authorizer-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: topic-authorizer\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kctl.authorizers]\ntopic-authorizer = topic_authorizer:Authorizer\n")
    (folder / "topic_authorizer.py").write_text(PLUG_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_plug_in_authorizes_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plug_in(tmp_path / "site", monkeypatch)
    properties = {"authorizer.class.name": "topic-authorizer", "plugin.secret.topic": "hidden"}
    with kctl_broker(tmp_path / "data", properties=properties, run_by=OWN_PROGRAM) as broker:
        server = ("--bootstrap-server", broker.bootstrap)
        for name in ("visible", "hidden"):
            assert kctl("topics", "create", name, "--partitions", "1", *server).returncode == 0
        described = {name: kctl("topics", "describe", name, *server) for name in ("visible", "hidden")}
        assert {name: ran.returncode for name, ran in described.items()} == {"visible": 0, "hidden": 1}
        assert "TOPIC_AUTHORIZATION_FAILED" in described["hidden"].stdout + described["hidden"].stderr
        assert "plug-in started" in broker.log_text
    assert "plug-in closed" in broker.log_text


def test_super_users_of_a_running_broker_are_known_to_acls_check(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS;User:boss"}
    with kctl_broker(tmp_path / "data", properties=properties) as broker:
        reported = {
            user: kctl("acls", "check", f"User:{user}", "alter", "cluster", "--bootstrap-server", broker.bootstrap)
            for user in ("boss", "bob")
        }
    assert {user: ran.returncode for user, ran in reported.items()} == {"boss": 0, "bob": 3}
    assert "super user" in reported["boss"].stdout
    assert "super.users" not in reported["bob"].stderr, "no warning that it is unknown"


OF_ORDERS = (
    "--allow User:bob --operation read --operation describe --topic orders-eu",
    "--deny User:eve --host 10.0.0.7 --operation write --topic orders-eu",
    "--allow User:CN=app,O=Example --operation write --topic orders- --prefix",
    "--allow User:* --operation describe-configs --topic orders-us",
)
OF_OTHERS = (
    "--allow User:bob --operation read --topic *",
    "--allow User:bob --operation read --topic payments",
    "--allow User:bob --operation read --group orders-eu",
    "--allow User:bob --operation describe --cluster",
)


def acls(bootstrap: str) -> list[tuple[str, ...]]:
    ran = kctl("acls", "list", "--format", "json", "--bootstrap-server", bootstrap)
    names = ("principal", "host", "permission", "operation", "resource_type", "resource_name", "pattern_type")
    return sorted(tuple(row[name] for name in names) for row in json.loads(ran.stdout))


@pytest.mark.matrix
def test_topics_are_copied_with_their_acls_and_no_others(tmp_path: Path) -> None:
    """Copies between two authorizers; what the user may not do in one of them is an error before records are copied."""
    properties = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    limited = {**properties, "super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    with (
        kctl_broker(tmp_path / "source", properties=properties) as source,
        kctl_broker(tmp_path / "target", properties=properties) as target,
        kctl_broker(tmp_path / "limited", properties=limited) as denying,
    ):
        at = ("--bootstrap-server", source.bootstrap)
        for name in ("orders-eu", "orders-us", "payments"):
            assert kctl("topics", "create", name, "--partitions", "1", *at).returncode == 0
        for rule in (*OF_ORDERS, *OF_OTHERS):
            added = kctl("acls", "add", *rule.split(), *at)
            assert added.returncode == 0, added.stderr
        of_orders = [
            acl for acl in acls(source.bootstrap) if acl[4].lower() == "topic" and acl[5].startswith("orders-")
        ]
        assert len(of_orders) == 5
        line = ("copy", "orders-*", "--acls", "--format", "json", *at)
        tried = kctl(*line, "--to-cluster", target.bootstrap, "--dry-run")
        assert tried.returncode == 0, tried.stderr
        assert acls(target.bootstrap) == []
        for status in ("created", "present"):
            done = kctl(*line, "--to-cluster", target.bootstrap)
            assert done.returncode == 0, done.stderr
            rows = json.loads(done.stdout)
            assert {acl["status"] for row in rows for acl in row["acls"]} == {status}
            assert acls(target.bootstrap) == of_orders
        renamed = kctl(*line, "--prefix", "dr-")
        assert renamed.returncode == 0, renamed.stderr
        copies = [(*acl[:5], f"dr-{acl[5]}", acl[6]) for acl in of_orders]
        assert [acl for acl in acls(source.bootstrap) if acl[5].startswith("dr-")] == sorted(copies)

        # With this ACL, everyone loses the other permissions on the cluster.
        describe = ["--allow", "User:ANONYMOUS", "--operation", "describe", "--cluster"]
        assert kctl("acls", "add", *describe, "--bootstrap-server", denying.bootstrap).returncode == 0
        refused = kctl(*line, "--to-cluster", denying.bootstrap)
        assert refused.returncode == 1
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr + refused.stdout
        assert kctl("topics", "list", "--bootstrap-server", denying.bootstrap).stdout == ""


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (["authorizer.class.name=nobody.knows.It"], "authorizer.class.name=nobody.knows.It"),
        ([f"authorizer.class.name={ACL_AUTHORIZER}", "super.users=alice"], "super.users=alice"),
    ],
)
def test_a_wrong_authorizer_is_refused_before_zookeeper_is_connected(
    tmp_path: Path, properties: list[str], reason: str
) -> None:
    """Nothing listens on port 1: to connect would end in another error, after a timeout."""
    options = [word for text in properties for word in ("-o", text)]
    ran = kctl("broker", "start", "--data-dir", str(tmp_path / "data"), "--zookeeper", "127.0.0.1:1", *options)
    assert ran.returncode != 0
    assert reason in ran.stderr
    assert "127.0.0.1:1" not in ran.stderr
