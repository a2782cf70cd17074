"""`kctl cluster log-dirs`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.cluster.log_dir_rows import DirectoryRow, ReplicaRow, Total, TotalRow, show_log_dirs
from kctl.commands.command import examples
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.integers import INT32_MAX

app = typer.Typer(add_completion=False)


@app.command(
    "log-dirs",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster log-dirs",
        "kctl cluster log-dirs --broker 1 --broker 2",
        "kctl cluster log-dirs --topic orders --format json",
        "kctl cluster log-dirs --by topic --human",
    ),
)
@shows(DirectoryRow, ReplicaRow, TotalRow)
def log_dirs(
    ctx: typer.Context,
    *,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Only these brokers.", min=0, max=INT32_MAX)
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Show the replicas of these topics."),
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Show the replicas of all topics.")] = False,
    by: Annotated[
        Total | None, typer.Option("--by", help="Show totals per broker or topic, the largest first.")
    ] = None,
    compat: Compat = None,
) -> ExitStatus:
    """Show the log directories of the brokers and their contents.

    One row per directory, with --by one per broker or topic, or with --topic or --replicas one per replica.  A replica
    with moving=true is being copied to the directory; its lag is the number of records that it is behind the replica
    that it replaces.  The exit status is 1 if a directory is offline or a broker does not respond.

    'kctl reassign execute' moves replicas between directories.
    """
    run: Invocation = ctx.obj
    if by is not None and replicas:
        raise UsageError("--by shows totals, and --replicas each replica: give one of them")
    if by is not None and compat is not None:
        raise UsageError("--compat prints each replica; leave out --by")
    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas, by=by, compat=compat)
