"""Reads files of a log and shows their contents, checks or rebuilds the indexes."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import zlib
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple, Self

from kctl.commands.dump_log.items import CORRUPT, UNREADABLE
from kctl.commands.dump_log.rows import STDIN, LineRows, Shown
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.options.values import format_time
from kctl.dump.batches import Problem
from kctl.dump.files import IndexChange, InUse, exclusive, find_logs, rebuild_indexes, walk
from kctl.dump.indexes import sanity_problem
from kctl.dump.kinds import base_offset_of, files_of, kind_of, recognized_kind
from kctl.dump.summary import LogSummary, LostRange, salvage, summarize
from kctl.errors import UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import counted
from kctl.records.internal import entries
from kctl.storage.names import LOG_SUFFIX, offset_file_name
from kctl.system.user_files import STANDARD_INPUT, check_regular, is_pipe, open_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import BufferedReader

    from kctl.commands.dump_log.rows import Decode
    from kctl.output.console import Console

    Progressing = Callable[[Console, str], contextlib.AbstractContextManager[Callable[[int], None] | None]]
from kctl.limits import Subject, bound

DUMP_INPUT_BYTES_MAX = bound(
    Subject.NAMED_FILES,
    "size, decompressed, of what `kctl dump-log` reads from standard input, a pipe or a compressed file",
    (2 << 30) + (64 << 20),
    "bytes",
    on_excess="the command fails; a segment of a broker has at most 2 GiB",
)


GZIP_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"
"""No log starts with them: its first bytes are those of an offset, which would be larger than any."""
_COPY_SIZE = 1 << 20
_PROGRESS_SIZE_MIN = 16 << 20
_SEGMENT_KINDS = frozenset({".log", ".index", ".timeindex"})


class SanityRow(NamedTuple):
    """An index, and the reason why a broker would rebuild it."""

    file: str
    is_sane: Annotated[bool, Column(title="SANE")]
    error: ErrorName
    message: ErrorText


class RebuildRow(NamedTuple):
    """An index with its number of entries before and after it is rebuilt."""

    file: str
    before: int | None
    after: int
    action: str
    error: ErrorName = None
    message: ErrorText = None


class RebuildFailureRow(NamedTuple):
    """A log in which an error was found while its indexes were rebuilt."""

    file: str
    action: str
    error: str
    message: str


def dump(console: Console, inputs: Inputs, shown: Shown, *, max_bytes: int | None) -> ExitStatus:
    """Show the lines of the files; FAILED if there are errors in them."""
    rows = LineRows(shown)
    for path in inputs.paths:
        with progress_of(console, path) as progress:
            lines = walk(
                path,
                first_offset=shown.selection.first_offset,
                last_offset=shown.selection.last_offset,
                size=max_bytes,
                progress=progress,
            )
            rows.show(console, inputs.name_of(path), _kind(path), lines)
    rows.finish(console)
    return ExitStatus.FAILED if rows.has_problem else ExitStatus.DONE


class Inputs:
    """The files that the user named, and the files of named folders.

    Standard input (`-`), pipes (/dev/stdin, /dev/fd/N) and compressed files (.gz) are copied to a folder for temporary
    files first, because logs are read at more than one place.  Use as a context manager, which removes it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.paths: list[str] = []
        self.names = names
        self._shown: dict[str, str] = {}
        self._folder = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Open the files; raise UsageError for a folder without files of a log, and for what cannot be read."""
        try:
            for name in self.names:
                self.paths += [self._copied(name)] if _is_copied(name) else _files_in(name)
        except BaseException:
            self._folder.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    @property
    def has_copies(self) -> bool:
        """Whether a file is a temporary copy."""
        return bool(self._shown)

    def name_of(self, path: str) -> str:
        """Return the name under which a file is shown: the one that the user gave."""
        return self._shown.get(path, path)

    def _copied(self, name: str) -> str:
        import tempfile  # noqa: PLC0415 - most files are read where they are

        folder = self._folder.enter_context(tempfile.TemporaryDirectory(prefix="kctl-dump-log-"))
        copied = os.path.join(folder, "input" if is_pipe(name) else os.path.basename(name).removesuffix(GZIP_SUFFIX))
        try:
            with open(open_input(name), "rb") as source, open(copied, "xb") as copy:
                _copy(source, copy)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{STDIN if name == STANDARD_INPUT else name}: {reason}") from None
        self._shown[copied] = STDIN if name == STANDARD_INPUT else name
        return copied


def _is_copied(name: str) -> bool:
    return is_pipe(name) or (name.endswith(GZIP_SUFFIX) and not os.path.isdir(name))


def _copy(source: BufferedReader, copy: BinaryIO) -> None:
    """Copy and decompress the bytes.  Raises OSError, EOFError and zlib.error."""
    is_packed = source.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
    reader = gzip.GzipFile(fileobj=source) if is_packed else source
    size = 0
    while piece := reader.read(_COPY_SIZE):
        size += len(piece)
        if size > DUMP_INPUT_BYTES_MAX:
            raise OSError(errno.EFBIG, f"has more than {DUMP_INPUT_BYTES_MAX:,} bytes")
        copy.write(piece)


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
    """Return the decoder of the internal topic that an option such as --offsets-decoder names."""
    if option is None:
        return None

    decoders: dict[str, Decode] = {
        "--offsets-decoder": entries.offsets_record,
        "--transaction-log-decoder": entries.transaction_record,
        "--cluster-metadata-decoder": entries.cluster_metadata_record,
        "--share-group-state-decoder": entries.share_group_state_record,
        "--remote-log-metadata-decoder": entries.remote_log_metadata_record,
    }
    return decoders[option]


def _kind(path: str) -> str | None:
    """Return the kind of a file; None also for one that cannot be read, which its lines say."""
    try:
        return recognized_kind(path)
    except OSError:
        return None


@contextlib.contextmanager
def progress_of(console: Console, path: str) -> Iterator[Callable[[int], None] | None]:
    """Show progress on the terminal for a large file; not if stdout is a terminal too."""
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


def check_sanity(console: Console, inputs: Inputs) -> ExitStatus:
    """Show for each index whether a broker would rebuild it at its next start; FAILED if there is one."""
    items: list[SanityRow] = []
    for path in inputs.paths:
        kind = _kind(path)
        if kind in {".index", ".timeindex"}:
            code = CORRUPT
            try:
                reason = sanity_problem(path, kind)
            except OSError as unreadable:
                code, reason = UNREADABLE, unreadable.strerror
            items.append(SanityRow(inputs.name_of(path), reason is None, None if reason is None else code, reason))
    console.show(
        (
            Column("file"),
            Column("is_sane", "SANE"),
        ),
        items,
    )
    return ExitStatus.DONE if all(item.is_sane for item in items) else ExitStatus.FAILED


def rebuild(console: Console, inputs: Inputs, *, dry_run: bool) -> ExitStatus:
    """Rebuild the indexes of the logs among the files; FAILED if a log is damaged.

    Raises UsageError for a file that is neither a log nor an index with a name as brokers give them, Refused while a
    broker uses a directory.
    """
    wrong = [name for name in inputs.names if not os.path.isdir(name) and kind_of(name) not in _SEGMENT_KINDS]
    if wrong:
        is_segment = not _is_copied(wrong[0]) and _kind(wrong[0]) in _SEGMENT_KINDS
        remedy = ": name it as brokers do, with 20 digits, which say the offset at which the indexes start"
        raise UsageError(f"{wrong[0]} is neither a log nor an index of one{remedy if is_segment else ''}")
    paths = inputs.paths
    logs = find_logs([path for path in paths if kind_of(path) in _SEGMENT_KINDS])
    has_problem = False
    try:
        with (
            exclusive([os.path.dirname(log) for log in logs] if not dry_run else []),
            console.stream(RebuildRow) as rows,
        ):
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


# Rows of `kctl dump-log --summary` and `--salvage`.


LOST_SHOWN_MAX = 10


class LostItem(NamedTuple):
    """A range of lost offsets; `last` is null if it is unknown where the log ended."""

    file: str
    first: int
    last: int | None
    bytes: int
    reason: str


class SummaryItem(NamedTuple):
    """A partition, or the file that was salvaged."""

    partition: str
    segments: int
    bytes: int
    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    codecs: dict[str, int]
    absent_offsets: int
    lost_offsets: int
    lost_bytes: int
    lost: list[LostItem]
    error: str | None
    message: str | None


class SummaryRow(NamedTuple):
    """The summary of a partition as one line of text."""

    partition: str
    segments: int
    bytes: int
    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None
    first_time: str | None
    last_time: str | None
    codecs: Annotated[str | None, Column(wraps=True)]
    lost: Annotated[str | None, Column(wraps=True)]
    error: ErrorName
    message: ErrorText


def show_summaries(console: Console, inputs: Inputs, progress: Progressing) -> ExitStatus:
    """Show a row per partition, and one for each log whose name is not that of a segment; FAILED if one is damaged.

    Raises UsageError if no file is a log, and OSError.
    """
    folders: dict[str, list[str]] = {}
    for path in inputs.paths:
        if path.endswith(".deleted"):
            continue
        if kind_of(inputs.name_of(path)) == LOG_SUFFIX:
            folders.setdefault(os.path.dirname(os.path.abspath(path)), []).append(path)
        elif recognized_kind(path) == LOG_SUFFIX:
            folders.setdefault(inputs.name_of(path), []).append(path)
    if not folders:
        raise UsageError("--summary requires a log: name a .log file, the directory of a partition, or a log directory")
    found = []
    for folder, named in folders.items():
        logs = sorted(dict.fromkeys(named), key=base_offset_of)
        with progress(console, logs[0]) as report:
            found.append((os.path.basename(folder), summarize(logs, report)))
    return _show(console, found, inputs)


def salvage_log(console: Console, inputs: Inputs, target: str, progress: Progressing) -> ExitStatus:
    """Copy the valid batches of the only log to a new file and show what it has; FAILED if something is lost.

    Raises UsageError for another number of logs and for a target that no broker would accept as a segment with these
    offsets, Refused if it exists, KctlError if there is nothing to copy, and OSError.
    """
    logs = [path for path in inputs.paths if recognized_kind(path) == LOG_SUFFIX]
    if len(logs) != 1:
        raise UsageError(f"--salvage takes one .log file, not {len(logs)}")
    base_offset = base_offset_of(logs[0])
    if os.path.isdir(target):
        target = os.path.join(target, offset_file_name(base_offset, LOG_SUFFIX))
    if kind_of(target) != LOG_SUFFIX or base_offset_of(target) != base_offset:
        raise UsageError(f"name the file {base_offset:020d}.log, as brokers do, or name a directory for it")
    try:
        with progress(console, logs[0]) as report:
            summary = salvage(logs[0], target, report)
    except FileExistsError:
        raise Refused(f"{target} exists and is not overwritten") from None
    console.note(
        f"{counted(summary.batches, 'batch', 'batches')} with {counted(summary.size_bytes, 'byte')} written to {target}"
    )
    return _show(console, [(target, summary)], inputs)


def lost_text(lost: Sequence[LostRange]) -> str | None:
    """For example `1677 to 1967 and from 3001 lost`; None if no offset is lost."""
    texts = []
    for range_ in lost:
        if range_.last is None:
            texts.append(f"from {range_.first}")
        elif range_.last > range_.first:
            texts.append(f"{range_.first} to {range_.last}")
        elif range_.last == range_.first:
            texts.append(str(range_.first))
    if not texts:
        return None
    if len(texts) > LOST_SHOWN_MAX:
        texts = [*texts[:LOST_SHOWN_MAX], f"{len(texts) - LOST_SHOWN_MAX} more ranges"]
    front = ", ".join(texts[:-1])
    return f"{front} and {texts[-1]} lost" if front else f"{texts[-1]} lost"


def _show(console: Console, found: Sequence[tuple[str, LogSummary]], inputs: Inputs) -> ExitStatus:
    items = [_item(name, summary, inputs) for name, summary in found]
    rows = [
        _row(item, lost_text(summary.lost) or ("no offset lost" if summary.lost else None))
        for item, (_, summary) in zip(items, found, strict=True)
    ]
    console.show(SummaryRow, items, rows=rows)
    return ExitStatus.FAILED if any(item.error for item in items) else ExitStatus.DONE


def _item(name: str, summary: LogSummary, inputs: Inputs) -> SummaryItem:
    places = len(summary.lost)
    message = (
        f"{counted(summary.lost_bytes, 'byte is', 'bytes are')} damaged in {counted(places, 'place')}; the first: "
    )
    return SummaryItem(
        partition=name,
        segments=summary.segments,
        bytes=summary.size_bytes,
        batches=summary.batches,
        records=summary.records,
        first_offset=summary.first_offset,
        last_offset=summary.last_offset,
        first_timestamp_ms=summary.first_timestamp_ms,
        last_timestamp_ms=summary.last_timestamp_ms,
        codecs=dict(sorted(summary.codecs.items())),
        absent_offsets=summary.absent_offsets,
        lost_offsets=summary.lost_offsets,
        lost_bytes=summary.lost_bytes,
        lost=[
            LostItem(inputs.name_of(range_.path), range_.first, range_.last, range_.size_bytes, range_.reason)
            for range_ in summary.lost
        ],
        error=CORRUPT if places else None,
        message=message + summary.lost[0].reason if places else None,
    )


def _row(item: SummaryItem, lost: str | None) -> SummaryRow:
    first, last = item.first_timestamp_ms, item.last_timestamp_ms
    return SummaryRow(
        partition=item.partition,
        segments=item.segments,
        bytes=item.bytes,
        batches=item.batches,
        records=item.records,
        first_offset=item.first_offset,
        last_offset=item.last_offset,
        first_time=None if first is None else format_time(first),
        last_time=None if last is None else format_time(last),
        codecs=", ".join(f"{name} {count}" for name, count in item.codecs.items()) or None,
        lost=lost,
        error=item.error,
        message=item.message,
    )
