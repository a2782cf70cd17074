"""StreamsGroupHeartbeat (key 88, version 0): a member of a streams group (KIP-1071).

Served with `streams` in group.coordinator.rebalance.protocols.  The response waits until what the heartbeat changes is
replicated.  A client needs to be allowed to describe each topic of its topology, and to create the internal ones, which
are created with the next response.  As in Kafka 4.3, static members, regular expressions and warm-up tasks are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from kctl.errors import ApiError, ErrorCode
from kctl.model import INTERNAL_TOPICS, topic_name_problem
from kctl.protocol.apis.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.cluster.topics.automatic import AutoTopics
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.replies import then
from kctl.server.coordination.streams_groups import state
from kctl.server.coordination.streams_groups.records import subtopology_in, tasks_in
from kctl.server.coordination.streams_groups.requests import StreamsHeartbeat, StreamsOutcome, check_topology_size
from kctl.server.coordination.streams_groups.topology import invalid_topology
from kctl.server.requests.context import RequestContext

_ERRORS_SHOWN_MAX = 3


class StreamsGroupHeartbeatHandler:
    """Serves StreamsGroupHeartbeat requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: AutoTopics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    def handle(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> StreamsGroupHeartbeatResponse | Awaitable[StreamsGroupHeartbeatResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        try:
            context.check(Operation.READ, ResourceType.GROUP, request.group_id)
            topology = _topology(request, context)
        except ApiError as error:
            return _response(StreamsOutcome(error=error.code, message=error.message))
        tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
        endpoint, tags = request.user_endpoint, request.client_tags
        event = StreamsHeartbeat(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topology=topology,
            owned=None if None in tasks else state.TaskSets(*(tasks_in(role or ()) for role in tasks)),
            has_part_of_owned=None in tasks and any(role is not None for role in tasks),
            process_id=request.process_id,
            endpoint=None if endpoint is None else state.Endpoint(endpoint.host, endpoint.port),
            endpoint_epoch=request.endpoint_information_epoch,
            client_tags=None if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
            has_task_offsets=request.task_offsets is not None or request.task_end_offsets is not None,
            requests_shutdown=request.shutdown_application,
            client_id=context.client_id,
            client_host=context.client_host,
        )

        def respond(outcome: StreamsOutcome) -> StreamsGroupHeartbeatResponse:
            response = _response(outcome)
            if outcome.missing:
                self._create(outcome.missing, response, context)
            return response

        return then(self._coordinator.streams_heartbeat(request.group_id, event), respond)

    def _create(
        self, topics: Iterable[state.InternalTopic], response: StreamsGroupHeartbeatResponse, context: RequestContext
    ) -> None:
        """Begin to create internal topics; what is in the way is added to the status."""
        problem = self._problem(list(topics), context)
        for status in response.status or ():
            if problem and status.status_code == state.Status.MISSING_INTERNAL_TOPICS:
                status.status_detail += f"; {problem}."

    def _problem(self, topics: list[state.InternalTopic], context: RequestContext) -> str | None:
        if context.denied(Operation.CREATE, ResourceType.CLUSTER, (CLUSTER_NAME,), is_logged=False):
            denied = context.denied(Operation.CREATE, ResourceType.TOPIC, [topic.name for topic in topics])
            if denied:
                return f"Unauthorized to CREATE on topics {', '.join(sorted(denied))}"
        failures = []
        for topic in topics:
            factor = topic.replication_factor if topic.replication_factor > 0 else None
            try:
                self._topics.create(topic.name, topic.partitions, factor, dict(topic.configs), context.account)
            except ApiError as error:
                failures.append(f"{topic.name} ({error})")
        if not failures:
            return None
        shown = ", ".join(failures[:_ERRORS_SHOWN_MAX])
        more = len(failures) - _ERRORS_SHOWN_MAX
        return f"Creation failed: {shown}" + (f" and {more} more" if more > 0 else "")


def _topology(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> state.Topology | None:
    """Return the topology of the request.  Raises ApiError if it is too large, or names topics that it may not."""
    if request.topology is None:
        return None
    subtopologies = list(map(subtopology_in, request.topology.subtopologies))
    check_topology_size(subtopologies)
    names = sorted(
        {
            name
            for subtopology in subtopologies
            for name in (
                *subtopology.read_topics(),
                *subtopology.repartition_sinks,
                *(topic.name for topic in subtopology.changelogs),
            )
        }
    )
    _check_names(names, INTERNAL_TOPICS.__contains__, "Use of Kafka internal topics {} in a Kafka Streams topology.")
    _check_names(names, lambda name: topic_name_problem(name) is not None, "Topic names {} are not valid topic names.")
    if names and context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return state.Topology(request.topology.epoch, {entry.subtopology_id: entry for entry in subtopologies})


def _check_names(names: Iterable[str], is_wrong: Callable[[str], bool], message: str) -> None:
    if wrong := [name for name in names if is_wrong(name)]:
        raise invalid_topology(message.format(",".join(wrong)))


def _response(outcome: StreamsOutcome) -> StreamsGroupHeartbeatResponse:
    is_error = outcome.error is not ErrorCode.NONE
    response = StreamsGroupHeartbeatResponse(
        error_code=outcome.error,
        error_message=(outcome.message or outcome.error.description) if is_error else None,
        member_id=outcome.member_id,
        member_epoch=outcome.member_epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[Status(status_code=code, status_detail=detail) for code, detail in outcome.statuses or ()],
        endpoint_information_epoch=outcome.endpoint_epoch,
    )
    if outcome.assigned is not None:
        assigned = outcome.assigned.without_epochs()
        response.active_tasks, response.standby_tasks, response.warmup_tasks = map(
            _task_ids, (assigned.active, assigned.standby, assigned.warmup)
        )
    if outcome.endpoints is not None:
        response.partitions_by_user_endpoint = [
            EndpointToPartitions(
                user_endpoint=Endpoint(host=entry.endpoint.host, port=entry.endpoint.port),
                active_partitions=_partitions(entry.active),
                standby_partitions=_partitions(entry.standby),
            )
            for entry in outcome.endpoints
        ]
    return response


def _task_ids(tasks: state.Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(numbers)) for name, numbers in tasks.items()]


def _partitions(topics: Iterable[tuple[str, tuple[int, ...]]]) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=[*numbers]) for topic, numbers in topics]
