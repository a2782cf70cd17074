"""Wide rows on terminals of 40 and 80 columns, and in a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from kctl.cli import main
from kctl.model import TopicPartition
from kctl.output.terminal_text import display_width, words_of
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.test_groups import member

MEMBER_ID = "consumer-billing-1-0f1e2d3c-4b5a-6978"
BOOTSTRAP = "listener.security.protocol.map"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, line: str, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(line.split()) == 0
    return stream.getvalue()


def fill(cluster: FakeCluster) -> None:
    cluster.create("orders-of-the-japan-branch", leaders=2)
    cluster.configs["orders-of-the-japan-branch"] = {BOOTSTRAP: "INTERNAL:PLAINTEXT,EXTERNAL:SSL,CLIENT:SASL_SSL"}
    offsets = {TopicPartition("orders-of-the-japan-branch", number): 0 for number in range(2)}
    cluster.groups["請求"] = FakeGroup(offsets, [member(MEMBER_ID)])


@for_rows("width", [40, 80])
@for_rows(
    "line, whole",
    [
        ("groups describe 請求", ["orders-of-the-japan-branch", "請求"]),
        ("groups describe 請求 --show members", [MEMBER_ID, "10.0.0.1"]),
        ("configs describe topic --all", [BOOTSTRAP, "INTERNAL:PLAINTEXT,", "CLIENT:SASL_SSL"]),
        ("topics describe", ["orders-of-the-japan-branch"]),
        ("cluster describe", ["fake-cluster"]),
    ],
)
def test_nothing_is_wider_than_the_terminal_and_no_name_is_broken(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, width: int, line: str, whole: list[str]
) -> None:
    fill(cluster)
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown(monkeypatch, f"{line} --no-color", Terminal())
    wide = [line for line in text.splitlines() if display_width(line) > width]
    assert [wide_line for wide_line in wide if len(words_of(wide_line.strip())) > 1] == []
    assert [word for word in whole if word not in text] == []


def test_a_table_in_a_pipe_has_no_limit(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cluster)
    monkeypatch.setenv("COLUMNS", "40")
    text = shown(monkeypatch, "groups describe 請求 --format table", io.StringIO())
    assert [len(line.split()) for line in text.splitlines()] == [6, 6, 6]


@pytest.mark.parametrize(
    ("line", "titles", "left_out"),
    [
        ("groups describe billing", "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG", "MEMBER-ID"),
        (
            "groups describe billing --show state",
            "GROUP STATE COORDINATOR MEMBER-COUNT TOTAL-LAG",
            "PROTOCOL-TYPE",
        ),
        ("records delete orders --before-offset 0 --dry-run", "TOPIC PARTITION BEFORE-OFFSET", "LOG-END-OFFSET"),
    ],
)
def test_list_on_a_narrow_terminal_is_a_table_without_what_matters_least(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    titles: str,
    left_out: str,
) -> None:
    cluster.create("orders", leaders=2)
    offsets = {TopicPartition("orders", number): 0 for number in range(2)}
    cluster.groups["billing"] = FakeGroup(offsets, [member(MEMBER_ID, 0, 1)])
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(monkeypatch, f"{line} --no-color", Terminal())
    assert set(titles.split()) <= set(text.splitlines()[0].split())
    (note,) = [line for line in capsys.readouterr().err.splitlines() if "too narrow" in line]
    assert left_out in note
