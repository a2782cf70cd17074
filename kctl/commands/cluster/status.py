"""`kctl cluster status`."""

from __future__ import annotations

from kctl.commands.cluster import app
from kctl.commands.cluster.dev_cluster import DataDir, dev_cluster_in, show_members, started_layout
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation


@app.command("status", examples=("kctl cluster status", "kctl cluster status --data-dir /tmp/cluster --format json"))
def status(run: Invocation, *, data_dir: DataDir = None) -> ExitStatus:
    """Show the processes of a cluster that 'kctl cluster start' has started.

    Exit status 0 when all of them serve, 3 when they do not.
    """
    cluster = dev_cluster_in(data_dir)
    members = cluster.members(started_layout(cluster))
    show_members(run, members)
    return ExitStatus.DONE if all(member.is_well for member in members) else ExitStatus.UNMET
