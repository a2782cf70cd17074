"""kctl topics."""

from __future__ import annotations

import re

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.topics.changes import parse_assignment
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.protocol.apis import describe_producers
from kctl.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse
from kctl.protocol.apis.create_topics import CreateTopicsRequest
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.list_groups import ListGroupsRequest
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl


def test_list_is_sorted_and_hides_internal_topics(kctl: Kctl, cluster: FakeCluster) -> None:
    for name in ("payments", "__consumer_offsets", "orders"):
        cluster.create(name, leaders=2)
    assert kctl("topics list").rows == [["orders", "2", "1", "-", "-"], ["payments", "2", "1", "-", "-"]]
    names = [item["topic"] for item in kctl("topics list --internal --format json").document]
    assert names == ["__consumer_offsets", "orders", "payments"]


def test_describe_shows_partitions_and_overrides(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0, 1])
    cluster.configs["orders"] = {"retention.ms": "1000"}
    (item,) = kctl("topics describe orders --format json").document
    assert item["configs"] == {"retention.ms": "1000"}
    assert item["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert [(one["partition"], one["leader"], one["isr"]) for one in item["partitions"]] == [(0, 0, [0]), (1, 1, [1])]
    assert kctl("topics describe orders").rows[1] == ["orders", "1", "1", "0", "1", "1", *["-"] * 5]


def test_describe_as_table_shows_topics_before_partitions(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    topics, partitions = kctl("topics describe --format table").out.split("\n\n")
    assert topics.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR", "TOPIC-ID"]
    assert "LEADER-EPOCH" in partitions
    assert "ERROR" not in partitions


def test_topic_that_does_not_exist_is_a_row_and_status_1(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics describe nope orders --format json")
    assert ran.status == ExitStatus.FAILED
    assert [item["error"] for item in ran.document] == ["UNKNOWN_TOPIC_OR_PARTITION", None]


@pytest.mark.parametrize("line", ["topics describe {}", "groups describe {}", "topics create orders --set a={}"])
def test_text_that_no_request_can_contain_is_refused(kctl: Kctl, cluster: FakeCluster, line: str) -> None:
    ran = kctl(line.format("x" * 40_000))
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert re.fullmatch(r"kctl: \w+Request\.[\w.]+ is longer than 32767 bytes in version \d+\n", ran.err)


def test_partition_without_leader_is_shown_as_such(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[-1])
    (row,) = kctl("topics describe orders").rows
    assert (row[2], row[-2]) == ("-", "LEADER_NOT_AVAILABLE")


def test_create_sends_the_options(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("topics create orders --partitions 3 --replication-factor 1 --set a=b=c --set d=")
    assert ran.rows == [["orders", "3", "1", "created", "-", "-"]]
    assert len(cluster.topics["orders"]) == 3
    assert cluster.configs["orders"] == {"a": "b=c", "d": ""}
    ((broker, _),) = cluster.requested(CreateTopicsRequest)
    assert broker == cluster.controller


def test_create_leaves_numbers_to_the_broker(kctl: Kctl, cluster: FakeCluster) -> None:
    kctl("topics create orders")
    (topic,) = cluster.requested(CreateTopicsRequest)[0][1].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_create_on_an_old_broker_sends_one_partition_and_one_replica(kctl: Kctl, cluster: FakeCluster) -> None:
    """Before KIP-464 (CreateTopics 4) brokers have no defaults for these numbers."""
    cluster.versions[19] = (0, 3)
    kctl("topics create orders")
    (topic,) = cluster.requested(CreateTopicsRequest)[0][1].topics
    assert (topic.num_partitions, topic.replication_factor) == (1, 1)


def test_create_sends_the_replica_assignment(kctl: Kctl, cluster: FakeCluster) -> None:
    kctl("topics create orders --replica-assignment 0:1,1:0")
    (topic,) = cluster.requested(CreateTopicsRequest)[0][1].topics
    assert [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments] == [
        (0, [0, 1]),
        (1, [1, 0]),
    ]
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert kctl("topics create other --replica-assignment 0 --partitions 1").status == ExitStatus.USAGE


def test_partition_without_a_live_replica_is_not_requested(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("topics create orders --replica-assignment 0:9,8:9")
    assert (ran.status, cluster.requested(CreateTopicsRequest)) == (ExitStatus.USAGE, [])
    assert "partition 1 cannot be created: none of its brokers (8, 9) is alive; the cluster has 0" in ran.err


@pytest.mark.parametrize("text", ["a", "1:b", "1,,2", ""])
def test_invalid_assignment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_assignment(text)


def test_topic_that_exists_is_a_failure_without_the_option(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics create orders --format json")
    assert (ran.status, ran.document[0]["error"]) == (ExitStatus.FAILED, "TOPIC_ALREADY_EXISTS")
    again = kctl("topics create orders --if-not-exists")
    assert (again.status, again.rows[0][3:]) == (0, ["exists", "-", "-"])


def test_dry_run_creates_nothing(kctl: Kctl, cluster: FakeCluster) -> None:
    assert kctl("topics create orders --dry-run").rows[0][3] == "would be created"
    assert cluster.topics == {}
    assert kctl("topics create bad/name --dry-run").rows[0][4] == "INVALID_TOPIC_EXCEPTION"


def test_alter_adds_partitions_and_changes_properties(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.configs["orders"] = {"a": "1", "b": "2", "c": "3"}
    ran = kctl("topics alter orders --partitions 4 --set a=9 --delete-config b")
    assert [row[3] for row in ran.rows] == ["properties altered", "partitions added"]
    assert cluster.configs["orders"] == {"a": "9", "c": "3"}
    assert len(cluster.topics["orders"]) == 4


def test_alter_keeps_other_overrides_on_brokers_that_only_replace(kctl: Kctl, cluster: FakeCluster) -> None:
    """Before KIP-339 (Kafka 2.3) there is only AlterConfigs."""
    cluster.create("orders")
    cluster.configs["orders"] = {"a": "1", "b": "2", "c": "3"}
    del cluster.versions[44]
    replaced = []

    def alter(request: AlterConfigsRequest) -> AlterConfigsResponse:
        replaced.append({config.name: config.value for config in request.resources[0].configs})
        one = AlterConfigsResourceResponse(error_code=0, resource_type=2, resource_name="orders")
        return AlterConfigsResponse(responses=[one])

    cluster.intercept(AlterConfigsRequest, alter)
    assert kctl("topics alter orders --set a=9 --delete-config b").status == 0
    assert kctl("configs alter topic orders --append a=9 --delete-config b").status == 0
    assert replaced == [{"a": "9", "c": "3"}, {"a": "1,9", "c": "3"}]


def test_fewer_partitions_are_refused_by_the_broker(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=3)
    ran = kctl("topics alter orders --partitions 2")
    assert (ran.status, ran.rows[0][4:]) == (1, ["INVALID_PARTITIONS", "Topic already has 3 partitions."])


def test_alter_dry_run_changes_nothing(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics alter orders --partitions 4 --set a=9 --dry-run")
    assert [row[3] for row in ran.rows] == ["properties would be altered", "partitions would be added"]
    assert (len(cluster.topics["orders"]), cluster.configs["orders"]) == (1, {})


def test_delete_without_confirmation_is_refused_and_sends_nothing(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics delete orders --format json")
    assert (ran.status, ran.document["error"]["code"]) == (ExitStatus.REFUSED, "REFUSED")
    assert "--yes" in ran.err
    assert cluster.requests == []


@pytest.mark.parametrize("newest", [3, 5, 6])
def test_delete_takes_names_literally(kctl: Kctl, cluster: FakeCluster, newest: int) -> None:
    """A dot is not a wildcard; topics are deleted by name up to version 5, by name or id from 6 on."""
    cluster.versions[20] = (0, newest)
    for name in ("a.b", "axb"):
        cluster.create(name)
    assert kctl("topics delete a.b --yes").rows == [["a.b", "-", "-", "deleted", "-", "-"]]
    assert list(cluster.topics) == ["axb"]


def test_delete_shows_the_outcome_of_each_topic(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics delete orders nope --yes --format json")
    assert ran.status == ExitStatus.FAILED
    assert [(row["topic"], row["status"], row["error"]) for row in ran.document] == [
        ("nope", None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", "deleted", None),
    ]
    assert kctl("topics delete nope --yes --if-exists").status == 0


def test_delete_says_that_the_oldest_brokers_do_not_delete(kctl: Kctl, cluster: FakeCluster) -> None:
    """Apache Kafka 0.11 responds to DeleteTopics after 30 s, and does nothing, unless delete.topic.enable is true."""
    del cluster.versions[37]  # CreatePartitions
    cluster.create("orders")
    cluster.configs[str(cluster.controller)] = {"delete.topic.enable": "false"}
    (row,) = kctl("topics delete orders --yes").rows
    assert (row[4], row[5][:28]) == ("TOPIC_DELETION_DISABLED", "delete.topic.enable is false")
    cluster.configs[str(cluster.controller)] = {"delete.topic.enable": "true"}
    assert kctl("topics delete orders --yes").status == ExitStatus.DONE
    assert "orders" not in cluster.topics


def test_delete_dry_run_needs_no_confirmation(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    assert kctl("topics delete orders --dry-run").rows == [["orders", "2", "1", "would be deleted", "-", "-", "-"]]
    assert cluster.requested(DeleteTopicsRequest) == []


def test_dry_run_of_a_deletion_states_what_depends_on_the_topic(kctl: Kctl, cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders", leaders=[0])
    cluster.create("other")
    cluster.create("billing-totals-changelog")
    partition.producers.append(
        describe_producers.ProducerState(
            producer_id=7,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=0,
            current_txn_start_offset=0,
        )
    )
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 5})
    cluster.groups["audit"] = FakeGroup({TopicPartition("other", 0): 5})
    ran = kctl("topics delete orders --dry-run --format json")
    assert ran.status == ExitStatus.DONE
    assert [tuple(dependent.values()) for dependent in ran.document[0]["dependents"]] == [
        ("group", "billing", "1 committed offset"),
        ("transaction", "producer 7", "open in 1 partition"),
        ("streams", "billing", "reads it and has 1 internal topic: billing-totals-changelog"),
    ]
    (row,) = kctl("topics delete orders --dry-run").rows
    assert row[4].startswith("group billing (1 committed offset),transaction producer 7 (open in 1 partition),")
    (row,) = kctl("topics delete other --dry-run --format json").document
    assert [dependent["name"] for dependent in row["dependents"]] == ["audit"]
    assert not cluster.requested(DeleteTopicsRequest)


def test_what_could_not_be_checked_is_named(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    cluster.versions.pop(16)
    ran = kctl("topics delete orders --dry-run --format json")
    assert ran.status == ExitStatus.DONE
    assert any(text.startswith("groups") for text in ran.document[0]["unchecked"])
    assert "warning: not checked: groups" in ran.err


def test_deletion_with_consent_does_not_look_for_dependents(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    assert kctl("topics delete orders --yes").status == ExitStatus.DONE
    assert not cluster.requested(ListGroupsRequest)
