"""`kctl zookeeper start`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from kctl.commands.broker.processes import StopWith, running_process
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.log_format import LogFormatOption, log_format_of
from kctl.commands.zookeeper.options import DEFAULT_CONNECT
from kctl.errors import ZooKeeperError
from kctl.integers import PORT_MAX
from kctl.log_output.formats import LogFormat
from kctl.log_output.handler import set_up_logging
from kctl.server.process import stop_at_end_of
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper

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
    stop_with: StopWith = None,
    log_format: LogFormatOption = None,
) -> ExitStatus:
    """Run a single-node ZooKeeper service in the foreground until SIGINT or SIGTERM.

    It implements the client protocol of ZooKeeper 3.8 and listens on the loopback address only.
    """
    run: Invocation = ctx.obj
    lines = log_format_of(log_format)
    set_up_logging(None if run.console.quiet else sys.stderr, lines)
    asyncio.run(
        _serve(run, _data_dir(data_dir), port, running_process(stop_with), shows_next_steps=lines is LogFormat.TEXT)
    )
    return ExitStatus.DONE


async def _serve(run: Invocation, data_dir: Path, port: int, stop_with: int | None, *, shows_next_steps: bool) -> None:
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
    watching = None if stop_with is None else loop.create_task(stop_at_end_of(stop_with, stop), name="stop-with")
    try:
        where = "" if server.connect == DEFAULT_CONNECT else f" --zookeeper {server.connect}"
        if shows_next_steps:
            run.console.note(f"ZooKeeper serving on {server.connect}, data in {data_dir}; try:")
            run.console.note(f"  kctl zookeeper ls /{where}")
            run.console.flush()
        await end
    finally:
        if watching is not None:
            watching.cancel()
        await server.stop()


def _data_dir(given: str | None) -> Path:
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kctl" / "zookeeper"
