"""Takes a node back to ZooKeeper after Kafka 4 has run on it, and its metadata log into ZooKeeper.

Each step can be interrupted and run again: znodes are compared with the metadata log before they are written, segments
are rewritten only if they have values that older brokers do not read, and the metadata log is put aside as a whole.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import NoNodeError
from kctl.migration.planning.plan import NodePlan
from kctl.migration.reverting.internal_topics import SINCE_0_11, SINCE_2_3, Rewritten, Versions, rewrite_directory
from kctl.migration.reverting.znode_changes import ZnodeChanges
from kctl.migration.target.snapshot import METADATA_FOLDER
from kctl.storage.files import Files
from kctl.storage.names import META_PROPERTIES
from kctl.zookeeper.operations import ZooKeeper, make_path

_ASIDE = f"kctl-reverted.{METADATA_FOLDER}"
"""A directory while a metadata log is put aside, and then the beginning of the names of its files."""


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


def versions_read(originals: Mapping[str, bytes | None]) -> Versions:
    """Return what the old brokers read, from their files: since 2.4 meta.properties names the cluster (KAFKA-7335)."""
    meta = [data or b"" for path, data in originals.items() if posixpath.basename(path) == META_PROPERTIES]
    return SINCE_2_3 if any(b"cluster.id=" in data for data in meta) else SINCE_0_11


@dataclass(slots=True)
class NodeReverted:
    """What was changed in the directories of a node."""

    segments: list[Rewritten] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files of the metadata log, with the names under which they are kept."""


def take_back(files: Files, node: NodePlan, versions: Versions = SINCE_2_3) -> NodeReverted:
    """Rewrite the internal topics of a node, and put its metadata log aside.  Raises UsageError and OSError.

    Its original files are restored after that, see kctl.migration.converting.conversion.restore.
    """
    done = NodeReverted()
    for directory in node.directories:
        done.segments += rewrite_directory(files, directory.path, versions)
    for home in node.homes:
        folder, aside = f"{home}/{METADATA_FOLDER}", f"{home}/{_ASIDE}"
        if files.exists(folder) and not files.exists(aside):
            # In one step: a part of a metadata log would be an older state.
            files.rename(folder, aside)
            files.sync_directory(home)
        done.kept += _flatten(files, home, aside)
    return done


def is_interrupted(files: Files, node: NodePlan) -> bool:
    """Return whether a metadata log was put aside, by a revert that was interrupted."""
    return any(files.exists(f"{home}/{_ASIDE}") for home in node.homes)


def _flatten(files: Files, home: str, aside: str) -> list[str]:
    """Move the files out of the directory, which a broker would take for a log; return where they are."""
    kept = []
    for entry in files.list(aside) if files.exists(aside) else ():
        if entry.is_directory:
            continue
        path, number = f"{aside}.{entry.name}", 0
        while files.exists(path):  # of an earlier way back
            number += 1
            path = f"{aside}.{entry.name}.{number}"
        files.rename(f"{aside}/{entry.name}", path)
        kept.append(path)
    if files.exists(aside) and not files.list(aside):
        files.remove_tree(aside)
        files.sync_directory(home)
    return kept
