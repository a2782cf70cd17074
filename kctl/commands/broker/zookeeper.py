"""`kctl zookeeper`: run the ZooKeeper-compatible service; read znodes of any ensemble."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from kctl.commands.broker.start import StopWith, running_process
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.log_format import LogFormatOption, log_format_of
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.errors import ClusterUnreachable, ConfigError, NoNodeError, UsageError, ZooKeeperError
from kctl.output.log_lines import LogFormat, set_up_logging
from kctl.output.quantities import PORT_MAX
from kctl.server.loop.tasks import stop_at_end_of
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.security import zookeeper_security
from kctl.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from kctl.zookeeper.operations import ZnodeStat


# Options of `kctl zookeeper` that select the ensemble.


DEFAULT_CONNECT = "127.0.0.1:2181"
Connect = Annotated[
    str,
    typer.Option("--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="Ensemble to read from."),
]
TlsConfigFile = Annotated[
    str | None,
    typer.Option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="Properties file with zookeeper.ssl... settings, as Kafka's tools take it.",
    ),
]


# `kctl broker zookeeper-start`.


verbs = typer.Typer(add_completion=False)


DEFAULT_PORT = 2181


@verbs.command(
    "zookeeper-start",
    cls=LocalCommand,
    epilog=examples("kctl broker zookeeper-start", "kctl broker zookeeper-start --data-dir /srv/zookeeper --port 2181"),
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
            run.console.note(f"  kctl broker zookeeper-ls /{where}")
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


# Connects to a ZooKeeper ensemble and reads one znode.


T = TypeVar("T")
CONNECT_TIMEOUT_MS = 5_000


def run_on_zookeeper(
    run: Invocation,
    connect: str,
    path: str,
    question: Callable[[ZooKeeperSession, str], Awaitable[T]],
    *,
    tls_config: str | None,
) -> T:
    """Run one operation in a new session.  Raises ClusterUnreachable and UsageError.

    `tls_config` is a properties file with the settings for TLS.
    """
    _require_path(path)

    security = zookeeper_security(run.secret_properties(tls_config)) if tls_config is not None else None

    async def main() -> T:
        try:
            session = ZooKeeperSession(connect, create_chroot=False, security=security)
        except ConfigError as error:
            raise UsageError(f"--zookeeper {error.value}: {error.reason}") from None
        try:
            await session.start(CONNECT_TIMEOUT_MS)
        except ZooKeeperError as error:
            raise ClusterUnreachable(str(error).replace("zookeeper.connect", "--zookeeper")) from error
        try:
            return await question(session, path)
        finally:
            await session.close()

    return asyncio.run(main())


def _require_path(path: str) -> None:
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path:
        raise UsageError(f"{path} is not the path of a znode: those begin with / and do not end with it")


# `kctl broker zookeeper-ls`.


class ChildRow(NamedTuple):
    """A child of a znode."""

    name: str
    path: str


@verbs.command(
    "zookeeper-ls",
    cls=LocalCommand,
    epilog=examples("kctl broker zookeeper-ls /brokers/ids", "kctl broker zookeeper-ls / --zookeeper zk1:2181/kafka"),
)
@shows(ChildRow)
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
    run.console.show(ChildRow, [ChildRow(name, f"{parent}/{name}") for name in names])
    return ExitStatus.DONE


# Rows of `kctl zookeeper`. The fields of a stat have ZooKeeper's names and order.


class StatRow(NamedTuple):
    """The stat of a znode."""

    path: str
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    pzxid: int


class ZnodeRow(NamedTuple):
    """A znode with its data and its stat."""

    path: str
    data: str
    encoding: str
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    pzxid: int


def stat_row(path: str, stat: ZnodeStat) -> StatRow:
    """Return the stat with the owner in hexadecimal, as ZooKeeper's own tools print it; None for a persistent znode."""
    owner = f"0x{stat.ephemeral_owner & (1 << 64) - 1:x}" if stat.ephemeral_owner else None
    return StatRow(path, **(stat._asdict() | {"ephemeral_owner": owner}))


def znode_row(path: str, data: str, encoding: str, stat: ZnodeStat) -> ZnodeRow:
    """Return the row of a znode; `encoding` is the encoding of `data`: utf-8 or base64."""
    return ZnodeRow(data=data, encoding=encoding, **stat_row(path, stat)._asdict())


# `kctl broker zookeeper-get`.


@verbs.command(
    "zookeeper-get",
    cls=LocalCommand,
    epilog=examples("kctl broker zookeeper-get /controller", "kctl broker zookeeper-get /cluster/id --format json"),
)
@shows_one(ZnodeRow)
def get(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
    zk_tls_config_file: TlsConfigFile = None,
) -> ExitStatus:
    """Print the data of a znode.

    With json, jsonl and yaml also its stat; data that is not UTF-8 is base64, as "encoding" shows.
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
    """Return the data and its encoding."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


# `kctl broker zookeeper-stat`.


@verbs.command("zookeeper-stat", cls=LocalCommand, epilog=examples("kctl broker zookeeper-stat /brokers/ids/0"))
@shows_one(StatRow)
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
