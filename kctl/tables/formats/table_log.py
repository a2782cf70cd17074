"""The log of an export into tables: offsets, topic ids and batch number are in the commits of the tables themselves.

There are no plans: a run that was interrupted before its commit has changed no table, and the next one plans again.
Files are in a folder with the number of the batch, and their names are functions of their offsets and columns, so the
next run reuses those it plans as well.  The others of the folder are deleted after the commit.

A commit is based on the state that was read before planning.  If another exporter has committed since, it fails.  So
files with the number of a committed batch (or a lower one) that the commit does not name will never be published,
and may be deleted while other exporters run.

Each commit is recorded before it is made (kctl.tables.formats.publications).  So a commit that was interrupted or lost
is repeated by the next run, and a table whose metadata is older than its record is refused.  A file is deleted only if
it was certainly never published.

The tables of several topics are committed one after the other; each contains only its own topics' positions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from kctl.tables.commits import layout
from kctl.tables.commits.commit_json import misfits_to_json, parts_of, unreadable_to_json
from kctl.tables.commits.commit_log import BrokenExportFolder, LostRace
from kctl.tables.commits.inventory import DamagedFile, Inventory
from kctl.tables.commits.layout import LayoutMark, unmarked_files
from kctl.tables.exec.file_task import CHANGES, changes_path, dead_letters_path
from kctl.tables.exec.outcome import FileOutcome, Misfit, all_misfits
from kctl.tables.exec.schema.column_types import Columns, columns_to_json, leaves
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.publications import Publication, Publications, is_recorded_name
from kctl.tables.formats.table import (
    LOST,
    Conflict,
    Table,
    TableCommit,
    TableFailed,
    TableState,
    has_exactly_its_files,
    lost_files,
)
from kctl.tables.plans.plan import FileOptions, HeldColumns, Plan, Positions, TopicPosition, advance
from kctl.tables.upserts.changed_keys import ChangedKeys, StateOptions

COMMIT_ATTEMPTS = 10
"""Other programs may commit to a table at the same time, for example to compact it."""
MISFITS = "kctl.misfits"
UNREADABLE = "kctl.unreadable"
"""The property of a commit with the offsets that were left out because their batches are corrupt, as JSON."""
UNREADABLE_LISTED_MAX = 100
CLEANED_FOLDERS_MAX = 10
"""Batches of other tables of the target are numbered together, so those without this table are skipped."""


class TableLog:
    """The tables of one target: one per topic, or one for all."""

    def __init__(
        self,
        files: Files,
        open_table: Callable[[str], Table],
        topics: Collection[str],
        *,
        mark: str,
        is_shared: bool,
        partition_by: Partitioning,
        select: Sequence[str] = (),
        columns: ColumnLayout = PLAIN_LAYOUT,
        headers: HeaderForm = HEADER_LIST,
        upsert: StateOptions | None = None,
    ) -> None:
        """`open_table` returns the table in a directory of the target; "" is the target itself.

        `mark` are the options that each export into the target must have.  With `upsert`, tasks write changes, and the
        tables have the current state by key.
        """
        self._files = files
        self._topics = sorted(topics)
        self._is_shared = is_shared
        self._mark = mark
        self._partition_by = partition_by
        self._select = select
        self._layout = columns
        self._headers = headers
        self._upsert = upsert
        self.changed_keys: dict[str, ChangedKeys] = {}
        directories = {"" if is_shared else layout.topic_directory(topic) for topic in topics}
        self._open_table = open_table
        self._tables = {directory: open_table(directory) for directory in sorted(directories)}
        self._publications = {
            directory: Publications(files, directory, partition_by, columns.sort_by) for directory in self._tables
        }
        self._states: dict[str, TableState] = {}
        """The states of the tables that exist, as read last."""
        self._interrupted: dict[str, Publication] = {}
        """Commits that an interrupted run recorded, and perhaps did not make."""
        self._recorded: dict[str, TableCommit] = {}
        """The last recorded commits."""
        self._refused: dict[str, list[int]] = {}
        """Batches that were recorded, and whose commit was refused."""
        self._settled: dict[str, set[str]] = {}
        """The files of the last batch of tables that no other program has changed since."""

    def is_new(self) -> bool:
        """Return whether none of the tables has a batch."""
        return self.positions().last_batch < 0

    def create(self) -> None:
        """Mark the target as one of tables."""
        self._files.prepare([layout.LOG_DIRECTORY])
        LayoutMark(self._files).claim(self._mark)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """See ExportLog.  Repeats the commits of an interrupted run."""
        with self._files.lock():
            if self._interrupted:
                self.positions()  # another exporter may have repeated them
            for directory, publication in self._interrupted.items():
                self._publish(directory, publication)
            self._interrupted = {}
            yield

    def positions(self) -> Positions:
        """Return the positions of all tables after the commits of an interrupted run; the batch is the highest of them.

        Raises BrokenExportFolder for tables that are not as their last export left them.
        """
        self._states = {}
        self._interrupted = {}
        self._settled = {}
        self._recorded = {}
        self._refused = {}
        misfits: dict[str, tuple[Misfit, ...]] = {}
        is_marked = bool(LayoutMark(self._files).held())
        for directory, table in self._tables.items():
            state = table.state()
            publication = self._last_record(directory, state)
            # The record remains if the catalogue is lost together with the options, because both are in one folder.
            if not is_marked and (state is not None or publication is not None):
                raise BrokenExportFolder(
                    f"{self._files.location}/{layout.TABLE_MARK} is missing, beside the table {self._name(directory)}: "
                    f"restore it, or write the options of its exports into it, for example: {self._mark}"
                )
            if publication is not None:
                state = self._after(directory, state, publication)
                self._recorded[directory] = publication.commit
                if self._layout.has_names:
                    self._check_comments(directory, state, publication.commit)
                misfits |= publication.commit.misfits
            if state is not None:
                self._states[directory] = state
        topics: dict[str, TopicPosition] = {}
        for state in self._states.values():
            topics |= state.topics
        has_headers = any("headers" in state.columns for state in self._states.values())
        return Positions(
            last_batch=max((state.batch for state in self._states.values()), default=-1),
            topics=topics,
            # A column may be added to a table, but not left out.
            include_headers=True if has_headers else None,
            files=None,
            columns={
                topic: state.held for topic in self._topics if (state := self._states.get(self._directory(topic)))
            },
            misfits=misfits,
        )

    def _check_comments(self, directory: str, state: TableState, commit: TableCommit) -> None:
        """Raise BrokenExportFolder if columns do not say any more which fields they are, see ColumnLayout."""
        held, recorded = state.held, _state_of(commit).held
        lost = {path for path, _ in leaves(recorded.key, "key") + leaves(recorded.value, "value")}
        lost -= {path for path, _ in leaves(held.key, "key") + leaves(held.value, "value")}
        if lost:
            path = min(lost)
            raise BrokenExportFolder(
                f"no column of the table {self._name(directory)} is {path}: its comment was 'kctl: {path}', by which "
                "the export finds it; restore the comment"
            )

    def _last_record(self, directory: str, state: TableState | None) -> Publication | None:
        """Return the last recorded commit, except for those that were refused.

        If a table is between the batch that a commit was based on and the batch of that commit, another exporter has
        committed first.  The record of that exporter shows that the table is not an older one.
        """
        refused: list[int] = []
        newest: Publication | None = None
        for publication in self._publications[directory].newest_first():
            newest = newest or publication
            batch = publication.commit.batch
            if state is None or not publication.after < state.batch < batch:
                self._refused[directory] = refused
                return publication
            refused.append(batch)
        return newest

    def _after(self, directory: str, state: TableState | None, publication: Publication) -> TableState:
        """Return the state of a table after the last recorded commit, which may have been interrupted."""
        commit = publication.commit
        batch = state.batch if state else -1
        if state is not None and batch >= commit.batch:
            are_equal = batch == commit.batch
            if not _contains(state.topics, commit.topics, are_equal=are_equal):
                raise BrokenExportFolder(
                    f"the table {self._name(directory)} has other offsets than this export has published up to batch "
                    f"{commit.batch}: its metadata ({self._tables[directory].metadata}) is that of another table; "
                    "restore its own"
                )
            return state
        if batch != publication.after:
            found = f"is at batch {batch}" if batch >= 0 else "is missing"
            raise BrokenExportFolder(
                f"batch {commit.batch} was published in the table {self._name(directory)}, which {found}: its "
                f"metadata ({self._tables[directory].metadata}) was lost or is an older copy; restore the newest one. "
                "The data files are still there, and were not changed"
            )
        prefix = f"{directory}/" if directory else ""
        for file in commit.files:
            if self._files.size(f"{prefix}{file.path}") is None:
                raise BrokenExportFolder(
                    f"{prefix}{file.path}, which batch {commit.batch} wrote, is gone: restore it from a backup, or "
                    f"remove {self._publications[directory].path(commit.batch)} to export its offsets again"
                )
        self._interrupted[directory] = publication
        return _state_of(commit)

    def pending(self, positions: Positions) -> Plan | None:
        """None: see above."""

    def inventory(self, positions: Positions, pending: Plan | None, topics: Collection[str]) -> Inventory:
        """Return data files of which it is not known whether a table had them; those of a target without an export,
        too.

        Missing and damaged are those that a table names, and dead letters of the last batch.
        """
        if not LayoutMark(self._files).held():
            directories = [directory or layout.SHARED_DIRECTORY for directory in self._tables]
            return Inventory(unknown=tuple(unmarked_files(self._files, directories)), may_adopt=False)
        unknown: list[str] = []
        missing: list[tuple[str, int | None]] = []
        damaged: list[DamagedFile] = []
        set_back: list[tuple[str, int]] = []
        for directory in self._tables:
            state = self._states.get(directory)
            if state is None or state.batch < 0:
                found = unmarked_files(self._files, [f"{directory}/data".lstrip("/")])
                unknown += [path for path in found if not is_recorded_name(path)]
            elif not state.has_rows:
                set_back.append((self._name(directory), state.batch))
            else:
                table = self._tables[directory]
                is_whole = has_exactly_its_files(self._files, directory, table)
                lost = Inventory() if is_whole else lost_files(self._files, directory, table, self._open_table)
                letters = self._letters_inventory(state)
                missing += [*lost.missing, *letters.missing]
                damaged += [*lost.damaged, *letters.damaged]
                if state.is_latest and not lost.missing:
                    self._settle(directory, state, is_whole=is_whole)
        return Inventory(
            missing=tuple(missing),
            unknown=tuple(unknown),
            set_back=tuple(set_back),
            may_adopt=False,
            damaged=tuple(damaged),
            is_table=True,
        )

    def _letters_inventory(self, state: TableState) -> Inventory:
        """Dead letters of the last batch that do not exist or have another size."""
        found = {path: self._files.size(path) for path in sorted(state.dead_letters)}
        sizes = dict(zip(state.dead_letters, state.dead_letter_bytes, strict=False))
        return Inventory(
            missing=tuple((path, state.batch) for path, size in found.items() if size is None),
            damaged=tuple(
                DamagedFile(path, state.batch, sizes[path], size)
                for path, size in found.items()
                if size is not None and sizes.get(path, size) != size
            ),
        )

    def _settle(self, directory: str, state: TableState, *, is_whole: bool) -> None:
        """Remembers the files of the last batch if the table and the record agree on them.

        `is_whole`: the table names all existing files.
        """
        folder = self._data_directory(directory, state.batch)
        prefix = f"{directory}/" if directory else ""
        existing = (f"{folder}/{name}" for name in self._files.names(folder)) if is_whole else ()
        of_table = () if is_whole else (f"{prefix}{table_path}" for table_path in self._tables[directory].paths())
        named = {path for path in (*existing, *of_table) if path.startswith(f"{folder}/")}
        recorded = self._recorded.get(directory)
        if recorded and recorded.batch == state.batch and not state.has_lost:
            written = {f"{prefix}{file.path}" for file in recorded.files}
            if named == written:
                self._settled[directory] = named

    def placed(self, plan: Plan) -> Plan:
        """Return the plan with files in folders of their batch, whose names depend on everything that their contents
        do.

        If offsets are missing, its number is above those of all folders: these may have the files of batches whose
        metadata was lost, with the missing offsets.
        """
        if any(range_.lost for range_ in plan.ranges):
            folders = [f"{self._directory(topic)}/data".lstrip("/") for topic in plan.topics]
            numbers = [int(name) for folder in folders for name in self._files.names(folder) if name.isdecimal()]
            plan = replace(plan, batch=max([plan.batch, *(number + 1 for number in numbers)]))

        def place(topic: str, path: str) -> str:
            suffix = f"+p{_digest(plan.options, plan.topics[topic].columns)}{layout.DATA_SUFFIX}"
            name = path.rpartition("/")[2].removesuffix(layout.DATA_SUFFIX) + suffix
            path = f"{self._data_directory(self._directory(topic), plan.batch)}/{name}"
            return changes_path(path) if self._upsert else path

        return plan.with_paths(place)

    def commits_of(self, plan: Plan) -> list[Plan]:
        """Return the part of each table, so that topics that cannot be read do not stop the others."""
        directories = sorted({self._directory(topic) for topic in plan.topics})
        return [
            plan.of_topics([topic for topic in plan.topics if self._directory(topic) == directory])
            for directory in directories
        ]

    def write_plan(self, plan: Plan) -> None:
        """Do nothing: see above."""

    def abandon(self, plan: Plan, positions: Positions, *, now_ms: int, dropped: Collection[str]) -> Positions:
        """See ExportLog: there are no plans."""
        return positions

    def write_commit(
        self,
        plan: Plan,
        outcomes: Mapping[str, FileOutcome],
        positions: Positions,
        *,
        now_ms: int,
        dropped: Collection[str] = (),
    ) -> Positions:
        """Commit to the table of each planned topic; dropped files are removed as others of the batch are."""
        after = advance(positions, plan, misfits=all_misfits(positions.misfits, outcomes.values()))
        for directory in sorted({self._directory(topic) for topic in plan.topics}):
            if directory in self._interrupted:  # since this exporter has read the state
                raise LostRace(f"another export commits to {self._name(directory)} at the same time")
            before = self._states.get(directory)
            batch = before.batch if before else -1
            commit = self._commit_of(directory, plan, outcomes, after, now_ms)
            if self._upsert:
                commit = self._with_state(directory, plan, outcomes, positions, commit)
            publication = Publication(batch, commit)
            for number in self._refused.pop(directory, ()):
                self._publications[directory].remove(number)
            self._publications[directory].write(publication)
            self._publish(directory, publication)
            prefix = f"{directory}/" if directory else ""
            kept = {f"{prefix}{file.path}" for file in commit.files}
            # Offsets that the brokers no longer have may be in the files of a batch whose metadata was lost.
            numbers = range(max(batch + 1, plan.batch + 1 - CLEANED_FOLDERS_MAX), plan.batch + 1)
            for number in () if commit.has_lost else numbers:
                self._remove_others(directory, number, kept, commit.dead_letters)
            if self._upsert:
                self._remove_changes(directory, plan.batch)
            self._states.pop(directory, None)
        return after

    def _with_state(
        self,
        directory: str,
        plan: Plan,
        outcomes: Mapping[str, FileOutcome],
        positions: Positions,
        commit: TableCommit,
    ) -> TableCommit:
        """Return the commit with the files of the state after the changes of the batch, in place of those before."""
        from kctl.tables.exec.selection.laid_out import record_schema  # noqa: PLC0415 - imports pyarrow
        from kctl.tables.upserts.batches import write_batch  # noqa: PLC0415 - same

        assert self._upsert is not None
        table = self._tables[directory]
        if table.has_row_deletes():
            raise TableFailed(
                f"table {table.name} has delete files or deletion vectors of another program, which an export with "
                "--mode upsert does not read: compact it with an engine that applies them, and repeat the export"
            )
        (topic,) = commit.topics.keys() & plan.topics.keys()
        prefix = f"{directory}/" if directory else ""
        folder = self._data_directory(directory, plan.batch)
        new = write_batch(
            self._files,
            self._upsert,
            plan,
            topic,
            outcomes,
            positions,
            schema=record_schema(commit.schema),
            current=[f"{prefix}{path}" for path in table.paths()],
            place=lambda name: f"{folder}/{layout.short_name(topic)}{name}+p{uuid4().hex[:8]}{layout.DATA_SUFFIX}",
        )
        self.changed_keys[topic] = new.keys
        return replace(
            commit,
            files=[file._replace(path=file.path.removeprefix(prefix)) for file in new.files],
            removed=[path.removeprefix(prefix) for path in new.removed],
            properties={**commit.properties, **new.keys.properties()},
        )

    def _remove_changes(self, directory: str, batch: int) -> None:
        """Remove the changes of this batch and earlier ones, also those of interrupted runs."""
        folder = f"{CHANGES}/{directory}/data"
        for name in self._files.names(folder):
            number = name.removeprefix(".").partition("+")[0]
            if number.isdecimal() and int(number) <= batch:
                self._files.remove(f"{folder}/{name}")

    def remove_unfinished(self, topics: Collection[str]) -> None:
        """Delete the files of the last batch that it does not name, unless other programs have changed the table."""
        for directory, named in self._settled.items():
            if state := self._states.get(directory):
                self._remove_others(directory, state.batch, named, state.dead_letters)

    def _publish(self, directory: str, publication: Publication) -> None:
        """Commit, again if another program has changed the table.  Raises LostRace if that was an exporter."""
        table = self._tables[directory]
        publications = self._publications[directory]
        name = self._name(directory)
        commit = publication.commit
        for _ in range(COMMIT_ATTEMPTS):
            try:
                table.commit(commit)
            except Conflict:
                state = table.state()
                if state is not None and self._is_published(table, state, commit):
                    break
                if (state.batch if state else -1) != publication.after:
                    publications.remove(commit.batch)
                    raise LostRace(f"another export has committed to {name} at the same time") from None
                if commit.removed and (table.has_row_deletes() or not table.paths() >= set(commit.removed)):
                    publications.remove(commit.batch)
                    raise TableFailed(
                        f"another program has replaced files of {name} at the same time: repeat the export"
                    ) from None
            else:
                break
        else:
            raise TableFailed(f"other programs commit to {name} all the time; repeat the export later")
        publications.remove_before(commit.batch)

    @staticmethod
    def _is_published(table: Table, state: TableState, commit: TableCommit) -> bool:
        """Return whether the table has exactly this commit: its answer was lost, or another exporter published the
        same.
        """
        is_same = state.batch == commit.batch and _contains(state.topics, commit.topics, are_equal=True)
        return is_same and {file.path for file in commit.files} <= table.paths()

    def _commit_of(
        self, directory: str, plan: Plan, outcomes: Mapping[str, FileOutcome], after: Positions, now_ms: int
    ) -> TableCommit:
        from kctl.tables.exec.decoding.rows import selected  # noqa: PLC0415 - same
        from kctl.tables.exec.selection.columns import schema, state_schema  # noqa: PLC0415 - imports pyarrow
        from kctl.tables.exec.selection.laid_out import laid_out_schema  # noqa: PLC0415 - same

        topics = [topic for topic in after.topics if self._directory(topic) == directory]
        mine = [range_ for range_ in plan.ranges if range_.tp.topic in topics]
        incarnations = max(range_.incarnation for range_ in mine)
        paths = dict.fromkeys(file.path for range_ in mine for file in range_.files)
        results = [(range_, parts) for range_, parts in parts_of(plan, outcomes) if range_.tp.topic in topics]
        lost = sum(range_.lost + sum(part.lost for part in parts) for range_, parts in results)
        filtered = sum(part.filtered for _, parts in results for part in parts)
        letters = [letter_file for path in paths if (letter_file := outcomes[path].dead_letters)]
        unreadable = unreadable_to_json(outcomes[path] for path in paths)
        misfits = misfits_to_json(outcomes[path] for path in paths)
        prefix = f"{directory}/" if directory else ""
        columns = selected(
            state_schema(
                schema(
                    include_headers=plan.options.include_headers,
                    has_incarnation=incarnations > 0 and not self._upsert,
                    columns=plan.topics[mine[0].tp.topic].columns,
                    headers=self._headers,
                ),
                has_versions=self._upsert is not None and self._upsert.options.history,
            ),
            self._select,
        )
        return TableCommit(
            batch=plan.batch,
            files=[
                file._replace(path=file.path.removeprefix(prefix)) for path in paths for file in outcomes[path].written
            ],
            partition_by=self._partition_by,
            topics={topic: after.topics[topic] for topic in topics},
            schema=laid_out_schema(columns, self._layout),
            sort_by=self._layout.sort_by,
            properties={
                "kctl.cluster-id": plan.cluster_id,
                "kctl.planned-ms": str(plan.created_ms),
                "kctl.committed-ms": str(now_ms),
                LOST: str(lost),
                "kctl.filtered-records": str(filtered),
                **({UNREADABLE: json.dumps(unreadable[:UNREADABLE_LISTED_MAX])} if unreadable else {}),
                **({MISFITS: json.dumps(misfits)} if misfits else {}),
                "kctl.topics": ",".join(topic for topic in plan.topics if topic in topics),
            },
            dead_letters=[letter_file.path for letter_file in letters],
            dead_letter_bytes=[letter_file.size for letter_file in letters],
            misfits={topic: after.misfits[topic] for topic in topics if topic in after.misfits},
        )

    def _remove_others(self, directory: str, batch: int, kept: Collection[str], letters: Collection[str]) -> None:
        """Remove the files of a batch that were never published; the paths are relative to the target."""
        folder = self._data_directory(directory, batch)
        for paths, place in ((kept, folder), (letters, dead_letters_path(folder))):
            for name in self._files.names(place):
                if f"{place}/{name}" not in paths and is_recorded_name(name):
                    self._files.remove(f"{place}/{name}")

    def _directory(self, topic: str) -> str:
        return "" if self._is_shared else layout.topic_directory(topic)

    @staticmethod
    def _data_directory(directory: str, batch: int) -> str:
        return f"{directory}/data/{batch:012d}".lstrip("/")

    def _name(self, directory: str) -> str:
        return f"{self._files.location}/{directory}".rstrip("/")


def _contains(positions: Mapping[str, TopicPosition], some: Mapping[str, TopicPosition], *, are_equal: bool) -> bool:
    """Return whether positions have those of some partitions; unless `are_equal`, they may also be after them."""
    for topic, position in some.items():
        held = positions.get(topic)
        if held is None or (are_equal and not _offsets(position).items() <= _offsets(held).items()):
            return False
        if held.incarnation == position.incarnation and any(
            partition not in held.partitions or held.partitions[partition].offset < at.offset
            for partition, at in position.partitions.items()
        ):
            return False
    return True


def _offsets(position: TopicPosition) -> dict[int, tuple[int, int]]:
    """Return the offset and incarnation by partition; earlier versions write no histories."""
    return {partition: (at.offset, at.incarnation) for partition, at in position.partitions.items()}


def _state_of(commit: TableCommit) -> TableState:
    """Return the state of a table after a commit."""
    from kctl.tables.exec.schema.arrow_types import held_columns  # noqa: PLC0415 - imports pyarrow
    from kctl.tables.exec.selection.laid_out import record_schema  # noqa: PLC0415 - same

    columns = record_schema(commit.schema)
    held = HeldColumns(held_columns(columns, "key"), held_columns(columns, "value"))
    return TableState(commit.batch, commit.topics, columns.names, held, is_latest=False)


def _digest(options: FileOptions, columns: Columns) -> str:
    parts: tuple[object, ...] = (options.include_headers, options.compression.value, options.isolation.value)
    if columns.are_typed:
        parts = (*parts, json.dumps(columns_to_json(columns)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
