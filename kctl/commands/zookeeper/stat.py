"""`kctl zookeeper stat`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper.connection import run_on_zookeeper
from kctl.commands.zookeeper.options import DEFAULT_CONNECT, Connect, TlsConfigFile
from kctl.commands.zookeeper.rows import stat_row
from kctl.errors import NoNodeError

app = typer.Typer(add_completion=False)


@app.command("stat", cls=LocalCommand, epilog=examples("kctl zookeeper stat /brokers/ids/0"))
def stat(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
    zk_tls_config_file: TlsConfigFile = None,
) -> ExitStatus:
    """Show the stat of a znode: transactions, versions, owner, size."""
    run: Invocation = ctx.obj
    found = run_on_zookeeper(
        run, zookeeper, path, lambda session, path: session.exists(path), tls_config=zk_tls_config_file
    )
    if found is None:
        raise NoNodeError(f"znode {path} does not exist", path)
    run.console.show_one(stat_row(path, found))
    return ExitStatus.DONE
