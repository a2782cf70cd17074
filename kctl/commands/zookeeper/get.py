"""`kctl zookeeper get`."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper.connection import run_on_zookeeper
from kctl.commands.zookeeper.options import DEFAULT_CONNECT, Connect, TlsConfigFile
from kctl.commands.zookeeper.rows import znode_row

app = typer.Typer(add_completion=False)


@app.command(
    "get",
    cls=LocalCommand,
    epilog=examples("kctl zookeeper get /controller", "kctl zookeeper get /cluster/id --format json"),
)
def get(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
    zk_tls_config_file: TlsConfigFile = None,
) -> ExitStatus:
    """Print the data of a znode.

    With json and jsonl also its stat; data that is not UTF-8 is base64, as "encoding" shows.
    """
    run: Invocation = ctx.obj
    data, stat = run_on_zookeeper(
        run, zookeeper, path, lambda session, path: session.get(path), tls_config=zk_tls_config_file
    )
    text, encoding = _as_text(data)
    if run.console.is_machine_readable:
        run.console.show_one(znode_row(path, text, encoding, stat))
    else:
        run.console.text(text)
    return ExitStatus.DONE


def _as_text(data: bytes) -> tuple[str, str]:
    """The data and its encoding."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
