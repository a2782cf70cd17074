"""The output of Kafka's kafka-dump-log, byte for byte, for scripts that parse it.

DumpLogSegments of 2.8, 3.9 and 4.3; tests compare with the tools themselves. 3.9 prints the same as 4.3, except for
transactions (as 2.8) and messages of old formats (with a stray brace).  Where an exception ends Kafka's tool, this
module continues and describes the error on stderr.  Entries that are out of order are listed on stderr after the last
file, as Kafka does.  The exit status is 1 if a file is invalid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kctl.commands.compat.texts import internal_records as internal
from kctl.commands.compat.texts.dump_log import (
    Misfits,
    batch_text,
    codec_name,
    control_text,
    inner_checksums,
    java_path,
    legacy_metadata,
    producer_text,
    timestamp_type,
)
from kctl.commands.compat.texts.internal_records import Texts
from kctl.commands.compat.texts.java import KAFKA_3, KAFKA_4, KAFKA_28
from kctl.commands.dump_log.dumping import Inputs, progress_of
from kctl.commands.dump_log.selection import decoded
from kctl.commands.frame.exit_status import ExitStatus
from kctl.dump.batches import BatchLine, Problem, Progress, first_bytes, read_log
from kctl.dump.indexes import OFFSET_ENTRY, TIME_ENTRY, LogBeside, entries, open_file, sanity_problem
from kctl.dump.kinds import base_offset_of, recognized_kind
from kctl.errors import CorruptLog, UsageError
from kctl.output.console import Console
from kctl.records.dump_text import AS_JAVA, LineFormat, write_records
from kctl.records.header import CODEC_MASK, SEQUENCE_MAX, BatchHeader, CorruptBatch, Record
from kctl.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_metadata_snapshot_name,
)
from kctl.storage.segments.transaction_index import parse_transaction_index
from kctl.storage.state.checkpoints import parse_snapshot
from kctl.system.user_files import read_regular

if TYPE_CHECKING:
    from kctl.commands.compat.registration import Call


def dump(
    call: Call,
    *,
    offset: str | None,
    time: str | None,
    key: str | None,
    producer_id: int | None,
    key_decoder: str | None,
    value_decoder: str | None,
    records: bool,
    max_bytes: int | None,
    verify_only: bool,
    index_sanity_check: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    **_: Any,
) -> Any:
    """`kctl dump-log`, which rebuilds indexes as without --compat.  Raises UsageError for options of kctl's own."""
    console = call.run.console

    def dump_files(inputs: Inputs, topic_decoder: str | None) -> ExitStatus:
        if any(option is not None for option in (offset, time, key, producer_id)):
            raise UsageError("--compat cannot be combined with --offset, --time, --key or --producer-id")
        parser = _parser(
            call.version,
            shows=records or key_decoder is not None or value_decoder is not None,
            decoders=(key_decoder or "string", value_decoder or "string"),
            topic_decoder=topic_decoder,
        )
        options = ClassicOptions(
            parser=parser,
            deep=deep_iteration,
            skip_metadata=skip_record_metadata,
            verify_only=verify_only,
            sanity_only=index_sanity_check,
            max_bytes=max_bytes,
        )
        classic = ClassicDump(console, call.version, options)
        for path in inputs.paths:
            with progress_of(console, path) as progress:
                classic.show(path, progress, shown=inputs.name_of(path))
        classic.finish()
        return ExitStatus.FAILED if classic.has_problem else ExitStatus.DONE

    return call.carry_out(dump=dump_files)


Parser = Callable[[Record], Texts]

_WRITE_SIZE = 1 << 16
_BASE_OFFSET = re.compile(r"[0-9]+")


def as_text(record: Record) -> Texts:
    """Return the key and value as Kafka's StringDecoder shows them: invalid UTF-8 becomes U+FFFD."""
    key, value = record.key, record.value
    return (
        None if key is None else key.decode(errors=AS_JAVA),
        None if value is None else value.decode(errors=AS_JAVA),
    )


class ClassicOptions:
    """The parts to show; `parser` is None if keys and values are not shown."""

    __slots__ = ("deep", "max_bytes", "parser", "sanity_only", "skip_metadata", "verify_only")

    def __init__(
        self,
        *,
        deep: bool,
        parser: Parser | None,
        skip_metadata: bool,
        verify_only: bool,
        sanity_only: bool,
        max_bytes: int | None,
    ) -> None:
        self.deep = deep or parser is not None
        self.max_bytes = max_bytes
        self.parser = parser
        self.skip_metadata = skip_metadata
        self.verify_only = verify_only
        self.sanity_only = sanity_only


class ClassicDump:
    """Dumps files one after the other."""

    def __init__(self, console: Console, style: str, options: ClassicOptions) -> None:
        self.has_problem = False
        self._console = console
        self._is_28 = style == KAFKA_28
        self._style = style
        self._options = options
        self._pieces: list[str] = []
        self._piece_size = 0
        self._misfits = Misfits()
        self._shown: dict[str, str] = {}

    def show(self, path: str, progress: Progress | None = None, *, shown: str = "") -> None:
        """Dump one file; `shown` is its name, if `path` is a copy of it."""
        self._line(f"Dumping {java_path(shown or path)}")
        self._shown[path] = shown or path
        name = os.path.basename(path)
        suffix = name[name.rfind(".") :] if "." in name else ""
        base = _BASE_OFFSET.fullmatch(name.partition(".")[0])
        base_offset = int(base[0]) if base else 0
        try:
            if not suffix and shown not in {"", path}:  # Standard input, which Kafka's tool does not read.
                suffix, base_offset = recognized_kind(path) or "", base_offset_of(path)
            match suffix:
                case ".log":
                    self._log(path, base_offset, progress)
                case ".checkpoint" if not self._is_28:
                    self._log(path, base_offset, progress)
                case ".index":
                    self._offset_index(path, base_offset)
                case ".timeindex":
                    self._time_index(path, base_offset)
                case ".snapshot":
                    for entry in parse_snapshot(read_regular(path), path):
                        self._line(producer_text(entry, is_28=self._is_28))
                case ".txnindex":
                    for aborted in parse_transaction_index(read_regular(path), path):
                        self._line(
                            f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset} "
                            f"lastOffset: {aborted.last_offset} lastStableOffset: {aborted.last_stable_offset}"
                        )
                case _:
                    self._write_line(f"Ignoring unknown file {java_path(shown or path)}")
        except CorruptLog as problem:
            self._complain(path, Problem(problem.reason, problem.position))
        except OSError as error:
            self._complain(path, Problem(error.strerror or str(error)))
        self._flush()

    def finish(self) -> None:
        """Write the lists of mismatches."""
        self._misfits.write(self._write_line)
        self.has_problem = self.has_problem or self._misfits.is_wrong

    # Logs

    def _log(self, path: str, base_offset: int, progress: Progress | None) -> None:
        self._line(_first_line(path, base_offset, is_28=self._is_28))
        file = open_file(path)
        try:
            end = file.size()
            gaps: list[tuple[int, int]] = []
            last_offset, covered = -1, 0
            for line in first_bytes(read_log(file, base_offset, 0, end, progress), self._options.max_bytes):
                if isinstance(line, Problem):
                    self._complain(path, line)
                    continue
                covered = line.header.end
                self._line(batch_text(line, is_28=self._is_28))
                if self._options.deep:
                    try:
                        last_offset = self._records(line, last_offset, gaps)
                    except CorruptBatch as problem:
                        if line.is_sound:
                            self._complain(path, Problem(problem.reason, line.header.position, line.header.size))
            if covered < end and self._options.max_bytes is None:
                self._line(f"Found {end - covered} invalid bytes at the end of {os.path.basename(path)}")
            if gaps:
                self._misfits.gaps[_absolute(path)] = gaps
        finally:
            file.close()

    def _records(self, line: BatchLine, last_offset: int, gaps: list[tuple[int, int]]) -> int:
        """Write the records of one batch; return the last offset.  Raises CorruptBatch."""
        header = line.header
        parser = None if header.is_control else self._options.parser
        shows_metadata = not self._options.skip_metadata
        stamp = timestamp_type(header)
        common = self._batch_text(line) if self._is_28 and shows_metadata else ""
        if header.magic >= 2 and shows_metadata and not header.is_control and parser in {None, as_text}:
            expected = write_records(
                line.region(),
                header,
                -1 if last_offset == -1 else last_offset + 1,
                gaps,
                self._add,
                LineFormat(self._is_28, stamp, common, with_contents=parser is not None),
            )
            return expected - 1
        checksums: Iterator[int] = inner_checksums(line) if header.magic < 2 else iter(())
        lines: list[str] = []
        try:
            for record in line.records():
                if last_offset not in {-1, record.offset - 1}:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                contents = "" if parser is None else _contents(*parser(record))
                if not shows_metadata:
                    lines.append(f"|{contents}\n" if contents.startswith(" key") else f"{contents}\n")
                elif header.magic < 2:
                    text = legacy_metadata(record, stamp, common, next(checksums, None), is_28=self._is_28)
                    if self._style == KAFKA_3:
                        text += "}"
                    lines.append(f"{text}{contents}\n")
                else:
                    if header.is_control:
                        contents = control_text(record, self._style)
                    lines.append(f"{self._metadata(header, record, stamp, common)}{contents}\n")
        finally:
            self._add("".join(lines))
        return last_offset

    def _batch_text(self, line: BatchLine) -> str:
        """Return the text about the batch that 2.8 repeats in the line of every record."""
        header = line.header
        base_offset = header.base_offset
        if header.magic < 2 and header.attributes & CODEC_MASK:
            base_offset = next((record.offset for record in line.records()), base_offset)
        return (
            f" baseOffset: {base_offset} lastOffset: {header.last_offset} baseSequence: {header.base_sequence}"
            f" lastSequence: {header.last_sequence} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.leader_epoch} batchSize: {header.size} magic: {header.magic}"
            f" compressType: {codec_name(header, is_28=self._is_28)} position: {header.position}"
        )

    def _metadata(self, header: BatchHeader, record: Record, stamp: str, common: str) -> str:
        """Return the line of a record of magic 2, without its contents."""
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence - header.base_offset + record.offset) & SEQUENCE_MAX
        names = ",".join(name for name, _ in record.headers)
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        end = f" sequence: {sequence} headerKeys: [{names}]"
        if self._is_28:
            return (
                f"| offset: {record.offset} isValid: true crc: null keySize: {key_size} valueSize: {value_size} "
                f"{stamp}: {record.timestamp}{common}{end}"
            )
        return f"| offset: {record.offset} {stamp}: {record.timestamp} keySize: {key_size} valueSize: {value_size}{end}"

    # Indexes

    def _offset_index(self, path: str, base_offset: int) -> None:
        log = self._log_of(path)
        try:
            if os.stat(path).st_size < OFFSET_ENTRY.size:
                self._line(f"{java_path(path)} is empty.")
                return
            if self._is_sanity_check(path, INDEX_SUFFIX):
                return
            mismatches: list[tuple[int, int]] = []
            for at, (relative, position) in entries(path, OFFSET_ENTRY):
                if relative == 0 and at:
                    break
                offset = base_offset + relative
                if log is not None and (at or relative or position or log.size):
                    try:
                        last_offset = log.header_at(position).last_offset
                        if last_offset != offset:
                            mismatches.append((offset, last_offset))
                    except CorruptBatch as problem:
                        self._complain(path, Problem(f"entry {offset} points to {position}: {problem.reason}", at))
                if not self._options.verify_only:
                    self._line(f"offset: {offset} position: {position}")
            if mismatches:
                self._misfits.offset_mismatches[_absolute(path)] = mismatches
        finally:
            if log is not None:
                log.close()

    def _time_index(self, path: str, base_offset: int) -> None:
        log = self._log_of(path)
        try:
            if self._is_sanity_check(path, TIME_INDEX_SUFFIX):
                return
            whole = _absolute(path)
            batches = log.batches(base_offset) if log is not None else iter(())
            batch = next(batches, None)
            before = -1
            for at, (timestamp, relative) in entries(path, TIME_ENTRY):
                if relative == 0 and at:
                    break
                offset = base_offset + relative
                while batch is not None and batch.header.last_offset < offset:
                    batch = next(batches, None)
                if log is None:
                    pass
                elif batch is None or batch.header.last_offset != offset:
                    last_offset = -1 if batch is None else batch.header.last_offset
                    self._misfits.not_found.setdefault(whole, []).append((offset, last_offset))
                else:
                    latest = _latest(batch)
                    if latest != timestamp:
                        self._misfits.time_mismatches.setdefault(whole, []).append((timestamp, latest))
                    if before >= timestamp:
                        self._misfits.out_of_order.setdefault(whole, []).append((timestamp, before))
                if not self._options.verify_only:
                    self._line(f"timestamp: {timestamp} offset: {offset}")
                before = timestamp
        finally:
            if log is not None:
                log.close()

    def _is_sanity_check(self, path: str, kind: str) -> bool:
        """Return whether only a sanity check was requested; if so, perform it."""
        if not self._options.sanity_only:
            return False
        reason = sanity_problem(path, kind)
        if reason is None:
            self._line(f"{java_path(path)} passed sanity check.")
        else:
            self._complain(path, Problem(reason))
        return True

    def _log_of(self, path: str) -> LogBeside | None:
        try:
            return LogBeside(path)
        except FileNotFoundError:
            self._complain(path, Problem("there is no log beside it"))
            return None

    # Writing

    def _line(self, text: str) -> None:
        self._add(text + "\n")

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._piece_size += len(text)
        if self._piece_size >= _WRITE_SIZE:
            self._flush()

    def _flush(self) -> None:
        self._console.verbatim("".join(self._pieces))
        self._pieces.clear()
        self._piece_size = 0

    def _write_line(self, text: str) -> None:
        self._console.complain(text)

    def _complain(self, path: str, problem: Problem) -> None:
        self.has_problem = True
        at = "" if problem.position is None else f" at position {problem.position}"
        self._console.warn(f"{self._shown.get(path, path)}{at}: {problem.reason}")


def _first_line(path: str, base_offset: int, *, is_28: bool) -> str:
    """Return the line before the batches of a log or a KRaft snapshot."""
    name = os.path.basename(path)
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    if (snapshot := parse_metadata_snapshot_name(name)) is not None:
        return f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}"
    return f"Starting offset: {base_offset}" if is_28 else f"Log starting offset: {base_offset}"


def _contents(key: str | None, payload: str | None) -> str:
    """Return the end of a line with key and value."""
    return ("" if key is None else f" key: {key}") + ("" if payload is None else f" payload: {payload}")


def _latest(batch: BatchLine) -> int:
    """Return the largest timestamp of the records, as Kafka determines it; that of the header if the records are
    invalid.
    """
    try:
        return max((record.timestamp for record in batch.records()), default=-1)
    except CorruptBatch:
        return batch.header.max_timestamp


def _absolute(path: str) -> str:
    """File.getAbsolutePath, which keeps `.` and `..`."""
    return java_path(os.path.join(os.getcwd(), path))


def _parser(compat: str, *, shows: bool, decoders: tuple[str, str], topic_decoder: str | None) -> Parser | None:
    """Return the parser that prints keys and values as Kafka's tool of that version; None if it shows none.

    Raises UsageError.
    """
    since_3: dict[str, Parser] = {
        "--offsets-decoder": internal.offsets_4,
        "--cluster-metadata-decoder": internal.cluster_metadata_4,
    }
    parsers: dict[str, dict[str, Parser]] = {
        KAFKA_28: {
            "--offsets-decoder": internal.offsets_28,
            "--transaction-log-decoder": internal.transactions_28,
        },
        KAFKA_3: since_3
        | {
            "--transaction-log-decoder": internal.transactions_28,
            "--remote-log-metadata-decoder": internal.remote_log_metadata_3,
        },
        KAFKA_4: since_3
        | {
            "--transaction-log-decoder": internal.transactions_4,
            "--remote-log-metadata-decoder": internal.remote_log_metadata_4,
            "--share-group-state-decoder": internal.share_group_state_4,
        },
    }
    if topic_decoder is not None:
        if topic_decoder not in parsers[compat]:
            raise UsageError(f"{topic_decoder} does not go with --compat {compat}: use --compat kafka-4")
        return parsers[compat][topic_decoder]
    if not shows:
        return None
    if decoders == ("string", "string"):
        return as_text
    key_text, value_text = map(classic_text, decoders)
    return lambda record: (
        None if record.key is None else key_text(record.key),
        None if record.value is None else value_text(record.value),
    )


def classic_text(decoder: str) -> Callable[[bytes], str]:
    """Return the function that shows bytes as Kafka's decoder does: invalid UTF-8 becomes U+FFFD."""

    def text(data: bytes) -> str:
        found = None if decoder in {"string", "json"} else decoded(decoder, data)
        return data.decode(errors=AS_JAVA) if found is None else str(found[0])

    return text
