"""Selection of the lines of a dump, and decoding of keys and values.  Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

from kctl.commands.frame.options.values import parse_number_range, parse_time_ms
from kctl.dump.batches import BatchLine, Line, OffsetIndexLine, Problem, TimeIndexLine
from kctl.errors import UsageError
from kctl.output.quantities import parse_integer
from kctl.records.header import BatchHeader, Record
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.producer_state import SnapshotEntry

DECODERS = ("string", "json", "hex", "base64", "int", "long")
_INTEGER_SIZES = {"int": 4, "long": 8}
_TIME_MAX = 1 << 63


class Selection:
    """The lines that the options select; all lines by default."""

    __slots__ = ("key", "offsets", "producer_id", "times")

    def __init__(
        self,
        *,
        offsets: range | None = None,
        times: range | None = None,
        key: bytes | None = None,
        producer_id: int | None = None,
    ) -> None:
        self.offsets = offsets
        self.times = times
        self.key = key
        self.producer_id = producer_id

    @classmethod
    def read(
        cls,
        *,
        offset: str | None,
        time: str | None,
        key: str | None,
        key_decoder: str | None,
        producer_id: int | None,
        now_ms: int,
    ) -> Selection:
        """Return the selection of the values of the options.  Raises UsageError."""
        return cls(
            offsets=parse_number_range(offset, "--offset"),
            times=parse_time_range(time, now_ms=now_ms),
            key=None if key is None else encode_as(key_decoder or "string", key),
            producer_id=producer_id,
        )

    @property
    def is_all(self) -> bool:
        """True without any of the options: every record is selected."""
        return self.offsets is None and self.times is None and self.key is None and self.producer_id is None

    @property
    def first_offset(self) -> int:
        """The lowest selected offset; 0 without --offset."""
        return 0 if self.offsets is None else self.offsets.start

    @property
    def last_offset(self) -> int | None:
        """The highest selected offset; None without --offset."""
        return None if self.offsets is None else self.offsets.stop - 1

    def may_select_from(self, header: BatchHeader) -> bool:
        """Return whether the batch may contain a selected record, as far as its header shows."""
        if self.offsets is not None and not (
            header.last_offset >= self.offsets.start and (header.base_offset < self.offsets.stop or header.magic < 2)
        ):
            return False
        if self.times is not None and header.max_timestamp < self.times.start:
            return False
        return self.producer_id is None or header.producer_id == self.producer_id

    def selects_record(self, record: Record) -> bool:
        """Return whether a record is selected; its batch has passed `may_select_from`."""
        return (
            (self.offsets is None or record.offset in self.offsets)
            and (self.times is None or record.timestamp in self.times)
            and (self.key is None or record.key == self.key)
        )

    def selects(self, line: Line) -> bool:
        """Return whether a line of the dump of any kind of file is selected; problems always are."""
        match line:
            case BatchLine():
                return self.may_select_from(line.header)
            case OffsetIndexLine():
                return self.offsets is None or line.offset in self.offsets
            case TimeIndexLine():
                return (self.offsets is None or line.offset in self.offsets) and (
                    self.times is None or line.timestamp in self.times
                )
            case SnapshotEntry() | AbortedTransaction():
                return self.producer_id is None or line.producer_id == self.producer_id
            case Problem():
                return True
            case _:
                return True


def parse_time_range(text: str | None, *, now_ms: int) -> range | None:
    """Read `A:B`, where one side may be empty; None stays None.  Colons within times are allowed."""
    if text is None:
        return None
    for at, character in enumerate(text):
        if character != ":" or len(text) == 1:
            continue
        try:
            first = parse_time_ms(text[:at], now_ms=now_ms) if at else 0
            stop = parse_time_ms(text[at + 1 :], now_ms=now_ms) if at + 1 < len(text) else _TIME_MAX
        except UsageError:
            continue
        if stop < first:
            raise UsageError(f"B of --time A:B is before A: '{text}'")
        return range(first, stop)
    raise UsageError(
        f"--time takes A:B, A: or :B, not '{text}'; a side is 2026-11-21T09:30:00Z, 2026-11-21, 10:05, epoch seconds "
        "or milliseconds, now or -1h"
    )


def encode_as(decoder: str, text: str) -> bytes:
    """Return the bytes that `decoder` shows as `text`.  Raises UsageError."""
    try:
        if decoder == "hex":
            return bytes.fromhex(text)
        if decoder == "base64":
            return base64.b64decode(text, validate=True)
    except ValueError:
        raise UsageError(f"--key '{text}' is not {decoder}, as --key-decoder {decoder} requires") from None
    if decoder in _INTEGER_SIZES:
        bits = 8 * _INTEGER_SIZES[decoder] - 1
        number = parse_integer(text, f"--key with --key-decoder {decoder}", low=-(1 << bits), high=(1 << bits) - 1)
        return number.to_bytes(_INTEGER_SIZES[decoder], "big", signed=True)
    return text.encode(errors="surrogateescape")


def decoded(decoder: str, data: bytes) -> tuple[Any, str] | None:
    """Return (value for JSON, name of the encoding); None if the bytes are not of this type."""
    try:
        match decoder:
            case "hex":
                return data.hex(), "hex"
            case "base64":
                return base64.b64encode(data).decode(), "base64"
            case "json":
                return json.loads(data), "json"
            case "int" | "long" if len(data) == _INTEGER_SIZES[decoder]:
                return int.from_bytes(data, "big", signed=True), decoder
            case "string":
                return data.decode(), "utf-8"
    except (ValueError, RecursionError):
        pass
    return None
