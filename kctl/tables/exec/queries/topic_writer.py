"""The writers of `format("kctl")`, as PySpark calls them: `write` on executors, `commit` and `abort` on the driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from kctl.errors import KctlError
from kctl.tables.exec.queries.sink_commits import abort_rows, commit_rows, is_committed
from kctl.tables.exec.queries.topic_sink import (
    GROUP,
    SinkRow,
    TopicSink,
    WrittenRows,
    rows_of,
    rows_of_spark,
    write_rows,
)

logger = logging.getLogger(__name__)

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of the tasks of a streaming query (StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY)."""


class TopicWriter(datasource.DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of a task."""
        return _write(self._sink, rows_of(iterator, self._sink.columns))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks have written."""
        _commit(self._sink, messages, self._sink.batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort what they have written."""
        _abort(self._sink, messages)


_ArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
"""Before PySpark 4.1 streaming writers get rows and no Arrow batches."""


class TopicStreamWriter(_ArrowWriter):  # type: ignore[misc]
    """Writes the rows of a streaming query."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def _of_batch(self) -> TopicSink:
        """Return the sink of the batch of this task.  Raises KctlError outside of a streaming query."""
        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if not query or not batch:
            raise KctlError("Spark does not say to which query and batch a task belongs")
        return replace(self._sink, group=f"{GROUP}.{query}", batch=int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Commit what the tasks of a batch have written."""
        _commit(self._sink, messages, batchId if self._sink.transaction_timeout_ms is not None else None)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - same
        """Abort what they have written."""
        _abort(self._sink, messages)

    def write(self, iterator: Iterator[Any]) -> WrittenRows:
        """Write the rows of a task of a batch."""
        rows = rows_of_spark if _ArrowWriter is datasource.DataSourceStreamWriter else rows_of
        return _write(self._of_batch(), rows(iterator, self._sink.columns))


def _write(sink: TopicSink, rows: Iterator[SinkRow]) -> WrittenRows:
    context = TaskContext.get()
    task = context.partitionId() if context else 0

    async def write() -> WrittenRows:
        is_repetition = sink.batch is not None and sink.transaction_timeout_ms is not None
        is_repetition = is_repetition and await is_committed(sink.settings, sink.group, sink.batch or 0)
        return await write_rows(sink, task, rows, is_committed=is_repetition)

    return asyncio.run(write())


def _commit(sink: TopicSink, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    if warning := asyncio.run(commit_rows(sink.settings, _written(messages), batch)):
        logger.warning("%s", warning)


def _abort(sink: TopicSink, messages: Sequence[WriterCommitMessage | None]) -> None:
    try:
        asyncio.run(abort_rows(sink.settings, _written(messages)))
    except KctlError as error:
        logger.warning("transactions of failed tasks are aborted after their time-out: %s", error)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenRows]:
    return [message for message in messages if isinstance(message, WrittenRows)]
