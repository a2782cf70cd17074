"""Committed transactions survive any restart, nothing else does, and a folder has one owner."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from kctl.errors import ZooKeeperError
from kctl.system.steps import run_at_once
from kctl.zookeeper.embedded.keeper import Changes, Keeper
from kctl.zookeeper.embedded.messages.codes import CreateMode
from kctl.zookeeper.embedded.store import DATABASE, Store
from tests.unit.zookeeper.player import Player


def loaded(store: Store) -> Keeper:
    return Keeper(store.load(), now_ms=0, wall_ms=0)


def commit(keeper: Keeper, store: Store) -> None:
    changes = keeper.take_changes()
    if changes is not None:
        store.commit(changes)


def everything(keeper: Keeper) -> object:
    tree = keeper.tree
    paths = ["/"]
    nodes = {}
    while paths:
        path = paths.pop()
        nodes[path] = (tree.node(path), tree.stat(path))
        paths += [f"{path.rstrip('/')}/{name}" for name in tree.children(path)]
    sessions = sorted((session.id, session.password, session.timeout_ms) for session in keeper.sessions)
    return keeper.zxid, nodes, sessions, {owner: set(paths) for owner, paths in tree.ephemerals.items()}


@pytest.mark.parametrize("seed", range(8))
def test_the_loaded_state_is_the_committed_one(tmp_path: Path, seed: int) -> None:
    """Random writes in random batches, compared with memory after every reopening."""
    rng = random.Random(seed)
    store = Store(tmp_path)
    keeper = loaded(store)
    players = [Player(keeper) for _ in range(2)]
    for _ in range(4):
        for _ in range(60):
            player = rng.choice(players)
            path = "".join(rng.choice(("/a", "/b", "/c")) for _ in range(rng.randrange(1, 4)))
            match rng.randrange(5):
                case 0 | 1:
                    player.create(path, rng.choice((None, b"", b"x" * 50)), CreateMode(rng.randrange(4)))
                case 2:
                    player.set(path, rng.randbytes(9))
                case 3:
                    player.delete(path)
                case 4:
                    player.create_container(path)
            if rng.random() < 0.3:
                commit(keeper, store)
        if rng.random() < 0.5:
            run_at_once(keeper.close_session(players.pop(0).session_id))
            players.append(Player(keeper))
        commit(keeper, store)
        store.close()
        store = Store(tmp_path)
        assert everything(loaded(store)) == everything(keeper)
    store.close()


def test_a_failed_commit_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keeper = loaded(store)
    player = Player(keeper)
    commit(keeper, store)
    before = everything(loaded(store))
    player.create("/a")
    changes = keeper.take_changes()
    assert changes is not None
    session = keeper.sessions.find(player.session_id)
    assert session is not None
    with pytest.raises(sqlite3.IntegrityError):
        store.commit(Changes(changes.zxid, dict(changes.nodes), [session], []))  # this session is already stored
    assert everything(loaded(store)) == before
    store.commit(changes)
    assert loaded(store).tree.find("/a") is not None
    store.close()


def test_only_the_owner_can_read_the_folder_of_the_znodes(tmp_path: Path) -> None:
    Store(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_two_servers_never_share_a_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ZooKeeperError, match=f"{tmp_path} is in use by another ZooKeeper server"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_damaged_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"this is no database" * 100)
    with pytest.raises(ZooKeeperError, match=rf"{DATABASE} cannot be used: .*restore it from a backup"):
        Store(tmp_path)


def test_a_database_of_another_format_is_refused_and_not_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ZooKeeperError, match="format 99 is not supported by this version of kctl, which uses 1"):
        Store(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ZooKeeperError, match="file/x cannot be used for ZooKeeper's data"):
        Store(tmp_path / "file" / "x")


def test_a_commit_is_synced_to_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    settings = [store._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]
    store.close()


PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, object]:
    """The bytes of a valid database of many pages, and its content."""
    folder = tmp_path_factory.mktemp("sound")
    store = Store(folder)
    keeper = loaded(store)
    player = Player(keeper)
    for number in range(300):
        player.create(f"/{number:03}", b"x" * 200)
    commit(keeper, store)
    held = everything(keeper)
    store.close()
    return (folder / DATABASE).read_bytes(), held


def damages(data: bytes) -> dict[str, bytes]:
    """Each page zeroed, each page overwritten with random bytes, and the file truncated at each page."""
    found: dict[str, bytes] = {"cut to nothing": b""}
    garbage = random.Random(1).randbytes(PAGE)
    for start in range(0, len(data), PAGE):
        found[f"page {start // PAGE} zeroed"] = data[:start] + bytes(PAGE) + data[start + PAGE :]
        found[f"page {start // PAGE} garbage"] = data[:start] + garbage + data[start + PAGE :]
        found[f"cut off in page {start // PAGE}"] = data[: start + PAGE // 2]
    return found


def test_damage_is_refused_with_the_name_of_the_file_and_what_to_do(
    tmp_path: Path, sound: tuple[bytes, object]
) -> None:
    data, held = sound
    Store(tmp_path).close()
    path = tmp_path / DATABASE
    reported: dict[str, str] = {}
    for name, damaged in damages(data).items():
        path.write_bytes(damaged)
        store = None
        try:
            store = Store(tmp_path)
            # Damage to an unused page has no effect.
            assert everything(loaded(store)) == held, name
        except ZooKeeperError as error:
            reported[name] = str(error)
        finally:
            if store is not None:
                store.close()
    assert len(reported) >= len(damages(data)) - 6
    for name, text in reported.items():
        assert text.startswith(f"{path} cannot be used: "), name
        assert text.endswith("; restore it from a backup, or choose another directory"), name
        assert "\n" not in text, name


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM counter",
        "UPDATE counter SET value = 5",
        "DELETE FROM node WHERE path = '/'",
        "DELETE FROM node",
        "DELETE FROM node WHERE path = '/a'",
        "UPDATE node SET acl = '[' WHERE path = '/a'",
        "UPDATE node SET acl = '[[1]]' WHERE path = '/a'",
        "UPDATE node SET data = 'text' WHERE path = '/a'",
        "UPDATE node SET version = 'text' WHERE path = '/a'",
        "UPDATE node SET path = x'ff' WHERE path = '/a/b'",
        "DROP TABLE session",
    ],
)
def test_rows_that_cannot_have_been_committed_are_refused(tmp_path: Path, statement: str) -> None:
    store = Store(tmp_path)
    keeper = loaded(store)
    player = Player(keeper)
    for path in ("/a", "/a/b", "/a/c", "/a/d", "/a/e", "/a/f"):
        player.create(path)
    commit(keeper, store)
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute(statement)
    database.close()
    store = Store(tmp_path)
    with pytest.raises(ZooKeeperError, match=rf"{DATABASE} cannot be used: .*; restore it from a backup"):
        store.load()
    store.close()


def test_a_start_killed_before_creating_the_database_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    store = Store(tmp_path)
    assert loaded(store).tree.find("/") is not None
    store.close()
