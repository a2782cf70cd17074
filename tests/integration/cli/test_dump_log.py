"""kctl dump-log prints the same as Kafka's DumpLogSegments for files of either broker."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from kctl.protocol.codec import encode_versioned
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal import newer_group_records as kinds
from kctl.records.internal.topics import (
    GroupMetadataValue,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogValue,
    encode_group_metadata_key,
    encode_offset_commit_key,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.integration.clients.confluent import Confluent
from tests.peers import apache_kafka
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker
from tests.rows import for_rows

pytestmark = pytest.mark.jvm

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENTS = {"log.segment.bytes": "16384", "log.index.interval.bytes": "1024"}
BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* position: (\d+) .* size: (\d+) .* crc: (\d+) "
)
RECORD = re.compile(r"^\| offset: (\d+) ")
INDEX_ENTRY = re.compile(r"^offset: (\d+) position: (\d+)")
TIME_INDEX_ENTRY = re.compile(r"^timestamp: (\d+) offset: (\d+)")


@pytest.fixture(
    scope="module",
    params=[
        "kctl",
        pytest.param(apache_kafka.OLDEST_JUDGE, marks=pytest.mark.matrix),
        pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.matrix),
    ],
)
def log_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a stopped broker: a topic with each codec, and a group's offsets."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("broker")
    with contextlib.ExitStack() as stack:
        if request.param == "kctl":
            bootstrap = stack.enter_context(kctl_broker(folder / "data", properties=SMALL_SEGMENTS)).bootstrap
            logs = folder / "data" / "logs"
        else:
            broker = apache_kafka.apache_kafka(request.param, folder, properties=SMALL_SEGMENTS)
            bootstrap, logs = stack.enter_context(broker), folder / "logs"
        for codec in CODECS:
            _fill(bootstrap, f"dumped-{codec}", None if codec == "none" else codec)
        _transact(bootstrap, "dumped-transactions")
        assert Confluent(bootstrap).consume("dumped-none", 300, group="dumper")
    return logs


def _fill(bootstrap: str, topic: str, codec: str | None) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5) as producer:
        for number in range(300):
            value = bytes((number * 7 + byte * byte * 31) % 251 for byte in range(200))
            producer.send(topic, key=b"%d" % number, value=value, headers=[("n", b"%d" % number)], partition=0)
            if number % 10 == 9:
                producer.flush()


def _transact(bootstrap: str, topic: str) -> None:
    """A transaction that is committed and one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "dumper"})
    producer.init_transactions()
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, key="transaction", value=b"\xff\x00binary")
        producer.flush()  # Unsent records would be dropped by an abort.
        finish()


def dump(*words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and items of `kctl dump-log`."""
    ran = run_kctl("dump-log", "--format", "jsonl", *words)
    assert ran.stderr == ""
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()]


def kafka_dump(*files: Path, options: tuple[str, ...] = ()) -> list[str]:
    """The output of Kafka's tool."""
    listed = ",".join(map(str, files))
    tool = "kafka.tools.DumpLogSegments"
    ran = apache_kafka.run_java_tool(apache_kafka.OLDEST_JUDGE, tool, ["--files", listed, *options])
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def kafkas_dumps(log_dir: Path) -> dict[str, list[str]]:
    """The output of Kafka's tool for each codec, in one run."""
    segments = {codec: sorted((log_dir / f"dumped-{codec}-0").glob("*.log")) for codec in CODECS}
    codec_of = {str(path): codec for codec, paths in segments.items() for path in paths}
    dumps: dict[str, list[str]] = {codec: [] for codec in CODECS}
    current: list[str] = []
    for line in kafka_dump(*itertools.chain(*segments.values()), options=("--deep-iteration",)):
        if line.startswith("Dumping "):
            current = dumps[codec_of[line.removeprefix("Dumping ")]]
        current.append(line)
    return dumps


@for_rows("codec", CODECS)
def test_batches_and_records_equal_those_of_kafkas_tool(
    log_dir: Path, kafkas_dumps: dict[str, list[str]], codec: str
) -> None:
    segments = sorted((log_dir / f"dumped-{codec}-0").glob("*.log"))
    theirs = kafkas_dumps[codec]
    status, ours = dump("--records", *segments)
    assert status == 0
    batches = [
        tuple(item[name] for name in ("base_offset", "last_offset", "count", "position", "size", "crc"))
        for item in ours
        if item["type"] == "batch"
    ]
    assert batches == [tuple(map(int, match.groups())) for match in map(BATCH.match, theirs) if match]
    offsets = [item["offset"] for item in ours if item["type"] == "record"]
    assert offsets == [int(match[1]) for match in map(RECORD.match, theirs) if match] == list(range(300))


def test_a_salvaged_segment_is_accepted_by_kafkas_tool(log_dir: Path, tmp_path: Path) -> None:
    source = min((log_dir / "dumped-zstd-0").glob("*.log"))
    (tmp_path / "orders-0").mkdir()
    damaged, target = tmp_path / "orders-0" / source.name, tmp_path / source.name
    batches = [item for item in dump(source)[1] if item["type"] == "batch"]
    middle = batches[len(batches) // 2]
    data = bytearray(source.read_bytes())
    data[middle["position"] + middle["size"] - 1] ^= 1
    damaged.write_bytes(data)
    status, (summary,) = dump("--summary", damaged)
    lost = [(range_["first"], range_["last"]) for range_ in summary["lost"]]
    assert (status, lost) == (1, [(middle["base_offset"], middle["last_offset"])])
    assert run_kctl("dump-log", "--salvage", target, damaged).returncode == 1
    lines = kafka_dump(target, options=("--deep-iteration",))
    found = [int(match[1]) for match in map(BATCH.match, lines) if match]
    assert found == [batch["base_offset"] for batch in batches if batch != middle]
    assert all("isvalid: true" in line for line in lines if BATCH.match(line))


def test_indexes_equal_those_of_kafkas_tool_and_are_valid(log_dir: Path) -> None:
    folder = log_dir / "dumped-none-0"
    for suffix, pattern, names in (
        (".index", INDEX_ENTRY, ("offset", "position")),
        (".timeindex", TIME_INDEX_ENTRY, ("timestamp_ms", "offset")),
    ):
        files = sorted(folder.glob(f"*{suffix}"))
        status, ours = dump(*files)
        assert (status, [item for item in ours if item["error"]]) == (0, [])
        theirs = [tuple(map(int, match.groups())) for match in map(pattern.match, kafka_dump(*files)) if match]
        # Kafka's tool shows one entry of zeros for an index that has none.
        entries = [tuple(item[name] for name in names) for item in ours]
        assert entries
        assert [entry for entry in theirs if entry in entries] == entries


def test_dump_log_finds_no_error_in_a_whole_log_dir(log_dir: Path) -> None:
    folders = [folder for folder in log_dir.iterdir() if folder.is_dir()]
    status, items = dump(*folders)
    assert (status, [item for item in items if item["error"]]) == (0, [])
    assert {item["type"] for item in items} >= {"batch", "offset_index", "time_index"}


def test_committed_offsets_are_decoded(log_dir: Path) -> None:
    logs = [path for path in log_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    status, items = dump("--offsets-decoder", *logs)
    assert status == 0
    records = [(item["key"], item["value"]) for item in items if item["type"] == "record"]
    commits = [value for key, value in records if key["type"] == "offset_commit" and key["topic"] == "dumped-none"]
    assert commits[-1]["offset"] > 0
    groups = [value for key, value in records if key == {"type": "group_metadata", "group": "dumper"} and value]
    assert any(member["subscription"] == ["dumped-none"] for group in groups for member in group["members"])


@for_rows(
    "version, compat",
    [
        (apache_kafka.OLDEST_JUDGE, "kafka-2.8"),
        (apache_kafka.LAST_WITH_ZOOKEEPER, "kafka-3"),
        (apache_kafka.TOOLS_FOR_NEWEST, "kafka-4"),
    ],
)
def test_classic_text_is_kafkas_byte_for_byte(log_dir: Path, version: str, compat: str) -> None:
    kinds = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")
    dumped = sorted(path for kind in kinds for path in log_dir.glob(f"dumped-*/{kind}"))
    with_entries = [path for path in dumped if path.suffix != ".index" or path.with_suffix(".log").stat().st_size]
    offsets = sorted(path for path in log_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size)
    assert {path.suffix for path in with_entries} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert offsets
    runs: list[tuple[list[Path], tuple[str, ...]]] = [
        (with_entries, ()),
        (with_entries, ("--print-data-log",)),
        (with_entries, ("--deep-iteration", "--skip-record-metadata", "--verify-index-only")),
        (offsets, ("--offsets-decoder",)),
    ]
    transactions = sorted(path for path in log_dir.glob("__transaction_state-*/*.log") if path.stat().st_size)
    assert transactions
    runs.append((transactions, ("--transaction-log-decoder",)))
    for (files, options), expected in zip(runs, kafka_texts(version, runs), strict=True):
        out, err = classic(compat, files, options)
        assert out == expected[0]
        if compat != "kafka-4":  # 4.3 also lists the first record of each segment as a gap.
            assert err == expected[1]


def classic(compat: str, files: list[Path], options: tuple[str, ...]) -> tuple[str, str]:
    """The output of `kctl dump-log --compat` on stdout and stderr, with line ends as subprocess reads them."""
    listed = ",".join(map(str, files))
    ran = run_kctl("dump-log", "--compat", compat, "--files", listed, *options)
    return io.StringIO(ran.stdout, newline=None).read(), ran.stderr


def kafka_texts(version: str, runs: list[tuple[list[Path], tuple[str, ...]]]) -> list[tuple[str, str]]:
    """The output of Kafka's tool on stdout and stderr for each list of files with options."""
    package = "org.apache.kafka.tools" if version == apache_kafka.TOOLS_FOR_NEWEST else "kafka.tools"
    tool = f"{package}.DumpLogSegments"
    return apache_kafka.run_java_tools(
        version, [[tool, "--files", ",".join(map(str, files)), *options] for files, options in runs]
    )


def test_records_of_newer_brokers_in_the_offsets_topic_are_shown_as_kafka_4_shows_them(tmp_path: Path) -> None:
    """Groups of the new consumer protocol, and values of version 4, with and without their tagged fields."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    topic_id, none = UUID(int=(1 << 127) + 5), UUID(int=0)
    commit: dict[str, Any] = {"offset": 7, "leader_epoch": 2, "metadata": "m\u00fc", "commit_timestamp": 1}
    group_key, member_key = (
        kinds.ConsumerGroupKey(group_id="g"),
        kinds.ConsumerGroupMemberKey(group_id="g", member_id="m"),
    )
    member: dict[str, Any] = {
        "instance_id": None, "rack_id": "r", "client_id": "c", "client_host": "/h", "server_assignor": None,
    }  # fmt: skip
    classic_member = kinds.ClassicMemberMetadata(
        session_timeout_ms=9, supported_protocols=[kinds.ClassicProtocol(name="range", metadata=b"\x00\x01")]
    )
    partitions = kinds.CurrentPartitions(topic_id=topic_id, partitions=[0, 1])
    with_epochs = kinds.CurrentPartitions(topic_id=none, partitions=[2], assignment_epochs=[4])
    messages: list[tuple[bytes, int, object | None]] = [
        (encode_offset_commit_key("g", "t", 3), 4, OffsetCommitValue(**commit)),
        (encode_offset_commit_key("g", "t", 3), 4, OffsetCommitValue(**commit, topic_id=topic_id)),
        (
            encode_group_metadata_key("g"),
            4,
            GroupMetadataValue(protocol_type="x", generation=1, protocol=None, leader=None, members=[]),
        ),
        (_key(3, group_key), 0, kinds.ConsumerGroupMetadataValue(epoch=5)),
        (_key(3, group_key), 0, kinds.ConsumerGroupMetadataValue(epoch=5, metadata_hash=-77)),
        (_key(3, group_key), 0, None),
        (
            _key(4, group_key),
            0,
            kinds.ConsumerGroupPartitionMetadataValue(
                topics=[
                    kinds.TopicMetadata(
                        topic_id=topic_id,
                        topic_name="t",
                        num_partitions=1,
                        partition_metadata=[kinds.PartitionMetadata(partition=0, racks=["a", "b"])],
                    )
                ]
            ),
        ),
        (
            _key(5, member_key),
            0,
            kinds.ConsumerGroupMemberMetadataValue(
                **member, subscribed_topic_names=["t"], subscribed_topic_regex=None, rebalance_timeout_ms=1
            ),
        ),
        (
            _key(5, member_key),
            0,
            kinds.ConsumerGroupMemberMetadataValue(
                **member,
                subscribed_topic_names=[],
                subscribed_topic_regex="t.*",
                classic_member_metadata=classic_member,
            ),
        ),
        (_key(6, group_key), 0, kinds.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2)),
        (
            _key(6, group_key),
            0,
            kinds.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=2, assignment_timestamp=1_700_000_000_000
            ),
        ),
        (
            _key(7, member_key),
            0,
            kinds.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[kinds.TargetPartitions(topic_id=topic_id, partitions=[0, 1])]
            ),
        ),
        (
            _key(8, member_key),
            0,
            kinds.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=1,
                assigned_partitions=[partitions, with_epochs],
                partitions_pending_revocation=[],
            ),
        ),
        (
            _key(16, kinds.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*")),
            0,
            kinds.ConsumerGroupRegularExpressionValue(topics=["t"], version=8, timestamp=9),
        ),
        (b"\x03\xe7beyond", 0, None),
    ]
    records = [
        Record(0, 1, key, None if value is None else encode_versioned(value, version))
        for key, version, value in messages
    ]
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch(records))
    options = ("--offsets-decoder",)
    (expected,) = kafka_texts(apache_kafka.TOOLS_FOR_NEWEST, [([log], options)])
    assert expected[0].count("payload: ") == len(messages) - 1
    assert classic("kafka-4", [log], options) == expected


def test_transactions_are_shown_as_kafka_4_shows_them(tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    states = [
        TransactionLogValue(
            producer_id=7,
            producer_epoch=1,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=5,
            transaction_start_timestamp_ms=-1,
        )
        for status, partitions in ((0, None), (1, [PartitionsSchema(topic="t", partition_ids=[1, 0])]), (4, []))
    ]
    key = encode_transaction_key("app")
    records = [*(Record(0, 1, key, encode_transaction_value(state)) for state in states), Record(0, 1, key, None)]
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch(records))
    options = ("--transaction-log-decoder",)
    assert [classic("kafka-4", [log], options)] == kafka_texts(apache_kafka.TOOLS_FOR_NEWEST, [([log], options)])


def _key(number: int, key: object) -> bytes:
    """The kind of a key is the version in front of it."""
    return number.to_bytes(2, "big") + encode_versioned(key, 0)[2:]


def test_max_bytes_limits_as_in_kafkas_tool(log_dir: Path) -> None:
    log = max(log_dir.glob("dumped-*/*.log"), key=lambda path: path.stat().st_size)
    limits = [("--max-bytes", str(size)) for size in (100, log.stat().st_size // 2, log.stat().st_size)]
    expected = kafka_texts(apache_kafka.LAST_WITH_ZOOKEEPER, [([log], limit) for limit in limits])
    assert [classic("kafka-4", [log], limit) for limit in limits] == expected
