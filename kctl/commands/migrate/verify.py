"""`kctl migrate verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.migrate.plan import read_document
from kctl.errors import UsageError
from kctl.migration.verifying.fingerprint import (
    Compared,
    Fingerprint,
    Status,
    compare,
    counts,
    fingerprint_text,
    is_different,
    parse_fingerprint,
)
from kctl.migration.verifying.reading import read_fingerprint
from kctl.system.user_files import replace_private

verbs = typer.Typer(add_completion=False)


class ComparedRow(NamedTuple):
    """What was compared; without a name, how many items of the subject have the status."""

    subject: str
    name: str | None
    status: str
    items: int
    before: str | None
    after: str | None


@verbs.command(
    "verify",
    cls=ClusterCommand,
    epilog=examples(
        "kctl migrate verify --bootstrap-server kafka:9092 --save before.json",
        "kctl migrate verify --bootstrap-server kafka:9092 --compare before.json",
        "kctl migrate verify --compare before.json --all --format json",
    ),
)
@shows(ComparedRow)
def verify(
    ctx: typer.Context,
    *,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Write the fingerprint of the cluster to a file.")
    ] = None,
    compare_with: Annotated[
        str | None,
        typer.Option("--compare", metavar="FILE", help="Compare the cluster with a fingerprint that was saved."),
    ] = None,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Leave out the records, which takes the time to read all of them.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show each item, also those that are equal.")] = False,
) -> ExitStatus:
    """Take the fingerprint of a cluster before a migration, and compare it afterwards.

    It has the id of the cluster, topics with ids and replicas, configurations, offsets of groups, ACLs, SCRAM users,
    quotas, tokens and transactions, and a hash of offset, timestamp, key, value and headers of the records of each
    partition, at both isolation levels.  Records that were written after --save are not compared.

    Shows how many items of each subject are equal, and each one that is not.  What one side could not read is 'not
    compared', never 'equal'.  The exit status is 3 if something differs or is missing.
    """
    run: Invocation = ctx.obj
    if save is None and compare_with is None:
        raise UsageError("give --save FILE before the migration, and --compare FILE after it")
    earlier = None if compare_with is None else parse_fingerprint(read_document(compare_with), compare_with)

    current = run.on_brokers(
        lambda client: read_fingerprint(client, earlier=earlier, with_records=not no_records, note=run.console.note)
    )
    if save is not None:
        _save(save, current)
    compared = compare(current if earlier is None else earlier, current)
    run.console.show(ComparedRow, _rows(compared, show_all=show_all))
    return ExitStatus.UNMET if is_different(compared) else ExitStatus.DONE


def _rows(compared: list[Compared], *, show_all: bool) -> list[ComparedRow]:
    rows = [
        ComparedRow(row.subject, row.name or None, row.status, 1, row.before, row.after)
        for row in compared
        if show_all or row.status is not Status.EQUAL
    ]
    summary = [ComparedRow(subject, None, status, count, None, None) for subject, status, count in counts(compared)]
    return rows if show_all else rows + [row for row in summary if row.status == Status.EQUAL]


def _save(path: str, fingerprint: Fingerprint) -> None:
    try:
        replace_private(Path(path), fingerprint_text(fingerprint).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
