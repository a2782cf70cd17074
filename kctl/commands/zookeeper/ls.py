"""`kctl zookeeper ls`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper.connection import run_on_zookeeper
from kctl.commands.zookeeper.options import DEFAULT_CONNECT, Connect, TlsConfigFile
from kctl.console import Column

app = typer.Typer(add_completion=False)


CHILD_COLUMNS = (Column("name"), Column("path"))


class ChildRow(NamedTuple):
    """A child of a znode."""

    name: str
    path: str


@app.command(
    "ls",
    cls=LocalCommand,
    epilog=examples("kctl zookeeper ls /brokers/ids", "kctl zookeeper ls / --zookeeper zk1:2181/kafka"),
)
def list_children(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Path of the znode.")] = "/",
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
    zk_tls_config_file: TlsConfigFile = None,
) -> ExitStatus:
    """List the children of a znode."""
    run: Invocation = ctx.obj
    names = run_on_zookeeper(
        run, zookeeper, path, lambda session, path: session.children(path), tls_config=zk_tls_config_file
    )
    parent = path.rstrip("/")
    run.console.show(CHILD_COLUMNS, [ChildRow(name, f"{parent}/{name}") for name in names])
    return ExitStatus.DONE
