"""Snapshots of Iceberg tables that expire, and what is wrong with a SQLite database of a catalogue."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.utils.properties import property_as_int

if TYPE_CHECKING:
    from pyiceberg.table import Table


# Expires snapshots of Iceberg tables, whose number would otherwise make each commit dearer than the one before.
#
# The metadata of a table lists all its snapshots, and each commit reads and writes it. So an export expires, in its
# own commit, the snapshots that the properties of the table do not keep:
#
#     history.expire.max-snapshot-age-ms     age in milliseconds; without this property nothing is expired
#     history.expire.min-snapshots-to-keep   this many of the newest are kept in any case
#
# Tables that an export creates get both properties. Only the unbroken line of ancestors of the current snapshot is
# expired; tags, other branches and snapshots that were rolled back stay.
#
# Afterwards the files that only expired snapshots use are removed: their manifests, and the data files that one of
# them had replaced, by a compaction for example. A crash before leaves them behind, as files that belong to no
# snapshot.


MAX_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
RETENTION = {MAX_AGE_MS: str(86_400_000), MIN_SNAPSHOTS: "20"}
"""Properties of new tables: a day, so that queries and incremental readers do not lose the files that they read.  An
export every minute makes 1,440 snapshots in it, which cost each increment about 0.6 s of processor time.
"""

EXPIRED_AT_ONCE_MAX = 100
"""By one commit, if there are many when the property is set."""


class Expiry(NamedTuple):
    """Snapshots to remove, and what decides which of their files may be removed."""

    expired: Sequence[Snapshot]
    """Oldest first."""
    next: Snapshot
    """The oldest one that stays of the same line; what it does not use, none after it does."""
    others: Sequence[Snapshot]
    """Snapshots that stay and are not of this line."""


def expiry_of(metadata: TableMetadata, now_ms: int) -> Expiry | None:
    """Return what the properties of the table do not keep; None if they keep everything.  Pure."""
    max_age_ms = property_as_int(metadata.properties, MAX_AGE_MS)
    return None if max_age_ms is None else expiry_before(metadata, now_ms - max_age_ms, EXPIRED_AT_ONCE_MAX)


def expiry_before(metadata: TableMetadata, before_ms: int, at_most: int | None) -> Expiry | None:
    """Return the snapshots before a time, the oldest ones; None if there are none.  Pure.

    As many of the newest stay as the property of the table says.
    """
    keep = max(property_as_int(metadata.properties, MIN_SNAPSHOTS, 1) or 1, 1)
    line = _ancestors(metadata)
    named = {ref.snapshot_id for name, ref in metadata.refs.items() if name != MAIN_BRANCH}
    old = [
        snapshot for snapshot in line[keep:] if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in named
    ]
    expired = old[::-1][:at_most]
    if not expired:
        return None
    after = line[: line.index(expired[-1])]
    ids = {snapshot.snapshot_id for snapshot in (*expired, *after)}
    return Expiry(expired, after[-1], [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in ids])


def _ancestors(metadata: TableMetadata) -> list[Snapshot]:
    """Return the current snapshot and its ancestors, newest first, as far as they are known."""
    by_id = {known_snapshot.snapshot_id: known_snapshot for known_snapshot in metadata.snapshots}
    found: list[Snapshot] = []
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        found.append(snapshot)
        snapshot = None if snapshot.parent_snapshot_id is None else by_id.get(snapshot.parent_snapshot_id)
    return found


def remove_files(table: Table, expiry: Expiry, is_in_table: Callable[[str], bool]) -> None:
    """Remove the files that only expired snapshots use.  What cannot be removed stays, and belongs to no snapshot.

    Metadata can name any file; those that are not in the folder of the table stay.
    """
    with contextlib.suppress(OSError):
        unused = _unused_manifests(table.io, expiry)
        # Snapshots of another line may have the files that an expired one has replaced.
        if not expiry.others and (replaced := _replaced_files(table.io, expiry)):
            unused |= replaced - _data_files(table)
        for path in filter(is_in_table, sorted(unused)):
            with contextlib.suppress(FileNotFoundError):
                table.io.delete(path)


def _unused_manifests(io: FileIO, expiry: Expiry) -> set[str]:
    """Manifest lists and manifests that only expired snapshots use."""
    used = {manifest.manifest_path for kept in (expiry.next, *expiry.others) for manifest in kept.manifests(io)}
    lists = {snapshot.manifest_list for snapshot in expiry.expired}
    manifests = {manifest.manifest_path for snapshot in expiry.expired for manifest in snapshot.manifests(io)}
    return lists | (manifests - used)


def _replaced_files(io: FileIO, expiry: Expiry) -> set[str]:
    """Return the data files that an expired snapshot has replaced or deleted."""
    return {
        entry.data_file.file_path
        for snapshot in expiry.expired
        if snapshot.summary and snapshot.summary.operation is not Operation.APPEND
        for manifest in snapshot.manifests(io)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot.snapshot_id
    }


def _data_files(table: Table) -> set[str]:
    """Return the data files of the current snapshot, which another program may have added again."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return {entry.data_file.file_path for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)}


# What is wrong with the SQLite database of an Iceberg catalogue, and the remedy. Pure.


_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF
"""The lower bits of an extended result code."""


def catalog_failure(error: BaseException | None, database: str) -> str:
    """Return one line if a SQLite error is the cause of this one, else empty.

    SQLAlchemy raises errors of its own, which have that of the driver as `orig`.
    """
    while error is not None:
        original = getattr(error, "orig", error)
        if isinstance(original, sqlite3.Error):
            return _text(original, database)
        error = error.__cause__ or error.__context__
    return ""


def _text(error: sqlite3.Error, database: str) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in _LOCKED:
        return (
            f"the catalogue {database} is locked by another program: find it with 'fuser {database}', end it, and "
            "repeat the command"
        )
    if code in _DAMAGED:
        return (
            f"the catalogue {database} is damaged ({error}): restore it from a backup, or move it away and register "
            "the tables from their metadata again (see 'Lost or older metadata' in the documentation)"
        )
    return (
        f"the catalogue {database} cannot be used ({error}): check that it is a file that this user may write, and "
        "that its disk has space"
    )
