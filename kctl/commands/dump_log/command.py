"""`kctl dump-log`."""

from __future__ import annotations

import contextlib
import os
import time as clock
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.compat import internal_records as internal
from kctl.commands.compat.dump_log import ClassicDump, ClassicOptions, as_text
from kctl.commands.dump_log.items import CORRUPT, UNREADABLE
from kctl.commands.dump_log.rows import LineRows, Shown
from kctl.commands.dump_log.selection import Selection, classic_text
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.values_of_parameters import any_text
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import KctlError, UsageError
from kctl.input_files import check_regular
from kctl.integers import INT32_MAX, INT64_MAX
from kctl.records import internal_items
from kctl.storage.dump import files_of, kind_of, walk
from kctl.storage.dump_indexes import insane
from kctl.storage.dump_lines import Problem
from kctl.storage.dump_rebuild import IndexChange, InUse, exclusive, logs_of, rebuild_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kctl.commands.compat.dump_log import Parser
    from kctl.commands.dump_log.rows import Decode
    from kctl.console import Console

app = typer.Typer(add_completion=False)


Decoder = Literal["string", "json", "hex", "base64", "int", "long"]
_PROGRESS_SIZE_MIN = 16 << 20
_SEGMENT_KINDS = frozenset({".log", ".index", ".timeindex"})


class SanityRow(NamedTuple):
    """An index, and why a broker would rebuild it."""

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


@app.command(
    "dump-log",
    cls=LocalCommand,
    epilog=examples(
        "kctl dump-log orders-0/00000000000000000000.log",
        "kctl dump-log --records --format jsonl orders-0/*.log",
        "kctl dump-log --records --offset 1000:1010 orders-0",
        "kctl dump-log --records --time -1h: --key user-7 --value-decoder json orders-0",
        "kctl dump-log --offsets-decoder __consumer_offsets-12/*.log",
        "kctl dump-log --cluster-metadata-decoder __cluster_metadata-0    (the metadata of a KRaft cluster)",
        "kctl dump-log --verify-only /var/kafka-logs    (every file of every partition; only what is wrong is shown)",
        "kctl dump-log --compat kafka-4 --print-data-log --files a.log,b.log    (Kafka's own text)",
        "kctl dump-log --rebuild-index --dry-run orders-0",
    ),
)
def dump_log(
    ctx: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files of a log, folders of partitions, or log dirs.", metavar="FILE"),
    ] = None,
    *,
    file_list: Annotated[list[str] | None, typer.Option("--files", metavar="FILE[,...]", help="Same as FILE.")] = None,
    records: Annotated[
        bool, typer.Option("--records", "-r", "--print-data-log", help="Show records instead of batches.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="A:B", help="Only what has offsets from A up to, but not including, B."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="A:B", help="Only what has timestamps from A up to, but not including, B."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Only records with this key, written as --key-decoder shows it.", parser=any_text),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            metavar="N",
            help="Only the batches that end within the first N bytes of a log.",
            min=1,
            max=INT64_MAX,
        ),
    ] = None,
    max_message_size: Annotated[
        int | None,
        typer.Option(
            "--max-message-size",
            metavar="N",
            help="Accepted for compatibility; ignored.",
            min=1,
            max=INT32_MAX,
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option("--producer-id", metavar="N", help="Only records of this producer.", min=-1, max=INT64_MAX),
    ] = None,
    key_decoder: Annotated[
        Decoder | None, typer.Option("--key-decoder", help="Format of keys.  Default: text, or else base64.")
    ] = None,
    value_decoder: Annotated[
        Decoder | None, typer.Option("--value-decoder", help="Format of values.  Default: text, or else base64.")
    ] = None,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode records as those of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Decode records as those of KRaft's __cluster_metadata.")
    ] = False,
    share_group_state_decoder: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="Decode records as those of __share_group_state.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, typer.Option("--remote-log-metadata-decoder", help="Decode records as those of __remote_log_metadata.")
    ] = False,
    verify_only: Annotated[
        bool,
        typer.Option(
            "--verify-only",
            "--verify-index-only",
            help="Read every record, but show only errors.  With --compat: no entries of indexes.",
        ),
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Check only whether a broker would rebuild the indexes when it starts."
        ),
    ] = False,
    compat: Annotated[
        Literal["kafka-2.8", "kafka-4"] | None,
        typer.Option("--compat", help="Write the text of Kafka's DumpLogSegments."),
    ] = None,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="With --compat: a line per record, too.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="With --compat: of records only key and value.")
    ] = False,
    rebuild_index: Annotated[
        bool,
        typer.Option(
            "--rebuild-index",
            help="Write .index and .timeindex anew from the log.  Not while a broker uses the directory.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --rebuild-index: show what would be written without writing it.")
    ] = False,
) -> ExitStatus:
    """Show the contents of log and index files, and errors in them.

    Files are recognised by their names: .log, .index, .timeindex, .txnindex, .snapshot, the checkpoints,
    partition.metadata, meta.properties, and of KRaft .checkpoint (a snapshot of the metadata) and quorum-state.
    Without --rebuild-index it only reads, so a broker may go on using them; the last batch of a file that is being
    written may then look torn, and index entries may be missing.

    Only regular files are read, and a folder without files of a log is an error.

    Checksums of batches and the order of offsets are checked, and every index entry against the log beside it.  What is
    wrong is a row with an error, and makes the exit status 1; it goes on with the next batch that is sound.  With
    --offset only the part of a log that can hold these offsets is read.

    TIME is as everywhere: 2026-11-21T09:30:00Z (UTC without a zone), 2026-11-21, 10 digits of epoch seconds or 13 of
    milliseconds, now, -1h.

    Under json and jsonl, "type" tells what a row is about: batch, record, offset_index, time_index, producer,
    aborted_transaction, leader_epoch, checkpoint, property or problem; with --records both batches and records are
    there.  Keys and values that are no text are base64, and "key_encoding" and "value_encoding" say so.
    """
    run: Invocation = ctx.obj
    names = [*(files or []), *(name for names in file_list or [] for name in names.split(",") if name)]
    if not names:
        raise UsageError("name a file, a partition's folder or a log dir")
    topic_decoder = _one_of(
        {
            "--offsets-decoder": offsets_decoder,
            "--transaction-log-decoder": transaction_log_decoder,
            "--cluster-metadata-decoder": cluster_metadata_decoder,
            "--share-group-state-decoder": share_group_state_decoder,
            "--remote-log-metadata-decoder": remote_log_metadata_decoder,
        }
    )
    if dry_run and not rebuild_index:
        raise UsageError("--dry-run requires --rebuild-index")
    paths = [file for name in names for file in _files_in(name)]
    if rebuild_index:
        return _rebuild(run.console, names, paths, dry_run=dry_run)
    if index_sanity_check and compat is None:
        return _sanity_check(run.console, paths)
    has_filter = any(option is not None for option in (offset, time, key, producer_id))
    if compat is not None:
        if has_filter:
            raise UsageError("--compat shows all that a file has: --offset, --time, --key and --producer-id do not fit")
        parser = _classic_parser(
            compat,
            shows=records or bool(key_decoder or value_decoder),
            decoders=(key_decoder or "string", value_decoder or "string"),
            topic_decoder=topic_decoder,
        )
        options = {
            "deep": deep_iteration, "skip_metadata": skip_record_metadata, "verify_only": verify_only,
            "sanity_only": index_sanity_check, "max_bytes": max_bytes,
        }  # fmt: skip
        return _classic(run.console, compat, paths, parser, options)

    selection = Selection.read(
        offset=offset, time=time, key=key, key_decoder=key_decoder, producer_id=producer_id,
        now_ms=round(clock.time() * 1000),
    )  # fmt: skip
    decoder = _decoder(topic_decoder)
    with_records = records or decoder is not None or key is not None or bool(key_decoder or value_decoder)
    rows = LineRows(Shown(selection, with_records, verify_only, decoder, key_decoder, value_decoder))
    for path in paths:
        with _progress(run.console, path) as progress:
            lines = walk(
                path,
                first_offset=selection.first_offset,
                last_offset=selection.last_offset,
                size=max_bytes,
                progress=progress,
            )
            rows.show(run.console, path, lines)
    rows.finish(run.console)
    return ExitStatus.FAILED if rows.has_problem else ExitStatus.DONE


def _files_in(name: str) -> list[str]:
    """The files to read of one that was named.  Raises OSError, and KctlError for a folder without any."""
    if not os.path.isdir(name):
        check_regular(name)
    found = files_of(name)
    if not found:
        raise KctlError(f"{name} holds no files of a log: name a partition's folder or a log dir")
    return found


def _one_of(options: dict[str, bool]) -> str | None:
    """The option that is set, None when none is.  Raises UsageError for more than one."""
    chosen = [name for name, is_set in options.items() if is_set]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} cannot be combined")
    return chosen[0] if chosen else None


def _decoder(option: str | None) -> Decode | None:
    """How the records of the topic that an option names are told."""
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


def _classic_parser(compat: str, *, shows: bool, decoders: tuple[str, str], topic_decoder: str | None) -> Parser | None:

    parsers: dict[str, dict[str, Parser]] = {
        "kafka-2.8": {
            "--offsets-decoder": internal.offsets_28,
            "--transaction-log-decoder": internal.transactions_28,
        },
        "kafka-4": {
            "--offsets-decoder": internal.offsets_4,
            "--transaction-log-decoder": internal.transactions_4,
            "--cluster-metadata-decoder": internal.cluster_metadata_4,
            "--share-group-state-decoder": internal.share_group_state_4,
            "--remote-log-metadata-decoder": internal.remote_log_metadata_4,
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


def _classic(
    console: Console, compat: str, paths: Sequence[str], parser: Parser | None, options: dict[str, Any]
) -> ExitStatus:

    dump = ClassicDump(console, compat, ClassicOptions(parser=parser, **options))
    for path in paths:
        with _progress(console, path) as progress:
            dump.show(path, progress)
    dump.finish()
    return ExitStatus.FAILED if dump.has_problem else ExitStatus.DONE


@contextlib.contextmanager
def _progress(console: Console, path: str) -> Iterator[Callable[[int], None] | None]:
    """A line on the terminal about a file that takes a while; none where data would run through it."""
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


def _sanity_check(console: Console, paths: Sequence[str]) -> ExitStatus:

    items: list[SanityRow] = []
    for path in paths:
        kind = kind_of(path)
        if kind in {".index", ".timeindex"}:
            code = CORRUPT
            try:
                reason = insane(path, kind)
            except OSError as unreadable:
                code, reason = UNREADABLE, unreadable.strerror
            items.append(SanityRow(path, reason is None, None if reason is None else code, reason))
    console.show((Column("file"), Column("is_sane", "SANE"), *ERROR_COLUMNS), items)
    return ExitStatus.DONE if all(item.is_sane for item in items) else ExitStatus.FAILED


def _rebuild(console: Console, names: Sequence[str], paths: Sequence[str], *, dry_run: bool) -> ExitStatus:

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
                with _progress(console, log) as progress:
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
