"""`kctl verify`: check that replicas hold the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.replicas import partitions_to_verify, refresh_replicas, verify_once
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.errors import UsageError
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText

if TYPE_CHECKING:
    from kctl.admin.topics.replicas import HeldBatch, VerifiedPartition
    from kctl.client.cluster import ClusterClient


# `kctl cluster verify`.


verbs = typer.Typer(add_completion=False)


class HeldBatchRow(NamedTuple):
    """The batch of one replica at the first difference."""

    replica: int
    base_offset: int
    last_offset: int
    bytes: int
    checksum: int
    computed_checksum: int
    is_damaged: bool


class ReplicasRow(NamedTuple):
    """The replicas of one partition; all records from `from_offset` to before `to_offset` have been compared."""

    topic: str
    partition: int
    replicas: Annotated[list[int], Column(wraps=True)]
    from_offset: Annotated[int | None, Column(drop_order=1)]
    to_offset: Annotated[int | None, Column(drop_order=2)]
    bytes: Annotated[int, Column(drop_order=3)]
    max_lag: int
    status: str
    offset: Annotated[int | None, Column(is_rare=True)] = None
    difference: Annotated[str | None, Column(wraps=True, is_rare=True)] = None
    held: Annotated[list[HeldBatchRow], JSON_ONLY] = []  # noqa: RUF012 - never changed
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "verify",
    cls=ClusterCommand,
    epilog=examples(
        "kctl cluster verify",
        "kctl cluster verify --topic orders --topic payments --format json",
        "kctl cluster verify --topic orders --interval 10s",
    ),
)
@shows(ReplicasRow)
def replicas(
    ctx: typer.Context,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.  Default: all topics."),
    ] = None,
    interval: Annotated[
        Duration | None,
        typer.Option(
            "--interval",
            parser=Duration.within("1ms", "1d"),
            help="Make further passes, with this time in between.  Default: one pass.",
        ),
    ] = None,
) -> ExitStatus:
    """Check that all replicas of partitions hold the same records, byte for byte.

    Reads every record from every replica, which costs disk and network of the brokers.  A pass ends at the high
    watermark.  With --interval further passes compare what was written since, until a pass finds a difference.  In
    compacted topics, which each broker cleans at its own time, records that only some replicas have do not count.

    One row per partition: the compared offsets, the bytes in one replica, MAX-LAG, by how many offsets the shortest
    replica is behind the longest, and the first difference.  JSON has the checksum of the batch in each replica; one
    that differs from the computed one is damaged.  The exit status is 3 if replicas differ, and 1 if a replica could
    not be read.
    """
    run: Invocation = ctx.obj
    if interval is not None and run.console.format.is_document:
        raise UsageError(f"--format {run.console.format.value} is one document; leave out --interval, or use jsonl")

    async def verify(client: ClusterClient) -> ExitStatus:
        partitions = await partitions_to_verify(client, set(topic) if topic else None)
        while True:
            await verify_once(client, partitions)
            status = _show(run, partitions)
            if interval is None or status is ExitStatus.UNMET:
                return status
            await client.transport.sleep(interval)
            await refresh_replicas(client, partitions)

    return run.on_cluster_concurrently(verify)


def _show(run: Invocation, partitions: list[VerifiedPartition]) -> ExitStatus:
    rows = [_row(partition) for partition in sorted(partitions, key=lambda partition: partition.tp)]
    run.console.show(ReplicasRow, rows)
    run.console.stdout.flush()
    if any(partition.difference for partition in partitions):
        return ExitStatus.UNMET
    return run.status_of(rows)


def _row(partition: VerifiedPartition) -> ReplicasRow:
    failure = next((partition.failures[replica] for replica in sorted(partition.failures)), None)
    different = partition.difference
    return ReplicasRow(
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        replicas=list(partition.replicas),
        from_offset=partition.start,
        to_offset=None if partition.start is None else partition.position,
        bytes=partition.compared_bytes,
        max_lag=partition.max_lag,
        status="different" if different else "incomplete" if failure else "identical",
        offset=different.offset if different else None,
        difference=different.reason if different else None,
        held=[_held_row(replica, batch) for replica, batch in sorted(different.held.items())] if different else [],
        **(outcome_error(failure) if failure else {"error": None, "message": None}),
    )


def _held_row(replica: int, batch: HeldBatch) -> HeldBatchRow:
    return HeldBatchRow(
        replica=replica,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        bytes=batch.size_bytes,
        checksum=batch.checksum,
        computed_checksum=batch.computed_checksum,
        is_damaged=batch.is_damaged,
    )
