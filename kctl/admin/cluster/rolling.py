"""Restarts one broker of a rolling restart, and waits until the cluster is healthy again.

The restart itself is the caller's.  A broker that is stopped by SIGTERM transfers its leaders before it ends
(controlled shutdown), so that clients find the new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from kctl.admin.cluster.health import DISK_PROBLEMS, Observation, health_reasons
from kctl.admin.cluster.observation import observe, read_quorum
from kctl.admin.cluster.quorum import has_returned
from kctl.admin.cluster.rolling_plan import BROKER, RollStep, preferred_elsewhere
from kctl.admin.placement.election import ElectionType, elect_leaders
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import ConnectionLost
from kctl.client.metadata import Broker
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.output.quantities import counted

_POLL_MS = 200
_REASONS_SHOWN = 3
_CONTROLLER_CONNECT_S = 5


class RollStopped(KctlError):
    """The rolling restart must not continue; the text is the reason."""


class NotHealthy(RollStopped):
    """The cluster had a problem before the restart of a broker."""


class RollingRestart:
    """Restarts brokers of one cluster.  Owner: event loop."""

    def __init__(self, settings: ClientSettings, brokers: Mapping[int, Broker]) -> None:
        """`brokers` are all brokers of the cluster: any of them may be the one that does not respond."""
        addresses = dict.fromkeys((*settings.bootstrap, *((broker.host, broker.port) for broker in brokers.values())))
        self._settings = settings._replace(bootstrap=tuple(addresses))
        self._brokers = frozenset(brokers)
        self._transport = AsyncioTransport()

    async def restart(
        self,
        step: RollStep,
        run: Callable[[], Awaitable[None]],
        *,
        timeout_s: float,
        on_progress: Callable[[str], None],
    ) -> None:
        """Restarts one broker or controller by awaiting `run`; returns when the cluster is as before.

        All replicas are in sync then, its leaders are back, and a controller follows the metadata quorum, or leads it.

        Raises RollStopped: the cluster is not healthy before, or not within the time, or the node was not restarted;
        and what `run` raises.
        """
        node_id = step.broker.node_id
        name = f"broker {node_id}" if step.is_broker else f"controller {node_id}"
        stage = "its state cannot be read"
        try:
            async with asyncio.timeout(timeout_s):
                problem = await self._problem(stopped=node_id)
                if problem is not None:
                    raise NotHealthy(f"the cluster is not healthy: {problem}")
                async with ClusterClient(self._settings, self._transport) as client:
                    # To the process that runs now: the connection ends with it.
                    old = await client.broker(node_id) if step.is_broker else None
                    ended = None if step.is_broker else await _end_of_process(step.broker)
                    on_progress("restarting")
                    stage = "the restart has not ended"
                    await run()
                    stage = "the restart has ended, but the old process still serves"
                    while old is not None and old.is_open:
                        await client.transport.sleep(_POLL_MS)
                    if ended is not None:
                        await ended
                if step.role != BROKER:
                    stage = "the controller does not follow the metadata quorum"
                    on_progress("waiting for the metadata quorum")
                    await self._wait_until_following(node_id)
                stage = "not all replicas are in sync"
                on_progress("waiting for in-sync replicas")
                await self._wait_until_healthy()
                if step.is_broker:
                    stage = "the preferred leaders are not elected"
                    await self._elect_preferred(node_id, on_progress)
        except TimeoutError:
            raise RollStopped(f"{name}: {stage} after {timeout_s:g} s{await self._cause()}") from None
        except ConnectionLost as error:
            raise RollStopped(f"{name}: {error}") from None

    async def _wait_until_following(self, node_id: int) -> None:
        """Wait until a voter that was restarted leads the quorum, or has caught up with its leader."""
        since: tuple[int, int | None] | None = None
        while True:
            with suppress(ClusterUnreachable, ConnectionLost):
                async with ClusterClient(self._settings, self._transport) as client:
                    with client.one_deadline():
                        quorum = (await read_quorum(client)).quorum
                if quorum is not None:
                    if has_returned(quorum, node_id, since):
                        return
                    if since is None or since[0] != quorum.leader_epoch:
                        since = (quorum.leader_epoch, quorum.leader_time_ms)
            await self._transport.sleep(_POLL_MS)

    async def _wait_until_healthy(self) -> None:
        while await self._problem() is not None:
            await self._transport.sleep(_POLL_MS)

    async def _elect_preferred(self, broker_id: int, on_progress: Callable[[str], None]) -> None:
        """Make the broker the leader of the partitions that prefer it.  Raises RollStopped."""
        async with ClusterClient(self._settings, self._transport) as client:
            metadata = await client.metadata()
            partitions = preferred_elsewhere(metadata, broker_id)
            if not partitions:
                return
            on_progress(f"electing it as the leader of {counted(len(partitions), 'partition')}")
            for election in await elect_leaders(client, ElectionType.PREFERRED, partitions, metadata):
                # The controller may have elected it meanwhile.
                if not election.is_elected and election.is_needed:
                    raise RollStopped(f"{election.tp}: broker {broker_id} is not elected: {election.outcome.message}")

    async def _problem(self, stopped: int | None = None) -> str | None:
        """Why the cluster is not healthy, or would lose its metadata quorum without the node `stopped`; None if not."""
        try:
            async with ClusterClient(self._settings, self._transport) as client:
                with client.one_deadline():
                    seen = await observe(client)
                    quorum = seen.quorum.quorum if seen.quorum is not None else None
                    alone = quorum.problem_without(stopped) if quorum is not None and stopped is not None else None
                    return alone or _text_of(seen) or self._missing(seen) or await self._disagreement(client, seen)
        except (ClusterUnreachable, ConnectionLost) as error:
            return str(error)
        except ApiError as error:
            if error.code in {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}:
                raise
            return str(error)

    def _missing(self, seen: Observation) -> str | None:
        missing = sorted(self._brokers - seen.metadata.brokers.keys())
        return f"brokers {', '.join(map(str, missing))} are not alive" if missing else None

    async def _disagreement(self, client: ClusterClient, seen: Observation) -> str | None:
        """Find a broker whose metadata lacks others: its clients would not find them."""
        for broker_id in seen.metadata.brokers:
            known = (await client.metadata_from(await client.broker(broker_id), [])).brokers
            if known.keys() != seen.metadata.brokers.keys():
                return f"broker {broker_id} does not have all brokers in its metadata yet"
        return None

    async def _cause(self) -> str:
        """Return the present problem of the cluster, as the end of a message."""
        with suppress(KctlError, TimeoutError):
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                problem = await self._problem()
                return f": {problem}" if problem is not None else ""
        return ""


async def _end_of_process(controller: Broker) -> asyncio.Future[bytes] | None:
    """Return the end of a connection to the process that runs now; None if its address is unknown or is not reached.

    A controller may have other listeners and credentials than the brokers: nothing is sent.
    """
    if not controller.host:
        return None
    try:
        async with asyncio.timeout(_CONTROLLER_CONNECT_S):
            reader, writer = await asyncio.open_connection(controller.host, controller.port)
    except OSError:
        return None

    async def read_to_end() -> bytes:
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    return asyncio.ensure_future(read_to_end())


def _text_of(seen: Observation) -> str | None:
    reasons = [reason for reason in health_reasons(seen) if reason.problem not in DISK_PROBLEMS]
    if not reasons:
        return None
    shown = []
    for reason in reasons[:_REASONS_SHOWN]:
        where = reason.tp or (f"broker {reason.broker_id}" if reason.broker_id is not None else "cluster")
        shown.append(f"{where}: {reason.problem.value} ({reason.message})")
    more = len(reasons) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
