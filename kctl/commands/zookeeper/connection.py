"""Connects to a ZooKeeper ensemble and reads one znode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kctl.commands.invocation import Invocation
from kctl.errors import ClusterUnreachable, ConfigError, UsageError, ZooKeeperError

if TYPE_CHECKING:
    from kctl.zookeeper.session import ZooKeeperSession

T = TypeVar("T")
DEFAULT_CONNECT = "127.0.0.1:2181"
CONNECT_TIMEOUT_MS = 5_000
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


def run_on_zookeeper(
    run: Invocation,
    connect: str,
    path: str,
    question: Callable[[ZooKeeperSession, str], Awaitable[T]],
    *,
    tls_config: str | None,
) -> T:
    """Runs one operation in a new session.  Raises ClusterUnreachable and UsageError.

    `tls_config` is a properties file with the settings for TLS.
    """
    from kctl.zookeeper.security import zookeeper_security  # noqa: PLC0415 - imports ssl
    from kctl.zookeeper.session import ZooKeeperSession  # noqa: PLC0415 - imports kazoo

    _require_path(path)

    security = zookeeper_security(run.secret_properties(tls_config)) if tls_config is not None else None

    async def main() -> T:
        try:
            session = ZooKeeperSession(connect, create_chroot=False, security=security)
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
