"""`kctl dump-log`: show what log and index files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.values import parse_number_range
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.records.batch import Record

app = Group("dump-log", "Show what log and index files hold.")


@app.command(
    "dump-log",
    examples=(
        "kctl dump-log orders-0/00000000000000000000.log",
        "kctl dump-log --records --format jsonl orders-0/*.log",
        "kctl dump-log --offsets-decoder __consumer_offsets-12/*.log",
        "kctl dump-log orders-0    (all files of the partition, indexes checked against the log)",
    ),
)
def dump_log(
    run: Invocation,
    files: Annotated[list[str], Argument("Files of a log, or folders of partitions.", metavar="FILE", complete="file")],
    *,
    records: Annotated[bool, Option("--records", "-r", help="The records instead of the batches.")] = False,
    offset: Annotated[
        str | None,
        Option("--offset", metavar="A:B", help="Only what has offsets from A up to, but not including, B."),
    ] = None,
    offsets_decoder: Annotated[
        bool, Option("--offsets-decoder", help="The records, as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, Option("--transaction-log-decoder", help="The records, as those of __transaction_state.")
    ] = False,
) -> ExitStatus:
    """Show what log and index files hold, and what is wrong with them.

    It knows files by their names: .log, .index, .timeindex, .txnindex and .snapshot.  It only reads, so a broker may go
    on using them; the last batch of a file that is being written may then look torn, and index entries may be missing.

    Checksums of batches and the order of offsets are checked, and every index entry against the log beside it.  What is
    wrong is a row with an error, and makes the exit status 1; after a bad checksum it goes on with the next batch.

    Under json and jsonl, "type" tells what a row is about: batch, record, offset_index, time_index, producer,
    aborted_transaction or problem; with --records both batches and records are there.
    """
    from kctl.commands.log_lines import LineRows  # noqa: PLC0415 - help needs no storage
    from kctl.storage.dump import files_of, walk  # noqa: PLC0415 - same

    decoder = _decoder(offsets=offsets_decoder, transactions=transaction_log_decoder)
    with_records = records or decoder is not None
    rows = LineRows(parse_number_range(offset, "--offset"), with_records=with_records, decode=decoder)
    for path in [file for name in files for file in files_of(name)]:
        rows.show(run.console, path, walk(path, with_records=with_records))
    rows.finish(run.console)
    return ExitStatus.FAILED if rows.has_problem else ExitStatus.DONE


def _decoder(*, offsets: bool, transactions: bool) -> Callable[[Record], tuple[object, object]] | None:
    if offsets and transactions:
        raise UsageError("--offsets-decoder and --transaction-log-decoder exclude each other")
    if not offsets and not transactions:
        return None
    from kctl.commands.internal_records import offsets_record, transaction_record  # noqa: PLC0415 - rarely used

    return offsets_record if offsets else transaction_record
