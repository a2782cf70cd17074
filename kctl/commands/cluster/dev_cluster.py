"""The development cluster of a data folder, and the rows about its brokers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.commands.invocation import Invocation
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode, KctlError
from kctl.server.dev_cluster import DevCluster

if TYPE_CHECKING:
    from kctl.server.dev_cluster import Layout, Member

MEMBER_COLUMNS = (
    Column("name"),
    Column("state"),
    Column("address"),
    Column("pid", numeric=True),
    Column("data_dir"),
    *ERROR_COLUMNS,
)


class MemberRow(NamedTuple):
    """A process of the cluster: a broker or the coordination service."""

    name: str
    state: str
    address: str | None
    pid: int | None
    data_dir: str | None
    error: str | None
    message: str | None


DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the cluster.  Default: kctl/cluster under XDG_DATA_HOME, which is ~/.local/share.",
    ),
]


def dev_cluster_in(data_dir: str | None) -> DevCluster:
    """The cluster in this folder, or in the default one; it may not have been started yet."""
    if data_dir:
        return DevCluster(Path(data_dir).expanduser().absolute())
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return DevCluster(Path(home).expanduser() / "kctl" / "cluster")


def started_layout(cluster: DevCluster) -> Layout:
    """The processes of the cluster.  Raises KctlError if it has never been started."""
    layout = cluster.layout()
    if layout is None:
        raise KctlError(f"there is no cluster in {cluster.path}; 'kctl cluster start' creates one")
    return layout


def show_members(run: Invocation, members: list[Member]) -> list[MemberRow]:
    """Print a row for each process of the cluster, and return the rows."""
    rows = [
        MemberRow(
            name=member.name,
            state=member.state,
            address=member.address,
            pid=member.pid,
            data_dir=str(member.data_dir) if member.data_dir else None,
            error=ErrorCode.BROKER_NOT_AVAILABLE.name if member.problem else None,
            message=member.problem,
        )
        for member in members
    ]
    run.console.show(MEMBER_COLUMNS, rows)
    return rows
