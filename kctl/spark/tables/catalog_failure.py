"""What is wrong with the SQLite database of an Iceberg catalogue, and the remedy.  Pure."""

from __future__ import annotations

import sqlite3

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF
"""The lower bits of an extended result code."""


def catalog_failure(error: BaseException | None, database: str) -> str:
    """One line if a SQLite error is the cause of this one, else empty.

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
