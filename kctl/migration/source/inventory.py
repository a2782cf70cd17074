"""The inventory of a node: its properties and what its log directories contain, as a document of JSON.

It is taken on the host of the node, and has no secret: values of passwords are hidden.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kctl.config.redaction import redacted
from kctl.errors import CorruptLog, UsageError
from kctl.limits import Subject, bound
from kctl.migration.documents import canonical_json, digest_of_bytes
from kctl.model import TopicPartition, parse_uuid, uuid_text
from kctl.storage.files import Files
from kctl.storage.names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    NOT_A_LOG,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    parse_log_directory_name,
    parse_offset_file_name,
)
from kctl.storage.state.checkpoints import parse_epochs, parse_partition_metadata, parse_property_pairs, parse_snapshot

LOGS_MAX = bound(
    Subject.COMMANDS,
    "logs of one node that `kctl migrate` reads",
    200_000,
    "logs",
    on_excess="the command ends with an error before it changes anything",
)
INVENTORY_KIND = "kctl-migration-inventory"
VERSION = 1


@dataclass(frozen=True, slots=True)
class LogFolder:
    """The directory of a log."""

    tp: TopicPartition
    topic_id: UUID | None
    last_epoch: int
    """The last leader epoch with a record; -1 without."""
    end: str
    """The last segment and the size of all segments, which change with every record."""


@dataclass(frozen=True, slots=True)
class DirectoryInventory:
    """A directory of log.dirs."""

    path: str
    meta: Mapping[str, str]
    """The content of meta.properties; empty without."""
    is_clean: bool
    """Whether the broker was shut down cleanly."""
    logs: tuple[LogFolder, ...]
    left: tuple[str, ...]
    """Directories that are not those of partitions: moved, being deleted, or of another program."""
    producer_id_max: int
    """The largest producer id in a producer snapshot; -1 without."""

    @property
    def digest(self) -> str:
        """A hash of what a start of the broker changes."""
        lines = [f"{log.tp} {log.topic_id} {log.last_epoch} {log.end}" for log in self.logs]
        text = canonical_json([dict(self.meta), self.is_clean, lines, list(self.left)])
        return digest_of_bytes(text.encode())


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """A node: its id, its properties and its log directories."""

    node_id: int
    config_path: str
    config_sha256: str
    properties: Mapping[str, str]
    """Without the values of secrets."""
    directories: tuple[DirectoryInventory, ...]


def take_inventory(
    files: Files, properties: Mapping[str, str], *, config_path: str, config_data: bytes
) -> NodeInventory:
    """Read the log directories that the properties name.  Raises UsageError with the file that cannot be used."""
    paths = log_dirs_of(properties)
    directories = tuple(read_directory(files, path) for path in paths)
    converted = [directory.path for directory in directories if directory.meta.get("version") == "1"]
    if converted:
        raise UsageError(f"{converted[0]} has been converted to KRaft (meta.properties has version=1)")
    ids = {directory.meta["broker.id"] for directory in directories if "broker.id" in directory.meta}
    configured = properties.get("broker.id", properties.get("node.id", "-1")).strip()
    if configured not in {"", "-1"}:
        ids.add(configured)
    if len(ids) != 1 or not (number := ids.pop()).isdigit():
        raise UsageError(
            f"{config_path}: broker.id and meta.properties of its log directories do not name one broker: {sorted(ids)}"
        )
    return NodeInventory(int(number), config_path, digest_of_bytes(config_data), redacted(properties), directories)


def log_dirs_of(properties: Mapping[str, str]) -> list[str]:
    """Return the absolute paths of the log directories.  Raises UsageError."""
    text = properties.get("log.dirs") or properties.get("log.dir") or ""
    paths = [path.strip() for path in text.split(",") if path.strip()]
    if not paths:
        raise UsageError("the properties have no log.dirs: add it with the directories that the broker uses")
    relative = [path for path in paths if not posixpath.isabs(path)]
    if relative:
        raise UsageError(f"log.dirs has the relative path {relative[0]}: write it as an absolute one")
    return [posixpath.normpath(path) for path in paths]


def read_directory(files: Files, path: str) -> DirectoryInventory:
    """Return the inventory of a log directory.  Raises UsageError."""
    try:
        entries = files.list(path)
        names = {entry.name for entry in entries}
        meta = _meta(files, f"{path}/{META_PROPERTIES}") if META_PROPERTIES in names else {}
        logs: list[LogFolder] = []
        left: list[str] = []
        producer_id_max = -1
        for entry in entries:
            if not entry.is_directory or entry.name in NOT_A_LOG:
                continue
            parsed = parse_log_directory_name(entry.name)
            if parsed is None or parsed[1]:
                left.append(entry.name)
                continue
            if len(logs) >= LOGS_MAX:
                raise UsageError(f"{path} has more than {LOGS_MAX} logs")
            log, producer_id = _read_log(files, f"{path}/{entry.name}", parsed[0])
            logs.append(log)
            producer_id_max = max(producer_id_max, producer_id)
    except CorruptLog as error:
        raise UsageError(f"{error}; start and stop the broker once, which repairs it, or restore the file") from None
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from None
    return DirectoryInventory(path, meta, CLEAN_SHUTDOWN in names, tuple(logs), tuple(left), producer_id_max)


def _meta(files: Files, path: str) -> dict[str, str]:
    return dict(parse_property_pairs(files.read(path), path, separator="="))


def _read_log(files: Files, path: str, tp: TopicPartition) -> tuple[LogFolder, int]:
    """Return the log, and the largest producer id in its last snapshot."""
    topic_id: UUID | None = None
    last_epoch, producer_id = -1, -1
    size, last_segment, last_snapshot = 0, -1, -1
    for entry in files.list(path):
        parsed = parse_offset_file_name(entry.name)
        if entry.name == PARTITION_METADATA:
            data = files.read(f"{path}/{entry.name}")
            topic_id = parse_partition_metadata(data, f"{path}/{entry.name}") if data else None
        elif entry.name == LEADER_EPOCH_CHECKPOINT:
            epochs = parse_epochs(files.read(f"{path}/{entry.name}"), f"{path}/{entry.name}")
            last_epoch = max((entry.epoch for entry in epochs), default=-1)
        elif parsed is not None and parsed[1:] == (LOG_SUFFIX, ""):
            size, last_segment = size + entry.size, max(last_segment, parsed[0])
        elif parsed is not None and parsed[1:] == (SNAPSHOT_SUFFIX, ""):
            last_snapshot = max(last_snapshot, parsed[0])
    if last_snapshot >= 0:
        snapshot = f"{path}/{last_snapshot:020d}{SNAPSHOT_SUFFIX}"
        producer_id = max((entry.producer_id for entry in parse_snapshot(files.read(snapshot), snapshot)), default=-1)
    return LogFolder(tp, topic_id, last_epoch, f"{last_segment} {size}"), producer_id


def inventory_document(node: NodeInventory) -> dict[str, Any]:
    """Return the document of an inventory."""
    return {
        "kind": INVENTORY_KIND,
        "version": VERSION,
        "node_id": node.node_id,
        "config": {"path": node.config_path, "sha256": node.config_sha256, "properties": dict(node.properties)},
        "directories": [
            {
                "path": directory.path,
                "meta": dict(directory.meta),
                "clean": directory.is_clean,
                "logs": [
                    [log.tp.topic, log.tp.partition, _text(log.topic_id), log.last_epoch, log.end]
                    for log in directory.logs
                ],
                "left": list(directory.left),
                "producer_id_max": directory.producer_id_max,
            }
            for directory in node.directories
        ],
    }


def parse_inventory(document: Any, name: str) -> NodeInventory:
    """Return the inventory in a document.  Raises UsageError, naming the file `name`."""
    try:
        if document["kind"] != INVENTORY_KIND or document["version"] != VERSION:
            raise ValueError(f"its kind is not {INVENTORY_KIND}, version {VERSION}")
        config = document["config"]
        return NodeInventory(
            int(document["node_id"]),
            str(config["path"]),
            str(config["sha256"]),
            {str(key): str(value) for key, value in config["properties"].items()},
            tuple(_parse_directory(directory) for directory in document["directories"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{name} is not an inventory of 'kctl migrate inventory': {type(error).__name__}: {error}"
        ) from None


def _parse_directory(document: Mapping[str, Any]) -> DirectoryInventory:
    return DirectoryInventory(
        str(document["path"]),
        {str(key): str(value) for key, value in document["meta"].items()},
        bool(document["clean"]),
        tuple(_parse_log(log) for log in document["logs"]),
        tuple(str(name) for name in document["left"]),
        int(document["producer_id_max"]),
    )


def _parse_log(row: Sequence[Any]) -> LogFolder:
    topic, partition, topic_id, last_epoch, end = row
    return LogFolder(
        TopicPartition(str(topic), int(partition)),
        parse_uuid(topic_id) if topic_id else None,
        int(last_epoch),
        str(end),
    )


def _text(topic_id: UUID | None) -> str | None:
    return None if topic_id is None else uuid_text(topic_id)
