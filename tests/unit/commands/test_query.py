"""The options of lists: --expect and --watch; and names from standard input."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kctl.cli import main
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.values import parse_expectation
from kctl.errors import UsageError
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl


@contextmanager
def standard_input(text: bytes) -> Iterator[None]:
    """Descriptor 0 is a pipe with this text."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@for_rows(
    "text, held, not_held",
    [
        ("2", 2, 3),
        ("=2", 2, 1),
        ("==2", 2, 1),
        ("!=2", 3, 2),
        (">2", 3, 2),
        (">=2", 2, 1),
        ("<2", 1, 2),
        ("<= 2", 2, 3),
    ],
)
def test_expectation_holds(text: str, held: int, not_held: int) -> None:
    assert parse_expectation(text).holds(held)
    assert not parse_expectation(text).holds(not_held)


@for_rows("text", ["", "x", "-1", ">", "=>2", "2.5", "2 3", "9" * 30])
def test_invalid_expectation_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is a whole number|is not a number of rows"):
        parse_expectation(text)


@pytest.mark.parametrize("format_", ["table", "plain", "json", "jsonl", "yaml", "csv"])
def test_expect_counts_rows_in_every_format(kctl: Kctl, cluster: FakeCluster, format_: str) -> None:
    cluster.create("orders", leaders=2)
    cluster.create("payments", leaders=2)
    for line in ("topics list", "topics describe"):
        assert kctl(f"{line} --expect 2 --format {format_}").status == ExitStatus.DONE
        ran = kctl(f"{line} --expect >=3 --format {format_}")
        assert (ran.status, ran.err) == (ExitStatus.UNMET, "kctl: warning: --expect >=3: there are 2\n")
        assert "orders" in ran.out


def test_expect_keeps_the_status_of_a_failure(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    assert kctl("topics describe orders nope --expect 2").status == ExitStatus.FAILED


def test_watch_repeats_and_adds_the_time_to_jsonl(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    ran = kctl("topics list --watch 100ms --rounds 3 --format jsonl")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["topic"] for row in rows] == ["orders"] * 3
    assert len({row["watched_at"] for row in rows}) == 3
    assert kctl("topics list --watch --rounds 1").rows == [["orders", "2", "1", "-", "-"]]


@pytest.mark.parametrize("format_", ["table", "plain", "jsonl"])
@pytest.mark.parametrize(("line", "count"), [("cluster health", 0), ("cluster describe", 2)])
def test_overviews_of_the_cluster_are_watched_and_counted(
    kctl: Kctl, cluster: FakeCluster, line: str, count: int, format_: str
) -> None:
    assert kctl(f"{line} --format {format_} --watch 100ms --expect {count}").status == ExitStatus.DONE
    ran = kctl(f"{line} --format {format_} --watch 100ms --rounds 2 --expect {count + 1}")
    assert (ran.status, f"there are {count}" in ran.err) == (ExitStatus.UNMET, True)


def test_watch_ends_when_the_expectation_holds(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    assert kctl("topics list --watch 100ms --rounds 50 --expect 1").out.count("orders") == 1
    ran = kctl("topics list --watch 100ms --rounds 2 --expect 7")
    assert (ran.status, ran.out.count("orders")) == (ExitStatus.UNMET, 2)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("topics list --watch 1ms", "--watch: must be between 100ms and 1h, not '1ms'"),
        ("topics list --watch --format json", "--format json is one document"),
        ("topics list --watch --format yaml", "--format yaml is one document"),
        ("topics list --rounds 3", "--rounds requires --watch"),
        ("groups list --compat kafka-2.8 --expect 1", "--expect needs rows"),
    ],
)
def test_watch_and_expect_that_are_refused(kctl: Kctl, cluster: FakeCluster, line: str, complaint: str) -> None:
    ran = kctl(line)
    assert ran.status == ExitStatus.USAGE
    assert complaint in ran.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_watch_clears_a_terminal_and_shows_as_many_lines_as_it_has(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        cluster.create(f"topic-{number:02}", leaders=1)
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["topics", "list", "--watch", "100ms", "--rounds", "2", "--no-color"]) == 0
    before, *screens = screen.getvalue().split("\x1b[H\x1b[2J")
    assert (before, len(screens)) == ("", 2)
    assert [len(screen.splitlines()) for screen in screens] == [9, 9]
    assert screens[0].endswith("... 23 more lines\n")


def test_names_are_read_from_standard_input(kctl: Kctl, cluster: FakeCluster) -> None:
    for name in ("orders", "payments", "users"):
        cluster.create(name, leaders=1)
    with standard_input(b"orders\n\n  users \r\n"):
        ran = kctl("topics describe - --format json")
    assert [row["topic"] for row in ran.document] == ["orders", "users"]


@pytest.mark.parametrize(
    ("given", "line", "complaint"),
    [
        (b"\n \n", "topics delete - --yes", "has none"),
        (b"a\n", "topics describe - -", "given twice"),
        (b"\xff\n", "topics describe -", "not UTF-8"),
    ],
)
def test_names_from_standard_input_that_are_refused(
    kctl: Kctl, cluster: FakeCluster, given: bytes, line: str, complaint: str
) -> None:
    with standard_input(given):
        ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert complaint in ran.err


def test_files_are_read_from_standard_input(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=1)
    document = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}
    with standard_input(json.dumps(document).encode()):
        ran = kctl("records delete --offset-json-file - --dry-run --format json")
    assert [row["topic"] for row in ran.document] == ["orders"], ran.err


METADATA, LIST_GROUPS = 3, 16


class UpgradedCluster(FakeCluster):
    """Broker 1 has a newer Metadata than the others, and no ListGroups."""

    def _api_versions(self, broker: int, request: Any) -> Any:
        response = super()._api_versions(broker, request)
        if broker == 1:
            response.api_keys = [api for api in response.api_keys if api.api_key != LIST_GROUPS]
            next(api for api in response.api_keys if api.api_key == METADATA).max_version += 1
        return response


def test_api_versions_name_the_brokers_where_they_differ(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    with UpgradedCluster(brokers=3, versions={METADATA: (0, 7), LIST_GROUPS: (0, 4)}) as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        rows = kctl("api-versions --differing").rows
    assert [row[:3] for row in rows] == [["3", "Metadata", "0,2: 0-7; 1: 0-8"], ["16", "ListGroups", "0,2: 0-4; 1: -"]]
    assert [row[4:] for row in rows] == [["7", "differs"], ["-", "differs"]]
