"""What the verbs of `kctl topics`, `kctl topics offsets` and `kctl consume` print with --compat."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kctl.admin.placement.reassignment import Ongoing, list_reassignments
from kctl.admin.topics import topics as operations
from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs
from kctl.client.outcome import Outcome
from kctl.commands.compat.registration import Call
from kctl.commands.compat.texts import formatters
from kctl.commands.compat.texts import topics as texts
from kctl.commands.compat.texts.java import KAFKA_28
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.topics.describe import select_topics, topic_filters
from kctl.commands.topics.options import FilterOptions
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic

_UNLISTED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""Kafka's tool lists the topics first, and such a topic is not among them."""


def list_topics(call: Call, **_: Any) -> Any:
    """`kctl topics list`, with internal topics as in Kafka's tool."""
    status, topics = call.collect_rows(internal=True)
    call.run.console.verbatim(texts.listed(topic.topic for topic in topics))
    return status


def create_topics(call: Call, *, dry_run: bool, **_: Any) -> Any:
    """`kctl topics create`; a dry run shows rows."""
    if dry_run:
        return call.carry_out()
    console = call.run.console
    created: list[operations.CreatedTopic] = []
    status, rows = call.collect_rows(observe=created.extend)
    for topic, row in zip(created, rows, strict=True):
        if topic.outcome.is_done:
            console.verbatim(texts.created(topic.outcome.name))
        elif row.error:
            console.verbatim(texts.failed(topic.outcome.message))
            console.warn(f"topic '{topic.outcome.name}': {row.error}: {row.message}")
    return status


@with_groups
def describe_topics(*, call: Call, names: list[str] | None, options: FilterOptions, **_: Any) -> ExitStatus:
    """`kctl topics describe`.  Raises UsageError for --overrides with a filter for partitions, as Kafka's tool does."""
    run, console = call.run, call.run.console
    if names and options.topic_regex is not None:
        raise UsageError("give topics or --topic-regex, not both")
    filters = topic_filters(options)
    if filters.has_overrides and filters.problems:
        raise UsageError("--overrides with --compat cannot be combined with filters for partitions")
    # The overrides of Kafka's tool include values that are set for brokers.
    chosen = filters._replace(has_overrides=False)

    async def query(client: ClusterClient) -> tuple[list[Topic], str, bool]:
        topics = await operations.describe_topics(client, names) if names else await operations.list_topics(client)
        topics, partitions, _ = await select_topics(client, topics, chosen, with_configs=False)
        described = [topic for topic in topics if topic.error is ErrorCode.NONE]
        selected = partitions if filters.problems else None
        resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in described]
        configs = await describe_configs(client, resources, synonyms=False, is_sorted=False) if resources else {}
        entries = {resource.name: known for resource, known in configs.items() if not isinstance(known, Outcome)}
        ongoing = await _ongoing(client)
        if filters.has_overrides:
            text = texts.with_overrides(described, entries, ongoing)
        else:
            names_of_topics = [topic.name for topic in described]
            eligible = {} if call.version == KAFKA_28 else await operations.eligible_leaders(client, names_of_topics)
            text = texts.described(call.version, described, entries, ongoing, selected, eligible)
        return [topic for topic in topics if topic not in described], text, bool(selected)

    failed, text, has_problems = run.on_cluster(query)
    console.verbatim(text)
    for topic in failed:
        if topic.error in _UNLISTED:
            console.verbatim(texts.missing(call.version, topic.name))
        console.warn(f"topic '{topic.name}': {topic.error.description}")
    if failed:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if has_problems else ExitStatus.DONE


def get_offsets(call: Call, **_: Any) -> Any:
    """`kctl topics offsets`."""
    status, rows = call.collect_rows()
    known = {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.error is None}
    call.run.console.verbatim(formatters.offsets(call.version, known))
    for row in rows:
        if row.error is not None:
            call.run.console.warn(str(row.message))
    return status


def consume(call: Call, *, formatter: str | None, **_: Any) -> Any:
    """`kctl consume --formatter`.  Raises UsageError without a formatter."""
    if formatter is None:
        raise UsageError("--compat requires --formatter")
    return call.carry_out(formatter_text=functools.partial(formatters.classic_text, formatter, call.version))


async def _ongoing(client: ClusterClient) -> dict[TopicPartition, Ongoing]:
    """Return the ongoing reassignments; none of brokers before 2.4, or without permission, as in Kafka's tool."""
    try:
        return await list_reassignments(client)
    except ApiError as error:
        if error.code in {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}:
            return {}
        raise
