"""`kctl dump-log`: show what log and index files hold."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation

app = Group("dump-log", "Show what log and index files hold.")

DECODERS = ("offsets", "transactions")


@app.command(
    "dump-log",
    examples=(
        "kctl dump-log 00000000000000000000.log",
        "kctl dump-log --records --format jsonl orders-0/*.log",
        "kctl dump-log --offsets-decoder __consumer_offsets-12/00000000000000000000.log",
    ),
)
def dump_log(
    run: Invocation,
    files: Annotated[list[str], Argument("Files of a log, or folders of partitions.", metavar="FILE", complete="file")],
    *,
    records: Annotated[bool, Option("--records", "-r", help="Also every record, not only batches.")] = False,
    offsets_decoder: Annotated[
        bool, Option("--offsets-decoder", help="Keys and values are those of __consumer_offsets; implies --records.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        Option(
            "--transaction-log-decoder", help="Keys and values are those of __transaction_state; implies --records."
        ),
    ] = False,
) -> ExitStatus:
    """Show what log and index files hold."""
    return ExitStatus.DONE
