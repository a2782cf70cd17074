"""Exports from Apache Kafka with SASL over TLS: the last version with ZooKeeper, and one with KRaft."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kctl.cli import main
from tests.integration.spark.peer import TIMEOUT_S, run_engine
from tests.peers import apache_kafka
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.probe import free_port, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.jvm, pytest.mark.timeout(600)]

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USER, SECRET = "exporter", "planted;secret=7402"
PARTITIONS, RECORDS = 3, 900


class Source(NamedTuple):
    """A broker: its listener without security, and the client properties for the other one."""

    plaintext: str
    config: Path


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority.create(folder)
    server = authority.issue("broker", hosts=("localhost",))
    port, secured, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{secured}"
    properties = {
        "listeners": listeners,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": str(server.pkcs12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{MODULE};",
    }
    if request.param == apache_kafka.NEWEST_BROKER:
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
        properties |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "listener.security.protocol.map": protocols,
        }
    config = folder / "client.properties"
    config.write_text(
        f"bootstrap.servers=localhost:{secured}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={MODULE} username="{USER}" password="{SECRET}";\n'
        f"ssl.truststore.location={authority.pem}\n"
    )
    config.chmod(0o600)
    with apache_kafka.apache_kafka(request.param, folder / "kafka", port=port, properties=properties) as plaintext:
        admin = AdminClient({"bootstrap.servers": plaintext})
        credential = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SECRET.encode()
        )
        for future in admin.alter_user_scram_credentials([credential]).values():
            future.result(TIMEOUT_S)
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(TIMEOUT_S)
        has_leaders = lambda: all(  # noqa: E731
            partition.leader >= 0 for partition in admin.list_topics("orders").topics["orders"].partitions.values()
        )
        wait_until(has_leaders, what="leaders of orders", timeout_s=TIMEOUT_S)
        produce(plaintext)
        yield Source(plaintext, config)


def produce(bootstrap: str) -> None:
    """A third of the records in a committed transaction, a third in an aborted one."""
    for ending in ("", "commit", "abort"):
        transaction = {"transactional.id": f"producer-{ending}"} if ending else {}
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", **transaction})
        if ending:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
        for number in range(RECORDS // 3):
            producer.produce("orders", b'{"n": %d}' % number, partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0
        if ending == "commit":
            producer.commit_transaction(TIMEOUT_S)
        elif ending:
            producer.abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize(
    ("source", "engine", "table"),
    [
        pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, "local", "parquet", marks=pytest.mark.matrix),
        pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, "spark", "delta", marks=pytest.mark.matrix),
        pytest.param(apache_kafka.NEWEST_BROKER, "local", "delta", marks=pytest.mark.matrix),
        (apache_kafka.NEWEST_BROKER, "local", "iceberg"),
    ],
    indirect=["source"],
)
def test_an_export_over_tls_with_scram_is_exact(
    source: Source, tmp_path: Path, engine: str, table: str, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--command-config", str(source.config), "--table", table, "--value", "json"]
    words = ["export", "orders", "--to", str(tmp_path / "lake"), "--engine", engine, *options]
    first, second = (run_engine(engine, *words) for _ in range(2))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert f"{RECORDS * 2 // 3} records" in first[2]
    verify = ["tables", "verify", "orders", str(tmp_path / "lake"), "--command-config", str(source.config)]
    assert main([*verify, "--isolation-level", "read_committed", "--format", "json"]) == 0
    compared = json.loads(capfd.readouterr().out)
    assert {row["status"] for row in compared} == {"equal"}
    assert sum(row["table_records"] for row in compared) == RECORDS * 2 // 3
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts += [text.encode() for _, *outputs in (first, second) for text in outputs]
    assert not any(SECRET.encode() in text for text in texts)
