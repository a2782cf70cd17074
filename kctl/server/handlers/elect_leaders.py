"""ElectLeaders (key 43, versions 0-2): holds preferred or unclean leader elections.  KIP-183, KIP-460.

Only the active controller serves it.  The response is sent when the metadata has the new leaders; a partition without
a new leader at the timeout gets REQUEST_TIMED_OUT.  The response to a request for all partitions omits those that
need no election.

Version notes: 0 preferred only; 1 unclean elections and a top-level error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kctl.security.acls import Operation
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.loop.slices import sliced
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext

UNCLEAN = 1


class ElectLeadersHandler:
    """Serves ElectLeaders requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner, metadata: MetadataCache, waits: MetadataWaits) -> None:
        self._controller = controller
        self._metadata = metadata
        self._waits = waits

    async def handle(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        """Serve one request and return the response."""
        selected = None
        if request.topic_partitions is not None:
            selected = tuple([tp async for tp in sliced(_partitions(request.topic_partitions))])
        if not context.allows_on_cluster(Operation.ALTER):
            return await _refused(selected, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not self._controller.state.is_active:
            return await _refused(selected, ErrorCode.NOT_CONTROLLER)
        leaders = self._controller.state.leaders
        named = list(leaders) if selected is None else selected
        before = {tp: leaders[tp].leader_epoch async for tp in sliced(named) if tp in leaders}
        elected = await self._controller.elect_leaders(selected, is_unclean=request.election_type == UNCLEAN)
        outcome = dict(elected)
        if selected is None:
            outcome = {tp: code for tp, code in outcome.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        async for topic_partition, code in sliced(outcome.items()):
            if code is ErrorCode.NONE and not await self._is_known(
                topic_partition, before.get(topic_partition, -1), request.timeout_ms
            ):
                outcome[topic_partition] = ErrorCode.REQUEST_TIMED_OUT
        return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=await _by_topic(outcome))

    async def _is_known(self, topic_partition: TopicPartition, old_epoch: int, timeout_ms: int) -> bool:
        def is_newer() -> bool:
            info = self._metadata.partition(topic_partition)
            return info is not None and info.leader_epoch > old_epoch

        return await self._waits.until(topic_partition.topic, is_newer, timeout_ms)


def _partitions(requested: Iterable[TopicPartitions]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.topic, partition) for topic in requested for partition in topic.partitions)


async def _refused(selected: tuple[TopicPartition, ...] | None, error: ErrorCode) -> ElectLeadersResponse:
    results = await _by_topic(dict.fromkeys(selected or (), error))
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


async def _by_topic(outcome: Mapping[TopicPartition, ErrorCode]) -> list[ReplicaElectionResult]:
    """Return the results, sorted by topic and partition."""
    topics: dict[str, dict[int, PartitionResult]] = {}
    async for (topic, partition), code in sliced(outcome.items()):
        message = None if code is ErrorCode.NONE else _REASONS.get(code, code.description)
        topics.setdefault(topic, {})[partition] = PartitionResult(
            partition_id=partition, error_code=code, error_message=message
        )
    return [
        ReplicaElectionResult(topic=topic, partition_result=[results[partition] for partition in sorted(results)])
        for topic, results in sorted(topics.items())
    ]


_REASONS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such partition.",
}
"""Messages for codes whose general description does not apply to an election."""
