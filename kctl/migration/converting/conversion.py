"""Converts the directories of a stopped node to KRaft, and restores them.

Each step can be interrupted and run again: a file has its original or its new content, and nothing else is accepted.
The identities of the log directories (meta.properties) are changed last.  Before that the old broker starts and 4.x
does not, after it 4.x starts and finds the snapshot.  Segments and indexes are never written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kctl.errors import UsageError
from kctl.migration.converting.journal import Journal, State, read_journal, write_journal
from kctl.migration.planning.plan import MigrationPlan, NodePlan
from kctl.migration.source.inventory import DirectoryInventory, read_directory
from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER
from kctl.storage.files import Files
from kctl.storage.names import DRAFT_SUFFIX, META_PROPERTIES, PARTITION_METADATA
from kctl.storage.state.checkpoints import parse_property_pairs


def node_of(plan: MigrationPlan, node_id: int) -> NodePlan:
    """Return the plan of a node.  Raises UsageError if it has none."""
    node = plan.nodes.get(node_id)
    if node is None:
        raise UsageError(f"the plan has no node {node_id}, but {', '.join(map(str, sorted(plan.nodes)))}")
    return node


def new_contents(plan: MigrationPlan, node: NodePlan) -> dict[str, bytes]:
    """Return what is written, in order: by path."""
    contents: dict[str, bytes] = {}
    if node.metadata_dir is not None:
        contents[f"{node.metadata_dir}/{METADATA_FOLDER}/{FILE_NAME}"] = plan.snapshot
    for is_last in (False, True):
        contents |= {
            path: content.encode()
            for path, content in sorted(node.files.items())
            if (posixpath.basename(path) == META_PROPERTIES) is is_last
        }
    return contents


def check_conversion(files: Files, plan: MigrationPlan, node: NodePlan) -> Journal | None:
    """Return the journal of a conversion by this plan that has begun or was reverted; None without one.

    Raises UsageError if the directories are not what they were when the plan was made.
    """
    journal = read_journal(files, node.home) if files.exists(node.home) else None
    if journal is not None and journal.state is State.REVERTED:
        journal = None
    if journal is not None and (journal.plan_digest, journal.node_id) != (plan.digest, node.node_id):
        raise UsageError(
            f"{node.home} was converted by another plan or as another node (state: {journal.state.value}): run "
            "'kctl migrate revert' with that plan first"
        )
    if journal is not None and journal.state is State.REVERTING:
        raise UsageError(f"{node.home} is being reverted: run 'kctl migrate revert' again to complete that")
    if journal is None or journal.state is State.CONVERTING:
        _check_directories(files, node, {} if journal is None else journal.originals)
        if journal is None:
            _check_targets(files, plan, node)
    return journal


def _check_directories(files: Files, node: NodePlan, originals: Mapping[str, bytes | None]) -> None:
    for directory in node.directories:
        if not files.exists(directory.path):
            raise UsageError(
                f"{directory.path} does not exist: mount it, or run this on the host of node {node.node_id}"
            )
        current = _with_originals(read_directory(files, directory.path), originals)
        if current.digest != directory.digest:
            raise UsageError(
                f"{directory.path} has changed since its inventory was taken, or is that of another broker: take the "
                "inventory again with the broker stopped, and make a new plan"
            )


def _with_originals(directory: DirectoryInventory, originals: Mapping[str, bytes | None]) -> DirectoryInventory:
    """Return the inventory as it was before a conversion that was interrupted."""
    path = f"{directory.path}/{META_PROPERTIES}"
    meta = directory.meta
    if path in originals:
        data = originals[path]
        meta = {} if data is None else dict(parse_property_pairs(data, path, separator="="))
    logs = tuple(
        replace(log, topic_id=None) if f"{directory.path}/{log.tp}/{PARTITION_METADATA}" in originals else log
        for log in directory.logs
    )
    return replace(directory, meta=meta, logs=logs)


def _check_targets(files: Files, plan: MigrationPlan, node: NodePlan) -> None:
    """Raise UsageError if a metadata log is there already."""
    if node.metadata_dir is None:
        return
    folder = f"{node.metadata_dir}/{METADATA_FOLDER}"
    if files.exists(folder) and files.list(folder):
        raise UsageError(f"{folder} is not empty: it is the metadata log of a KRaft cluster; move it away")
    if not node.directories and files.exists(f"{node.metadata_dir}/{META_PROPERTIES}"):
        raise UsageError(f"{node.metadata_dir} belongs to another node: give an empty directory")


def convert(files: Files, plan: MigrationPlan, node: NodePlan) -> list[str]:
    """Convert the directories of a node; return the paths that were written, none if that was done before.

    Raises UsageError before the first write if they are not what the plan expects.  After an OSError it can be run
    again.
    """
    journal = check_conversion(files, plan, node)
    if journal is not None and journal.state is State.CONVERTED:
        return []
    contents = new_contents(plan, node)
    if journal is None:
        files.make_directory(node.home)
        journal = Journal(plan.digest, node.node_id, State.CONVERTING, dict(_originals(files, contents)))
        write_journal(files, node.home, journal)
    for path, data in contents.items():
        _replace(files, path, data, journal.originals[path])
    for folder in dict.fromkeys(map(posixpath.dirname, contents)):
        files.sync_directory(folder)
    write_journal(files, node.home, journal.at(State.CONVERTED))
    return list(contents)


def _originals(files: Files, contents: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
    for path in contents:
        yield path, files.read(path) if files.exists(path) else None


def _replace(files: Files, path: str, data: bytes, original: bytes | None) -> None:
    current = files.read(path) if files.exists(path) else None
    if current == data:
        return
    if current != original:
        raise UsageError(f"{path} was changed by another program: restore it, and run this again")
    files.make_directory(posixpath.dirname(path))
    files.write_atomically(path, data)


def has_started(files: Files, plan: MigrationPlan, node: NodePlan) -> bool:
    """Return whether a node of 4.x has run on the directories since the conversion."""
    for home in node.homes:
        folder = f"{home}/{METADATA_FOLDER}"
        if files.exists(folder) and {entry.name for entry in files.list(folder)} - {
            FILE_NAME,
            FILE_NAME + DRAFT_SUFFIX,
        }:
            return True
    return False


def restore(files: Files, plan: MigrationPlan, node: NodePlan) -> list[str]:
    """Restore the files that the conversion has changed; return their paths, none if that was done before.

    Raises UsageError before the first write if there is nothing to restore or a file is neither the original nor the
    new one, and OSError; then it can be run again.
    """
    journal = read_journal(files, node.home) if files.exists(node.home) else None
    if journal is None:
        raise UsageError(f"{node.home} has no journal of a conversion; nothing was changed there")
    if (journal.plan_digest, journal.node_id) != (plan.digest, node.node_id):
        raise UsageError(f"{node.home} was converted by another plan or as another node; give that plan and node")
    if journal.state is State.REVERTED:
        return []
    contents = new_contents(plan, node)
    for path, original in journal.originals.items():
        current = files.read(path) if files.exists(path) else None
        if current not in {original, contents.get(path)}:
            raise UsageError(f"{path} was changed since the conversion: move it away, and run this again")
    write_journal(files, node.home, journal.at(State.REVERTING))
    # In the other order, so that 4.x does not start on what is half restored.
    for path, original in reversed(list(journal.originals.items())):
        files.remove(path + DRAFT_SUFFIX)  # of a conversion that was interrupted
        if original is None:
            files.remove(path)
        else:
            files.write_atomically(path, original)
    for folder in dict.fromkeys(map(posixpath.dirname, journal.originals)):
        if posixpath.basename(folder) == METADATA_FOLDER and files.exists(folder) and not files.list(folder):
            files.remove_tree(folder)
        elif files.exists(folder):
            files.sync_directory(folder)
    write_journal(files, node.home, journal.at(State.REVERTED))
    return list(journal.originals)
