"""Puts back the logs that Kafka 4 has renamed to -stray: it does so with all logs of partitions that it does not know.

That happens to all of them when it is started on directories of a broker with ZooKeeper that were not converted: it
comes up as an empty cluster with the same id.  Kafka: LogManager.loadLogs, KAFKA-15776.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kctl.errors import UsageError
from kctl.migration.target.snapshot import METADATA_FOLDER
from kctl.storage.files import Files
from kctl.storage.names import META_PROPERTIES, parse_log_directory_name
from kctl.storage.state.checkpoints import parse_property_pairs

_STRAY = "-stray"
_KEPT = "kctl-rescued."
"""The beginning of the names under which files of Kafka 4 are kept.  Brokers ignore such files."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """A file or directory that gets another name, or the reason why it cannot."""

    directory: str
    name: str
    new_name: str
    problem: str | None = None


def plan_rescue(files: Files, directory: str) -> list[Renaming]:
    """Return what is to be renamed in a log directory.  Raises UsageError if it cannot be read."""
    try:
        return list(_renamings(files, directory))
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or directory}: {error.strerror}") from None


def _renamings(files: Files, directory: str) -> Iterator[Renaming]:
    names = {entry.name for entry in files.list(directory)}
    strays: dict[str, list[str]] = {}
    for name in sorted(names):
        parsed = parse_log_directory_name(name)
        if parsed is not None and parsed[1] == _STRAY:
            strays.setdefault(str(parsed[0]), []).append(name)
    # First, because stray logs show that this is not completed.
    if strays and METADATA_FOLDER in names:
        # Flat: a broker would take another directory for a log.
        for entry in files.list(f"{directory}/{METADATA_FOLDER}"):
            if not entry.is_directory:
                yield Renaming(directory, f"{METADATA_FOLDER}/{entry.name}", f"{_KEPT}{METADATA_FOLDER}.{entry.name}")
    for target, found in strays.items():
        for name in found:
            problem = None
            if target in names:
                problem = f"{target} exists: 4.x has created the partition again; move one of both away"
            elif len(found) > 1:
                problem = f"{len(found)} directories are of {target}; move the older ones away"
            yield Renaming(directory, name, target, problem)


def rescue(files: Files, renamings: list[Renaming]) -> None:
    """Rename what has no problem, and give the directories their identity of a broker with ZooKeeper.

    It can be interrupted, and planned and run again.  Raises OSError.
    """
    for directory in dict.fromkeys(renaming.directory for renaming in renamings):
        of_directory = [renaming for renaming in renamings if renaming.directory == directory and not renaming.problem]
        folder = f"{directory}/{METADATA_FOLDER}"
        for renaming in of_directory:
            if renaming.name.startswith(METADATA_FOLDER):
                files.rename(f"{directory}/{renaming.name}", f"{directory}/{renaming.new_name}")
        if files.exists(folder) and not files.list(folder):
            files.remove_tree(folder)
        _restore_identity(files, directory)
        for renaming in of_directory:
            if not renaming.name.startswith(METADATA_FOLDER):
                files.rename(f"{directory}/{renaming.name}", f"{directory}/{renaming.new_name}")
        files.sync_directory(directory)


def _restore_identity(files: Files, directory: str) -> None:
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        return
    meta = dict(parse_property_pairs(files.read(path), path, separator="="))
    if meta.get("version") == "1" and "node.id" in meta:
        kept = f"{directory}/{_KEPT}{META_PROPERTIES}"
        if not files.exists(kept):
            files.write_atomically(kept, files.read(path))
        lines = ["#", "version=0", f"broker.id={meta['node.id']}", f"cluster.id={meta.get('cluster.id', '')}"]
        files.write_atomically(path, "\n".join([*lines, ""]).encode())
