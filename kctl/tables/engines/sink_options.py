"""The sink that the options of a writer describe, and the columns of its rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from kctl.client.producing.settings import ProducerSettings
from kctl.client.properties.settings import writing_settings
from kctl.client.properties.table import Client
from kctl.errors import UsageError
from kctl.tables.engines.query_options import QueryOptions
from kctl.tables.exec.queries.topic_sink import COLUMNS, GROUP, TopicSink

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 900_000
"""The largest that brokers allow by default (transaction.max.timeout.ms)."""
SINK_OPTIONS = (
    *("bootstrap.servers", "command.config", "topic", "includeHeaders"),
    *("transactional", "txnAppId", "txnVersion"),
)
_OF_SPARK = ("checkpointLocation", "queryName", "path")
"""Options of streaming queries that Spark passes on."""
_TYPES: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_OF_SOURCE = frozenset({"offset", "timestamp", "timestampType"})
"""Columns that rows of a topic have, and that have no effect on what is written, as in Spark's sink."""


def sink_of(options: Mapping[str, str], schema: Any, *, overwrites: bool, is_streaming: bool = False) -> TopicSink:
    """Return the sink that the options describe, for rows with a schema of Spark.

    That of a streaming query gets its group and batch when a task runs.  Raises UsageError and ConfigError.
    """
    query = QueryOptions(options, SINK_OPTIONS, _OF_SPARK)
    if overwrites:
        raise UsageError("a topic cannot be overwritten: use the mode append")
    topic = query.text("topic")
    if "," in topic:
        raise UsageError(f"topic takes one name, not '{topic}': give rows to several topics a column topic")
    includes_headers = query.one_of("includeHeaders", ("true", "false")) == "true"
    columns = _columns(schema, has_topic=bool(topic), includes_headers=includes_headers)
    properties, values, settings = query.client_properties(Client.PRODUCER)
    is_transactional = query.one_of("transactional", ("true", "false")) == "true"
    app, version = query.text("txnAppId"), query.count("txnVersion", low=0)
    if bool(app) is (version is None):
        raise UsageError("txnAppId and txnVersion belong together: a name, and the number of the batch")
    if is_streaming and app:
        raise UsageError("txnAppId is an option of batch queries: a streaming query has batches with numbers")
    if app and not is_transactional:
        raise UsageError("txnAppId needs transactions: leave out transactional")
    writing = writing_settings(
        properties,
        ProducerSettings(idempotent=True, max_block_ms=values.get("max.block.ms")),
        request_timeout_ms=settings.request_timeout_ms or settings.timeout_ms,
        transactional_id="tasks" if is_transactional else None,
    )
    if is_transactional and not writing.settings.idempotent:
        raise UsageError("acks below all, and enable.idempotence=false, need the option transactional set to false")
    timeout_ms = writing.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
    return TopicSink(
        settings=settings,
        producer=writing.settings,
        partitioner=writing.partitioner,
        columns=columns,
        topic=topic,
        transaction_timeout_ms=timeout_ms if is_transactional else None,
        group=f"{GROUP}.{app}" if app else f"{GROUP}.{uuid4()}",
        batch=version,
    )


def _columns(schema: Any, *, has_topic: bool, includes_headers: bool) -> tuple[str, ...]:
    """Return the columns that are written.  Raises UsageError for one that is missing or has another type."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise UsageError(f"the rows have no column value; they have {', '.join(types)}")
    if not has_topic and "topic" not in types:
        raise UsageError("give the option topic, or rows with a column topic")
    for name in COLUMNS:
        if name in types and types[name] not in _TYPES[name]:
            raise UsageError(f"the column {name} is {types[name]}, and must be {' or '.join(_TYPES[name])}")
    if others := [name for name in types if name not in {*COLUMNS, *_OF_SOURCE}]:
        logger.warning("columns that a topic does not have, and that are not written: %s", ", ".join(others))
    left_out = {"topic"} if has_topic else set()
    if not includes_headers:
        left_out.add("headers")
    return tuple(name for name in COLUMNS if name in types and name not in left_out)
