"""The metadata log of a controller: its state, where it ends, and whether it is the newest one of the quorum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kctl.errors import MalformedRequest, UsageError
from kctl.limits import Subject, bound
from kctl.migration.reverting.image import Image, replay
from kctl.migration.target.snapshot import METADATA_FOLDER
from kctl.records.batch import crc_ok, iterate_batches, iterate_records
from kctl.records.header import CorruptBatch
from kctl.records.internal.metadata_records import (
    LeaderChangeMessage,
    VotersRecord,
    decode_cluster_metadata,
    decode_quorum_control,
)
from kctl.records.internal.topics import UnknownRecordType
from kctl.storage.files import Files
from kctl.storage.names import LOG_SUFFIX, parse_metadata_snapshot_name, parse_offset_file_name

METADATA_BYTES_MAX = bound(
    Subject.COMMANDS,
    "segments of a metadata log that `kctl migrate revert` reads",
    4 << 30,
    "bytes",
    on_excess="the command ends with an error before it changes anything",
)
_END = re.compile(r"(?P<node>[0-9]{1,10})=(?P<epoch>[0-9]{1,10}):(?P<offset>[0-9]{1,19})")


class LogEnd(NamedTuple):
    """Where a metadata log ends: the epoch of its last record, and the offset after it.

    Of a majority of the voters, the one with the largest end has every committed record (KIP-595).
    """

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


def parse_log_end(text: str) -> tuple[int, LogEnd]:
    """Return the node and the end in `NODE=EPOCH:OFFSET`.  Raises UsageError."""
    match = _END.fullmatch(text)
    if match is None:
        raise UsageError(f"--metadata-end {text}: write NODE=EPOCH:OFFSET, as 'kctl migrate revert --dry-run' shows it")
    return int(match["node"]), LogEnd(int(match["epoch"]), int(match["offset"]))


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """What the metadata log of a controller contains."""

    image: Image
    end: LogEnd
    voters: frozenset[int]
    """The members of the quorum; empty if no leader was elected since the conversion."""


def read_metadata_log(files: Files, metadata_dir: str) -> MetadataLog:
    """Return what the metadata log of a controller contains.  Raises UsageError and OSError.

    A type of record that is not known is refused: nobody can say whether ZooKeeper would need what it changes.
    """
    folder = f"{metadata_dir}/{METADATA_FOLDER}"
    reading = _Reading(files, folder)
    try:
        image = replay(reading.messages())
    except UnknownRecordType as error:
        raise UsageError(
            f"{folder} has records of type {error.number}, which a newer Kafka has written and this kctl does not know:"
            " what they have changed would be lost; a newer kctl is needed"
        ) from None
    except (CorruptBatch, MalformedRequest, KeyError) as error:
        raise UsageError(
            f"{folder}: {type(error).__name__}: {error}; start and stop the controller once, or use that of another one"
        ) from None
    return MetadataLog(image, reading.end, reading.voters)


class _Reading:
    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self.end = LogEnd(0, 0)
        self.voters: frozenset[int] = frozenset()

    def messages(self) -> Iterator[Any]:
        """Yield the messages of the newest snapshot, and of the records after it."""
        names = [entry.name for entry in self._files.list(self._folder)]
        segments = [name for name in names if (parse_offset_file_name(name) or (0, "", "-"))[1:] == (LOG_SUFFIX, "")]
        if sum(self._files.size(f"{self._folder}/{name}") for name in segments) > METADATA_BYTES_MAX:
            raise UsageError(f"{self._folder} has more than {METADATA_BYTES_MAX} bytes")
        snapshots = sorted(name for name in names if parse_metadata_snapshot_name(name) is not None)
        start = 0
        if snapshots:
            start, epoch = parse_metadata_snapshot_name(snapshots[-1]) or (0, 0)
            yield from self._records(snapshots[-1], 0)
            self.end = LogEnd(epoch, start)
        for name in sorted(segments):
            yield from self._records(name, start)

    def _records(self, name: str, start: int) -> Iterator[Any]:
        view = memoryview(self._files.read(f"{self._folder}/{name}"))
        for header in iterate_batches(view):
            if not crc_ok(view[header.position :]):
                raise CorruptBatch(header.position, f"wrong checksum at byte {header.position} of {name}")
            if header.next_offset <= start:
                continue
            for record in iterate_records(view, header):
                if record.offset < start:
                    continue
                if header.is_control:
                    self._control(decode_quorum_control(record))
                else:
                    yield decode_cluster_metadata(record.value or b"").message
            self.end = LogEnd(header.leader_epoch, header.next_offset)

    def _control(self, decoded: tuple[str, Any] | None) -> None:
        match decoded:
            case (_, VotersRecord(voters=voters)):
                self.voters = frozenset(voter.voter_id for voter in voters)
            case (_, LeaderChangeMessage(voters=voters)):
                self.voters = frozenset(voter.voter_id for voter in voters)
            case _:
                pass


def check_not_older(node_id: int, log: MetadataLog, ends: Mapping[int, LogEnd]) -> None:
    """Raise UsageError if another controller has a newer metadata log.  Pure."""
    newest = max(ends, key=lambda node: ends[node], default=node_id)
    if newest != node_id and ends[newest] > log.end:
        raise UsageError(
            f"the metadata log of controller {newest} ends at {ends[newest]} (EPOCH:OFFSET), that of node {node_id} at "
            f"{log.end} already: it is older; carry that of {newest} with --node {newest}, and use --files-only here"
        )


def unknown_ends(node_id: int, log: MetadataLog, controllers: frozenset[int], ends: Mapping[int, LogEnd]) -> str | None:
    """Return why it is unknown whether the log has all that was committed, and what to do; None if a majority of the
    voters is known.  Pure.

    `controllers` are those of the plan, which are the voters before the first election.  Raises UsageError for an end
    of another node.
    """
    voters = log.voters or controllers
    strangers = sorted(ends.keys() - voters)
    if strangers:
        raise UsageError(
            f"--metadata-end {strangers[0]}=...: node {strangers[0]} is no voter; they are {_listed(voters)}"
        )
    missing = len(voters) // 2 + 1 - len(voters & (ends.keys() | {node_id}))
    if missing <= 0:
        return None
    others = voters - ends.keys() - {node_id}
    return (
        f"the controllers are {_listed(voters)}, and another one may have newer metadata than node {node_id}, which "
        f"ends at {log.end}: run 'kctl migrate revert --dry-run' with the same plan on {missing} more of "
        f"{_listed(others)}, and give what it shows: --metadata-end NODE=EPOCH:OFFSET"
    )


def _listed(nodes: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))
