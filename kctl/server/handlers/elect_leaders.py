"""ElectLeaders (key 43, versions 0-2): holds preferred or unclean leader elections.  KIP-183, KIP-460.

Only the active controller serves it.  The response is sent when the metadata has the new leaders; a partition without
a new leader at the timeout gets REQUEST_TIMED_OUT.  The response to a request for all partitions omits those that
need no election.

Version notes: 0 preferred only; 1 unclean elections and a top-level error.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kctl.security.acls import Operation
from kctl.server.controller.runner import ControllerRunner
from kctl.server.metadata_cache import MetadataCache
from kctl.server.metadata_waits import MetadataWaits
from kctl.server.requests.context import RequestContext

UNCLEAN = 1


class ElectLeadersHandler:
    """Serves ElectLeaders requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner, metadata: MetadataCache, waits: MetadataWaits) -> None:
        self._controller = controller
        self._metadata = metadata
        self._waits = waits

    async def handle(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        """Serves one request and returns the response."""
        requested = request.topic_partitions
        selected = (
            None if requested is None else tuple(TopicPartition(t.topic, p) for t in requested for p in t.partitions)
        )
        if not context.allows_on_cluster(Operation.ALTER):
            return _refused(selected, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not self._controller.state.is_active:
            return _refused(selected, ErrorCode.NOT_CONTROLLER)
        before = {tp: known.leader_epoch for tp, known in self._controller.state.leaders.items()}
        elected = await self._controller.elect_leaders(selected, is_unclean=request.election_type == UNCLEAN)
        outcome = dict(elected)
        if selected is None:
            outcome = {tp: code for tp, code in outcome.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        for topic_partition, code in outcome.items():
            if code is ErrorCode.NONE and not await self._is_known(
                topic_partition, before.get(topic_partition, -1), request.timeout_ms
            ):
                outcome[topic_partition] = ErrorCode.REQUEST_TIMED_OUT
        return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=_by_topic(outcome))

    async def _is_known(self, topic_partition: TopicPartition, old_epoch: int, timeout_ms: int) -> bool:
        def is_newer() -> bool:
            info = self._metadata.partition(topic_partition)
            return info is not None and info.leader_epoch > old_epoch

        return await self._waits.until(topic_partition.topic, is_newer, timeout_ms)


def _refused(selected: tuple[TopicPartition, ...] | None, error: ErrorCode) -> ElectLeadersResponse:
    results = _by_topic(dict.fromkeys(selected or (), error))
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


def _by_topic(outcome: Mapping[TopicPartition, ErrorCode]) -> list[ReplicaElectionResult]:
    topics: dict[str, list[PartitionResult]] = {}
    for (topic, partition), code in sorted(outcome.items()):
        message = None if code is ErrorCode.NONE else _REASONS.get(code, code.description)
        topics.setdefault(topic, []).append(
            PartitionResult(partition_id=partition, error_code=code, error_message=message)
        )
    return [ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in topics.items()]


_REASONS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such partition.",
}
"""Messages for codes whose general description does not apply to an election."""
