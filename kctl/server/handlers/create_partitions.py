"""CreatePartitions (key 37, versions 0-3): increases the number of partitions of topics to a given count.  KIP-195.

Only the active controller serves it; other brokers respond with NOT_CONTROLLER.  Replicas are assigned as if the topic
had been created with all partitions, unless the request assigns them.  Waits for leaders as CreateTopics does.

Quotas on changes (KIP-599): since version 3 a topic beyond the quota gets THROTTLING_QUOTA_EXCEEDED; older requests are
served, and the client is throttled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.model import topic_name_problem
from kctl.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.topics.plans import PartitionRoom, count_added_partitions, plan_added_partitions
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import gather_sliced
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import SUCCESS, TIMED_OUT, TOPIC_DENIED, Outcome, outcome_of
from kctl.server.requests.quotas.accounts import MutationAllowance
from kctl.zookeeper import paths
from kctl.zookeeper.operations import ZooKeeper

FIRST_VERSION_WITH_STRICT_QUOTA = 3
_NOT_CONTROLLER = Outcome(ErrorCode.NOT_CONTROLLER)
_NAMED_TWICE = Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")


class CreatePartitionsHandler:
    """Serves CreatePartitions requests.  Owner: event loop."""

    def __init__(
        self,
        topics: TopicWriter,
        zookeeper: ZooKeeper,
        metadata: MetadataCache,
        waits: MetadataWaits,
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._waits = waits
        self._is_controller = is_controller

    async def handle(self, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
        """Serve one request and return the response."""
        named = Counter(topic.name for topic in request.topics)
        requested = {topic.name: topic for topic in request.topics}
        room = PartitionRoom(self._metadata.total_partition_count())
        denied = (
            context.denied(Operation.ALTER, ResourceType.TOPIC, requested) if self._is_controller() else frozenset()
        )
        allowance = None
        if context.account is not None:
            allowance = context.account.mutations(is_strict=context.api_version >= FIRST_VERSION_WITH_STRICT_QUOTA)
        outcomes = await gather_sliced(
            self._outcome(topic, request, room, allowance, is_repeated=named[name] > 1, is_denied=name in denied)
            for name, topic in requested.items()
        )
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
                for name, outcome in zip(requested, outcomes, strict=True)
            ]
        )

    async def _outcome(
        self,
        topic: CreatePartitionsTopic,
        request: CreatePartitionsRequest,
        room: PartitionRoom,
        allowance: MutationAllowance | None,
        *,
        is_repeated: bool,
        is_denied: bool,
    ) -> Outcome:
        if not self._is_controller():
            return _NOT_CONTROLLER
        if is_repeated:
            return _NAMED_TWICE
        if is_denied:
            return TOPIC_DENIED
        outcome = await outcome_of(self._add(topic, room, allowance, validate_only=request.validate_only))
        if not outcome.is_success or request.validate_only:
            return outcome
        if request.timeout_ms <= 0:
            return TIMED_OUT
        has_leaders = await self._waits.until(
            topic.name, lambda: self._metadata.has_leaders(topic.name, topic.count), request.timeout_ms
        )
        return SUCCESS if has_leaders else TIMED_OUT

    async def _add(
        self,
        topic: CreatePartitionsTopic,
        room: PartitionRoom,
        allowance: MutationAllowance | None,
        *,
        validate_only: bool,
    ) -> None:
        """Add the partitions of a topic, or raise ApiError or ZooKeeperError."""
        problem = topic_name_problem(topic.name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if await self._zookeeper.exists(paths.delete_topic(topic.name)) is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        known = await self._topics.assignment(topic.name)
        if known.adding_replicas or known.removing_replicas:
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{topic.name}'.",
            )
        count = count_added_partitions(topic, existing=known.replicas, room=room)
        brokers = self._metadata.racks()
        planned = partial(plan_added_partitions, topic, count, existing=known.replicas, brokers=brokers)
        added = await in_thread(planned) if count * len(known.replicas[0]) > SLICE_OBJECTS else planned()
        if not validate_only:
            if allowance is not None:
                allowance.take(len(added))
            await self._topics.add_partitions(topic.name, added)
