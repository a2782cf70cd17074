"""`kctl zookeeper start`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.zookeeper.connection import DEFAULT_CONNECT
from kctl.errors import ZooKeeperError
from kctl.integers import PORT_MAX
from kctl.log_format import EscapingFormatter

app = typer.Typer(add_completion=False)


DEFAULT_PORT = 2181


@app.command(
    "start",
    cls=LocalCommand,
    epilog=examples("kctl zookeeper start", "kctl zookeeper start --data-dir /srv/zookeeper --port 2181"),
)
def start(
    ctx: typer.Context,
    *,
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Folder of the service.  Default: kctl/zookeeper under XDG_DATA_HOME, which is ~/.local/share.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port on 127.0.0.1, 0 for a free one.", max=PORT_MAX, min=0)
    ] = DEFAULT_PORT,
) -> ExitStatus:
    """Run a single-node ZooKeeper service in the foreground until SIGINT or SIGTERM.

    It implements the client protocol of ZooKeeper 3.8 and listens on the loopback address only.
    """
    run: Invocation = ctx.obj
    if not run.console.quiet:
        _show_log()
    asyncio.run(_serve(run, _data_dir(data_dir), port))
    return ExitStatus.DONE


def _show_log() -> None:

    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _serve(run: Invocation, data_dir: Path, port: int) -> None:

    from kctl.zookeeper.embedded.server import EmbeddedZooKeeper  # noqa: PLC0415 - help needs no server

    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def fail(error: ZooKeeperError) -> None:
        if not end.done():
            end.set_exception(error)

    def stop() -> None:
        if not end.done():
            end.set_result(None)

    server = EmbeddedZooKeeper(data_dir, port=port, on_failure=fail)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await server.start()
    try:
        where = "" if server.connect == DEFAULT_CONNECT else f" --zookeeper {server.connect}"
        run.console.note(f"ZooKeeper serving on {server.connect}, data in {data_dir}; try:")
        run.console.note(f"  kctl zookeeper ls /{where}")
        run.console.flush()
        await end
    finally:
        await server.stop()


def _data_dir(given: str | None) -> Path:
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kctl" / "zookeeper"
