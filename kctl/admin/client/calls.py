"""The calls of the administration client: connections, and a deadline and retries for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar
from uuid import UUID

from kctl.admin.client.arguments import check_number
from kctl.admin.client.settings import AdminConfig
from kctl.client.application.telemetry.reporter import TelemetryReporter, fetch_client_instance_id
from kctl.client.application.telemetry.standard_metrics import ADMIN
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.loop_thread import ForkGuard
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, UsageError
from kctl.model import INT32_MAX

T = TypeVar("T")


class AdminCalls:
    """Runs operations of kctl.admin.  Owner: event loop."""

    def __init__(self, config: AdminConfig) -> None:
        if not isinstance(config, AdminConfig):
            raise UsageError(f"config must be an AdminConfig, not {type(config).__name__}")
        self._config = config
        self._client = ClusterClient(config.client_settings(), AsyncioTransport())
        self._reporter = (
            TelemetryReporter(self._client, ADMIN, lambda _window: [], dict) if config.enable_metrics_push else None
        )
        self._fork_guard = ForkGuard("administration client")
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Return the client; nothing is sent yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls in progress raise ClusterUnreachable."""
        self._is_closed = True
        if not self._fork_guard.is_in_child:
            if self._reporter is not None:
                await self._reporter.close()
            await self._client.close()

    async def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError without enable_metrics_push=True.
        """
        self._require_open()
        return await fetch_client_instance_id(self._reporter, timeout_ms)

    async def _read(self, name: str, work: Callable[[ClusterClient], Awaitable[T]], timeout_ms: int | None) -> T:
        return await self._call(name, work, timeout_ms, is_repeatable=True)

    async def _change(self, name: str, work: Callable[[ClusterClient], Awaitable[T]], timeout_ms: int | None) -> T:
        return await self._call(name, work, timeout_ms, is_repeatable=False)

    async def _call(
        self,
        name: str,
        work: Callable[[ClusterClient], Awaitable[T]],
        timeout_ms: int | None,
        *,
        is_repeatable: bool,
    ) -> T:
        self._require_open()
        limit_ms = self._limit_ms(timeout_ms)
        client = self._client.for_call(limit_ms)
        deadline = client.deadline(limit_ms)
        is_sent = False
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        await client.any_broker()
                        is_sent = True
                        return await work(client)
                    except ClusterUnreachable:
                        if (is_sent and not is_repeatable) or self._is_closed or not await deadline.pause():
                            raise
        except TimeoutError:
            text = f"{name} has no result after {limit_ms} ms"
            if is_sent and not is_repeatable:
                text += "; the brokers may have performed it"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    def _require_open(self) -> None:
        if self._fork_guard.is_in_child:
            raise UsageError(self._fork_guard.problem)
        if self._is_closed:
            raise UsageError("the administration client is closed")

    def _limit_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._config.default_api_timeout_ms
        check_number("timeout_ms", timeout_ms, low=1, high=INT32_MAX)
        return timeout_ms
