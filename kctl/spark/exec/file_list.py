"""The list of the files of one task in a folder with partitions.

A task that is attempted again may find fewer records, if the topic was compacted or records were deleted meanwhile, and
then does not write some files that the first attempt published.  So each attempt writes its list before it publishes
any file, and only the first list counts: exactly its files are published, by whichever attempt, those without
records as empty files.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.spark.exec.file_task import FileTask
from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import PartOutcome, Unreadable, WrittenFile
from kctl.spark.exec.partitioning import Values

LISTS = "_kctl/lists"


class FileList(NamedTuple):
    """The files that a task has written."""

    files: dict[str, tuple[Values, int]]
    """Partition and number of records by path."""
    parts: tuple[PartOutcome, ...]
    dead_letters: WrittenFile | None
    unreadable: tuple[Unreadable, ...] = ()


def read_list(files: Files, path: str, identity: str) -> FileList | None:
    """The list of the task with this planned path, or None.  Raises KctlError if it is of another task."""
    try:
        document = json.loads(files.read(_list_path(path)))
    except FileNotFoundError:
        return None
    if document["range"] != identity:
        raise KctlError(
            f"{files.location}/{_list_path(path)} is in the way: it holds {document['range']}, not {identity}"
        )
    letters = document["dead_letters"]
    return FileList(
        {one["path"]: (tuple(one["partition"]), one["records"]) for one in document["files"]},
        tuple(PartOutcome(**part) for part in document["parts"]),
        WrittenFile(*letters) if letters else None,
        tuple(Unreadable(TopicPartition(*one[:2]), *one[2:]) for one in document.get("unreadable", ())),
    )


def claim(files: Files, path: str, identity: str, own: FileList) -> FileList:
    """The list that counts: `own`, or that of the first attempt."""
    document: dict[str, Any] = {
        "range": identity,
        "files": [
            {"path": one, "partition": values, "records": records} for one, (values, records) in own.files.items()
        ],
        "parts": [part._asdict() for part in own.parts],
        "dead_letters": own.dead_letters[:3] if own.dead_letters else None,
        "unreadable": [[*one.tp, *one[1:]] for one in own.unreadable],
    }
    if files.create(_list_path(path), json.dumps(document).encode()):
        return own
    first = read_list(files, path, identity)
    assert first is not None  # lists are never deleted
    return first


def is_finished(task: FileTask, files: Files) -> bool:
    """Whether an earlier attempt has published all files of the task, so that it reads nothing.  Raises KctlError."""
    if not task.has_list:
        return files.size(task.path) is not None
    found = read_list(files, task.path, task.identity)
    return found is not None and all(files.size(path) is not None for path in found.files)


def _list_path(path: str) -> str:
    return f"{LISTS}/{path}.json"
