"""`kctl dump-log`."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from kctl.commands.dump_log import dumping
from kctl.commands.dump_log.dumping import salvage_log, show_summaries
from kctl.commands.dump_log.rows import Shown
from kctl.commands.dump_log.selection import Selection
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import any_text
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, with_groups
from kctl.commands.frame.output.shown import shows
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX, INT64_MAX

app = typer.Typer(add_completion=False)


Decoder = Literal["string", "json", "hex", "base64", "int", "long"]
Dump = Callable[[dumping.Inputs, str | None], ExitStatus]
"""Shows the files, with the option that names the topic whose records they contain."""


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
        "kctl dump-log --verify-only /var/kafka-logs    (every file of every partition; only errors are shown)",
        "kctl dump-log --rebuild-index --dry-run orders-0",
        "kctl dump-log --summary orders-0",
        "zcat backup/segment.gz | kctl dump-log --records -",
        "kctl dump-log --salvage saved/ orders-0/00000000000000000000.log",
    ),
)
@shows(
    *(
        f"kctl.commands.dump_log.items:{name}"
        for name in (
            "BatchItem",
            "RecordEntry",
            "ControlRecordEntry",
            "DecodedRecordEntry",
            "OffsetIndexItem",
            "TimeIndexItem",
            "ProducerItem",
            "AbortedTransactionItem",
            "LeaderEpochItem",
            "CheckpointItem",
            "PropertyItem",
            "ProblemItem",
        )
    ),
    *(f"kctl.commands.dump_log.dumping:{name}" for name in ("SanityRow", "RebuildRow", "RebuildFailureRow")),
    "kctl.commands.dump_log.dumping:SummaryItem",
)
@with_groups
def dump_log(
    ctx: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of a log, also compressed (.gz); directories of partitions; log directories; - for stdin.",
            metavar="FILE",
        ),
    ] = None,
    *,
    file_list: Annotated[list[str] | None, typer.Option("--files", metavar="FILE[,...]", help="Same as FILE.")] = None,
    records: Annotated[
        bool, typer.Option("--records", "-r", "--print-data-log", help="Show records instead of batches.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="A:B", help="Only batches and records with offsets from A to B (exclusive)."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="A:B", help="Only batches and records with timestamps from A to B (exclusive)."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="Only records with this key, in the form that --key-decoder produces.", parser=any_text
        ),
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
        Decoder | None, typer.Option("--key-decoder", help="Format of keys.  Default: UTF-8 if valid, else base64.")
    ] = None,
    value_decoder: Annotated[
        Decoder | None, typer.Option("--value-decoder", help="Format of values.  Default: UTF-8 if valid, else base64.")
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
            help="Read all records, but show only errors.",
        ),
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Only check whether a broker would rebuild the indexes at its next start."
        ),
    ] = False,
    rebuild_index: Annotated[
        bool,
        typer.Option(
            "--rebuild-index",
            help="Rebuild .index and .timeindex from the log.  Refused while a broker uses the directory.",
        ),
    ] = False,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary",
            help="Show one row per partition: offsets, times, sizes, codecs, and the offsets that damage has lost.",
        ),
    ] = False,
    salvage: Annotated[
        str | None,
        typer.Option(
            "--salvage",
            metavar="FILE",
            help="Copy the valid batches of one log, byte for byte, to this new file, or into this directory.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --rebuild-index: show the changes without making them.")
    ] = False,
    dump: Annotated[Dump | None, NOT_AN_OPTION] = None,
) -> ExitStatus:
    """Show the contents of log and index files, and errors in them.

    The name of a file determines its type: .log, .index, .timeindex, .txnindex, .snapshot, a checkpoint,
    partition.metadata, meta.properties, or, of a KRaft cluster, .checkpoint (a snapshot of the metadata) and
    quorum-state.  Other names may have one of these suffixes, or none: a file that starts with a batch is a log, which
    begins at the offset of its first batch.  An index with such a name needs the log of the same name beside it.  - and
    pipes such as <(ssh HOST cat FILE), and files ending in .gz, are copied to TMPDIR first.  A directory without files
    of a log is an error, and so is what is neither a regular file nor a pipe of the shell.

    Without --rebuild-index the command only reads and can run beside a broker.  In a file that the broker is writing,
    the last batch may appear truncated, and index entries may be missing.

    The command verifies the checksums of batches, the order of offsets, and each index entry against its log.  Each
    error is a row, and the exit status is 1; reading continues with the next valid batch.  With --offset, only the part
    of a log that may contain these offsets is read.

    --summary and --salvage read the headers and checksums of batches, not their records.  LOST names the offsets of
    damaged batches, such as '1677 to 1967 and from 3001 lost'; the exit status is then 1.  A broker accepts the file
    that --salvage writes as a segment under its name, without the indexes of the damaged one.

    TIME is RFC 3339 such as 2026-11-21T09:30:00Z (UTC without a zone), a date, epoch seconds (10 digits) or
    milliseconds (13 digits), now, or a duration before now (-1h).

    With json, jsonl and yaml, "type" is the type of the row: batch, record, offset_index, time_index, producer,
    aborted_transaction, leader_epoch, checkpoint, property or problem; --records shows both batches and records.  Keys
    and values that are not UTF-8 are base64; "key_encoding" and "value_encoding" name the encoding.
    """
    run: Invocation = ctx.obj
    names = [*(files or []), *(name for names in file_list or [] for name in names.split(",") if name)]
    if not names:
        raise UsageError("name a file, the directory of a partition, or a log directory")
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
    inputs = ctx.with_resource(dumping.Inputs(names))
    if summary or salvage is not None:
        given = (offset, time, key, max_bytes, producer_id, dump, topic_decoder, key_decoder, value_decoder)
        if any(option is not None for option in given) or records or verify_only or index_sanity_check or rebuild_index:
            raise UsageError("--summary and --salvage cannot be combined with other options, except --format")
        if salvage is None:
            return show_summaries(run.console, inputs, dumping.progress_of)
        if summary:
            raise UsageError("--summary and --salvage cannot be combined; --salvage shows a summary too")
        return salvage_log(run.console, inputs, salvage, dumping.progress_of)
    if rebuild_index:
        return dumping.rebuild(run.console, inputs, dry_run=dry_run)
    if dump is not None:
        return dump(inputs, topic_decoder)
    if index_sanity_check:
        return dumping.check_sanity(run.console, inputs)
    decodes = bool(key_decoder or value_decoder)
    selection = Selection.read(
        offset=offset,
        time=time,
        key=key,
        key_decoder=key_decoder,
        producer_id=producer_id,
        now_ms=round(clock.time() * 1000),
    )
    shown = Shown(
        selection,
        records=records or topic_decoder is not None or key is not None or decodes,
        only_problems=verify_only,
        decode=dumping.topic_decoder(topic_decoder),
        key_decoder=key_decoder,
        value_decoder=value_decoder,
    )
    return dumping.dump(run.console, inputs, shown, max_bytes=max_bytes)


def _one_of(options: dict[str, bool]) -> str | None:
    """Return the option that is set, or None.  Raises UsageError for more than one."""
    chosen = [name for name, is_set in options.items() if is_set]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} cannot be combined")
    return chosen[0] if chosen else None
