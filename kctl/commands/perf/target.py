"""The topic of a load test: creates it on request, and requires a confirmation if it has records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.offsets import OffsetRange, offset_ranges, partitions_of
from kctl.admin.topic_changes import BROKER_DEFAULT, NewTopic, create_topics
from kctl.commands.invocation import Invocation
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient


class Creation(NamedTuple):
    """Whether a missing topic is created, and its settings."""

    is_wanted: bool
    partitions: int | None
    replication_factor: int | None


class DryRunItem(NamedTuple):
    """What a load test would do."""

    topic: str
    status: str
    partitions: int | None
    records_in_topic: int
    client: str


Ranges = dict[TopicPartition, OffsetRange]


def ranges_of(run: Invocation, topic: str) -> Ranges | None:
    """The offsets of the topic; None if it does not exist."""

    async def look(client: ClusterClient) -> Ranges | None:
        try:
            partitions = await partitions_of(client, [topic])
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        return await offset_ranges(client, partitions)

    return run.on_brokers(look)


def prepare(run: Invocation, topic: str, creation: Creation, client: str, *, dry_run: bool) -> Ranges | None:
    """The offsets of a topic that may be written to; None after a dry run, which has shown what would be done.

    Raises ApiError without the topic, and Refused without consent to write to a topic with records.
    """
    if not creation.is_wanted and (creation.partitions or creation.replication_factor):
        raise UsageError("--partitions and --replication-factor require --create")
    found = ranges_of(run, topic)
    if found is None:
        if not creation.is_wanted:
            text = f"topic '{topic}' does not exist; add --create to create it"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        _create(run, topic, creation, dry_run=dry_run)
        if dry_run:
            run.console.show_one(DryRunItem(topic, "would be created", creation.partitions, 0, client))
            return None
        run.console.note(f"topic '{topic}' was created; 'kctl topics delete {topic}' deletes it")
        run.restart_timeout()
        found = ranges_of(run, topic) or {}
    records = sum(one.end - one.start for one in found.values())
    if dry_run:
        run.console.show_one(DryRunItem(topic, "would be written to", len(found), records, client))
        return None
    if records:
        run.consent(f"Write test records to topic '{topic}', which has {counted(records, 'record')}?")
    return found


def _create(run: Invocation, topic: str, creation: Creation, *, dry_run: bool) -> None:
    new = NewTopic(topic, creation.partitions or BROKER_DEFAULT, creation.replication_factor or BROKER_DEFAULT)
    (created,) = run.on_brokers(lambda client: create_topics(client, [new], validate_only=dry_run))
    if not created.outcome.is_done:
        raise ApiError(created.outcome.error, f"topic '{topic}': {created.outcome.message}")
