"""Prepares records before they are selected and shown: decoding by a schema registry, and masking."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from kctl.admin.records.selection import MASK, Masking, MaskingRules, Substitute, masking
from kctl.client.registry.codecs import Decoder, DecodesValues
from kctl.client.registry.schema import RegistryUnreachable, SchemaError
from kctl.commands.reading.searches import SEARCHED_BYTES_MAX, TIME_S_MAX, Expired, within_limit
from kctl.commands.record_format.reading import RoundTrip
from kctl.commands.record_format.syntax import parse_format
from kctl.commands.record_format.writing import FormatWriter
from kctl.errors import KctlError, UsageError
from kctl.output.console import Format
from kctl.output.quantities import counted
from kctl.records.header import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kctl.model import TopicPartition
    from kctl.output.console import Console

    ToText = Callable[[TopicPartition, Sequence[Record]], Iterator[bytes]]
    """Yields the text of records, of one or of several at once.  Raises UsageError."""


Decode = Literal["value", "key", "both"]
_SHOWN_CAUSES_MAX = 20
_PATTERN_CHARACTERS_MAX = 10_000


class DecodedRecord(NamedTuple):
    """A record, and the schemas by which its key and value were decoded into JSON."""

    record: Record
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class Presenting:
    """Decodes and masks the records of one command.  Owner: the main thread."""

    def __init__(self, console: Console, decoders: Mapping[str, DecodesValues], masks: Masking | None) -> None:
        """Without a decoder, the key or value stays as it is."""
        self.decodes = bool(decoders)
        self._console = console
        self._decoders = decoders
        self._masks = masks
        self._failures: dict[str, int] = {}

    @property
    def has_failed(self) -> bool:
        """Whether the key or value of any record could not be decoded."""
        return bool(self._failures)

    @property
    def changes_nothing(self) -> bool:
        """Whether records are shown as they are."""
        return not self._decoders and self._masks is None

    def __call__(self, tp: TopicPartition, record: Record, *, counts_failures: bool = True) -> DecodedRecord:
        """Return the record as it is shown; bytes that do not decode stay as they are.

        The failures of a record count once: a second call for it is made without `counts_failures`.
        """
        if self.changes_nothing:
            return DecodedRecord(record)
        key, key_schema_id = self._decoded(tp, record, "key", record.key, counts_failures)
        value, value_schema_id = self._decoded(tp, record, "value", record.value, counts_failures)
        headers = record.headers
        if self._masks is not None:
            key, value, headers = self._masks.key(key), self._masks.value(value), self._masks.headers(headers)
        shown = Record(record.offset, record.timestamp, key, value, headers)
        return DecodedRecord(shown, key_schema_id, value_schema_id)

    def summarise(self) -> None:
        """Note the number of records of each cause, if there were several."""
        for cause, count in self._failures.items():
            if count > 1:
                self._console.note(f"{counted(count, 'record')}: {cause}")

    def _decoded(
        self,
        tp: TopicPartition,
        record: Record,
        field: Literal["key", "value"],
        data: bytes | None,
        counts_failures: bool,
    ) -> tuple[bytes | None, int | None]:
        decoder = self._decoders.get(field)
        if data is None or decoder is None:
            return data, None
        try:
            decoded = decoder.decode(data)
        except (SchemaError, RegistryUnreachable) as error:
            if counts_failures:
                self._note_failure(tp, record, field, str(error))
            return data, None
        return decoded.text.encode(), decoded.schema_id

    def _note_failure(self, tp: TopicPartition, record: Record, field: str, cause: str) -> None:
        """Warn once about each cause."""
        known = f"the {field} is not decoded: {cause}"
        if known not in self._failures and len(self._failures) >= _SHOWN_CAUSES_MAX:
            known = "not decoded, for further reasons"
        if known not in self._failures:
            self._console.warn(f"{tp} at offset {record.offset}: {known}")
        self._failures[known] = self._failures.get(known, 0) + 1


def presenting(
    console: Console,
    properties: Mapping[str, str],
    *,
    decode: Decode | None,
    registry_url: str | None,
    described: Mapping[str, DecodesValues],
    rules: MaskingRules,
) -> Presenting:
    """Return the presentation that the options and properties request; `described` decodes without a registry.

    Raises UsageError and ConfigError.
    """
    if registry_url is not None and decode is None:
        raise UsageError("--schema-registry requires --decode")
    decoders = dict(described)
    fields = {"both": ("key", "value"), None: ()}.get(decode, (decode,))
    if conflict := next((field for field in fields if field in described), None):
        raise UsageError(f"--decode {decode} and --{conflict}-descriptor cannot be combined")
    if decode is not None:
        from kctl.commands.reading.options import registry_client  # noqa: PLC0415 - imports ssl and an HTTP client

        decoders.update(dict.fromkeys(map(str, fields), Decoder(registry_client(properties, registry_url))))
    return Presenting(console, decoders, masking(rules, timed_substitute))


def timed_substitute(pattern: str) -> Substitute:
    """Return a function that replaces all matches by MASK, and a text of more than SEARCHED_BYTES_MAX characters as a
    whole.

    It raises MaskingTooSlow.  Raises UsageError for an invalid expression.
    """
    if not pattern or len(pattern) > _PATTERN_CHARACTERS_MAX:
        raise UsageError(f"--mask-regex takes 1 to {_PATTERN_CHARACTERS_MAX:,} characters")
    try:
        expression = within_limit(lambda: re.compile(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--mask-regex: '{pattern}' is not a valid regular expression: {error}") from None
    except Expired:
        raise UsageError(f"--mask-regex: the expression takes more than {TIME_S_MAX:g} s to compile") from None

    def substitute(text: str) -> str:
        if len(text) > SEARCHED_BYTES_MAX:
            return MASK
        try:
            return within_limit(lambda: expression.sub(lambda _: MASK, text))
        except Expired:
            raise MaskingTooSlow(
                f"--mask-regex '{pattern}' takes more than {TIME_S_MAX:g} s for one text; use an expression with fewer"
                " nested or adjacent repetitions"
            ) from None

    return substitute


class MaskingTooSlow(KctlError):
    """Masking one text has exceeded its time limit."""


# Indents the JSON of a value for a terminal, without changing its numbers, texts and order. Pure.


INDENTED_CHARACTERS_MAX = 4 << 20
"""Length of the longest indented document; a deeply nested one would be much longer than the value."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def indented(text: str) -> str | None:
    """Return the document with a line per member and element; None if it is not JSON object or list, or too long."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > INDENTED_CHARACTERS_MAX:
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # ValueError also for integers of thousands of digits
        return None
    pieces: list[str] = []
    depth, length, before = 0, 0, ""
    for mark in _TOKEN.findall(text):
        if mark in "]}":
            depth -= 1
        is_new_line = before in ("[", "{", ",") or mark in "]}"
        if is_new_line and not (mark in "]}" and before in ("[", "{")):
            pieces.append("\n" + "  " * depth)
        pieces.append(": " if mark == ":" else mark)
        length += len(pieces[-1]) + 2 * depth
        if length > INDENTED_CHARACTERS_MAX:
            return None
        if mark in "[{":
            depth += 1
        before = mark
    return "".join(pieces)


# Records as text instead of rows: in the format of -f, or only their values.


def text_of_options(
    console: Console,
    *,
    record_format: str | None,
    null_marker: str | None,
    reversible: bool,
    value_only: bool,
    formatter: str | None,
) -> ToText | None:
    """Return how the options write records as text; None for rows.  Raises UsageError."""
    if record_format is None and not value_only:
        if null_marker is not None or reversible:
            raise UsageError("--null-marker and --reversible require -f")
        return None
    if record_format is not None and value_only:
        raise UsageError("-f and --value-only cannot be combined")
    option = "-f" if value_only is False else "--value-only"
    if console.is_machine_readable or console.format is Format.CSV:
        raise UsageError(f"{option} is a format of its own; leave out --format")
    if formatter is not None:
        raise UsageError(f"{option} and --formatter cannot be combined")
    null = None if null_marker is None else null_marker.encode()
    if record_format is None:
        if reversible:
            raise UsageError("--reversible requires -f")
        return _value_lines(null or b"", is_indented=console.stdout.isatty())
    return _in_format(record_format, null, reversible=reversible)


def _in_format(text: str, null_marker: bytes | None, *, reversible: bool) -> ToText:
    pieces = parse_format(text)
    writer = FormatWriter(pieces, null_marker)
    if not reversible:
        return writer.write_all
    round_trip = RoundTrip(pieces, null_marker)

    def write(tp: TopicPartition, records: Sequence[Record]) -> Iterator[bytes]:
        for record in records:
            written = writer.write(tp, record)
            round_trip.check(tp, record, written)
            yield written

    return write


def _value_lines(null: bytes, *, is_indented: bool) -> ToText:
    def line(value: bytes) -> bytes:
        if is_indented and (document := indented(value.decode(errors="surrogateescape"))) is not None:
            value = document.encode(errors="surrogateescape")
        return value + b"\n"

    def write(_: TopicPartition, records: Sequence[Record]) -> Iterator[bytes]:
        yield b"".join([line(null if record.value is None else record.value) for record in records])

    return write
