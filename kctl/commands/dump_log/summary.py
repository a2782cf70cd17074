"""Rows of `kctl dump-log --summary` and `--salvage`."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.dump_log.items import CORRUPT
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import UsageError
from kctl.quantities import counted
from kctl.storage.dump_files import base_offset_of, kind_of, recognized_kind
from kctl.storage.log_summary import LogSummary, LostRange, salvage, summarize
from kctl.storage.names import LOG_SUFFIX, offset_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kctl.commands.dump_log.dumping import Inputs
    from kctl.console import Console

    Progressing = Callable[[Console, str], contextlib.AbstractContextManager[Callable[[int], None] | None]]

LOST_SHOWN_MAX = 10
COLUMNS = (
    Column("partition"),
    Column("segments", numeric=True),
    Column("bytes", numeric=True),
    Column("batches", numeric=True),
    Column("records", numeric=True),
    Column("first_offset", numeric=True),
    Column("last_offset", numeric=True),
    Column("first_time"),
    Column("last_time"),
    Column("codecs", wraps=True),
    Column("lost", wraps=True),
    *ERROR_COLUMNS,
)


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
    codecs: str | None
    lost: str | None
    error: str | None
    message: str | None


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
    for one in lost:
        if one.last is None:
            texts.append(f"from {one.first}")
        elif one.last > one.first:
            texts.append(f"{one.first} to {one.last}")
        elif one.last == one.first:
            texts.append(str(one.first))
    if not texts:
        return None
    if len(texts) > LOST_SHOWN_MAX:
        texts = [*texts[:LOST_SHOWN_MAX], f"{len(texts) - LOST_SHOWN_MAX} more ranges"]
    front = ", ".join(texts[:-1])
    return f"{front} and {texts[-1]} lost" if front else f"{texts[-1]} lost"


def _show(console: Console, found: Sequence[tuple[str, LogSummary]], inputs: Inputs) -> ExitStatus:
    items = [_item(name, one, inputs) for name, one in found]
    rows = [
        _row(item, lost_text(summary.lost) or ("no offset lost" if summary.lost else None))
        for item, (_, summary) in zip(items, found, strict=True)
    ]
    console.show(COLUMNS, items, rows=rows)
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
            LostItem(inputs.name_of(one.path), one.first, one.last, one.size_bytes, one.reason) for one in summary.lost
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
