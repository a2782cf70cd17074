"""`kctl zookeeper`: run the ZooKeeper-compatible service alone; look into any ensemble."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.console import Column
from kctl.errors import ClusterUnreachable, ConfigError, UsageError, ZooKeeperError
from kctl.integers import PORT_MAX

if TYPE_CHECKING:
    from kctl.zookeeper.operations import ZnodeStat
    from kctl.zookeeper.session import ZooKeeperSession

app = Group("zookeeper", "Run the ZooKeeper-compatible service; look into any ensemble.")

T = TypeVar("T")

DEFAULT_CONNECT = "127.0.0.1:2181"
DEFAULT_PORT = 2181
CONNECT_TIMEOUT_MS = 5_000
CHILD_COLUMNS = (Column("name"), Column("path"))

Connect = Annotated[
    str,
    Option(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="Ensemble to look into.",
    ),
]


@app.command("start", examples=("kctl zookeeper start", "kctl zookeeper start --data-dir /srv/zookeeper --port 2181"))
def start(
    run: Invocation,
    *,
    data_dir: Annotated[
        str | None,
        Option(
            "--data-dir",
            metavar="DIR",
            help="Folder of the service.  Default: kctl/zookeeper under XDG_DATA_HOME, which is ~/.local/share.",
            complete="directory",
        ),
    ] = None,
    port: Annotated[
        int, Option("--port", metavar="N", help="Port on 127.0.0.1, 0 for a free one.", maximum=PORT_MAX)
    ] = DEFAULT_PORT,
) -> ExitStatus:
    """Run the service in the foreground until SIGINT or SIGTERM.

    It speaks the client protocol of ZooKeeper 3.8, has one node, and listens on the loopback address only.
    """
    import asyncio  # noqa: PLC0415 - help needs no event loop

    if not run.console.quiet:
        _show_log()
    asyncio.run(_serve(run, _data_dir(data_dir), port))
    return ExitStatus.DONE


@app.command("ls", examples=("kctl zookeeper ls /brokers/ids", "kctl zookeeper ls / --zookeeper zk1:2181/kafka"))
def list_children(
    run: Invocation,
    path: Annotated[str, Argument("Path of the znode.")] = "/",
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
) -> ExitStatus:
    """List the children of a znode."""
    names = _ask(zookeeper, path, lambda session, path: session.children(path))
    parent = path.rstrip("/")
    run.console.show(CHILD_COLUMNS, [{"name": name, "path": f"{parent}/{name}"} for name in names])
    return ExitStatus.DONE


@app.command("get", examples=("kctl zookeeper get /controller", "kctl zookeeper get /cluster/id --format json"))
def get(
    run: Invocation,
    path: Annotated[str, Argument("Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
) -> ExitStatus:
    """Print what a znode holds.

    Under json and jsonl also its stat; data that is not text is base64 there, and `encoding` says so.
    """
    data, stat = _ask(zookeeper, path, lambda session, path: session.get(path))
    text, encoding = _as_text(data)
    if run.console.is_machine_readable:
        run.console.show_one({"path": path, "data": text, "encoding": encoding, **_stat_row(stat)})
    else:
        run.console.text(text)
    return ExitStatus.DONE


@app.command("stat", examples=("kctl zookeeper stat /brokers/ids/0",))
def stat(
    run: Invocation,
    path: Annotated[str, Argument("Path of the znode.")],
    *,
    zookeeper: Connect = DEFAULT_CONNECT,
) -> ExitStatus:
    """Show what ZooKeeper knows about a znode: transactions, versions, owner, size."""
    from kctl.errors import NoNodeError  # noqa: PLC0415 - rarely needed

    found = _ask(zookeeper, path, lambda session, path: session.exists(path))
    if found is None:
        raise NoNodeError(f"znode {path} does not exist", path)
    run.console.show_one({"path": path, **_stat_row(found)})
    return ExitStatus.DONE


def _show_log() -> None:
    import logging  # noqa: PLC0415 - only the service has a log

    from kctl.log_format import EscapingFormatter  # noqa: PLC0415 - same

    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _serve(run: Invocation, data_dir: Path, port: int) -> None:
    import asyncio  # noqa: PLC0415 - see above
    import signal  # noqa: PLC0415 - see above

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


def _ask(connect: str, path: str, question: Callable[[ZooKeeperSession, str], Awaitable[T]]) -> T:
    """One question on a session of its own; ClusterUnreachable when nobody answers."""
    import asyncio  # noqa: PLC0415 - help needs no event loop

    from kctl.zookeeper.session import ZooKeeperSession  # noqa: PLC0415 - nor kazoo

    _require_path(path)

    async def main() -> T:
        try:
            session = ZooKeeperSession(connect, create_chroot=False)
        except ConfigError as error:
            raise UsageError(f"--zookeeper {connect}: {error.reason}") from None
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


def _data_dir(given: str | None) -> Path:
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kctl" / "zookeeper"


def _as_text(data: bytes) -> tuple[str, str]:
    """The data and its encoding."""
    import base64  # noqa: PLC0415 - rarely needed

    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _stat_row(stat: ZnodeStat) -> dict[str, Any]:
    owner = stat.ephemeral_owner
    return {**stat._asdict(), "ephemeral_owner": f"0x{owner & (1 << 64) - 1:x}" if owner else None}
