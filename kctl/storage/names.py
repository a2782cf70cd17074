"""The names of files and directories of a log.  Pure.

<log dir>/<topic>-<partition>/                        a log; the partition follows the last '-'
<log dir>/<topic>-<partition>.<32 hex>-delete/        a log whose removal is due
<log dir>/<topic>-<partition>.<32 hex>-future/        a log that is being moved here from another log dir
<base offset, 20 digits>.log .index .timeindex .txnindex    the files of one segment
<offset, 20 digits>.snapshot                          producer state of all records before that offset
<offset, 20 digits>-<epoch, 10 digits>.checkpoint     KRaft: snapshot of the metadata of all records before that offset
bootstrap.checkpoint, quorum-state                    KRaft: initial metadata of a cluster | vote and leader
replaced                                              the log was or is being replaced by its copy in another log dir
... + .deleted | .cleaned | .swap                     waiting for removal | cleaner's draft | finished, to be swapped in
"""

from __future__ import annotations

import re

from kctl.model import TopicPartition, partition_problem

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DRAFT_SUFFIX = ".tmp"
"""An unfinished file, removed at the next start."""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEAN_LOGS = ".kctl_clean_logs"
"""The logs as the clean shutdown has left them (kctl/storage/recovery/clean_logs.py).  Kafka ignores the file."""
META_PROPERTIES = "meta.properties"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
QUORUM_STATE = "quorum-state"
LOCK = ".lock"
REPLACED_MARK = "replaced"
"""In the directory of a log that is being replaced: the log directory of its copy.  Kafka ignores the file."""

DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
NOT_A_LOG = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})
"""Directories that newer versions of Kafka create in a log directory and that are not logs of this broker."""

_NAME_LENGTH_MAX = 255
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.[a-z]+)?)\Z")
_OFFSET_MAX = (1 << 63) - 1
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_MOVED_DIRECTORY = re.compile(r"(.+)\.[0-9a-f]{32}(-delete|-future|-stray)\Z")
_PARTITION = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
"""Without leading zeros: `orders-00` is not a name of partition 0, whose directory is `orders-0`."""


def offset_file_name(offset: int, suffix: str) -> str:
    """Return the name of the file of kind `suffix` for `offset`."""
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str, str] | None:
    """Return (offset, kind suffix, state suffix or '') of a file name with an offset; None for other names.

    20 digits may be more than an offset can be.
    """
    match = _OFFSET_FILE.match(name)
    if match is None or int(match[1]) > _OFFSET_MAX:
        return None
    return int(match[1]), match[2], match[3]


def file_stem(name: str) -> tuple[str, str]:
    """Return the name of any file without its suffix, and the suffix; `.deleted` and the like do not count."""
    for state in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(state)
    stem, dot, suffix = name.rpartition(".")
    return (stem, f".{suffix}") if dot else (name, "")


def parse_metadata_snapshot_name(name: str) -> tuple[int, int] | None:
    """Return (end offset, epoch) of a KRaft snapshot; None for other names, including the bootstrap snapshot."""
    match = _METADATA_SNAPSHOT.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def parse_log_directory_name(name: str) -> tuple[TopicPartition, str] | None:
    """Return the partition of a log's directory and '', '-delete', '-future' or '-stray'; None for other names.

    The topic name in a `-delete` directory may be truncated.
    """
    state = ""
    match = _MOVED_DIRECTORY.match(name)
    if match is not None:
        name, state = match[1], match[2]
    topic, dash, partition = name.rpartition("-")
    if not dash or not _PARTITION.match(partition) or partition_problem(topic, int(partition)) is not None:
        return None
    return TopicPartition(topic, int(partition)), state


def delete_directory_name(tp: TopicPartition, unique_hex: str) -> str:
    """Return the name of a log's directory until it is removed; a topic name that is too long is truncated."""
    ending = f"-{tp.partition}.{unique_hex}{DELETE_DIRECTORY_SUFFIX}"
    return tp.topic[: _NAME_LENGTH_MAX - len(ending)] + ending


def future_directory_name(tp: TopicPartition, unique_hex: str) -> str:
    """Return the name of the directory of a future log."""
    return f"{tp}.{unique_hex}{FUTURE_DIRECTORY_SUFFIX}"
