"""--group-regex and --topic-regex of the commands about groups and offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

ORDERS, OLD, PAYMENTS = (TopicPartition(name, 0) for name in ("orders", "orders.old", "payments"))


@pytest.fixture
def groups(cluster: FakeCluster) -> dict[str, FakeGroup]:
    """Groups a.x with offsets in three topics, and a.y and b with an offset in one."""
    for name in ("orders", "orders.old", "payments"):
        (partition,) = cluster.create(name)
        partition.append(build_batch([Record(0, 0, None, b"x") for _ in range(40)]))
    cluster.create("__consumer_offsets")
    cluster.groups |= {
        "a.x": FakeGroup({ORDERS: 10, OLD: 20, PAYMENTS: 30}),
        "a.y": FakeGroup({OLD: 5}),
        "b": FakeGroup({ORDERS: 7}),
        "a.share": FakeGroup(type="share"),
    }
    return cluster.groups


@pytest.mark.usefixtures("groups")
@for_rows(
    "line, groups_shown",
    [
        ("groups list", ["a.share", "a.x", "a.y"]),
        ("groups describe", ["a.x", "a.y"]),
        ("groups describe --show state", ["a.x", "a.y"]),
        ("groups lag", ["a.x", "a.y"]),
        ("groups delete --dry-run", ["a.x", "a.y"]),
        ("groups reset-offsets --all-topics --to-earliest --dry-run", ["a.x", "a.y"]),
    ],
)
def test_groups_match_as_a_whole(kctl: Kctl, line: str, groups_shown: list[str]) -> None:
    ran = kctl(f"{line} --group-regex a\\..* --format json")
    assert ran.status == ExitStatus.DONE, ran.err
    assert sorted({row["group"] for row in ran.document}) == groups_shown
    assert ("a.share" in ran.err) is ("list" not in line)


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("line", ["list", "describe", "members", "lag"])
def test_list_without_a_match_is_empty(kctl: Kctl, line: str) -> None:
    ran = kctl(f"groups {line} --group-regex a --format json")
    assert (ran.status, ran.document) == (ExitStatus.DONE, [])


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("line", ["delete --yes", "export", "reset-offsets --all-topics --to-earliest --yes"])
def test_change_without_a_match_fails(kctl: Kctl, line: str) -> None:
    ran = kctl(f"groups {line} --group-regex a")
    assert (ran.status, ran.out, ran.err) == (ExitStatus.FAILED, "", "kctl: no group matches --group-regex 'a'\n")


@pytest.mark.usefixtures("groups")
@for_rows("line", ["describe", "members", "export", "delete --dry-run"])
@for_rows("more", ["b --group-regex b", "--all --group-regex b", "--group-regex ("])
def test_groups_are_selected_in_one_way(kctl: Kctl, line: str, more: str) -> None:
    ran = kctl(f"groups {line} {more}")
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")


def test_offsets_of_matching_topics_are_reset_where_a_group_has_them(kctl: Kctl, groups: dict[str, FakeGroup]) -> None:
    ran = kctl("groups reset-offsets --group-regex a\\..* --topic-regex orders.* --to-offset 3 --yes")
    assert ran.status == ExitStatus.DONE, ran.err
    assert groups["a.x"].offsets == {ORDERS: 3, OLD: 3, PAYMENTS: 30}
    assert groups["a.y"].offsets == {OLD: 3}
    assert groups["b"].offsets == {ORDERS: 7}


def test_offsets_of_matching_topics_are_deleted(kctl: Kctl, groups: dict[str, FakeGroup]) -> None:
    ran = kctl("groups delete-offsets a.x --topic-regex orders --yes")
    assert ran.status == ExitStatus.DONE, ran.err
    assert groups["a.x"].offsets == {OLD: 20, PAYMENTS: 30}


def test_offsets_of_matching_topics_are_exported_and_imported(
    kctl: Kctl, groups: dict[str, FakeGroup], tmp_path: Path
) -> None:
    exported = kctl("groups export --all --topic-regex orders.*")
    file = tmp_path / "offsets.json"
    file.write_text(exported.out)
    groups.clear()
    ran = kctl(f"groups import {file} --group-regex a\\..* --topic-regex .*old --yes")
    assert ran.status == ExitStatus.DONE, ran.err
    assert {name: group.offsets for name, group in groups.items()} == {"a.x": {OLD: 20}, "a.y": {OLD: 5}}
    assert kctl(f"groups restore a.x --backup {file} --topic-regex orders --yes").status == ExitStatus.DONE
    assert groups["a.x"].offsets == {OLD: 20, ORDERS: 10}
    missing = kctl(f"groups import {file} --group-regex c --yes")
    assert (missing.status, "a group that matches --group-regex 'c'" in missing.err) == (ExitStatus.USAGE, True)


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    "line",
    [
        "groups reset-offsets a.x --to-earliest --dry-run",
        "groups delete-offsets a.x --dry-run",
        "groups export a.x",
    ],
)
def test_topic_without_offsets_does_not_match(kctl: Kctl, line: str) -> None:
    ran = kctl(f"{line} --topic-regex return.*")
    assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
    assert "no topic with offsets of the groups matches --topic-regex 'return.*'" in ran.err


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("group", [("a.x", 50), ("a.y", 35), ("b", 33)]),
        ("partition", [("a.y", 35), ("b", 33), ("a.x", 30), ("a.x", 20)]),
    ],
)
def test_lag_of_matching_topics(kctl: Kctl, by: str, expected: list[tuple[str, int]]) -> None:
    ran = kctl(f"groups lag --by {by} --topic-regex orders.* --format json")
    assert [(row["group"], row["lag"]) for row in ran.document] == expected


@pytest.mark.usefixtures("groups")
def test_offsets_of_all_topics_that_match(kctl: Kctl) -> None:
    ran = kctl("topics offsets --topic-regex .*")
    assert [row[0] for row in ran.rows] == ["orders", "orders.old", "payments"]
    for line in ("topics offsets", "topics offsets orders --topic-regex orders"):
        assert kctl(line).status == ExitStatus.USAGE
