"""`kctl doctor` beside real brokers: ours and Apache Kafka's in states that were made on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kctl.admin.cluster.opening import open_cluster
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tests.integration.cli.conftest import Kctl, ThreeBrokers, command_line
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

TIMEOUT_S = 60


def findings(kctl: Kctl, rule: str, about: str, line: str = "doctor") -> list[dict[str, Any]]:
    """The findings of a rule whose subject or cause has this text; other tests use the same brokers."""
    ran = kctl(f"{line} --format json")
    assert ran.status in {0, 3}, ran.err
    return [
        finding
        for finding in json.loads(ran.out)["findings"]
        if finding["rule"] == rule and about in f"{finding['subject']} {finding['cause']}"
    ]


def test_a_group_that_an_open_transaction_blocks(kctl: Kctl, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(TIMEOUT_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": f"group-{topic}", "enable.auto.commit": False}
    reader = Consumer(settings)
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    try:
        (found,) = findings(kctl, "groups", f"group-{topic} waits at offset 0")
        assert found["severity"] == "error"
        assert "1 unread record" in found["evidence"]
        if kctl("transactions list").status == 0:  # Before Kafka 3.0 nobody says whose the transaction is.
            assert f"tx-{topic}" in found["cause"]
            assert f"transactional.id=tx-{topic}" in found["repair"]
            # The command of the finding shows the transaction.
            assert topic in kctl(found["look"].removeprefix("kctl ")).out
        producer.commit_transaction(TIMEOUT_S)
        wait_until(
            lambda: not findings(kctl, "groups", f"group-{topic} waits"),
            what="the end of the wait",
            timeout_s=TIMEOUT_S,
        )
        (found,) = findings(kctl, "groups", f"group-{topic} has stopped")
        assert found["severity"] == "warning"
    finally:
        reader.close()


def test_a_snapshot_is_diagnosed_later_as_now(kctl: Kctl, topic: str, tmp_path: Path) -> None:
    saved = kctl("doctor --snapshot")
    assert saved.status == 0
    file = tmp_path / "cluster.json"
    file.write_text(saved.out)
    nobody = command_line({"KCTL_BOOTSTRAP_SERVER": "127.0.0.1:1"})
    ran = nobody(f"doctor --from {file} --format json")
    assert ran.status in {0, 3}, ran.err
    assert topic in {topic["name"] for topic in json.loads(saved.out)["topics"]}
    assert json.loads(ran.out)["topics"] == len(json.loads(saved.out)["topics"])
    assert nobody("doctor --from /dev/null").status == 2
    assert nobody("doctor").status == 4
    assert kctl("doctor --silence durable").status == 2
    assert kctl("doctor --fail-on never").status == 2


def test_clients_that_are_throttled_old_or_denied(tmp_path: Path) -> None:
    properties = {
        "metrics.port": str(probe.free_port()),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with kctl_broker(tmp_path / "data", properties=properties) as broker:
        run = command_line({"KCTL_BOOTSTRAP_SERVER": broker.bootstrap})
        assert run("topics create orders").status == 0
        assert run("quotas alter --default-client-id --producer-rate 10KB --yes").status == 0
        ran = run("produce orders --command-property client.id=load", stdin=(b"x" * 1_000 + b"\n") * 150)
        assert ran.status == 0, ran.err

        async def describe() -> None:
            request = DescribeConfigsRequest(resources=[])
            async with open_cluster(broker.bootstrap) as client:
                await client.on_any_broker(lambda link: link.send(request, DescribeConfigsResponse, version=0))

        asyncio.run(describe())
        assert run("topics create secret").status == 0
        assert run("acls add --allow User:alice --operation read --topic secret").status == 0
        denied = run("consume secret --from start --until end")
        grant = "kctl acls add --allow User:ANONYMOUS --operation read --topic secret"
        assert (denied.status, grant in denied.err) == (1, True), denied.err
        document = run("doctor --format json").document
        by_rule = {finding["rule"]: finding for finding in document["findings"]}
        assert "a quota throttles client id 'load': Produce requests wait" in by_rule["quotas"]["cause"]
        assert by_rule["old-clients"]["evidence"][0].startswith("DescribeConfigs version 0: 1 request since")
        assert "User:ANONYMOUS was denied" in by_rule["denials"]["cause"]
        assert by_rule["denials"]["repair"].startswith("kctl acls add --allow User:ANONYMOUS --operation ")
        assert document["unseen"] == []
        seen = run("top --once --interval 200ms --format json").document
        assert "kctl" in {client["software"] for client in seen["clients"]}


@pytest.mark.parametrize("kind", ["kctl", pytest.param(apache_kafka.NEWEST_BROKER, marks=pytest.mark.jvm)])
def test_the_first_finding_is_the_disk_that_is_full(kind: str, tmp_path: Path) -> None:
    """A file system of 48 MB.  A broker of kctl takes its directory offline; Apache Kafka says how full it is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip(f"a file system cannot be mounted: {mount.stderr.decode().strip()}")
    try:
        with contextlib.ExitStack() as stack:
            if kind == "kctl":
                other = tmp_path / "other"
                properties = {"log.dirs": f"{disk},{other}", "offsets.topic.num.partitions": "1"}
                bootstrap = stack.enter_context(kctl_broker(tmp_path / "data", properties=properties)).bootstrap
            else:
                bootstrap = stack.enter_context(apache_kafka.apache_kafka(kind, disk))
            run = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap})
            first_finding_is_the_disk(run, bootstrap, disk, is_offline=kind == "kctl")
    finally:
        subprocess.run(["umount", disk], check=True)


def first_finding_is_the_disk(run: Kctl, bootstrap: str, disk: Path, *, is_offline: bool) -> None:
    """Fills the disk, for kctl's broker until a record has no space, and diagnoses."""
    assert run("topics create filling --partitions 2").status == 0
    free = shutil.disk_usage(disk).free
    (disk / "other-program").write_bytes(bytes(free - (1 << 19 if is_offline else 2 << 20)))
    if is_offline:
        producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000})
        for number in range(4):
            producer.produce("filling", b"x" * 900_000, partition=number % 2)
        producer.flush(TIMEOUT_S)
    first = run("doctor --format json").document["findings"][0]
    assert first["rule"] == "disks", first
    assert ("is offline" if is_offline else "of 48") in first["cause"], first


@pytest.mark.parametrize("three_brokers", ["kctl"], indirect=True)
def test_brokers_that_are_well(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    name = f"well-{three_brokers.kind}"
    assert operate(f"topics create {name} --partitions 3 --replication-factor 1").status == 0
    ran = operate("doctor --format json --fail-on critical")
    assert ran.status == 0, ran.out
    document = json.loads(ran.out)
    assert document["brokers"] == 3
    assert {part["what"] for part in document["unseen"]} <= {"versions of clients"}  # They have no metrics.
    assert findings(operate, "durability", "with one replica")
