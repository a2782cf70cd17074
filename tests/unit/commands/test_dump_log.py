"""kctl dump-log shows the contents of files and all their errors."""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record, parse_header, seal
from kctl.records.internal.topics import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
    encode_transaction_key,
    encode_transaction_value,
)
from kctl.records.old_formats.legacy import build_messages
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.segments.segment import Segment
from kctl.storage.state.checkpoints import snapshot_bytes
from kctl.storage.state.producer_state import SnapshotEntry
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "dump_log"
BASE = "00000000000000000100"
T0 = 1_700_000_000_000


def batches() -> list[bytes]:
    """Offsets 100 to 105: plain records, a transaction, and the marker that aborts it."""
    plain = [Record(0, T0, b"k", b"v", (("h", b"1"),)), Record(0, T0 + 5, None, None), Record(0, T0 + 3, b"\xff", b"")]
    in_transaction = [Record(0, T0 + 10, b"a", b"x" * 50), Record(0, T0 + 11, b"b", b"y" * 50)]
    marker = EndTransactionMarker(ControlType.ABORT, coordinator_epoch=9)
    return [
        build_batch(plain, base_offset=100, leader_epoch=2),
        build_batch(
            in_transaction, base_offset=103, leader_epoch=2, is_transactional=True,
            producer_id=7, producer_epoch=1, base_sequence=0x7FFFFFFF,
        ),
        build_end_transaction_marker(
            marker, producer_id=7, producer_epoch=1, timestamp=T0 + 20, base_offset=105, leader_epoch=2
        ),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Partition 3 of `orders` with one valid file of every kind."""
    folder = tmp_path / "orders-3"
    folder.mkdir()
    data = batches()
    (folder / f"{BASE}.log").write_bytes(b"".join(data))
    second, third = len(data[0]), len(data[0]) + len(data[1])
    entries = struct.pack(">iiii", 4, second, 5, third)
    (folder / f"{BASE}.index").write_bytes(entries + bytes(80))
    (folder / f"{BASE}.timeindex").write_bytes(struct.pack(">qiqi", T0 + 5, 2, T0 + 20, 5))
    (folder / f"{BASE}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 103, 105, 106))
    producer = SnapshotEntry(7, 1, 0, 104, 1, T0 + 11, 9, -1)
    (folder / "00000000000000000106.snapshot").write_bytes(snapshot_bytes([producer]))
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("batches.plain", "--format plain --header orders-3"),
        ("batches.table", "--format table orders-3"),
        ("records.plain", f"--format plain --header --records orders-3/{BASE}.log"),
        ("everything.jsonl", "--format jsonl --records orders-3"),
    ],
)
def test_sound_files_are_shown_as_ever(kctl: Kctl, folder: Path, name: str, options: str) -> None:
    ran = kctl(f"dump-log {options}")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == (GOLDEN / name).read_text()


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_are_read(kctl: Kctl, folder: Path, codec: Codec) -> None:
    records = [Record(0, T0, b"k", b"v" * 100) for _ in range(10)]
    (folder / "00000000000000000000.log").write_bytes(build_batch(records, codec=codec))
    items = kctl("dump-log --records --format json orders-3/00000000000000000000.log").document
    assert items[0]["codec"] == codec.name.lower()
    assert [item["value"] for item in items[1:]] == ["v" * 100] * 10


def test_json_is_one_document(kctl: Kctl, folder: Path) -> None:
    document = kctl("dump-log orders-3 --records --format json").document
    lines = kctl("dump-log orders-3 --records --format jsonl").out.splitlines()
    assert document == [json.loads(line) for line in lines]


@pytest.mark.long
def test_lines_of_odd_records_are_those_of_the_document(kctl: Kctl, folder: Path) -> None:
    odd = [None, b"", b"-", b"\x1b]0;\xe2\x80\xae", b"\xff", b'"\\\n', "\u00e9\U0001f600".encode()]
    records = [
        Record(0, T0 + at, odd[at % 7], odd[at % 5], (("\u202e", odd[at % 3]), ('"', b"1")) if at % 2 else ())
        for at in range(1100)
    ]
    records[9] = records[9]._replace(timestamp=-1)
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": (1 << 31) - 9}
    for batch in (build_batch(records, base_offset=100), build_batch(records, base_offset=100, **producer)):
        (folder / f"{BASE}.log").write_bytes(batch)
        lines = kctl(f"dump-log -r --format jsonl orders-3/{BASE}.log")
        assert not set(lines.out) & set("\x1b\u202e")
        assert len(lines.out.splitlines()) == 1101
        document = kctl(f"dump-log -r --format json orders-3/{BASE}.log").document
        assert [json.loads(line) for line in lines.out.splitlines()] == document
    some = kctl(f"dump-log -r --offset 103:105 --format jsonl orders-3/{BASE}.log").out.splitlines()
    assert [json.loads(line)["type"] for line in some] == ["batch", "record", "record"]


def test_records_before_damage_are_shown(kctl: Kctl, folder: Path) -> None:
    batch = bytearray(build_batch([Record(0, T0, b"k", b"v")] * 1000, base_offset=100))
    batch[-300:] = b"\xff" * 300
    seal(batch, parse_header(batch))
    (folder / f"{BASE}.log").write_bytes(batch)
    ran = kctl(f"dump-log -r --format jsonl orders-3/{BASE}.log")
    kinds = [json.loads(line)["type"] for line in ran.out.splitlines()]
    assert ran.status == 1
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("batch", "problem", {"record"})
    assert 800 < len(kinds) < 1000
    document = kctl(f"dump-log -r --format json orders-3/{BASE}.log").document
    assert [item["type"] for item in document] == kinds


def test_offsets_are_selected(kctl: Kctl, folder: Path) -> None:
    def offsets(options: str) -> list[int]:
        return [int(row[1]) for row in kctl(f"dump-log --records orders-3/{BASE}.log {options}").rows]

    assert offsets("--offset 101:104") == [101, 102, 103]
    assert offsets("--offset 105") == [105]
    assert [row[3] for row in kctl(f"dump-log orders-3/{BASE}.log --offset 104:").rows] == ["103", "105"]


def problems(ran: Any) -> list[str]:
    """The messages of all problems; verifies that the status is 1 exactly if there is one."""
    found = [item["message"] for item in ran.document if item["error"]]
    assert all(item["error"] == "CORRUPT_MESSAGE" for item in ran.document if item["error"])
    assert ran.status == (1 if found else 0)
    return found


def damage(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_wrong_checksum_is_reported_and_the_next_batches_are_shown(kctl: Kctl, folder: Path) -> None:
    damage(folder / f"{BASE}.log", 70, b"\x55")
    ran = kctl(f"dump-log --records --format json orders-3/{BASE}.log")
    assert [message.partition(" ")[0] for message in problems(ran)] == ["checksum"]
    assert [item["offset"] for item in ran.document if item["type"] == "record"] == [103, 104, 105]


def test_torn_tail_is_reported_with_its_size(kctl: Kctl, folder: Path) -> None:
    log = folder / f"{BASE}.log"
    log.write_bytes(log.read_bytes()[:-10])
    (message,) = problems(kctl(f"dump-log --format json orders-3/{BASE}.log"))
    assert message.startswith("the remaining 68 bytes are not batches: ")


def test_zeros_after_a_crash_are_distinguished_from_garbage(kctl: Kctl, folder: Path) -> None:
    log = folder / f"{BASE}.log"
    log.write_bytes(log.read_bytes() + bytes(100))
    assert problems(kctl(f"dump-log --format json orders-3/{BASE}.log")) == [
        "100 zero bytes at the end, preallocated and not trimmed before a crash"
    ]


def test_offsets_that_go_back_are_reported(kctl: Kctl, folder: Path) -> None:
    log = folder / f"{BASE}.log"
    log.write_bytes(log.read_bytes() + batches()[0])
    message = "batch has base offset 100, expected 106"
    assert problems(kctl(f"dump-log --format json orders-3/{BASE}.log")) == [message]


@pytest.mark.parametrize(
    ("position", "data", "complaint"),
    [
        (4, struct.pack(">i", 1), "entry 104 points to 1, where the log has no batch"),
        (4, struct.pack(">i", 1 << 20), "entry 104 points to 1048576, past the end of the log"),
        (0, struct.pack(">i", 3), "entry 103 points to"),
        (8, struct.pack(">i", 1), "entry 101 at"),
    ],
)
def test_bad_entries_of_the_offset_index_are_reported(
    kctl: Kctl, folder: Path, position: int, data: bytes, complaint: str
) -> None:
    damage(folder / f"{BASE}.index", position, data)
    first, *_ = problems(kctl(f"dump-log --format json orders-3/{BASE}.index"))
    assert first.startswith(complaint)


@pytest.mark.parametrize(
    ("position", "data", "complaint"),
    [
        (0, struct.pack(">q", T0 + 4), f"entry {T0 + 4} for offset 102: the max timestamp of the batch is {T0 + 5}"),
        (20, struct.pack(">i", 9), f"entry {T0 + 20} is for offset 109, which is not in the log"),
        (12, struct.pack(">q", T0), f"entry {T0} for offset 105 is not above the one before"),
    ],
)
def test_bad_entries_of_the_time_index_are_reported(
    kctl: Kctl, folder: Path, position: int, data: bytes, complaint: str
) -> None:
    damage(folder / f"{BASE}.timeindex", position, data)
    assert complaint in problems(kctl(f"dump-log --format json orders-3/{BASE}.timeindex"))


def test_index_of_a_follower_that_points_to_the_first_of_several_batches_is_sound(kctl: Kctl, folder: Path) -> None:
    """Kafka's followers append fetched batches together and add one index entry with the last offset."""
    (folder / f"{BASE}.index").write_bytes(struct.pack(">ii", 5, 0))
    assert problems(kctl(f"dump-log --format json orders-3/{BASE}.index")) == []


def test_index_without_its_log_is_listed(kctl: Kctl, folder: Path) -> None:
    (folder / f"{BASE}.log").unlink()
    ran = kctl(f"dump-log orders-3/{BASE}.index orders-3/{BASE}.timeindex")
    assert (ran.status, len(ran.rows)) == (0, 4)


@for_rows(
    "name, complaint",
    [
        (f"{BASE}.index", "size is not a multiple of 8"),
        (f"{BASE}.timeindex", "size is not a multiple of 12"),
        (f"{BASE}.txnindex", "size is not a multiple of 34"),
        ("00000000000000000106.snapshot", "checksum"),
        ("leader-epoch-checkpoint", "1 entries, expected 0"),
        ("00000000000000000000.swap", "not a log file"),
    ],
)
def test_damaged_file_of_any_kind_is_one_problem(kctl: Kctl, folder: Path, name: str, complaint: str) -> None:
    path = folder / name
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\x01")
    assert problems(kctl(f"dump-log --format json orders-3/{name}"))[-1].startswith(complaint)


def test_file_that_is_not_there_is_one_line(kctl: Kctl, folder: Path) -> None:
    ran = kctl("dump-log nothing/00000000000000000000.log")
    assert (ran.status, ran.err) == (2, "kctl: nothing/00000000000000000000.log: No such file or directory\n")


@for_rows("name", ["nothing", "nothing.log", "orders-3/00000000000000000001.log"])
@for_rows("options", ["", "--verify-only", "--compat kafka-4", "--index-sanity-check"])
def test_missing_file_is_reported_as_missing_whatever_its_name(
    kctl: Kctl, folder: Path, name: str, options: str
) -> None:
    ran = kctl(f"dump-log {options} {name}")
    assert (ran.status, ran.out, ran.err) == (2, "", f"kctl: {name}: No such file or directory\n")


@pytest.mark.parametrize("options", ["", "--verify-only", "--compat kafka-4", "--rebuild-index"])
def test_folder_without_files_of_a_log_is_an_error(kctl: Kctl, folder: Path, options: str) -> None:
    empty = folder.parent / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("nothing of a log")
    ran = kctl(f"dump-log {options} empty")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("kctl: empty holds no files of a log")


@pytest.mark.parametrize(("suffix", "entry"), [("index", struct.pack(">ii", 5, 0)), ("timeindex", b"")])
def test_room_that_was_preallocated_for_an_index_is_not_read(
    kctl: Kctl, folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, entry: bytes
) -> None:
    path = folder / f"{BASE}.{suffix}"
    path.write_bytes(entry)
    os.truncate(path, 12 << 20)
    read = []
    pread = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        data = pread(fd, size, position)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    ran = kctl(f"dump-log --format jsonl orders-3/{BASE}.{suffix}")
    assert ran.status == 0
    assert len(ran.out.splitlines()) == bool(entry)
    assert sum(read) < 1 << 20


def test_zeros_that_were_written_behind_the_entries_of_an_index_are_room(kctl: Kctl, folder: Path) -> None:
    path = folder / f"{BASE}.index"
    path.write_bytes(struct.pack(">ii", 5, 0) + bytes(200_000))
    ran = kctl(f"dump-log --format jsonl orders-3/{BASE}.index")
    assert (ran.status, [json.loads(line)["offset"] for line in ran.out.splitlines()]) == (0, [105])


def test_files_are_never_written(kctl: Kctl, folder: Path) -> None:
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    for path in folder.iterdir():
        path.chmod(0o400)
    kctl("dump-log orders-3 --records")
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()} == before


def internal(folder: Path, records: list[tuple[bytes, bytes | None]]) -> None:
    log = build_batch([Record(0, T0, key, value) for key, value in records])
    (folder / "00000000000000000000.log").write_bytes(log)


def test_offsets_decoder_shows_groups_and_offsets(kctl: Kctl, folder: Path) -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="orders", partitions=[1, 0])])
    member = MemberMetadata(
        member_id="m-1", client_id="app", client_host="/10.0.0.1", rebalance_timeout=300_000, session_timeout=45_000,
        subscription=encode_subscription(ConsumerProtocolSubscription(topics=["payments", "orders"])),
        assignment=encode_assignment(assignment),
    )  # fmt: skip
    group = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", current_state_timestamp=T0,
        members=[member],
    )  # fmt: skip
    commit = OffsetCommitValue(offset=42, leader_epoch=1, metadata="note", commit_timestamp=T0)
    key = encode_offset_commit_key("billing", "orders", 2)
    internal(folder, [
        (key, encode_offset_commit_value(commit)),
        (encode_group_metadata_key("billing"), encode_group_metadata_value(group)),
        (key, None),
        (b"\x00\x63newer", b"unknown"),
        (b"", b"\xff"),
    ])  # fmt: skip
    items = kctl("dump-log --offsets-decoder --format json orders-3/00000000000000000000.log").document
    reported = [(item["key"], item["value"]) for item in items if item["type"] == "record"]
    committed = {"type": "offset_commit", "group": "billing", "topic": "orders", "partition": 2}
    assert reported[0] == (
        committed,
        {"offset": 42, "leader_epoch": 1, "metadata": "note", "commit_timestamp_ms": T0, "expire_timestamp_ms": -1},
    )
    assert reported[1][0] == {"type": "group_metadata", "group": "billing"}
    assert reported[1][1]["members"][0]["subscription"] == ["orders", "payments"]
    assert reported[1][1]["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert reported[2:] == [(committed, None), ("\x00cnewer", "unknown"), ("", "/w==")]
    (row, *_) = kctl("dump-log --offsets-decoder orders-3/00000000000000000000.log").rows
    assert json.loads(row[4]) == committed


def test_transaction_log_decoder_shows_transactions(kctl: Kctl, folder: Path) -> None:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[2, 0])],
        transaction_last_update_timestamp_ms=T0, transaction_start_timestamp_ms=T0,
    )  # fmt: skip
    internal(folder, [(encode_transaction_key("app-1"), encode_transaction_value(value))])
    items = kctl("dump-log --transaction-log-decoder --format json orders-3/00000000000000000000.log").document
    (item,) = [item for item in items if item["type"] == "record"]
    assert item["key"] == {"type": "transaction", "transactional_id": "app-1"}
    assert (item["value"]["state"], item["value"]["partitions"]) == (
        "Ongoing",
        [{"topic": "orders", "partitions": [0, 2]}],
    )
    assert kctl("dump-log --transaction-log-decoder --offsets-decoder orders-3").status == 2


def test_damaged_length_does_not_hide_the_batches_behind_it(kctl: Kctl, folder: Path) -> None:
    first, second, third = batches()
    for length in (10, 90, len(first) + 3, 1 << 30):
        damage(folder / f"{BASE}.log", 8, struct.pack(">i", length))
        ran = kctl(f"dump-log --format json orders-3/{BASE}.log")
        (problem,) = [item for item in ran.document if item["error"]]
        assert (ran.status, problem["position"], problem["size"]) == (1, 0, len(first))
        assert problem["message"].endswith(f"; the next batch is at {len(first)}")
        assert [item["base_offset"] for item in ran.document if item["type"] == "batch"] == [103, 105]
    log = folder / f"{BASE}.log"
    log.write_bytes(first + b"\x55" * 1000 + second + bytes(500) + third)
    ran = kctl(f"dump-log --format json orders-3/{BASE}.log")
    assert [(item["position"], item["size"]) for item in ran.document if item["error"]] == [
        (len(first), 1000),
        (len(first) + 1000 + len(second), 500),
    ]
    assert [item["base_offset"] for item in ran.document if item["type"] == "batch"] == [100, 103, 105]


def test_invalid_records_are_reported_with_their_position(kctl: Kctl, folder: Path) -> None:
    log = bytearray(batches()[0])
    log[61] = 0x7F
    header = parse_header(log)
    seal(log, header)
    (folder / f"{BASE}.log").write_bytes(log + batches()[1])
    for option in ("--records", "--verify-only"):
        ran = kctl(f"dump-log {option} --format json orders-3/{BASE}.log")
        (problem,) = [item for item in ran.document if item["error"]]
        assert (ran.status, problem["position"], problem["size"]) == (1, 0, len(log))


def test_verify_only_shows_only_errors(kctl: Kctl, folder: Path) -> None:
    ran = kctl("dump-log --verify-only --format table .")
    assert (ran.status, ran.out) == (0, "")
    damage(folder / f"{BASE}.log", 70, b"\x55")
    damage(folder / f"{BASE}.index", 4, struct.pack(">i", 1))
    ran = kctl("dump-log --verify-only --format json .")
    assert [(item["file"].rpartition("/")[2], item["type"]) for item in ran.document] == [
        (f"{BASE}.index", "problem"),
        (f"{BASE}.log", "problem"),
    ]
    assert ran.status == 1


def test_log_dir_is_all_its_partitions_and_its_own_files(kctl: Kctl, folder: Path) -> None:
    log_dir = folder.parent
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=7\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 3 106\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n2 100\n")
    items = kctl("dump-log --format json .").document
    assert {item["type"] for item in items} == {
        "batch", "offset_index", "time_index", "aborted_transaction", "producer", "leader_epoch", "checkpoint",
        "property",
    }  # fmt: skip
    reported = {item["type"]: item for item in items}
    assert (reported["checkpoint"]["topic"], reported["checkpoint"]["partition"], reported["checkpoint"]["offset"]) == (
        "orders", 3, 106
    )  # fmt: skip
    assert (reported["leader_epoch"]["epoch"], reported["leader_epoch"]["start_offset"]) == (2, 100)


def record_offsets(ran: Any) -> list[int]:
    return [item["offset"] for item in ran.document if item["type"] == "record"]


@for_rows(
    "options, offsets",
    [
        (f"--time {T0 + 3}:{T0 + 11}", [101, 102, 103]),
        (f"--time {T0 + 11}:", [104, 105]),
        ("--time :2023-11-14T22:13:20Z", []),
        ("--time 2023-11-14T22:13:20Z:2023-11-14T22:13:20.004+00:00", [100, 102]),
        ("--key k", [100]),
        ("--key-decoder hex --key ff", [102]),
        ("--key-decoder base64 --key /w==", [102]),
        ("--producer-id 7", [103, 104, 105]),
        ("--producer-id 8", []),
        (f"--offset 101: --time :{T0 + 6} --producer-id -1", [101, 102]),
    ],
)
def test_records_are_selected(kctl: Kctl, folder: Path, options: str, offsets: list[int]) -> None:
    words = options.replace("--producer-id -1", "--producer-id=-1")
    ran = kctl(f"dump-log --records --format json orders-3/{BASE}.log {words}")
    assert (ran.status, record_offsets(ran)) == (0, offsets)


@pytest.mark.parametrize("text", ["2023", ":", "x:y", "12:"])
def test_time_range_that_is_none_is_refused(kctl: Kctl, folder: Path, text: str) -> None:
    assert kctl(f"dump-log --time {text} orders-3").status == 2


def test_offset_range_reads_from_the_index_on(kctl: Kctl, folder: Path) -> None:
    damage(folder / f"{BASE}.log", 70, b"\x55")
    log = f"orders-3/{BASE}.log"
    assert record_offsets(kctl(f"dump-log --records --offset 105: --format json {log}")) == [105]
    assert kctl(f"dump-log --offset 105: {log}").status == 0
    assert kctl(f"dump-log --offset 103: {log}").status == 1
    # An index entry beyond the requested offsets is not used.
    (folder / f"{BASE}.index").write_bytes(struct.pack(">ii", 2, len(batches()[0]) + len(batches()[1])))
    assert record_offsets(kctl(f"dump-log --records --offset 103: --format json {log}")) == [103, 104, 105]


@for_rows(
    "decoder, data, shown, encoding",
    [
        ("json", b'{"a": [1]}', {"a": [1]}, "json"),
        ("json", b"{", "{", "utf-8"),
        ("hex", b"\x00\xff", "00ff", "hex"),
        ("base64", b"abc", "YWJj", "base64"),
        ("string", b"\xff", "/w==", "base64"),
        ("int", struct.pack(">i", -2), -2, "int"),
        ("long", struct.pack(">q", 1 << 40), 1 << 40, "long"),
        ("long", b"abc", "abc", "utf-8"),
    ],
)
def test_values_are_decoded_as_requested(
    kctl: Kctl, folder: Path, decoder: str, data: bytes, shown: object, encoding: str
) -> None:
    (folder / f"{BASE}.log").write_bytes(build_batch([Record(0, T0, data, data)], base_offset=100))
    (item,) = kctl(
        f"dump-log --key-decoder {decoder} --value-decoder {decoder} --offset 100 --format jsonl orders-3/{BASE}.log"
    ).out.splitlines()[1:]
    reported = json.loads(item)
    assert (reported["value"], reported["value_encoding"]) == (shown, encoding)
    assert (reported["key"], reported["key_encoding"]) == (shown, encoding)


def test_messages_of_old_formats_are_read(kctl: Kctl, folder: Path) -> None:
    records = [Record(offset, T0, b"k", b"v%d" % offset) for offset in range(4)]
    old = b"".join(build_messages(records, magic=magic, codec=Codec.GZIP) for magic in (0, 1))
    (folder / "00000000000000000000.log").write_bytes(build_messages(records, magic=0) + old)
    ran = kctl("dump-log --records --format json orders-3/00000000000000000000.log")
    assert record_offsets(ran) == [0, 1, 2, 3] * 3


# Repairing indexes


def big_segment(folder: Path) -> Path:
    """A segment with some index entries, closed as by a broker."""
    config = LogConfig()
    segment = Segment.create(RealFiles(), str(folder), 0, config, now_ms=T0)
    for number in range(40):
        records = [Record(0, T0 + (number * 7) % 50, b"k", b"v" * 1000)]
        batch = bytearray(build_batch(records, base_offset=number))
        segment.append(memoryview(batch), [parse_header(batch)])
    segment.become_inactive()
    return folder / "00000000000000000000.log"


def test_batches_fit_a_terminal_of_80_columns(kctl: Kctl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    assert "PRODUCER-ID" in kctl(f"dump-log orders-3/{BASE}.log --no-color").err
    lines = terminal.getvalue().splitlines()
    assert {"POSITION", "BASE-OFFSET", "LAST-OFFSET", "COUNT"} <= set(lines[0].split())
    assert len(lines) == 1 + len(batches())
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("int", "--key with --key-decoder int is a whole number from -2147483648 to 2147483647, not 'x'"),
        ("hex", "--key 'x' is not hex, as --key-decoder hex requires"),
        ("base64", "--key 'x' is not base64, as --key-decoder base64 requires"),
    ],
)
def test_key_that_its_decoder_never_shows_is_refused(kctl: Kctl, folder: Path, decoder: str, message: str) -> None:
    assert kctl(f"dump-log --key x --key-decoder {decoder} orders-3").err == f"kctl: {message}\n"


def test_indexes_are_rebuilt_as_a_broker_would(kctl: Kctl, folder: Path) -> None:
    log = big_segment(folder)
    files = [log.with_suffix(suffix) for suffix in (".index", ".timeindex")]
    before = [file.read_bytes() for file in files]
    assert all(before)
    assert [row[3] for row in kctl(f"dump-log --rebuild-index {log}").rows] == ["unchanged", "unchanged"]
    damage(files[0], 4, b"\x7f")
    files[1].unlink()
    assert kctl("dump-log orders-3").status == 1
    dry = kctl(f"dump-log --rebuild-index --dry-run {log}")
    assert (dry.status, [row[3] for row in dry.rows]) == (0, ["would be written"] * 2)
    assert not files[1].exists()
    assert [row[3] for row in kctl(f"dump-log --rebuild-index {log}").rows] == ["written", "written"]
    assert [file.read_bytes() for file in files] == before
    assert kctl(f"dump-log {' '.join(map(str, [log, *files]))}").status == 0


def test_rebuilding_reports_errors_in_the_log(kctl: Kctl, folder: Path) -> None:
    log = big_segment(folder)
    damage(log, 70, b"\x55")
    ran = kctl(f"dump-log --rebuild-index --format json {log.with_suffix('.index')}")
    assert (ran.status, [item["action"] for item in ran.document]) == (1, ["damaged", "written", "written"])


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_nothing_is_rebuilt_while_a_broker_holds_the_lock(kctl: Kctl, folder: Path, lock: Any) -> None:
    path = folder.parent / ".lock"
    path.touch()
    program = f"import fcntl,sys\nfile=open({str(path)!r},'r+')\nfcntl.{lock.__name__}(file,fcntl.LOCK_EX)\nprint()\n"
    command = [sys.executable, "-c", program + "sys.stdout.flush()\nsys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        before = (folder / f"{BASE}.index").read_bytes()
        ran = kctl("dump-log --rebuild-index orders-3")
        assert (ran.status, ran.out) == (5, "")
        assert "a broker is using" in ran.err
        assert (folder / f"{BASE}.index").read_bytes() == before
        assert kctl("dump-log --rebuild-index --dry-run orders-3").status == 0
        broker.communicate()
    assert kctl("dump-log --rebuild-index orders-3").status == 0


def test_sanity_check_is_that_of_a_broker(kctl: Kctl, folder: Path) -> None:
    (folder / f"{BASE}.index").write_bytes(struct.pack(">ii", 5, 9))
    ran = kctl("dump-log --index-sanity-check --format json orders-3")
    assert (ran.status, [item["is_sane"] for item in ran.document]) == (0, [True, True])
    (folder / f"{BASE}.index").write_bytes(b"123456789")
    (folder / f"{BASE}.timeindex").write_bytes(struct.pack(">qiqi", T0, 1, T0 - 1, 2))
    ran = kctl("dump-log --index-sanity-check --format json orders-3")
    assert (ran.status, [item["is_sane"] for item in ran.document]) == (1, [False, False])


@for_rows("words", ["", "--dry-run orders-3", "--compat kafka-4 --offset 1: orders-3",
                                   "--rebuild-index orders-3/00000000000000000106.snapshot",
                                   "--key-decoder hex --key xyz orders-3", "--compat kafka-5 orders-3"])  # fmt: skip
def test_invalid_options_are_refused(kctl: Kctl, folder: Path, words: str) -> None:
    assert kctl(f"dump-log {words}").status == 2


# Kafka's text; tests/integration/cli compares it with Kafka's tool


@pytest.mark.parametrize("compat", ["kafka-2.8", "kafka-4"])
def test_classic_text_is_as_ever(kctl: Kctl, folder: Path, compat: str) -> None:
    files = ",".join(f"orders-3/{path.name}" for path in sorted(folder.iterdir()))
    ran = kctl(f"dump-log --compat {compat} --print-data-log --files {files}")
    assert (ran.status, ran.err) == (0, "Ignoring unknown file orders-3/leader-epoch-checkpoint\n")
    assert ran.out == (GOLDEN / f"{compat}.txt").read_text()


def test_classic_text_goes_on_behind_damage_and_fails(kctl: Kctl, folder: Path) -> None:
    log = folder / f"{BASE}.log"
    first, second, third = batches()
    log.write_bytes(first + b"garbage" * 20 + second + third + b"tail")
    ran = kctl(f"dump-log --compat kafka-4 orders-3/{BASE}.log")
    assert [line.partition(" last")[0] for line in ran.out.splitlines()] == [
        f"Dumping orders-3/{BASE}.log",
        "Log starting offset: 100",
        "baseOffset: 100",
        "baseOffset: 103",
        "baseOffset: 105",
        f"Found 4 invalid bytes at the end of {BASE}.log",
    ]
    assert ran.status == 1
    assert f"at position {len(first)}: 140 bytes are not batches" in ran.err


def test_classic_mismatches_of_indexes_fail(kctl: Kctl, folder: Path) -> None:
    (folder / f"{BASE}.index").write_bytes(struct.pack(">ii", 3, len(batches()[0])))
    ran = kctl(f"dump-log --compat kafka-2.8 --verify-index-only orders-3/{BASE}.index")
    assert (ran.status, ran.out) == (1, f"Dumping orders-3/{BASE}.index\n")
    assert ran.err == f"Mismatches in :{folder}/{BASE}.index\n  Index offset: 103, log offset: 104\n"


def test_max_bytes_shows_only_what_ends_within_them(kctl: Kctl, folder: Path) -> None:
    log = folder / f"{BASE}.log"
    ends = [item["position"] + item["size"] for item in kctl(f"dump-log --format json orders-3/{log.name}").document]
    assert len(ends) == 3
    for size, count in ((ends[0] - 1, 0), (ends[0], 1), (ends[1] + 1, 2), (ends[2], 3), (ends[2] + 9, 3)):
        assert len(kctl(f"dump-log --format json --max-bytes {size} orders-3/{log.name}").document) == count
        lines = kctl(f"dump-log --compat kafka-4 --max-bytes {size} --max-message-size 9 orders-3/{log.name}").out
        assert lines.count("baseOffset: ") == count
        assert "invalid bytes" not in lines
    assert kctl("dump-log --max-bytes 0 orders-3").status == 2
