"""A conversion can be interrupted at every operation, is refused on what is not as planned, and is taken back."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kctl.errors import UsageError
from kctl.migration.converting.conversion import (
    check_conversion,
    convert,
    has_started,
    new_contents,
    node_of,
    restore,
)
from kctl.migration.converting.journal import JOURNAL_NAME, State, read_journal
from kctl.migration.converting.preconditions import check_same_state
from kctl.migration.planning.making import ControllerSpec
from kctl.migration.planning.plan import MigrationPlan
from kctl.migration.source.cluster import Znode
from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER
from kctl.testing.sim_files import SimFiles
from kctl.zookeeper import paths
from tests.rows import for_rows
from tests.unit.migration.stored_cluster import contents, disk, planned, state_of, stored

SNAPSHOT = f"/a/{METADATA_FOLDER}/{FILE_NAME}"


def _without_journal(files: SimFiles) -> dict[str, bytes]:
    return {path: data for path, data in contents(files).items() if not path.endswith(JOURNAL_NAME)}


def test_only_the_files_of_the_plan_are_written() -> None:
    files = disk()
    before = contents(files)
    plan, _ = planned(files)
    for node in plan.nodes.values():
        convert(files, plan, node)
    after = _without_journal(files)
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed == {
        SNAPSHOT,
        "/a/meta.properties",
        "/b/meta.properties",
        "/c/meta.properties",
        "/a/old-0/partition.metadata",
    }
    assert before.keys() <= after.keys()
    assert after[SNAPSHOT] == plan.snapshot


def test_a_second_run_changes_nothing() -> None:
    files = disk()
    plan, _ = planned(files)
    assert convert(files, plan, plan.nodes[1])
    after = contents(files)
    assert convert(files, plan, plan.nodes[1]) == []
    assert contents(files) == after


def test_restoring_gives_back_every_file_as_it_was() -> None:
    files = disk()
    before = contents(files)
    plan, _ = planned(files)
    convert(files, plan, plan.nodes[1])
    restore(files, plan, plan.nodes[1])
    assert _without_journal(files) == before
    assert restore(files, plan, plan.nodes[1]) == []
    convert(files, plan, plan.nodes[1])
    assert contents(files)[SNAPSHOT] == plan.snapshot


def _interrupted_everywhere(prepare: Callable[[], tuple[SimFiles, MigrationPlan]], step: str) -> int:
    """Fails each operation of a step once, as a full disk, a kill and a power failure, then runs it again; returns the
    number of operations."""
    files, plan = prepare()
    run = convert if step == "convert" else restore
    start = files.operations
    run(files, plan, plan.nodes[1])
    count = files.operations - start
    expected = _without_journal(files)
    chance = random.Random(1)
    for end in ("full", "killed", "power"):
        for number in range(1, count + 1):
            files, plan = prepare()
            files.fail_at(number, error=errno.ENOSPC if end == "full" else errno.EIO)
            with pytest.raises((OSError, UsageError)):
                run(files, plan, plan.nodes[1])
            if end == "power":
                files.crash(chance)
            else:
                files.kill()
            run(files, plan, plan.nodes[1])
            after = {path: data for path, data in _without_journal(files).items() if not path.endswith(".tmp")}
            assert after == expected, (end, number)
            journal = read_journal(files, "/a")
            assert journal is not None
            assert journal.state is (State.CONVERTED if step == "convert" else State.REVERTED)
    return count


@pytest.mark.long
def test_a_conversion_is_completed_after_an_interruption_at_each_operation() -> None:
    def prepare() -> tuple[SimFiles, MigrationPlan]:
        files = disk()
        return files, planned(files)[0]

    assert _interrupted_everywhere(prepare, "convert") > 20


@pytest.mark.long
def test_a_restoration_is_completed_after_an_interruption_at_each_operation() -> None:
    def prepare() -> tuple[SimFiles, MigrationPlan]:
        files = disk()
        plan, _ = planned(files)
        convert(files, plan, plan.nodes[1])
        return files, plan

    assert _interrupted_everywhere(prepare, "restore") > 20


@pytest.mark.long
def test_a_conversion_that_was_interrupted_anywhere_can_be_taken_back() -> None:
    files = disk()
    before = contents(files)
    plan, _ = planned(files)
    start = files.operations
    convert(files, plan, plan.nodes[1])
    for number in range(1, files.operations - start + 1):
        files = disk()
        plan, _ = planned(files)
        files.fail_at(number)
        with pytest.raises((OSError, UsageError)):
            convert(files, plan, plan.nodes[1])
        files.kill()
        if read_journal(files, "/a") is None:
            assert {path for path in contents(files) if not path.endswith(".tmp")} == before.keys()
            continue
        restore(files, plan, plan.nodes[1])
        assert {path: data for path, data in _without_journal(files).items() if not path.endswith(".tmp")} == before


def test_identities_are_changed_last() -> None:
    """4.x would come up as an empty cluster on a directory with its identity and without the snapshot."""
    plan, _ = planned(disk())
    paths_in_order = list(new_contents(plan, plan.nodes[1]))
    assert paths_in_order[0] == SNAPSHOT
    assert paths_in_order[-2:] == ["/a/meta.properties", "/b/meta.properties"]


def _append(files: SimFiles) -> None:
    files.write_atomically("/a/orders-0/00000000000000000000.log", b"one more record")


def _remove(files: SimFiles) -> None:
    files.remove_tree("/b")


def _replace_meta(files: SimFiles) -> None:
    files.write_atomically("/b/meta.properties", b"version=0\nbroker.id=1\ncluster.id=other\n")


def _other_metadata_log(files: SimFiles) -> None:
    files.make_directory(f"/a/{METADATA_FOLDER}")
    files.write_atomically(f"/a/{METADATA_FOLDER}/{0:020d}.log", b"")


CHANGES: dict[str, tuple[Callable[[SimFiles], None], str]] = {
    "records appended since": (_append, "/a has changed since its inventory"),
    "a directory that is not mounted": (_remove, "/b does not exist"),
    "another cluster's directory": (_replace_meta, "/b has changed since its inventory"),
    "a metadata log": (_other_metadata_log, "is not empty"),
}


@for_rows("row", CHANGES)
def test_what_is_not_as_planned_is_refused_before_the_first_write(row: str) -> None:
    change, text = CHANGES[row]
    files = disk()
    plan, _ = planned(files)
    change(files)
    before = contents(files)
    with pytest.raises(UsageError, match=text):
        convert(files, plan, plan.nodes[1])
    assert contents(files) == before


def test_the_directories_of_another_node_are_refused() -> None:
    files = disk()
    plan, _ = planned(files)
    with pytest.raises(UsageError, match="the plan has no node 9, but 1, 2"):
        node_of(plan, 9)


def test_a_node_that_another_plan_has_converted_is_refused() -> None:
    files = disk()
    plan, _ = planned(files)
    other, _ = planned(files, controllers=(ControllerSpec(2, "kafka-2", 9093),))
    convert(files, plan, plan.nodes[1])
    for run in (convert, restore):
        with pytest.raises(UsageError, match="by another plan"):
            run(files, other, other.nodes[1])


def test_records_that_an_old_broker_wrote_into_a_half_converted_directory_are_noticed() -> None:
    files = disk()
    plan, _ = planned(files)
    start = files.operations
    check_conversion(files, plan, plan.nodes[1])
    files.fail_at(files.operations - start + 20)  # after the journal, and before the identities
    with pytest.raises(OSError):
        convert(files, plan, plan.nodes[1])
    files.kill()
    assert read_journal(files, "/a") is not None
    _append(files)
    with pytest.raises(UsageError, match="/a has changed"):
        convert(files, plan, plan.nodes[1])


def test_a_file_that_was_changed_since_the_conversion_is_not_overwritten() -> None:
    files = disk()
    plan, _ = planned(files)
    convert(files, plan, plan.nodes[1])
    files.write_atomically("/b/meta.properties", b"edited")
    before = contents(files)
    with pytest.raises(UsageError, match=r"/b/meta\.properties was changed since"):
        restore(files, plan, plan.nodes[1])
    assert contents(files) == before


def test_a_controller_of_its_own_gets_an_identity_and_the_snapshot() -> None:
    files = disk()
    plan, _ = planned(files, controllers=(ControllerSpec(100, "quorum", 9093, "/controller"),))
    convert(files, plan, plan.nodes[100])
    assert files.read(f"/controller/{METADATA_FOLDER}/{FILE_NAME}") == plan.snapshot
    assert b"node.id=100" in files.read("/controller/meta.properties")
    assert check_conversion(files, plan, plan.nodes[100]) is not None


def test_files_of_4_in_the_metadata_log_show_that_it_has_run() -> None:
    files = disk()
    plan, _ = planned(files)
    convert(files, plan, plan.nodes[1])
    assert not has_started(files, plan, plan.nodes[1])
    files.write_atomically(f"/a/{METADATA_FOLDER}/quorum-state", b"{}")
    assert has_started(files, plan, plan.nodes[1])


STATES: dict[str, tuple[dict[str, Znode], str]] = {
    "a broker": (
        {"/brokers/ids": Znode(b""), "/brokers/ids/1": Znode(b'{"version":1,"host":"h","port":9092}')},
        "brokers are registered in ZooKeeper: 1",
    ),
    "a state that has changed": (
        {paths.partition_state("orders", 0): Znode(state_of(2, (2,), 5), 1)},
        "has changed since",
    ),
    "another cluster": ({paths.CLUSTER_ID: Znode(b'{"version":"1","id":"other"}')}, "the plan is of cluster"),
}


@for_rows("row", STATES)
def test_a_state_of_zookeeper_other_than_the_planned_one_is_refused(row: str) -> None:
    changed, text = STATES[row]
    plan, _ = planned(disk())
    check_same_state(stored(), plan)
    with pytest.raises(UsageError, match=text):
        check_same_state(stored(changed), plan)
