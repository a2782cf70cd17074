"""Sends the controller's requests to brokers: one ordered queue per broker.  Kafka: ControllerChannelManager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.metrics.definitions import Durations
from kctl.model import Endpoint, TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kctl.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kctl.server.cluster.controller.actions import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from kctl.server.cluster.controller.control_requests import (
    in_version_of_leader_and_isr,
    in_version_of_stop_replica,
    in_version_of_update_metadata,
    leader_and_isr_request,
    stop_replica_request,
    update_metadata_request,
)
from kctl.server.cluster.controller.events import Event, LeaderAndIsrResponseReceived, StopReplicaResponseReceived
from kctl.server.cluster.controller.state import ControllerState, LiveBroker
from kctl.server.loop.slices import run_steps
from kctl.server.peers.connections import Purpose
from kctl.server.peers.versions import InterBrokerVersions

log = logging.getLogger(__name__)

_RETRY_S = 0.1

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Connect = Callable[[Endpoint, Purpose], Awaitable[Connection]]
"""Opens a connection for a purpose; raises ConnectionLost."""


class ControlPlane(Protocol):
    """How a broker applies the controller's requests."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Apply roles; return the error per partition.  Raises ApiError."""
        ...

    async def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """Apply metadata.  Raises ApiError."""
        ...

    async def stop_replica(self, request: StopReplicaRequest) -> Mapping[TopicPartition, ErrorCode]:
        """Stop replicas; return the error per partition.  Raises ApiError."""
        ...


class _Queue:
    """Requests that wait, and how long they waited, for metrics."""

    def __init__(self) -> None:
        self.times = Durations()
        self._queue: asyncio.Queue[tuple[float, ControlRequest]] = asyncio.Queue()
        self._now_s = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, request: ControlRequest) -> None:
        self._queue.put_nowait((self._now_s(), request))

    async def get(self) -> ControlRequest:
        put_s, request = await self._queue.get()
        self.times.record((self._now_s() - put_s) * 1000)
        return request


class BrokerChannels:
    """One ordered queue per live broker; the local broker gets the same messages by calls.

    A request is retried until the broker responds or is no longer alive; only then is the next one sent.
    Owner: event loop.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        local: ControlPlane,
        connect: Connect,
        versions: InterBrokerVersions,
        listener: str,
        on_response: Callable[[Event], None],
    ) -> None:
        self._broker_id = broker_id
        self._local = _LocalChannel(broker_id, local, on_response)
        self._connect = connect
        self._versions = versions
        self._listener = listener
        self._on_response = on_response
        self._remote: dict[int, _RemoteChannel] = {}

    def queues(self) -> dict[int, tuple[int, Durations]]:
        """Return the number of queued requests, and how long requests have waited, by broker; empty without a
        request.
        """
        found = {broker_id: (len(channel.queue), channel.queue.times) for broker_id, channel in self._remote.items()}
        if self._local.queue is not None:
            found[self._broker_id] = (len(self._local.queue), self._local.queue.times)
        return found

    async def send(
        self, state: ControllerState, action: SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica
    ) -> None:
        """Queue the requests of an action; responses are passed to `on_response`."""
        self._follow(state)
        if isinstance(action, SendUpdateMetadata):
            request = await run_steps(
                update_metadata_request(state, self._broker_id, action.partitions), is_urgent=True
            )
            for broker_id in action.broker_ids:
                self._deliver(broker_id, request, state)
        elif isinstance(action, SendLeaderAndIsr):
            roles = await run_steps(leader_and_isr_request(state, self._broker_id, action), is_urgent=True)
            self._deliver(action.broker_id, roles, state)
        else:
            request_of_stop = stop_replica_request(state, self._broker_id, action)
            self._deliver(action.broker_id, request_of_stop, state)

    async def close(self) -> None:
        """Stop sending; queued requests are dropped."""
        channels, self._remote = list(self._remote.values()), {}
        await asyncio.gather(self._local.close(), *(channel.close() for channel in channels))

    def _follow(self, state: ControllerState) -> None:
        """Keep one channel per live broker; a restarted broker gets a new one, without the requests queued before."""
        for broker_id, channel in list(self._remote.items()):
            live = state.brokers.get(broker_id)
            if live is None or live.epoch != channel.broker_epoch:
                del self._remote[broker_id]
                channel.end()
            elif (endpoint := self._endpoint(live)) is not None:
                channel.endpoint = endpoint

    def _endpoint(self, live: LiveBroker) -> Endpoint | None:
        return next((endpoint for endpoint in live.registration.endpoints if endpoint.listener == self._listener), None)

    def _deliver(self, broker_id: int, request: ControlRequest, state: ControllerState) -> None:
        live = state.brokers.get(broker_id)
        if live is None:
            return
        if broker_id == self._broker_id:
            self._local.put(request)
            return
        channel = self._remote.get(broker_id)
        if channel is None:
            endpoint = self._endpoint(live)
            if endpoint is None:
                message = "cannot send control requests, the broker has no such listener broker=%s listener=%s"
                log.warning(message, broker_id, self._listener)
                return
            channel = self._remote[broker_id] = _RemoteChannel(
                broker_id,
                live.epoch,
                endpoint,
                connect=self._connect,
                versions=self._versions,
                on_response=self._on_response,
            )
        if isinstance(request, UpdateMetadataRequest):
            request = replace(request, broker_epoch=live.epoch)
        channel.put(request)


class _LocalChannel:
    """The queue of the controller's own broker and the task that applies its requests, in order."""

    def __init__(self, broker_id: int, broker: ControlPlane, on_response: Callable[[Event], None]) -> None:
        self._broker_id = broker_id
        self._broker = broker
        self._on_response = on_response
        self.queue: _Queue | None = None
        self._task: asyncio.Task[None] | None = None

    def put(self, request: ControlRequest) -> None:
        if self.queue is None:
            self.queue = _Queue()
            self._task = asyncio.get_running_loop().create_task(self._run(self.queue), name="controller-to-itself")
        self.queue.put(request)

    async def close(self) -> None:
        """Drop the requests that have not been applied."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, queue: _Queue) -> None:
        while True:
            request = await queue.get()
            try:
                await self._apply(request)
            except ApiError as error:
                log.warning("broker refused a control request broker=%s error=%s", self._broker_id, error.code.name)
            except Exception:
                # The next request has to be applied all the same, as by any other broker.
                name = type(request).__name__.removesuffix("Request")
                log.exception("cannot apply control request, continuing broker=%s request=%s", self._broker_id, name)

    async def _apply(self, request: ControlRequest) -> None:
        match request:
            case LeaderAndIsrRequest():
                errors = await self._broker.leader_and_isr(request)
                self._on_response(LeaderAndIsrResponseReceived(self._broker_id, errors))
            case UpdateMetadataRequest():
                await self._broker.update_metadata(request)
            case StopReplicaRequest():
                errors = await self._broker.stop_replica(request)
                if _is_deleting(request):
                    self._on_response(StopReplicaResponseReceived(self._broker_id, errors))


class _RemoteChannel:
    """The queue of one remote broker and the task that sends its requests."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        endpoint: Endpoint,
        *,
        connect: Connect,
        versions: InterBrokerVersions,
        on_response: Callable[[Event], None],
    ) -> None:
        self.broker_epoch = broker_epoch
        self._broker_id = broker_id
        self.endpoint = endpoint
        """For the next connection."""
        self._connect = connect
        self._versions = versions
        self._on_response = on_response
        self.queue = _Queue()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(
            self._run(), name=f"controller-to-{broker_id}"
        )

    def put(self, request: ControlRequest) -> None:
        self.queue.put(request)

    def end(self) -> None:
        """Cancel the task without waiting for it; the broker is gone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel the task and wait for it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                await self._send(await self.queue.get())
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _send(self, request: ControlRequest) -> None:
        while True:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._connect(self.endpoint, Purpose.CONTROLLER)
                await self._exchange(self._connection, request)
                return
            except (ConnectionLost, MalformedRequest) as error:
                log.warning(
                    "cannot send control request, trying again broker=%s request=%s error=%s retry_ms=%d",
                    self._broker_id,
                    type(request).__name__.removesuffix("Request"),
                    error,
                    _RETRY_S * 1000,
                )
                await asyncio.sleep(_RETRY_S)

    async def _exchange(self, connection: Connection, request: ControlRequest) -> None:
        match request:
            case LeaderAndIsrRequest():
                version = self._versions.leader_and_isr
                response = await connection.send(
                    in_version_of_leader_and_isr(request, version), LeaderAndIsrResponse, version=version
                )
                self._log_refusal(response.error_code)
                self._on_response(
                    LeaderAndIsrResponseReceived(self._broker_id, _leader_and_isr_errors(request, response))
                )
            case UpdateMetadataRequest():
                version = self._versions.update_metadata
                metadata = await connection.send(
                    in_version_of_update_metadata(request, version), UpdateMetadataResponse, version=version
                )
                self._log_refusal(metadata.error_code)
            case StopReplicaRequest():
                version = self._versions.stop_replica
                stopped = await connection.send(
                    in_version_of_stop_replica(request, version), StopReplicaResponse, version=version
                )
                self._log_refusal(stopped.error_code)
                if _is_deleting(request):
                    self._on_response(
                        StopReplicaResponseReceived(self._broker_id, _stop_replica_errors(request, stopped))
                    )

    def _log_refusal(self, error_code: int) -> None:
        if error_code != ErrorCode.NONE:
            name = ErrorCode.of(error_code).name
            log.warning("broker refused a control request broker=%s error=%s", self._broker_id, name)


def _is_deleting(request: StopReplicaRequest) -> bool:
    return any(state.delete_partition for topic in request.topic_states for state in topic.partition_states)


def _leader_and_isr_errors(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> dict[TopicPartition, ErrorCode]:
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    errors = {
        TopicPartition(names[topic.topic_id], error.partition_index): ErrorCode.of(error.error_code)
        for topic in response.topics
        if topic.topic_id in names
        for error in topic.partition_errors
    }
    for error in response.partition_errors:
        errors[TopicPartition(error.topic_name, error.partition_index)] = ErrorCode.of(error.error_code)
    return errors


def _stop_replica_errors(request: StopReplicaRequest, response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the error per partition; a request that was refused as a whole deleted nothing."""
    if response.error_code != ErrorCode.NONE:
        code = ErrorCode.of(response.error_code)
        return {
            TopicPartition(topic.topic_name, state.partition_index): code
            for topic in request.topic_states
            for state in topic.partition_states
        }
    return {
        TopicPartition(error.topic_name, error.partition_index): ErrorCode.of(error.error_code)
        for error in response.partition_errors
    }
