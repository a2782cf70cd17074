"""LogFlushStats, LogManager and the log cleaner."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import (
    NO_LABELS,
    AnyFamily,
    Definition,
    Family,
    HistogramFamily,
    Kind,
    label_text,
    single,
    summarize,
)
from kctl.server.metrics.sources import Sources


def _gauge(type_: str, name: str, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.log", type_, name, Kind.GAUGE, unit, doc, labels)


FLUSHES = Definition(
    "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", Kind.HISTOGRAM, "ms", "Time of flushes of logs"
)
OFFLINE = _gauge("LogManager", "OfflineLogDirectoryCount", "directories", "Failed log directories")
DIRECTORY_OFFLINE = _gauge(
    "LogManager", "LogDirectoryOffline", "bool", "1 if the log directory has failed", "logDirectory"
)
MAX_CLEAN_TIME = _gauge(
    "LogCleaner", "max-clean-time-secs", "s", "Time of the longest cleaning of a log since the start"
)
RECOPY = _gauge(
    "LogCleaner", "cleaner-recopy-percent", "percent", "Bytes that the last cleaning wrote, of those it read"
)
KEYS_MEMORY = _gauge(
    "LogCleaner",
    "max-buffer-utilization-percent",
    "percent",
    "Memory for keys that the last cleaning used, of log.cleaner.dedupe.buffer.size per cleaner",
)
COMPACTION_DELAY = _gauge(
    "LogCleaner",
    "max-compaction-delay-secs",
    "s",
    "How long the oldest record that is not cleaned has been older than max.compaction.lag.ms; 0 if none is",
)
MAX_DIRTY = _gauge("LogCleanerManager", "max-dirty-percent", "percent", "Highest share of uncleaned bytes of a log")
SINCE_RUN = _gauge("LogCleanerManager", "time-since-last-run-ms", "ms", "Time since the cleaner last looked for logs")
UNCLEANABLE = _gauge(
    "LogCleanerManager",
    "uncleanable-partitions-count",
    "partitions",
    "Logs that are not cleaned until the next start, because cleaning them failed",
    "logDirectory",
)
UNCLEANABLE_BYTES = _gauge(
    "LogCleanerManager", "uncleanable-bytes", "bytes", "Size of the logs that are not cleaned", "logDirectory"
)
DEFINITIONS = (
    UNCLEANABLE_BYTES,
    FLUSHES,
    OFFLINE,
    DIRECTORY_OFFLINE,
    MAX_CLEAN_TIME,
    RECOPY,
    KEYS_MEMORY,
    COMPACTION_DELAY,
    MAX_DIRTY,
    SINCE_RUN,
    UNCLEANABLE,
)


def families(sources: Sources) -> Iterator[AnyFamily]:
    """Yield the state of the logs together."""
    logs, tasks = sources.base.logs, sources.parts.log_tasks
    times = sources.parts.replicas.flushes.times
    yield HistogramFamily(FLUSHES, ((NO_LABELS, summarize(times.latest_ms, times.count)),))
    directories = [(label_text(logDirectory=directory.path), directory) for directory in logs.directories]
    yield single(OFFLINE, sum(not directory.is_online for _, directory in directories))
    yield Family(DIRECTORY_OFFLINE, ((text, int(not directory.is_online)) for text, directory in directories))
    cleaner, now_ms = tasks.cleaners.cleaner, sources.base.world.clock.now_ms()
    done = cleaner.statistics
    yield single(MAX_CLEAN_TIME, tasks.cleaners.longest_ms / 1000)
    yield single(RECOPY, 100 * done.bytes_written / max(done.bytes_read, 1))
    yield single(KEYS_MEMORY, 100 * done.keys_memory_share)
    yield single(COMPACTION_DELAY, cleaner.overdue_max_ms / 1000)
    yield single(MAX_DIRTY, 100 * cleaner.dirty_ratio_max)
    last_ms = cleaner.last_selection_ms
    yield single(SINCE_RUN, 0 if last_ms is None else max(now_ms - last_ms, 0))
    failed = [logs.logs[tp] for tp in cleaner.uncleanable if tp in logs.logs]
    by_directory = [
        (text, [log for log in failed if log.log_directory is directory]) for text, directory in directories
    ]
    yield Family(UNCLEANABLE, ((text, len(found)) for text, found in by_directory))
    yield Family(UNCLEANABLE_BYTES, ((text, sum(log.size_bytes for log in found)) for text, found in by_directory))
