"""Connects to a ZooKeeper ensemble and reads one znode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kctl.commands.invocation import Invocation
from kctl.errors import ClusterUnreachable, ConfigError, UsageError, ZooKeeperError
from kctl.zookeeper.security import zookeeper_security
from kctl.zookeeper.session import ZooKeeperSession

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
    """Runs one operation in a new session.  Raises ClusterUnreachable and UsageError.

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
