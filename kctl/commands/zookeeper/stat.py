"""`kctl zookeeper stat`."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Argument
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper import app
from kctl.commands.zookeeper.connection import DEFAULT_CONNECT, Connect, ask_zookeeper
from kctl.commands.zookeeper.rows import stat_row
from kctl.errors import NoNodeError


@app.command("stat", examples=("kctl zookeeper stat /brokers/ids/0",))
def stat(
    run: Invocation,
    path: Annotated[str, Argument("Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
) -> ExitStatus:
    """Show what ZooKeeper knows about a znode: transactions, versions, owner, size."""
    found = ask_zookeeper(zookeeper, path, lambda session, path: session.exists(path))
    if found is None:
        raise NoNodeError(f"znode {path} does not exist", path)
    run.console.show_one({"path": path, **stat_row(found)})
    return ExitStatus.DONE
