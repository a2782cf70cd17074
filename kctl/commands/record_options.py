"""The options that select records, which `kctl consume` and `kctl copy` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.record_filter import RecordFilter, parse_bytes, parse_header_match
from kctl.admin.where_syntax import parse_where
from kctl.commands.timed_search import TimedSearch
from kctl.commands.timed_work import SEARCHED_BYTES_MAX
from kctl.commands.values_of_parameters import any_text
from kctl.errors import UsageError
from kctl.integers import INT64_MAX
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.console import Console

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="OFFSET",
        help="Where to start: start, end, N, +N after the start, -N before the end, @TIME.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Only records with this key: text, hex:4A4B, base64:SksK; text:hex:4A for a text like those, text: for the"
        " empty key.",
    ),
]
PartitionOfKey = Annotated[
    bool,
    typer.Option(
        "--partition-of-key",
        help="With --key: read only the partition that the default partitioner of producers selects for the key.",
    ),
]
Grep = Annotated[
    str | None,
    typer.Option("--grep", metavar="RE", help="Only records whose value contains this regular expression."),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only records for which the condition is true, such as 'value.status == \"failed\" and offset > 100'.",
    ),
]
RecordHeader = Annotated[
    list[str] | None,
    typer.Option(
        "--record-header",
        metavar="NAME[=VALUE]",
        help="Only records with this header; the value has the forms of --key.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("-n", "--max-records", "--limit", metavar="N", help="Stop after N records.", max=INT64_MAX, min=0),
]
Partition = Annotated[
    str | None, typer.Option("--partition", metavar="N,N-N", help="Only these partitions.  Default: all.")
]
RecordFormat = Annotated[
    str | None,
    typer.Option("-f", "--record-format", metavar="FORMAT", help=r"The format of each record, such as '%k %v\n'."),
]
NullMarker = Annotated[
    str | None,
    typer.Option(
        "--null-marker", metavar="TEXT", help="Text that stands for a null key or value (a tombstone).", parser=any_text
    ),
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option("--schema-registry", metavar="URL", help="Schema registry.  Default: schema.registry.url."),
]
Mask = Annotated[
    list[str] | None, typer.Option("--mask", metavar="PATH", help="Hide what is at this path, such as value.password.")
]
MaskRegex = Annotated[
    list[str] | None,
    typer.Option("--mask-regex", metavar="RE", help="Hide what matches in keys, values and values of headers."),
]


class Selecting:
    """The records that a command line selects."""

    def __init__(self, records: RecordFilter, key_for_partition: bytes | None, search: TimedSearch | None) -> None:
        self.records = records
        self.key_for_partition = key_for_partition
        """The key whose partition alone is read; None for all."""
        self._search = search

    def warn_of_shortened(self, console: Console) -> None:
        """Warns if --grep has not searched some values to their end."""
        if self._search is not None and self._search.shortened:
            console.warn(
                f"--grep searched only the first {SEARCHED_BYTES_MAX:,} bytes of"
                f" {counted(self._search.shortened, 'value')}"
            )


def selecting(
    *,
    key: str | None,
    partition_of_key: bool,
    grep: str | None,
    where: str | None,
    headers: list[str] | None,
) -> Selecting:
    """The selection that the options describe.  Raises UsageError."""
    if partition_of_key and key is None:
        raise UsageError("--partition-of-key requires --key")
    key_bytes = None if key is None else parse_bytes(key, "--key")
    search = None if grep is None else TimedSearch(grep)
    records = RecordFilter(
        key=key_bytes,
        headers=tuple(parse_header_match(one, "--record-header") for one in headers or []),
        search=search,
        where=None if where is None else parse_where(where),
    )
    return Selecting(records, key_bytes if partition_of_key else None, search)
