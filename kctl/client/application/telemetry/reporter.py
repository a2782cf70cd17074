"""Pushes the metrics of a client to brokers that have subscribed to them.

It uses the connections that the client has opened, and nothing is sent to brokers without a receiver of client metrics:
these do not advertise the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from uuid import UUID

from kctl.client.application.telemetry.payload import Metric, Totals, packed, selected
from kctl.client.application.telemetry.subscription import (
    JITTER_MAX,
    JITTER_MIN,
    PUSH_BYTES_MAX,
    Action,
    Closing,
    Event,
    GetSubscription,
    NoResponse,
    Push,
    PushReceived,
    Stop,
    Subscription,
    SubscriptionReceived,
    TelemetryState,
    TimeReached,
    WaitUntil,
    step,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.traffic import Traffic, Window
from kctl.client.connections.transport import Connection
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import ZERO_UUID
from kctl.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kctl.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kctl.system.reference_cycles import weak_call

logger = logging.getLogger(__name__)

TERMINATING_PUSH_MS_MAX = 2_000
"""How long the last push may delay the end of a client."""
NOT_SERVED = "the brokers have no receiver of client metrics (KIP-714)"


class TelemetryReporter:
    """The telemetry of one client.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        prefix: str,
        collect: Callable[[Window], list[Metric]],
        resource: Callable[[], Mapping[str, str]],
    ) -> None:
        """`prefix` begins the names of the metrics of connections, such as org.apache.kafka.producer.

        `collect` returns the other metrics, those of topics and partitions last; `resource` the attributes of the
        client, such as its group.
        """
        self._client = client
        self._prefix = prefix
        self._collect = collect
        self._resource = resource
        self._state = TelemetryState()
        self._totals = Totals(time.time_ns())
        self._now_ms = client.transport.monotonic_ms
        self._traffic = client.traffic = Traffic(self._now_ms, weak_call(self._connected, None))
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._last: tuple[list[Metric], Mapping[str, str]] | None = None
        """What the last push has."""
        self._subscribed = asyncio.Event()
        """Set with the first subscription, and at the end."""

    def _connected(self, connection: Connection) -> None:
        if self._task is None and not self._closing.is_set() and _serves(connection):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="client telemetry")

    async def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client; connect if there is no connection yet.

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics) and
        ClusterUnreachable.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._client.any_broker()
                if self._task is None:
                    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, NOT_SERVED)
                await self._subscribed.wait()
        except TimeoutError:
            text = f"no client instance id after {timeout_ms} ms"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if self._state.client_instance_id == ZERO_UUID:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, self._state.reason or "client telemetry has ended")
        return self._state.client_instance_id

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send the last push, with the metrics of now, and wait for it for a part of this time.

        Afterwards nothing is sent.
        """
        if not self._closing.is_set() and self._task is not None:
            # The client may have ended its group when a push in progress has its response.
            self._last = self._measure()
        self._closing.set()
        limit_ms = TERMINATING_PUSH_MS_MAX if timeout_ms is None else min(timeout_ms, TERMINATING_PUSH_MS_MAX)
        task = self._task
        if task is not None:
            try:
                await asyncio.wait({task}, timeout=limit_ms / 1000)
            finally:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._client.traffic = self._task = None

    async def _run(self) -> None:
        try:
            action = step(self._state, TimeReached(), self._now_ms())
            while not isinstance(action, Stop):
                event = await self._perform(action)
                action = step(self._state, event, self._now_ms())
                if self._state.client_instance_id != ZERO_UUID:
                    self._subscribed.set()
                if self._closing.is_set() and not self._state.is_closing:
                    action = step(self._state, Closing(), self._now_ms())
            if action.reason:
                logger.warning("client telemetry is not sent: %s", action.reason)
        except Exception:
            logger.exception("client telemetry failed")  # The client works without it.
        finally:
            self._subscribed.set()

    async def _perform(self, action: Action) -> Event:
        """Return the outcome of the action."""
        if isinstance(action, WaitUntil):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, action.at_ms - self._now_ms()) / 1000):
                    await self._closing.wait()
            return TimeReached()
        connection = next(filter(_serves, self._client.open_connections()), None)
        if connection is None:
            return NoResponse()
        try:
            if isinstance(action, GetSubscription):
                return await self._get_subscription(connection, action)
            assert isinstance(action, Push)
            return await self._push(connection, action)
        except ApiError as error:
            return NoResponse(is_permanent=error.code is ErrorCode.UNSUPPORTED_VERSION)
        except KctlError as error:
            logger.debug("client telemetry: no response: %s", error)
            return NoResponse()

    async def _get_subscription(self, connection: Connection, action: GetSubscription) -> Event:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=action.client_instance_id)
        response = await connection.send(request, GetTelemetrySubscriptionsResponse)
        return SubscriptionReceived(
            ErrorCode.of(response.error_code),
            response.client_instance_id,
            Subscription(
                response.subscription_id,
                tuple(response.requested_metrics),
                response.push_interval_ms,
                min(response.telemetry_max_bytes, PUSH_BYTES_MAX),
                response.delta_temporality,
                tuple(response.accepted_compression_types),
            ),
            random.uniform(JITTER_MIN, JITTER_MAX),
        )

    async def _push(self, connection: Connection, action: Push) -> Event:
        subscription = action.subscription
        now_ns = time.time_ns()
        metrics, resource = self._last or self._measure()
        chosen = selected(metrics, subscription.prefixes)
        points = self._totals.points(chosen, now_ns, is_delta=subscription.is_delta)
        if not points:
            return PushReceived(ErrorCode.NONE)
        payload = await asyncio.to_thread(
            packed,
            points,
            resource,
            now_ns,
            is_delta=subscription.is_delta,
            codec=action.codec,
            bytes_max=subscription.bytes_max,
        )
        if payload is None:
            return PushReceived(ErrorCode.TELEMETRY_TOO_LARGE)
        request = PushTelemetryRequest(
            client_instance_id=action.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=action.is_terminating,
            compression_type=action.codec,
            metrics=payload,
        )
        error = ErrorCode.of((await connection.send(request, PushTelemetryResponse)).error_code)
        if error is ErrorCode.NONE:
            self._totals.confirm()
        return PushReceived(error)

    def _measure(self) -> tuple[list[Metric], Mapping[str, str]]:
        """Return all metrics and the attributes of the client."""
        window = self._traffic.take()
        return self._connection_metrics(window) + self._collect(window), self._resource()

    def _connection_metrics(self, window: Window) -> list[Metric]:
        prefix, traffic = self._prefix, self._traffic
        elapsed_s = max(1, self._now_ms() - window.start_ms) / 1000
        metrics = [
            Metric(f"{prefix}.connection.creation.total", traffic.connections, is_total=True),
            Metric(f"{prefix}.connection.creation.rate", window.connections / elapsed_s),
            Metric(f"{prefix}.request.total", traffic.requests, is_total=True),
        ]
        for address, times in window.by_address.items():
            node_id = self._client.node_id_at(address)
            if node_id is not None:
                labels = (("node_id", str(node_id)),)
                metrics.append(Metric(f"{prefix}.node.request.latency.avg", times.average, labels=labels))
                metrics.append(Metric(f"{prefix}.node.request.latency.max", times.maximum, labels=labels))
        return metrics


def _serves(connection: Connection) -> bool:
    return connection.versions.supports(GetTelemetrySubscriptionsRequest) and connection.versions.supports(
        PushTelemetryRequest
    )


async def fetch_client_instance_id(reporter: TelemetryReporter | None, timeout_ms: int) -> UUID:
    """Return the id of a client that may have no telemetry.  Raises UsageError, and as `client_instance_id`."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise UsageError(f"timeout_ms must be an int from 0, not {timeout_ms!r}")
    if reporter is None:
        raise UsageError("the client has an id for telemetry only with enable_metrics_push=True")
    return await reporter.client_instance_id(timeout_ms)
