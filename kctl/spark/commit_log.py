"""The plans and commits of an export folder, which make exports incremental and exactly once.

Batch n is a file in `plans`, written before the first task starts, and a file in `commits`, written when all its data
files are on disk.  Both appear in one step (see exec.files), once.  So a folder is in one of two states:

    settled   the last commit is n, there is no plan n + 1: the next run plans batch n + 1
    pending   there is a plan n + 1 without a commit: a run was interrupted.  The next run executes that plan
              unchanged, and reuses the files that were finished

A commit contains the positions of all partitions and a summary of all data files, so reading the last one is enough.
The lock avoids duplicate work; correctness does not depend on it (object stores have none, network file systems may
ignore it): of two exporters that write the same plan or commit one succeeds and the other gets LostRace, without
damage, because files of one plan have equal contents.

Owner: the process that runs the export.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.spark import layout
from kctl.spark.exec.column_types import VARIANT, columns_from_json, columns_to_json, type_from_json, type_to_json
from kctl.spark.exec.file_list import LISTS
from kctl.spark.exec.file_task import DEAD_LETTERS, dead_letters_path
from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import FileOutcome, PartOutcome, WrittenFile
from kctl.spark.exec.partitioning import PARTITION_COLUMNS_MAX, without_partitions
from kctl.spark.inventory import DamagedFile, Inventory
from kctl.spark.layout_mark import LayoutMark
from kctl.spark.path_set import NO_PATHS, PathSet, sized
from kctl.spark.plan import (
    Compression,
    FileOptions,
    FileRange,
    HeldColumns,
    Isolation,
    PartitionRange,
    Plan,
    PlannedTopic,
    Positions,
    advance,
    continues,
)
from kctl.spark.position_json import topics_from_json, topics_to_json
from kctl.spark.unmarked import unmarked_files

FORMAT_VERSION = 3
"""Version of entries of exports with decoded keys or values.  Others have UNTYPED_VERSION, which earlier kctl can read.

Version 1 had one range per file, all incarnations in one folder, and no summary of files.
"""
UNTYPED_VERSION = 2
COMPACTION_VERSION = 4
"""Of compactions, which earlier kctl cannot read."""
VARIANT_VERSION = 5
"""Of exports with variants, which earlier kctl does not know."""
READABLE_VERSIONS = (1, UNTYPED_VERSION, FORMAT_VERSION, COMPACTION_VERSION, VARIANT_VERSION)


_NO_LETTERS = {"size": 0, "digest": "0"}
"""Dead letters of a commit that does not say, and has no decoded values."""
OPTIONS = "options"
"""The member of a commit with the options of LayoutMark, in case that file is lost; earlier commits lack it."""
COMPACTION = "compaction"
"""The member of a plan that replaces files."""


class LostRace(KctlError):
    """Another exporter wrote the same plan or commit first; the run can be repeated."""


class BrokenExportFolder(KctlError):
    """The commit log of the folder is invalid."""


class CommittedFile(NamedTuple):
    """A data file in a commit."""

    batch: int
    size: int | None
    """None for a file of a partition if the commit was written by a version that has only the size of all together."""


class Compaction(NamedTuple):
    """The plan of a batch that replaces files by others with the same records; see kctl.spark.compaction.folder."""

    batch: int
    created_ms: int
    id: str
    """Unique, so that of two compactions at once one is refused."""
    added: tuple[str, ...]
    removed: tuple[str, ...]


class CommitLog:
    """The log of one folder.  Methods that write expect the lock to be held."""

    def __init__(self, files: Files, *, mark: str | None = None, is_shared: bool = False) -> None:
        """`mark` are the options that each export into the folder must have; empty for those that need none.

        None does not compare them.

        `is_shared`: the files of all topics are in one folder.
        """
        self._files = files
        self._mark = mark
        self._is_shared = is_shared
        self._hidden: set[str] = set()
        """Existing files that a compaction has replaced."""

    def is_new(self) -> bool:
        """Whether the folder has no plan."""
        return not self._batches(layout.PLANS) and not self._batches(layout.COMMITS)

    def create(self) -> None:
        """Creates the folder and the directories of the log."""
        self._files.prepare([layout.PLANS, layout.COMMITS])
        if self._mark:
            LayoutMark(self._files).claim(self._mark)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the lock during the returned context.  Raises Locked if another exporter has it.

        Abandons a compaction that was interrupted.
        """
        with self._files.lock():
            self._abandon_compaction()
            yield

    def positions(self) -> Positions:
        """Positions of the last commit; empty for a new folder."""
        last = max(self._batches(layout.COMMITS), default=None)
        if last is None:
            return Positions()
        document = self._read(layout.COMMITS, last)
        options = document.get(OPTIONS, self._mark)
        if self._mark is not None and options != self._mark:
            mark = f"{self._files.location}/{layout.TABLE_MARK}"
            remedy = f"restore it, with the contents {options}" if options else "remove it"
            raise BrokenExportFolder(
                f"{mark} is not that of this export, which has commits with other options: {remedy}"
            )
        return _positions_from_json(document, last)

    def pending(self, positions: Positions) -> Plan | None:
        """The plan without a commit, or None.  Raises BrokenExportFolder if plans and commits do not match."""
        last = max(self._batches(layout.PLANS), default=-1)
        if last > positions.last_batch + 1:
            name = f"{self._files.location}/{layout.COMMITS}/{layout.batch_name(positions.last_batch + 1)}"
            raise BrokenExportFolder(
                f"{name} is missing: plans up to batch {last} exist; restore it or use a new folder"
            )
        document = self._read(layout.PLANS, last) if last == positions.last_batch + 1 else {COMPACTION: None}
        if COMPACTION in document:
            return None
        plan = plan_from_json(document)
        if not continues(positions, plan):
            raise BrokenExportFolder(
                f"{self._files.location}/{layout.PLANS}/{layout.batch_name(last)} does not continue at the offsets of "
                "the last commit, so one of them is not of this export: restore the right one"
            )
        return plan

    def plans(self) -> Iterator[Plan]:
        """All plans of exports, in the order of batches."""
        for batch in sorted(self._batches(layout.PLANS)):
            document = self._read(layout.PLANS, batch)
            if COMPACTION not in document:
                yield plan_from_json(document)

    def committed_ms(self, batch: int) -> int:
        """When a batch was committed."""
        return int(self._read(layout.COMMITS, batch)["committed_ms"])

    def committed_paths(self) -> dict[str, int]:
        """All committed data files with their batch, except those that were compacted.  Reads all commits."""
        return {path: file.batch for path, file in self._paths()[0].items()}

    def committed_letters(self) -> dict[str, CommittedFile]:
        """All committed files with dead letters.  Reads all commits."""
        return {
            one["path"]: CommittedFile(batch, one["bytes"])
            for batch in sorted(self._batches(layout.COMMITS))
            for one in self._read(layout.COMMITS, batch).get("dead_letters", ())
        }

    def _committed_sizes(self) -> dict[str, int]:
        """The sizes of all committed data files; where no commit has it, that of the existing file."""
        return {
            path: (self._files.size(path) or 0) if file.size is None else file.size
            for path, file in self._paths()[0].items()
        }

    def hidden_paths(self) -> set[str]:
        """Files that were replaced by a compaction, and those that one has published before its commit."""
        return self._paths()[1]

    def _paths(self) -> tuple[dict[str, CommittedFile], set[str]]:
        found: dict[str, CommittedFile] = {}
        hidden: set[str] = set()
        commits = sorted(self._batches(layout.COMMITS))
        for batch in commits:
            document = self._read(layout.COMMITS, batch)
            for file in document["files"]:
                found |= {path: CommittedFile(batch, size) for path, size in _sizes_from_json(file).items()}
            for path in document.get("removed", ()):
                hidden.add(path)
                found.pop(path, None)
        if (pending := self._pending_compaction()) is not None:
            hidden.update(pending.added)
        return found, hidden

    def write_plan(self, plan: Plan) -> None:
        """Writes a plan.  Raises LostRace if another exporter has planned this batch."""
        self._put(layout.PLANS, plan.batch, plan_to_json(plan))

    def write_compaction_plan(self, plan: Compaction) -> None:
        """Writes the plan of a compaction.  Raises LostRace if another process has planned this batch."""
        document = {"version": COMPACTION_VERSION, "batch": plan.batch, COMPACTION: plan._asdict()}
        self._put(layout.PLANS, plan.batch, document)

    def commit_compaction(
        self, plan: Compaction, files: Sequence[WrittenFile], positions: Positions, *, now_ms: int
    ) -> Positions:
        """Replaces the files of the plan.  Without `files` the compaction is abandoned, and nothing is replaced.

        Raises LostRace if the batch was committed or abandoned by another process.
        """
        removed = plan.removed if files else ()
        kept = {path: size for path, size in self._committed_sizes().items() if path not in removed}
        sizes = kept | {file.path: file.size for file in files}
        last = self._read(layout.COMMITS, positions.last_batch)
        after = replace(positions, last_batch=plan.batch, files=NO_PATHS.plus(sizes), sizes=NO_PATHS.plus(sized(sizes)))
        document = {
            "version": VARIANT_VERSION if _has_variants(after) else COMPACTION_VERSION,
            "batch": plan.batch,
            "committed_ms": now_ms,
            "files": [{"path": file.path, "records": file.records, "bytes": file.size} for file in files],
            "removed": list(removed),
            **({OPTIONS: last[OPTIONS]} if OPTIONS in last else {}),
            **_after_to_json(after),
            "columns": _held_to_json(after),
            "all_dead_letters": _path_set_to_json(after.dead_letters),
            "all_dead_letter_sizes": _path_set_to_json(after.dead_letter_sizes),
        }
        self._put(layout.COMMITS, plan.batch, document)
        return after

    def _pending_compaction(self) -> Compaction | None:
        last = max(self._batches(layout.PLANS), default=-1)
        if last != max(self._batches(layout.COMMITS), default=-1) + 1:
            return None
        document = self._read(layout.PLANS, last).get(COMPACTION)
        return document and Compaction(**document)

    def _abandon_compaction(self) -> None:
        """Commits an interrupted compaction as one without files, then removes its files.

        Raises BrokenExportFolder if it was not interrupted, but its commit was lost: then files that it replaced are
        gone, and the records are in its own.
        """
        if (plan := self._pending_compaction()) is not None:
            gone = [path for path in plan.removed if self._files.size(path) is None]
            if gone:
                raise BrokenExportFolder(
                    f"{self._files.location}/{layout.COMMITS}/{layout.batch_name(plan.batch)} is missing, by which a "
                    f"compaction replaced {gone[0]}: restore it"
                )
            self.commit_compaction(plan, [], self.positions(), now_ms=plan.created_ms)
            for path in plan.added:
                self._files.remove(path)

    def write_commit(
        self, plan: Plan, outcomes: Mapping[str, FileOutcome], positions: Positions, *, now_ms: int
    ) -> Positions:
        """Commits a batch.  `outcomes` has one entry per planned path; `positions` are those before the batch.

        Raises LostRace if it has been committed.
        """
        before = NO_PATHS.plus(self.committed_paths()) if positions.files is None else positions.files
        written = {file.path: file.size for outcome in outcomes.values() for file in outcome.written}
        sizes = NO_PATHS.plus(sized(self._committed_sizes())) if positions.sizes is None else positions.sizes
        letters, letter_sizes = positions.dead_letters, positions.dead_letter_sizes
        if letters is None or letter_sizes is None:
            found = {path: file.size or 0 for path, file in self.committed_letters().items()}
            letters, letter_sizes = NO_PATHS.plus(found), NO_PATHS.plus(sized(found))
        refused = {one.path: one.size for outcome in outcomes.values() if (one := outcome.dead_letters)}
        after = advance(
            positions,
            plan,
            files=before.plus(written),
            sizes=sizes.plus(sized(written)),
            dead_letters=letters.plus(refused),
            dead_letter_sizes=letter_sizes.plus(sized(refused)),
        )
        document = _commit_to_json(plan, outcomes, after, now_ms)
        if self._mark is not None:
            document[OPTIONS] = self._mark
        self._put(layout.COMMITS, plan.batch, document)
        if self._files.size(layout.SUCCESS) is None:
            self._files.create(layout.SUCCESS, b"")
        return after

    def inventory(self, positions: Positions, pending: Plan | None, topics: Collection[str]) -> Inventory:
        """Compares the folders of `topics` and of all exported topics with the commits.

        The last commit has a summary of all files; the other commits are read only if it does not match.
        """
        planned = pending.shares() if pending else {}
        found = self.data_files({*topics, *positions.topics})
        if positions.last_batch < 0 and not pending:
            unknown = unmarked_files(self._files, self.topic_directories(topics))
            return Inventory(unknown=tuple(unknown), may_adopt=not self._mark and set(unknown) <= found.keys())
        present = {path: size for path, size in found.items() if without_partitions(path) not in planned}
        letters = self._letters_inventory(positions, planned)
        are_whole = positions.sizes is None or NO_PATHS.plus(sized(present)) == positions.sizes
        if are_whole and NO_PATHS.plus(present) == positions.files:
            return letters
        committed, hidden = self._paths()
        missing = sorted((path, file.batch) for path, file in committed.items() if path not in present)
        # A backup may have files that were compacted, and lack those that replaced them.
        self._hidden = set() if missing else hidden.intersection(present)
        return Inventory(
            missing=(*missing, *letters.missing),
            unknown=tuple(sorted(present.keys() - committed - hidden)),
            may_adopt=not self._mark,
            damaged=(*_damaged(committed, present), *letters.damaged),
        )

    def _letters_inventory(self, positions: Positions, planned: Collection[str]) -> Inventory:
        """Committed files with dead letters that do not exist or have another size."""
        if positions.dead_letters == NO_PATHS:
            return Inventory()
        unfinished = set(map(dead_letters_path, planned))
        present = {
            path: size
            for path, size in self._files.sizes(DEAD_LETTERS).items()
            if layout.is_data_file(path.rpartition("/")[2]) and path not in unfinished
        }
        are_whole = positions.dead_letter_sizes in {None, NO_PATHS.plus(sized(present))}
        if are_whole and NO_PATHS.plus(present) == positions.dead_letters:
            return Inventory()
        committed = self.committed_letters()
        missing = sorted((path, file.batch) for path, file in committed.items() if path not in present)
        return Inventory(missing=tuple(missing), damaged=_damaged(committed, present))

    def placed(self, plan: Plan) -> Plan:
        """The plan itself, whose paths are those of this log unless all topics share a folder."""
        return plan.with_paths(lambda _, path: layout.shared_path(path)) if self._is_shared else plan

    def commits_of(self, plan: Plan) -> list[Plan]:
        """The plan itself: the next run completes it as it is."""
        return [plan]

    def remove_unfinished(self, topics: Collection[str]) -> None:
        """Deletes temporary files of interrupted tasks and exporters, and compacted files of the last inventory."""
        for path in self._hidden:
            self._files.remove(path)
        self._hidden = set()
        log = ("", layout.LOG_DIRECTORY, layout.PLANS, layout.COMMITS, layout.PROGRESS)
        directories = self.topic_directories(topics)
        lists = [f"{LISTS}/{directory}" for directory in directories]
        letters = [dead_letters_path(directory) for directory in directories]
        data = [path for directory in directories for path, _ in self._walk(directory)]
        self._files.remove_scratch([*log, *lists, *data, *letters])

    def data_files(self, topics: Collection[str]) -> dict[str, int]:
        """The sizes of all existing data files of the topics, by path."""
        return {
            path: size
            for directory in self.topic_directories(topics)
            for path, size in self._files.sizes(directory).items()
            if _is_data_file_in(directory, path)
        }

    def topic_directories(self, topics: Collection[str]) -> list[str]:
        """The folders with files of the topics."""
        names = self._files.names("")
        if self._is_shared:
            return [layout.SHARED_DIRECTORY] if layout.SHARED_DIRECTORY in names else []
        return [directory for topic in sorted(topics) for directory in layout.topic_directories(topic, names)]

    def _walk(self, directory: str, depth: int = 0) -> Iterator[tuple[str, list[str]]]:
        """The directory and those of its partitions, with the names in them."""
        names = self._files.names(directory)
        yield directory, names
        for name in names:
            if "=" in name and depth < PARTITION_COLUMNS_MAX:
                yield from self._walk(f"{directory}/{name}", depth + 1)

    def _batches(self, kind: str) -> list[int]:
        numbers = map(layout.batch_number, self._files.names(kind))
        return [number for number in numbers if number is not None]

    def _read(self, kind: str, batch: int) -> dict[str, Any]:
        path = f"{kind}/{layout.batch_name(batch)}"
        try:
            document = json.loads(self._files.read(path))
            version = document["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenExportFolder(f"{self._files.location}/{path} is not a log entry: {error}") from error
        if version not in READABLE_VERSIONS:
            raise BrokenExportFolder(
                f"{self._files.location}/{path} has version {version}; this kctl reads up to {max(READABLE_VERSIONS)}"
            )
        return dict(document)

    def _put(self, kind: str, batch: int, document: dict[str, Any]) -> None:
        path = f"{kind}/{layout.batch_name(batch)}"
        data = json.dumps(document, indent=1).encode() + b"\n"
        # A store repeats a request whose answer was lost, and then finds the object that it has created itself.
        if not self._files.create(path, data) and self._files.read(path) != data:
            raise LostRace(f"{self._files.location}/{path} was written by another export at the same time")


def _damaged(committed: Mapping[str, CommittedFile], present: Mapping[str, int]) -> tuple[DamagedFile, ...]:
    """Files that do not have the size with which they were committed."""
    return tuple(
        DamagedFile(path, file.batch, file.size, present[path])
        for path, file in sorted(committed.items())
        if file.size is not None and present.get(path, file.size) != file.size
    )


def _is_data_file_in(directory: str, path: str) -> bool:
    """Whether this is a data file in the directory or the directories of its partitions."""
    *partitions, name = path.removeprefix(f"{directory}/").split("/")
    are_partitions = len(partitions) <= PARTITION_COLUMNS_MAX and all("=" in one for one in partitions)
    return are_partitions and layout.is_data_file(name)


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as it is written to `plans` and shown by --dry-run."""
    return {
        "version": VARIANT_VERSION if plan.has_variants else FORMAT_VERSION if plan.is_typed else UNTYPED_VERSION,
        "batch": plan.batch,
        "created_ms": plan.created_ms,
        "cluster_id": plan.cluster_id,
        "include_headers": plan.options.include_headers,
        "compression": plan.options.compression,
        "isolation": plan.options.isolation,
        "topics": {
            topic: {
                "topic_id": str(planned.topic_id),
                "incarnation": planned.incarnation,
                **columns_to_json(planned.columns),
            }
            for topic, planned in plan.topics.items()
        },
        "ranges": [
            {
                "topic": range_.tp.topic,
                "partition": range_.tp.partition,
                "start": range_.start,
                "end": range_.end,
                "incarnation": range_.incarnation,
                "lost": range_.lost,
                "files": [{"start": file.start, "end": file.end, "path": file.path} for file in range_.files],
            }
            for range_ in plan.ranges
        ],
    }


def plan_from_json(document: Mapping[str, Any]) -> Plan:
    """The inverse of `plan_to_json`."""
    return Plan(
        batch=document["batch"],
        created_ms=document["created_ms"],
        cluster_id=document["cluster_id"],
        options=FileOptions(
            include_headers=document["include_headers"],
            compression=Compression(document["compression"]),
            isolation=Isolation(document["isolation"]),
        ),
        topics={
            topic: PlannedTopic(UUID(planned["topic_id"]), planned["incarnation"], columns_from_json(planned))
            for topic, planned in document["topics"].items()
        },
        ranges=tuple(_range_from_json(range_) for range_ in document["ranges"]),
    )


def _range_from_json(document: Mapping[str, Any]) -> PartitionRange:
    return PartitionRange(
        TopicPartition(document["topic"], document["partition"]),
        document["start"],
        document["end"],
        document["incarnation"],
        tuple(FileRange(file["start"], file["end"], file["path"]) for file in document["files"]),
        document["lost"],
    )


def _commit_to_json(plan: Plan, outcomes: Mapping[str, FileOutcome], after: Positions, now_ms: int) -> dict[str, Any]:
    letters = [outcome.dead_letters for outcome in outcomes.values() if outcome.dead_letters is not None]
    is_typed = plan.is_typed or any(one != HeldColumns() for one in after.columns.values())
    return {
        "version": VARIANT_VERSION if _has_variants(after) else FORMAT_VERSION if is_typed else UNTYPED_VERSION,
        "batch": plan.batch,
        "committed_ms": now_ms,
        "files": [
            _file_to_json(path, shares, outcomes[path]) for path, shares in plan.shares().items() if outcomes[path].path
        ],
        "lost": _lost_to_json(plan, outcomes),
        **({"filtered": filtered} if (filtered := _filtered_to_json(plan, outcomes)) else {}),
        **_after_to_json(after),
        **({"columns": _held_to_json(after)} if is_typed else {}),
        **(_letters_of(after, letters) if is_typed or after.dead_letters != NO_PATHS else {}),
    }


def _after_to_json(after: Positions) -> dict[str, Any]:
    return {
        "include_headers": after.include_headers,
        "all_files": _path_set_to_json(after.files),
        "all_sizes": _path_set_to_json(after.sizes),
        "positions": topics_to_json(after.topics),
    }


def _has_variants(after: Positions) -> bool:
    return any(VARIANT in held for held in after.columns.values())


def _held_to_json(after: Positions) -> dict[str, Any]:
    return {
        topic: {"key": type_to_json(held.key), "value": type_to_json(held.value)}
        for topic, held in after.columns.items()
    }


def _letters_of(after: Positions, letters: Iterable[WrittenFile]) -> dict[str, Any]:
    return {
        "dead_letters": list(map(_letters_to_json, letters)),
        "all_dead_letters": _path_set_to_json(after.dead_letters),
        "all_dead_letter_sizes": _path_set_to_json(after.dead_letter_sizes),
    }


def _letters_to_json(file: WrittenFile) -> dict[str, Any]:
    return {"path": file.path, "records": file.records, "bytes": file.size}


def _file_to_json(
    path: str, shares: Sequence[tuple[PartitionRange, FileRange]], outcome: FileOutcome
) -> dict[str, Any]:
    paths = [file.path for file in outcome.written]
    sizes = [file.size for file in outcome.written]
    return {
        "path": path,
        **({"paths": paths, "sizes": sizes} if paths != [path] else {}),
        "records": outcome.records,
        "bytes": outcome.bytes_out,
        "ranges": [
            {
                "topic": range_.tp.topic,
                "partition": range_.tp.partition,
                "start": file.start,
                "end": file.end,
                "records": part.records,
            }
            for (range_, file), part in zip(shares, outcome.parts, strict=True)
        ],
    }


def _sizes_from_json(document: Mapping[str, Any]) -> dict[str, int | None]:
    """The sizes of the data files of a task by path; None where the commit has only that of all together."""
    if "paths" not in document:
        return {document["path"]: document["bytes"]}
    paths = document["paths"]
    return dict(zip(paths, document.get("sizes", [None] * len(paths)), strict=True))


def _lost_to_json(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> dict[str, int]:
    lost: dict[str, int] = {}
    for range_, parts in parts_of(plan, outcomes):
        count = range_.lost + sum(part.lost for part in parts)
        if count:
            lost[str(range_.tp)] = lost.get(str(range_.tp), 0) + count
    return lost


def _filtered_to_json(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> dict[str, int]:
    filtered: Counter[str] = Counter()
    for range_, parts in parts_of(plan, outcomes):
        filtered[str(range_.tp)] += sum(part.filtered for part in parts)
    return dict(+filtered)


def parts_of(plan: Plan, outcomes: Mapping[str, FileOutcome]) -> list[tuple[PartitionRange, list[PartOutcome]]]:
    """Results of every range, one part per file.  `outcomes` has an entry for every planned path."""
    parts = {
        (file.path, range_.tp, file.start): part
        for path, shares in plan.shares().items()
        for (range_, file), part in zip(shares, outcomes[path].parts, strict=True)
    }
    return [(range_, [parts[file.path, range_.tp, file.start] for file in range_.files]) for range_ in plan.ranges]


def _path_set_to_json(paths: PathSet | None) -> dict[str, Any] | None:
    return None if paths is None else {"size": paths.size, "digest": f"{paths.digest:032x}"}


def _path_set_from_json(document: Mapping[str, Any] | None) -> PathSet | None:
    return None if document is None else PathSet(document["size"], int(document["digest"], 16))


def _positions_from_json(document: Mapping[str, Any], batch: int) -> Positions:
    held = document.get("columns")
    columns = (
        {topic: HeldColumns() for topic in document["positions"]}
        if held is None
        else {
            topic: HeldColumns(type_from_json(one["key"]), type_from_json(one["value"])) for topic, one in held.items()
        }
    )
    letters = _path_set_from_json(document.get("all_dead_letters", _NO_LETTERS if held is None else None))
    return Positions(
        last_batch=batch,
        topics=topics_from_json(document["positions"]),
        include_headers=document["include_headers"],
        files=_path_set_from_json(document.get("all_files")),
        sizes=_path_set_from_json(document.get("all_sizes")),
        dead_letters=letters,
        dead_letter_sizes=letters
        if letters == NO_PATHS
        else _path_set_from_json(document.get("all_dead_letter_sizes")),
        columns=columns,
    )
