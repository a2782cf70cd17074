"""Records from standard input or a file, each as soon as its line has been read."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.reading.items import read_record
from kctl.commands.record_format.reading import FormatReader, ReadRecord
from kctl.commands.record_format.syntax import parse_format
from kctl.errors import KctlError, UsageError
from kctl.output.documents import json_problem

if TYPE_CHECKING:
    from kctl.client.registry.codecs import EncodesValues
    from kctl.commands.frame.invocation import Invocation
    from kctl.commands.reading.options import DescriptorOptions


READ_SIZE = 1 << 18


class LineFormat(NamedTuple):
    """How a line is converted into a record."""

    key_separator: bytes | None = None
    """The first occurrence separates key and value."""
    null_marker: bytes | None = None
    """The text of a null key or value."""

    def record(self, line: bytes) -> ReadRecord:
        """Return the record of a line.  Raises UsageError for a line without the separator."""
        key: bytes | None = None
        value: bytes | None = line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise UsageError(f"no key separator {self.key_separator.decode()!r} in it")
        return ReadRecord(self._or_null(key), self._or_null(value), (), None, None)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data


def json_record(line: bytes) -> ReadRecord | None:
    """Return a record from a line that `kctl consume --format jsonl` wrote; None for a blank line.

    Raises UsageError.
    """
    if not line.strip():
        return None
    try:
        # What begins like this is UTF-8; the module json would find that out for every line.
        text = line.decode(errors="surrogatepass") if line.startswith(b'{"') else line
        return read_record(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(json_problem(error)) from None


class InputOptions:
    """How the input is split into records."""

    def __init__(
        self, input_: str, key_separator: str | None, null_marker: str | None, record_format: str | None
    ) -> None:
        """Parse the format; raise UsageError for one that cannot be read."""
        self.input = input_
        self._key_separator = None if key_separator is None else key_separator.encode()
        self._null_marker = None if null_marker is None else null_marker.encode()
        self._reader = None
        if record_format is not None:
            self._reader = FormatReader(parse_format(record_format), self._null_marker)

    @property
    def unit(self) -> str:
        """The unit in which errors number the records of the input."""
        return "line" if self._reader is None else "record"

    @property
    def has_values_only(self) -> bool:
        """Whether a record is a line: its value, without key, headers, partition and time."""
        return (
            self.input == "lines" and self._reader is None and (self._key_separator, self._null_marker) == (None, None)
        )

    async def groups(self, descriptor: int) -> AsyncIterator[Iterator[ReadRecord | None]]:
        """Yield the records of the input, in groups as they arrive; a group raises UsageError at its first invalid
        record.

        None is a blank line, which counts and is no record.
        """
        if self._reader is not None:
            async for data in read_chunks(descriptor):
                yield self._reader.feed(data)
            yield self._reader.finish()
            return
        is_json = self.input == "jsonl"
        to_record: Callable[[bytes], ReadRecord | None] = json_record
        if not is_json:
            to_record = LineFormat(self._key_separator, self._null_marker).record
        async for lines in read_lines(descriptor):
            yield map(to_record, lines)


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Complete lines without their line feed, in groups as they arrive; the last line may lack its line feed."""
    splitter = _LineSplitter()
    async for data in read_chunks(descriptor):
        lines = list(splitter.feed(data))
        if lines:
            yield lines
    if splitter.rest:
        yield [splitter.rest]


class _LineSplitter:
    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = self.rest + lines[0]
            self.rest = tail
        else:
            self.rest += tail
        return iter(lines)


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the data of the descriptor, read without a thread: one that waits for a terminal could not be interrupted.

    Raises KctlError if it cannot be read.
    """
    loop = asyncio.get_running_loop()
    can_wait = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if can_wait:
            readable: asyncio.Future[None] = loop.create_future()
            try:
                loop.add_reader(descriptor, _set, readable)
            except PermissionError:
                can_wait = False  # /dev/null and similar files never block
                continue
            try:
                await readable
            finally:
                loop.remove_reader(descriptor)
        else:
            await asyncio.sleep(0)
        try:
            data = os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            continue  # Another process reads the same pipe or terminal, and was faster.
        except OSError as error:
            raise KctlError(f"cannot read the input: {error.strerror}") from None
        if not data:
            return
        yield data


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


# How keys and values are encoded by the schemas of a registry.


class Encoding(NamedTuple):
    """How keys and values are encoded; None for as they are."""

    key: EncodesValues | None = None
    value: EncodesValues | None = None

    @staticmethod
    def encoded(encoder: EncodesValues | None, data: bytes | None) -> bytes | None:
        """Null stays null: a tombstone has no schema.  Raises SchemaError."""
        return data if encoder is None or data is None else encoder.encode(data)


def encoding_of(
    run: Invocation,
    topic: str | None,
    key_schema: str | None,
    value_schema: str | None,
    registry_url: str | None,
    descriptors: DescriptorOptions,
) -> Encoding:
    """Return the encoding; raise UsageError, ConfigError, SchemaError and RegistryUnreachable."""
    described = descriptors.messages()
    for field, schema in (("key", key_schema), ("value", value_schema)):
        if field in described and schema is not None:
            raise UsageError(f"--{field}-schema and --{field}-descriptor cannot be combined")
    if key_schema is None and value_schema is None:
        if registry_url is not None:
            raise UsageError("--schema-registry requires --value-schema or --key-schema")
        return Encoding(described.get("key"), described.get("value"))
    for option, schema in (("--key-schema", key_schema), ("--value-schema", value_schema)):
        if topic is None and schema is not None and schema.partition("#")[0] in {"", "latest"}:
            raise UsageError(f"{option} latest is that of TOPIC, and none is given; give the subject")
    from kctl.commands.reading.options import encoder_of, registry_client  # noqa: PLC0415 - imports ssl

    client = registry_client(run.client_properties(), registry_url)
    return Encoding(
        described.get("key") if key_schema is None else encoder_of(client, key_schema, f"{topic}-key", "--key-schema"),
        described.get("value")
        if value_schema is None
        else encoder_of(client, value_schema, f"{topic}-value", "--value-schema"),
    )
