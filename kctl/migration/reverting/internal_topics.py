"""Values of internal topics that only Kafka 4 reads become those that older brokers read.

Groups and offsets: version 4 becomes 3, without the topic id, or 1 for brokers before 2.1, without the leader epoch
and the instance ids of static members.  Transactions: version 1 becomes 0.  Records of groups of the newer protocols
(consumer, share, streams) are removed, because brokers before 3.5 fail on them (KIP-915).  Offsets, timestamps and
producers stay, and so does every other byte.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kctl.errors import MalformedRequest, UsageError
from kctl.limits import Subject, bound
from kctl.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kctl.protocol.codec import version_of
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import rebuild_batch
from kctl.records.header import CorruptBatch, Record
from kctl.records.internal.topics import (
    GROUP_METADATA_VALUE_VERSION,
    OFFSET_COMMIT_VALUE_VERSION,
    TRANSACTION_LOG_VERSION,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_transaction_value,
    encode_group_metadata_value,
    encode_offset_commit_value,
    encode_transaction_value,
)
from kctl.storage.files import Files
from kctl.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_log_directory_name,
    parse_offset_file_name,
)

SEGMENT_BYTES_MAX = bound(
    Subject.COMMANDS,
    "size of a segment of an internal topic that `kctl migrate revert` rewrites",
    1 << 30,
    "bytes",
    on_excess="the command ends with an error before it changes the node",
)
_OFFSET_KEYS, _GROUP_KEY = (0, 1), 2
_KEPT_SUFFIX, _NEW_SUFFIX = ".kraft", ".reverted"
"""Of a segment of Kafka 4, and of one that is not complete.  Brokers ignore both."""


class Versions(NamedTuple):
    """The newest versions of values that a broker reads."""

    offset_commit: int
    group_metadata: int


SINCE_2_3 = Versions(OFFSET_COMMIT_VALUE_VERSION, GROUP_METADATA_VALUE_VERSION)
SINCE_0_11 = Versions(1, 1)
"""Later ones are of 2.1 (KIP-211, KIP-320) and 2.3 (KIP-345); a broker that finds one does not load the group."""


@dataclass(slots=True)
class Rewritten:
    """What was changed in a segment."""

    path: str
    records: int = 0
    removed: int = 0


def older_value(topic: str, record: Record, versions: Versions) -> bytes | bool | None:
    """Return the value for older brokers, False for a record that they cannot read.  Pure.

    Raises MalformedRequest for a value that does not decode.
    """
    if record.value is None or record.key is None:
        kind = version_of(record.key) if record.key is not None and topic == GROUP_METADATA_TOPIC else _GROUP_KEY
        return record.value if kind <= _GROUP_KEY else False
    kind, version = version_of(record.key), version_of(record.value)
    if topic == TRANSACTION_STATE_TOPIC:
        if version > TRANSACTION_LOG_VERSION:
            return encode_transaction_value(decode_transaction_value(record.value))
    elif kind in _OFFSET_KEYS:
        if version > versions.offset_commit:
            return encode_offset_commit_value(decode_offset_commit_value(record.value), versions.offset_commit)
    elif kind == _GROUP_KEY:
        if version > versions.group_metadata:
            return encode_group_metadata_value(decode_group_metadata_value(record.value), versions.group_metadata)
    else:
        return False
    return record.value


def rewrite_segment(topic: str, data: bytes, rewritten: Rewritten, versions: Versions = SINCE_2_3) -> bytes:
    """Return the segment with older values; the same bytes where nothing is to be changed.  Pure.

    Raises CorruptBatch and MalformedRequest.
    """
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    end = 0
    for header in iterate_batches(view):
        raw = view[header.position : header.position + header.size]
        end = header.position + header.size
        if header.is_control or header.magic < 2:
            parts.append(raw)
            continue
        kept: list[Record] = []
        count = 0
        for record in iterate_records(view, header):
            value = older_value(topic, record, versions)
            if value is False:
                rewritten.removed += 1
                count += 1
                continue
            count += value is not record.value
            kept.append(record._replace(value=value if isinstance(value, bytes) else None))
        rewritten.records += count
        parts.append(rebuild_batch(header, kept) if count else raw)
    parts.append(view[end:])
    return b"".join(parts)


def rewrite_directory(files: Files, directory: str, versions: Versions = SINCE_2_3) -> list[Rewritten]:
    """Rewrite the segments of internal topics in a log directory; return those that were changed.

    The segments of Kafka 4 are kept with the suffix .kraft.  It can be interrupted and run again.  Raises UsageError
    for a damaged or too large segment, and OSError.
    """
    changed = []
    for folder, topic in _folders(files, directory):
        for name in _complete_segments(files, folder):
            path = f"{folder}/{name}"
            if files.size(path) > SEGMENT_BYTES_MAX:
                raise UsageError(f"{path} has more than {SEGMENT_BYTES_MAX} bytes")
            rewritten = Rewritten(path)
            try:
                data = rewrite_segment(topic, files.read(path), rewritten, versions)
            except (CorruptBatch, MalformedRequest) as error:
                raise UsageError(f"{path}: {error}; start and stop 4.x once, which repairs the log") from None
            if rewritten.records:
                _replace(files, path, data)
                changed.append(rewritten)
    return changed


def _folders(files: Files, directory: str) -> Iterator[tuple[str, str]]:
    for entry in files.list(directory):
        parsed = parse_log_directory_name(entry.name) if entry.is_directory else None
        if parsed is not None and not parsed[1] and parsed[0].topic in {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC}:
            yield f"{directory}/{entry.name}", parsed[0].topic


def _complete_segments(files: Files, folder: str) -> list[str]:
    """Return the segments, after those that an interruption has left between their names were completed."""
    names = {entry.name for entry in files.list(folder)}
    for name in sorted(names):
        target = name.removesuffix(_NEW_SUFFIX)
        if name.endswith(_NEW_SUFFIX) and target not in names:
            files.rename(f"{folder}/{name}", f"{folder}/{target}")
            names.add(target)
    return [name for name in sorted(names) if (parse_offset_file_name(name) or (0, "", "-"))[1:] == (LOG_SUFFIX, "")]


def _replace(files: Files, path: str, data: bytes) -> None:
    files.write_atomically(path + _NEW_SUFFIX, data)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        files.remove(path.removesuffix(LOG_SUFFIX) + suffix)  # They are made again from the segment.
    number, kept = 0, path + _KEPT_SUFFIX
    while files.exists(kept):  # of an earlier way back
        number += 1
        kept = f"{path}{_KEPT_SUFFIX}.{number}"
    files.rename(path, kept)
    files.rename(path + _NEW_SUFFIX, path)
    files.sync_directory(posixpath.dirname(path))
