"""kctl produce, kctl consume and kctl offsets: records are read back as they were written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kctl.client.producing.partitioners import partition_of_key
from kctl.client.producing.producer import Delivery
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.produce.command import DeliveryLog
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.ran import Ran
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakePartition
from tests.unit.commands.conftest import Kctl


@contextmanager
def stdin(data: bytes, *, ends: bool = True) -> Iterator[None]:
    """Standard input with `data` and then the end, as from a pipe; or without an end."""
    reader, writer = os.pipe()
    os.write(writer, data)
    if ends:
        os.close(writer)
    before = sys.stdin
    with os.fdopen(reader) as stream:
        sys.stdin = stream
        try:
            yield
        finally:
            sys.stdin = before
            if not ends:
                os.close(writer)


def fill(cluster: FakeCluster, *values: str, partitions: int = 1) -> None:
    """Topic orders with the values at 1000, 2000, ... ms, spread over the partitions in turn."""
    logs = cluster.create("orders", leaders=partitions)
    for index, value in enumerate(values):
        logs[index % partitions].append(build_batch([Record(0, (index + 1) * 1_000, None, value.encode())]))


def values_of(ran: Ran) -> list[str]:
    return [row[4] for row in ran.rows]


def test_lines_become_records(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"one\n\ntwo \nlast without line feed"):
        ran = kctl("produce orders")
    assert [record.value for record in cluster.records_of("orders", 0)] == [
        b"one",
        b"",
        b"two ",
        b"last without line feed",
    ]
    assert ran == Ran(0, "", "4 records to orders: partition 0: offsets 0 to 3\n")


def test_file_is_read_like_standard_input(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("orders")
    lines = [b"line %d" % number for number in range(20_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    assert kctl(f"produce orders --quiet --file {tmp_path}/lines") == Ran(0, "", "")
    assert [record.value for record in cluster.records_of("orders", 0)] == lines
    assert kctl(f"produce orders --file {tmp_path}").err == f"kctl: cannot read {tmp_path}: it is a directory\n"
    missing = kctl(f"produce orders --file {tmp_path}/nothing")
    assert (missing.status, missing.err) == (2, f"kctl: cannot read {tmp_path}/nothing: No such file or directory\n")


def test_key_separator_null_marker_and_headers(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"a:1\nb:x:y\nc:NULL\nNULL:d\n"):
        kctl("produce orders --key-separator : --null-marker NULL --header from=test --header n=1")
    records = cluster.records_of("orders", 0)
    assert [(record.key, record.value) for record in records] == [
        (b"a", b"1"),
        (b"b", b"x:y"),
        (b"c", None),
        (None, b"d"),
    ]
    assert {record.headers for record in records} == {(("from", b"test"), ("n", b"1"))}


def test_line_without_separator_is_named_and_what_came_before_is_written(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"a:1\nb\nc:3\n"):
        ran = kctl("produce orders --key-separator :")
    assert ran.status == ExitStatus.USAGE
    assert "standard input line 2: no key separator ':' in it" in ran.err
    assert [record.key for record in cluster.records_of("orders", 0)] == [b"a"]


def test_keys_and_partitions_choose_where_records_go(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=4)
    with stdin(b"x\n"):
        kctl("produce orders --key customer-1")
    assert len(cluster.records_of("orders", partition_of_key(b"customer-1", 4))) == 1
    with stdin(b"x\n"):
        kctl("produce orders --partition 3")
    assert cluster.records_of("orders", 3)[-1].value == b"x"
    with stdin(b"x\n"):
        assert kctl("produce orders --partition 4").status == ExitStatus.FAILED


def test_a_partition_that_does_not_exist_is_refused_at_once_with_its_line(kctl: Kctl, cluster: FakeCluster) -> None:
    """Records before it are written; the command does not wait for the partition to be created."""
    cluster.create("orders", leaders=2)
    with stdin(b'{"value":"a","partition":1}\n{"value":"b","partition":7}\n{"value":"c","partition":0}\n'):
        ran = kctl("produce orders --input jsonl")
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert "standard input line 2: orders has no partition 7; it has 2" in ran.err
    assert [record.value for number in range(2) for record in cluster.records_of("orders", number)] == [b"a"]
    assert len(cluster.requested(MetadataRequest)) < 10


def test_a_partition_that_was_added_meanwhile_is_found(kctl: Kctl, cluster: FakeCluster) -> None:
    partitions = cluster.create("orders")
    results = [lambda: None, lambda: partitions.append(FakePartition(0))]

    def grow(_: MetadataRequest) -> None:
        if results:
            results.pop(0)()

    cluster.intercept(MetadataRequest, grow)
    with stdin(b'{"value":"b","partition":1}\n'):
        assert kctl("produce orders --input jsonl").status == 0
    assert [record.value for record in cluster.records_of("orders", 1)] == [b"b"]


def test_headers_of_the_same_name_are_all_written(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"a\n"):
        assert kctl("produce orders -H a=1 -H a=2").status == 0
    assert [record.headers for record in cluster.records_of("orders", 0)] == [(("a", b"1"), ("a", b"2"))]


def test_null_empty_and_dash_are_distinguished_and_no_header_is_lost(kctl: Kctl, cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    headers = (("a", b"1"), ("a", None), ("a", b""), ("a", b"-"), ("b=c", b"x,y=z"))
    for key, value in ((None, b""), (b"", b"-"), (b"-", None), (b'""', b"\\x2d")):
        partition.append(build_batch([Record(0, 0, key, value, headers)]))
    rows = kctl("consume orders").rows
    assert [row[3:5] for row in rows] == [["-", '""'], ['""', "\\x2d"], ["\\x2d", "-"], ["\\x22\\x22", "\\\\x2d"]]
    assert {row[5] for row in rows} == {"a=1,a,a=,a=-,b\\x3dc=x\\x2cy=z"}
    documents = kctl("consume orders --format json").document
    assert [(document["key"], document["value"]) for document in documents] == [
        (None, ""),
        ("", "-"),
        ("-", None),
        ('""', "\\x2d"),
    ]
    assert [(header["key"], header["value"]) for header in documents[0]["headers"]] == [
        ("a", "1"), ("a", None), ("a", ""), ("a", "-"), ("b=c", "x,y=z"),
    ]  # fmt: skip


def test_acknowledgements_are_rows_under_json(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"a\nb\n"):
        ran = kctl("produce orders --format json")
    assert [(row["topic"], row["partition"], row["offset"], row["error"]) for row in ran.document] == [
        ("orders", 0, 0, None),
        ("orders", 0, 1, None),
    ]
    with stdin(b""):
        assert kctl("produce orders --format json") == Ran(0, "[]\n", "nothing to write\n")


@pytest.mark.parametrize("has_rows", [True, False])
def test_results_keep_no_records_so_that_memory_does_not_grow_with_the_input(*, has_rows: bool) -> None:
    value = bytes(1_000)
    before = sys.getrefcount(value)
    log = DeliveryLog("orders", has_rows=has_rows)
    log.add(Delivery(TopicPartition("orders", 0), [Record(0, 1_000, None, value)], 5, -1))
    assert sys.getrefcount(value) == before
    assert (log.failed, log.first_failure) == (0, None)


def test_refused_records_are_rows_and_status_1(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    refused = PartitionProduceResponse(index=0, error_code=10, base_offset=-1)
    response = ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[refused])])
    cluster.intercept(ProduceRequest, lambda _: response)
    with stdin(b"a\n"):
        ran = kctl("produce orders --format json")
    assert (ran.status, ran.document[0]["offset"], ran.document[0]["error"]) == (1, None, "MESSAGE_TOO_LARGE")
    assert "1 not written" in ran.err
    assert "warning: MESSAGE_TOO_LARGE: orders-0: " in ran.err


@pytest.mark.parametrize("words", ["", "--input jsonl"])
def test_no_more_input_is_read_once_records_could_not_be_written_in_time(
    kctl: Kctl, cluster: FakeCluster, words: str
) -> None:
    """The input has no end, so that a command which reads on would not end either."""
    cluster.create("orders", leaders=[-1, 0])
    data = b"".join(b'{"value":"%d","partition":%d}\n' % (number, number % 2) for number in range(10))
    with stdin(data, ends=False):
        ran = kctl(f"produce orders --timeout 300ms {words or '--partition 0'}")
    assert ran.status == 1
    assert "the rest of the input was not read" in ran.err
    assert "LEADER_NOT_AVAILABLE" in ran.err
    assert f"{5 if words else 10} not written" in ran.err
    assert len(cluster.records_of("orders", 1)) == (5 if words else 0)


def test_a_refused_producer_id_is_reported_with_its_code_and_a_remedy(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    cluster.intercept(InitProducerIdRequest, lambda _: refused)
    with stdin(b"a\n"):
        ran = kctl("produce orders")
    assert ran.status == 1
    assert "CLUSTER_AUTHORIZATION_FAILED: " in ran.err
    assert "acks=1" in ran.err


@pytest.mark.parametrize(("acks", "idempotent"), [("all", True), ("1", False), ("0", False)])
def test_acks_select_idempotence(kctl: Kctl, cluster: FakeCluster, acks: str, idempotent: bool) -> None:
    cluster.create("orders")
    with stdin(b"a\n"):
        assert kctl(f"produce orders --acks {acks}").status == 0
    assert bool(cluster.requested(InitProducerIdRequest)) is idempotent
    kctl("consume orders")
    assert [record.value for record in cluster.records_of("orders", 0)] == [b"a"]


def test_whole_input_is_one_record(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    data = bytes(range(256)) + b"\n\n"
    with stdin(data):
        kctl("produce orders --input whole")
    assert [record.value for record in cluster.records_of("orders", 0)] == [data]


AWKWARD = [
    Record(0, 5_000, None, None),
    Record(0, 5_001, b"", b""),
    Record(0, 5_002, b"\xff\x00key", b"\x80"),
    Record(0, 5_003, b'{"a":1}', "tab\tnew\nline [b] \u2028".encode(), (("h", b"\xfe"), ("h", None), ("", b""))),
]


def test_what_consume_writes_produce_reads_back(kctl: Kctl, cluster: FakeCluster) -> None:
    """Nulls, empty values, bytes that are not UTF-8, repeated headers and timestamps are preserved."""
    (partition,) = cluster.create("orders")
    partition.append(build_batch(AWKWARD))
    cluster.create("copy")
    lines = kctl("consume orders --format jsonl").out
    with stdin(lines.encode()):
        assert kctl("produce copy --input jsonl").status == 0
    assert [record[1:] for record in cluster.records_of("copy", 0)] == [record[1:] for record in AWKWARD]


def test_line_that_is_no_json_is_named(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    for line, complaint in (
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"value":1}', "neither text nor null"),
        (b'{"value":"!","value_encoding":"base64"}', "is not valid base64"),
        (b'{"value":"a","value_encoding":"rot13"}', "unknown encoding"),
        (b'{"value":null,"headers":[{"value":"a"}]}', "headers are a list"),
        (b'{"value":null,"partition":"0"}', "partition is '0', not a whole number"),
        (b'{"key":"a"}', 'no "value" in it; that of a record without one is null'),
        (b'{"key":"a","vlaue":"b"}', "a record has no 'vlaue'"),
        (b'"\xff"', "not UTF-8: byte 0xff at 1"),
        (b"[" * 20_000, "too many nested lists and objects"),
        (b"[" + b"1" * 5_000 + b"]", "a number is too long"),
    ):
        with stdin(line):
            ran = kctl("produce orders --input jsonl")
        assert (ran.status, complaint in ran.err) == (ExitStatus.USAGE, True), ran.err


def test_consume_stops_where_the_partitions_end(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, *"abcdef", partitions=2)
    ran = kctl("consume orders")
    assert ran.status == 0
    assert sorted(values_of(ran)) == list("abcdef")
    assert kctl("consume orders --partition 1").rows[0] == ["1", "0", "1970-01-01T00:00:02.000Z", "-", "b", "-"]


@for_rows(
    "options, expected",
    [
        ("--from 2", "cde"),
        ("--from +1", "bcde"),
        ("--from -2", "de"),
        ("--from end", ""),
        ("--from start --until 2", "ab"),
        ("--from @1970-01-01T00:00:02.500Z", "cde"),
        ("--from 1 --until @1970-01-01T00:00:04Z", "bc"),
        ("--until -1", "abcd"),
        ("--until 99", "abcde"),
        ("-n 2", "ab"),
        ("--max-messages 0", ""),
        ("--from 3 --until 2", ""),
        ("--from @2030-01-01", ""),
    ],
)
def test_ranges_by_offset_and_time(kctl: Kctl, cluster: FakeCluster, options: str, expected: str) -> None:
    fill(cluster, *"abcde")
    assert "".join(values_of(kctl(f"consume orders {options}"))) == expected


def test_offset_outside_of_the_log_is_moved_into_it_with_a_note(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, *"abc")
    ran = kctl("consume orders --from 50")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == "orders-0: offset 50 lies outside of 0 to 3; reading from 3\n"


def test_follow_waits_for_more_until_there_are_enough(kctl: Kctl, cluster: FakeCluster) -> None:
    from kctl.protocol.apis.fetch import FetchRequest  # noqa: PLC0415 - only here

    fill(cluster, "a")
    later = [lambda: cluster.topics["orders"][0].append(build_batch([Record(0, 9_000, None, b"b")]))]

    def append(request: FetchRequest) -> None:
        if request.topics[0].partitions[0].fetch_offset == 1 and later:
            later.pop()()

    cluster.intercept(FetchRequest, append)
    assert values_of(kctl("consume orders --follow -n 2")) == ["a", "b"]


def test_bytes_that_are_no_text(kctl: Kctl, cluster: FakeCluster) -> None:
    (partition,) = cluster.create("orders")
    partition.append(build_batch([Record(0, -1, b"\xff\\", b"\x1b[31m")]))
    assert kctl("consume orders").rows == [["0", "0", "-", "\\xff\\\\", "\\x1b[31m", "-"]]
    (item,) = kctl("consume orders --format json").document
    assert (item["key"], item["key_encoding"], item["value_encoding"]) == ("/1w=", "base64", "utf-8")
    assert (item["timestamp_ms"], item["time"]) == (None, None)


def test_json_is_one_document_and_jsonl_one_per_line(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, *"ab")
    assert [item["offset"] for item in kctl("consume orders --format json").document] == [0, 1]
    assert [json.loads(line)["value"] for line in kctl("consume orders --format jsonl").out.splitlines()] == ["a", "b"]


@pytest.mark.parametrize("line", ["consume nope", "produce nope", "consume orders --partition 0,7"])
def test_topic_or_partition_that_does_not_exist(kctl: Kctl, cluster: FakeCluster, line: str) -> None:
    cluster.create("orders")
    with stdin(b"a\n"):
        ran = kctl(f"{line} --format json")
    assert (ran.status, ran.document["error"]["code"]) == (1, "UNKNOWN_TOPIC_OR_PARTITION")


def test_offsets_at_start_end_and_times(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, *"abcdef", partitions=2)
    assert [row[1:3] for row in kctl("topics offsets orders").rows] == [["0", "3"], ["1", "3"]]
    assert [row[1:3] for row in kctl("topics offsets orders --time earliest").rows] == [["0", "0"], ["1", "0"]]
    ran = kctl("topics offsets orders --time @1970-01-01T00:00:05.5Z --format json")
    assert [(row["offset"], row["timestamp_ms"]) for row in ran.document] == [(None, None), (2, 6_000)]


def test_offsets_of_what_does_not_exist_are_rows(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics offsets orders nope --partition 0,3")
    assert ran.status == ExitStatus.FAILED
    assert [(*row[:3], row[5]) for row in ran.rows] == [
        ("nope", "-", "-", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", "0", "0", "-"),
        ("orders", "3", "-", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_cluster_describe_marks_the_controller(kctl: Kctl, cluster: FakeCluster) -> None:
    document = kctl("cluster describe --format json").document
    assert (document["cluster_id"], document["controller"]) == ("fake-cluster", 1)
    assert [row[0] + row[4] for row in kctl("cluster describe").rows] == ["0false", "1true"]


@for_rows(
    "line, words",
    [
        ("--group g --partition 0", "leave out --partition"),
        ("--group g --until 3", "leave out --partition and --until"),
        ("--group g --format json", "use jsonl"),
        ("--group=", "--group is empty"),
        (
            "--group g --assignor range,fair",
            "'fair' is not an assignor; supported: range, roundrobin, sticky, cooperative",
        ),
        ("--group g --assignor ,", "at least one assignor is needed"),
        ("--assignor range", "--assignor requires --group"),
    ],
)
def test_options_that_exclude_a_group_are_reported(cluster: FakeCluster, kctl: Kctl, line: str, words: str) -> None:
    cluster.create("orders")
    ran = kctl(f"consume orders {line}")
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("session.timeout.ms=soon", "session.timeout.ms=soon"),
        ("heartbeat.interval.ms=10000", "must be less than session.timeout.ms"),
        ("partition.assignment.strategy=my.own.Assignor", "'my.own.Assignor' is not an assignor"),
    ],
)
def test_properties_of_a_member_are_checked(
    cluster: FakeCluster, kctl: Kctl, tmp_path: Path, properties: str, words: str
) -> None:
    cluster.create("orders")
    (tmp_path / "member.properties").write_text(properties)
    ran = kctl(f"consume orders --group g --command-config {tmp_path / 'member.properties'}")
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True)


def test_consume_reads_what_has_a_leader_and_names_the_rest(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[-1, 0])[1].append(build_batch([Record(0, 1_000, None, b"x")]))
    ran = kctl("consume orders --format jsonl")
    assert ran.status == ExitStatus.FAILED
    assert [json.loads(line)["value"] for line in ran.out.splitlines()] == ["x"]
    assert "orders-0 is not read: LEADER_NOT_AVAILABLE" in ran.err
