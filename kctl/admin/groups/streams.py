"""Resets an application of Kafka Streams to the state before its first start.

The committed offsets of its input topics are reset, those of intermediate topics go to the end, and its internal topics
are deleted.  Kafka: StreamsResetter (kafka-streams-application-reset).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.groups.resets import Reset, Scenario, Target, plan_resets
from kctl.admin.topics.topics import delete_topics
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.lag.facts import GroupDescription
from kctl.model import TopicPartition

# Which topics belong to an application of Kafka Streams. Pure.


_ENDINGS = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
_FOREIGN_KEY_JOIN = re.compile(r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic", re.ASCII)


def is_internal_topic(name: str, application_id: str) -> bool:
    """Return whether Kafka Streams gives such names to the topics that it creates.

    Kafka: StreamsResetter.matchesInternalTopicFormat.
    """
    if not name.startswith(f"{application_id}-"):
        return False
    return name.endswith(_ENDINGS) or _FOREIGN_KEY_JOIN.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class StreamsReset:
    """The resets and deletions.  If there is a problem, nothing must be changed."""

    inputs: tuple[Reset, ...]
    intermediates: tuple[Reset, ...]
    internal_topics: tuple[str, ...]
    problems: tuple[Outcome, ...]
    """Topics that were named but are not internal topics of the application."""

    @property
    def is_possible(self) -> bool:
        """True if all offsets were found and all topics may be deleted."""
        return not self.problems and all(input_.outcome.is_done for input_ in (*self.inputs, *self.intermediates))


async def plan_streams_reset(
    client: ClusterClient,
    group: GroupDescription,
    *,
    inputs: Collection[str],
    intermediates: Collection[str],
    target: Target,
    internal: Collection[str] | None,
) -> StreamsReset:
    """Return the plan for the application whose group is given.

    `target` is where the input topics go; a target from a file lists its partitions itself.  `internal` are the
    internal topics to delete; None for all.
    """
    application_id = group.outcome.name
    is_file = target.scenario is Scenario.FILE
    reset = await plan_resets(client, [group], target, None if is_file else dict.fromkeys(inputs))
    seek: list[Reset] = []
    if intermediates:
        seek = await plan_resets(client, [group], Target(Scenario.LATEST), dict.fromkeys(intermediates))
    names = (await client.metadata()).topics
    named = {*inputs, *intermediates}
    found = {name for name in names if name not in named and is_internal_topic(name, application_id)}
    text = f"it is not an internal topic of {application_id}, or does not exist"
    return StreamsReset(
        tuple(reset) if is_file or inputs else (),
        tuple(seek),
        tuple(sorted(found if internal is None else found.intersection(internal))),
        tuple(Outcome(name, ErrorCode.INVALID_TOPIC_EXCEPTION, text) for name in sorted(set(internal or ()) - found)),
    )


async def execute_streams_reset(
    client: ClusterClient, application_id: str, plan: StreamsReset
) -> tuple[dict[TopicPartition, Outcome], dict[str, Outcome]]:
    """Commit the offsets and, if that has succeeded, delete the topics; return the outcomes of both."""
    offsets = {
        input_.tp: CommittedOffset(input_.new, metadata="")
        for input_ in (*plan.inputs, *plan.intermediates)
        if input_.new is not None
    }
    committed = await commit_offsets(client, application_id, offsets) if offsets else {}
    if not plan.internal_topics or not all(outcome.is_done for outcome in committed.values()):
        return committed, {}
    deleted = await delete_topics(client, plan.internal_topics)
    return committed, {outcome.name: outcome for outcome in deleted}
