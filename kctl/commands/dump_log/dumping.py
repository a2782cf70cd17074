"""Reads files of a log and shows their contents, checks or rebuilds the indexes."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.compat import internal_records as internal
from kctl.commands.compat.dump_log import ClassicDump, ClassicOptions, as_text
from kctl.commands.compat.versions import KAFKA_3, KAFKA_4, KAFKA_28
from kctl.commands.dump_log.items import CORRUPT, UNREADABLE
from kctl.commands.dump_log.rows import LineRows, Shown
from kctl.commands.dump_log.selection import classic_text
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import UsageError
from kctl.input_files import check_regular
from kctl.records import internal_items
from kctl.storage.dump import files_of, kind_of, walk
from kctl.storage.dump_indexes import sanity_problem
from kctl.storage.dump_lines import Problem
from kctl.storage.dump_rebuild import IndexChange, InUse, exclusive, logs_of, rebuild_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kctl.commands.compat.dump_log import Parser
    from kctl.commands.dump_log.rows import Decode
    from kctl.console import Console

_PROGRESS_SIZE_MIN = 16 << 20
_SEGMENT_KINDS = frozenset({".log", ".index", ".timeindex"})


class SanityRow(NamedTuple):
    """An index, and the reason why a broker would rebuild it."""

    file: str
    is_sane: bool
    error: str | None
    message: str | None


class RebuildRow(NamedTuple):
    """An index with its number of entries before and after it is rebuilt."""

    file: str
    before: int | None
    after: int
    action: str
    error: str | None = None
    message: str | None = None


class RebuildFailureRow(NamedTuple):
    """A log in which an error was found while its indexes were rebuilt."""

    file: str
    action: str
    error: str
    message: str


def dump(console: Console, paths: Sequence[str], shown: Shown, *, max_bytes: int | None) -> ExitStatus:
    """Show the lines of the files; FAILED if there are errors in them."""
    rows = LineRows(shown)
    for path in paths:
        with progress_of(console, path) as progress:
            lines = walk(
                path,
                first_offset=shown.selection.first_offset,
                last_offset=shown.selection.last_offset,
                size=max_bytes,
                progress=progress,
            )
            rows.show(console, path, lines)
    rows.finish(console)
    return ExitStatus.FAILED if rows.has_problem else ExitStatus.DONE


def files_in(names: Sequence[str]) -> list[str]:
    """The files of the named files and folders.

    Raises UsageError for a folder without files of a log, and for a path that is not a regular file.
    """
    return [file for name in names for file in _files_in(name)]


def _files_in(name: str) -> list[str]:
    if not os.path.isdir(name):
        try:
            check_regular(name)
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from None
    found = files_of(name)
    if not found:
        raise UsageError(f"{name} holds no files of a log: name a partition's folder or a log dir")
    return found


def topic_decoder(option: str | None) -> Decode | None:
    """The decoder of the internal topic that an option such as --offsets-decoder names."""
    if option is None:
        return None

    decoders: dict[str, Decode] = {
        "--offsets-decoder": internal_items.offsets_record,
        "--transaction-log-decoder": internal_items.transaction_record,
        "--cluster-metadata-decoder": internal_items.cluster_metadata_record,
        "--share-group-state-decoder": internal_items.share_group_state_record,
        "--remote-log-metadata-decoder": internal_items.remote_log_metadata_record,
    }
    return decoders[option]


def classic_parser(compat: str, *, shows: bool, decoders: tuple[str, str], topic_decoder: str | None) -> Parser | None:
    """The parser that prints keys and values as Kafka's tool of that version; None if it shows none.  Raises
    UsageError.
    """
    since_3: dict[str, Parser] = {
        "--offsets-decoder": internal.offsets_4,
        "--cluster-metadata-decoder": internal.cluster_metadata_4,
    }
    parsers: dict[str, dict[str, Parser]] = {
        KAFKA_28: {
            "--offsets-decoder": internal.offsets_28,
            "--transaction-log-decoder": internal.transactions_28,
        },
        KAFKA_3: since_3
        | {
            "--transaction-log-decoder": internal.transactions_28,
            "--remote-log-metadata-decoder": internal.remote_log_metadata_3,
        },
        KAFKA_4: since_3
        | {
            "--transaction-log-decoder": internal.transactions_4,
            "--remote-log-metadata-decoder": internal.remote_log_metadata_4,
            "--share-group-state-decoder": internal.share_group_state_4,
        },
    }
    if topic_decoder is not None:
        if topic_decoder not in parsers[compat]:
            raise UsageError(f"{topic_decoder} does not go with --compat {compat}: use --compat kafka-4")
        return parsers[compat][topic_decoder]
    if not shows:
        return None
    if decoders == ("string", "string"):
        return as_text
    key_text, value_text = map(classic_text, decoders)
    return lambda record: (
        None if record.key is None else key_text(record.key),
        None if record.value is None else value_text(record.value),
    )


def dump_as_kafka(console: Console, compat: str, paths: Sequence[str], options: ClassicOptions) -> ExitStatus:
    """Show the files as Kafka's DumpLogSegments of that version does; FAILED if there are errors in them."""
    classic = ClassicDump(console, compat, options)
    for path in paths:
        with progress_of(console, path) as progress:
            classic.show(path, progress)
    classic.finish()
    return ExitStatus.FAILED if classic.has_problem else ExitStatus.DONE


@contextlib.contextmanager
def progress_of(console: Console, path: str) -> Iterator[Callable[[int], None] | None]:
    """Shows progress on the terminal for a large file; not if stdout is a terminal too."""
    size = _size(path)
    if size < _PROGRESS_SIZE_MIN or not console.stderr.isatty() or console.stdout.isatty():
        yield None
        return
    with console.progress(os.path.basename(path), size, unit="bytes") as drawn:
        yield drawn.update


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def check_sanity(console: Console, paths: Sequence[str]) -> ExitStatus:
    """Show for each index whether a broker would rebuild it at its next start; FAILED if there is one."""
    items: list[SanityRow] = []
    for path in paths:
        kind = kind_of(path)
        if kind in {".index", ".timeindex"}:
            code = CORRUPT
            try:
                reason = sanity_problem(path, kind)
            except OSError as unreadable:
                code, reason = UNREADABLE, unreadable.strerror
            items.append(SanityRow(path, reason is None, None if reason is None else code, reason))
    console.show((Column("file"), Column("is_sane", "SANE"), *ERROR_COLUMNS), items)
    return ExitStatus.DONE if all(item.is_sane for item in items) else ExitStatus.FAILED


def rebuild(console: Console, names: Sequence[str], paths: Sequence[str], *, dry_run: bool) -> ExitStatus:
    """Rebuild the indexes of the logs among `paths`; FAILED if a log is damaged.

    `names` are the files and folders that the user named.  Raises UsageError for a file that is neither a log nor an
    index, Refused while a broker uses a directory.
    """
    wrong = [path for path in names if not os.path.isdir(path) and kind_of(path) not in _SEGMENT_KINDS]
    if wrong:
        raise UsageError(f"{wrong[0]} is neither a log nor an index of one")
    logs = logs_of([path for path in paths if kind_of(path) in _SEGMENT_KINDS])
    columns = (
        Column("file"), Column("before", numeric=True), Column("after", numeric=True), Column("action"), *ERROR_COLUMNS
    )  # fmt: skip
    has_problem = False
    try:
        with exclusive([os.path.dirname(log) for log in logs] if not dry_run else []), console.stream(columns) as rows:
            for log in logs:
                with progress_of(console, log) as progress:
                    for line in rebuild_indexes(log, dry_run=dry_run, progress=progress):
                        has_problem = has_problem or not isinstance(line, IndexChange)
                        rows.write(_rebuilt(log, line, dry_run=dry_run))
    except InUse as error:
        raise Refused(str(error)) from None
    return ExitStatus.FAILED if has_problem else ExitStatus.DONE


def _rebuilt(log: str, line: IndexChange | Problem, *, dry_run: bool) -> RebuildRow | RebuildFailureRow:
    if isinstance(line, Problem):
        at = "" if line.position is None else f" (position {line.position})"
        return RebuildFailureRow(log, "damaged", CORRUPT, line.reason + at)
    return RebuildRow(line.path, line.before, line.after, _action(line.is_changed, dry_run=dry_run))


def _action(is_changed: bool, *, dry_run: bool) -> str:
    if not is_changed:
        return "unchanged"
    return "would be written" if dry_run else "written"
