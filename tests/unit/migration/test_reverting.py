"""A metadata log becomes znodes: what 4.x has changed and nothing else, and what cannot be carried is named."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kctl.errors import UsageError
from kctl.migration.converting.conversion import convert, has_started, restore
from kctl.migration.reverting.going_back import is_interrupted, take_back, versions_read, write_znodes
from kctl.migration.reverting.image import Image, partitions_elsewhere, replay
from kctl.migration.reverting.internal_topics import SINCE_0_11, SINCE_2_3, rewrite_directory
from kctl.migration.reverting.metadata_log import (
    LogEnd,
    MetadataLog,
    check_not_older,
    parse_log_end,
    read_metadata_log,
    unknown_ends,
)
from kctl.migration.reverting.znode_changes import ZnodeChanges, znode_changes
from kctl.migration.source.cluster import StoredCluster, Znode, parse_cluster
from kctl.migration.source.reading import read_znodes
from kctl.migration.target.snapshot import METADATA_FOLDER, read_messages
from kctl.model import ZERO_UUID
from kctl.protocol.codec import encode_bytes, encode_versioned, version_of
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal import metadata_records as metadata
from kctl.records.internal.metadata_records import encode_cluster_metadata
from kctl.records.internal.topics import (
    GroupMetadataValue,
    OffsetCommitValue,
    TransactionLogValue,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_offset_commit_key,
    encode_transaction_key,
)
from kctl.security.acls import AclEntry, Operation, Permission
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, znodes
from tests.unit.migration.stored_cluster import LOGS, ORDERS, ZNODES, contents, disk, planned, stored

NEW_TOPIC = UUID("00000000-0000-4000-8000-0000000000aa")


def _messages() -> list[Any]:
    return list(read_messages(planned(disk())[0].snapshot))


def _changes(more: Sequence[Any], cluster: StoredCluster | None = None) -> ZnodeChanges:
    """What is written after these changes on 4.x, without the leader epochs and producer ids of the logs."""
    changes = znode_changes(replay([*_messages(), *more]), cluster or stored())
    of_logs = znode_changes(replay(_messages()), stored()).writes
    changes.writes = [write for write in changes.writes if write not in of_logs]
    return changes


def _by_path(changes: ZnodeChanges) -> dict[str, bytes]:
    """The data of each znode that is written; empty for one that is deleted."""
    return {path: data or b"" for path, data in changes.writes}


def test_a_cluster_that_4_has_not_changed_needs_leader_epochs_and_producer_ids_only() -> None:
    changes = znode_changes(replay(_messages()), stored())
    assert changes.not_carried == []
    assert _by_path(changes).keys() == {
        *(paths.partition_state("orders", partition) for partition in (0, 1)),
        paths.partition_state("old", 0),
        paths.LATEST_PRODUCER_ID_BLOCK,
    }
    state = znodes.decode_partition_state("", _by_path(changes)[paths.partition_state("orders", 0)], 0)
    assert (state.leader_epoch, state.isr) == (6, (1, 2))
    block = znodes.decode_producer_id_block("", _by_path(changes)[paths.LATEST_PRODUCER_ID_BLOCK])
    assert block is not None
    assert block.block_end == 4321


def test_changes_of_partitions_are_carried_with_their_leader_epochs() -> None:
    changed = metadata.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[2], leader=2)
    changes = _changes([changed, changed])
    ((path, _),) = changes.writes
    assert path == paths.partition_state("orders", 0)
    state = znodes.decode_partition_state(path, _by_path(changes)[path], 0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 8, (2,))


def test_an_empty_isr_becomes_the_replicas_that_may_be_elected() -> None:
    """Before KIP-966 a partition with an empty ISR has no leader again."""

    def carried(*changed: object) -> tuple[tuple[int, ...], int]:
        changes = _changes(changed)
        ((path, _),) = changes.writes
        assert path == paths.partition_state("orders", 0)
        return znodes.decode_partition_state(path, _by_path(changes)[path], 0).isr, len(changes.not_carried)

    stopped = metadata.PartitionChangeRecord(
        partition_id=0, topic_id=ORDERS, isr=[], leader=-1, eligible_leader_replicas=[2], last_known_elr=[]
    )
    assert carried(stopped) == ((2,), 0)
    lost = replace(stopped, eligible_leader_replicas=[], last_known_elr=[1])
    assert carried(lost) == ((1,), 1)
    back = metadata.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[1], leader=1)
    assert carried(stopped, back, metadata.ClearElrRecord(topic_name="orders")) == ((1,), 0)


def test_partitions_of_brokers_that_were_added_on_4_are_found() -> None:
    moved = metadata.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[3], replicas=[3, 1])
    grown = metadata.PartitionChangeRecord(partition_id=1, topic_id=ORDERS, isr=[2, 3], replicas=[2, 3])
    image = replay([*_messages(), moved, grown])
    assert partitions_elsewhere(image, [1, 2]) == (["orders-0"], ["orders-1"])
    assert partitions_elsewhere(replay(_messages()), [1, 2]) == ([], [])


def test_defaults_of_all_brokers_are_carried_with_a_warning_for_the_oldest() -> None:
    default = metadata.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")
    assert _changes([default]).not_carried == []
    before_ids = replace(stored(), topics={"old": stored().topics["old"]})
    changes = znode_changes(replay([*_messages(), default]), before_ids)
    assert [text for text in changes.not_carried if "Kafka before 1.1" in text]


def test_topics_that_4_has_created_and_deleted_are_carried() -> None:
    created = [
        metadata.TopicRecord(name="new", topic_id=NEW_TOPIC),
        metadata.PartitionRecord(
            partition_id=0, topic_id=NEW_TOPIC, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[],
            leader=1, leader_epoch=3, partition_epoch=0, directories=[ZERO_UUID],
        ),
        metadata.ConfigRecord(resource_type=2, resource_name="new", name="retention.ms", value="5"),
        metadata.RemoveTopicRecord(topic_id=ORDERS),
    ]  # fmt: skip
    changes = _changes(created)
    assert _by_path(changes).keys() == {
        paths.topic("new"), paths.topic_config("new"), paths.partition_state("new", 0),
        paths.topic("orders"), paths.topic_config("orders"),
    }  # fmt: skip
    assert (paths.topic("orders"), None) in changes.writes
    assignment = znodes.decode_topic("", _by_path(changes)[paths.topic("new")])
    assert (assignment.replicas, assignment.topic_id) == ({0: (1,)}, NEW_TOPIC)


def test_properties_that_4_does_not_have_stay_and_changes_are_carried() -> None:
    changes = _changes([metadata.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="9")])
    config = znodes.decode_config("", _by_path(changes)[paths.topic_config("orders")])
    assert config == {"segment.bytes": "4096", "message.format.version": "2.8", "retention.ms": "9"}


def test_security_is_carried_both_ways() -> None:
    (acl,) = (message for message in _messages() if type(message) is metadata.AccessControlEntryRecord)
    added = replace(acl, id=NEW_TOPIC, principal="User:bob")
    changes = _changes(
        [
            added,
            metadata.RemoveAccessControlEntryRecord(id=acl.id),
            metadata.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        ]
    )
    assert _by_path(changes).keys() == {"/kafka-acl/Topic/orders", "/config/users/alice"}
    assert znodes.decode_config("", _by_path(changes)["/config/users/alice"]) == {"producer_byte_rate": "5"}
    cluster = parse_cluster(ZNODES | {path: Znode(data) for path, data in _by_path(changes).items()})
    assert [binding.entry for binding in cluster.acls] == [AclEntry("User:bob", "*", Operation.READ, Permission.ALLOW)]


def test_what_zookeeper_cannot_store_is_named() -> None:
    (acl,) = (message for message in _messages() if type(message) is metadata.AccessControlEntryRecord)
    changes = _changes(
        [
            metadata.ConfigRecord(
                resource_type=32, resource_name="team", name="consumer.session.timeout.ms", value="9"
            ),
            replace(acl, id=NEW_TOPIC, resource_type=7, resource_name="User:x", operation=13),
            metadata.ConfigRecord(resource_type=2, resource_name="orders", name="compression.zstd.level", value="9"),
        ]
    )
    assert len(changes.not_carried) == 3
    assert [text for text in changes.not_carried if "group team" in text]
    assert [text for text in changes.not_carried if "User:x" in text]
    assert [text for text in changes.not_carried if "compression.zstd.level" in text]


def test_transactions_of_the_metadata_log_that_were_aborted_or_have_no_end_are_left_out() -> None:
    config = metadata.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="9")
    begin, end = metadata.BeginTransactionRecord(), metadata.EndTransactionRecord()

    def value(messages: Sequence[Any]) -> str | None:
        return replay([*_messages(), *messages]).configs[2, "orders"].get("retention.ms")

    assert value([begin, config]) is None
    assert value([begin, config, metadata.AbortTransactionRecord()]) is None
    assert value([begin, config, end]) == "9"


def test_znodes_are_written_and_a_second_run_finds_nothing_to_write() -> None:
    change = metadata.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[2], leader=2)
    again = metadata.TopicRecord(name="old", topic_id=NEW_TOPIC)
    old_id = next(message.topic_id for message in _messages() if getattr(message, "name", "") == "old")
    image = replay([*_messages(), change, metadata.RemoveTopicRecord(topic_id=old_id), again])

    async def main(_: SimLoop) -> None:
        session = SimZooKeeper().session()
        await session.start(1000)
        for path, znode in ZNODES.items():
            if path != "/":
                await session.create(path, znode.data, make_parents=True)
        changes = znode_changes(image, parse_cluster(await read_znodes(session)))
        assert changes.writes
        await write_znodes(session, changes)
        after = znode_changes(image, parse_cluster(await read_znodes(session)))
        assert after.writes == []

    simulate(main, seed=1)


# The directories of a node.

VALUE_4 = OffsetCommitValue(offset=7, leader_epoch=3, metadata="m", commit_timestamp=5, topic_id=ORDERS)
GROUP_4 = GroupMetadataValue(
    protocol_type="consumer", generation=3, protocol=None, leader=None, current_state_timestamp=5, members=[]
)
OFFSETS_LOG = "/a/__consumer_offsets-0/00000000000000000000.log"


def _offsets_segment() -> bytes:
    newer_kind = encode_offset_commit_key("g", "t", 0)[:0] + (3).to_bytes(2, "big") + b"\0\1g"
    records = [
        Record(0, 11, encode_offset_commit_key("g", "t", 0), encode_versioned(VALUE_4, 4)),
        Record(1, 12, encode_group_metadata_key("g"), encode_versioned(GROUP_4, 4)),
        Record(2, 13, newer_kind, b"\0\0\0"),
        Record(3, 14, encode_offset_commit_key("g", "t", 1), None),
    ]
    first = build_batch(records, base_offset=0, leader_epoch=5, producer_id=9, producer_epoch=1, base_sequence=4)
    old = [Record(0, 15, encode_offset_commit_key("g", "t", 2), encode_versioned(VALUE_4, 3))]
    return first + build_batch(old, base_offset=4, leader_epoch=5)


def _disk_of_4() -> SimFiles:
    files = disk({**LOGS, 1: {"/a": ["orders-0", "old-0", "__consumer_offsets-0"], "/b": ["orders-1"]}})
    files.write_atomically(OFFSETS_LOG, _offsets_segment())
    return files


def test_values_of_internal_topics_are_those_of_older_brokers_and_all_else_stays() -> None:
    files = _disk_of_4()
    original = _offsets_segment()
    (rewritten,) = rewrite_directory(files, "/a")
    assert (rewritten.path, rewritten.records, rewritten.removed) == (OFFSETS_LOG, 3, 1)
    view = memoryview(files.read(OFFSETS_LOG))
    headers, before = list(iterate_batches(view)), list(iterate_batches(memoryview(original)))
    for header, old in zip(headers, before, strict=True):
        kept = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        assert [getattr(header, name) for name in kept] == [getattr(old, name) for name in kept]
    records = [record for header in headers for record in iterate_records(view, header)]
    assert [(record.offset, record.timestamp) for record in records] == [(0, 11), (1, 12), (3, 14), (4, 15)]
    assert [record.value and version_of(record.value) for record in records] == [3, 3, None, 3]
    assert decode_offset_commit_value(records[0].value or b"") == replace(VALUE_4, topic_id=ZERO_UUID)
    assert files.read(OFFSETS_LOG + ".kraft") == original
    assert rewrite_directory(files, "/a") == []


def test_values_are_those_of_brokers_before_2_1_if_the_cluster_was_older_than_2_4() -> None:
    assert versions_read({"/a/meta.properties": b"version=0\nbroker.id=1\n"}) == SINCE_0_11
    assert versions_read({"/a/meta.properties": b"version=0\nbroker.id=1\ncluster.id=c\n"}) == SINCE_2_3
    files = _disk_of_4()
    (rewritten,) = rewrite_directory(files, "/a", SINCE_0_11)
    assert (rewritten.records, rewritten.removed) == (4, 1)
    view = memoryview(files.read(OFFSETS_LOG))
    records = [record for header in iterate_batches(view) for record in iterate_records(view, header)]
    assert [record.value and version_of(record.value) for record in records] == [1, 1, None, 1]
    value = decode_offset_commit_value(records[0].value or b"")
    assert value == replace(VALUE_4, topic_id=ZERO_UUID, leader_epoch=-1)


def test_transactions_are_those_of_older_brokers() -> None:
    files = disk({1: {"/a": ["__transaction_state-0"]}})
    value = TransactionLogValue(
        producer_id=1, producer_epoch=2, transaction_timeout_ms=3, transaction_status=0, transaction_partitions=None,
        transaction_last_update_timestamp_ms=5, transaction_start_timestamp_ms=-1, client_transaction_version=2,
    )  # fmt: skip
    record = Record(0, 1, encode_transaction_key("t"), encode_versioned(value, 1))
    path = "/a/__transaction_state-0/00000000000000000000.log"
    files.write_atomically(path, build_batch([record]))
    assert rewrite_directory(files, "/a")
    view = memoryview(files.read(path))
    (header,) = iterate_batches(view)
    (rewritten,) = iterate_records(view, header)
    assert version_of(rewritten.value or b"") == 0


def _node_of_4() -> tuple[SimFiles, Any]:
    """A node that 4.x has run on: a change of a property is in its metadata log, of epoch 3."""
    files = _disk_of_4()
    plan, _ = planned(files)
    convert(files, plan, plan.nodes[1])
    folder = f"/a/{METADATA_FOLDER}"
    change = metadata.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="9")
    record = Record(0, 1, None, encode_cluster_metadata(change, 0))
    voters = [metadata.LeaderChangeVoter(voter_id=number) for number in (1, 2, 3)]
    elected = metadata.LeaderChangeMessage(version=0, leader_id=1, voters=voters, granting_voters=[])
    control = Record(0, 1, struct.pack(">hh", 0, 2), encode_bytes(elected, 0))
    batches = build_batch([control], base_offset=1, leader_epoch=3, is_control=True)
    batches += build_batch([record], base_offset=2, leader_epoch=3)
    files.write_atomically(f"{folder}/{1:020d}.log", batches)
    files.write_atomically(f"{folder}/quorum-state", b"{}")
    return files, plan


def test_a_metadata_log_has_its_state_its_end_and_the_voters() -> None:
    files, _ = _node_of_4()
    log = read_metadata_log(files, "/a")
    assert log.image.configs[2, "orders"]["retention.ms"] == "9"
    assert log.end == LogEnd(3, 3)
    assert log.voters == {1, 2, 3}
    segment = f"/a/{METADATA_FOLDER}/{1:020d}.log"
    data = files.read(segment)
    files.write_atomically(segment, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UsageError, match="wrong checksum"):
        read_metadata_log(files, "/a")


def test_records_of_4_4_are_read_and_those_of_unknown_types_are_refused() -> None:
    """UnregisterControllerRecord has type 29 in Kafka 4.4: metadata/src/main/resources/common/metadata."""
    files, _ = _node_of_4()
    segment = f"/a/{METADATA_FOLDER}/{1:020d}.log"
    before = files.read(segment)

    def append(value: bytes) -> None:
        batch = build_batch([Record(0, 1, None, value, ())], base_offset=3, leader_epoch=3)
        files.write_atomically(segment, before + batch)

    append(bytes.fromhex("011d000000000900"))  # frame version 1, type 29, version 0, controller 9, no tagged fields
    assert read_metadata_log(files, "/a").end == LogEnd(3, 4)
    append(bytes.fromhex("011e000000000900"))
    with pytest.raises(UsageError, match=r"type 30.*a newer kctl is needed"):
        read_metadata_log(files, "/a")


def test_a_metadata_log_is_carried_only_if_it_has_all_that_was_committed() -> None:
    controllers = frozenset({1, 2, 3})
    log = MetadataLog(Image(), LogEnd(5, 700), frozenset())

    def refusal(ends: dict[int, LogEnd], log: MetadataLog = log) -> str:
        try:
            check_not_older(1, log, ends)
            return unknown_ends(1, log, controllers, ends) or ""
        except UsageError as error:
            return str(error)

    assert "on 1 more of 2, 3, and give what it shows: --metadata-end" in refusal({})
    assert refusal({2: LogEnd(5, 700)}) == ""
    assert refusal({3: LogEnd(4, 900)}) == ""
    assert "controller 3 ends at 5:701" in refusal({2: LogEnd(5, 700), 3: LogEnd(5, 701)})
    assert "carry that of 2 with --node 2" in refusal({2: LogEnd(6, 1)})
    assert "node 4 is no voter" in refusal({4: LogEnd(1, 1)})
    # The quorum has changed on 4.x.
    assert refusal({}, MetadataLog(Image(), LogEnd(5, 700), frozenset({1}))) == ""
    five = MetadataLog(Image(), LogEnd(5, 700), frozenset({1, 2, 3, 4, 5}))
    assert "on 1 more of 3, 4, 5" in refusal({2: LogEnd(5, 1)}, five)


def test_an_end_is_read_as_it_is_shown() -> None:
    assert parse_log_end(f"2={LogEnd(9, 4711)}") == (2, LogEnd(9, 4711))
    for text in ("2=9", "2", "2=9:", "-1=2:3", "1=2:3x", "1=2:-3"):
        with pytest.raises(UsageError, match="NODE=EPOCH:OFFSET"):
            parse_log_end(text)


@pytest.mark.long
def test_a_node_is_taken_back_after_an_interruption_at_each_operation() -> None:
    """A part of a metadata log is never carried."""

    def run(files: SimFiles, plan: Any) -> None:
        node = plan.nodes[1]
        has_run = has_started(files, plan, node)
        if has_run:
            assert read_metadata_log(files, "/a").image.configs[2, "orders"]["retention.ms"] == "9"
        if has_run or is_interrupted(files, node):
            take_back(files, node)
        restore(files, plan, node)

    files, plan = _node_of_4()
    start = files.operations
    run(files, plan)
    count = files.operations - start
    expected = contents(files)
    assert expected["/a/kctl-reverted.__cluster_metadata-0.quorum-state"] == b"{}"
    assert not {path for path in expected if METADATA_FOLDER + "/" in path}
    assert expected["/a/meta.properties"] == contents(_disk_of_4())["/a/meta.properties"]
    for number in range(1, count + 1):
        files, plan = _node_of_4()
        files.fail_at(number)
        with pytest.raises((OSError, UsageError)):
            run(files, plan)
        files.kill()
        run(files, plan)
        after = {path: data for path, data in contents(files).items() if not path.endswith((".tmp", ".reverted"))}
        assert after == expected, number


def test_the_metadata_log_of_an_earlier_way_back_is_kept() -> None:
    files, plan = _node_of_4()
    kept = "/a/kctl-reverted.__cluster_metadata-0.quorum-state"
    files.write_atomically(kept, b"earlier")
    take_back(files, plan.nodes[1])
    assert (files.read(kept), files.read(f"{kept}.1")) == (b"earlier", b"{}")


def test_an_image_has_what_the_snapshot_has() -> None:
    image = replay(_messages())
    assert type(image) is Image
    assert {topic.name for topic in image.topics.values()} == {"orders", "old"}
    assert image.features["metadata.version"] == 30
