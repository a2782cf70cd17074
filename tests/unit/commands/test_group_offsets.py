"""kctl groups members, delete-offsets, reset-offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_groups import member

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
def billing(cluster: FakeCluster) -> FakeGroup:
    """A group without members, with offsets 30 and 5, and none for partition 2. All partitions have offsets 10 to 40,
    one record per second.
    """
    for partition in cluster.create("orders", leaders=3):
        records = [Record(0, number * 1000, None, b"x") for number in range(40)]
        partition.append(build_batch(records))
        partition.start = 10
    group = cluster.groups["billing"] = FakeGroup({P0: 30, P1: 15})
    return group


@for_rows(
    "scenario, expected",
    [
        ("--to-earliest", [["30", "10", "-20"], ["15", "10", "-5"], ["-", "10", "-"]]),
        ("--to-latest", [["30", "40", "10"], ["15", "40", "25"], ["-", "40", "-"]]),
        ("--to-current", [["30", "30", "0"], ["15", "15", "0"], ["-", "40", "-"]]),
        ("--to-offset 20", [["30", "20", "-10"], ["15", "20", "5"], ["-", "20", "-"]]),
        ("--to-datetime 1970-01-01T00:00:22.000", [["30", "22", "-8"], ["15", "22", "7"], ["-", "22", "-"]]),
        ("--to-datetime 2020-01-01", [["30", "40", "10"], ["15", "40", "25"], ["-", "40", "-"]]),
        ("--by-duration P1D", [["30", "40", "10"], ["15", "40", "25"], ["-", "40", "-"]]),
    ],
)
def test_dry_run_shows_the_new_offsets_of_each_scenario(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, scenario: str, expected: list[list[str]]
) -> None:
    ran = kctl(f"groups reset-offsets billing --topic orders {scenario} --dry-run")
    assert [row[3:6] for row in ran.rows] == expected
    assert {row[6] for row in ran.rows} == {"would be reset"}
    assert (ran.status, cluster.requested(OffsetCommitRequest), billing.offsets) == (0, [], {P0: 30, P1: 15})


def test_shifting_beyond_the_ends_is_clamped_with_a_warning(kctl: Kctl, billing: FakeGroup) -> None:
    ran = kctl("groups reset-offsets billing --all-topics --shift-by=-10 --yes")
    assert [row[3:7] for row in ran.rows] == [["30", "20", "-10", "reset"], ["15", "10", "-5", "reset"]]
    assert "orders-1: offset 5 lies outside of 10 to 40; it becomes 10" in ran.err
    assert billing.offsets == {P0: 20, P1: 10}


def test_nothing_is_committed_unless_all_offsets_are_found(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup
) -> None:
    ran = kctl("groups reset-offsets billing --topic orders:0,7 --topic gone --to-earliest --yes")
    assert [row[1:3] + row[6:8] for row in ran.rows] == [
        ["gone", "-", "-", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["orders", "0", "would be reset", "-"],
        ["orders", "7", "-", "UNKNOWN_TOPIC_OR_PARTITION"],
    ]
    assert (ran.status, cluster.requested(OffsetCommitRequest)) == (ExitStatus.FAILED, [])
    ran = kctl("groups reset-offsets billing --topic orders:2 --shift-by 1 --yes")
    assert (ran.status, ran.rows[0][-1]) == (ExitStatus.FAILED, "There is no committed offset to shift.")


def test_active_group_is_refused_and_its_members_are_named(kctl: Kctl, billing: FakeGroup) -> None:
    billing.members.append(member("m-1", 0))
    for how in ("--yes", "--dry-run"):
        ran = kctl(f"groups reset-offsets billing --topic orders --to-earliest {how}")
        assert (ran.status, ran.out) == (ExitStatus.REFUSED, "")
        assert "group 'billing' is active (Stable) with m-1 (10.0.0.1)" in ran.err


def test_group_that_has_become_active_meanwhile(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup) -> None:
    def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
        partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=25)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=partitions)])

    cluster.intercept(OffsetCommitRequest, refuse)
    ran = kctl("groups reset-offsets billing --topic orders:0,1 --to-earliest --yes")
    assert ran.status == ExitStatus.FAILED
    assert [row[-2:] for row in ran.rows] == [
        ["UNKNOWN_MEMBER_ID", "The group has members now."],
        ["UNKNOWN_SERVER_ERROR", "The broker's response does not contain this partition."],
    ]


@pytest.mark.usefixtures("billing")
@for_rows(
    "line",
    [
        "billing --to-earliest --dry-run",
        "billing --topic orders --all-topics --to-earliest --dry-run",
        "billing --topic orders --dry-run",
        "billing --topic orders --to-earliest --to-latest --dry-run",
        "billing --topic orders:x --to-earliest --dry-run",
        "billing --topic orders --to-datetime soon --dry-run",
        "billing --from-file /nowhere --dry-run",
        "billing --all --topic orders --to-earliest --dry-run",
        "--topic orders --to-earliest --dry-run",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, line: str) -> None:
    ran = kctl(f"groups reset-offsets {line}")
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")


def test_csv_out_and_in(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, tmp_path: Path) -> None:
    cluster.groups["a,b"] = FakeGroup({P1: 12})
    one = kctl("groups reset-offsets billing --all-topics --to-current --dry-run --export")
    assert one.out == "orders,0,30\norders,1,15\n"
    all_ = kctl("groups reset-offsets --all --all-topics --to-current --dry-run --export")
    assert all_.out == '"a,b",orders,1,12\nbilling,orders,0,30\nbilling,orders,1,15\n'
    file = tmp_path / "offsets.csv"
    for text in (one.out, all_.out, "orders,0,30\n\n"):
        file.write_text(text)
        billing.offsets.clear()
        assert kctl(f"groups reset-offsets billing --from-file {file} --yes").status == 0
        assert billing.offsets[P0] == 30
    for text in ("orders,0\n", "orders,zero,1\n", "orders,0,1\norders,0,2\n", "GROUP,TOPIC,PARTITION,OFFSET\n"):
        file.write_text(text)
        assert kctl(f"groups reset-offsets billing --from-file {file} --dry-run").status == ExitStatus.USAGE


def test_long_names_are_quoted_as_kafka_does(kctl: Kctl, cluster: FakeCluster) -> None:
    name = "a-topic-with-a-rather-long-name"
    cluster.create(name)
    cluster.groups["g"] = FakeGroup({TopicPartition(name, 0): 0})
    assert kctl("groups reset-offsets g --all-topics --to-current --dry-run --export").out == f'"{name}",0,0\n'


@pytest.mark.usefixtures("billing")
def test_compat_prints_kafkas_format(kctl: Kctl) -> None:
    head = f"{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}\n"
    row = f"{'billing':<30} {'orders':<30} {'0':<10} {'10':<15}\n"
    line = "groups reset-offsets billing --topic orders:0 --to-earliest --compat"
    assert kctl(f"{line} kafka-2.8").out == f"\n{head}{row}"
    assert kctl(f"{line} kafka-4").out == (
        "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\nbilling         orders          0          10\n"
    )


def test_rows_stand_in_the_order_of_kafkas_hash_tables(kctl: Kctl, cluster: FakeCluster) -> None:
    """The output of Kafka's tools."""
    cluster.create("t1", leaders=3)
    cluster.create("a.b_c-d")
    committed = {TopicPartition("t1", 0): 0, TopicPartition("t1", 1): 0, TopicPartition("a.b_c-d", 0): 0}
    cluster.groups["a,b"] = FakeGroup(committed)
    line = "groups reset-offsets a,b --export --compat"
    for_all, for_some = "--all-topics --to-earliest", "--topic t1:0,2 --topic a.b_c-d --to-current"
    assert kctl(f"{line} kafka-2.8 {for_all}").out == "a.b_c-d,0,0\nt1,1,0\nt1,0,0\n\n"
    assert kctl(f"{line} kafka-4 {for_all}").out == "a.b_c-d,0,0\nt1,1,0\nt1,0,0\n\n"
    assert kctl(f"{line} kafka-2.8 {for_some}").out == "t1,0,0\na.b_c-d,0,0\nt1,2,0\n\n"
    assert kctl(f"{line} kafka-4 {for_some}").out == "a.b_c-d,0,0\nt1,2,0\nt1,0,0\n\n"
    assert kctl(f"{line} kafka-2.8 --topic t1 --topic a.b_c-d:0 --to-earliest").out.startswith("a.b_c-d,0,0\nt1,0,0\n")
    assert kctl("groups reset-offsets --all --all-topics --to-earliest --export --compat kafka-4").out.startswith(
        '"a,b",'
    )


def test_columns_are_padded_as_java_counts(kctl: Kctl, cluster: FakeCluster) -> None:
    """An emoji is two characters in Java."""
    cluster.create("t")
    cluster.groups["g\U0001f600"] = FakeGroup({TopicPartition("t", 0): 0})
    line = "groups reset-offsets --all --all-topics --to-earliest --compat"
    for compat, width in (("kafka-2.8", 30), ("kafka-4", 15)):
        assert kctl(f"{line} {compat}").out.splitlines()[2].startswith("g\U0001f600" + " " * (width - 3) + " t")


@pytest.mark.usefixtures("billing")
def test_kafka_4_reports_partitions_without_records_of_that_time_or_later(kctl: Kctl) -> None:
    line = "groups reset-offsets billing --topic orders:0 --to-datetime 2020-01-01 --compat"
    warning = "\nWarn: Partition 0 from topic orders is empty. Falling back to latest known offset.\n"
    assert kctl(f"{line} kafka-4").out.startswith(f"{warning}\nGROUP")
    assert "Warn" not in kctl(f"{line} kafka-2.8").out


@pytest.mark.usefixtures("billing")
@for_rows(
    "scenario, words",
    [
        ("--to-datetime 1969-12-31T23:59:59.999Z", "before 1970"),
        ("--to-datetime 0001-01-01", "before 1970"),
        ("--by-duration P99999D", "before 1970"),
        ("--by-duration=-P2930000D", "after the year 9999"),
        ("--by-duration P99999999999999D", "longer than"),
        ("--to-datetime 99999999999999999999", "epoch seconds have 10 digits"),
    ],
)
def test_times_that_no_record_can_have_are_refused(kctl: Kctl, scenario: str, words: str) -> None:
    """The broker interprets negative timestamps: -1 is the end."""
    ran = kctl(f"groups reset-offsets billing --topic orders:0 {scenario} --yes")
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True)


@pytest.mark.usefixtures("billing")
@for_rows("time", ["20261123", "@20261123", "@-1h", "-1h", "now", "@now"])
def test_times_are_read_as_everywhere(kctl: Kctl, time: str) -> None:
    """All times are after the last record; as epoch seconds they would be before it."""
    ran = kctl(f"groups reset-offsets billing --topic orders:0 --to-datetime={time} --dry-run")
    assert (ran.status, ran.rows[0][4]) == (0, "40")


def test_file_without_a_selected_group_is_refused_or_warned_about(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, tmp_path: Path
) -> None:
    """The reset is refused, or warns if the file contains other groups."""
    cluster.groups["busy"] = FakeGroup({P0: 1}, members=[member("m", 0)])
    file = tmp_path / "offsets.csv"
    line = f"--from-file {file} --yes"
    file.write_bytes("\ufeffbilling,orders,0,12\n".encode())
    ran = kctl(f"groups reset-offsets billing other {line}")
    assert (ran.status, "has no offsets of other" in ran.err) == (0, True)
    assert kctl(f"groups reset-offsets --all {line}").status == 0, "a busy group of which the file says nothing"
    assert billing.offsets[P0] == 12
    for text in ("", "someone,orders,0,12\n"):
        file.write_text(text)
        ran = kctl(f"groups reset-offsets billing {line}")
        assert (ran.status, "has no offsets of billing" in ran.err) == (ExitStatus.USAGE, True)


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize(
    ("numbers", "words"),
    [("0-99999999999", "a partition is a whole number from 0 to"), ("2-1", "no topic has partitions 2-1")],
)
def test_range_that_no_topic_has_is_a_mistake(kctl: Kctl, numbers: str, words: str) -> None:
    ran = kctl(f"groups reset-offsets billing --topic orders:{numbers} --to-earliest --dry-run")
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True)


def test_reset_creates_a_missing_group(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup) -> None:
    (row,) = kctl("groups reset-offsets new --topic orders:0 --to-offset 12 --yes --format json").document
    assert (row["old_offset"], row["new_offset"], row["delta"], row["status"]) == (None, 12, None, "reset")
    assert cluster.groups["new"].offsets == {P0: 12}


def test_members_show_their_assignments(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup) -> None:
    billing.members.extend([member("m-2", 1), member("m-1", 0)])
    assert [row[1:2] + row[6:7] for row in kctl("groups members billing").rows] == [
        ["m-1", "orders(0)"],
        ["m-2", "orders(1)"],
    ]
    (one, _) = kctl("groups members --all --format json").document
    assert one["assignment"] == [{"topic": "orders", "partitions": [0]}]
    assert kctl("groups members nope").status == ExitStatus.FAILED
    assert kctl("groups list --state Stable --state Dead").status == 0
    assert {tuple(request.states_filter) for _, request in cluster.requested(ListGroupsRequest)} >= {("Stable", "Dead")}
    cluster.versions[16] = (0, 3)
    assert kctl("groups list --state Stable").rows[0][-2] == "UNSUPPORTED_VERSION"


def test_delete_offsets_deletes_committed_offsets_only(kctl: Kctl, billing: FakeGroup) -> None:
    line = "groups delete-offsets billing --topic orders:1,2 --topic gone"
    assert kctl(line).status == ExitStatus.REFUSED
    preview = kctl(f"{line} --dry-run")
    assert [row[1:5] for row in preview.rows] == [
        ["orders", "1", "15", "would be deleted"],
        ["orders", "2", "-", "would be deleted"],
        ["gone", "-", "-", "nothing committed"],
    ]
    assert billing.offsets == {P0: 30, P1: 15}
    assert kctl(f"{line} --yes").status == 0
    assert billing.offsets == {P0: 30}
    billing.members.append(member("m-1", 0))
    for how in ("--dry-run", "--yes"):
        ran = kctl(f"groups delete-offsets billing --all-topics {how}")
        assert (ran.status, ran.rows[0][-2]) == (ExitStatus.FAILED, "GROUP_SUBSCRIBED_TO_TOPIC")
    assert kctl("groups delete-offsets nope --all-topics --yes").rows[0][-2] == "GROUP_ID_NOT_FOUND"


def test_file_with_an_endless_field_is_refused_with_its_line(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"billing,orders,0,1\nbilling,{'a' * 200_000},0,1\n")
    for line in (f"groups import {file}", f"groups reset-offsets billing --from-file {file} --dry-run"):
        ran = kctl(line)
        assert (ran.status, "line 2: not CSV: field larger than" in ran.err) == (ExitStatus.USAGE, True), ran


def test_reset_without_yes_shows_the_plan(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 7})
    for words, status in (("", "would be reset"), ("--dry-run --yes", "would be reset"), ("--yes", "reset")):
        ran = kctl(f"groups reset-offsets billing --topic orders:0 --to-earliest --no-backup {words}")
        assert (ran.status, ran.rows[0][6]) == (0, status), words
        assert ("nothing was changed; give --yes" in ran.err) == (not words)
        assert cluster.groups["billing"].offsets[TopicPartition("orders", 0)] == (0 if words == "--yes" else 7)
