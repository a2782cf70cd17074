"""Which topics and partitions `kctl topics list` and `describe` show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.health import partitions_with_problems
from kctl.admin.outcome import Outcome
from kctl.admin.partition_health import PartitionProblem
from kctl.admin.topic_configs import topic_overrides
from kctl.admin.topics import list_topics
from kctl.commands.timed_search import NamePattern
from kctl.commands.topics.rows import topic_id
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic
    from kctl.commands.invocation import Invocation
    from kctl.commands.topics.options import FilterOptions

Configs = dict[str, dict[str, str | None] | Outcome]
"""The properties that each topic has of its own, by the name of the topic."""


class TopicFilters(NamedTuple):
    """The filters that the options of a command line select."""

    problems: frozenset[PartitionProblem]
    """Only partitions with one of these; all partitions if it is empty."""
    has_overrides: bool
    names: NamePattern | None
    ids: NamePattern | None


class Selected(NamedTuple):
    """The topics, and those of their partitions that the filter of problems selects."""

    topics: list[Topic]
    partitions: dict[str, list[int]]
    """Empty without such a filter."""
    configs: Configs


def topic_filters(options: FilterOptions) -> TopicFilters:
    """The filters of these options.  Raises UsageError for an invalid regular expression."""
    flags = {
        PartitionProblem.UNDER_REPLICATED: options.under_replicated,
        PartitionProblem.UNAVAILABLE: options.unavailable,
        PartitionProblem.UNDER_MIN_ISR: options.under_min_isr,
        PartitionProblem.AT_MIN_ISR: options.at_min_isr,
    }
    return TopicFilters(
        problems=frozenset(problem for problem, is_set in flags.items() if is_set),
        has_overrides=options.overrides,
        names=None if options.topic_regex is None else NamePattern("--topic-regex", options.topic_regex),
        ids=None if options.id is None else NamePattern("--id", options.id),
    )


def filtered_topics(run: Invocation, options: FilterOptions, *, internal: bool) -> Selected:
    """The topics of the cluster that match; internal topics only with `internal`.  Raises UsageError."""
    filters = topic_filters(options)

    async def query(client: ClusterClient) -> Selected:
        topics = [topic for topic in await list_topics(client) if internal or not topic.is_internal]
        return await select_topics(client, topics, filters, with_configs=False)

    return run.on_cluster(query)


async def select_topics(
    client: ClusterClient, topics: Sequence[Topic], filters: TopicFilters, *, with_configs: bool
) -> Selected:
    """The topics that match all filters; topics that could not be described stay, with their error.

    `with_configs` reads the properties of the topics also if no filter needs them.
    """
    found = list(topics)
    if filters.names is not None:
        names = set(filters.names.select(topic.name for topic in found))
        found = [topic for topic in found if topic.name in names]
    if filters.ids is not None:
        ids = set(filters.ids.select(topic_id(topic) or "" for topic in found)) - {""}
        found = [topic for topic in found if topic_id(topic) in ids]
    partitions: dict[str, list[int]] = {}
    if filters.problems:
        partitions = await partitions_with_problems(client, found, filters.problems)
        found = _with_errors(found, partitions)
    configs: Configs = {}
    if filters.has_overrides or with_configs:
        described = [topic.name for topic in found if topic.error is ErrorCode.NONE]
        configs = await topic_overrides(client, described) if described else {}
    if filters.has_overrides:
        found = _with_errors(found, {name for name, entries in configs.items() if entries})
    return Selected(found, partitions, configs)


def _with_errors(topics: Sequence[Topic], names: Collection[str]) -> list[Topic]:
    return [topic for topic in topics if topic.name in names or not topic.partitions]
