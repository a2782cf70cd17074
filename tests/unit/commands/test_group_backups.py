"""kctl groups restore, history, export, import, and the backups of the verbs that change offsets."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kctl.admin.groups.offsets import OffsetDocument
from kctl.admin.groups.undo_files import OFFSET_BACKUPS_MAX, backups_of, save_backup
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.protocol.consumer_protocol import ConsumerProtocolAssignment, TopicPartitions, encode_assignment
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_groups import member

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
MINUTE = 60_000


@pytest.fixture
def billing(cluster: FakeCluster) -> FakeGroup:
    """A group without members in `orders`, whose three partitions have offsets 10 to 40."""
    for partition in cluster.create("orders", leaders=3):
        partition.append(build_batch([Record(0, number, None, b"x") for number in range(40)]))
        partition.start = 10
    group = cluster.groups["billing"] = FakeGroup({P0: 30, P1: 15})
    return group


def backups(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state").rglob("offsets-*.json"))


def now_ms() -> int:
    return round(time.time() * 1000)


class Log:
    """The only partition of __consumer_offsets."""

    def __init__(self, cluster: FakeCluster) -> None:
        (self._partition,) = cluster.create("__consumer_offsets", leaders=1)

    def commit(self, age_ms: int, tp: TopicPartition, offset: int | None, *, group: str = "billing") -> None:
        """A commit, or the deletion of an offset."""
        time_ms = now_ms() - age_ms
        value = None
        if offset is not None:
            commit = OffsetCommitValue(offset=offset, leader_epoch=7, metadata=f"m{offset}", commit_timestamp=time_ms)
            value = encode_offset_commit_value(commit, 3)
        self._append(time_ms, encode_offset_commit_key(group, tp.topic, tp.partition), value)

    def rebalance(self, age_ms: int, generation: int, client_id: str, partitions: list[int]) -> None:
        """A generation of the group with one member."""
        assignment = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartitions(topic="orders", partitions=partitions)], user_data=None
        )
        only = MemberMetadata(
            member_id=f"{client_id}-1",
            client_id=client_id,
            client_host="/10.0.0.1",
            session_timeout=1,
            subscription=b"",
            assignment=encode_assignment(assignment),
        )
        value = GroupMetadataValue(
            protocol_type="consumer", generation=generation, protocol="range", leader="x", members=[only]
        )
        self._append(now_ms() - age_ms, encode_group_metadata_key("billing"), encode_group_metadata_value(value, 3))

    def _append(self, time_ms: int, key: bytes, value: bytes | None) -> None:
        self._partition.append(build_batch([Record(0, time_ms, key, value)]))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("reset-offsets billing --topic orders --to-latest --yes", {P0: 40, P1: 40, P2: 40}),
        ("delete-offsets billing --topic orders:0 --yes", {P1: 15}),
        ("delete billing --yes", None),
    ],
)
def test_a_change_is_undone_from_its_backup(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, tmp_path: Path, line: str, left: dict[TopicPartition, int]
) -> None:
    ran = kctl(f"groups {line}")
    assert ran.status == 0
    assert (cluster.groups["billing"].offsets if "billing" in cluster.groups else None) == left
    (saved,) = backups(tmp_path)
    assert f"backup of the committed offsets: {saved}" in ran.err
    shown = kctl("groups restore billing")
    assert (shown.status, {row[6] for row in shown.rows}) == (0, {"would be restored"})
    assert (cluster.groups["billing"].offsets if "billing" in cluster.groups else None) == left
    ran = kctl("groups restore billing --yes")
    assert [(row[2], row[4], row[6]) for row in ran.rows] == [("0", "30", "restored"), ("1", "15", "restored")]
    restored = cluster.groups["billing"].offsets
    assert (restored[P0], restored[P1]) == (30, 15)


@pytest.mark.usefixtures("billing")
def test_no_backup_without_a_change(kctl: Kctl, tmp_path: Path) -> None:
    for line in (
        "reset-offsets billing --topic orders --to-latest --dry-run",
        "reset-offsets billing --topic gone --to-latest --yes",
        "reset-offsets new --topic orders --to-latest --yes",
        "delete billing --dry-run",
        "delete-offsets billing --topic orders --dry-run",
        "reset-offsets billing --topic orders --to-latest --yes --no-backup",
    ):
        kctl(f"groups {line}")
        assert backups(tmp_path) == [], line


def test_nothing_is_changed_without_the_requested_backup(kctl: Kctl, billing: FakeGroup, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for line in (
        "reset-offsets billing --topic orders --to-latest --yes",
        "delete-offsets billing --topic orders --yes",
        "delete billing --yes",
    ):
        ran = kctl(f"groups {line} --backup-dir {tmp_path / 'file'}")
        assert (ran.status, billing.offsets) == (ExitStatus.REFUSED, {P0: 30, P1: 15})
        assert "--no-backup" in ran.err


def test_a_restore_warns_of_moved_offsets_and_of_partitions_without_a_saved_one(
    kctl: Kctl, billing: FakeGroup, tmp_path: Path
) -> None:
    file = tmp_path / "billing.json"
    assert kctl(f"groups export billing --topic orders:0 --file {file}").status == 0
    text = file.read_text().replace('"offset": 30', '"offset": 3')
    file.write_text(text)
    ran = kctl(f"groups restore billing --backup {file} --yes")
    assert ran.status == 0
    assert billing.offsets == {P0: 10, P1: 15}
    assert "orders-0: offset 3 lies outside of 10 to 40; it becomes 10" in ran.err
    assert "orders-1 has no saved offset; it stays at 15" in ran.err


@pytest.mark.parametrize("named", ["nope", "orders:0,9"])
def test_nothing_is_restored_or_exported_if_a_named_topic_has_no_offset(
    kctl: Kctl, billing: FakeGroup, tmp_path: Path, named: str
) -> None:
    file = tmp_path / "billing.json"
    assert kctl(f"groups export billing --file {file}").status == 0
    for line in (f"restore billing --backup {file} --yes", f"import {file} --yes", "export billing"):
        ran = kctl(f"groups {line} --topic orders:1 --topic {named}")
        assert (ran.status, ran.out, billing.offsets) == (ExitStatus.FAILED, "", {P0: 30, P1: 15})
        assert ran.err.endswith(f"topics: {'nope' if named == 'nope' else 'orders:9'}\n")


def test_one_warning_names_all_partitions_that_it_is_about(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    for partition in cluster.create("wide", leaders=14):
        partition.start, partition.end = 10, 40
    tps = [TopicPartition("wide", number) for number in range(14)]
    cluster.groups["reader"] = FakeGroup(dict.fromkeys(tps, 20))
    file = tmp_path / "reader.csv"
    file.write_text("".join(f"wide,{tp.partition},3\n" for tp in tps[:12]))
    for line in (f"import {file} --group reader", "reset-offsets reader --all-topics --to-offset 3 --dry-run"):
        warnings = [line for line in kctl(f"groups {line}").err.splitlines() if line.startswith("kctl: warning:")]
        (moved, *others) = warnings
        assert moved.count(" becomes 10)") == 10
        assert "offsets outside of their partitions become the start or end: wide-0 (3 becomes 10), " in moved
        assert moved.endswith(" and 2 more" if "import" in line else " and 4 more")
        unsaved = "reader: no saved offset for 2 partitions: wide-12 (stays at 20), wide-13 (stays at 20)"
        assert others == ([f"kctl: warning: {unsaved}"] if "import" in line else [])


def test_an_active_group_is_not_restored(kctl: Kctl, billing: FakeGroup, tmp_path: Path) -> None:
    file = tmp_path / "billing.json"
    assert kctl(f"groups export billing --file {file}").status == 0
    billing.members.append(member("m-1", 0))
    for line in (f"restore billing --backup {file}", f"import {file} --yes"):
        ran = kctl(f"groups {line}")
        assert (ran.status, ran.out) == (ExitStatus.REFUSED, "")
        assert "with m-1 (10.0.0.1)" in ran.err


def test_offsets_of_a_time_are_restored_from_the_log(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup) -> None:
    log = Log(cluster)
    log.commit(50 * MINUTE, P0, 11)
    log.commit(45 * MINUTE, P0, 99, group="audit")
    log.commit(40 * MINUTE, P0, 12)
    log.commit(40 * MINUTE, P2, 13)
    log.commit(35 * MINUTE, P2, None)
    log.commit(20 * MINUTE, P0, 30)
    log.commit(20 * MINUTE, P1, 15)
    log.commit(20 * MINUTE, TopicPartition("orders", 3), 5)
    refused = kctl("groups restore billing --at -30m --yes")  # the topic has never had the leader epoch 7
    assert (refused.status, "not in it any more" in refused.err) == (ExitStatus.REFUSED, True), refused
    for partition in cluster.topics["orders"]:
        partition.epochs = [(7, 0)]
    ran = kctl("groups restore billing --at -30m --yes")
    assert [(row[2], row[3], row[4], row[6]) for row in ran.rows] == [("0", "30", "12", "restored")]
    assert billing.offsets == {P0: 12, P1: 15}
    assert "orders-1, orders-3: there is no commit at or before" in ran.err
    assert "orders-2: the committed offset had been deleted before" in ran.err
    ((_, request),) = cluster.requested(OffsetCommitRequest)
    assert request.topics[0].partitions[0].committed_metadata == "m12"
    assert kctl("groups restore billing --at -55m --yes").status == ExitStatus.FAILED


def test_history_names_offsets_times_and_members(kctl: Kctl, cluster: FakeCluster) -> None:
    log = Log(cluster)
    log.commit(30 * MINUTE, P0, 1)
    log.rebalance(20 * MINUTE, 4, "app", [0])
    log.commit(15 * MINUTE, P0, 20)
    log.commit(14 * MINUTE, P1, 8)
    log.commit(13 * MINUTE, TopicPartition("other", 0), 5)
    log.commit(12 * MINUTE, P0, None)
    rows = kctl("groups history billing --topic orders --since -25m --format json").document
    shown = [
        (row["partition"], row["offset"], row["metadata"], row["change"], row["generation"], row["client_id"])
        for row in rows
    ]
    assert shown == [
        (0, 20, "m20", "committed", 4, "app"),
        (1, 8, "m8", "committed", 4, None),
        (0, None, None, "deleted", 4, None),
    ]
    assert (rows[0]["member_id"], rows[0]["host"], rows[0]["leader_epoch"]) == ("app-1", "10.0.0.1", 7)
    assert kctl("groups history billing --topic-regex ord.* --since -25m --format json").document == rows
    assert kctl("groups history billing --topic-regex ord.* --topic orders").status == ExitStatus.USAGE
    ran = kctl("groups history billing --limit 1 --format json")
    assert [row["change"] for row in ran.document] == ["deleted"]
    assert "4 older commits are left out" in ran.err


def test_history_of_a_group_that_does_not_exist_is_a_failure(kctl: Kctl, cluster: FakeCluster) -> None:
    log = Log(cluster)
    cluster.groups["quiet"] = FakeGroup({P1: 12})
    unknown = kctl("groups history billing --format json")
    assert (unknown.status, unknown.document["error"]["code"]) == (ExitStatus.FAILED, "GROUP_ID_NOT_FOUND")
    ran = kctl("groups history quiet --format json")
    assert (ran.status, ran.document) == (ExitStatus.DONE, [])
    log.commit(15 * MINUTE, P0, 20)  # of billing, which has been deleted since
    assert kctl("groups history billing").status == ExitStatus.DONE
    assert kctl("groups history billing --topic nope").status == ExitStatus.FAILED


def test_history_without_the_internal_topic(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    assert kctl("groups history billing").status == ExitStatus.FAILED


@pytest.mark.parametrize("form", ["json", "csv"])
def test_offsets_are_exported_and_imported(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, tmp_path: Path, form: str
) -> None:
    cluster.groups["a,b"] = FakeGroup({P1: 12})
    file = tmp_path / "offsets"
    file.write_text(kctl(f"groups export --all --as {form}").out)
    billing.offsets.clear()
    del cluster.groups["a,b"]
    assert kctl(f"groups import {file}").status == 0
    assert billing.offsets == {}
    ran = kctl(f"groups import {file} --yes")
    assert [(row[0], row[2], row[4], row[6]) for row in ran.rows] == [
        ("a,b", "1", "12", "imported"),
        ("billing", "0", "30", "imported"),
        ("billing", "1", "15", "imported"),
    ]
    assert (billing.offsets, cluster.groups["a,b"].offsets) == ({P0: 30, P1: 15}, {P1: 12})
    assert kctl(f"groups import {file} --group nope --yes").status == ExitStatus.USAGE


def test_csv_without_groups_is_imported_for_a_named_one(kctl: Kctl, billing: FakeGroup, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(kctl("groups export billing --as csv").out)
    assert file.read_text() == "orders,0,30\norders,1,15\n"
    assert kctl(f"groups import {file} --yes").status == ExitStatus.USAGE
    billing.offsets.clear()
    assert kctl(f"groups import {file} --group billing --yes").status == 0
    assert billing.offsets == {P0: 30, P1: 15}


@pytest.mark.usefixtures("billing")
def test_an_export_never_overwrites_a_file(kctl: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text("mine")
    assert kctl(f"groups export billing --file {file}").status == ExitStatus.REFUSED
    assert file.read_text() == "mine"


def test_a_future_time_is_refused(kctl: Kctl) -> None:
    ran = kctl("groups restore billing --at 2999-01-01 --yes")
    assert (ran.status, ran.err) == (2, "kctl: --at 2999-01-01 is in the future: 2999-01-01T00:00:00.000Z\n")


@pytest.mark.parametrize(
    "line",
    [
        "groups restore billing --backup {file}",
        "groups import {file}",
        "groups reset-offsets billing --from-file {file} --dry-run",
        "reassign verify {file}",
        "elect --preferred --path-to-json-file {file}",
    ],
)
def test_a_file_that_is_not_utf_8_is_named_once_with_the_byte(kctl: Kctl, tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(b"{}\xff\xfe")
    ran = kctl(line.format(file=file))
    assert (ran.status, ran.err) == (2, f"kctl: {file} is not UTF-8: byte 0xff at 2\n")


def test_damaged_json_is_not_taken_for_csv(kctl: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('[{"version": 1')
    assert "not JSON" in kctl(f"groups import {file}").err


@pytest.mark.usefixtures("billing")
@for_rows(
    "change",
    [
        {"version": 2},
        {"groups": None},
        {"groups": [{"group": 1, "offsets": []}]},
        {"groups": [{"group": "billing", "offsets": [{"topic": "", "partition": 0, "offset": 1}]}]},
        {"groups": [{"group": "billing", "offsets": [{"topic": "orders", "partition": -1, "offset": 1}]}]},
        {"groups": [{"group": "billing", "offsets": [{"topic": "orders", "partition": 0, "offset": -1}]}]},
        {"groups": [{"group": "billing", "offsets": [{"topic": "orders", "partition": 0, "offset": 1 << 63}]}]},
        {"groups": [{"group": "billing", "offsets": [{"topic": "orders", "partition": 0, "offset": 1}] * 2}]},
        {"groups": [{"group": "billing", "offsets": []}] * 2},
        {"groups": []},
    ],
)
def test_malformed_files_are_refused(kctl: Kctl, tmp_path: Path, change: dict[str, object]) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "groups": []} | change))
    for line in (f"restore billing --backup {file}", f"import {file}"):
        assert kctl(f"groups {line} --execute").status == ExitStatus.USAGE


def test_the_oldest_backups_are_deleted_and_none_is_overwritten(tmp_path: Path) -> None:
    def save(offset: int) -> Path:
        document = OffsetDocument(
            "c",
            f"2026-11-21T09:30:00.{offset // 2:03}Z",
            "delete",
            {"billing": {P0: CommittedOffset(offset, 3, "m\u00e9")}},
        )
        return save_backup(tmp_path, document)

    paths = [save(offset) for offset in range(OFFSET_BACKUPS_MAX + 2)]
    assert len(set(paths)) == OFFSET_BACKUPS_MAX + 2
    assert [path.exists() for path in paths] == [False, False] + [True] * OFFSET_BACKUPS_MAX
    paths[-1].write_text("{")
    path, document = next(backups_of(tmp_path, "billing"))
    assert path == paths[-2]
    assert document.groups == {"billing": {P0: CommittedOffset(OFFSET_BACKUPS_MAX, 3, "m\u00e9")}}
    assert list(backups_of(tmp_path, "other")) == []


def test_export_of_all_groups_of_a_cluster_without_groups_is_an_empty_document(
    kctl: Kctl, cluster: FakeCluster
) -> None:
    assert not cluster.groups
    ran = kctl("groups export --all")
    assert (ran.status, json.loads(ran.out)["groups"]) == (ExitStatus.DONE, [])


def test_backup_of_a_topic_that_was_created_again_is_refused(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup, tmp_path: Path
) -> None:
    exported = kctl("groups export billing")
    assert exported.document["topic_ids"].keys() == {"orders"}
    file = tmp_path / "offsets.json"
    file.write_text(exported.out)
    before = dict(billing.offsets)
    for partition in cluster.create("orders", 3):
        partition.end = 1_000
    for verb, arguments in (("restore", f"billing --backup {file}"), ("import", str(file))):
        refused = kctl(f"groups {verb} {arguments} --execute")
        assert (refused.status, "deleted and created again" in refused.err) == (ExitStatus.REFUSED, True), refused
        assert kctl(f"groups {verb} {arguments} --execute --accept-lost").status == 0, verb
    assert billing.offsets == before
    cluster.cluster_id = "another"  # the ids of topics in another cluster say nothing
    assert kctl(f"groups import {file} --yes").status == 0
