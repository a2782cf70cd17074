"""`kctl cluster log-dirs`."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.cluster import app
from kctl.commands.cluster.log_dir_rows import show_log_dirs
from kctl.commands.declaration import Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation


@app.command(
    "log-dirs",
    cluster=True,
    examples=(
        "kctl cluster log-dirs",
        "kctl cluster log-dirs --broker 1 --broker 2",
        "kctl cluster log-dirs --topic orders --format json",
    ),
)
def log_dirs(
    run: Invocation,
    *,
    broker: Annotated[list[int] | None, Option("--broker", metavar="ID", help="Only these brokers.")] = None,
    topic: Annotated[
        list[str] | None,
        Option("--topic", metavar="TOPIC", help="Show the replicas of these topics.", complete="topic"),
    ] = None,
    replicas: Annotated[bool, Option("--replicas", help="Show the replicas of all topics.")] = False,
) -> ExitStatus:
    """Show the log directories of the brokers, and what lies in them.

    One row per directory, or with --topic or --replicas one per replica.  A replica with moving=true is a copy on its
    way to the directory, its lag in records behind the one that it replaces.  Exit status 1 when a directory is
    offline or a broker does not answer.  'kctl reassign execute' moves replicas between directories.
    """
    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas)
