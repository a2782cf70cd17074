"""Sets and releases the throttles of a reassignment.  Rules are in `throttles`, files in `throttle_records`."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kctl.admin.placement.plan import Move
from kctl.admin.placement.throttles import (
    ThrottleRecord,
    changes_to_set,
    hold,
    record_from_json,
    record_to_json,
    release,
    throttle_needs,
    without,
)
from kctl.admin.topics.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    entry_named,
    own_value,
)
from kctl.client.cluster import ClusterClient
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.system.operating_system import flush_to_disk

# Files with the throttles set for each reassignment, so that they can be removed after a crash.
#
# One folder per cluster. `throttle-<key>.json` is written atomically before any throttle of the reassignment is set.
# `lock` is locked while throttles are set or removed; a crash releases it.


KEY_LENGTH = 16
_PREFIX = "throttle-"


class ThrottleRecords:
    """The throttle records of one cluster.  Owner: the command that holds `locked`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; wait until other commands have released it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def all(self) -> dict[str, ThrottleRecord]:
        """Return all records by key.  Raises KctlError for an invalid file."""
        records = {}
        for path in sorted(self.folder.glob(f"{_PREFIX}*.json")):
            try:
                records[path.stem.removeprefix(_PREFIX)] = record_from_json(
                    json.loads(path.read_text(encoding="utf-8"))
                )
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise KctlError(f"{path} is not a valid throttle record: {error}") from None
        return records

    def save(self, key: str, record: ThrottleRecord) -> None:
        """Write a record, or delete its file if it is empty."""
        path = self.path_of(key)
        if not record.settings:
            path.unlink(missing_ok=True)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(record_to_json(record), file, indent=1)
            file.flush()
            flush_to_disk(file.fileno())
        temporary.replace(path)

    def path_of(self, key: str) -> Path:
        """Return the file of the record with this key."""
        return self.folder / f"{_PREFIX}{key}.json"


def key_of(partitions: Collection[TopicPartition]) -> str:
    """Return the key of a set of partitions, independent of their targets."""
    text = "\n".join(str(tp) for tp in sorted(partitions))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def folder_of(state_dir: Path, cluster_id: str | None) -> Path:
    """Return the folder of one cluster."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", cluster_id or "")
    return state_dir / (name or "unnamed-cluster")


_AWAY = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})
"""A broker that is down copies nothing; its error must not prevent throttles on other brokers (KAFKA-13392)."""

Setting = tuple[ConfigResource, str]


@dataclass(slots=True)
class Restored:
    """Result of releasing throttles."""

    settings: list[tuple[ConfigResource, ConfigChange]] = field(default_factory=list)
    foreign: list[tuple[ConfigResource, str, str | None]] = field(default_factory=list)
    """Rates changed by others, which stay."""
    failed: list[tuple[ConfigResource, Outcome]] = field(default_factory=list)
    """Settings that could not be restored; their record stays for another attempt."""

    @property
    def brokers(self) -> list[int]:
        """Brokers whose rates were restored."""
        return sorted({setting.broker_id for setting, _ in self.settings if setting.broker_id is not None})

    @property
    def topics(self) -> list[str]:
        """Topics whose lists were restored."""
        return sorted({setting.name for setting, _ in self.settings if setting.type is ResourceType.TOPIC})


async def set_throttles(
    client: ClusterClient, records: ThrottleRecords, key: str, moves: Collection[Move], bytes_per_s: int
) -> list[Outcome]:
    """Set throttles for the moves; return unreachable brokers, which have none.  Requires `records.locked`.

    The record is written before the first change.  Raises ApiError if a setting is refused; the record then contains
    what has been set.
    """
    needs = throttle_needs(moves)
    present, failed = await _read(client, needs.settings)
    for resource, outcome in failed.items():
        if resource.broker_id is None or outcome.error not in _AWAY:
            raise ApiError(outcome.error, outcome.message)
    before = records.all().get(key)
    tps = [move.tp for move in moves]
    record = hold(needs, bytes_per_s, present, partitions=tps, now_ms=time.time_ns() // 1_000_000, before=before)
    records.save(key, record)
    for resource, outcome in (await alter_configs(client, changes_to_set(record, present))).items():
        if outcome.error in _AWAY and resource.broker_id is not None:
            failed[resource] = outcome
        elif not outcome.is_done:
            raise ApiError(outcome.error, f"{name_of(resource)}: {outcome.message}")
    return [outcome for _, outcome in sorted(failed.items())]


async def release_throttles(client: ClusterClient, records: ThrottleRecords, keys: Iterable[str]) -> Restored:
    """Release the throttles of the records.  Requires `records.locked`.

    Raises ClusterUnreachable; the records stay then.
    """
    restored = Restored()
    for key in keys:
        known = records.all()
        record = known.pop(key, None)
        if record is not None:
            await _release_one(client, records, key, record, known, restored)
    return restored


async def _release_one(
    client: ClusterClient,
    records: ThrottleRecords,
    key: str,
    record: ThrottleRecord,
    known: dict[str, ThrottleRecord],
    restored: Restored,
) -> None:
    present, failed = await _read(client, record.settings)
    gone = [setting for setting in record.settings if _is_gone(failed.get(setting[0]))]
    what = release(record, present, list(known.values()))
    # Save inheriting records first: after a crash in between, two records can restore the same setting.
    for (other_key, before), after in zip(known.items(), what.others, strict=True):
        if after != before:
            records.save(other_key, after)
    outcomes = await alter_configs(client, what.changes)
    for resource, outcome in outcomes.items():
        if outcome.is_done:
            restored.settings.extend((resource, change) for change in what.changes[resource])
        elif not _is_gone(outcome):
            failed[resource] = outcome
    restored.foreign.extend(what.foreign)
    failed = {resource: outcome for resource, outcome in failed.items() if not _is_gone(outcome)}
    restored.failed.extend(sorted(failed.items()))
    done = [setting for setting in record.settings if setting[0] not in failed]
    records.save(key, without(record, done + gone))


async def _read(
    client: ClusterClient, settings: Iterable[Setting]
) -> tuple[dict[Setting, str | None], dict[ConfigResource, Outcome]]:
    """Return the values set for each topic or broker itself, and the resources that could not be read."""
    requested = list(settings)
    values: dict[Setting, str | None] = {}
    failed: dict[ConfigResource, Outcome] = {}
    described = await describe_configs(client, {resource for resource, _ in requested}, synonyms=False)
    for resource, name in requested:
        entries = described[resource]
        if isinstance(entries, Outcome):
            failed[resource] = entries
            continue
        entry = entry_named(entries, name)
        if entry is not None and entry.is_sensitive and entry.source == resource.own_source:
            text = f"{name_of(resource)} does not show its {name}, so it could not be restored: remove it first"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        values[resource, name] = own_value(entries, resource, name)
    return values, failed


def name_of(resource: ConfigResource) -> str:
    """`broker 1`, `topic orders`, `broker default`."""
    return f"{resource.type.name.lower()} {resource.name or 'default'}"


def describe_change(resource: ConfigResource, change: ConfigChange) -> str:
    """Return a sentence about a restored setting."""
    what = "removed" if change.operation is ConfigOperation.DELETE else f"set back to {change.value or 'nothing'}"
    return f"{name_of(resource)}: {change.name} {what}"


def finished_keys(records: ThrottleRecords, under_way: Collection[TopicPartition]) -> list[str]:
    """Return the keys of the records without a moving partition."""
    moving = set(under_way)
    return [key for key, record in records.all().items() if moving.isdisjoint(record.partitions)]


def _is_gone(outcome: Outcome | None) -> bool:
    """Return whether the topic of a list was deleted."""
    return outcome is not None and outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
