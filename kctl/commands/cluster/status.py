"""`kctl cluster status`."""

from __future__ import annotations

import typer

from kctl.commands.cluster.dev_cluster import DataDir, MemberRow, dev_cluster_in, show_members, started_layout
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command(
    "status",
    cls=LocalCommand,
    epilog=examples("kctl cluster status", "kctl cluster status --data-dir /tmp/cluster --format json"),
)
@shows(MemberRow)
def status(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Show the processes of a cluster that 'kctl cluster start' has started.

    The exit status is 0 if all of them accept connections, else 3.
    """
    run: Invocation = ctx.obj
    cluster = dev_cluster_in(data_dir)
    members = cluster.members(started_layout(cluster))
    show_members(run, members)
    return ExitStatus.DONE if all(member.is_well for member in members) else ExitStatus.UNMET
