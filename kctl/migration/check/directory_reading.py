"""Reads log directories on this machine: names, meta.properties, and the format of the first batch of each segment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from kctl.errors import CorruptLog, UsageError
from kctl.limits import Subject, bound
from kctl.migration.check.facts import DirectoryFiles
from kctl.model import TopicPartition
from kctl.storage.names import (
    FUTURE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    META_PROPERTIES,
    NOT_A_LOG,
    PARTITION_METADATA,
    parse_log_directory_name,
    parse_offset_file_name,
)
from kctl.storage.state.checkpoints import parse_meta_properties, parse_partition_metadata

MAGIC_POSITION = 16
"""Of the format of a batch or a message, in formats 0, 1 and 2 alike."""
META_BYTES_MAX = 1 << 16
SEGMENTS_OF_LOG_MAX = bound(
    Subject.COMMANDS,
    "segments of a log of which `kctl migrate check --log-dirs` reads the first bytes",
    1_000,
    "segments",
    on_excess="the others are not read; the oldest are read first",
)


def read_directories(paths: Iterable[str]) -> tuple[DirectoryFiles, ...]:
    """Return what is in the log directories.  Raises UsageError for one that cannot be read."""
    return tuple(_read(Path(path)) for path in paths)


def _read(folder: Path) -> DirectoryFiles:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        raise UsageError(f"--log-dirs {folder}: {error.strerror}") from None
    problem, cluster_id, broker_id = None, None, None
    try:
        with (folder / META_PROPERTIES).open("rb") as file:
            meta = parse_meta_properties(file.read(META_BYTES_MAX), META_PROPERTIES)
        cluster_id, broker_id = meta.cluster_id, meta.broker_id
    except FileNotFoundError:
        problem = f"has no {META_PROPERTIES}"
    except OSError as error:
        raise UsageError(f"{folder / META_PROPERTIES}: {error.strerror}") from None
    except CorruptLog as error:
        problem = f"has an invalid {META_PROPERTIES}: {error}"
    logs: list[TopicPartition] = []
    future, left_over, without, old, ids = [], [], [], {}, {}
    for name in names:
        parsed = parse_log_directory_name(name)
        if name in NOT_A_LOG or parsed is None:
            continue
        tp, state = parsed
        if state == FUTURE_DIRECTORY_SUFFIX:
            future.append(tp)
        elif state:
            left_over.append(name)
        else:
            logs.append(tp)
            try:
                topic_id = _topic_id(folder / name / PARTITION_METADATA)
                magic = min(_formats(folder / name), default=2)
            except FileNotFoundError:
                continue  # The broker has deleted or moved the log meanwhile.
            except OSError as error:
                raise UsageError(f"{folder / name}: {error.strerror}") from None
            if topic_id is None:
                without.append(tp)
            else:
                ids[tp] = topic_id
            if magic < 2:
                old[tp] = magic
    usage = shutil.disk_usage(folder)
    return DirectoryFiles(
        path=str(folder),
        cluster_id=cluster_id,
        broker_id=broker_id,
        problem=problem,
        logs=len(logs),
        without_metadata=tuple(without),
        topic_ids=ids,
        left_over=tuple(left_over),
        future=tuple(future),
        old_format=old,
        free_bytes=usage.free,
        total_bytes=usage.total,
    )


def _topic_id(path: Path) -> UUID | None:
    """Return the id in a partition.metadata; None without one, or if it cannot be read."""
    try:
        with path.open("rb") as file:
            return parse_partition_metadata(file.read(META_BYTES_MAX), str(path))
    except (FileNotFoundError, CorruptLog):
        return None


def _formats(log: Path) -> Iterator[int]:
    """Yield the format of the first batch of each segment, the oldest first."""
    segments = sorted(
        entry.name
        for entry in os.scandir(log)
        if (parsed := parse_offset_file_name(entry.name)) is not None and parsed[1:] == (LOG_SUFFIX, "")
    )
    for name in segments[:SEGMENTS_OF_LOG_MAX]:
        try:
            with (log / name).open("rb", buffering=0) as file:
                head = file.read(MAGIC_POSITION + 1)
        except FileNotFoundError:
            continue
        if len(head) > MAGIC_POSITION:
            yield head[MAGIC_POSITION]
