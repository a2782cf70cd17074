"""`kctl topics describe`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.health import PartitionProblem, partitions_with_problems
from kctl.admin.cluster.observation import read_quorum, unreachable_brokers
from kctl.admin.topics.overrides import topic_overrides
from kctl.admin.topics.topics import EligibleLeaders, describe_topics, eligible_leaders, list_topics
from kctl.client.outcome import Outcome
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.options import (
    FilterOptions,
    topic_id,
    topic_row,
)
from kctl.errors import ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import Column, ErrorName, ErrorText, Format, is_present

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic


# Which topics and partitions `kctl topics list` and `describe` show.


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
    """Return the filters of these options.  Raises UsageError for an invalid regular expression."""
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
        ids=None if options.id_ is None else NamePattern("--topic-id", options.id_),
    )


def filtered_topics(run: Invocation, options: FilterOptions, *, internal: bool) -> Selected:
    """Return the topics of the cluster that match; internal topics only with `internal`.  Raises UsageError."""
    filters = topic_filters(options)

    async def query(client: ClusterClient) -> Selected:
        frozen = await frozen_brokers(run, client) if filters.problems else None
        topics = [topic for topic in await list_topics(client) if internal or not topic.is_internal]
        return await select_topics(client, topics, filters, with_configs=False, unreachable=frozen)

    return run.on_brokers(query) if filters.problems else run.on_cluster(query)


async def frozen_brokers(run: Invocation, client: ClusterClient) -> Collection[int] | None:
    """Warn if the metadata quorum has no leader, so that what brokers say is old.

    Return the brokers that do not respond then; None with a leader, and without KRaft.
    """
    frozen = (await read_quorum(client)).frozen
    if frozen is None:
        return None
    unreachable = await unreachable_brokers(client, await client.metadata([]))
    away = f"; no response from broker {', '.join(map(str, sorted(unreachable)))}" if unreachable else ""
    run.console.warn(f"{frozen}{away}")
    return unreachable


async def select_topics(
    client: ClusterClient,
    topics: Sequence[Topic],
    filters: TopicFilters,
    *,
    with_configs: bool,
    unreachable: Collection[int] | None = None,
) -> Selected:
    """Return the topics that match all filters; topics that could not be described stay, with their error.

    `with_configs` reads the properties of the topics also if no filter needs them.  `unreachable` is the result of
    `frozen_brokers`.
    """
    selected = list(topics)
    if filters.names is not None:
        names = set(filters.names.select(topic.name for topic in selected))
        selected = [topic for topic in selected if topic.name in names]
    if filters.ids is not None:
        ids = set(filters.ids.select(topic_id(topic) or "" for topic in selected)) - {""}
        selected = [topic for topic in selected if topic_id(topic) in ids]
    partitions: dict[str, list[int]] = {}
    if filters.problems:
        partitions = await partitions_with_problems(client, selected, filters.problems, unreachable)
        selected = _with_errors(selected, partitions)
    configs: Configs = {}
    if filters.has_overrides or with_configs:
        described = [topic.name for topic in selected if topic.error is ErrorCode.NONE]
        configs = await topic_overrides(client, described) if described else {}
    if filters.has_overrides:
        selected = _with_errors(selected, {name for name, entries in configs.items() if entries})
    return Selected(selected, partitions, configs)


def _with_errors(topics: Sequence[Topic], names: Collection[str]) -> list[Topic]:
    return [topic for topic in topics if topic.name in names or not topic.partitions]


verbs = typer.Typer(add_completion=False)


class PartitionItem(NamedTuple):
    """A partition within the JSON object of its topic."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    elr: Annotated[list[int] | None, "Eligible leader replicas (KIP-966); null where they are not served."]
    last_known_elr: list[int] | None
    error: str | None = None
    message: str | None = None


class TopicItem(NamedTuple):
    """A topic as a JSON object."""

    topic: str
    topic_id: str | None
    internal: bool
    partition_count: int | None
    replication_factor: int | None
    configs: dict[str, str | None] | None
    partitions: list[PartitionItem]
    error: str | None = None
    message: str | None = None


class OverviewRow(NamedTuple):
    """A topic in the table above that of the partitions."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    topic_id: str | None
    configs: Annotated[dict[str, str | None] | None, Column(wraps=True)]
    error: ErrorName
    message: ErrorText


class PartitionRow(NamedTuple):
    """A partition in the table, or a topic that could not be described."""

    topic: str
    partition: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    replicas: Annotated[Sequence[int], Column(wraps=True)] = ()
    isr: Annotated[Sequence[int], Column(wraps=True)] = ()
    offline: Annotated[Sequence[int], Column(wraps=True, trouble=is_present)] = ()
    elr: Annotated[Sequence[int] | None, Column(wraps=True, is_rare=True)] = None
    last_known_elr: Annotated[Sequence[int] | None, Column(wraps=True, is_rare=True)] = None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl topics describe orders",
        "kctl topics describe --format json",
        "kctl topics describe --unavailable-partitions --under-min-isr-partitions",
    ),
)
@shows(TopicItem)
@with_groups
def describe(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Topics.  Default: all; internal topics only with a filter.", metavar="TOPIC"),
    ] = None,
    *,
    options: FilterOptions,
) -> ExitStatus:
    """Describe topics: their partitions, leaders, replicas and overridden properties.

    One row per partition; json, jsonl and yaml have one object per topic.  Only topics that match all filters are
    shown.  Of the filters for partitions, a partition has to match one; if any does, the exit status is 3.

    ELR are replicas that are out of sync, have all committed records, and may be elected when no replica is in sync;
    LAST-KNOWN-ELR those that lost this place by an unclean shutdown (Kafka 4.0, if the cluster has the feature).
    """
    run: Invocation = ctx.obj
    if names and options.topic_regex is not None:
        raise UsageError("give topics or --topic-regex, not both")
    filters = topic_filters(options)
    problems = filters.problems

    async def query(client: ClusterClient) -> tuple[Selected, Mapping[TopicPartition, EligibleLeaders]]:
        frozen = await frozen_brokers(run, client)
        if names:
            topics = await describe_topics(client, names)
        else:
            topics = [topic for topic in await list_topics(client) if problems or not topic.is_internal]
        selected = await select_topics(client, topics, filters, with_configs=True, unreachable=frozen)
        described = [topic.name for topic in selected.topics if topic.error is ErrorCode.NONE]
        return selected, await eligible_leaders(client, described)

    (topics, filtered, overridden), eligible = run.on_brokers(query)
    items = [_topic_item(topic, overridden.get(topic.name), eligible) for topic in topics]
    if problems:
        items = [_only(item, filtered.get(item.topic, [])) for item in items]
    if run.console.format is Format.TABLE and items and not problems:
        run.console.show(OverviewRow, [_overview_row(item) for item in items])
        run.console.text("")
    run.console.show(PartitionRow, items, rows=[row for item in items for row in _partition_rows(item)])
    status = run.status_of(items)
    return ExitStatus.UNMET if filtered and status is ExitStatus.DONE else status


def _topic_item(
    topic: Topic,
    overrides: dict[str, str | None] | Outcome | None,
    eligible: Mapping[TopicPartition, EligibleLeaders],
) -> TopicItem:
    row = topic_row(topic)

    def eligible_in(partition: int) -> tuple[list[int] | None, list[int] | None]:
        leaders = eligible.get(TopicPartition(topic.name, partition))
        return (None, None) if leaders is None else (list(leaders.elr), list(leaders.last_known))

    return TopicItem(
        topic=topic.name,
        topic_id=topic_id(topic),
        internal=topic.is_internal,
        partition_count=row.partitions,
        replication_factor=row.replication_factor,
        configs=overrides if isinstance(overrides, dict) else None,
        partitions=[
            PartitionItem(
                partition=partition.partition,
                leader=known(partition.leader),
                leader_epoch=known(partition.leader_epoch),
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                offline=list(partition.offline_replicas),
                elr=eligible_in(partition.partition)[0],
                last_known_elr=eligible_in(partition.partition)[1],
                **code_error(partition.error),
            )
            for partition in topic.partitions
        ],
        **(outcome_error(overrides) if isinstance(overrides, Outcome) else code_error(topic.error)),
    )


def _only(item: TopicItem, partitions: list[int]) -> TopicItem:
    return item._replace(partitions=[partition for partition in item.partitions if partition.partition in partitions])


def _overview_row(item: TopicItem) -> OverviewRow:
    return OverviewRow(
        topic=item.topic,
        partitions=item.partition_count,
        replication_factor=item.replication_factor,
        topic_id=item.topic_id,
        configs=item.configs,
        error=item.error,
        message=item.message,
    )


def _partition_rows(item: TopicItem) -> list[PartitionRow]:
    if not item.partitions:
        return [PartitionRow(item.topic, error=item.error, message=item.message)]
    return [PartitionRow(item.topic, *partition) for partition in item.partitions]
