"""`kctl cluster stop`."""

from __future__ import annotations

import typer

from kctl.commands.cluster.dev_cluster import DataDir, MemberRow, dev_cluster_in, show_members, started_layout
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command(
    "stop", cls=LocalCommand, epilog=examples("kctl cluster stop", "kctl cluster stop --data-dir /tmp/cluster")
)
@shows(MemberRow)
def stop(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Stop the brokers one after another, then the coordination service; the data is kept.

    Each broker transfers the leadership of its partitions first.  Brokers that are not running are ignored.
    """
    run: Invocation = ctx.obj
    cluster = dev_cluster_in(data_dir)
    return run.status_of(show_members(run, cluster.stop(started_layout(cluster))))
