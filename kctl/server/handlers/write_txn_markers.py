"""WriteTxnMarkers (key 27, versions 0-2): writes transaction markers to partitions that this broker leads.

Sent by a transaction coordinator, or by an administrator who aborts a hanging transaction (KIP-664).  The response is
sent when the markers are replicated.  A partition that is not on this broker gets UNKNOWN_TOPIC_OR_PARTITION, one with
another leader NOT_LEADER_OR_FOLLOWER, a marker of an old producer epoch INVALID_PRODUCER_EPOCH, one of a replaced
coordinator TRANSACTION_COORDINATOR_FENCED.

Version notes: 1 flexible; 2 the version of the transaction: the epoch of a marker of version 2 is above that of the
records (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.security.acls import Operation
from kctl.server.coordination.transactions.partition_markers import Marker, PartitionMarkers
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext


class WriteTxnMarkersHandler:
    """Serves WriteTxnMarkers requests.  Owner: event loop."""

    def __init__(self, markers: PartitionMarkers) -> None:
        self._markers = markers

    async def handle(self, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
        """Serve one request and return the response."""
        slices = Slices()
        markers = [await _marker(marker, slices) async for marker in slices.of(request.markers)]
        if context.allows_on_cluster(Operation.CLUSTER_ACTION):
            outcomes = await self._markers.write(markers)
        else:
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            outcomes = [dict.fromkeys(marker.partitions, denied) for marker in markers]
        by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for marker, errors in zip(request.markers, outcomes, strict=True):
            by_producer.setdefault(marker.producer_id, {}).update(errors)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(producer_id=producer_id, topics=await _topics(errors.items(), slices))
                async for producer_id, errors in slices.of(by_producer.items())
            ]
        )


async def _marker(requested: WritableTxnMarker, slices: Slices) -> Marker:
    partitions = (TopicPartition(topic.name, index) for topic in requested.topics for index in topic.partition_indexes)
    return Marker(
        ProducerIdAndEpoch(requested.producer_id, requested.producer_epoch),
        requested.transaction_result,
        requested.coordinator_epoch,
        tuple([partition async for partition in slices.of(partitions)]),
        requested.transaction_version,
    )


async def _topics(
    errors: Iterable[tuple[TopicPartition, ErrorCode]], slices: Slices
) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    async for (topic, index), error in slices.of(errors):
        result = topics.setdefault(topic, WritableTxnMarkerTopicResult(name=topic, partitions=[]))
        result.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
    return list(topics.values())
