"""The files of a folder with the current state by key: of which those of a commit replace others of the same name.

    DIR/orders/orders+bucket-03-00005.parquet                       rows, see kctl.tables.upserts.buckets
    DIR/_kctl/changes/orders/orders+0+...parquet                    changes of a batch until its commit
    DIR/_kctl/replacements/orders/000000000007-ID+orders+bucket-03-00005.parquet      until it has its name

The new files are complete before the commit, which names their attempt (ID).  After it each is renamed over the file
before, at once, so that readers of the folder find each key in one file; a process that takes the lock repeats that for
the last commit.  Only files of that attempt get names, and only files of committed batches are removed, so that of two
exporters without a lock neither disturbs the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from kctl.tables.commits import layout
from kctl.tables.commits.commit_json import REPLACEMENT, StateCommit
from kctl.tables.exec.file_task import CHANGES
from kctl.tables.exec.outcome import FileOutcome, WrittenFile
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.plan import Plan, Positions
from kctl.tables.upserts.changed_keys import ChangedKeys, StateOptions, is_closed_name

REPLACEMENTS = f"{layout.LOG_DIRECTORY}/replacements"


def write_state_files(
    files: Files,
    upsert: StateOptions,
    plan: Plan,
    outcomes: Mapping[str, FileOutcome],
    positions: Positions,
    current: Mapping[str, Mapping[str, int]],
) -> tuple[StateCommit, dict[str, ChangedKeys]]:
    """Write the files of the state after a batch, which wait for its commit; `current` are the files of each topic."""
    from kctl.tables.exec.selection.columns import schema, state_schema  # noqa: PLC0415 - imports pyarrow
    from kctl.tables.upserts.batches import write_batch  # noqa: PLC0415 - same

    replacement = f"{plan.batch:012d}-{uuid4().hex}"
    written: list[WrittenFile] = []
    removed: list[str] = []
    changed: dict[str, ChangedKeys] = {}
    for topic, planned in plan.topics.items():
        columns = schema(include_headers=plan.options.include_headers, columns=planned.columns, headers=upsert.headers)
        new = write_batch(
            files,
            upsert,
            plan,
            topic,
            outcomes,
            positions,
            schema=state_schema(columns, has_versions=upsert.options.history),
            current=sorted(current[topic]),
            place=partial(_waiting_path_of, replacement, topic, plan.batch),
        )
        changed[topic] = new.keys
        of_topic = [file._replace(path=_final_path(file.path)) for file in new.files]
        written += of_topic
        removed += sorted(set(new.removed) - {file.path for file in of_topic})
    return StateCommit(replacement, written, removed), changed


def publish_state_files(files: Files, commit: Mapping[str, Any], last_batch: int) -> None:
    """Give the files of the last commit their names, and remove those that it removes; again after a crash.

    `commit` is empty if that commit is of another kind.  Files of other attempts at committed batches are removed.
    """
    topics = files.names(REPLACEMENTS)
    for file in commit.get("files", ()):
        if file["path"].partition("/")[0] in topics:
            files.replace(_waiting_path(commit[REPLACEMENT], file["path"]), file["path"])
    for path in commit.get("removed", ()):
        files.remove(path)
    for directory in topics:
        for name in files.names(f"{REPLACEMENTS}/{directory}"):
            number = name.partition("-")[0]
            if number.isdecimal() and int(number) <= last_batch:
                files.remove(f"{REPLACEMENTS}/{directory}/{name}")


def has_waiting_files(files: Files) -> bool:
    """Return whether files may wait for their names."""
    return bool(files.names(REPLACEMENTS))


def published_sizes(files: Files, existing: Mapping[str, int], commit: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of files as they are when those of the last commit have their names."""
    sizes = {path: size for path, size in existing.items() if path not in commit.get("removed", ())}
    for file in commit.get("files", ()):
        size = files.size(_waiting_path(commit[REPLACEMENT], file["path"]))
        if size is not None:
            sizes[file["path"]] = size
    return sizes


def remove_changes(files: Files) -> None:
    """Remove the changes of batches that are committed."""
    for directory in files.names(CHANGES):
        for name in files.names(f"{CHANGES}/{directory}"):
            files.remove(f"{CHANGES}/{directory}/{name}")


def state_directories(files: Files) -> list[str]:
    """Return the folders with changes and waiting files, in which interrupted processes may have left scratch files."""
    return [f"{folder}/{name}" for folder in (CHANGES, REPLACEMENTS) for name in files.names(folder)]


def _waiting_path(replacement: str, path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{REPLACEMENTS}/{directory}/{replacement}+{name}"


def _waiting_path_of(replacement: str, topic: str, batch: int, name: str) -> str:
    # Files of buckets replace those of the same name; others must not.
    number = f"-{batch:012d}" if is_closed_name(name) else ""
    name = f"{layout.short_name(topic)}{name}{number}{layout.DATA_SUFFIX}"
    return _waiting_path(replacement, f"{layout.topic_directory(topic)}/{name}")


def _final_path(path: str) -> str:
    """Return the inverse of `_waiting_path`."""
    directory, _, name = path.removeprefix(f"{REPLACEMENTS}/").rpartition("/")
    return f"{directory}/{name.partition('+')[2]}"
