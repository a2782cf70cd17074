"""`kctl cluster log-dirs`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.cluster.log_dir_rows import show_log_dirs
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.integers import INT32_MAX

app = typer.Typer(add_completion=False)


@app.command(
    "log-dirs",
    cls=ClusterCommand,
    epilog=examples(
        "kctl cluster log-dirs",
        "kctl cluster log-dirs --broker 1 --broker 2",
        "kctl cluster log-dirs --topic orders --format json",
    ),
)
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
    compat: Compat = None,
) -> ExitStatus:
    """Show the log directories of the brokers and their contents.

    One row per directory, or with --topic or --replicas one per replica.  A replica with moving=true is being copied to
    the directory; its lag is the number of records that it is behind the replica that it replaces.  The exit status is
    1 if a directory is offline or a broker does not respond.

    'kctl reassign execute' moves replicas between directories.
    """
    run: Invocation = ctx.obj
    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas, compat=compat)
