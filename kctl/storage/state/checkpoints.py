"""The small text files of a log directory and of a log."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from crc32c import crc32c

from kctl.errors import CorruptLog
from kctl.model import TopicPartition, parse_uuid, partition_problem, uuid_text
from kctl.storage.files import Files
from kctl.storage.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kctl.storage.state.leader_epochs import EpochEntry
from kctl.storage.state.producer_state import SnapshotEntry

# The small text files of a log dir and of a log, and the snapshots of producer state.
#
#     <name>-offset-checkpoint   "0", number of entries, one "topic partition offset" per line
#     leader-epoch-checkpoint    "0", number of entries, one "epoch start-offset" per line
#     partition.metadata         "version: 0" and "topic_id: <22 characters>"
#     meta.properties            version=0, broker.id, cluster.id
#     <offset>.snapshot          binary, with its own checksum
#
# docs/formats/checkpoints.md and producer-snapshot.md have the bytes. Pure functions make and read text and bytes;
# the owner of a file writes it atomically through Files. The parse functions raise CorruptLog.


CHECKPOINT_VERSION = 0
SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_CHECKED_FROM = 6
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


def offsets_text(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint file."""
    return _checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint file; an empty file has no entries.  Raises CorruptLog."""
    offsets: dict[TopicPartition, int] = {}
    for position, line in _checkpoint_lines(data, path):
        columns = line.split()
        if len(columns) != 3:
            raise CorruptLog(path, position, f"'{line}' is not 'topic partition offset'")
        try:
            partition, offset = int(columns[1]), int(columns[2])
        except ValueError as error:
            raise CorruptLog(path, position, f"'{line}' is not 'topic partition offset'") from error
        problem = partition_problem(columns[0], partition)
        if problem is not None:
            raise CorruptLog(path, position, problem)
        offsets[TopicPartition(columns[0], partition)] = offset
    return offsets


def epochs_text(entries: Iterable[EpochEntry]) -> bytes:
    """Return the content of a `leader-epoch-checkpoint` file."""
    return _checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Parse a `leader-epoch-checkpoint` file; an empty file has no entries.  Raises CorruptLog."""
    entries: list[EpochEntry] = []
    for position, line in _checkpoint_lines(data, path):
        columns = line.split()
        try:
            epoch, start_offset = (int(field) for field in columns)
        except ValueError as error:
            raise CorruptLog(path, position, f"'{line}' is not 'epoch start-offset'") from error
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def _checkpoint(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([str(CHECKPOINT_VERSION), str(len(body)), *body, ""]).encode()


def _checkpoint_lines(data: bytes, path: str) -> list[tuple[int, str]]:
    """Return (position, line) of each entry.  Raises CorruptLog if the count in the header differs."""
    if not data:
        return []
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptLog(path, error.start, "not text") from error
    positioned: list[tuple[int, str]] = []
    position = 0
    for line in text.split("\n"):
        positioned.append((position, line))
        position += len(line.encode()) + 1
    if positioned[-1][1] == "":
        positioned.pop()
    if positioned[0][1] != str(CHECKPOINT_VERSION):
        raise CorruptLog(path, 0, f"version '{positioned[0][1]}', expected {CHECKPOINT_VERSION}")
    if len(positioned) < 2 or not positioned[1][1].isdigit():
        raise CorruptLog(path, min(2, len(data)), "the number of entries is missing")
    entries = positioned[2:]
    if len(entries) != int(positioned[1][1]):
        raise CorruptLog(path, len(data), f"{len(entries)} entries, expected {positioned[1][1]}")
    return entries


def partition_metadata_text(topic_id: UUID) -> bytes:
    """Return the content of `partition.metadata`; without a newline at the end, as Kafka writes it."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes, path: str) -> UUID:
    """Return the topic id in a `partition.metadata` file.  Raises CorruptLog."""
    fields = dict(parse_property_pairs(data, path, separator=":"))
    if fields.get("version") != "0":
        raise CorruptLog(path, 0, f"version '{fields.get('version', '')}', expected 0")
    try:
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptLog(path, 0, "topic_id is missing or malformed") from error


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The broker and the cluster that the data in a log directory belongs to."""

    broker_id: int | None
    cluster_id: str | None


def meta_properties_text(meta: MetaProperties) -> bytes:
    """Return the content of `meta.properties` of a broker in ZooKeeper mode."""
    lines = ["#", "version=0"]
    if meta.broker_id is not None:
        lines.append(f"broker.id={meta.broker_id}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return "\n".join([*lines, ""]).encode()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Parse `meta.properties`.  Raises CorruptLog, also for version 1, which KRaft writes."""
    fields = dict(parse_property_pairs(data, path, separator="="))
    if fields.get("version") != "0":
        raise CorruptLog(path, 0, f"version '{fields.get('version', '')}', expected 0, the version of ZooKeeper mode")
    broker_id = fields.get("broker.id")
    try:
        return MetaProperties(None if broker_id is None else int(broker_id), fields.get("cluster.id"))
    except ValueError as error:
        raise CorruptLog(path, 0, f"broker.id '{broker_id}' is not a number") from error


def parse_property_pairs(data: bytes, path: str, *, separator: str) -> list[tuple[str, str]]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptLog(path, error.start, "not text") from error
    pairs: list[tuple[str, str]] = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(separator)
            # Java escapes ':' and '=' in property values.
            pairs.append((name.strip(), value.strip().replace("\\", "")))
    return pairs


def snapshot_bytes(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the content of a producer state snapshot, version 1.  ProducerStateManager.writeSnapshot."""
    body = [_SNAPSHOT_ENTRY.pack(*entry) for entry in entries]
    content = b"".join([struct.pack(">i", len(body)), *body])
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(content)) + content


def parse_snapshot(data: bytes, path: str) -> list[SnapshotEntry]:
    """Parse a producer state snapshot.  Raises CorruptLog."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptLog(path, 0, f"file is too short for a snapshot: {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptLog(path, 0, f"version {version}, expected {SNAPSHOT_VERSION}")
    actual = crc32c(memoryview(data)[_SNAPSHOT_CHECKED_FROM:])
    if actual != crc:
        raise CorruptLog(path, 2, f"checksum is {actual:#010x}, expected {crc:#010x}")
    if count < 0 or len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptLog(
            path, _SNAPSHOT_CHECKED_FROM, f"{count} entries do not match the file size of {len(data)} bytes"
        )
    return [SnapshotEntry(*fields) for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :])]


# The files `leader-epoch-checkpoint` and `partition.metadata` of a log.
#
# Each is replaced as a whole when its content changes, and synced with the next flush of the log. Kafka's
# LeaderEpochCheckpointFile and PartitionMetadataFile.
#
# Owner: event loop (recovery runs before the log is shared).


class MetadataFiles:
    """The metadata files of one log."""

    __slots__ = ("_directory", "_files", "_unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._unsynced: frozenset[str] = frozenset()

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
        self._unsynced = frozenset()
        return paths

    def _write(self, name: str, text: bytes) -> None:
        self._files.write_atomically(self._path(name), text, sync=False)
        self._unsynced |= {name}

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
