"""kctl consume: records selected by key, header, value and condition."""

from __future__ import annotations

import io
import json
import time

import pytest

from kctl.client.producing.partitioners import crc32_partition_of_key, partition_of_key
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.reading import searches
from kctl.commands.reading.options import ScanProgress, rate_note
from kctl.commands.reading.searches import SEARCHED_BYTES_MAX, SearchTooSlow, TimedSearch
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.output.console import Console
from kctl.protocol.apis.fetch import FetchRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

PARTITIONS = 3
RECORDS = 30
TP = TopicPartition("orders", 0)


@pytest.fixture
def orders(cluster: FakeCluster) -> FakeCluster:
    """30 records in three partitions: keys k0 to k4, statuses new and failed, a header in every second one."""
    logs = cluster.create("orders", leaders=PARTITIONS)
    for number in range(RECORDS):
        key = b"k%d" % (number % 5)
        value = json.dumps({"id": number, "status": "failed" if number % 6 == 0 else "new"}).encode()
        headers = (("source", b"web"),) if number % 2 else ()
        log = logs[partition_of_key(key, PARTITIONS)]
        log.append(build_batch([Record(0, 1_000 * number, key, value, headers)]))
    return cluster


def ids(kctl: Kctl, options: str, *more: str) -> list[int]:
    ran = kctl(f"consume orders --format jsonl {options}", *more)
    assert (ran.status, ran.err) == (0, "")
    return sorted(json.loads(json.loads(line)["value"])["id"] for line in ran.out.splitlines())


@pytest.mark.usefixtures("orders")
@pytest.mark.long
def test_records_are_selected(kctl: Kctl) -> None:
    everything = range(RECORDS)
    assert ids(kctl, "--key k3") == [number for number in everything if number % 5 == 3]
    assert ids(kctl, "--key hex:6b33") == ids(kctl, "--key base64:azM=") == ids(kctl, "--key text:k3")
    assert ids(kctl, "--key k") == ids(kctl, "--key text:") == []
    assert ids(kctl, "--record-header source") == [number for number in everything if number % 2]
    assert ids(kctl, "--record-header source=hex:776562") == [number for number in everything if number % 2]
    assert ids(kctl, "--record-header source=mail") == []
    assert ids(kctl, "--grep", '"id": 1[0-4],') == [10, 11, 12, 13, 14]
    assert ids(kctl, "--where", 'value.status == "failed" and value.id > 6') == [12, 18, 24]
    assert ids(kctl, "--key k0 --record-header source --grep new --where", "value.id in [5, 15, 20]") == [5, 15]


@pytest.mark.usefixtures("orders")
def test_a_range_of_time_is_searched(kctl: Kctl) -> None:
    """The records of k0 from 5 s to 20 s after 1970; the fake cluster's timestamps are small."""
    assert ids(kctl, "--from @1970-01-01T00:00:05Z --until @1970-01-01T00:00:20Z --key k0") == [5, 10, 15]


@pytest.mark.usefixtures("orders")
def test_limit_counts_selected_records(kctl: Kctl) -> None:
    assert len(ids(kctl, "--key k3 --max-messages 2")) == 2
    assert len(ids(kctl, "--key k3 -n 2")) == 2


@pytest.mark.usefixtures("orders")
def test_another_number_of_records_than_expected_is_status_unmet(kctl: Kctl) -> None:
    assert kctl("consume orders --key k3 --expect 6").status == ExitStatus.DONE
    other = kctl("consume orders --key k3 --expect 5")
    assert (other.status, other.err) == (ExitStatus.UNMET, "6 records were shown, 5 were expected\n")


def test_only_partitions_of_the_key_are_read(kctl: Kctl, orders: FakeCluster) -> None:
    assert len(ids(kctl, "--key k3 --partition-of-key")) == 6
    read = {
        part.partition for _, request in orders.requested(FetchRequest) for t in request.topics for part in t.partitions
    }
    assert read == {partition_of_key(b"k3", PARTITIONS), crc32_partition_of_key(b"k3", PARTITIONS)}


@pytest.mark.usefixtures("orders")
@for_rows(
    "options, message",
    [
        (["--key", "hex:xy"], "--key: 'xy' is not valid hex"),
        (["--key", "base64:a"], "--key: 'a' is not valid base64"),
        (["--grep", "("], "'(' is not a valid regular expression"),
        (["--grep", "x" * 10_001], "--grep: more than 10,000 characters"),
        (["--where", "value.a ! 1"], "--where: unexpected '!' at position 9"),
        (["--record-header", "=x"], "--record-header takes NAME or NAME=VALUE, not '=x'"),
        (["--partition-of-key"], "--partition-of-key requires --key"),
        (["--group", "g", "--key", "k", "--partition-of-key"], "leave out --partition-of-key"),
    ],
)
def test_invalid_options_are_named(kctl: Kctl, options: list[str], message: str) -> None:
    ran = kctl("consume orders", *options)
    assert (ran.status, message in ran.err) == (ExitStatus.USAGE, True), ran.err


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:a|aa)+$", r"(.*)(.*)(.*)(.*)(.*)x"])
def test_a_search_that_takes_too_long_is_ended(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "TIME_S_MAX", 0.2)
    search = TimedSearch(pattern)
    begun_s = time.monotonic()
    with pytest.raises(SearchTooSlow, match="the value of orders-0 at offset 7 takes more than"):
        search(TP, Record(7, 0, None, b"a" * 5_000 + b"b", ()))
    assert time.monotonic() - begun_s < 60, "the expression would take years"
    assert search(TP, Record(8, 0, None, b"aaa" if "$" in pattern else b"x", ()))


def test_a_search_covers_text_and_bytes() -> None:
    assert TimedSearch("grö.e")(TP, Record(0, 0, None, "Größe größe".encode(), ()))
    assert TimedSearch(r"id=\d")(TP, Record(0, 0, None, b"\xff\xfeid=7", ()))
    assert not TimedSearch("x")(TP, Record(0, 0, None, None, ()))


def test_only_the_beginning_of_a_long_value_is_searched_with_special_characters() -> None:
    record = Record(0, 0, None, b"-" * SEARCHED_BYTES_MAX + b"needle", ())
    assert TimedSearch("needle")(TP, record)
    search = TimedSearch("need.e")
    assert (search(TP, record), search.shortened) == (False, 1)


def test_consume_warns_of_values_searched_in_part(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")[0].append(build_batch([Record(0, 1_000, None, b"-" * SEARCHED_BYTES_MAX + b"needle", ())]))
    ran = kctl("consume orders --grep need.e")
    assert (ran.status, ran.out) == (0, "")
    assert "--grep searched only the first 65,536 bytes of 1 value" in ran.err


def test_rate_note_shows_rate_and_time_left() -> None:
    assert rate_note(0, 100, 5) == ""
    assert rate_note(50, 100, 5) == ", 10/s, 5s left"
    assert rate_note(100, 100, 5) == ", 20/s"


def test_invalid_expression_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not a valid regular expression"):
        TimedSearch("[")


def test_progress_counts_offsets_of_finished_partitions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.output.progress_line.PROGRESS_LINE_INTERVAL_S", 0.0)
    errors = io.StringIO()
    ticks = iter([0.0, 10.0])
    bounds = {TP: (100, 200), TopicPartition("orders", 1): (0, 300)}
    with ScanProgress(Console(io.StringIO(), errors), bounds, lambda: next(ticks)) as progress:
        progress.update({TP: 150}, found=3)
    assert errors.getvalue() == "read 350 of 400 (87%) offsets, 3 selected, 35/s, 1s left\n"


def test_consume_names_the_record_whose_search_takes_too_long(
    kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "TIME_S_MAX", 0.2)
    cluster.create("orders")[0].append(build_batch([Record(0, 1_000, None, b"a" * 5_000 + b"b", ())]))
    ran = kctl("consume orders --grep (a+)+$")
    assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
    assert "--grep: the search of the value of orders-0 at offset 0 takes more than" in ran.err
