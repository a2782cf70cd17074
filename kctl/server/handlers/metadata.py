"""Metadata (key 3, versions 0-13): brokers, topics and partition leaders.

Contains only endpoints of the listener that accepted the connection.  All topics: an empty list in version 0, null
since version 1.  A topic that does not exist is created if the request and auto.create.topics.enable allow it; the
response is then LEADER_NOT_AVAILABLE and the client retries.

A broker that has just started has no metadata from a controller.  Kafka responds without any broker then, and clients
of librdkafka that look for the controller do not ask again for a minute.  Here the request waits, but not for long: the
controller may be unavailable.  The response is then as in Kafka, and topics that have a configuration are
LEADER_NOT_AVAILABLE, because these exist.

Version notes: 0 lists only live replicas, with REPLICA_NOT_AVAILABLE; 1 racks, controller, internal flag; 2 cluster id;
4 the client may forbid creation; 5 offline replicas; 7 leader epochs; 8 authorized operations; 10 topic ids, in
responses only; 12 requests by topic id: clients of the consumer protocol are assigned topics by id; 13 an error
of the whole response, which this broker has no reason for (REBOOTSTRAP_REQUIRED).  Names are no
secret for clients that may describe a topic; for others, and for ids without a topic, the response has the id only.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Awaitable, Collection
from uuid import UUID

from kctl.config.dynamic import ConfigView
from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.model import INTERNAL_TOPICS, ZERO_UUID, topic_name_problem
from kctl.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.cluster.topics.automatic import AutoTopics
from kctl.server.loop.slices import Slices, batches, sliced_batches, started
from kctl.server.peers.metadata import MetadataCache, PartitionInfo
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import authorized_cluster_operations, authorized_operations

FIRST_VERSION_WITH_CONTROL_OF_CREATION = 4
FIRST_VERSION_WITH_LISTENER_ERRORS = 6
FIRST_VERSION_WITH_REQUESTS_BY_ID = 12
NO_LEADER = -1
FIRST_METADATA_WAIT_S = 5.0
"""How long a request waits for metadata from a controller, after the start of the broker."""


class MetadataHandler:
    """Serves Metadata requests.  Owner: event loop."""

    def __init__(
        self,
        cluster_id: str,
        metadata: MetadataCache,
        auto_topics: AutoTopics,
        configs: ConfigView,
        known: asyncio.Event,
    ) -> None:
        """`known` is set when a controller has sent metadata with this broker."""
        self._cluster_id = cluster_id
        self._known = known
        self._metadata = metadata
        self._auto_topics = auto_topics
        self._configs = configs

    def handle(
        self, request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse | Awaitable[MetadataResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if self._known.is_set():
            return started(self._respond(request, context))
        return self._respond_when_known(request, context)

    async def _respond_when_known(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_METADATA_WAIT_S):
                await self._known.wait()
        return await self._respond(request, context)

    async def _respond(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        slices = Slices(SLICE_OBJECTS)
        requested = request.topics
        is_all = requested is None or (context.api_version == 0 and not requested)
        if requested is None or is_all:
            # The names of 100,000 topics are sorted in parts, because sorting them together takes 50 ms.
            in_order = [sorted(names) async for names in sliced_batches(list(self._metadata.topics))]
            distinct = [MetadataRequestTopic(name=name) async for name in slices.of(heapq.merge(*in_order))]
        else:
            distinct = list({(topic.name, topic.topic_id): topic async for topic in slices.of(requested)}.values())
        topics = await self._topics(request, context, distinct, slices, is_all=is_all)
        return self._response(request, context, topics)

    async def _topics(
        self,
        request: MetadataRequest,
        context: RequestContext,
        requested: list[MetadataRequestTopic],
        slices: Slices,
        *,
        is_all: bool,
    ) -> list[MetadataResponseTopic]:
        results: list[MetadataResponseTopic] = []
        version = context.api_version
        may_create = request.allow_auto_topic_creation or version < FIRST_VERSION_WITH_CONTROL_OF_CREATION
        async for topic in slices.of(requested):
            is_by_id = topic.topic_id != ZERO_UUID
            if (topic.name is None or is_by_id) and version < FIRST_VERSION_WITH_REQUESTS_BY_ID:
                results.append(_failed(topic.name or "", ErrorCode.INVALID_REQUEST))
                continue
            name = self._metadata.topic_name(topic.topic_id) if is_by_id else topic.name
            if name is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.INVALID_REQUEST
                results.append(_failed_id(topic.topic_id, error))
                continue
            if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (name,), is_logged=not is_all):
                if is_by_id:
                    results.append(_failed_id(topic.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                elif not is_all:
                    # As for a topic that does not exist: the response must not reveal which topics exist.
                    results.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, is_internal=False))
                continue
            if is_all and self._metadata.partitions(name) is None:
                continue  # It was deleted meanwhile, and must not be created by this request.
            result = await self._topic(name, context, slices, may_create=may_create and not is_by_id)
            is_refused = result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if request.include_topic_authorized_operations and not is_refused:
                result.topic_authorized_operations = authorized_operations(context, ResourceType.TOPIC, name)
            results.append(result)
        return results

    def _response(
        self, request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
    ) -> MetadataResponse:
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker_id, broker in sorted(self._metadata.brokers.items())
                if (endpoint := broker.endpoint(context.listener)) is not None
            ],
            cluster_id=self._cluster_id,
            controller_id=self._metadata.controller_id,
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = authorized_cluster_operations(context)
        return response

    async def _topic(
        self, name: str, context: RequestContext, slices: Slices, *, may_create: bool
    ) -> MetadataResponseTopic:
        partitions = self._metadata.partitions(name)
        if partitions is None:
            may_create = may_create and self._configs.current.auto_create_topics_enable
            if may_create and not _may_create(name, context):
                return _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if topic_name_problem(name) is not None:
                return _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            if name in self._configs.topic_overrides and not self._metadata.topics:
                return _failed(name, ErrorCode.LEADER_NOT_AVAILABLE)
            is_internal = name in INTERNAL_TOPICS
            if is_internal or may_create:
                return _failed(name, self._auto_topics.request(name, context.account))
            return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        brokers = self._metadata.brokers
        alive = {broker_id for broker_id, broker in brokers.items() if broker.endpoint(context.listener) is not None}
        topic_id = self._metadata.topic_id(name)
        results: list[MetadataResponsePartition] = []
        # All partitions as they are now: they may change while other connections are served.
        async for batch in slices.of(batches(sorted(partitions.items())), len):
            results += [self._partition(index, info, context.api_version, alive) for index, info in batch]
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=results,
        )

    def _partition(
        self, index: int, info: PartitionInfo, version: int, alive: Collection[int]
    ) -> MetadataResponsePartition:
        """`alive` are the brokers with an endpoint of the client's listener."""
        replicas, isr = list(info.replicas), list(info.isr)
        leader = info.leader
        error = ErrorCode.NONE
        if leader not in alive:
            is_listener_missing = leader in self._metadata.brokers and version >= FIRST_VERSION_WITH_LISTENER_ERRORS
            error = ErrorCode.LISTENER_NOT_FOUND if is_listener_missing else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        if version == 0:
            # Clients of this version treat a replica without a listed broker as a malformed response.
            live_replicas, live_isr = (
                [replica for replica in replicas if replica in alive],
                [replica for replica in isr if replica in alive],
            )
            if error is ErrorCode.NONE and (len(live_replicas) < len(replicas) or len(live_isr) < len(isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, isr = live_replicas, live_isr
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(info.offline_replicas),
        )


def _may_create(name: str, context: RequestContext) -> bool:
    cluster = (CLUSTER_NAME,)
    if not context.denied(Operation.CREATE, ResourceType.CLUSTER, cluster, is_logged=False):
        return True
    return context.allows(Operation.CREATE, ResourceType.TOPIC, name)


def _failed(name: str, error: ErrorCode, *, is_internal: bool | None = None) -> MetadataResponseTopic:
    if is_internal is None:
        is_internal = name in INTERNAL_TOPICS
    return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal, partitions=[])


def _failed_id(topic_id: UUID, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id, partitions=[])
