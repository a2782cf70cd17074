"""Files with the reassignments that lead back, in the folder of a cluster: `rollback-<key>.json`, then `-2`, `-3`.

None is ever overwritten.  They are also the only place that knows in which order a partition had its replicas before a
move: the controller keeps who they were, not their order.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from kctl.admin.reassignment_spec import parse_reassignment
from kctl.errors import UsageError
from kctl.model import TopicPartition

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
    """Write a file that must not exist yet, and have it on the disk.  Raises FileExistsError and other OSErrors."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def original_order(folder: Path, tp: TopicPartition, replicas: Collection[int]) -> tuple[int, ...] | None:
    """The order that these replicas had before the latest move that has a file; None when no file tells it."""
    for path in sorted(folder.glob(f"{_PREFIX}*.json"), key=_written_ns, reverse=True):
        try:
            order = parse_reassignment(path.read_text(encoding="utf-8")).get(tp)
        except (OSError, UsageError, UnicodeDecodeError):
            continue  # Somebody has changed it since; others may tell.
        if order is not None and sorted(order) == sorted(replicas):
            return tuple(order)
    return None


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
