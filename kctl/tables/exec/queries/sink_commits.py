"""Commits the batches of `format("kctl")`, on the driver: the transactions of all tasks, each batch once.

Tasks leave their transactions open.  The driver then

1. fences other drivers, by the transactional id of the group, and checks that all transactions are still open;
2. commits the number of the batch as an offset of the group, with the transactions in its metadata: from here on the
   batch is committed, whatever happens;
3. commits the transactions.

A batch that is repeated after 2 writes nothing, and repeats 3.  One that is repeated before it writes its rows again,
in transactions that abort those of before, because the transactional ids are the same.  So rows are in the topics once,
unless the writer stops between 2 and 3 for longer than the time-out of the transactions; this is reported.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, fetch_commits
from kctl.client.consuming.groups.metadata import GroupMetadata
from kctl.client.producing.transaction import FENCED, TRANSACTION_TIMEOUT_MS, Transaction
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.output.quantities import counted
from kctl.protocol.apis.offset_fetch import OffsetFetchResponseTopic
from kctl.tables.exec.queries.topic_sink import WrittenRows, transactional_id

METADATA_BYTES_MAX = 4_000
"""Brokers accept 4,096 (offset.metadata.max.bytes): the transactions of some thousand tasks."""
CONCURRENT_ENDS = 20
_ENDED = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""Answers of the coordinator for a transaction that is not open any more."""
Transactions = Mapping[int, ProducerIdAndEpoch]
"""The producers of tasks, by the numbers of the tasks."""


class CommittedBatch(NamedTuple):
    """The last batch that a group has committed, and its transactions, which may still be open."""

    batch: int
    transactions: Transactions


async def commit_rows(settings: ClientSettings, written: Sequence[WrittenRows], batch: int | None) -> str:
    """Commit what tasks have written; return a warning, or empty.

    Without a number of a batch the transactions are committed one after the other.  Raises KctlError if a transaction
    has ended, ApiError and ClusterUnreachable: with a batch, it is to be repeated then.
    """
    if not any(rows.producer or rows.is_repetition for rows in written):
        return ""
    group = written[0].group
    async with ClusterClient(settings, AsyncioTransport()) as client:
        if batch is None:
            await _check_open(client, written)
            await _end_all(client, group, _opened(written), "")
            return ""
        committed, is_repetition = await decide(client, written, batch)
        if committed.batch == batch:
            await _end_all(client, group, committed.transactions, _missing_text(group, batch))
    return f"batch {batch} of {group} was committed before, and is not written again" if is_repetition else ""


async def decide(client: ClusterClient, written: Sequence[WrittenRows], batch: int) -> tuple[CommittedBatch, bool]:
    """Commit the number of the batch, unless it or a later one is; return the last one, and whether it was before.

    Raises as `commit_rows`.
    """
    group, own = written[0].group, _opened(written)
    leader = await Transaction.begin(client, group, timeout_ms=TRANSACTION_TIMEOUT_MS)
    last = await last_batch(client, group)
    if last is not None and last.batch >= batch:
        await _abort(client, group, own)
        return last, True
    if any(rows.is_repetition for rows in written):
        raise KctlError(f"group {group} has lost batch {batch}, which was committed: run the query again")
    await _check_open(client, written)
    topic = min(rows.example for rows in written if rows.example is not None).topic
    commit = CommittedOffset(batch, metadata=_metadata(own))
    await leader.add_offsets(GroupMetadata(group), {TopicPartition(topic, 0): commit})
    await leader.commit()
    return CommittedBatch(batch, own), False


def _opened(written: Sequence[WrittenRows]) -> Transactions:
    return {rows.task: rows.producer for rows in written if rows.producer is not None}


async def abort_rows(settings: ClientSettings, written: Sequence[WrittenRows]) -> None:
    """Abort what tasks have written.  Raises ApiError and ClusterUnreachable; the transactions then time out."""
    if own := _opened(written):
        async with ClusterClient(settings, AsyncioTransport()) as client:
            await _abort(client, written[0].group, own)


async def is_committed(settings: ClientSettings, group: str, batch: int) -> bool:
    """Return whether the group has committed this batch or a later one.  Raises ApiError and ClusterUnreachable.

    While another driver commits, it is not.
    """
    async with ClusterClient(settings, AsyncioTransport()) as client:
        last = await last_batch(client, group, may_be_unstable=True)
        return last is not None and last.batch >= batch


async def last_batch(client: ClusterClient, group: str, *, may_be_unstable: bool = False) -> CommittedBatch | None:
    """Return what the group has committed last.

    Raises ApiError, ClusterUnreachable, and KctlError for a group of something else.
    """

    async def look_up(connection: Connection) -> list[OffsetFetchResponseTopic]:
        topics = (await fetch_commits(connection, {group: None}, require_stable=not may_be_unstable)).get(group, [])
        if isinstance(topics, ApiError):
            raise topics
        for topic in topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise ApiError(ErrorCode.of(partition.error_code), f"the offsets of group {group}")
        return topics

    topics = await client.on_coordinator(group, look_up, codes=frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT}))
    commits = [
        (partition.committed_offset, partition.metadata or "")
        for topic in topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    ]
    if not commits:
        return None
    batch, metadata = max(commits)
    return CommittedBatch(batch, _transactions(group, metadata))


def _metadata(transactions: Transactions) -> str:
    """Return the transactions as text, by the differences of their numbers.

    Raises KctlError if a committed offset cannot have so many.
    """
    entries = []
    before = (0, 0)
    for task, producer in sorted(transactions.items()):
        entries.append([task - before[0], producer.producer_id - before[1], producer.epoch])
        before = task, producer.producer_id
    text = base64.b64encode(zlib.compress(json.dumps(entries).encode(), 9)).decode()
    if len(text) > METADATA_BYTES_MAX:
        raise KctlError(
            f"a batch of {counted(len(transactions), 'task')} has too many transactions to be committed: write with "
            "fewer tasks, as coalesce(500)"
        )
    return text


def _transactions(group: str, metadata: str) -> Transactions:
    try:
        entries = json.loads(zlib.decompressobj().decompress(base64.b64decode(metadata), METADATA_BYTES_MAX * 100))
        transactions: dict[int, ProducerIdAndEpoch] = {}
        task = producer_id = 0
        for task_step, producer_step, epoch in entries:
            task, producer_id = task + task_step, producer_id + producer_step
            transactions[task] = ProducerIdAndEpoch(producer_id, epoch)
    except (binascii.Error, zlib.error, ValueError, TypeError):
        raise KctlError(
            f"the offsets of group {group} are not those of format kctl: another application uses it, or delete it"
        ) from None
    return transactions


async def _check_open(client: ClusterClient, written: Sequence[WrittenRows]) -> None:
    """Raise KctlError unless all transactions are open: to add a partition again has no other effect."""
    by_task = {rows.task: rows for rows in written}
    group = written[0].group

    async def check(task: int) -> None:
        producer, example = by_task[task].producer, by_task[task].example
        if producer is None or example is None:
            return
        try:
            await Transaction(client, transactional_id(group, task), producer).add([example])
        except ApiError as error:
            if error.code not in _ENDED:
                raise
            raise KctlError(
                f"nothing is committed: the transaction of task {task} has ended before the others, because it took "
                f"longer than transaction.timeout.ms, or another run writes with the name {group}: raise "
                "kafka.transaction.timeout.ms (brokers allow transaction.max.timeout.ms), or set transactional to false"
            ) from None

    await _for_each(sorted(by_task), check)


async def _end_all(client: ClusterClient, group: str, transactions: Transactions, missing: str) -> None:
    """Commit the transactions, also those that were committed before.

    `missing` is the text for one that was aborted meanwhile.
    """

    async def end(task: int) -> None:
        transaction = Transaction(client, transactional_id(group, task), transactions[task], is_started=True)
        try:
            await transaction.commit()
        except ApiError as error:
            if not missing or error.code not in _ENDED:
                raise
            raise KctlError(missing) from None

    await _for_each(sorted(transactions), end)


async def _abort(client: ClusterClient, group: str, transactions: Transactions) -> None:
    """Abort the transactions that are still open."""

    async def abort(task: int) -> None:
        try:
            await Transaction(client, transactional_id(group, task), transactions[task], is_started=True).abort()
        except ApiError as error:
            if error.code not in _ENDED:
                raise

    await _for_each(sorted(transactions), abort)


async def _for_each(tasks: Sequence[int], work: Callable[[int], Awaitable[None]]) -> None:
    """Do the work for all tasks, some at a time; raise the first error after all have ended."""
    room = asyncio.Semaphore(CONCURRENT_ENDS)

    async def run(task: int) -> None:
        async with room:
            await work(task)

    for result in await asyncio.gather(*map(run, tasks), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _missing_text(group: str, batch: int) -> str:
    return (
        f"batch {batch} of {group} is committed, but the writer stopped for so long before it had ended its "
        "transactions that the cluster has aborted some, and rows are missing: delete the group with 'kctl groups "
        f"delete {group}' to write the batch again, with those rows twice that are there"
    )
