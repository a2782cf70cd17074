"""Reads what brokers say about their clients: from their metrics, because no request returns it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import monotonic
from typing import NamedTuple

from kctl.admin.cluster.clients import CLIENT_NAMES, ClientMetrics, client_metrics
from kctl.admin.cluster.metrics import endpoint_of, is_of_broker, read_metrics
from kctl.admin.doctor.parts import Parts
from kctl.admin.doctor.snapshot import BrokerState, ClientSoftwareState, DeniedState, OldRequestState, ThrottledState
from kctl.admin.security.quotas import describe_quotas
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ClusterUnreachable
from kctl.output.quantities import counted

SCRAPE_S_MAX = 2.0
"""How long one endpoint may take."""
THROTTLED_MAX = 20
"""Throttled clients of a broker in a snapshot: those that wait longest."""
DENIED_MAX = 20
"""Denied operations of a broker in a snapshot: those that were denied most often."""
FETCH_OF_KAFKA_4 = 4
"""The lowest version of Fetch of brokers that refuse old clients."""


class ClientStates(NamedTuple):
    """The fields of a snapshot that are about clients."""

    clients: tuple[ClientSoftwareState, ...] = ()
    old_requests: tuple[OldRequestState, ...] = ()
    throttled: tuple[ThrottledState, ...] = ()
    denied: tuple[DeniedState, ...] = ()


async def read_clients(
    client: ClusterClient, metadata: ClusterMetadata, brokers: Collection[BrokerState], parts: Parts
) -> ClientStates:
    """Return the clients of the brokers that respond; what cannot be seen is a part that is not seen.

    Without metrics it is only said if it matters: old clients before an upgrade to Kafka 4, throttling if there are
    quotas.
    """
    alive = [broker for broker in brokers if broker.problem is None]
    endpoints = await asyncio.gather(*(_endpoint(client, metadata, broker.broker_id) for broker in alive))
    readings = await asyncio.gather(*(_read(endpoint) for endpoint in endpoints))
    found = {broker.broker_id: reading for broker, reading in zip(alive, readings, strict=True) if reading is not None}
    blind = [broker for broker, reading in zip(alive, readings, strict=True) if reading is None]
    ids = ", ".join(str(broker.broker_id) for broker in blind)
    reason = f"no endpoint for metrics of broker {ids} could be read, and no request returns it"
    if any(_accepts_old_clients(broker) for broker in blind):
        parts.note("versions of clients", reason)
    quotas, _ = await parts.read("quotas", describe_quotas(client), ([], 0)) if blind else ([], 0)
    if quotas:
        parts.note(f"whether {counted(len(quotas), 'quota')} throttle" + ("s" if len(quotas) == 1 else ""), reason)
    return ClientStates(
        tuple(
            ClientSoftwareState(broker_id=broker_id, name=software.name, version=software.version, connections=count)
            for broker_id, reading in found.items()
            for software, count in reading.connections.items()
        ),
        tuple(
            OldRequestState(broker_id=broker_id, api=old.api, version=old.version, count=old.requests)
            for broker_id, reading in found.items()
            for old in reading.old_requests
        ),
        tuple(
            ThrottledState(
                broker_id=broker_id,
                kind=waiting.kind,
                user=waiting.user,
                client_id=waiting.client_id,
                mean_ms=waiting.mean_ms,
            )
            for broker_id, reading in found.items()
            for waiting in reading.throttled[:THROTTLED_MAX]
        ),
        tuple(
            DeniedState(broker_id=broker_id, **denial._asdict())
            for broker_id, reading in found.items()
            for denial in reading.denied[:DENIED_MAX]
        ),
    )


def _accepts_old_clients(broker: BrokerState) -> bool:
    lowest = broker.apis.get("Fetch", "").partition("-")[0]
    return not lowest.isdecimal() or int(lowest) < FETCH_OF_KAFKA_4


async def _endpoint(client: ClusterClient, metadata: ClusterMetadata, broker_id: int) -> tuple[str, int] | None:
    try:
        endpoint = await endpoint_of(client, broker_id)
    except (ApiError, ClusterUnreachable):
        return None
    return endpoint if endpoint is not None and is_of_broker(endpoint, metadata.brokers[broker_id].host) else None


async def _read(endpoint: tuple[str, int] | None) -> ClientMetrics | None:
    if endpoint is None:
        return None
    end_s = monotonic() + SCRAPE_S_MAX
    try:
        return client_metrics(
            await asyncio.to_thread(read_metrics, *endpoint, lambda: end_s - monotonic(), names=CLIENT_NAMES)
        )
    except (ClusterUnreachable, TimeoutError):
        return None
