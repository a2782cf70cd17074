"""`kctl zookeeper ls`."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Argument
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper import app
from kctl.commands.zookeeper.connection import DEFAULT_CONNECT, Connect, ask_zookeeper
from kctl.console import Column

CHILD_COLUMNS = (Column("name"), Column("path"))


@app.command("ls", examples=("kctl zookeeper ls /brokers/ids", "kctl zookeeper ls / --zookeeper zk1:2181/kafka"))
def list_children(
    run: Invocation,
    path: Annotated[str, Argument("Path of the znode.")] = "/",
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
) -> ExitStatus:
    """List the children of a znode."""
    names = ask_zookeeper(zookeeper, path, lambda session, path: session.children(path))
    parent = path.rstrip("/")
    run.console.show(CHILD_COLUMNS, [{"name": name, "path": f"{parent}/{name}"} for name in names])
    return ExitStatus.DONE
