"""`kctl produce`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import stat
import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.topics.offsets import partitions_of
from kctl.client.producing.producer import Producer, ProducerSettings
from kctl.client.producing.transaction import TRANSACTION_TIMEOUT_MS, Transaction
from kctl.client.properties.settings import writing_settings
from kctl.client.registry.schema import SchemaError
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Pair, any_text
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.options.values import format_time, known_time
from kctl.commands.frame.output.rows import ErrorFields, code_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.produce.input import Encoding, InputOptions, encoding_of, read_chunks, read_lines
from kctl.commands.reading.options import DescriptorOptions, NullMarker, RecordFormat, SchemaRegistry
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.output.console import JSON_ONLY, Console, ErrorName, ErrorText, Format
from kctl.output.quantities import INT32_MAX, counted
from kctl.records.build import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kctl.client.cluster import ClusterClient
    from kctl.client.producing.producer import Delivery
    from kctl.model import TopicPartition

app = typer.Typer(add_completion=False)


class DeliveryRow(NamedTuple):
    """The result of one record."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: Annotated[int | None, JSON_ONLY]
    time: str | None
    error: ErrorName
    message: ErrorText


Acks = Literal["all", "-1", "1", "0"]
ACK_TEXTS: dict[str, str] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Input = Literal["lines", "jsonl", "whole"]
AFTER_INTERRUPT_S = 5.0
BATCH_BYTES = 512 << 10
"""A request costs as much processor time as some 50 records.  Topics with smaller batches get halves (see Producer)."""
BUFFERED_BYTES_MAX = 16 << 20
"""Input is read no further while so many bytes wait: some 30 batches, for as many partitions."""


@app.command(
    "produce",
    cls=ChangingCommand,
    epilog=examples(
        "echo hello | kctl produce orders",
        "kctl produce orders --key-separator : --acks all --compression-codec zstd --file orders.txt",
        "kctl consume orders --format jsonl | kctl produce orders-copy --input jsonl",
        "kctl consume 'shop-*' --format jsonl | kctl produce --input jsonl --bootstrap-server test.example.org:9092",
        r"kctl produce orders -f '%k\t%v{base64}\n' --file orders.tsv",
        "kctl produce orders --value-schema latest --schema-registry http://127.0.0.1:8081 --file orders.jsonl",
        "kctl produce orders --file orders.txt --transactional-id nightly-load",
    ),
)
@shows(DeliveryRow)
@with_groups
def produce(
    ctx: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            help="Topic to write to.  It must exist.  Default: with --input jsonl, that of each line.", metavar="TOPIC"
        ),
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Read this instead of standard input.")
    ] = None,
    input_: Annotated[
        Input,
        typer.Option(
            "--input",
            help="A record per line, a JSON object per line as `kctl consume --format jsonl` writes it, or one record.",
        ),
    ] = "lines",
    record_format: RecordFormat = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Key of every record.", parser=any_text)
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="Separator between key and value in a line.")
    ] = None,
    null_marker: NullMarker = None,
    record_header: Annotated[
        list[Pair] | None, typer.Option("--header", "-H", parser=Pair, help="A header of every record.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            metavar="N",
            help="Partition of every record.  Default: by key, as Java's producer does.",
            min=0,
            max=INT32_MAX,
        ),
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option("--acks", help="Which replicas must acknowledge: all in-sync replicas, the leader (1), none (0)."),
    ] = "all",
    codec: Annotated[CodecName, typer.Option("--compression-codec", help="Compression codec of batches.")] = "none",
    value_schema: Annotated[
        str | None,
        typer.Option(
            "--value-schema",
            metavar="SCHEMA",
            help="Encode values, which are JSON, by this schema of a registry: latest, SUBJECT[:VERSION] or id:N.",
        ),
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option("--key-schema", metavar="SCHEMA", help="Encode keys by this schema.")
    ] = None,
    schema_registry: SchemaRegistry = None,
    descriptors: DescriptorOptions,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="Write all records in one transaction with this id."),
    ] = None,
) -> ExitStatus:
    """Write lines from standard input to a topic.

    Lines end with a line feed, which is not part of the record.  -f reads records in the formats that 'kctl consume -f'
    writes, if they have delimiters or sizes: '%k\\t%v\\n', or '%K{big32}%k%V{big32}%v' for any bytes.  %p and %d are
    the partition and the timestamp of the record; %t and %o are read and ignored; see docs/format-language.md.

    With --input jsonl and without TOPIC, each record goes to the topic that its "topic" names, so that the output of
    'kctl consume' for several topics is written back.  With TOPIC, "topic" has no effect.

    With --acks all, a batch that is retried is stored once.  Notes on stderr show where the records were written; with
    json, jsonl, yaml and csv, stdout has a row for every record.

    With --value-schema and --key-schema, values and keys are JSON, which is encoded as Avro, Protobuf or JSON Schema.
    The schema must be in the registry: SCHEMA is `latest` (of TOPIC-value or TOPIC-key), SUBJECT, SUBJECT:VERSION or
    id:N, and #NAME after it selects a message type of Protobuf; see docs/schema-registry.md.

    --value-descriptor and --value-message encode JSON as Protobuf without a registry.

    With --transactional-id, readers of committed records see all records or none: the transaction is committed at the
    end of the input, and aborted when a record cannot be written, a line is invalid, or SIGINT or SIGTERM arrives.
    Other producers with the same id are fenced, and their open transaction is aborted.  The input must end within
    transaction.timeout.ms, which --command-config can set (60000).

    --command-config may set the properties of Kafka's producer (docs/reference/client-properties.md); --acks,
    --compression-codec and --transactional-id take precedence.
    """
    run: Invocation = ctx.obj
    if topic is None and input_ != "jsonl":
        raise UsageError("give TOPIC; only with --input jsonl each line has one")
    run.note_unused("produce", *(["--transactional-id"] if transactional_id is not None else []))
    writing = writing_settings(
        run.producer_properties(),
        ProducerSettings(batch_bytes=BATCH_BYTES, buffered_bytes_max=BUFFERED_BYTES_MAX),
        request_timeout_ms=run.client_settings().response_timeout_ms,
        acks=ACK_TEXTS[run.setting(ctx, "acks", "acks")],
        compression_type=run.setting(ctx, "codec", "compression.type"),
        transactional_id=transactional_id,
    )
    settings = writing.settings
    if input_ != "lines" and (key_separator is not None or null_marker is not None):
        raise UsageError("--key-separator and --null-marker are for --input lines")
    if key is not None and key_separator is not None:
        raise UsageError("--key and --key-separator cannot be combined")
    if record_format is not None and (input_ != "lines" or key_separator is not None):
        raise UsageError("-f describes the input; leave out --input and --key-separator")
    if transactional_id is not None and not settings.idempotent:
        raise UsageError("--transactional-id requires acks=all and enable.idempotence=true")
    every = _Every(
        None if key is None else key.encode(),
        tuple((name, value.encode()) for name, value in record_header or ()),
        partition,
    )
    lines = InputOptions(input_, key_separator, null_marker, record_format)
    encoding = encoding_of(run, topic, key_schema, value_schema, schema_registry, descriptors)
    if encoding.key is not None and every.key is not None:
        every.key = encoding.encoded(encoding.key, every.key)
    timeout_ms = writing.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
    log = DeliveryLog(
        topic or "",
        has_rows=run.console.format not in {Format.TABLE, Format.PLAIN},
        is_transactional=transactional_id is not None,
    )

    async def write(client: ClusterClient, descriptor: int, source: str) -> None:
        partitions = _Partitions(client)
        if topic is not None:
            await partitions.check(topic, partition)
        if transactional_id is None:
            producer = Producer(client, settings, log.add, partitioner=writing.partitioner)
            feed = _feed(producer, partitions, topic, every, lines, encoding, descriptor, source)
            await _write(producer, feed, log, run.console)
            return
        transaction = await Transaction.begin(client, transactional_id, timeout_ms=timeout_ms)
        producer = Producer(client, settings, log.add, transaction=transaction, partitioner=writing.partitioner)
        feed = _feed(producer, partitions, topic, every, lines, encoding, descriptor, source)
        await _write_together(producer, transaction, feed, log, run.console)

    with _descriptor(file) as (descriptor, source):
        try:
            run.on_cluster_concurrently(lambda client: write(client, descriptor, source))
        except BaseException:
            log.summarise(run.console)  # on stderr only: with json, the one document describes the error
            raise
    log.show(run.console)
    if log.first_failure is not None:
        run.console.warn(_reason(log.first_failure))
    return ExitStatus.FAILED if log.failed else ExitStatus.DONE


def _reason(error: Exception) -> str:
    return f"{error.code.name}: {error}" if isinstance(error, ApiError) else str(error)


def _is_late(error: Exception) -> bool:
    """Return whether the time of a batch was over: other errors say something about its records."""
    return isinstance(error, ClusterUnreachable) or (isinstance(error, ApiError) and error.code.retriable)


class _Every:
    """The fields that all records of one run share."""

    __slots__ = ("headers", "key", "partition")

    def __init__(self, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...], partition: int | None) -> None:
        self.key = key
        self.headers = headers
        self.partition = partition


class _Batch:
    """What a row needs to know of the records of one batch."""

    __slots__ = ("base_offset", "error", "timestamps", "tp")

    def __init__(self, delivery: Delivery) -> None:
        self.tp = delivery.tp
        self.base_offset = delivery.base_offset
        self.error: Exception | None = delivery.error
        self.timestamps = array("q", (record[TIMESTAMP] for record in delivery.fields))
        if delivery.timestamp_ms >= 0:
            self.timestamps = array("q", [delivery.timestamp_ms]) * delivery.count


class DeliveryLog:
    """The results of all records: a summary at the end, and with `has_rows` a row per record.

    The records themselves are not kept, so that memory does not grow with the input; for a row, its timestamp is.
    """

    def __init__(self, topic: str, *, has_rows: bool, is_transactional: bool = False) -> None:
        """`topic`: that of all records, or "" if each has its own."""
        self.failed = 0
        self.first_failure: Exception | None = None
        self.is_over = False
        """Whether further records will fail: the time is over, or the transaction has failed."""
        self.on_failure: Callable[[], object] = bool
        """Called when a batch has failed."""
        self._topic = topic
        self._has_rows = has_rows
        self._is_transactional = is_transactional
        self._count = 0
        self._batches: list[_Batch] = []
        self._spans: dict[TopicPartition, tuple[int, int]] = {}
        """The first and the last offset of each partition."""

    def add(self, delivery: Delivery) -> None:
        """Add a batch that was acknowledged or has failed."""
        count = delivery.count
        self._count += count
        if self._has_rows:
            self._batches.append(_Batch(delivery))
        if delivery.error is not None:
            self.failed += count
            self.first_failure = self.first_failure or delivery.error
            self.is_over = self.is_over or self._is_transactional or _is_late(delivery.error)
            self.on_failure()
        elif delivery.base_offset >= 0:
            first, last = delivery.base_offset, delivery.base_offset + count - 1
            known_first, known_last = self._spans.get(delivery.tp, (first, last))
            self._spans[delivery.tp] = (min(first, known_first), max(last, known_last))

    def abort(self) -> None:
        """Mark all records as failed: the transaction was aborted."""
        aborted = ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted")
        for batch in self._batches:
            batch.error = batch.error or aborted
            batch.base_offset = -1
        self._spans.clear()
        self.failed = self._count

    def show(self, console: Console) -> None:
        """Show the rows on stdout, and the summary on stderr."""
        if self._has_rows:
            self._batches.sort(key=lambda batch: (batch.tp, batch.base_offset))
            console.show(DeliveryRow, self._rows())
        if self._count:
            self.summarise(console)
        else:
            console.note("nothing to write")

    def summarise(self, console: Console) -> None:
        """Write the summary to stderr; nothing without any completed batch."""
        if not self._count:
            return
        topics = sorted({tp.topic for tp in self._spans})
        where = "; ".join(
            f"{f'partition {tp.partition}' if self._topic else tp}: offsets {first} to {last}"
            for tp, (first, last) in sorted(self._spans.items())
        )
        done = counted(self._count - self.failed, "record")
        console.note(f"{done} to {self._topic or counted(len(topics), 'topic')}{': ' + where if where else ''}")
        if self.failed:
            console.note(f"{self.failed:,} not written")

    def _rows(self) -> Iterator[DeliveryRow]:
        for batch in self._batches:
            for index, timestamp_ms in enumerate(batch.timestamps):
                yield DeliveryRow(
                    topic=batch.tp.topic,
                    partition=batch.tp.partition,
                    offset=None if batch.base_offset < 0 else batch.base_offset + index,
                    timestamp_ms=known_time(timestamp_ms),
                    time=format_time(timestamp_ms),
                    **_failure(batch.error),
                )


class _Partitions:
    """The partitions of topics, to refuse those that do not exist before their records are buffered."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._known: dict[str, set[int]] = {}

    async def _look_up(self, topic: str) -> None:
        try:
            self._known[topic] = {tp.partition for tp in await partitions_of(self._client, [topic])}
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # A misspelled name would become a topic if brokers created it, as they do for Kafka's own tool.
            raise ApiError(error.code, f"{error}: 'kctl topics create {shlex.quote(topic)}' creates it") from None

    async def check(self, topic: str, partition: int | None) -> None:
        """Refresh the metadata before it refuses a partition, because partitions can be added.

        None is any partition.  Raises ApiError, also for a topic that does not exist.
        """
        if topic not in self._known:
            await self._look_up(topic)
        if partition is None or partition in self._known[topic]:
            return
        await self._look_up(topic)
        if partition not in self._known[topic]:
            text = f"{topic} has no partition {partition}; it has {len(self._known[topic])}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


async def _read(feed: Coroutine[None, None, None], log: DeliveryLog, console: Console) -> None:
    """Await the feed; end it when no further record of the input can be written."""
    reading = asyncio.ensure_future(feed)
    log.on_failure = lambda: reading.cancel() if log.is_over else False
    try:
        await asyncio.wait([reading])
    finally:
        log.on_failure = bool
        reading.cancel()
    if reading.cancelled():
        console.note("the rest of the input was not read")
    else:
        reading.result()


async def _write(producer: Producer, feed: Coroutine[None, None, None], log: DeliveryLog, console: Console) -> None:
    """Write the records of the input, of which no more is read once some could not be written in time."""
    try:
        await _read(feed, log, console)
        await producer.flush()
    except asyncio.CancelledError:
        # Interrupted: send the records that have been read, if that is possible quickly.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AFTER_INTERRUPT_S):
                await producer.flush()
        raise
    except UsageError:
        await producer.flush()  # the lines before the invalid one
        raise
    finally:
        producer.abandon()


async def _write_together(
    producer: Producer, transaction: Transaction, feed: Coroutine[None, None, None], log: DeliveryLog, console: Console
) -> None:
    """Write all records in one transaction.  A failed commit is reported unchanged, because its outcome is unknown."""
    try:
        await _read(feed, log, console)
        await producer.flush()
    except BaseException:
        producer.abandon()
        with contextlib.suppress(TimeoutError, KctlError):  # the coordinator aborts after the timeout
            async with asyncio.timeout(AFTER_INTERRUPT_S):
                await transaction.abort()
        log.abort()
        raise
    if log.failed:
        log.abort()
        await transaction.abort()
        return
    try:
        await transaction.commit()
    except ApiError:
        log.abort()
        raise


async def _feed(
    producer: Producer,
    partitions: _Partitions,
    topic: str | None,
    every: _Every,
    lines: InputOptions,
    encoding: Encoding,
    descriptor: int,
    source: str,
) -> None:

    if topic is not None and lines.input == "whole":
        whole = b"".join([data async for data in read_chunks(descriptor)])
        whole = encoding.encoded(encoding.value, whole) or b""
        await producer.send(topic, whole, key=every.key, headers=every.headers, partition=every.partition)
        return
    if topic is not None and lines.has_values_only and encoding.value is None:
        async for values in read_lines(descriptor):
            done = 0
            while done < len(values):
                left = values[done:]
                sent = producer.send_run_at_once(
                    topic, left, key=every.key, headers=every.headers, partition=every.partition
                )
                if not sent:
                    await producer.ready(topic, every.partition)
                done += sent
        return
    number = 0
    try:
        async for group in lines.groups(descriptor):
            for record in group:
                if record is None:
                    number += 1
                    continue
                name = topic or record.topic
                if name is None:
                    raise UsageError('no "topic" in it, and no TOPIC is given')
                number_of_partition = record.partition if every.partition is None else every.partition
                if topic is None or (every.partition is None and record.partition is not None):
                    try:
                        await partitions.check(name, number_of_partition)
                    except ApiError as error:  # As other lines that are invalid.
                        raise UsageError(str(error)) from None
                value = encoding.encoded(encoding.value, record.value)
                key = every.key if record.key is None else encoding.encoded(encoding.key, record.key)
                while not producer.send_at_once(
                    name,
                    value,
                    key=key,
                    headers=record.headers + every.headers,
                    partition=number_of_partition,
                    timestamp_ms=record.timestamp_ms,
                ):
                    await producer.ready(name, number_of_partition)
                number += 1
    except (UsageError, SchemaError) as error:
        raise UsageError(f"{source} {lines.unit} {number + 1}: {error}") from None


@contextlib.contextmanager
def _descriptor(file: str | None) -> Iterator[tuple[int, str]]:
    """Provide the input and its name.  Raises UsageError for a file that cannot be read."""
    if file is None or file == "-":
        yield sys.stdin.fileno(), "standard input"
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise UsageError(f"cannot read {file}: it is a directory")
        yield descriptor, file
    finally:
        os.close(descriptor)


def _failure(error: Exception | None) -> ErrorFields:
    if error is None:
        return code_error(ErrorCode.NONE)
    code = error.code.name if isinstance(error, ApiError) else "CLUSTER_UNREACHABLE"
    return {"error": code, "message": str(error)}
