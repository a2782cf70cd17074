"""`kctl cluster log-dirs`: the log directories of the brokers as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from kctl.admin.log_dirs import LogDir, describe_log_dirs
from kctl.admin.outcome import Outcome, absent_broker
from kctl.commands.compat import log_dirs as log_dir_compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.rows import code_error, outcome_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.commands.invocation import Invocation

DIRECTORY_COLUMNS = (
    Column("broker", numeric=True),
    Column("log_dir"),
    Column("replicas", numeric=True),
    Column("bytes", numeric=True),
    Column("moving_here", numeric=True),
    *ERROR_COLUMNS,
)
REPLICA_COLUMNS = (
    Column("broker", numeric=True),
    Column("log_dir"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("bytes", numeric=True),
    Column("lag", numeric=True),
    Column("moving"),
    *ERROR_COLUMNS,
)
TOTAL_COLUMNS = (
    Column("broker", numeric=True, is_rare=True),
    Column("topic", is_rare=True),
    Column("replicas", numeric=True),
    Column("bytes", numeric=True),
    *ERROR_COLUMNS,
)
Total = Literal["broker", "topic"]


class DirectoryRow(NamedTuple):
    """A log directory, or a broker that did not respond."""

    broker: int
    log_dir: str | None
    replicas: int | None = None
    bytes: int | None = None
    moving_here: int | None = None
    error: str | None = None
    message: str | None = None


class ReplicaRow(NamedTuple):
    """A replica in a log directory, or a directory or broker whose replicas are unknown."""

    broker: int
    log_dir: str | None
    topic: str | None = None
    partition: int | None = None
    bytes: int | None = None
    lag: int | None = None
    moving: bool | None = None
    error: str | None = None
    message: str | None = None


class TotalRow(NamedTuple):
    """The replicas of a broker or of a topic, without copies that are being made; or a broker that failed."""

    broker: int | None
    topic: str | None
    replicas: int | None = None
    bytes: int | None = None
    error: str | None = None
    message: str | None = None


def show_log_dirs(
    run: Invocation,
    *,
    brokers: list[int] | None,
    topics: list[str] | None,
    every_replica: bool,
    by: Total | None = None,
    compat: str | None = None,
) -> ExitStatus:
    """Query the brokers, or all brokers, and show a row per directory, per total, or per replica if topics or all
    replicas are requested.

    With `compat`, the text of Kafka's tool of that version, for all replicas or those of the topics.

    Raises ApiError for a broker that is not alive, and for a topic that does not exist.
    """

    async def query(client: ClusterClient) -> tuple[list[LogDir], list[Outcome]]:
        metadata = await client.metadata(topics or [])
        requested = set(metadata.brokers if brokers is None else brokers)
        unknown = sorted(requested - metadata.brokers.keys())
        if unknown:
            raise absent_broker(unknown[0], metadata.brokers)
        partitions: Collection[TopicPartition] | None = None
        if topics and not compat:
            for topic in metadata.topics.values():
                if topic.error is not ErrorCode.NONE:
                    raise ApiError(topic.error, f"topic '{topic.name}': {topic.error.description}")
            partitions = [
                TopicPartition(topic.name, one.partition)
                for topic in metadata.topics.values()
                for one in topic.partitions
            ]
        return await describe_log_dirs(client, requested, partitions)

    found, failed = run.on_brokers(query)
    if by is not None:
        totals = total_rows(found, failed, by)
        run.console.show(TOTAL_COLUMNS, totals)
        return run.status_of(totals)
    if compat:
        answered = {one.broker_id for one in found}
        run.console.verbatim(log_dir_compat.described(compat, sorted(answered), found, topics))
        for each in failed:
            run.console.warn(f"broker {each.name}: {each.message}")
        return ExitStatus.FAILED if failed or any(one.error for one in found) else ExitStatus.DONE
    is_by_replica = every_replica or topics is not None
    columns = REPLICA_COLUMNS if is_by_replica else DIRECTORY_COLUMNS
    failure_row = ReplicaRow if is_by_replica else DirectoryRow
    rows: list[DirectoryRow | ReplicaRow] = [
        failure_row(int(each.name), None, **outcome_error(each)) for each in failed
    ]
    for log_dir in found:
        if log_dir.error:
            rows.append(failure_row(log_dir.broker_id, log_dir.path or None, **code_error(log_dir.error)))
        elif is_by_replica:
            rows += _replica_rows(log_dir)
        else:
            rows.append(_directory_row(log_dir))
    run.console.show(columns, rows)
    return run.status_of(rows)


def total_rows(found: Sequence[LogDir], failed: Iterable[Outcome], by: Total) -> list[TotalRow]:
    """The totals, the largest first, after the brokers and directories that failed."""
    counts: Counter[int | str] = Counter()
    sizes: Counter[int | str] = Counter()
    for log_dir in found:
        for one in log_dir.replicas:
            key: int | str = log_dir.broker_id if by == "broker" else one.tp.topic
            counts[key] += not one.is_future
            sizes[key] += 0 if one.is_future else one.size_bytes
    if by == "broker":
        for log_dir in found:
            counts[log_dir.broker_id] += 0
    ordered = sorted(counts, key=lambda key: (-sizes[key], key))
    rows = [TotalRow(int(one.name), None, **outcome_error(one)) for one in failed]
    rows += [TotalRow(one.broker_id, None, **code_error(one.error)) for one in found if one.error]
    rows += [
        TotalRow(key if isinstance(key, int) else None, key if isinstance(key, str) else None, counts[key], sizes[key])
        for key in ordered
    ]
    return rows


def _directory_row(log_dir: LogDir) -> DirectoryRow:
    return DirectoryRow(
        broker=log_dir.broker_id,
        log_dir=log_dir.path,
        replicas=sum(not one.is_future for one in log_dir.replicas),
        bytes=sum(one.size_bytes for one in log_dir.replicas),
        moving_here=sum(one.is_future for one in log_dir.replicas),
    )


def _replica_rows(log_dir: LogDir) -> list[ReplicaRow]:
    return [
        ReplicaRow(
            broker=log_dir.broker_id,
            log_dir=log_dir.path,
            topic=one.tp.topic,
            partition=one.tp.partition,
            bytes=one.size_bytes,
            lag=one.offset_lag,
            moving=one.is_future,
        )
        for one in sorted(log_dir.replicas, key=lambda one: one.tp)
    ]
