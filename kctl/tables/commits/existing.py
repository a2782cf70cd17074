"""Opens an export by what its target contains, to examine it beside a running export: without a lock, changing nothing.

The target says which kind of export it holds (kctl.tables.commits.layout).  Only an Iceberg catalogue other
than that of the folder has to be named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from kctl.errors import KctlError, UsageError
from kctl.tables.commits import layout
from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.commits.inventory import Inventory
from kctl.tables.commits.layout import LayoutMark
from kctl.tables.exec.file_task import DEAD_LETTERS, dead_letters_path
from kctl.tables.exec.outcome import Misfit
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.selection.partitioning import without_partitions
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.kinds import TableKind, TableOptions, table_opener
from kctl.tables.formats.publications import Publications
from kctl.tables.formats.table import Table, TableFailed, TableState, lost_files
from kctl.tables.plans.plan import Isolation, Plan, Positions, TopicPosition

READ_ATTEMPTS = 10
"""A running export may commit while its files are listed; then they are listed again."""


class KeepsChanging(KctlError):
    """An export commits to the target faster than the target can be read."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic of an export after its last commit."""

    position: TopicPosition
    batch: int
    committed_ms: int | None
    """When it was last committed to; None if a table no longer has that information."""
    misfits: tuple[Misfit, ...] = ()
    """The values of all batches that are not in their column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportState:
    """All topics of an export."""

    kind: TableKind
    topics: Mapping[str, TopicState]
    pending: Plan | None
    """The plan of an interrupted or running export; tables have none."""
    losses: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with data files, as text, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTopic:
    """The files of one topic, and which offsets they should contain."""

    kind: TableKind
    topic: str
    position: TopicPosition
    paths: tuple[str, ...]
    """Data files relative to the target; in a table of several topics, those of all."""
    starts: Mapping[int, int] | None
    """The first exported offset by partition; None for tables, which do not record it."""
    isolation: Isolation | None
    """Isolation of the batches; None for tables, which do not record it, and if it differs."""
    missing: tuple[tuple[str, int], ...] = ()
    """(path, batch) of missing committed files."""
    unknown: tuple[str, ...] = ()
    """Data files that no commit names; readers of the folder read them too, so they are in `paths`."""
    columns: Columns | None = None
    """How records are decoded; None for tables, whose files say it."""
    dead_letters: tuple[str, ...] = ()
    """Files with the records that could not be decoded, as they are in the topic."""
    is_set_back: bool = False
    """Whether the table lacks rows of its last batches, because another program has set it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingLetters:
    """The committed files with dead letters of the batches of a topic after a certain one."""

    position: TopicPosition
    batch: int
    """The last committed batch."""
    paths: tuple[str, ...]
    """They may have letters of other topics too."""
    is_table: bool


class ExistingExport:
    """The export in a target."""

    def __init__(self, files: Files, *, catalog: str | None = None, namespace: str = "") -> None:
        """Read the mark of an export; raise UsageError if there is none, or for options that do not fit;
        PackageMissing.
        """
        mark = LayoutMark(files).held()
        if not mark:
            raise UsageError(f"{files.location} contains no export")
        self.options = TableOptions.of_mark(mark, catalog=catalog, namespace=namespace)
        self._files = files

    def state(self) -> ExportState:
        """Return the positions of all topics.  Raises BrokenExportFolder, TableFailed, KeepsChanging."""
        if self.options.kind is not TableKind.PARQUET:
            return self._state_of_tables()
        log = self._commit_log()
        positions, inventory = self._settled_inventory(log)
        committed_ms = log.committed_ms(positions.last_batch) if positions.last_batch >= 0 else None
        topics = {
            topic: TopicState(position, positions.last_batch, committed_ms, positions.misfits.get(topic, ()))
            for topic, position in positions.topics.items()
        }
        losses = self._losses(topics, inventory)
        return ExportState(kind=self.options.kind, topics=topics, pending=log.pending(positions), losses=losses)

    def _settled_inventory(self, log: CommitLog) -> tuple[Positions, Inventory]:
        """Return the positions and inventory between two commits: a compaction removes files after its commit."""
        positions = log.positions()
        for _ in range(READ_ATTEMPTS):
            inventory = log.inventory(positions, log.pending(positions), ())
            before, positions = positions, log.positions()
            if before.last_batch == positions.last_batch:
                return positions, inventory
        raise KeepsChanging(f"exports into {self._files.location} commit all the time; repeat this later")

    def _losses(self, topics: Collection[str], inventory: Inventory) -> dict[str, str]:
        """Return the first loss of each topic as text."""
        inventories = {topic: inventory.of(partial(self._is_of, topic=topic)) for topic in topics}
        return {topic: text for topic, selected in inventories.items() if (text := selected.loss_text())}

    def topic(self, name: str) -> ExportedTopic:
        """Return the files of one topic.  Raises UsageError if it is not in the export; as `state`."""
        return self._of_folder(name) if self.options.kind is TableKind.PARQUET else self._of_table(name)

    def outstanding_letters(self, name: str, *, after: int) -> OutstandingLetters | None:
        """Return the dead letters of the batches of a topic after batch `after`; None if the topic has no batch."""
        directory = "" if self.options.is_shared else layout.topic_directory(name)
        if self.options.kind is TableKind.PARQUET:
            log = self._commit_log()
            positions = log.positions()
            topics, batch = positions.topics, positions.last_batch
            paths = tuple(path for path in log.committed_letters(after=after) if self._is_of(path, name))
        else:
            state = table_opener(self.options, self._files, [name])(directory).state()
            if state is None:
                return None
            topics, batch = state.topics, state.batch
            paths = self._dead_letters_of_table(directory, state, after=after)
        if name not in topics:
            return None
        return OutstandingLetters(
            position=topics[name], batch=batch, paths=paths, is_table=self.options.kind is not TableKind.PARQUET
        )

    def _of_folder(self, name: str) -> ExportedTopic:
        log = self._commit_log()
        positions, present, pending = self._settled_files(log, name)
        position = self._position(name, positions.topics)
        planned = pending.shares() if pending else {}
        present -= log.hidden_paths()
        inventory = log.inventory(positions, pending, [name])
        starts, isolations, columns = _planned(log.plans(), name, positions)
        return ExportedTopic(
            kind=self.options.kind,
            topic=name,
            position=position,
            paths=tuple(sorted(path for path in present if without_partitions(path) not in planned)),
            starts=starts,
            isolation=isolations.pop() if len(isolations) == 1 else None,
            columns=columns,
            missing=tuple(
                (path, batch)
                for path, batch in inventory.missing
                if batch is not None and batch <= positions.last_batch and self._is_of(path, name)
            ),
            unknown=tuple(path for path in inventory.unknown if path in present),
            dead_letters=self._dead_letters_of_folder(name, planned),
        )

    def _is_of(self, path: str, topic: str) -> bool:
        path = path.removeprefix(f"{DEAD_LETTERS}/")
        if self.options.is_shared:
            return layout.is_file_of(path, topic)
        return bool(layout.topic_directories(topic, [path.partition("/")[0]]))

    def _commit_log(self) -> CommitLog:
        return CommitLog(self._files, is_shared=self.options.is_shared)

    def _dead_letters_of_folder(self, topic: str, planned: Collection[str]) -> tuple[str, ...]:
        """Without those of the planned data files."""
        directories = self._files.names(DEAD_LETTERS)
        if not self.options.is_shared:
            directories = layout.topic_directories(topic, directories)
        paths = {path for directory in directories for path in self._data_files(dead_letters_path(directory))}
        paths = {path for path in paths if layout.is_file_of(path, topic)}
        return tuple(sorted(paths.difference(map(dead_letters_path, planned))))

    def _settled_files(self, log: CommitLog, name: str) -> tuple[Positions, set[str], Plan | None]:
        """Return the positions, files and pending plan between two commits.

        The files are listed between two readings of the same positions, so all committed ones are there; each other one
        belongs to a plan that was written before, which is pending now.
        """
        positions = log.positions()
        for _ in range(READ_ATTEMPTS):
            present = {path for path in log.data_files([name]) if self._is_of(path, name)}
            before, positions = positions, log.positions()
            if before.last_batch == positions.last_batch:
                return positions, present, log.pending(positions)
        raise KeepsChanging(f"exports into {self._files.location} commit all the time; repeat this later")

    def _of_table(self, name: str) -> ExportedTopic:
        directory = "" if self.options.is_shared else layout.topic_directory(name)
        table = table_opener(self.options, self._files, [name])(directory)
        state = table.state()
        position = self._position(name, state.topics if state else {})
        if table.has_row_deletes():
            raise TableFailed(
                f"the table of {name} has rows that are deleted by separate files, which are not read here: "
                "compact the table first"
            )
        prefix = f"{directory}/" if directory else ""
        return ExportedTopic(
            kind=self.options.kind,
            topic=name,
            position=position,
            paths=tuple(sorted(f"{prefix}{path}" for path in table.paths())),
            starts=None,
            isolation=None,
            dead_letters=self._dead_letters_of_table(directory, state) if state else (),
            is_set_back=state is not None and not state.has_rows,
        )

    def _dead_letters_of_table(self, directory: str, state: TableState, *, after: int = -1) -> tuple[str, ...]:
        """Of the batches after `after`, without those that are not committed; of the last one those in its commit."""
        folder = dead_letters_path(f"{directory}/data".lstrip("/"))
        letter_paths: list[str] = []
        for batch in self._files.names(folder):
            if batch.isdecimal() and after < int(batch) <= state.batch:
                is_listed = int(batch) == state.batch and state.is_latest
                paths = self._data_files(f"{folder}/{batch}")
                letter_paths += [path for path in paths if not is_listed or path in state.dead_letters]
        return tuple(letter_paths)

    def _data_files(self, directory: str) -> list[str]:
        return [f"{directory}/{name}" for name in self._files.names(directory) if layout.is_data_file(name)]

    def _state_of_tables(self) -> ExportState:
        states: dict[str, TopicState] = {}
        losses: dict[str, str] = {}
        for directory, table in self.tables():
            state = table.state()
            if state is not None and state.batch >= 0:
                committed_ms = table.committed_ms()
                misfits = self._misfits_of_table(directory, state.batch)
                states |= {
                    topic: TopicState(position, state.batch, committed_ms, misfits.get(topic, ()))
                    for topic, position in state.topics.items()
                }
                opener = table_opener(self.options, self._files, list(state.topics))
                if loss := lost_files(self._files, directory, table, opener).loss_text():
                    losses |= dict.fromkeys(state.topics, loss)
        return ExportState(kind=self.options.kind, topics=states, pending=None, losses=losses)

    def _misfits_of_table(self, directory: str, batch: int) -> Mapping[str, tuple[Misfit, ...]]:
        """Return those of the last committed batch; none if it was committed without a record of it."""
        records = Publications(self._files, directory, self.options.partition_by).newest_first()
        return next((record.commit.misfits for record in records if record.commit.batch <= batch), {})

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Yield the tables with their directories; they may not exist."""
        if self.options.is_shared:
            yield "", table_opener(self.options, self._files, [])("")
            return
        names = [name for name in self._files.names("") if not name.startswith(("_", ".")) and self._files.names(name)]
        topics = [name.removeprefix("+") for name in names]
        opener = table_opener(self.options, self._files, topics)
        for topic in topics:
            directory = layout.topic_directory(topic)
            yield directory, opener(directory)

    def _position(self, name: str, topics: Mapping[str, TopicPosition]) -> TopicPosition:
        position = topics.get(name)
        if position is None:
            raise UsageError(f"{self._files.location} contains no export of topic {name}")
        return position


def _planned(
    plans: Iterator[Plan], topic: str, positions: Positions
) -> tuple[dict[int, int], set[Isolation], Columns | None]:
    """Return the first offset of each partition in its last incarnation, the isolation levels, and the last columns."""
    last = {number: at.incarnation for number, at in positions.topics[topic].partitions.items()}
    starts: dict[int, int] = {}
    isolations: set[Isolation] = set()
    columns: Columns | None = None
    for plan in plans:
        if plan.batch > positions.last_batch:
            continue
        columns = plan.topics[topic].columns if topic in plan.topics else columns
        for range_ in plan.ranges:
            if range_.tp.topic == topic and range_.incarnation == last.get(range_.tp.partition):
                starts.setdefault(range_.tp.partition, range_.start)
                isolations.add(plan.options.isolation)
    return starts, isolations, columns
