"""Files with the throttles set for each reassignment, so that they can be removed after a crash.

One folder per cluster.  `throttle-<key>.json` is written atomically before any throttle of the reassignment is set.
`lock` is locked while throttles are set or removed; a crash releases it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from kctl.admin.throttles import ThrottleRecord, record_from_json, record_to_json
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.operating_system import flush_to_disk

KEY_LENGTH = 16
_PREFIX = "throttle-"


class ThrottleRecords:
    """The throttle records of one cluster.  Owner: the command that holds `locked`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock; waits until other commands have released it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def all(self) -> dict[str, ThrottleRecord]:
        """All records by key.  Raises KctlError for an invalid file."""
        records = {}
        for path in sorted(self.folder.glob(f"{_PREFIX}*.json")):
            try:
                records[path.stem.removeprefix(_PREFIX)] = record_from_json(
                    json.loads(path.read_text(encoding="utf-8"))
                )
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise KctlError(f"{path} is not a valid throttle record: {error}") from None
        return records

    def save(self, key: str, record: ThrottleRecord) -> None:
        """Writes a record, or deletes its file if it is empty."""
        path = self.path_of(key)
        if not record.settings:
            path.unlink(missing_ok=True)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(record_to_json(record), file, indent=1)
            file.flush()
            flush_to_disk(file.fileno())
        temporary.replace(path)

    def path_of(self, key: str) -> Path:
        """The file of the record with this key."""
        return self.folder / f"{_PREFIX}{key}.json"


def key_of(partitions: Collection[TopicPartition]) -> str:
    """The key of a set of partitions, independent of their targets."""
    text = "\n".join(str(tp) for tp in sorted(partitions))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def folder_of(state_dir: Path, cluster_id: str | None) -> Path:
    """The folder of one cluster."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", cluster_id or "")
    return state_dir / (name or "unnamed-cluster")
