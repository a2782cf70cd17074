"""CreateTopics (key 19, versions 0-7): writes new topics to ZooKeeper and waits until their partitions have leaders.

Only the active controller serves it; other brokers respond with NOT_CONTROLLER.  Each topic has its own result.  A
topic without leaders when timeout_ms has passed, or any topic with timeout_ms <= 0, gets REQUEST_TIMED_OUT although it
exists or will be created.

A topic whose name is that of a topic that is being deleted is created when that is deleted.  TOPIC_ALREADY_EXISTS, with
a message that says so, is the result if timeout_ms passes first, and at once with validate_only or timeout_ms <= 0.

Version notes: 1 validate_only and messages; 4 the broker's defaults for a partition count or replication factor of -1
(KIP-464; accepted in older requests too); 5 the response describes the topic (KIP-525); 7 topic ids (KIP-516).

Quotas on changes (KIP-599): since version 6 a topic beyond the quota gets THROTTLING_QUOTA_EXCEEDED; topics of older
requests are created, and the client is throttled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from kctl.config.described import describe_topic
from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS
from kctl.protocol.apis.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.cluster.control.deletions import TopicDeletions
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.topics.plans import NewTopicPlan, PartitionRoom, plan_new_topic, replica_count
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import Slices, gather_sliced
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.metadata import MetadataCache
from kctl.server.policies import Policies, TopicCreation
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import SUCCESS, TIMED_OUT, TOPIC_DENIED, Outcome, outcome_of
from kctl.server.requests.quotas.accounts import MutationAllowance
from kctl.system.environment import Random

_KEEPS_CONFIG_ERROR = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
FIRST_VERSION_WITH_STRICT_QUOTA = 6
_NOT_CONTROLLER = Outcome(ErrorCode.NOT_CONTROLLER)
_NAMED_TWICE = Outcome(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")


class CreateTopicsHandler:
    """Serves CreateTopics requests.  Owner: event loop."""

    def __init__(
        self,
        topics: TopicWriter,
        deletions: TopicDeletions,
        metadata: MetadataCache,
        waits: MetadataWaits,
        configs: ConfigView,
        random: Random,
        *,
        is_controller: Callable[[], bool],
        policies: Policies,
    ) -> None:
        self._topics = topics
        self._deletions = deletions
        self._metadata = metadata
        self._waits = waits
        self._configs = configs
        self._random = random
        self._is_controller = is_controller
        self._policies = policies
        self._under_way: set[str] = set()

    async def handle(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        """Serve one request and return the response."""
        if not self._is_controller():
            return _response([(topic.name, _NOT_CONTROLLER) for topic in request.topics])
        names = [topic.name for topic in request.topics]
        denied: frozenset[str] = frozenset()
        if context.denied(Operation.CREATE, ResourceType.CLUSTER, (CLUSTER_NAME,), is_logged=False):
            denied = context.denied(Operation.CREATE, ResourceType.TOPIC, names)
        hidden = context.denied(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, is_logged=False)
        slices = Slices(COSTLY_ELEMENTS_PER_SLICE_MAX)
        try:
            pending = await self._deletions.pending(names)
        except ZooKeeperError:
            pending = frozenset()  # What has to be read or written next fails in the same way.
        plans, outcomes = await self._plan(request, denied, pending, slices)
        if context.account is not None and not request.validate_only:
            is_strict = context.api_version >= FIRST_VERSION_WITH_STRICT_QUOTA
            _take_quota(plans, outcomes, context.account.mutations(is_strict=is_strict))
        if not request.validate_only:
            outcomes |= await self._create_all(plans, pending, request.timeout_ms)
        named = Counter(topic.name for topic in request.topics)
        results = [(topic.name, outcomes[topic.name]) for topic in request.topics]
        response = _response([(name, _NAMED_TWICE if named[name] > 1 else outcome) for name, outcome in results])
        async for result in slices.of(response.topics):
            if result.error_code == ErrorCode.NONE and result.name not in hidden:
                self._describe(result, plans[result.name])
            elif result.name in hidden and result.error_code in _KEEPS_CONFIG_ERROR:
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    async def _plan(
        self, request: CreateTopicsRequest, denied: frozenset[str], pending: frozenset[str], slices: Slices
    ) -> tuple[dict[str, NewTopicPlan], dict[str, Outcome]]:
        """Return the topics that can be created, and the current outcome of every topic in the request.

        Topics whose deletion is pending are planned as if they did not exist.
        """
        plans: dict[str, NewTopicPlan] = {}
        outcomes: dict[str, Outcome] = {}
        named = Counter(topic.name for topic in request.topics)
        brokers = self._metadata.racks()
        existing = _Existing(self._metadata, self._under_way, pending)
        room = PartitionRoom(self._metadata.total_partition_count())
        async for topic in slices.of(request.topics):
            outcomes[topic.name] = SUCCESS
            if named[topic.name] > 1:
                continue
            if topic.name in denied:
                outcomes[topic.name] = TOPIC_DENIED
                continue
            try:
                if request.validate_only and topic.name in pending:
                    raise self._deletions.refusal(topic.name)
                config = self._configs.current
                planned = partial(
                    plan_new_topic,
                    topic,
                    existing=existing,
                    brokers=brokers,
                    config=config,
                    random=self._random,
                    room=room,
                )
                plan = await in_thread(planned) if replica_count(topic, config) > SLICE_OBJECTS else planned()
                self._policies.check_creation(_creation(plan, is_assigned=bool(topic.assignments)))
                plans[topic.name] = plan
                existing.planned.add(topic.name)
            except ApiError as error:
                outcomes[topic.name] = Outcome.of(error)
        existing.planned.clear()
        for name in [planned for planned in plans if planned in existing]:
            # Another request has created it during a pause.
            del plans[name]
            outcomes[name] = Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        return plans, outcomes

    async def _create_all(
        self, plans: Mapping[str, NewTopicPlan], pending: frozenset[str], timeout_ms: int
    ) -> dict[str, Outcome]:
        # A topic's configuration is written before its node; a concurrent request must not overwrite it.
        self._under_way.update(plans)
        try:
            written = await gather_sliced(
                self._create(plan, timeout_ms)
                if plan.name not in pending
                else self._create_after_deletion(plan, timeout_ms)
                for plan in plans.values()
            )
        finally:
            self._under_way.difference_update(plans)
        return dict(zip(plans, written, strict=True))

    async def _create_after_deletion(self, plan: NewTopicPlan, timeout_ms: int) -> Outcome:
        now_s = asyncio.get_running_loop().time
        started_s = now_s()
        outcome = await outcome_of(self._deletions.wait(plan.name, timeout_ms))
        if not outcome.is_success:
            return outcome
        return await self._create(plan, timeout_ms - round((now_s() - started_s) * 1000))

    async def _create(self, plan: NewTopicPlan, timeout_ms: int) -> Outcome:
        outcome = await outcome_of(self._topics.create(plan.name, plan.assignment, plan.overrides))
        if not outcome.is_success:
            return outcome
        # Set before any partition is led here, since other brokers read it when they are notified of the topic.
        self._configs.set_topic(plan.name, plan.overrides)
        if timeout_ms <= 0:
            return TIMED_OUT
        has_leaders = await self._waits.until(
            plan.name, lambda: self._metadata.has_leaders(plan.name, plan.partition_count), timeout_ms
        )
        return SUCCESS if has_leaders else TIMED_OUT

    def _describe(self, result: CreatableTopicResult, plan: NewTopicPlan) -> None:
        result.topic_id = self._metadata.topic_id(plan.name)
        result.num_partitions = plan.partition_count
        result.replication_factor = plan.replication_factor
        result.configs = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(self._configs, plan.overrides)
        ]


class _Existing(Collection[str]):
    """The names that a new topic may not have: not copied, since a request may come for each of thousands of topics."""

    def __init__(self, metadata: MetadataCache, under_way: set[str], pending: frozenset[str]) -> None:
        """Names of `pending` deletions are free, but for a creation that is under way."""
        self._metadata = metadata
        self._under_way = under_way
        self._pending = pending
        self.planned: set[str] = set()
        """Names that the request has taken."""

    def __contains__(self, name: object) -> bool:
        is_known = name in self._metadata.topics and name not in self._pending
        return is_known or name in self._under_way or name in self.planned

    def __iter__(self) -> Iterator[str]:
        return iter({*self._metadata.topics, *self._under_way, *self.planned} - (self._pending - self._under_way))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _take_quota(
    plans: dict[str, NewTopicPlan], outcomes: dict[str, Outcome], allowance: MutationAllowance | None
) -> None:
    """Remove the plans of topics that the quota does not allow."""
    if allowance is None:
        return
    for plan in list(plans.values()):
        try:
            allowance.take(plan.partition_count)
        except ApiError as error:
            outcomes[plan.name] = Outcome.of(error)
            del plans[plan.name]


def _response(outcomes: list[tuple[str, Outcome]]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes
        ]
    )


def _creation(plan: NewTopicPlan, *, is_assigned: bool) -> TopicCreation:
    """Return the argument of a policy.  As in Kafka, either the numbers or the assignment are given."""
    if is_assigned:
        return TopicCreation(plan.name, None, None, plan.assignment, plan.overrides)
    return TopicCreation(plan.name, plan.partition_count, plan.replication_factor, None, plan.overrides)
