"""Down-conversion for Fetch versions 0 to 3, whose clients do not support magic 2.

Records are converted to magic 0 or 1 in memory, in a thread; one response converts at most SOURCE_BYTES_MAX of the log.
A batch that exceeds the bounds of kctl.limits gets CORRUPT_MESSAGE.  Batches without any convertible record, mostly
transaction markers, are skipped: a client that got an empty response would fetch the same offset again.
"""

from __future__ import annotations

import struct
from functools import partial

from kctl.errors import ApiError, ErrorCode
from kctl.records.allowance import decompressed_size_max
from kctl.records.conversion import downgrade
from kctl.records.header import CorruptBatch
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log import Log
from kctl.storage.lookup import RecordsSlice

LAST_VERSION_FOR_MAGIC_0 = 1
LAST_VERSION_WITH_HARD_LIMITS = 2
LAST_VERSION_FOR_MAGIC_1 = 3
FIRST_VERSION_WITH_ZSTD = 10

SOURCE_BYTES_MAX = 512 << 10
"""Bounds conversions in threads, which compete with the event loop; the first batch may be larger."""

_CUT_OFF_SIZE = 64
_ENTRY = struct.Struct(">qi")


def magic_for(version: int) -> int | None:
    """The newest message format that a client with this Fetch version supports; None for magic 2."""
    if version > LAST_VERSION_FOR_MAGIC_1:
        return None
    return 0 if version <= LAST_VERSION_FOR_MAGIC_0 else 1


def check_allowed(log: Log, version: int, *, is_follower: bool) -> None:
    """Raises ApiError if the topic's configuration does not allow clients of this Fetch version."""
    if version < FIRST_VERSION_WITH_ZSTD and log.config.compression_type == "zstd":
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version <= LAST_VERSION_FOR_MAGIC_1 and not is_follower and not log.config.message_downconversion_enable:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")


async def messages_in(
    log: Log,
    records: RecordsSlice,
    magic: int,
    work: RecordWork,
    *,
    fetch_offset: int,
    max_bytes: int,
    max_offset: int,
) -> bytes:
    """Converts the slice, or the next one that has convertible records.  Raises ApiError, LogDirFailure."""
    offset = fetch_offset
    while True:
        memory_bytes = len(records) + decompressed_size_max(len(records))
        try:
            messages, next_offset = await work.run(memory_bytes, partial(_convert, records, magic, offset, max_bytes))
        except OSError as error:
            raise log.log_directory.fail(error) from error
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
        if messages or not offset < next_offset < max_offset:
            return messages
        offset = next_offset
        records = log.read(offset, SOURCE_BYTES_MAX, max_offset=max_offset)


def _convert(records: RecordsSlice, magic: int, first_offset: int, max_bytes: int) -> tuple[bytes, int]:
    return downgrade(records.read(), magic, first_offset=first_offset, size_max=max_bytes)


def cut_off(fetch_offset: int, max_bytes: int) -> bytes:
    """The start of a message larger than `max_bytes`: up to version 2, it makes a client raise its limit."""
    return _ENTRY.pack(fetch_offset, max(max_bytes, _CUT_OFF_SIZE)).ljust(min(max_bytes, _CUT_OFF_SIZE), b"\0")
