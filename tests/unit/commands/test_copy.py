"""kctl copy: records arrive byte for byte, runs resume, and offsets of groups are translated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.client.producing.partitioners import partition_of_key
from kctl.commands.frame.exit_status import ExitStatus
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup, FakePartition
from tests.unit.commands.conftest import Kctl

ROWS = [
    Record(0, 5_000, b"a", b"one", (("h", b"1"), ("h", None), ("h", b""))),
    Record(0, 6_000, None, None, ()),
    Record(0, 7_000, b"", b"", ()),
    Record(0, 4_000, b"\xff\x00", b"\x80" * 100, (("raw", b"\xfe"),)),
    Record(0, 9_000, b"a", b"two", ()),
]


@pytest.fixture
def orders(cluster: FakeCluster) -> FakeCluster:
    """Topic orders: the five records in partition 1 from offset 10 on, and one in partition 0; an empty copy."""
    logs = cluster.create("orders", leaders=2)
    logs[1].start = logs[1].end = 10
    logs[0].append(build_batch([Record(0, 1_000, b"z", b"zero", ())]))
    for line in ROWS:
        logs[1].append(build_batch([line]))
    cluster.create("copy", leaders=2)
    return cluster


@pytest.fixture
def other() -> Iterator[FakeCluster]:
    """Another cluster, with an empty topic orders."""
    with FakeCluster() as started:
        started.cluster_id = "another-cluster"
        started.create("orders", leaders=2)
        yield started


def contents(cluster: FakeCluster, topic: str, partition: int = 1) -> list[tuple[Any, ...]]:
    return [
        (record.timestamp, record.key, record.value, tuple(record.headers))
        for record in cluster.records_of(topic, partition)
    ]


def copied(ran: Any) -> int:
    return sum(row["copied"] for row in ran.document)


def test_records_arrive_byte_for_byte_in_their_partitions(kctl: Kctl, orders: FakeCluster) -> None:
    ran = kctl("copy orders copy")
    assert contents(orders, "copy", 0) == contents(orders, "orders", 0)
    assert contents(orders, "copy", 1) == contents(orders, "orders", 1)
    assert (ran.status, ran.err) == (0, "6 of 6 records copied from orders to copy\n")
    assert ran.rows == [
        ["0", "0", "1", "1", "1", "1", "5", "copied"],
        ["1", "10", "15", "15", "5", "5", "118", "copied"],
    ]


def test_the_key_selects_the_partition(kctl: Kctl, orders: FakeCluster) -> None:
    orders.create("wide", leaders=5)
    assert kctl("copy orders wide --partitions hash --key a").status == 0
    assert [record.value for record in orders.records_of("wide", partition_of_key(b"a", 5))] == [b"one", b"two"]


def test_selected_records_are_copied(kctl: Kctl, orders: FakeCluster) -> None:
    ran = kctl("copy orders copy --format json --record-header h --where", 'value == "one"')
    assert (copied(ran), [row[2] for row in contents(orders, "copy")]) == (1, [b"one"])


def test_dry_run_counts_and_writes_nothing(kctl: Kctl, orders: FakeCluster) -> None:
    ran = kctl("copy orders copy --key a --dry-run --resume-group r --transactional-id t --format json")
    assert [(row["read"], row["copied"], row["status"]) for row in ran.document] == [
        (1, 0, "would be copied"),
        (5, 2, "would be copied"),
    ]
    assert (contents(orders, "copy"), orders.requested(OffsetCommitRequest), orders.requested(ProduceRequest)) == (
        [],
        [],
        [],
    )


def test_a_topic_is_copied_onto_itself_only_within_bounds(kctl: Kctl, orders: FakeCluster) -> None:
    refused = kctl("copy orders orders")
    assert (refused.status, "'orders' would be copied onto itself" in refused.err) == (ExitStatus.REFUSED, True)
    assert kctl("copy orders orders --key a").status == 0
    assert [row[2] for row in contents(orders, "orders")][5:] == [b"one", b"two"]


def test_records_are_copied_between_two_clusters(
    kctl: Kctl, orders: FakeCluster, other: FakeCluster, tmp_path: Path
) -> None:
    config = tmp_path / "to.properties"
    config.write_text(f"bootstrap.servers={other.bootstrap}\n")
    assert kctl(f"copy orders orders --to-config {config}").status == 0
    assert contents(other, "orders") == contents(orders, "orders")
    back = kctl(f"copy orders copy --from-cluster {other.bootstrap} --key a --format json")
    assert (copied(back), [row[2] for row in contents(orders, "copy")]) == (2, [b"one", b"two"])


def test_a_side_with_its_own_options_does_not_use_the_common_configuration(
    kctl: Kctl, other: FakeCluster, tmp_path: Path
) -> None:
    common = tmp_path / "common.properties"
    common.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n")
    common.chmod(0o600)
    sides = f"--from-cluster {other.bootstrap} --to-cluster {other.bootstrap}"
    other.create("copy", leaders=2)
    assert kctl(f"copy orders copy --command-config {common} {sides}").status == 0


def test_a_resumed_copy_continues_where_the_last_one_ended(kctl: Kctl, orders: FakeCluster) -> None:
    first = kctl("copy orders copy --resume-group r --partition 1 --max-messages 2 --format json")
    assert (copied(first), orders.groups["r"].offsets) == (2, {TopicPartition("orders", 1): 12})
    rest = kctl("copy orders copy --resume-group r --from end --format json")
    assert copied(rest) == 3
    assert contents(orders, "copy") == contents(orders, "orders")
    assert copied(kctl("copy orders copy --resume-group r --format json")) == 0


def test_progress_in_another_cluster_names_the_target_topic(
    kctl: Kctl, orders: FakeCluster, other: FakeCluster
) -> None:
    other.create("archive", leaders=2)
    assert kctl(f"copy orders archive --to-cluster {other.bootstrap} --resume-group r").status == 0
    assert other.groups["r"].offsets == {TopicPartition("archive", 0): 1, TopicPartition("archive", 1): 15}
    assert "r" not in orders.groups


def test_records_deleted_since_the_last_run_are_reported(kctl: Kctl, orders: FakeCluster) -> None:
    orders.groups["r"] = FakeGroup({TopicPartition("orders", 1): 4})
    ran = kctl("copy orders copy --resume-group r")
    assert "orders-1: records from 4 to 10 were deleted before they were copied" in ran.err


def test_a_refused_batch_ends_the_copy_at_its_start_where_the_next_run_continues(
    kctl: Kctl, orders: FakeCluster
) -> None:
    def refuse(request: Any) -> Any:
        orders.topics["copy"][0].append(build_batch([Record(0, 0, None, b"written", ())]))
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=part.index, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    orders.intercept(ProduceRequest, refuse)
    ran = kctl("copy orders copy --resume-group r")
    assert (ran.status, "MESSAGE_TOO_LARGE: copy-" in ran.err) == (ExitStatus.FAILED, True)
    assert "repeat the command to continue" in ran.err
    assert orders.groups["r"].offsets == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 10}
    orders.intercepts.clear()
    assert copied(kctl("copy orders copy --resume-group r --format json")) == 6


def test_offsets_of_groups_are_translated(kctl: Kctl, orders: FakeCluster, other: FakeCluster) -> None:
    at = {"begin": 10, "middle": 13, "after": 15, "deleted": 3}
    for group, offset in at.items():
        orders.groups[group] = FakeGroup({TopicPartition("orders", 1): offset})
    other.topics["orders"][1].append(build_batch([Record(0, 0, None, b"older", ())]))
    other.groups["ahead"] = FakeGroup({TopicPartition("orders", 1): 100})
    orders.groups["ahead"] = FakeGroup({TopicPartition("orders", 1): 11})
    names = ",".join([*at, "ahead"])
    ran = kctl(f"copy orders orders --to-cluster {other.bootstrap} --key a --groups {names} --format json")
    rows = {row["group"]: (row["target_offset"], row["status"]) for row in ran.document["groups"]}
    assert rows == {
        "begin": (1, "committed"),
        "middle": (2, "committed"),
        "after": (3, "committed"),
        "deleted": (1, "committed"),
        "ahead": (100, "kept"),
    }
    assert [
        other.groups[group_id].offsets[TopicPartition("orders", 1)] for group_id in ("begin", "middle", "after")
    ] == [1, 2, 3]


def test_dry_run_shows_which_offsets_have_a_translation(kctl: Kctl, orders: FakeCluster) -> None:
    for group, offset in (("in", 13), ("before", 3)):
        orders.groups[group] = FakeGroup({TopicPartition("orders", 1): offset})
    ran = kctl("copy orders copy --dry-run --partition 1 --from 11 --groups in,before --format json")
    assert [(row["group"], row["status"]) for row in ran.document["groups"]] == [
        ("in", "would be committed"),
        ("before", "not copied"),
    ]
    assert orders.requested(OffsetCommitRequest) == []


def group_rows(ran: Any) -> dict[str, tuple[int | None, str]]:
    return {row["group"]: (row["target_offset"], row["status"]) for row in ran.document["groups"]}


def test_a_resumed_copy_has_the_offsets_that_an_earlier_run_committed(kctl: Kctl, orders: FakeCluster) -> None:
    tp = TopicPartition("orders", 1)
    orders.topics["copy"][1].append(build_batch([Record(0, 0, None, b"older", ())]))
    for group, offset in (("early", 11), ("late", 14)):
        orders.groups[group] = FakeGroup({tp: offset})
    line = "copy orders copy --resume-group r --partition 1 --groups early,late --format json"
    first = kctl(f"{line} --limit 2 --progress reset")
    assert group_rows(first) == {"early": (2, "committed"), "late": (None, "not copied")}
    assert first.status == ExitStatus.FAILED
    assert "The copy ended before this offset." in first.document["groups"][1]["message"]
    rest = kctl(line)
    assert (rest.status, group_rows(rest)) == (0, {"early": (2, "kept"), "late": (5, "committed")})
    again = kctl(line)
    assert (again.status, group_rows(again)) == (0, {"early": (2, "kept"), "late": (5, "kept")})


def test_a_resumed_copy_fails_for_an_offset_that_no_run_has_committed(kctl: Kctl, orders: FakeCluster) -> None:
    """The group has read on in the source since the interruption, but not as far as the copy."""
    tp = TopicPartition("orders", 1)
    orders.groups["g"] = FakeGroup({tp: 10})
    line = "copy orders copy --resume-group r --partition 1 --groups g --format json"
    assert kctl(f"{line} --limit 3").status == 0
    orders.groups["g"].offsets[tp] = 12
    rest = kctl(line)
    assert (rest.status, group_rows(rest)) == (ExitStatus.FAILED, {"g": (None, "not copied")})
    assert rest.document["groups"][0]["message"] == (
        "The offset is before 13, where this run began.  In the target the group has the offset 0."
    )
    orders.groups["g"].offsets[tp] = 15
    last = kctl(line)
    assert (last.status, group_rows(last)) == (0, {"g": (5, "committed")})


def test_an_offset_after_the_selected_records_is_committed_before_the_progress(kctl: Kctl, orders: FakeCluster) -> None:
    orders.groups["g"] = FakeGroup({TopicPartition("orders", 1): 12})
    assert kctl("copy orders copy --resume-group r --partition 1 --groups g --key absent").status == 0
    groups = [request.group_id for _, request in orders.requested(OffsetCommitRequest)]
    assert groups == ["r", "g", "r"]  # the first is the start


def test_a_group_without_offsets_is_refused_before_anything_is_copied(kctl: Kctl, orders: FakeCluster) -> None:
    ran = kctl("copy orders copy --groups absent")
    assert (ran.status, contents(orders, "copy")) == (ExitStatus.FAILED, [])
    assert "group 'absent' has no committed offset in orders" in ran.err


def test_offsets_of_an_active_group_fail(kctl: Kctl, orders: FakeCluster) -> None:
    orders.groups["g"] = FakeGroup({TopicPartition("orders", 1): 11}, members=["one"])
    ran = kctl("copy orders copy --groups g")
    assert (ran.status, "UNKNOWN_MEMBER_ID" in ran.out) == (ExitStatus.FAILED, True)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("orders copy --transactional-id t", "--transactional-id requires --resume-group"),
        ("orders copy --groups g --partitions hash", "--groups requires --partitions keep"),
        ("orders copy --rate 0", "--rate: must be at least 1, not '0'"),
        ("orders copy --rate fast", "--rate: 'fast' is not a valid size"),
        ("orders narrow", "narrow has no partition 1, because it has 1 partition; use --partitions hash"),
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, cluster: FakeCluster, options: str, message: str) -> None:
    cluster.create("narrow")
    ran = kctl(f"copy {options}")
    assert (ran.status, message in ran.err) == (ExitStatus.USAGE, True), ran.err


def test_topics_that_do_not_exist(kctl: Kctl, orders: FakeCluster) -> None:
    assert "topic 'absent' does not exist" in kctl("copy absent copy").err
    assert "topic 'absent' does not exist" in kctl("copy orders absent").err
    assert contents(orders, "copy") == []


def test_a_rate_is_accepted_with_its_unit(kctl: Kctl, orders: FakeCluster) -> None:
    assert kctl("copy orders copy --rate 1m/s").status == 0
    assert contents(orders, "copy") == contents(orders, "orders")


def test_json_is_a_list_of_partitions(kctl: Kctl, orders: FakeCluster) -> None:
    del orders
    ran = kctl("copy orders copy --partition 0 --format jsonl")
    assert json.loads(ran.out) == {
        "partition": 0,
        "start": 0,
        "end": 1,
        "position": 1,
        "read": 1,
        "copied": 1,
        "bytes": 5,
        "status": "copied",
    }


def test_target_that_does_not_exist_is_named_with_the_remedy(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", 2)
    ran = kctl("copy orders replayed")
    assert ran.status == 1
    assert "topic 'replayed' does not exist: 'kctl topics create replayed --partitions 2' creates it" in ran.err


def numbered(count: int, prefix: bytes = b"") -> bytes:
    return build_batch([Record(0, 1_000, None, prefix + b"%d" % number, ()) for number in range(count)])


@pytest.fixture
def halfway(kctl: Kctl, cluster: FakeCluster) -> FakeCluster:
    """A topic of which 200 records were copied, in batches of 50."""
    (log,) = cluster.create("orders")
    for _ in range(4):
        log.append(numbered(50))
    cluster.create("copy")
    assert kctl("copy orders copy --resume-group r").status == 0
    return cluster


@pytest.mark.long
def test_progress_that_cannot_be_trusted_is_refused_with_the_choices(kctl: Kctl, halfway: FakeCluster) -> None:
    """What happened, the reason, and how many records each choice copies (None: it is refused too)."""
    tp = TopicPartition("orders", 0)
    log, copy, group = halfway.topics["orders"][0], halfway.topics["copy"][0], halfway.groups["r"]

    def recreate(count: int) -> None:
        halfway.create("orders")[0].append(numbered(count, b"new"))

    def recreate_without_ids(count: int) -> None:
        halfway.topic_ids.pop("orders")
        halfway.create("orders")[0].append(numbered(count, b"new"))
        halfway.topic_ids.pop("orders")

    def expire() -> None:
        halfway.groups.pop("r")

    def empty_target() -> None:
        halfway.create("copy")

    def elect_uncleanly() -> None:
        unclean = halfway.topics["orders"][0]
        unclean.elect(leader=0, end=100)
        unclean.append(numbered(150, b"new"))

    rows: list[tuple[Any, str, dict[str, int | None]]] = [
        (lambda: recreate(250), "source topic is another one", {"accept": 50, "rewind": None, "reset": 250}),
        (lambda: recreate(100), "source topic is another one", {"accept": 0, "rewind": None, "reset": 100}),
        (lambda: recreate_without_ids(100), "lost offsets 100 to 199", {"accept": 0, "rewind": None, "reset": 100}),
        (expire, "no progress is committed", {"accept": 200, "rewind": None, "reset": 200}),
        (empty_target, "target topic is another one", {"accept": 0, "rewind": None, "reset": 200}),
        (elect_uncleanly, "lost offsets 100 to 199", {"accept": 50, "rewind": 150, "reset": 250}),
    ]
    assert group.epochs == {tp: 0}
    mark = group.metadata[tp]
    for happen, reason, choices in rows:
        for choice, expected in choices.items():
            # As it was, in the same log objects.
            halfway.topics, halfway.topic_ids = {"orders": [log], "copy": [copy]}, {"orders": 1, "copy": 2}
            halfway.groups["r"] = FakeGroup({tp: 200}, metadata={tp: mark}, epochs={tp: 0})
            before = (bytes(log.data), log.end, list(log.epochs))
            happen()
            end = halfway.topics["copy"][0].end
            refused = kctl("copy orders copy --resume-group r --format json")
            assert (refused.status, reason in refused.err) == (ExitStatus.REFUSED, True), (reason, refused)
            assert "--progress reset" in refused.err
            assert ("--progress rewind" in refused.err) == (choices["rewind"] is not None), (reason, refused)
            assert halfway.topics["copy"][0].end == end
            ran = kctl(f"copy orders copy --resume-group r --progress {choice} --format json")
            if expected is None:
                assert ran.status == ExitStatus.REFUSED, (reason, choice)
            else:
                assert (ran.status, copied(ran)) == (0, expected), (reason, choice, ran)
                if choice != "accept" or "another one" not in reason:  # accepted once, it is trusted from now on
                    again = kctl("copy orders copy --resume-group r --format json")
                    assert (again.status, copied(again)) == (0, 0), (reason, choice, again)
            log.data, log.end, log.epochs = bytearray(before[0]), before[1], before[2]
            del copy.data[:]
            copy.end = 200


def test_progress_without_a_mark_is_continued_with_a_warning(kctl: Kctl, halfway: FakeCluster) -> None:
    tp = TopicPartition("orders", 0)
    halfway.groups["r"] = FakeGroup({tp: 150})
    ran = kctl("copy orders copy --resume-group r --format json")
    assert (ran.status, copied(ran)) == (0, 50)
    assert "group 'r' does not say which topics its offsets are of" in ran.err
    assert "does not say" not in kctl("copy orders copy --resume-group r").err


def test_partition_that_was_added_to_the_source_is_copied_from_its_start(kctl: Kctl, cluster: FakeCluster) -> None:
    (log,) = cluster.create("orders")
    log.append(numbered(5))
    cluster.create("copy")
    line = "copy orders copy --resume-group r --partitions hash --format json"
    assert copied(kctl(line)) == 5
    cluster.topics["orders"].append(FakePartition(0))
    cluster.topics["orders"][1].append(numbered(3))
    assert copied(kctl(line)) == 3


def test_truncation_during_a_copy_stops_it(kctl: Kctl, cluster: FakeCluster) -> None:
    (log,) = cluster.create("orders")
    for _ in range(2):
        log.append(numbered(50))
    cluster.create("copy")
    fetched = 0

    def lose(request: Any) -> Any:
        nonlocal fetched
        fetched += 1
        response = cluster._fetch(0, request)
        if fetched == 1:
            data = response.responses[0].partitions[0]
            data.records = data.records[: next(iterate_batches(data.records)).end]
        if fetched == 2:
            log.elect(leader=0, end=0)
            log.append(numbered(100, b"new"))
            response = cluster._fetch(0, request)
        return response

    cluster.intercept(FetchRequest, lose)
    ran = kctl("copy orders copy --resume-group r")
    assert (ran.status, "offsets 0 to 49" in ran.err) == (ExitStatus.REFUSED, True), ran
    again = kctl("copy orders copy --resume-group r --progress reset --format json")
    assert (again.status, copied(again)) == (0, 100)
