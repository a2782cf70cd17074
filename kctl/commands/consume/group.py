"""`kctl consume --group`: reads as a member of a consumer group and commits the offsets of the records shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kctl.admin.groups.groups import look_up_group
from kctl.admin.topics.offsets import offset_ranges
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.groups.consumer import GroupConsumer, decode_records
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.membership.assignors import ASSIGNORS, DEFAULT_ASSIGNORS, assignor_names
from kctl.client.consuming.membership.member import MembershipSettings
from kctl.client.properties.settings import fetch_limits
from kctl.client.properties.table import Client, check_properties
from kctl.commands.reading.options import CONTINUE_REMEDY, starts
from kctl.errors import ApiError, ConfigError, ErrorCode, PositionLost, UsageError
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE
from kctl.records.header import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping

    from kctl.admin.topics.offsets import OffsetSpec
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.positions import Divergence, Position
    from kctl.commands.reading.topics import TopicSelection
    from kctl.model import TopicPartition
    from kctl.output.console import Console


AUTO_COMMIT_INTERVAL_MS = 5_000


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The topics to read as a member of a group, and the end of reading."""

    settings: MembershipSettings
    auto_commit_interval_ms: int | None
    """None without commits: enable.auto.commit is false."""
    lower: OffsetSpec
    """Where to start in partitions without a committed offset."""
    isolation: IsolationLevel
    ends: dict[TopicPartition, int] | None
    """Where to stop; None for never."""
    records_max: int | None
    limits: FetchLimits
    has_reset: bool
    """False for auto.offset.reset=none: a partition without a valid committed offset is an error."""
    continues_after_truncation: bool
    """Whether reading continues where the histories part if a log no longer has the records before a position."""


def group_reading(
    group_id: str,
    topics: TopicSelection,
    properties: Mapping[str, str],
    *,
    assignor: str | None,
    lower: OffsetSpec,
    isolation: IsolationLevel,
    ends: dict[TopicPartition, int] | None,
    records_max: int | None,
    has_reset: bool,
    continues_after_truncation: bool,
) -> GroupReading:
    """Return the reading that Kafka's consumer properties describe; `assignor` takes precedence.

    Raises UsageError and ConfigError.
    """
    values = check_properties(properties, Client.CONSUMER)
    settings = _membership_settings(group_id, topics, values)
    if assignor is not None and settings.protocol == "consumer":
        raise UsageError("--assignor cannot be used with group.protocol=consumer; group.remote.assignor can")
    settings = replace(settings, assignors=_assignors(properties, assignor))
    interval_ms = values.get("auto.commit.interval.ms", AUTO_COMMIT_INTERVAL_MS)
    return GroupReading(
        settings,
        interval_ms if values.get("enable.auto.commit", True) else None,
        lower,
        isolation,
        ends,
        records_max,
        fetch_limits(properties, FetchLimits()),
        has_reset,
        continues_after_truncation,
    )


async def read_in_group(
    client: ClusterClient,
    console: Console,
    reading: GroupReading,
    write: Callable[[TopicPartition, Record], bool],
    flush: Callable[[], None],
) -> None:
    """Show the records of the assigned partitions until `records_max` or the ends are reached.

    Unless enable.auto.commit is false, offsets of records that were shown and flushed are committed periodically,
    before a rebalance, and at the end.
    """

    truncated: set[TopicPartition] = set()
    """Partitions whose end has to be looked up again."""

    async def begin(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        if not reading.has_reset:
            text = f"{min(partitions)}: no valid committed offset, and auto.offset.reset=none; add --from"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        return await starts(client, partitions, reading.lower, reading.isolation)

    def warn_of_truncation(divergence: Divergence, begun: int) -> None:
        console.warn(f"{divergence}; reading from {begun}")
        truncated.add(divergence.tp)

    async def renew_ends() -> None:
        if truncated and reading.ends is not None:
            held = await offset_ranges(client, truncated, isolation=reading.isolation)
            reading.ends.update((tp, range_.end) for tp, range_ in held.items())
        truncated.clear()

    def warn_of_reset(tp: TopicPartition, position: int, begun: int) -> None:
        console.warn(f"{tp}: the group was at offset {position}, which is outside the log; reading from {begun}")

    consumer = GroupConsumer(
        client,
        reading.settings,
        begin,
        decode_records,
        on_lost=warn_of_reset,
        on_recreated=lambda change: console.warn(f"{change}; reading the new topic"),
        on_truncated=warn_of_truncation if reading.continues_after_truncation else None,
        isolation=reading.isolation,
        limits=reading.limits,
        auto_commit_interval_ms=reading.auto_commit_interval_ms,
    )
    commits = True
    written: set[TopicPartition] = set()
    try:
        await _copy_of_group(consumer, write, flush, reading.ends, reading.records_max, renew_ends, written)
        consumer.confirm()
        if reading.auto_commit_interval_ms is not None:
            await consumer.commit()
    except OSError:  # Of the output: a group that has written nothing keeps no trace, not even where it began.
        commits = bool(written)
        raise
    except PositionLost as error:
        raise PositionLost(f"{error}: {CONTINUE_REMEDY}") from error
    except ApiError as error:
        if error.code is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise
        raise ApiError(error.code, f"{error}; {await _assignor_hint(client, reading.settings)}") from error
    finally:
        await consumer.close(commits=commits)


async def _copy_of_group(
    consumer: GroupConsumer[Record],
    write: Callable[[TopicPartition, Record], bool],
    flush: Callable[[], None],
    ends: Mapping[TopicPartition, int] | None,
    records_max: int | None,
    renew_ends: Callable[[], Awaitable[None]],
    written: set[TopicPartition],
) -> None:
    """Add the partitions with records that were written to `written`."""
    left = records_max
    while left != 0:
        cut: dict[TopicPartition, int] = {}
        polled = await consumer.poll()
        await renew_ends()
        for tp, records in polled:
            end = None if ends is None else ends.get(tp, 0)
            for record in records:
                if left == 0 or (end is not None and record.offset >= end):
                    cut[tp] = record.offset
                    break
                if write(tp, record):
                    left = None if left is None else left - 1
        flush()
        written.update(tp for tp, _ in polled)
        for tp, offset in cut.items():
            consumer.finish(tp, offset)
        if ends is None or consumer.expects_more:
            continue
        if all(offset >= ends.get(tp, 0) for tp, offset in consumer.positions.items()):
            return


async def _assignor_hint(client: ClusterClient, settings: MembershipSettings) -> str:
    """Return the hint in the error for a group with other assignors, as far as the coordinator reports which it
    uses.
    """
    group = await look_up_group(client, settings.group_id)
    if group.protocol_type not in {"", PROTOCOL_TYPE}:
        return f"its members are not consumers but have the protocol type '{group.protocol_type}'"
    others = [name for name in ASSIGNORS if name not in settings.assignors]
    if group.protocol in others:
        return f"the group uses {group.protocol}: add --assignor {group.protocol}"
    return f"other assignors for --assignor: {', '.join(others)}" if others else "the group uses another assignor"


def _assignors(properties: Mapping[str, str], option: str | None) -> tuple[str, ...]:
    """Return the assignors of the option, else of the properties, else Kafka's defaults."""
    value = option if option is not None else properties.get("partition.assignment.strategy")
    if value is None:
        return DEFAULT_ASSIGNORS
    try:
        return assignor_names(value)
    except UsageError as error:
        if option is not None:
            raise UsageError(f"--assignor: {error}") from None
        raise ConfigError("partition.assignment.strategy", value, str(error)) from None


def _check_protocol(protocol: str, values: Mapping[str, Any]) -> None:
    """Raise ConfigError for a property of the other protocol, as Java's consumer."""
    others: tuple[str, ...] = ("group.remote.assignor",)
    remedy = "requires group.protocol=consumer"
    if protocol == "consumer":
        others = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
        remedy = "cannot be set with group.protocol=consumer: it is a setting of the broker; remove it"
    for name in others:
        if name in values:
            raise ConfigError(name, str(values[name]), remedy)


def _membership_settings(group_id: str, topics: TopicSelection, values: Mapping[str, Any]) -> MembershipSettings:
    if not group_id:
        raise UsageError("--group must not be empty")
    default = MembershipSettings(group_id, topics.names)
    settings = MembershipSettings(
        group_id,
        topics.names,
        values.get("group.instance.id"),
        values.get("session.timeout.ms", default.session_timeout_ms),
        values.get("max.poll.interval.ms", default.rebalance_timeout_ms),
        values.get("heartbeat.interval.ms", default.heartbeat_interval_ms),
        rack=values.get("client.rack", ""),
        pattern=None if topics.pattern is None else topics.pattern.compiled,
        protocol=values.get("group.protocol", "classic"),
        remote_assignor=values.get("group.remote.assignor"),
    )
    _check_protocol(settings.protocol, values)
    if not 0 < settings.heartbeat_interval_ms < settings.session_timeout_ms:
        raise ConfigError(
            "heartbeat.interval.ms",
            str(settings.heartbeat_interval_ms),
            "must be less than session.timeout.ms, and greater than 0",
        )
    return settings
