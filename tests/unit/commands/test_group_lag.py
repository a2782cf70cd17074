"""kctl groups lag."""

from __future__ import annotations

import time

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.values import parse_condition, parse_duration_ms
from kctl.errors import UsageError
from kctl.lag.rules import Verdict
from kctl.model import TopicPartition
from kctl.output.quantities import format_duration
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.list_offsets import ListOffsetsRequest
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import OffsetCommitValue, encode_offset_commit_key, encode_offset_commit_value
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_groups import member

SECOND, MINUTE = 1000, 60_000


def now_ms() -> int:
    return round(time.time() * 1000)


def fill(cluster: FakeCluster, *, age_ms: int = 2 * MINUTE) -> None:
    """Ten records in each of three partitions of `orders`; the first of them has this age."""
    first_ms = now_ms() - age_ms
    for partition in cluster.create("orders", leaders=3):
        partition.append(build_batch([Record(0, first_ms + index, None, b"v") for index in range(10)]))


def commits(cluster: FakeCluster, group: str, *positions: tuple[int, int]) -> None:
    """The history of a group in partition 0 of `orders`: age of each commit in ms, and its offset."""
    (log,) = cluster.create("__consumer_offsets", leaders=1)
    for age_ms, offset in positions:
        time_ms = now_ms() - age_ms
        key = encode_offset_commit_key(group, "orders", 0)
        value = encode_offset_commit_value(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=time_ms))
        log.append(build_batch([Record(0, time_ms, key, value)]))


def test_lag_in_records_and_in_time(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4, TopicPartition("orders", 2): 10})
    first, second = sorted(kctl("groups lag billing --by partition --format json").document, key=lambda r: -r["lag"])
    assert (first["partition"], first["current_offset"], first["log_end_offset"], first["lag"]) == (0, 4, 10, 6)
    assert 2 * MINUTE - 4 <= first["time_lag_ms"] < 3 * MINUTE
    assert (second["partition"], second["lag"], second["time_lag_ms"], second["verdict"]) == (2, 0, 0, "OK")
    (total,) = kctl("groups lag --format json").document
    assert (total["group"], total["partitions"], total["lag"], total["state"]) == ("billing", 2, 6, "Empty")
    assert total["time_lag_ms"] >= first["time_lag_ms"]
    assert total["verdict"] == "STOPPED"  # The members of the group have left.


def test_rates_and_age_of_the_commit_are_those_of_the_history(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4})
    commits(cluster, "billing", (100 * SECOND, 0), (50 * SECOND, 4))
    (row,) = kctl("groups lag billing --by partition --format json").document
    assert row["consumed_per_s"] == pytest.approx(4 / 100, rel=0.5)
    assert row["produced_per_s"] == pytest.approx(10 / 300, abs=0.001)
    assert 50 * SECOND <= row["commit_age_ms"] < 100 * SECOND


def test_commits_of_other_groups_and_other_records_are_skipped(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4})
    commits(cluster, "audit", (SECOND, 9))
    cluster.topics["__consumer_offsets"][0].append(build_batch([Record(0, now_ms(), b"\xff", b"\xff")]))
    (row,) = kctl("groups lag billing --by partition --format json").document
    assert (row["commit_age_ms"], row["verdict"]) == (None, "STOPPED")
    assert row["commit_age_ms_min"] >= 5 * MINUTE


@pytest.mark.long
def test_a_partition_without_a_leader_is_a_row_with_an_error(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.topics["orders"][1].leader = -1
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", number): 4 for number in (0, 1)})
    ran = kctl("groups lag billing --by partition --format json --timeout 20s")
    assert ran.status == ExitStatus.FAILED
    assert [(row["partition"], row["lag"], row["error"]) for row in ran.document] == [
        (1, None, "LEADER_NOT_AVAILABLE"),
        (0, 6, None),
    ]
    (total,) = kctl("groups lag billing --format json").document
    assert (total["lag"], total["error"]) == (6, "PARTITIONS_FAILED")


def test_groups_and_brokers_with_an_error_are_rows(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 10})
    ran = kctl("groups lag billing nope --format json")
    assert ran.status == ExitStatus.FAILED
    assert [(row["group"], row["error"]) for row in ran.document] == [("nope", "GROUP_ID_NOT_FOUND"), ("billing", None)]
    cluster.intercept(ListGroupsRequest, lambda _: ListGroupsResponse(error_code=14, groups=[]))
    assert {row["error"] for row in kctl("groups lag --format json").document} == {"COORDINATOR_LOAD_IN_PROGRESS"}


def test_deleted_and_recreated_topics_lose_records(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.topics["orders"][0].start = 6
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 50})
    rows = kctl("groups lag billing --by partition --sort name --format json").document
    assert [(row["lag"], row["lost"], row["verdict"]) for row in rows] == [(4, 2, "LOSING"), (None, 0, "LOSING")]


def test_partitions_without_a_commit_are_in_the_totals_and_reasons_in_the_table(
    kctl: Kctl, cluster: FakeCluster
) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 10}, [member("m-1", 0, 1, 2)])
    text = "20 unread in 2 partitions without a commit"
    for by in ("group", "topic", "all"):
        (total,) = kctl(f"groups lag --by {by} --format json").document
        assert (total["lag"], total["uncommitted_partitions"], total["uncommitted_records"]) == (0, 2, 20), by
        assert (total["verdict"], total["reason"]) == ("WARN", text), by
    ran = kctl("groups lag billing --format table")
    assert text in ran.out
    assert text in ran.err
    ran = kctl("groups lag billing --by partition --format table")
    assert "there is no committed offset" in ran.out
    assert text in ran.err


def test_rows_by_member_topic_and_all(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    offsets = {TopicPartition("orders", number): 10 - number for number in range(3)}
    cluster.groups["billing"] = FakeGroup(offsets, [member("m-1", 0, 1)])
    by_member = kctl("groups lag --by member --format json").document
    assert [(row["member_id"], row["lag"]) for row in by_member] == [(None, 2), ("m-1", 1)]
    (by_topic,) = kctl("groups lag --by topic --format json").document
    assert (by_topic["topic"], by_topic["partitions"], by_topic["lag"]) == ("orders", 3, 3)
    assert "groups: 1, partitions: 3, unread records: 3" in kctl("groups lag --by all --format table").err
    (in_all,) = kctl("groups lag --by all --format json").document
    assert (in_all["groups"], in_all["partitions"], in_all["lag"]) == (1, 3, 3)
    (some,) = kctl("groups lag --topic orders:1-2 --by all --format json").document
    assert (some["partitions"], some["lag"]) == (2, 3)


@pytest.mark.parametrize(
    ("named", "problem"), [("nope", "topic 'nope' does not exist"), ("orders:0,9", "no partition 9")]
)
def test_a_named_topic_that_does_not_exist_is_a_failure(
    kctl: Kctl, cluster: FakeCluster, named: str, problem: str
) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4, TopicPartition("deleted", 0): 5})
    ran = kctl(f"groups lag billing --topic deleted --topic {named}")
    assert (ran.status, problem in ran.err) == (ExitStatus.FAILED, True), ran.err
    (row,) = kctl("groups lag billing --topic deleted --by partition --format json").document
    assert (row["current_offset"], row["error"]) == (5, "UNKNOWN_TOPIC_OR_PARTITION")


def test_conditions_select_rows_and_decide_the_status(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, age_ms=10 * MINUTE)
    for name, offset in (("late", 0), ("near", 9), ("done", 10)):
        cluster.groups[name] = FakeGroup({TopicPartition("orders", 0): offset})

    def names(line: str) -> list[str]:
        return [row[0] for row in kctl(line).rows]

    assert names("groups lag") == ["late", "near", "done"]
    assert names("groups lag --sort name") == ["done", "late", "near"]
    assert names("groups lag --lag >1") == ["late"]
    assert names("groups lag --lag >=1") == ["late", "near"]
    assert names("groups lag --lag =0") == ["done"]
    assert names("groups lag --lag >9m") == ["late", "near"]
    assert kctl("groups lag --check").status == ExitStatus.UNMET
    assert kctl("groups lag done --check").status == ExitStatus.DONE
    assert kctl("groups lag --check --lag >100").status == ExitStatus.DONE
    assert kctl("groups lag --check --lag >1").status == ExitStatus.UNMET


@for_rows("text", ["", "1000", ">", "> x", "!=3", ">1 2", ">-5"])
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_condition(text)


def test_watch_shows_each_round_with_rates_since_the_first(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 4})
    ran = kctl("groups lag --watch --rounds 3 --interval 100ms --by partition")
    assert ran.status == ExitStatus.DONE
    assert [row[5] for row in ran.rows] == ["6"] * 3
    assert "\x1b" not in ran.out
    assert kctl("groups lag --watch --rounds 2 --interval 100ms --check").status == ExitStatus.UNMET
    assert kctl("groups lag --watch --format json").status == ExitStatus.USAGE


def test_many_groups_share_requests_to_leaders(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster)
    for number in range(30):
        cluster.groups[f"g{number}"] = FakeGroup(
            {TopicPartition("orders", partition): number % 9 for partition in range(3)}
        )
    kctl("groups lag")
    assert len(cluster.requested(OffsetFetchRequest)) == 1
    assert len(cluster.requested(ListOffsetsRequest)) <= 3 * len(cluster.ports)
    assert len(cluster.requested(FetchRequest)) <= 2 * len(cluster.ports)


def test_verdicts_are_named_as_in_the_help(kctl: Kctl) -> None:
    text = " ".join(kctl("groups lag --help").out.split())
    positions = [text.index(f" {verdict.name}") for verdict in Verdict]
    assert positions == sorted(positions)


@for_rows("duration_ms, text", [
    (0, "0ms"), (999, "999ms"), (1999, "1s"), (60_000, "1m"), (185_000, "3m5s"), (3_600_000, "1h"),
    (187_200_000, "2d4h"),
])  # fmt: skip
def test_durations_are_shown_as_options_take_them(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text
    assert parse_duration_ms(text) <= duration_ms
