"""Filters of topics, regular expressions on names, and several topics at once."""

from __future__ import annotations

import pytest

from kctl.admin.placement.log_dirs import LogDir, LogDirReplica
from kctl.commands.cluster.state import TotalRow, total_rows
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.reading import searches
from kctl.commands.reading.searches import NamePattern, SearchTooSlow
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.peers.ran import Ran
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl


@pytest.fixture
def topics(cluster: FakeCluster) -> FakeCluster:
    """orders and orders.old, payments with a property of its own, and an internal topic."""
    for name in ("orders", "orders.old", "payments", "__consumer_offsets"):
        cluster.create(name, leaders=2)
    cluster.configs["payments"] = {"retention.ms": "1000"}
    return cluster


def names(ran: Ran) -> list[str]:
    assert ran.status == ExitStatus.DONE, ran.err
    return [row["topic"] if "topic" in row else row["name"] for row in ran.document]


@for_rows("line", ["topics list", "topics describe", "configs describe topic"])
@for_rows(
    "pattern, expected",
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders.old"]),
        (".*", ["orders", "orders.old", "payments"]),
        ("order", []),
        ("(a+)+", []),
    ],
)
def test_regular_expression_matches_whole_names(
    kctl: Kctl, topics: FakeCluster, line: str, pattern: str, expected: list[str]
) -> None:
    assert names(kctl(f"{line} --topic-regex {pattern} --format json")) == expected


@pytest.mark.parametrize("line", ["topics list", "topics describe"])
def test_topics_with_properties_of_their_own(kctl: Kctl, topics: FakeCluster, line: str) -> None:
    assert names(kctl(f"{line} --overrides --format json")) == ["payments"]


def test_filters_apply_to_the_output_of_kafkas_tool(kctl: Kctl, topics: FakeCluster) -> None:
    assert kctl("topics list --compat kafka-3 --topic-regex orders.*").out == "orders\norders.old\n"
    described = kctl("topics describe --compat kafka-3 --topic-regex pay.*")
    assert (described.status, described.out.count("Topic: payments")) == (ExitStatus.DONE, 3)
    assert "orders" not in described.out
    properties = kctl("configs describe topic --compat kafka-3 --topic-regex pay.*")
    assert properties.out.startswith("Dynamic configs for topic payments are:\n")
    overridden = kctl("topics describe --compat kafka-3 --topics-with-overrides")
    assert (overridden.status, overridden.out.count("\n")) == (ExitStatus.DONE, 1)
    assert overridden.out.startswith("Topic: payments\t")


def test_topics_are_selected_by_id(kctl: Kctl, topics: FakeCluster) -> None:
    described = kctl("topics describe --format json").document
    ids = {row["topic"]: row["topic_id"] for row in described}
    assert None not in ids.values()
    assert names(kctl(f"topics list --topic-id {ids['payments']} --format json")) == ["payments"]
    assert names(kctl("topics list --format json --topic-id", f"{ids['orders']}|{ids['payments']}")) == [
        "orders",
        "payments",
    ]
    assert names(kctl("topics list --topic-id x --format json")) == []


@pytest.mark.parametrize("line", ["topics list", "topics describe"])
def test_partitions_at_and_under_the_minimum(kctl: Kctl, topics: FakeCluster, line: str) -> None:
    topics.configs["payments"] = {"min.insync.replicas": "1"}
    topics.configs["orders"] = {"min.insync.replicas": "2"}
    at = kctl(f"{line} --at-min-isr-partitions --format json")
    assert (at.status, [row["topic"] for row in at.document]) == (ExitStatus.UNMET, ["payments"])
    under = kctl(f"{line} --under-min-isr-partitions --format json")
    assert (under.status, [row["topic"] for row in under.document]) == (ExitStatus.UNMET, ["orders"])


def test_slow_expression_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "TIME_S_MAX", 0.2)
    with pytest.raises(SearchTooSlow, match="--topic-regex: the search of all names takes more than"):
        NamePattern("--topic-regex", "(a|aa)+b").select(["a" * 200])


def test_invalid_expression_is_refused_before_the_cluster_is_queried(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("topics delete --topic-regex ( --yes")
    assert ran.status == ExitStatus.USAGE
    assert "--topic-regex: '(' is not a valid regular expression" in ran.err
    assert cluster.requests == []


def test_several_topics_are_created_as_by_kafkas_tool(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("topics create a b --partitions 1 --compat kafka-3")
    assert ran.out == "Created topic a.\nCreated topic b.\n"


def test_several_topics_are_created_altered_and_deleted(kctl: Kctl, cluster: FakeCluster) -> None:
    assert names(kctl("topics create a b c --partitions 1 --format json")) == ["a", "b", "c"]
    assert names(kctl("topics alter a b --partitions 3 --format json")) == ["a", "b"]
    assert kctl("topics list").rows == [["a", "3", "1", "-", "-"], ["b", "3", "1", "-", "-"], ["c", "1", "1", "-", "-"]]
    assert names(kctl("topics delete --topic-regex [ab] --yes --format json")) == ["a", "b"]
    assert kctl("topics list").rows == [["c", "1", "1", "-", "-"]]


@pytest.mark.parametrize("line", ["topics delete --yes", "topics alter --partitions 4"])
def test_nothing_is_changed_unless_as_many_topics_match_as_expected(kctl: Kctl, topics: FakeCluster, line: str) -> None:
    ran = kctl(f"{line} --topic-regex .*orders.* --expect 1")
    assert (ran.status, ran.out) == (ExitStatus.UNMET, "")
    assert ran.err == "kctl: warning: --expect 1: selected are 2, and nothing is changed\n"
    assert topics.requested(DeleteTopicsRequest) == []
    assert kctl(f"{line} --topic-regex .*orders.* --expect 2").status == ExitStatus.DONE


@for_rows(
    "line, status, complaint",
    [
        ("topics delete --yes", 2, "give topics or --topic-regex"),
        ("topics delete a --topic-regex b --yes", 2, "give topics or --topic-regex"),
        ("topics delete --topic-regex nothing --yes", 1, "no topic matches --topic-regex 'nothing'"),
        ("topics describe a --topic-regex b", 2, "give topics or --topic-regex, not both"),
        ("topics alter a b --partitions 2 --replica-assignment 0:1", 2, "--replica-assignment is for one topic"),
        ("configs alter topic --set a=b", 2, "name what to change, or give --topic-regex"),
        ("configs alter broker --topic-regex a --set a=b", 2, "--topic-regex is for type topic"),
        ("configs alter topic --topic-regex nothing --set a=b", 1, "no topic matches"),
    ],
)
def test_invalid_selection_is_refused(kctl: Kctl, topics: FakeCluster, line: str, status: int, complaint: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.out) == (status, "")
    assert complaint in ran.err


def test_properties_of_matching_topics_are_altered(kctl: Kctl, topics: FakeCluster) -> None:
    ran = kctl("configs alter topic --topic-regex orders.* --set retention.ms=7 --format json")
    assert names(ran) == ["orders", "orders.old"]
    assert len(topics.requested(IncrementalAlterConfigsRequest)) >= 1


def test_log_directory_totals_leave_out_future_replicas() -> None:
    first = LogDir(1, "/a", ErrorCode.NONE, (LogDirReplica(TopicPartition("orders", 0), 10, 0),))
    second = LogDir(
        1,
        "/b",
        ErrorCode.NONE,
        (
            LogDirReplica(TopicPartition("orders", 1), 5, 0),
            LogDirReplica(TopicPartition("payments", 0), 100, 0),
            LogDirReplica(TopicPartition("orders", 0), 3, 7, is_future=True),
        ),
    )
    other = LogDir(2, "/a", ErrorCode.NONE)
    offline = LogDir(2, "/b", ErrorCode.KAFKA_STORAGE_ERROR)
    found = [first, second, other, offline]
    assert total_rows(found, [], "topic")[1:] == [TotalRow(None, "payments", 1, 100), TotalRow(None, "orders", 2, 15)]
    assert total_rows(found, [], "broker")[1:] == [TotalRow(1, None, 3, 115), TotalRow(2, None, 0, 0)]
    assert total_rows(found, [], "topic")[0].error == "KAFKA_STORAGE_ERROR"
