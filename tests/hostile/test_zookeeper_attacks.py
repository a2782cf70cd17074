"""Known attacks on Apache ZooKeeper against the embedded server, and floods of sessions and watches."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kctl.errors import MalformedRequest
from kctl.limits import ZOOKEEPER_NAMES_PER_STEP, ZOOKEEPER_PATHS_PER_STEP
from kctl.system.steps import Steps, run_at_once
from kctl.zookeeper.embedded import four_letter_words, server, watches
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, Acl, Id, digest_identity
from kctl.zookeeper.embedded.keeper import ZOOKEEPER_MULTI_READ_BYTES_MAX, ZOOKEEPER_OPERATIONS_PER_STEP
from kctl.zookeeper.embedded.messages import codes, requests, responses
from kctl.zookeeper.embedded.messages.codes import READ, Code, CreateMode, KeeperError, OpCode
from kctl.zookeeper.embedded.messages.requests import (
    ZOOKEEPER_ACL_ENTRIES_MAX,
    ZOOKEEPER_MULTI_ACL_ENTRIES_MAX,
    ZOOKEEPER_OPERATIONS_MAX,
    ZOOKEEPER_SET_WATCHES_MAX,
)
from kctl.zookeeper.embedded.node_paths import ZOOKEEPER_PATH_CHARACTERS_MAX
from kctl.zookeeper.embedded.server import ZOOKEEPER_IDENTITIES_MAX, EmbeddedZooKeeper
from tests.unit.zookeeper.player import Player, new_keeper

T = TypeVar("T")

OWNER = digest_identity(b"owner:secret")
CONNECT = struct.pack(">iqiqi", 0, 0, 10_000, 0, 16) + bytes(16)


@pytest.mark.parametrize("is_recursive", [True, False])
def test_persistent_watches_reveal_nothing_about_znodes_that_the_watcher_may_not_read(is_recursive: bool) -> None:
    """CVE-2024-23944: addWatch on a readable parent revealed the paths of its children whatever their ACLs."""
    keeper = new_keeper()
    owner, unauthenticated = Player(keeper), Player(keeper)
    owner.identities += (OWNER,)
    owner.create("/open")
    unauthenticated.call(requests.AddWatch("/open", is_recursive=is_recursive))
    unauthenticated.call(requests.AddWatch("/open/secret", is_recursive=is_recursive))
    for path in ("/open/secret", "/open/secret/below"):
        owner.create(path, acl=(Acl(31, OWNER),))
        owner.set(path, b"x")
    owner.delete("/open/secret/below")
    owner.delete("/open/secret")
    assert [path for _, path in unauthenticated.take_received() if path != "/open"] == []
    owner.create("/open/public")
    assert ("CREATED", "/open/public") in unauthenticated.take_received() or not is_recursive


def test_acls_hide_password_hashes_from_those_who_may_only_read() -> None:
    """CVE-2019-0201: getACL returned the hash of each digest to all clients."""
    keeper = new_keeper()
    owner, reader = Player(keeper), Player(keeper)
    owner.identities += (OWNER,)
    owner.create("/guarded", acl=(Acl(31, OWNER), Acl(READ, Id("world", "anyone"))))
    shown = reader.call(requests.GetAcl("/guarded"))
    assert isinstance(shown, responses.AclList)
    assert b"owner:x" in shown.encode()
    assert OWNER.id.encode() not in shown.encode()
    owner.create("/hidden", acl=(Acl(31, OWNER),))
    assert reader.call(requests.GetAcl("/hidden")) == "NO_AUTH"
    full = owner.call(requests.GetAcl("/guarded"))
    assert isinstance(full, responses.AclList)
    assert OWNER.id.encode() in full.encode()


def served(test: Callable[[EmbeddedZooKeeper], Awaitable[T]], folder: Path) -> T:
    """Runs the test with a server on a free port."""

    async def main() -> T:
        zookeeper = EmbeddedZooKeeper(folder)
        await zookeeper.start()
        try:
            return await test(zookeeper)
        finally:
            await zookeeper.stop()

    return asyncio.run(main())


class RawClient:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, zookeeper: EmbeddedZooKeeper) -> AsyncIterator[RawClient]:
        reader, writer = await asyncio.open_connection(zookeeper.host, zookeeper.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def exchange(self, frame: bytes) -> bytes:
        """The next frame of the server; empty when it closes the connection."""
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def word(self, word: bytes) -> bytes:
        self._writer.write(word)
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("word", [b"wchp", b"wchc"])
def test_four_letter_words_that_list_all_watches_are_refused(word: bytes, tmp_path: Path) -> None:
    """CVE-2017-5637: wchp and wchc listed all watches for every client, without a bound."""

    async def call(zookeeper: EmbeddedZooKeeper) -> bytes:
        async with RawClient.connected(zookeeper) as client:
            return await client.word(word)

    assert served(call, tmp_path) == word + b" is not executed because it is not in the whitelist.\n"


def test_no_client_adds_a_server() -> None:
    """CVE-2018-8012 and CVE-2023-44981: any server could join the quorum.  This server has none, and
    refuses reconfig.
    """
    keeper = new_keeper()
    with pytest.raises(KeeperError) as refused:
        keeper.write(Player(keeper), requests.Reconfig(), wall_ms=0)
    assert refused.value.code is Code.RECONFIG_DISABLED


def test_sessions_over_the_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects repeatedly with new sessions leaves one each time."""
    monkeypatch.setattr(server, "ZOOKEEPER_SESSIONS_MAX", 5)

    async def flood(zookeeper: EmbeddedZooKeeper) -> list[bool]:
        accepted = []
        for _ in range(7):
            async with RawClient.connected(zookeeper) as client:
                accepted.append(bool(await client.exchange(CONNECT)))
        return accepted

    assert served(flood, tmp_path) == [True] * 5 + [False] * 2


def request(op_code: int, body: bytes) -> bytes:
    return struct.pack(">ii", 1, op_code) + body


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_watches_over_the_bound_close_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "ZOOKEEPER_WATCHES_MAX", 3)

    async def flood(zookeeper: EmbeddedZooKeeper) -> list[bool]:
        async with RawClient.connected(zookeeper) as client:
            await client.exchange(CONNECT)
            return [
                bool(await client.exchange(request(OpCode.EXISTS, text(b"/missing-%d" % number) + b"\1")))
                for number in (0, 1, 2, 2, 3)
            ]

    assert served(flood, tmp_path) == [True, True, True, True, False]


def test_digests_over_the_bound_are_refused(tmp_path: Path) -> None:
    async def flood(zookeeper: EmbeddedZooKeeper) -> list[int]:
        codes = []
        async with RawClient.connected(zookeeper) as client:
            await client.exchange(CONNECT)
            for number in range(ZOOKEEPER_IDENTITIES_MAX + 1):
                body = struct.pack(">i", 0) + text(b"digest") + text(b"user-%d:x" % number)
                response = await client.exchange(request(OpCode.AUTH, body))
                codes.append(struct.unpack_from(">i", response, 12)[0])
        return codes

    assert served(flood, tmp_path) == [0] * ZOOKEEPER_IDENTITIES_MAX + [Code.AUTH_FAILED]


def test_one_multi_read_cannot_return_gigabytes() -> None:
    """A request of 1 MB can name a znode of 1 MB forty thousand times."""
    player = Player(new_keeper())
    player.create("/large", bytes(1 << 20), acl=OPEN_ACL_UNSAFE)
    operations = tuple(requests.GetData("/large", watch=False) for _ in range(1_000))
    response = player.call(requests.MultiRead(operations))
    assert isinstance(response, responses.Results)
    read = [result for result in response.results if isinstance(result, responses.Data)]
    assert len(read) == ZOOKEEPER_MULTI_READ_BYTES_MAX >> 20
    assert len(response.results) == 1_000


def test_a_declared_length_over_the_bound_closes_the_connection(tmp_path: Path) -> None:
    """CVE-2022-34917, for the embedded server: a length alone must not allocate a buffer of that size."""

    async def declare(zookeeper: EmbeddedZooKeeper) -> bytes:
        async with RawClient.connected(zookeeper) as client:
            return await client.word(struct.pack(">i", (1 << 31) - 1))

    assert served(declare, tmp_path) == b""


STEPS = 4
MANY = STEPS * ZOOKEEPER_PATHS_PER_STEP


def steps_of(work: Steps[object]) -> int:
    return sum(1 for _ in work)


def test_a_session_with_many_ephemeral_znodes_ends_in_steps_as_one_transaction() -> None:
    keeper = new_keeper()
    owner, watching = Player(keeper), Player(keeper)
    owner.create("/parent")
    paths = [owner.create(f"/parent/{number}", mode=CreateMode.EPHEMERAL) for number in range(MANY)]
    for path in paths:
        watching.exists(path, watch=True)
    zxid = keeper.zxid
    assert steps_of(keeper.close_session(owner.session_id)) == STEPS
    assert keeper.zxid == zxid + 1
    assert watching.take_received() == [("DELETED", path) for path in paths]
    assert set(watching.received_zxids) == {keeper.zxid}
    assert keeper.tree.children("/parent") == set()


def test_the_watches_of_a_lost_connection_are_removed_in_steps_and_fire_no_more() -> None:
    keeper = new_keeper()
    lost, left = Player(keeper), Player(keeper)
    paths = [f"/{number}" for number in range(MANY)]
    lost.call(requests.SetWatches(0, [], exist=paths, children=[], persistent=[], recursive=[]))
    lost.call(requests.AddWatch("/", is_recursive=True))
    left.exists(paths[0], watch=True)
    removal = keeper.forget_client(lost)
    next(removal)
    for path in paths:
        left.create(path)
    assert lost.take_received() == []
    assert left.take_received() == [("CREATED", paths[0])]
    assert steps_of(removal) >= STEPS
    assert (keeper.watches.data.path_count, keeper.watches.children.path_count) == (0, 0)


def test_watches_are_set_again_in_steps() -> None:
    keeper = new_keeper()
    request = requests.SetWatches(0, [], [f"/{number}" for number in range(MANY)], [], [], [])
    assert steps_of(keeper.read_in_steps(Player(keeper), request)) == STEPS
    assert keeper.watches.data.path_count == MANY


def test_many_children_are_encoded_in_steps() -> None:
    names = [str(number) for number in range(STEPS * ZOOKEEPER_NAMES_PER_STEP)]
    children = responses.Children(names)
    for response in (children, responses.Results([responses.Failed(Code.NO_NODE), children])):
        assert responses.is_long(response)
        assert steps_of(responses.encoded(response)) == STEPS
        assert run_at_once(responses.encoded(response)).encode() == response.encode()


@pytest.mark.parametrize("count", [ZOOKEEPER_OPERATIONS_MAX, ZOOKEEPER_OPERATIONS_MAX + 1])
def test_operations_of_one_request_are_bounded(count: int) -> None:
    check = struct.pack(">ibi", OpCode.CHECK, 0, -1) + codes.string("/") + codes.int32(-1)
    body = check * count + struct.pack(">ibi", -1, 1, -1)
    if count > ZOOKEEPER_OPERATIONS_MAX:
        with pytest.raises(MalformedRequest):
            requests.decode(OpCode.MULTI, codes.Reader(body))
    else:
        assert requests.decode(OpCode.MULTI, codes.Reader(body)) is not None


@pytest.mark.parametrize(("entries", "creates"), [(100, 20), (101, 1), (100, 21)])
def test_entries_of_acls_are_bounded(entries: int, creates: int) -> None:
    entry = struct.pack(">i", 31) + codes.string("world") + codes.string("anyone")
    acl = struct.pack(">i", entries) + entry * entries
    create = struct.pack(">ibi", OpCode.CREATE, 0, -1) + codes.string("/a") + struct.pack(">i", -1) + acl + bytes(4)
    reader = codes.Reader(create * creates + struct.pack(">ibi", -1, 1, -1))
    if entries > ZOOKEEPER_ACL_ENTRIES_MAX or entries * creates > ZOOKEEPER_MULTI_ACL_ENTRIES_MAX:
        with pytest.raises(MalformedRequest):
            requests.decode(OpCode.MULTI, reader)
    else:
        assert requests.decode(OpCode.MULTI, reader) is not None


def test_a_long_multi_is_executed_in_steps() -> None:
    keeper = new_keeper()
    player = Player(keeper)
    count = STEPS * ZOOKEEPER_OPERATIONS_PER_STEP
    creates = [requests.Create(f"/{number}", b"", OPEN_ACL_UNSAFE, CreateMode.PERSISTENT) for number in range(count)]
    # As many steps again for the events of the watches.
    assert steps_of(keeper.multi(player, requests.Multi(tuple(creates)), wall_ms=5)) == 2 * STEPS
    zxid = keeper.zxid
    again = requests.Create("/0", b"", OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)
    deletes = [requests.Delete(f"/{number}", -1) for number in range(1, count)]
    assert player.multi(*deletes, again)[-1] == "NODE_EXISTS"
    assert len(player.children("/")) >= count
    assert keeper.zxid == zxid + 1


def test_events_for_many_clients_are_sent_in_steps() -> None:
    """Each of a thousand clients may watch the tree: one znode more or less is a thousand events."""
    keeper = new_keeper()
    owner, watching = Player(keeper), [Player(keeper) for _ in range(ZOOKEEPER_PATHS_PER_STEP // 5)]
    for client in watching:
        client.call(requests.AddWatch("/", is_recursive=True))
    znodes = 10 * STEPS
    mode = CreateMode.EPHEMERAL
    creates = [requests.Create(f"/{number}", b"", OPEN_ACL_UNSAFE, mode) for number in range(znodes)]
    work = keeper.multi(owner, requests.Multi(tuple(creates)), wall_ms=5)
    assert steps_of(work) >= znodes * len(watching) // ZOOKEEPER_PATHS_PER_STEP - 1
    assert steps_of(keeper.close_session(owner.session_id)) >= znodes * len(watching) // ZOOKEEPER_PATHS_PER_STEP
    events = [(event, f"/{number}") for event in ("CREATED", "DELETED") for number in range(znodes)]
    assert all(client.take_received() == events for client in watching)


def test_many_names_are_listed_in_steps() -> None:
    keeper = new_keeper()
    player = Player(keeper)
    names = [player.create(f"/{number}", mode=CreateMode.EPHEMERAL) for number in range(MANY)]
    assert steps_of(keeper.read_in_steps(player, requests.GetEphemerals(None))) == STEPS
    assert player.call(requests.GetEphemerals("/")) == responses.Children(names)
    for number in range(ZOOKEEPER_NAMES_PER_STEP):
        player.create(f"/child{number}")
    reads = (requests.GetChildren("/"),) * STEPS
    assert steps_of(keeper.read_in_steps(player, requests.MultiRead(reads))) == STEPS


def test_paths_are_not_too_long_to_look_at_all_znodes_above() -> None:
    """With a recursive watch, a change of a path of 1 MB with 500,000 elements took minutes."""
    player = Player(new_keeper())
    assert player.create("/" + "a" * ZOOKEEPER_PATH_CHARACTERS_MAX) == "BAD_ARGUMENTS"
    assert player.create("/" + "a" * (ZOOKEEPER_PATH_CHARACTERS_MAX - 1)).startswith("/aa")


def test_a_dump_of_many_sessions_and_ephemeral_znodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(four_letter_words, "ZOOKEEPER_DUMP_LINES_MAX", 3)
    keeper = new_keeper()
    for number in range(5):
        player = Player(keeper)
        player.create(f"/{number}", mode=CreateMode.EPHEMERAL)
        player.create(f"/{number}a", mode=CreateMode.EPHEMERAL)
    dump = four_letter_words.response(
        "dump", four_letter_words.Snapshot(keeper, [], 0, four_letter_words.Traffic(), {})
    )
    assert dump is not None
    sessions = len(keeper.sessions)
    assert f"Session Sets ({sessions})/({sessions}):" in dump
    assert (dump.count("expire at"), dump.count("\t/")) == (3, 3)


def test_paths_of_one_set_watches_are_bounded() -> None:
    too_many = [""] * (ZOOKEEPER_SET_WATCHES_MAX + 1)
    with pytest.raises(MalformedRequest):
        requests.decode(OpCode.SET_WATCHES, codes.Reader(struct.pack(">q", 0) + codes.strings(too_many)))


def test_a_client_with_many_ephemeral_znodes_leaves_and_others_are_served(tmp_path: Path) -> None:
    async def test(zookeeper: EmbeddedZooKeeper) -> None:
        keeper = zookeeper._keeper
        session = keeper.open_session(bytes(16), 10_000, now_ms=zookeeper._now_ms())
        owner = Player(keeper)
        owner.session_id = session.id
        for number in range(MANY):
            owner.create(f"/{number}", mode=CreateMode.EPHEMERAL)
        turns = 0
        zookeeper._batches.add(lambda: keeper.close_session(session.id))
        while keeper.tree.ephemerals.get(session.id):
            turns += 1
            await asyncio.sleep(0)
        assert turns >= STEPS

    served(test, tmp_path)
