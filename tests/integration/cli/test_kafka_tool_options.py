"""The options of Kafka's tools in docs/reference are those that the tools of three versions print with --help.

KCTL_WRITE_GOLDEN=1 writes the file; then docs/reference/kafka-tools.tsv needs a row for each new option.
"""

from __future__ import annotations

import os
import re

import pytest

from docs.reference.generate import KAFKA_OPTIONS, KafkaOption, kafka_options
from tests.peers import apache_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.matrix]  # They change with new versions of the tools only.

VERSIONS = {
    "2.8": apache_kafka.OLDEST_JUDGE,
    "3.9": apache_kafka.LAST_WITH_ZOOKEEPER,
    "4.3": apache_kafka.TOOLS_FOR_NEWEST,
}
ADMIN, SCALA, TOOLS = "kafka.admin.", "kafka.tools.", "org.apache.kafka.tools."
TOPIC, GROUP, REASSIGN = "TopicCommand", "consumer.group.ConsumerGroupCommand", "reassign.ReassignPartitionsCommand"
CLASSES = {
    "kafka-acls": (f"{ADMIN}AclCommand", f"{ADMIN}AclCommand", f"{TOOLS}AclCommand"),
    "kafka-broker-api-versions": (*[f"{ADMIN}BrokerApiVersionsCommand"] * 2, f"{TOOLS}BrokerApiVersionsCommand"),
    "kafka-client-metrics": ("", *[f"{TOOLS}ClientMetricsCommand"] * 2),
    "kafka-cluster": (f"{SCALA}ClusterTool", *[f"{TOOLS}ClusterTool"] * 2),
    "kafka-configs": (f"{ADMIN}ConfigCommand",) * 3,
    "kafka-console-consumer": (f"{SCALA}ConsoleConsumer", *[f"{TOOLS}consumer.ConsoleConsumer"] * 2),
    "kafka-console-producer": (*[f"{SCALA}ConsoleProducer"] * 2, f"{TOOLS}ConsoleProducer"),
    "kafka-console-share-consumer": ("", "", f"{TOOLS}consumer.ConsoleShareConsumer"),
    "kafka-consumer-groups": (f"{ADMIN}ConsumerGroupCommand", *[f"{TOOLS}{GROUP}"] * 2),
    "kafka-consumer-perf-test": (f"{SCALA}ConsumerPerformance", *[f"{TOOLS}ConsumerPerformance"] * 2),
    "kafka-delegation-tokens": (f"{ADMIN}DelegationTokenCommand", *[f"{TOOLS}DelegationTokenCommand"] * 2),
    "kafka-delete-records": (f"{ADMIN}DeleteRecordsCommand", *[f"{TOOLS}DeleteRecordsCommand"] * 2),
    "kafka-dump-log": (*[f"{SCALA}DumpLogSegments"] * 2, f"{TOOLS}DumpLogSegments"),
    "kafka-e2e-latency": ("", "", f"{TOOLS}EndToEndLatency"),
    "kafka-features": (f"{ADMIN}FeatureCommand", *[f"{TOOLS}FeatureCommand"] * 2),
    "kafka-get-offsets": (f"{SCALA}GetOffsetShell", *[f"{TOOLS}GetOffsetShell"] * 2),
    "kafka-groups": ("", "", f"{TOOLS}GroupsCommand"),
    "kafka-jmx": (f"{SCALA}JmxTool", *[f"{TOOLS}JmxTool"] * 2),
    "kafka-leader-election": (f"{ADMIN}LeaderElectionCommand", *[f"{TOOLS}LeaderElectionCommand"] * 2),
    "kafka-log-dirs": (f"{ADMIN}LogDirsCommand", *[f"{TOOLS}LogDirsCommand"] * 2),
    "kafka-metadata-quorum": ("", *[f"{TOOLS}MetadataQuorumCommand"] * 2),
    "kafka-mirror-maker": (*[f"{SCALA}MirrorMaker"] * 2, ""),
    "kafka-preferred-replica-election": (f"{ADMIN}PreferredReplicaLeaderElectionCommand", "", ""),
    "kafka-producer-perf-test": (f"{TOOLS}ProducerPerformance",) * 3,
    "kafka-reassign-partitions": (f"{ADMIN}ReassignPartitionsCommand", *[f"{TOOLS}{REASSIGN}"] * 2),
    "kafka-replica-verification": (f"{SCALA}ReplicaVerificationTool", *[f"{TOOLS}ReplicaVerificationTool"] * 2),
    "kafka-server-start": ("kafka.Kafka",) * 3,
    "kafka-share-consumer-perf-test": ("", "", f"{TOOLS}ShareConsumerPerformance"),
    "kafka-share-groups": ("", "", f"{TOOLS}consumer.group.ShareGroupCommand"),
    "kafka-storage": (f"{SCALA}StorageTool",) * 3,
    "kafka-streams-application-reset": (f"{SCALA}StreamsResetter", *[f"{TOOLS}StreamsResetter"] * 2),
    "kafka-streams-groups": ("", "", f"{TOOLS}streams.StreamsGroupCommand"),
    "kafka-topics": (f"{ADMIN}{TOPIC}", *[f"{TOOLS}{TOPIC}"] * 2),
    "kafka-transactions": ("", *[f"{TOOLS}TransactionsCommand"] * 2),
    "kafka-verifiable-consumer": (f"{TOOLS}VerifiableConsumer",) * 3,
    "kafka-verifiable-producer": (f"{TOOLS}VerifiableProducer",) * 3,
    "zookeeper-security-migration": (*[f"{ADMIN}ZkSecurityMigrator"] * 2, ""),
}
"""The main class of each tool in each version, empty where the version does not have it."""
_FEATURES = "describe upgrade downgrade disable"
_QUORUM = "describe add-controller remove-controller"
_STORAGE = "info format random-uuid"
_TRANSACTIONS = "abort describe describe-producers find-hanging list"
_METADATA = "version-mapping feature-dependencies"
SUBCOMMANDS = {
    "kafka-cluster": ("cluster-id unregister", "cluster-id unregister", "cluster-id unregister list-endpoints"),
    "kafka-features": ("", _FEATURES, f"{_FEATURES} {_METADATA}"),
    "kafka-metadata-quorum": ("", _QUORUM, _QUORUM),
    "kafka-storage": (_STORAGE, _STORAGE, f"{_STORAGE} {_METADATA}"),
    "kafka-transactions": ("", _TRANSACTIONS, f"{_TRANSACTIONS} forceTerminateTransaction"),
}
"""The subcommands of each tool in each version."""
WITHOUT_HELP = {("2.8", "kafka-get-offsets")}
"""These print their options when they are called without any."""
_OPTION = re.compile(r"^ {0,2}(?:-\S+(?: [A-Z_-]+)?, )*(--[a-z][\w.-]*)", re.MULTILINE)
_SUBCOMMANDS = re.compile(r"^  \{([\w,-]+)\}$|^    ([a-zA-Z-]+)(?:  .*)?$", re.MULTILINE)
"""argparse4j lists the names in braces, or each with its help below `commands:`."""


def test_options_of_kafkas_tools_are_as_stored() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for column, version in enumerate(VERSIONS):
        for (tool, subcommand), text in _helps(column, version).items():
            if not subcommand and tool in SUBCOMMANDS:
                named = {name for names in _SUBCOMMANDS.findall(text) for name in ",".join(names).split(",") if name}
                assert named == set(SUBCOMMANDS[tool][column].split()), version
            for option in {"", *_OPTION.findall(text)}:
                found.setdefault((f"{tool} {subcommand}".strip(), option), []).append(version)
    options = [KafkaOption(tool, option, tuple(versions)) for (tool, option), versions in sorted(found.items())]
    if os.environ.get("KCTL_WRITE_GOLDEN"):
        rows = [
            ("tool", "option", "versions"),
            *((option.tool, option.option, " ".join(option.versions)) for option in options),
        ]
        KAFKA_OPTIONS.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert options == kafka_options()


def _helps(column: int, version: str) -> dict[tuple[str, str], str]:
    """The help of each tool of a version and of each of its subcommands."""
    found: dict[tuple[str, str], str] = {}
    # Since 4 some are in the jar of the broker, which does not have the others.
    run_by = {"kafka.": apache_kafka.run_broker_tools, TOOLS: apache_kafka.run_java_tools}
    for prefix, run in run_by.items():
        lines = {
            (tool, subcommand): [classes[column], *filter(None, [subcommand]), "--help"]
            for tool, classes in CLASSES.items()
            for subcommand in ("", *SUBCOMMANDS.get(tool, ("",) * 3)[column].split())
            if classes[column].startswith(prefix)
        }
        for old_version, tool in WITHOUT_HELP:
            if version == old_version and (tool, "") in lines:
                lines[tool, ""].pop()
        outputs = run(VERSIONS[version], list(lines.values()))
        found |= {name: out + err for name, (out, err) in zip(lines, outputs, strict=True)}
    return found
