"""Takes a node back to ZooKeeper after Kafka 4 has run on it, and its metadata log into ZooKeeper.

Each step can be interrupted and run again: znodes are compared with the metadata log before they are written, segments
are rewritten only if they have values that older brokers do not read, and files are renamed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kctl.errors import MalformedRequest, NoNodeError, UsageError
from kctl.limits import Subject, bound
from kctl.migration.planning.plan import NodePlan
from kctl.migration.reverting.image import Image, replay
from kctl.migration.reverting.internal_topics import Rewritten, rewrite_directory
from kctl.migration.reverting.znode_changes import ZnodeChanges
from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER, read_messages
from kctl.records.header import CorruptBatch
from kctl.storage.files import Files
from kctl.storage.names import LOG_SUFFIX, parse_metadata_snapshot_name, parse_offset_file_name
from kctl.zookeeper.operations import ZooKeeper, make_path

METADATA_BYTES_MAX = bound(
    Subject.COMMANDS,
    "segments of a metadata log that `kctl migrate revert` reads",
    4 << 30,
    "bytes",
    on_excess="the command ends with an error before it changes anything",
)
_KEPT = "kctl-reverted."


def read_image(files: Files, metadata_dir: str) -> Image:
    """Return the state of the cluster in the metadata log of a controller.  Raises UsageError and OSError."""
    folder = f"{metadata_dir}/{METADATA_FOLDER}"
    try:
        return replay(_messages(files, folder))
    except (CorruptBatch, MalformedRequest, KeyError) as error:
        raise UsageError(
            f"{folder}: {type(error).__name__}: {error}; start and stop the controller once, or use that of another one"
        ) from None


def _messages(files: Files, folder: str) -> Iterator[Any]:
    """Yield the messages of the newest snapshot, and of the records after it."""
    names = [entry.name for entry in files.list(folder)]
    snapshots = sorted(name for name in names if parse_metadata_snapshot_name(name) is not None)
    start = 0
    if snapshots:
        start, _ = parse_metadata_snapshot_name(snapshots[-1]) or (0, 0)
        yield from read_messages(files.read(f"{folder}/{snapshots[-1]}"))
    segments = [name for name in names if (parse_offset_file_name(name) or (0, "", "-"))[1:] == (LOG_SUFFIX, "")]
    if sum(files.size(f"{folder}/{name}") for name in segments) > METADATA_BYTES_MAX:
        raise UsageError(f"{folder} has more than {METADATA_BYTES_MAX} bytes")
    for name in sorted(segments):
        yield from read_messages(files.read(f"{folder}/{name}"), start=start)


async def write_znodes(zookeeper: ZooKeeper, changes: ZnodeChanges) -> None:
    """Make the changes.  Raises ZooKeeperError; then they can be compared and made again."""
    for path, data in changes.writes:
        if data is None:
            await zookeeper.delete(path, recursive=True)
            continue
        try:
            await zookeeper.set(path, data)
        except NoNodeError:
            await make_path(zookeeper, path)
            await zookeeper.set(path, data)


@dataclass(slots=True)
class NodeReverted:
    """What was changed in the directories of a node."""

    segments: list[Rewritten] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files of the metadata log, with the names under which they are kept."""


def take_back(files: Files, node: NodePlan) -> NodeReverted:
    """Rewrite the internal topics of a node, and put its metadata log aside.  Raises UsageError and OSError.

    Its original files are restored after that, see kctl.migration.converting.conversion.restore.
    """
    done = NodeReverted()
    for directory in node.directories:
        done.segments += rewrite_directory(files, directory.path)
    for home in node.homes:
        folder = f"{home}/{METADATA_FOLDER}"
        for entry in files.list(folder) if files.exists(folder) else ():
            if entry.is_directory or entry.name == FILE_NAME:
                continue
            # Flat, because a broker would take another directory for a log.
            kept = f"{home}/{_KEPT}{METADATA_FOLDER}.{entry.name}"
            files.rename(f"{folder}/{entry.name}", kept)
            done.kept.append(kept)
        if files.exists(folder) and not files.list(folder):
            files.remove_tree(folder)
    return done
