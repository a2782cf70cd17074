"""The files `leader-epoch-checkpoint` and `partition.metadata` of a log.

Each is replaced as a whole when its content changes, and synced with the next flush of the log.  Kafka's
LeaderEpochCheckpointFile and PartitionMetadataFile.

Owner: event loop (recovery runs before the log is shared).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kctl.storage.checkpoints import epochs_text, parse_epochs, parse_partition_metadata, partition_metadata_text
from kctl.storage.files import Files
from kctl.storage.leader_epochs import EpochEntry
from kctl.storage.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA


class MetadataFiles:
    """The metadata files of one log."""

    __slots__ = ("_directory", "_files", "_unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._unsynced: set[str] = set()

    @property
    def has_unsynced(self) -> bool:
        """True if a file was written since the last flush."""
        return bool(self._unsynced)

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    def read_epochs(self) -> list[EpochEntry]:
        """Return the leader epochs, none for a missing file.  Raises CorruptLog, OSError."""
        path = self._path(LEADER_EPOCH_CHECKPOINT)
        return parse_epochs(self._files.read(path), path)

    def write_epochs(self, entries: Iterable[EpochEntry]) -> None:
        """Replace `leader-epoch-checkpoint`.  Raises OSError."""
        self._write(LEADER_EPOCH_CHECKPOINT, epochs_text(entries))

    def read_topic_id(self) -> UUID | None:
        """Return the topic id, None for an empty file.  Raises CorruptLog, OSError."""
        path = self._path(PARTITION_METADATA)
        data = self._files.read(path)
        return parse_partition_metadata(data, path) if data else None

    def write_topic_id(self, topic_id: UUID) -> None:
        """Replace `partition.metadata`.  Raises OSError."""
        self._write(PARTITION_METADATA, partition_metadata_text(topic_id))

    def take_unsynced(self) -> list[str]:
        """Return the files written since the last call."""
        paths = [self._path(name) for name in sorted(self._unsynced)]
        self._unsynced.clear()
        return paths

    def _write(self, name: str, text: bytes) -> None:
        self._files.write_atomically(self._path(name), text, sync=False)
        self._unsynced.add(name)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
