"""Files that undo what a command changes: offsets of groups, and reassignments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from kctl.admin.groups.offsets import OffsetDocument, format_document, parse_document
from kctl.admin.placement.documents import parse_reassignment
from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.system.operating_system import flush_to_disk
from kctl.system.user_files import read_regular

OFFSET_BACKUPS_MAX = bound(
    Subject.COMMANDS,
    "backups of committed offsets that `kctl groups` keeps for each cluster",
    200,
    "files",
    on_excess="the oldest one is deleted",
)


# Files with reassignments that undo others: `rollback-<key>.json`, then `-2`, `-3`, in a folder per cluster.
#
# They are never overwritten. They are also the only record of the previous order of a partition's replicas: the
# controller does not keep it.


_PREFIX = "rollback-"


def save_rollback(folder: Path, key: str, text: str) -> Path:
    """Write a new file and return its path.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f"{_PREFIX}{key}{'' if number == 1 else f'-{number}'}.json"
        try:
            write_new(path, text)
        except FileExistsError:
            number += 1
            continue
        return path


def write_new(path: Path, text: str) -> None:
    """Write and sync a file that must not exist yet.  Raises FileExistsError and other OSErrors."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        flush_to_disk(file.fileno())


def original_order(folder: Path, tp: TopicPartition, replicas: Collection[int]) -> tuple[int, ...] | None:
    """Return the order of these replicas before the latest move with a file; None if no file has it."""
    for path in sorted(folder.glob(f"{_PREFIX}*.json"), key=_written_ns, reverse=True):
        try:
            order = parse_reassignment(path.read_text(encoding="utf-8")).get(tp)
        except (OSError, UsageError, UnicodeDecodeError):
            continue  # The file has been edited and is invalid; try older ones.
        if order is not None and sorted(order) == sorted(replicas):
            return tuple(order)
    return None


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


# Files with the committed offsets of groups as they were before a command changed them, in a folder per cluster.
#
# They are never overwritten. The oldest ones are deleted when there are more than OFFSET_BACKUPS_MAX.


_NAME = re.compile(r"offsets-[0-9T.]+Z(?:-[0-9]+)?\.json")
_NAMES_MAX = 1000


def save_backup(folder: Path, document: OffsetDocument) -> Path:
    """Write a new file, delete the oldest ones, and return the path of the new one.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    text, stamp = format_document(document), re.sub(r"[-:]", "", document.created)
    for number in range(1, _NAMES_MAX):
        path = folder / f"offsets-{stamp}{'' if number == 1 else f'-{number:03}'}.json"
        try:
            write_new(path, text)
        except FileExistsError:
            continue
        _delete_oldest(folder, path)
        return path
    raise FileExistsError(f"{folder} has {_NAMES_MAX} backups of the same millisecond")


def backups_of(folder: Path, group: str) -> Iterator[tuple[Path, OffsetDocument]]:
    """Yield the valid backups that contain the group, the latest first."""
    for path in reversed(_backups(folder)):
        try:
            document = parse_document(read_regular(str(path)).decode())
        except (OSError, UsageError, UnicodeDecodeError):
            continue  # Edited or incomplete; an older one may be valid.
        if group in document.groups:
            yield path, document


def _backups(folder: Path) -> list[Path]:
    """Return all backups in the order in which they were written."""
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stem)


def _delete_oldest(folder: Path, new: Path) -> None:
    for path in _backups(folder)[:-OFFSET_BACKUPS_MAX]:
        if path != new:
            with suppress(OSError):
                path.unlink()
