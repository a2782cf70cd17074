"""kctl consume --last: compacted logs, the bounds, and retention while the command reads."""

from __future__ import annotations

import pytest

from kctl.admin.records import latest
from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.fetch import FetchRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster, FakePartition
from tests.unit.commands.conftest import Kctl


def append(log: FakePartition, numbers: range) -> None:
    for number in numbers:
        log.append(build_batch([Record(0, 1_000 + number, None, b"%d" % number)]))


def last(kctl: Kctl, options: str, *more: str) -> list[int]:
    ran = kctl(f"consume orders --value-only {options}", *more)
    assert (ran.status, ran.err) == (0, ""), ran.err
    return [int(line) for line in ran.out.splitlines()]


def test_offsets_without_records_do_not_count(kctl: Kctl, cluster: FakeCluster) -> None:
    """As in a compacted log, in which each record is followed by thousands of offsets without one."""
    (log,) = cluster.create("orders")
    for number in range(10):
        log.end += 5_000 * (number % 2)
        append(log, range(number, number + 1))
    assert last(kctl, "--last 7") == [*range(3, 10)]
    assert last(kctl, "--last 1") == [9]
    assert last(kctl, "--last 50") == [*range(10)]
    read = [
        (part.partition, part.fetch_offset)
        for _, request in cluster.requested(FetchRequest)
        for topic in request.topics
        for part in topic.partitions
    ]
    assert len(read) < 100, "the windows grow with the gaps"


def test_records_are_held_within_bounds(kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for log in cluster.create("orders", leaders=2):
        append(log, range(100, 140))
    monkeypatch.setattr(latest, "LAST_BYTES_MAX", 100)
    assert last(kctl, "--last 16") == [value for number in range(132, 140) for value in (number, number)]
    ran = kctl("consume orders --last 17")
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert "--last 17 would hold more than 0 MiB of records: use a smaller number, or --partition" in ran.err
    assert last(kctl, "--last 17 --partition 0") == [*range(123, 140)]
    selected = [value for number in range(100, 110) for value in (number, number)]
    assert last(kctl, "--last 33 --grep ^10") == selected, "records that are not selected are not held"
    most = latest.LAST_RECORDS_MAX
    assert kctl(f"consume orders --last {most + 1}").status == ExitStatus.USAGE
    assert last(kctl, f"--last {most} --from end") == []


def test_records_that_retention_deletes_meanwhile_are_left_out(kctl: Kctl, cluster: FakeCluster) -> None:
    """The log begins later when a window is fetched before the first one, which begins at 936."""
    (log,) = cluster.create("orders")
    append(log, range(1_000))
    for start in (500, 700, 905, 1_000):
        log.start = 0
        fetched: list[int] = []

        def delete(request: FetchRequest, start: int = start, fetched: list[int] = fetched) -> None:
            fetched.append(request.topics[0].partitions[0].fetch_offset)
            if fetched[-1] < 900:
                log.start = start

        cluster.intercept(FetchRequest, delete)
        shown = last(kctl, "--last 20 --grep ^(3|600|800|920|999)$")
        assert min(fetched) < 900
        assert shown == [number for number in (600, 800, 920, 999) if number >= min(start, 936)], start
