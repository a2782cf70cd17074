"""CreateTopics (key 19, versions 0-7): writes new topics to ZooKeeper and waits until their partitions have leaders.

Only the active controller answers; others say NOT_CONTROLLER.  Each topic succeeds or fails by itself.  A topic that
was written but has no leaders when the time is up, or any topic when there is no time (timeout_ms <= 0), answers
REQUEST_TIMED_OUT although it exists or will.

Version notes: 1 validate_only and messages; 4 the broker's defaults (KIP-464; older requests that ask for them get
them too); 5 the answer describes the topic (KIP-525); 7 topic ids (KIP-516).

Not done: policies, quotas on changes, authorization.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from kctl.config.described import describe_topic
from kctl.config.dynamic import ConfigView
from kctl.environment import Random
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.server.metadata_cache import MetadataCache
from kctl.server.metadata_waits import MetadataWaits
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import SUCCESS, TIMED_OUT, Outcome, outcome_of
from kctl.server.topic_plans import NewTopicPlan, PartitionRoom, plan_new_topic
from kctl.server.topic_writer import TopicWriter

_NOT_CONTROLLER = Outcome(ErrorCode.NOT_CONTROLLER)
_NAMED_TWICE = Outcome(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")


class CreateTopicsHandler:
    """Owner: event loop."""

    def __init__(
        self,
        topics: TopicWriter,
        metadata: MetadataCache,
        waits: MetadataWaits,
        configs: ConfigView,
        random: Random,
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._waits = waits
        self._configs = configs
        self._random = random
        self._is_controller = is_controller
        self._under_way: set[str] = set()

    async def handle(self, request: CreateTopicsRequest, _context: RequestContext) -> CreateTopicsResponse:
        if not self._is_controller():
            return _response([(topic.name, _NOT_CONTROLLER) for topic in request.topics])
        plans, outcomes = self._plan(request)
        if not request.validate_only:
            outcomes |= await self._create_all(plans, request.timeout_ms)
        named = Counter(topic.name for topic in request.topics)
        answers = [(topic.name, outcomes[topic.name]) for topic in request.topics]
        response = _response([(name, _NAMED_TWICE if named[name] > 1 else outcome) for name, outcome in answers])
        for result in response.topics:
            if result.error_code == ErrorCode.NONE:
                self._describe(result, plans[result.name])
        return response

    def _plan(self, request: CreateTopicsRequest) -> tuple[dict[str, NewTopicPlan], dict[str, Outcome]]:
        """What can be created, and for every topic how that looks by now."""
        plans: dict[str, NewTopicPlan] = {}
        outcomes: dict[str, Outcome] = {}
        named = Counter(topic.name for topic in request.topics)
        brokers = {broker_id: broker.rack for broker_id, broker in self._metadata.brokers.items()}
        existing = {*self._metadata.topics, *self._under_way}
        room = PartitionRoom(self._metadata.total_partition_count())
        for topic in request.topics:
            outcomes[topic.name] = SUCCESS
            if named[topic.name] > 1:
                continue
            try:
                plans[topic.name] = plan_new_topic(
                    topic,
                    existing=existing,
                    brokers=brokers,
                    config=self._configs.current,
                    random=self._random,
                    room=room,
                )
                existing.add(topic.name)
            except ApiError as error:
                outcomes[topic.name] = Outcome.of(error)
        return plans, outcomes

    async def _create_all(self, plans: Mapping[str, NewTopicPlan], timeout_ms: int) -> dict[str, Outcome]:
        # A topic's configuration is written before its node; a second request for it must not write over that.
        self._under_way.update(plans)
        try:
            written = await asyncio.gather(*(self._create(plan, timeout_ms) for plan in plans.values()))
        finally:
            self._under_way.difference_update(plans)
        return dict(zip(plans, written, strict=True))

    async def _create(self, plan: NewTopicPlan, timeout_ms: int) -> Outcome:
        outcome = await outcome_of(self._topics.create(plan.name, plan.assignment, plan.overrides))
        if not outcome.is_success:
            return outcome
        # What the other brokers read when they hear of the topic is known here before any of it is led.
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


def _response(outcomes: list[tuple[str, Outcome]]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes
        ]
    )
