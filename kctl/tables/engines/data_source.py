"""`format("kctl")`: topics as a PySpark data source and sink, for batch and streaming queries.

    from kctl.tables.engines.data_source import register

    register(spark)
    spark.read.format("kctl").option("bootstrap.servers", "127.0.0.1:9092").option("topic", "orders").load()

Spark calls `KctlDataSource` in Python processes on the driver's machine; they and the executors import kctl.
"""

from __future__ import annotations

import atexit
import logging
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema

from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.properties.table import Client
from kctl.client.registry.client import RegistryClient
from kctl.client.registry.schema import registry_settings
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import INT64_MAX, parse_integer
from kctl.system.user_files import read_regular
from kctl.tables.engines.package import build_package
from kctl.tables.engines.query_options import QueryOptions
from kctl.tables.engines.sink_options import sink_of
from kctl.tables.exec.queries.topic_source import (
    LIMIT_TYPES,
    TopicReader,
    TopicSource,
    TopicStream,
    UnlimitedTopicStream,
    with_spark_variants,
)
from kctl.tables.exec.queries.topic_writer import TopicStreamWriter, TopicWriter
from kctl.tables.exec.reading.source_offsets import LATEST, parse_offsets, parse_times
from kctl.tables.exec.schema.column_types import UNDECODED, Columns, Format
from kctl.tables.exec.selection.columns import schema
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions, decide

logger = logging.getLogger(__name__)

_FORMATS = tuple(format_.value for format_ in Format)
_ISOLATION = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
_OPTIONS = (
    *("bootstrap.servers", "command.config", "topic", "schema.registry", "isolation"),
    *("includeHeaders", "headers"),
    *("key", "value", "key.schema", "value.schema", "startingOffsets", "endingOffsets", "failOnDataLoss"),
    *("maxOffsetsPerTask", "maxOffsetsPerTrigger", "minPartitions", "subscribePattern"),
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingTimestamp", "endingOffsetsByTimestamp"),
)
PATTERN_LENGTH_MAX = 1_000


def register(spark: Any) -> None:
    """Make the format available in a session, and send kctl's code to the executors of a cluster."""
    spark.dataSource.register(KctlDataSource)
    if spark.sparkContext.master.partition("[")[0] == "local":
        return
    folder = Path(tempfile.mkdtemp(prefix="kctl-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that start later fetch it again
    spark.sparkContext.addPyFile(str(build_package(folder)))


class KctlDataSource(datasource.DataSource):
    """The data source.  Its methods raise UsageError and ConfigError for invalid options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kctl"

    def schema(self) -> Any:
        """Return the columns of an export with the same options.  May read schemas from the registry."""
        source = source_of(self.options)
        columns = schema(include_headers=source.include_headers, columns=source.columns, headers=source.headers)
        return from_arrow_schema(with_spark_variants(columns))

    def reader(self, schema: Any) -> TopicReader:
        """See DataSource."""
        return TopicReader(source_of(self.options))

    def streamReader(self, schema: Any) -> TopicStream:  # noqa: N802 - PySpark's name
        """See DataSource."""
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in self.options:
                raise UsageError(f"{name} is an option of batch queries")
        return (TopicStream if LIMIT_TYPES else UnlimitedTopicStream)(source_of(self.options))

    def writer(self, schema: Any, overwrite: bool) -> TopicWriter:
        """See DataSource."""
        return TopicWriter(sink_of(self.options, schema, overwrites=overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - same
        """See DataSource."""
        return TopicStreamWriter(sink_of(self.options, schema, overwrites=overwrite, is_streaming=True))


def source_of(options: Mapping[str, str]) -> TopicSource:
    """Return the source that the options describe; their names are compared without case.

    Raises UsageError, ConfigError, and errors of the schema registry.
    """
    query = QueryOptions(options, _OPTIONS)
    option, one_of, count = query.text, query.one_of, query.count
    topics = tuple(sorted({name.strip() for name in option("topic").split(",") if name.strip()}))
    pattern = _pattern(option("subscribePattern"))
    if bool(topics) == bool(pattern):
        raise UsageError("give one of the options topic, one or more names separated by commas, and subscribePattern")
    if option("maxOffsetsPerTrigger") and not LIMIT_TYPES:
        raise UsageError("maxOffsetsPerTrigger needs PySpark 4.2 or later")
    properties, values, settings = query.client_properties(Client.CONSUMER)
    if "group.id" in values:
        logger.warning("group.id has no effect: queries read without a group")
    decoding = DecodingOptions(
        key=_field("key", one_of("key", _FORMATS), option("key.schema")),
        value=_field("value", one_of("value", _FORMATS), option("value.schema")),
        keeps_bad=False,
    )
    include_headers = one_of("includeHeaders", ("false", "true")) == "true"
    headers = HeaderForm.parse(option("headers")) if option("headers") else HEADER_LIST
    source = TopicSource(
        settings=settings,
        topics=topics,
        start=parse_offsets(option("startingOffsets", "earliest"), "startingOffsets"),
        end=parse_offsets(option("endingOffsets", LATEST), "endingOffsets"),
        isolation=_ISOLATION[one_of("isolation", tuple(_ISOLATION), values.get("isolation.level", "read_committed"))],
        include_headers=include_headers or bool(option("headers")),
        headers=headers,
        columns=UNDECODED,
        may_skip=one_of("failOnDataLoss", ("true", "false")) == "false",
        partition_offsets_max=count("maxOffsetsPerTask"),
        batch_offsets_max=count("maxOffsetsPerTrigger"),
        pattern=pattern,
        start_times=_times(option("startingTimestamp"), option("startingOffsetsByTimestamp"), "starting"),
        end_times=_times(option("endingTimestamp"), option("endingOffsetsByTimestamp"), "ending"),
        starts_late=one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        tasks_min=count("minPartitions"),
    )
    if decoding.are_typed:
        names = topics or tuple(source.names())
        if not names:
            raise UsageError(f"no topic matches subscribePattern '{pattern}'")
        return replace(source, columns=_columns(decoding, names, properties, option("schema.registry")))
    return source


def _pattern(text: str) -> str:
    """Return the pattern.  Raises UsageError for one that is no regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"subscribePattern '{text}' is not a regular expression: {error}") from None
    if len(text) > PATTERN_LENGTH_MAX:
        raise UsageError(f"subscribePattern has more than {PATTERN_LENGTH_MAX} characters")
    return text


def _times(moment: str, by_partition: str, name: str) -> int | dict[TopicPartition, int] | None:
    """Return the times of --startingTimestamp, which takes precedence, or of each partition."""
    if moment:
        return parse_integer(moment, f"{name}Timestamp", low=0, high=INT64_MAX)
    return parse_times(by_partition, f"{name}OffsetsByTimestamp") if by_partition else None


def _field(name: str, format_: str, schema: str) -> FieldOptions:
    text = ""
    if schema and not FieldOptions.is_in_registry(schema):
        try:
            text = read_regular(schema).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{name}.schema {schema}: {getattr(error, 'strerror', None) or error}") from None
    options = FieldOptions(name=name, format=Format(format_), schema=schema, text=text)
    if options.is_inferred:
        raise UsageError(f"{name} json needs {name}.schema: the columns of a query must not depend on a sample")
    return options


def _columns(options: DecodingOptions, topics: tuple[str, ...], properties: Mapping[str, str], url: str) -> Columns:
    """Return the columns of all topics together."""
    registry = None
    if any(field.needs_registry for field in options.fields):
        found = registry_settings(properties, url or None)
        if found is None:
            raise UsageError("no schema registry: set schema.registry, or schema.registry.url in command.config")
        registry = RegistryClient(found)
    options.require_packages()
    decided = decide(options, topics, {}, registry=registry, sample_of=lambda topic, name: [], is_shared=True)
    if len(set(decided.values())) > 1:
        raise UsageError("the topics have different schemas: use a query for each")
    return decided[topics[0]]
