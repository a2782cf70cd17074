"""ZooKeeper's rules for versions, transactions, sessions and watches, one at a time."""

from __future__ import annotations

import pytest

from kctl.system.steps import run_at_once
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Acl, Id
from kctl.zookeeper.embedded.keeper import Keeper
from kctl.zookeeper.embedded.messages import codes, requests, responses
from kctl.zookeeper.embedded.messages.codes import CreateMode, OpCode, Reader
from tests.rows import for_rows
from tests.unit.zookeeper.player import Player, new_keeper


@pytest.fixture
def keeper() -> Keeper:
    return new_keeper()


@pytest.fixture
def one(keeper: Keeper) -> Player:
    return Player(keeper)


@pytest.fixture
def other(keeper: Keeper) -> Player:
    return Player(keeper)


def test_every_write_takes_a_zxid_even_one_that_is_refused(one: Player) -> None:
    assert one.keeper.zxid == 1  # the session
    one.create("/a")
    assert one.create("/a") == "NODE_EXISTS"
    one.create("/b")
    assert [one.stat(path).czxid for path in ("/a", "/b")] == [2, 4]
    one.get("/a")
    assert one.keeper.zxid == 4


def test_versions_count_changes_of_data_acl_and_children(one: Player) -> None:
    one.create("/a", b"x")
    one.set("/a", b"yz")
    one.create("/a/b")
    one.create("/a/c")
    one.delete("/a/b")
    stat = one.stat("/a")
    assert (stat.version, stat.aversion, stat.cversion) == (1, 0, 3)
    assert (stat.data_length, stat.num_children) == (2, 1)
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (2, 3, 6)


def test_sequential_nodes_are_numbered_by_all_that_were_ever_created(one: Player) -> None:
    one.create("/q")
    one.create("/q/other")
    assert one.create("/q/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL) == "/q/n-0000000001"
    one.delete("/q/n-0000000001")
    assert one.create("/q/", mode=CreateMode.EPHEMERAL_SEQUENTIAL) == "/q/0000000002"


def test_conditional_writes_compare_the_version(one: Player) -> None:
    one.create("/a")
    assert one.set("/a", b"", version=1) == "BAD_VERSION"
    assert one.set("/a", b"", version=0) == "OK"
    assert one.delete("/a", version=0) == "BAD_VERSION"
    assert one.delete("/a", version=1) == "OK"


def test_nodes_with_children_cannot_be_deleted_and_ephemerals_have_none(one: Player) -> None:
    one.create("/a")
    one.create("/a/e", mode=CreateMode.EPHEMERAL)
    assert one.delete("/a") == "NOT_EMPTY"
    assert one.create("/a/e/x") == "NO_CHILDREN_FOR_EPHEMERALS"
    assert one.create("/nowhere/x") == "NO_NODE"


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"])
def test_zookeepers_own_nodes_cannot_be_deleted(one: Player, path: str) -> None:
    assert one.delete(path) == "BAD_ARGUMENTS"


@for_rows("path", ["a", "/a/", "/a//b", "/a/./b", "/..", "/\x01", "/\x7f", "/\ue000", "/\U0001f600", "/a\0"])
def test_invalid_paths_are_refused(one: Player, path: str) -> None:
    assert one.set(path, b"") == "BAD_ARGUMENTS"


def test_null_data_is_not_empty_data(one: Player) -> None:
    one.create("/null", None)
    one.create("/empty", b"")
    assert one.get("/null") is None
    assert one.get("/empty") == b""


def test_a_failed_multi_changes_nothing_and_names_the_failed_operation(one: Player) -> None:
    one.create("/a")
    one.get("/a", watch=True)
    results = one.multi(
        requests.Create("/b", b"", OPEN_ACL_UNSAFE, 0),
        requests.SetData("/a", b"new", -1),
        requests.Check("/a", 9),
        requests.Delete("/a", -1),
    )
    assert results == ["OK", "OK", "BAD_VERSION", "RUNTIME_INCONSISTENCY"]
    assert one.exists("/b") == "NO_NODE"
    assert one.get("/a") == b""
    assert one.stat("/").cversion == 0  # starts at -1, because /zookeeper was never created
    assert one.take_received() == []


def test_operations_of_a_multi_see_those_before_them(one: Player) -> None:
    assert one.multi(
        requests.Create("/a", None, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL),
        requests.SetData("/a", b"x", 0),
        requests.Check("/a", 1),
    ) == ["ok", "ok", "ok"]
    stat = one.stat("/a")
    assert stat.czxid == stat.mzxid == 2
    assert stat.ephemeral_owner == one.session_id


def test_ephemeral_nodes_are_deleted_with_their_session_in_one_transaction(
    keeper: Keeper, one: Player, other: Player
) -> None:
    one.create("/a")
    one.create("/a/e1", mode=CreateMode.EPHEMERAL)
    one.create("/a/e2", mode=CreateMode.EPHEMERAL)
    other.children("/a", watch=True)
    other.exists("/a/e1", watch=True)
    before = keeper.zxid
    run_at_once(keeper.close_session(one.session_id))
    assert keeper.zxid == before + 1
    assert other.children("/a") == []
    assert other.take_received() == [("DELETED", "/a/e1"), ("CHILDREN_CHANGED", "/a")]
    assert keeper.sessions.find(one.session_id) is None


def test_a_session_is_resumed_only_with_its_password(keeper: Keeper) -> None:
    session = keeper.open_session(b"p" * 16, 4000, now_ms=0)
    assert keeper.resume_session(session.id, b"q" * 16, 4000, now_ms=1) is None
    assert keeper.resume_session(session.id + 1, b"p" * 16, 4000, now_ms=1) is None
    resumed = keeper.resume_session(session.id, b"p" * 16, 6000, now_ms=1)
    assert resumed is not None
    assert resumed.deadline_ms == 6001


def test_sessions_expire_without_requests_for_their_timeout(keeper: Keeper) -> None:
    session = keeper.open_session(b"", 4000, now_ms=100)
    assert keeper.sessions.overdue(4099) == []
    assert keeper.sessions.overdue(4100) == [session.id]
    keeper.sessions.touch(session.id, now_ms=4100)
    assert keeper.sessions.overdue(8099) == []
    assert keeper.sessions.next_deadline_ms() == 8100


def test_containers_are_deleted_after_their_last_child(keeper: Keeper, one: Player) -> None:
    one.create_container("/fresh")
    one.create_container("/used")
    one.create("/used/x")
    one.delete("/used/x")
    assert one.stat("/used").ephemeral_owner == 0
    run_at_once(keeper.remove_empty_containers())
    assert one.exists("/used") == "NO_NODE"
    assert one.exists("/fresh") == "yes"


def test_a_watch_fires_once(one: Player, other: Player) -> None:
    one.create("/a")
    other.get("/a", watch=True)
    one.set("/a", b"1")
    one.set("/a", b"2")
    assert other.take_received() == [("DATA_CHANGED", "/a")]


def test_a_watch_event_carries_the_zxid_of_the_transaction_that_caused_it(
    keeper: Keeper, one: Player, other: Player
) -> None:
    other.call(requests.AddWatch("/", is_recursive=True))
    one.create("/a", mode=CreateMode.EPHEMERAL)
    one.set("/a", b"1")
    created = keeper.zxid - 1
    run_at_once(keeper.close_session(one.session_id))
    assert other.take_received() == [("CREATED", "/a"), ("DATA_CHANGED", "/a"), ("DELETED", "/a")]
    assert other.received_zxids == [created, created + 1, keeper.zxid]


def test_events_of_a_multi_carry_the_zxid_of_the_multi(keeper: Keeper, one: Player, other: Player) -> None:
    other.call(requests.AddWatch("/", is_recursive=True))
    one.multi(*(requests.Create(path, b"", OPEN_ACL_UNSAFE, CreateMode.PERSISTENT) for path in ("/a", "/b")))
    assert other.received_zxids == [keeper.zxid, keeper.zxid]


def test_events_that_a_client_missed_carry_no_zxid(one: Player, other: Player) -> None:
    one.create("/a")
    other.call(requests.SetWatches(0, data=["/a", "/gone"], exist=[], children=["/"], persistent=[], recursive=[]))
    assert other.take_received() == [("DATA_CHANGED", "/a"), ("DELETED", "/gone"), ("CHILDREN_CHANGED", "/")]
    assert other.received_zxids == [-1, -1, -1]


def test_exists_sets_a_watch_on_a_missing_node(one: Player, other: Player) -> None:
    assert other.exists("/a", watch=True) == "NO_NODE"
    assert other.get("/b", watch=True) == "NO_NODE"
    assert other.children("/c", watch=True) == "NO_NODE"
    for path in ("/a", "/b", "/c"):
        one.create(path)
    assert other.take_received() == [("CREATED", "/a")]


def test_a_deletion_is_reported_once_to_data_and_child_watches(one: Player, other: Player) -> None:
    one.create("/a")
    other.get("/a", watch=True)
    other.children("/a", watch=True)
    other.children("/", watch=True)
    one.delete("/a")
    assert other.take_received() == [("DELETED", "/a"), ("CHILDREN_CHANGED", "/")]


def test_watch_events_need_read_permission(one: Player, other: Player) -> None:
    """CVE-2024-23944: a watch must not reveal changes behind an ACL."""
    other.exists("/secret", watch=True)
    one.create("/secret", acl=(Acl(31, Id("digest", "ann:hash")),))
    assert other.take_received() == []
    assert other.exists("/secret") == "NO_AUTH"


def test_persistent_watches_stay_and_recursive_ones_cover_all_descendants(one: Player, other: Player) -> None:
    one.create("/a")
    other.call(requests.AddWatch("/a", is_recursive=False))
    one.create("/a/b")
    one.set("/a", b"1")
    one.set("/a", b"2")
    assert other.take_received() == [("CHILDREN_CHANGED", "/a"), ("DATA_CHANGED", "/a"), ("DATA_CHANGED", "/a")]
    other.call(requests.AddWatch("/a", is_recursive=True))
    one.create("/a/b/c")
    one.delete("/a/b/c")
    assert other.take_received() == [("CREATED", "/a/b/c"), ("DELETED", "/a/b/c")]


def test_watches_end_with_their_connection(keeper: Keeper, one: Player, other: Player) -> None:
    one.create("/a")
    other.get("/a", watch=True)
    other.call(requests.AddWatch("/a", is_recursive=True))
    run_at_once(keeper.forget_client(other))
    one.set("/a", b"")
    assert other.take_received() == []
    assert len(keeper.watches.data) == len(keeper.watches.children) == 0


def test_watches_set_again_report_missed_changes(one: Player, other: Player) -> None:
    for path in ("/changed", "/deleted", "/same", "/parent", "/same-parent"):
        one.create(path)
    seen = one.keeper.zxid
    one.set("/changed", b"")
    one.delete("/deleted")
    one.create("/created")
    one.create("/parent/x")
    other.call(
        requests.SetWatches(
            seen,
            data=["/changed", "/deleted", "/same"],
            exist=["/created", "/still-missing"],
            children=["/parent", "/same-parent", "/deleted"],
            persistent=[],
            recursive=[],
        )
    )
    assert other.take_received() == [
        ("DATA_CHANGED", "/changed"),
        ("DELETED", "/deleted"),
        ("CREATED", "/created"),
        ("CHILDREN_CHANGED", "/parent"),
        ("DELETED", "/deleted"),
    ]
    one.set("/same", b"")
    one.create("/still-missing")
    one.create("/same-parent/x")
    assert [path for _, path in other.take_received()] == ["/same", "/still-missing", "/same-parent"]


def test_removing_a_watch_that_is_not_there_is_refused(keeper: Keeper, one: Player) -> None:
    one.create("/a")
    body = codes.string("/a") + codes.int32(2)
    request = requests.decode(OpCode.REMOVE_WATCHES, Reader(body))
    assert isinstance(request, requests.RemoveWatches)
    assert one.call(request) == "NO_WATCHER"
    one.get("/a", watch=True)
    assert one.call(request) is None
    one.set("/a", b"")
    assert one.take_received() == []


def test_operations_without_permission_are_refused(one: Player, other: Player) -> None:
    one.create("/r", acl=READ_ACL_UNSAFE)
    assert other.set("/r", b"") == "NO_AUTH"
    assert other.create("/r/x") == "NO_AUTH"
    assert other.get("/r") == b""
    assert other.create("/x", acl=()) == "INVALID_ACL"


def test_reads_of_many_nodes_fail_one_by_one(one: Player) -> None:
    one.create("/a", b"x")
    response = one.call(requests.MultiRead((requests.GetData("/a"), requests.GetChildren("/nowhere"))))
    assert isinstance(response, responses.Results)
    kinds = [type(result).__name__ for result in response.results]
    assert kinds == ["Data", "Failed"]


def test_nodes_with_a_time_to_live_are_refused(one: Player) -> None:
    assert one.create("/ttl", mode=CreateMode.PERSISTENT_WITH_TTL) == "UNIMPLEMENTED"


def test_changes_are_what_differs_since_they_were_last_taken(keeper: Keeper, one: Player) -> None:
    first = keeper.take_changes()
    assert first is not None
    assert set(first.nodes) == {"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    assert [session.id for session in first.opened] == [one.session_id]
    assert keeper.take_changes() is None
    one.create("/a")
    one.create("/b")
    one.delete("/b")
    changes = keeper.take_changes()
    assert changes is not None
    assert {path for path, (before, now) in changes.nodes.items() if before is not now} == {"/", "/a"}
    assert changes.zxid == keeper.zxid
    one.create("/a")
    refused = keeper.take_changes()
    assert refused is not None, "a zxid that was acknowledged is not used again after a crash"
    assert refused.nodes == {}
