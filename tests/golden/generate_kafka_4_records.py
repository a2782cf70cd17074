"""Writes tests/golden/storage/kafka-4.3.1: internal logs of Apache Kafka 4.3.1 and what its own tool prints of them.

    python -m tests.golden.generate_kafka_4_records

A broker that is its own controller creates topics, configurations, quotas, a SCRAM user and an ACL, and serves a group
of the new consumer protocol and a share group; then it is shut down cleanly.  Records of __remote_log_metadata are
written by Kafka's own classes (WriteRemoteLogMetadata.java), because a broker needs a plugin to write them.
dumped-*.txt is what DumpLogSegments of that version prints of the file beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.peers.apache_kafka import (
    NEWEST_BROKER,
    TOOLS_FOR_NEWEST,
    apache_kafka,
    java_command,
    run_broker_tool,
    run_java_tool,
)

TARGET = Path(__file__).parent / "storage" / "kafka-4.3.1"
PROGRAM = Path(__file__).with_name("WriteRemoteLogMetadata.java")
NAME = "00000000000000000000.log"
SERVER_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "metadata.max.idle.interval.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CONFIG_CHANGES = (
    "--entity-type users --entity-name alice --add-config producer_byte_rate=1024",
    "--entity-type users --entity-name alice --add-config SCRAM-SHA-256=[iterations=4096,password=secret]",
    "--entity-type users --entity-name alice --delete-config producer_byte_rate",
    "--entity-type clients --entity-default --add-config consumer_byte_rate=12345678",
    "--entity-type groups --entity-name sharing --add-config share.auto.offset.reset=earliest",
)
ACL = "--allow-principal User:alice --operation Read --topic orders"
ACL_CHANGES = ("--add", "--remove --force")


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        with apache_kafka(NEWEST_BROKER, Path(folder), properties=SERVER_PROPERTIES) as bootstrap:
            change_metadata(bootstrap)
            consume(bootstrap)
        logs = Path(folder) / "logs"
        keep(logs / "__cluster_metadata-0" / NAME, "cluster-metadata-decoder")
        snapshot = max((logs / "__cluster_metadata-0").glob("*.checkpoint"), key=os.path.getsize)
        keep(snapshot, "cluster-metadata-decoder")
        keep(logs / "bootstrap.checkpoint", "cluster-metadata-decoder")
        keep(logs / "__consumer_offsets-0" / NAME, "offsets-decoder")
        keep(logs / "__share_group_state-0" / NAME, "share-group-state-decoder")
        shutil.copy(logs / "__cluster_metadata-0" / "quorum-state", TARGET / "__cluster_metadata-0")
        remote = Path(folder) / "__remote_log_metadata-0" / NAME
        remote.parent.mkdir()
        check("WriteRemoteLogMetadata", run_java_tool(TOOLS_FOR_NEWEST, str(PROGRAM), [remote]))
        keep(remote, "remote-log-metadata-decoder")


def change_metadata(bootstrap: str) -> None:
    """Records of many types in __cluster_metadata."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("orders", 1, config={"retention.ms": "1000"}), NewTopic("gone", 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    admin.create_partitions([NewPartitions("orders", 2)])["orders"].result()
    admin.delete_topics(["gone"])["gone"].result()
    for words in CONFIG_CHANGES:
        args = ["--bootstrap-server", bootstrap, "--alter", *words.split()]
        check("ConfigCommand", run_broker_tool(NEWEST_BROKER, "kafka.admin.ConfigCommand", args))
    for words in ACL_CHANGES:
        args = ["--bootstrap-server", bootstrap, *words.split(), *ACL.split()]
        check("AclCommand", run_java_tool(TOOLS_FOR_NEWEST, "org.apache.kafka.tools.AclCommand", args))


def consume(bootstrap: str) -> None:
    """Groups of both new types read some records, and the members leave."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(6):
        producer.produce("orders", key=f"k{number}", value=f"v{number}", partition=number % 2)
    producer.commit_transaction()
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "new-protocol", "group.protocol": "consumer",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    consumers = [Consumer({**settings, "group.instance.id": f"instance-{number}"}) for number in range(2)]
    consumers[0].subscribe(["orders"])
    read(consumers[0], 6)
    consumers[1].subscribe(["^ord.*"])
    while not consumers[1].assignment():
        consumers[0].poll(0.1)
        consumers[1].poll(0.1)
    consumers[0].commit(asynchronous=False)
    for consumer in consumers:
        consumer.close()
    args = ["--bootstrap-server", bootstrap, "--topic", "orders", "--group", "sharing", "--max-messages", "6"]
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    check(tool, run_java_tool(TOOLS_FOR_NEWEST, tool, [*args, "--timeout-ms", "60000"]))


def read(consumer: Consumer, count: int) -> None:
    """Waits for so many records."""
    while count:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            count -= 1


def keep(file: Path, decoder: str) -> None:
    """Copies the file and the output of Kafka's tool for it."""
    kept = TARGET / file.parent.name if file.name != "bootstrap.checkpoint" else TARGET
    kept.mkdir(exist_ok=True)
    shutil.copyfile(file, kept / file.name)  # without its mode: snapshots are read-only
    copied = (kept / file.name).relative_to(TARGET)
    command = [f"--{decoder}", "--files", str(copied)]
    printed = subprocess.run(
        java_command(TOOLS_FOR_NEWEST, "org.apache.kafka.tools.DumpLogSegments", command),
        cwd=TARGET, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    (kept / f"dumped-{file.name}.txt").write_text(printed.stdout)


def check(tool: str, ran: subprocess.CompletedProcess[str]) -> None:
    """Raises with the output if a tool of Kafka fails."""
    if ran.returncode:
        raise RuntimeError(f"{tool}: {ran.stdout}{ran.stderr}")


if __name__ == "__main__":
    main()
