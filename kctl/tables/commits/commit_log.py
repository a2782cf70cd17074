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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kctl.errors import KctlError
from kctl.tables.commits import layout
from kctl.tables.commits.commit_json import (
    COMPACTION,
    OPTIONS,
    READABLE_VERSIONS,
    REPLACEMENT,
    Compaction,
    StateCommit,
    commit_to_json,
    compaction_plan_to_json,
    compaction_to_json,
    plan_from_json,
    plan_to_json,
    positions_from_json,
    sizes_from_json,
    state_commit_to_json,
)
from kctl.tables.commits.inventory import DamagedFile, Inventory
from kctl.tables.commits.layout import LayoutMark, unmarked_files
from kctl.tables.commits.state_files import (
    has_waiting_files,
    publish_state_files,
    published_sizes,
    remove_changes,
    state_directories,
    write_state_files,
)
from kctl.tables.exec.file_task import DEAD_LETTERS, LISTS, changes_path, dead_letters_path
from kctl.tables.exec.outcome import FileOutcome, WrittenFile, all_misfits
from kctl.tables.exec.selection.partitioning import PARTITION_COLUMNS_MAX, without_partitions
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.path_set import NO_PATHS, PathSet, sized
from kctl.tables.plans.plan import Plan, Positions, advance, continues
from kctl.tables.upserts.changed_keys import ChangedKeys, StateOptions


class LostRace(KctlError):
    """Another exporter wrote the same plan or commit first; the run can be repeated."""


class BrokenExportFolder(KctlError):
    """The commit log of the folder is invalid."""


class CommittedFile(NamedTuple):
    """A data file in a commit."""

    batch: int
    size: int | None
    """None for a file of a partition if the commit was written by a version that has only the size of all together."""


class CommitLog:
    """The log of one folder.  Methods that write expect the lock to be held."""

    def __init__(
        self,
        files: Files,
        *,
        mark: str | None = None,
        is_shared: bool = False,
        upsert: StateOptions | None = None,
    ) -> None:
        """`mark` are the options that each export into the folder must have; empty for those that need none.

        None does not compare them.

        `is_shared`: the files of all topics are in one folder.  With `upsert`, tasks write changes, and the files have
        the current state by key.
        """
        self._files = files
        self._mark = mark
        self._is_shared = is_shared
        self._upsert = upsert
        self.changed_keys: dict[str, ChangedKeys] = {}
        self._hidden: set[str] = set()
        """Existing files that a compaction has replaced."""

    def is_new(self) -> bool:
        """Return whether the folder has no plan."""
        return not self._batches(layout.PLANS) and not self._batches(layout.COMMITS)

    def create(self) -> None:
        """Create the folder and the directories of the log."""
        self._files.prepare([layout.PLANS, layout.COMMITS])
        if self._mark:
            LayoutMark(self._files).claim(self._mark)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock during the returned context.  Raises Locked if another exporter has it.

        Abandons a compaction that was interrupted, and publishes the files of a commit that was.
        """
        with self._files.lock():
            self._abandon_compaction()
            if self._upsert:
                self._publish_state()
            yield

    def positions(self) -> Positions:
        """Return the positions of the last commit; empty for a new folder."""
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
        return positions_from_json(document, last)

    def pending(self, positions: Positions) -> Plan | None:
        """Return the plan without a commit, or None.  Raises BrokenExportFolder if plans and commits do not match."""
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
        """Yield all plans of exports, in the order of batches."""
        for batch in sorted(self._batches(layout.PLANS)):
            document = self._read(layout.PLANS, batch)
            if COMPACTION not in document:
                yield plan_from_json(document)

    def committed_ms(self, batch: int) -> int:
        """When a batch was committed."""
        return int(self._read(layout.COMMITS, batch)["committed_ms"])

    def committed_paths(self) -> dict[str, int]:
        """Return all committed data files with their batch, except those that were compacted.  Reads all commits."""
        return {path: file.batch for path, file in self._paths()[0].items()}

    def committed_letters(self, *, after: int = -1) -> dict[str, CommittedFile]:
        """Return all committed files with dead letters of the batches after `after`.  Reads these commits."""
        return {
            letter_file["path"]: CommittedFile(batch, letter_file["bytes"])
            for batch in sorted(self._batches(layout.COMMITS))
            if batch > after
            for letter_file in self._read(layout.COMMITS, batch).get("dead_letters", ())
        }

    def _committed_sizes(self) -> dict[str, int]:
        """Return the sizes of all committed data files; where no commit has it, that of the existing file."""
        return {
            path: (self._files.size(path) or 0) if file.size is None else file.size
            for path, file in self._paths()[0].items()
        }

    def hidden_paths(self) -> set[str]:
        """Return the files that were replaced by a compaction, and those that one has published before its commit."""
        return self._paths()[1]

    def _paths(self) -> tuple[dict[str, CommittedFile], set[str]]:
        files: dict[str, CommittedFile] = {}
        hidden: set[str] = set()
        commits = sorted(self._batches(layout.COMMITS))
        for batch in commits:
            document = self._read(layout.COMMITS, batch)
            for file in document["files"]:
                files |= {path: CommittedFile(batch, size) for path, size in sizes_from_json(file).items()}
            hidden -= files.keys()  # the range of a dropped file may be planned again
            for path in document.get("removed", ()):
                hidden.add(path)
                files.pop(path, None)
        if (pending := self._pending_compaction()) is not None:
            hidden.update(pending.added)
        return files, hidden

    def write_plan(self, plan: Plan) -> None:
        """Write a plan.  Raises LostRace if another exporter has planned this batch."""
        self._put(layout.PLANS, plan.batch, plan_to_json(plan))

    def write_compaction_plan(self, plan: Compaction) -> None:
        """Write the plan of a compaction.  Raises LostRace if another process has planned this batch."""
        self._put(layout.PLANS, plan.batch, compaction_plan_to_json(plan))

    def commit_compaction(
        self, plan: Compaction, files: Sequence[WrittenFile], positions: Positions, *, now_ms: int
    ) -> Positions:
        """Replace the files of the plan.  Without `files` the compaction is abandoned, and nothing is replaced.

        Raises LostRace if the batch was committed or abandoned by another process.
        """
        removed = plan.removed if files else ()
        kept = {path: size for path, size in self._committed_sizes().items() if path not in removed}
        sizes = kept | {file.path: file.size for file in files}
        last = self._read(layout.COMMITS, positions.last_batch)
        after = replace(positions, last_batch=plan.batch, files=NO_PATHS.plus(sizes), sizes=NO_PATHS.plus(sized(sizes)))
        document = compaction_to_json(plan, files, after, now_ms)
        if OPTIONS in last:
            document[OPTIONS] = last[OPTIONS]
        self._put(layout.COMMITS, plan.batch, document)
        return after

    def _pending_compaction(self) -> Compaction | None:
        last = max(self._batches(layout.PLANS), default=-1)
        if last != max(self._batches(layout.COMMITS), default=-1) + 1:
            return None
        document = self._read(layout.PLANS, last).get(COMPACTION)
        return document and Compaction(**document)

    def _abandon_compaction(self) -> None:
        """Commit an interrupted compaction as one without files, then remove its files.

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

    def abandon(self, plan: Plan, positions: Positions, *, now_ms: int, dropped: Collection[str]) -> Positions:
        """See ExportLog: a commit without ranges."""
        return self.write_commit(replace(plan, topics={}, ranges=()), {}, positions, now_ms=now_ms, dropped=dropped)

    def write_commit(
        self,
        plan: Plan,
        outcomes: Mapping[str, FileOutcome],
        positions: Positions,
        *,
        now_ms: int,
        dropped: Collection[str] = (),
    ) -> Positions:
        """Commit a batch.  `outcomes` has one entry per planned path; `positions` are those before the batch.

        Raises LostRace if it has been committed.
        """
        before = NO_PATHS.plus(self.committed_paths()) if positions.files is None else positions.files
        written = {file.path: file.size for outcome in outcomes.values() for file in outcome.written}
        sizes = NO_PATHS.plus(sized(self._committed_sizes())) if positions.sizes is None else positions.sizes
        letters, letter_sizes = positions.dead_letters, positions.dead_letter_sizes
        if letters is None or letter_sizes is None:
            known_letters = {path: file.size or 0 for path, file in self.committed_letters().items()}
            letters, letter_sizes = NO_PATHS.plus(known_letters), NO_PATHS.plus(sized(known_letters))
        refused = {
            letter_file.path: letter_file.size for outcome in outcomes.values() if (letter_file := outcome.dead_letters)
        }
        after = advance(
            positions,
            plan,
            files=before.plus(written),
            sizes=sizes.plus(sized(written)),
            dead_letters=letters.plus(refused),
            dead_letter_sizes=letter_sizes.plus(sized(refused)),
            misfits=all_misfits(positions.misfits, outcomes.values()),
        )
        if self._upsert:
            current = {topic: self.data_files([topic]) for topic in plan.topics}
            state, self.changed_keys = write_state_files(self._files, self._upsert, plan, outcomes, positions, current)
            after_paths, after_sizes = self._path_sets(plan, state, before, sizes)
            after = replace(after, files=after_paths, sizes=after_sizes)
            document = state_commit_to_json(plan, outcomes, state, after, now_ms)
        else:
            document = commit_to_json(plan, outcomes, after, now_ms, dropped)
        if self._mark is not None:
            document[OPTIONS] = self._mark
        self._put(layout.COMMITS, plan.batch, document)
        if self._upsert:
            self._publish_state()
            dropped = [*dropped, *written]
        if self._files.size(layout.SUCCESS) is None:
            self._files.create(layout.SUCCESS, b"")
        for path in dropped:
            self._files.remove(path)
        return after

    def _path_sets(self, plan: Plan, state: StateCommit, paths: PathSet, sizes: PathSet) -> tuple[PathSet, PathSet]:
        """Return the summary of all files after a commit; `paths` and `sizes` are those before."""
        replaced = {*state.removed, *(file.path for file in state.files)}
        gone = {path: size for path, size in self.data_files(plan.topics).items() if path in replaced}
        new = {file.path: file.size for file in state.files}
        return paths.minus(gone).plus(new), sizes.minus(sized(gone)).plus(sized(new))

    def _last_state(self) -> dict[str, Any]:
        """Return the last commit if its files replace others; else nothing."""
        last = max(self._batches(layout.COMMITS), default=None)
        document = {} if last is None else self._read(layout.COMMITS, last)
        return document if REPLACEMENT in document else {}

    def _publish_state(self) -> None:
        last_batch = max(self._batches(layout.COMMITS), default=-1)
        publish_state_files(self._files, self._last_state(), last_batch)

    def _remove_changes(self) -> None:
        """Remove the changes of committed batches; those of a plan without a commit are used again."""
        if max(self._batches(layout.PLANS), default=-1) <= max(self._batches(layout.COMMITS), default=-1):
            remove_changes(self._files)

    def inventory(self, positions: Positions, pending: Plan | None, topics: Collection[str]) -> Inventory:
        """Compare the folders of `topics` and of all exported topics with the commits.

        The last commit has a summary of all files; the other commits are read only if it does not match.
        """
        planned = pending.shares() if pending else {}
        existing = self.data_files({*topics, *positions.topics})
        if has_waiting_files(self._files):
            existing = published_sizes(self._files, existing, self._last_state())
        if positions.last_batch < 0 and not pending:
            unknown = unmarked_files(self._files, self.topic_directories(topics))
            return Inventory(unknown=tuple(unknown), may_adopt=not self._mark and set(unknown) <= existing.keys())
        present = {path: size for path, size in existing.items() if without_partitions(path) not in planned}
        letters = self._letters_inventory(positions, planned)
        are_whole = positions.sizes is None or NO_PATHS.plus(sized(present)) == positions.sizes
        if are_whole and NO_PATHS.plus(present) == positions.files:
            return letters
        committed, hidden = self._paths()
        missing = sorted((path, file.batch) for path, file in committed.items() if path not in present)
        # A backup may have files that were compacted, and lack those that replaced them.
        self._hidden = set() if missing else hidden.intersection(present)
        self._hidden |= {path for path in hidden if path.startswith(f"{DEAD_LETTERS}/")}
        return Inventory(
            missing=(*missing, *letters.missing),
            unknown=tuple(sorted(present.keys() - committed - hidden)),
            may_adopt=not self._mark,
            damaged=(*_damaged(committed, present), *letters.damaged),
        )

    def _letters_inventory(self, positions: Positions, planned: Collection[str]) -> Inventory:
        """Return the committed files with dead letters that do not exist or have another size."""
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
        """Return the plan itself, whose paths are those of this log unless all topics share a folder."""
        if self._upsert:
            return plan.with_paths(lambda _, path: changes_path(path))
        return plan.with_paths(lambda _, path: layout.shared_path(path)) if self._is_shared else plan

    def commits_of(self, plan: Plan) -> list[Plan]:
        """Return the plan itself: the next run completes it as it is."""
        return [plan]

    def remove_unfinished(self, topics: Collection[str]) -> None:
        """Delete temporary files of interrupted tasks and exporters, and compacted files of the last inventory."""
        for path in self._hidden:
            self._files.remove(path)
        self._hidden = set()
        log = ("", layout.LOG_DIRECTORY, layout.PLANS, layout.COMMITS, layout.PROGRESS)
        directories = self.topic_directories(topics)
        lists = [f"{LISTS}/{directory}" for directory in directories]
        letters = [dead_letters_path(directory) for directory in directories]
        data = [path for directory in directories for path, _ in self._walk(directory)]
        if self._upsert:
            data += state_directories(self._files)
            self._remove_changes()
        self._files.remove_scratch([*log, *lists, *data, *letters])

    def data_files(self, topics: Collection[str]) -> dict[str, int]:
        """Return the sizes of all existing data files of the topics, by path."""
        return {
            path: size
            for directory in self.topic_directories(topics)
            for path, size in self._files.sizes(directory).items()
            if _is_data_file_in(directory, path)
        }

    def topic_directories(self, topics: Collection[str]) -> list[str]:
        """Return the folders with files of the topics."""
        names = self._files.names("")
        if self._is_shared:
            return [layout.SHARED_DIRECTORY] if layout.SHARED_DIRECTORY in names else []
        return [directory for topic in sorted(topics) for directory in layout.topic_directories(topic, names)]

    def _walk(self, directory: str, depth: int = 0) -> Iterator[tuple[str, list[str]]]:
        """Yield the directory and those of its partitions, with the names in them."""
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
    """Return the files that do not have the size with which they were committed."""
    return tuple(
        DamagedFile(path, file.batch, file.size, present[path])
        for path, file in sorted(committed.items())
        if file.size is not None and present.get(path, file.size) != file.size
    )


def _is_data_file_in(directory: str, path: str) -> bool:
    """Return whether this is a data file in the directory or the directories of its partitions."""
    *partitions, name = path.removeprefix(f"{directory}/").split("/")
    are_partitions = len(partitions) <= PARTITION_COLUMNS_MAX and all(
        "=" in directory_name for directory_name in partitions
    )
    return are_partitions and layout.is_data_file(name)
