"""Files with reassignments that undo others: `rollback-<key>.json`, then `-2`, `-3`, in a folder per cluster.

They are never overwritten.  They are also the only record of the previous order of a partition's replicas: the
controller does not keep it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kctl.admin.reassignment_spec import parse_reassignment
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.operating_system import flush_to_disk

_PREFIX = "rollback-"


def save_rollback(folder: Path, key: str, text: str) -> Path:
    """Writes a new file and returns its path.  Raises OSError."""
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
    """Writes and syncs a file that must not exist yet.  Raises FileExistsError and other OSErrors."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        flush_to_disk(file.fileno())


def original_order(folder: Path, tp: TopicPartition, replicas: Collection[int]) -> tuple[int, ...] | None:
    """The order of these replicas before the latest move with a file; None if no file has it."""
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
