"""The plan of a migration: one document for all nodes, with a digest that each of them checks.

It has the snapshot with ACLs and SCRAM credentials, so that its file is private.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.migration.documents import canonical_json, digest_of_bytes, digest_of_json
from kctl.storage.names import META_PROPERTIES, PARTITION_METADATA, parse_log_directory_name

PLAN_KIND = "kctl-migration-plan"
VERSION = 1
SNAPSHOT_BYTES_MAX = bound(
    Subject.COMMANDS,
    "snapshot in a plan of `kctl migrate`",
    512 << 20,
    "bytes",
    on_excess="the plan is refused",
)


@dataclass(frozen=True, slots=True)
class PlannedDirectory:
    """A log directory, and the digest of its inventory."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one node gets.  Paths are absolute."""

    node_id: int
    roles: str
    """The value of process.roles."""
    old_config: str | None
    """Its server.properties; None for a new node."""
    old_config_sha256: str | None
    new_config: str
    settings: Mapping[str, str]
    """Properties of the new configuration that are not those of the old one."""
    changes: Sequence[tuple[str, str]]
    """Properties that are not carried as they are, with the reason."""
    directories: Sequence[PlannedDirectory]
    files: Mapping[str, str]
    """Small files to write, with their content."""
    metadata_dir: str | None
    """Where the snapshot is written; None for a node that is no controller."""

    @property
    def home(self) -> str:
        """The directory with the journal."""
        return self.homes[0]

    @property
    def homes(self) -> list[str]:
        """The log directories, and that of the metadata log."""
        paths = [directory.path for directory in self.directories]
        return paths if self.metadata_dir is None or self.metadata_dir in paths else [*paths, self.metadata_dir]


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """A plan.  `digest` is that of the document without it."""

    created_ms: int
    cluster_id: str
    zookeeper: str
    zookeeper_digest: str
    target: str
    features: Mapping[str, int]
    nodes: Mapping[int, NodePlan]
    snapshot: bytes = field(repr=False)
    notes: Sequence[str]
    digest: str = ""

    @property
    def snapshot_sha256(self) -> str:
        """The hash of the snapshot, in hexadecimal."""
        return digest_of_bytes(self.snapshot)


def plan_text(plan: MigrationPlan) -> str:
    """Return the document."""
    document = _document(plan)
    return canonical_json(document | {"digest": digest_of_json(document)}) + "\n"


def _document(plan: MigrationPlan) -> dict[str, Any]:
    return {
        "kind": PLAN_KIND,
        "version": VERSION,
        "created_ms": plan.created_ms,
        "cluster_id": plan.cluster_id,
        "zookeeper": {"connect": plan.zookeeper, "digest": plan.zookeeper_digest},
        "target": plan.target,
        "features": dict(plan.features),
        "nodes": {str(number): _node_document(node) for number, node in sorted(plan.nodes.items())},
        "snapshot": {
            "sha256": plan.snapshot_sha256,
            "size": len(plan.snapshot),
            "zlib": base64.b64encode(zlib.compress(plan.snapshot, 6)).decode(),
        },
        "notes": list(plan.notes),
    }


def _node_document(node: NodePlan) -> dict[str, Any]:
    return {
        "roles": node.roles,
        "old_config": node.old_config,
        "old_config_sha256": node.old_config_sha256,
        "new_config": node.new_config,
        "settings": dict(node.settings),
        "changes": [list(change) for change in node.changes],
        "directories": [[directory.path, directory.digest] for directory in node.directories],
        "files": dict(node.files),
        "metadata_dir": node.metadata_dir,
    }


def parse_plan(document: Any, name: str) -> MigrationPlan:
    """Return the plan in a document.  Raises UsageError, naming the file `name`, also for another digest."""
    try:
        if document["kind"] != PLAN_KIND or document["version"] != VERSION:
            raise ValueError(f"its kind is not {PLAN_KIND}, version {VERSION}")
        digest = document["digest"]
        rest = {key: value for key, value in document.items() if key != "digest"}
        if digest_of_json(rest) != digest:
            raise UsageError(f"{name} was changed or is incomplete: its digest differs; copy it again, or plan again")
        snapshot = _snapshot(document["snapshot"])
        return MigrationPlan(
            created_ms=int(document["created_ms"]),
            cluster_id=str(document["cluster_id"]),
            zookeeper=str(document["zookeeper"]["connect"]),
            zookeeper_digest=str(document["zookeeper"]["digest"]),
            target=str(document["target"]),
            features={str(key): int(level) for key, level in document["features"].items()},
            nodes={int(number): _parse_node(int(number), node) for number, node in document["nodes"].items()},
            snapshot=snapshot,
            notes=[str(note) for note in document["notes"]],
            digest=str(digest),
        )
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error, binascii.Error) as error:
        raise UsageError(f"{name} is not a plan of 'kctl migrate plan': {type(error).__name__}: {error}") from None


def _snapshot(document: Mapping[str, Any]) -> bytes:
    size = int(document["size"])
    if not 0 < size <= SNAPSHOT_BYTES_MAX:
        raise ValueError(f"its snapshot has {size} bytes, and at most {SNAPSHOT_BYTES_MAX} are possible")
    data = zlib.decompressobj().decompress(base64.b64decode(document["zlib"], validate=True), size + 1)
    if len(data) != size or digest_of_bytes(data) != document["sha256"]:
        raise ValueError("its snapshot is damaged")
    return data


def _parse_node(number: int, node: Mapping[str, Any]) -> NodePlan:
    parsed = NodePlan(
        node_id=number,
        roles=str(node["roles"]),
        old_config=_optional(node["old_config"]),
        old_config_sha256=_optional(node["old_config_sha256"]),
        new_config=str(node["new_config"]),
        settings={str(key): str(value) for key, value in node["settings"].items()},
        changes=[(str(name), str(reason)) for name, reason in node["changes"]],
        directories=[PlannedDirectory(str(path), str(digest)) for path, digest in node["directories"]],
        files={str(path): str(content) for path, content in node["files"].items()},
        metadata_dir=_optional(node["metadata_dir"]),
    )
    if not parsed.homes:
        raise ValueError(f"node {number} has no directory")
    for path in parsed.files:
        home, _, name = path.rpartition("/")
        log = posixpath.basename(home)
        is_of_directory = name == META_PROPERTIES and home in parsed.homes
        is_of_log = name == PARTITION_METADATA and posixpath.dirname(home) in parsed.homes
        if not (is_of_directory or (is_of_log and parse_log_directory_name(log) is not None)):
            raise ValueError(f"node {number} has a file that no conversion writes: {path}")
    return parsed


def _optional(value: object) -> str | None:
    return None if value is None else str(value)
