"""The persistent state: znodes, sessions and the last transaction id, in one SQLite database.

A commit is one SQLite transaction.  In WAL mode with synchronous=FULL it returns when the log is on the disk, so a
response sent after `commit` never has to be revoked.  A lock file beside the database excludes a second server;
SQLite's exclusive lock is held too, because no other process should read an open database.

A damaged database is refused as a whole: serving the remaining znodes would make brokers lose topics.  The lock file
records that a database has existed, so that a truncated one is not taken for a new one.

Used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from pathlib import Path
from typing import IO

from kctl.errors import ZooKeeperError
from kctl.system.operating_system import flush_to_disk
from kctl.zookeeper.embedded import node_paths
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, Acl, Acls, Id
from kctl.zookeeper.embedded.keeper import Changes, StoredState
from kctl.zookeeper.embedded.tree import Znode

DATABASE = "zookeeper.sqlite"
LOCK = "zookeeper.lock"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, data BLOB, acl TEXT NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL,
    version INTEGER NOT NULL, creations INTEGER NOT NULL, aversion INTEGER NOT NULL, owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE session (id INTEGER PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('zxid', 0);
"""
_UPSERT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE_COUNTERS = "UPDATE node SET pzxid = ?, creations = ? WHERE path = ?"


class _Damage(Exception):
    """The content of the database is not what was committed, although SQLite reports no error."""


_SPACE_BYTES = 2 << 20
"""Room for the largest request and its pages in the log of the database."""


class Store:
    """The open database.  Raises ZooKeeperError with advice when the directory cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATABASE
        self._lock = _lock(folder)
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            self._lock.close()
            raise self._unusable(error) from error
        try:
            self._prepare()
        except (sqlite3.Error, _Damage) as error:
            self.close()
            raise self._unusable(error) from error

    def load(self) -> StoredState:
        """Load the state.  Raises ZooKeeperError when the database is damaged."""
        try:
            self._check_pages()
            stored = StoredState(
                zxid=self._zxid(),
                nodes=[self._node(row) for row in self._database.execute("SELECT * FROM node")],
                sessions=self._database.execute("SELECT id, password, timeout_ms FROM session").fetchall(),
            )
            _check_tree(stored)
        except (sqlite3.Error, _Damage) as error:
            raise self._unusable(error) from error
        return stored

    def commit(self, changes: Changes) -> None:
        """Write the changes to the disk, and remove the znodes from `changes`.

        After sqlite3.Error none of them is written, or (rarely) all.
        """
        execute, executemany = self._database.execute, self._database.executemany
        execute("BEGIN IMMEDIATE")
        try:
            while changes.nodes:  # Freed one by one: other threads wait while a large dictionary is freed.
                path, (before, now) = changes.nodes.popitem()
                if now is before:
                    continue
                if now is None:
                    execute("DELETE FROM node WHERE path = ?", (path,))
                elif before is not None and now == before._replace(pzxid=now.pzxid, creations=now.creations):
                    # Only the children changed: the data, which may be large, is not written again.
                    execute(_UPDATE_COUNTERS, (now.pzxid, now.creations, path))
                else:
                    execute(_UPSERT, (path, now.data, _acl_text(now.acl), *now[2:]))
            sessions = [(session.id, session.password, session.timeout_ms) for session in changes.opened]
            executemany("INSERT INTO session VALUES (?, ?, ?)", sessions)
            executemany("DELETE FROM session WHERE id = ?", [(session_id,) for session_id in changes.closed])
            execute("UPDATE counter SET value = ? WHERE name = 'zxid'", (changes.zxid,))
            execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise

    def check_space(self) -> None:
        """Write as many bytes as a large change needs, and remove them again; then commit.

        Raises OSError and sqlite3.Error.
        """
        probe = self._path.with_name("space.tmp")
        try:
            with open(probe, "wb") as file:
                file.write(bytes(_SPACE_BYTES))
                file.flush()
                flush_to_disk(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
        self._database.execute("UPDATE counter SET value = value WHERE name = 'zxid'")

    def close(self) -> None:
        """Close the database and release the lock."""
        self._database.close()
        self._lock.close()

    def _prepare(self) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("PRAGMA fullfsync = ON")  # On macOS, as `flush_to_disk`; no effect elsewhere.
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            if os.fstat(self._lock.fileno()).st_size:
                raise _Damage("it is empty, but was not before")
            self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"format {version} is not supported by this version of kctl, which uses {SCHEMA_VERSION}"
            )
        if not os.fstat(self._lock.fileno()).st_size:
            self._lock.write(b"a database has been made\n")
            self._lock.flush()
            flush_to_disk(self._lock.fileno())

    def _check_pages(self) -> None:
        """Check every page: a query detects damage only in the pages that it reads, and may take it for missing
        rows.
        """
        (problem,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise _Damage(" ".join(str(problem).split()))

    def _zxid(self) -> int:
        row = self._database.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
        if row is None or not isinstance(row[0], int):
            raise _Damage("the last transaction id is missing")
        return row[0]

    def _node(self, row: tuple[object, ...]) -> tuple[str, Znode]:
        path, data, acl, *numbers = row
        are_numbers = all(isinstance(number, int) for number in numbers)
        if not (isinstance(path, str) and isinstance(data, bytes | None) and are_numbers):
            raise _Damage(f"znode {path!r} has invalid columns")
        try:
            return path, Znode(data, _parse_acl(str(acl)), *numbers)  # type: ignore[arg-type]  # just looked at
        except (ValueError, TypeError) as error:
            raise _Damage(f"the ACL of znode {path!r} cannot be read") from error

    def _unusable(self, error: Exception) -> ZooKeeperError:
        return ZooKeeperError(
            f"{self._path} cannot be used: {error}; restore it from a backup, or choose another directory"
        )


def _check_tree(stored: StoredState) -> None:
    """Raise _Damage when znodes are missing, or newer than the last transaction."""
    present = {path for path, _ in stored.nodes}
    if stored.zxid and not present >= node_paths.CANNOT_BE_DELETED:
        raise _Damage("required znodes are missing")
    for path, node in stored.nodes:
        if path != node_paths.ROOT and (not path.startswith("/") or node_paths.parent(path) not in present):
            raise _Damage(f"znode {path!r} has no parent")
        if node.mzxid > stored.zxid:
            raise _Damage(f"znode {path!r} is newer than the last transaction")


def _lock(folder: Path) -> IO[bytes]:
    """Lock the directory until the file is closed, or the process ends."""
    path = folder / LOCK
    try:
        # Its znodes contain credentials.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise ZooKeeperError(f"{folder} cannot be used for ZooKeeper's data: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ZooKeeperError(
            f"{folder} is in use by another ZooKeeper server; stop it, or choose another directory"
        ) from None
    os.set_inheritable(file.fileno(), False)
    return file


_OPEN_TEXT = json.dumps(OPEN_ACL_UNSAFE)


def _acl_text(acl: Acls) -> str:
    return _OPEN_TEXT if acl is OPEN_ACL_UNSAFE else json.dumps(acl)


def _parse_acl(text: str) -> Acls:
    if text == _OPEN_TEXT:
        return OPEN_ACL_UNSAFE
    return tuple(Acl(perms, Id(*identity)) for perms, identity in json.loads(text))
