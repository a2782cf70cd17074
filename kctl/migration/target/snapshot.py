"""A snapshot of KRaft's metadata log: batches of framed records between a header and a footer (KIP-630, KIP-853).

Kafka: RecordsSnapshotWriter, FileRawSnapshotWriter.

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kctl.migration.target.properties import CONTROLLER_LISTENER
from kctl.protocol.codec import encode_bytes
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.metadata_records import (
    TYPES,
    KRaftVersionFeature,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_cluster_metadata,
    encode_cluster_metadata,
)

OFFSET, EPOCH = 1, 1
"""The snapshot contains all records before this offset, of epochs up to this one."""
FILE_NAME = f"{OFFSET:020d}-{EPOCH:010d}.checkpoint"
METADATA_FOLDER = "__cluster_metadata-0"

_RECORDS_PER_BATCH = 500
_KEY = struct.Struct(">hh")
_CONTROL_TYPES = {cls: number for number, (_, cls) in TYPES.items()}
_DYNAMIC = 1
"""The kraft.version of a quorum whose voters are in the log."""


def encode_snapshot(records: Sequence[tuple[Any, int]], *, time_ms: int, voters: Sequence[Voter] = ()) -> bytes:
    """Return the file with these (message, version) pairs; the same arguments give the same bytes.

    With `voters` the quorum is dynamic (KIP-853); without, controllers read it from controller.quorum.voters.
    """
    first: list[Any] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=time_ms)]
    if voters:
        first.append(KRaftVersionRecord(version=0, k_raft_version=_DYNAMIC))
        first.append(VotersRecord(version=0, voters=list(voters)))
    parts: list[tuple[list[Record], bool]] = [([_control(message, time_ms) for message in first], True)]
    framed = [Record(0, time_ms, None, encode_cluster_metadata(message, version)) for message, version in records]
    parts += [
        (framed[start : start + _RECORDS_PER_BATCH], False) for start in range(0, len(framed), _RECORDS_PER_BATCH)
    ]
    parts.append(([_control(SnapshotFooterRecord(version=0), time_ms)], True))
    batches: list[bytes] = []
    offset = 0
    for members, is_control in parts:
        batches.append(build_batch(members, base_offset=offset, leader_epoch=EPOCH, is_control=is_control))
        offset += len(members)
    return b"".join(batches)


def voter(node_id: int, directory_id: Any, host: str, port: int) -> Voter:
    """Return a member of a dynamic quorum."""
    return Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[VoterEndpoint(name=CONTROLLER_LISTENER, host=host, port=port)],
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=_DYNAMIC),
    )


def read_messages(data: bytes | memoryview, *, start: int = 0) -> Iterator[Any]:
    """Yield the metadata messages of a snapshot or of a segment from an offset on, without control records.

    Raises CorruptBatch and MalformedRequest.
    """
    view = memoryview(data)
    for header in iterate_batches(view):
        if header.is_control:
            continue
        for record in iterate_records(view, header):
            if record.offset < start:
                continue
            yield decode_cluster_metadata(record.value or b"").message


def _control(message: Any, time_ms: int) -> Record:
    return Record(0, time_ms, _KEY.pack(0, _CONTROL_TYPES[type(message)]), encode_bytes(message, 0))
