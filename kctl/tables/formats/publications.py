"""Records of what an export publishes in a table, which show whether the metadata of the table is complete.

    TABLE/_published/000000000007.json      written before batch 7 is committed to the table, with everything it commits

The metadata of a table may get lost, or may be replaced by an older copy or by that of another table.  Its data files
then look as if an interrupted run had left them.  The record tells the two apart:

    batch of the table              meaning
    the one of the record, or later the batch is committed; later ones were committed by a kctl without these records
    the one before that             the run was interrupted before its commit, or the commit was lost: it is repeated
    an earlier one, or no table     commits were lost: nothing can be exported before they are restored

A file that no record names was never published.  Versions of kctl before these records gave their data files names
without `+p`, so that their files can be recognised; of those nothing is known.

Only the last record is kept.  The folder's name begins with `_`, so that cleanups of tables leave it alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kctl.tables.commits import layout
from kctl.tables.commits.commit_json import (
    all_misfits_from_json,
    all_misfits_to_json,
    topics_from_json,
    topics_to_json,
)
from kctl.tables.commits.commit_log import BrokenExportFolder, LostRace
from kctl.tables.exec.outcome import WrittenFile
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.table import TableCommit

FOLDER = "_published"
VERSION = 1
_RECORDED_NAME = re.compile(r"\+p[0-9a-f]{8}(\+[^+]*)?\.parquet")


class Publication(NamedTuple):
    """A commit, and the state of the table that it is based on."""

    after: int
    """The batch of the table before; -1 for a new table."""
    commit: TableCommit


class Publications:
    """The records of one table."""

    def __init__(self, files: Files, directory: str, partition_by: Partitioning, sort_by: Sequence[str] = ()) -> None:
        """`partition_by` and `sort_by` are those of the target, which all records have."""
        self._files = files
        self._folder = f"{directory}/{FOLDER}".lstrip("/")
        self._partition_by = partition_by
        self._sort_by = sort_by

    def newest_first(self) -> Iterator[Publication]:
        """Yield the records, beginning with the highest batch.

        Raises BrokenExportFolder for one that cannot be read.
        """
        for batch in sorted(self._batches(), reverse=True):
            yield self._read(batch)

    def write(self, publication: Publication) -> None:
        """Record what is about to be committed.  Raises LostRace if another exporter commits the same batch."""
        path = self._path(publication.commit.batch)
        data = json.dumps(_to_json(publication), indent=1).encode() + b"\n"
        # A store repeats a request whose answer was lost, and then finds the object that it has created itself.
        if not self._files.create(path, data) and self._files.read(path) != data:
            raise LostRace(f"{self._files.location}/{path} was written by another export at the same time")

    def remove(self, batch: int) -> None:
        """Remove the record of a commit that was refused."""
        self._files.remove(self._path(batch))

    def remove_before(self, batch: int) -> None:
        """Remove the records of earlier batches."""
        for recorded in self._batches():
            if recorded < batch:
                self.remove(recorded)

    def path(self, batch: int) -> str:
        """Return the absolute path or URL of a record, for messages."""
        return f"{self._files.location}/{self._path(batch)}"

    def _batches(self) -> list[int]:
        numbers = map(layout.batch_number, self._files.names(self._folder))
        return [number for number in numbers if number is not None]

    def _path(self, batch: int) -> str:
        return f"{self._folder}/{layout.batch_name(batch)}"

    def _read(self, batch: int) -> Publication:
        try:
            document = json.loads(self._files.read(self._path(batch)))
            if document["version"] != VERSION:
                raise BrokenExportFolder(
                    f"{self.path(batch)} has version {document['version']}; this kctl reads up to {VERSION}"
                )
            publication = _from_json(document, self._partition_by)
            return publication._replace(commit=replace(publication.commit, sort_by=self._sort_by))
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenExportFolder(f"{self.path(batch)} is not the record of a batch: {error}") from error


def is_recorded_name(name: str) -> bool:
    """Return whether a file of this name, or a scratch file for it, would be in a record if it had been published."""
    return _RECORDED_NAME.search(name) is not None


def _to_json(publication: Publication) -> dict[str, Any]:
    commit = publication.commit
    return {
        "version": VERSION,
        "batch": commit.batch,
        "after": publication.after,
        "files": [
            {"path": file.path, "bytes": file.size, "records": file.records, "partition": list(file.partition)}
            for file in commit.files
        ],
        **({"removed": list(commit.removed)} if commit.removed else {}),
        "dead_letters": list(commit.dead_letters),
        "dead_letter_bytes": list(commit.dead_letter_bytes),
        "positions": topics_to_json(commit.topics),
        "properties": dict(commit.properties),
        **({"all_misfits": all_misfits_to_json(commit.misfits)} if commit.misfits else {}),
        "schema": base64.b64encode(commit.schema.serialize().to_pybytes()).decode(),
    }


def _from_json(document: dict[str, Any], partition_by: Partitioning) -> Publication:
    import pyarrow as pa  # noqa: PLC0415 - only to repeat or compare a commit

    commit = TableCommit(
        batch=document["batch"],
        files=[
            WrittenFile(file["path"], file["bytes"], file["records"], tuple(file["partition"]))
            for file in document["files"]
        ],
        partition_by=partition_by,
        topics=topics_from_json(document["positions"]),
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"]))),
        properties=document["properties"],
        dead_letters=document["dead_letters"],
        dead_letter_bytes=document.get("dead_letter_bytes", []),
        removed=document.get("removed", []),
        misfits=all_misfits_from_json(document.get("all_misfits", ())),
    )
    return Publication(document["after"], commit)
