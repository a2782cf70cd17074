"""What is known about a cluster: the input of all rules.

What could not be read is named, and never taken for healthy.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from kctl.admin.doctor.findings import Finding, command
from kctl.admin.doctor.snapshot import Snapshot
from kctl.migration.check.kinds import KINDS, Way
from kctl.migration.source.cluster import StoredCluster
from kctl.model import TopicPartition


class Source(StrEnum):
    """Where facts come from; the value is what a report calls them."""

    METADATA = "brokers and partitions"
    BROKER_PROPERTIES = "properties of brokers"
    TOPIC_PROPERTIES = "properties of topics"
    LOG_DIRS = "log directories, from the brokers"
    FREE_SPACE = "free space of the disks"
    FILES = "files in the log directories"
    FORMATS = "formats of stored records"
    ZOOKEEPER = "znodes"
    SECURITY = "ACLs, SCRAM users, quotas and tokens"
    TRANSACTIONS = "open transactions"
    REQUESTS = "versions of requests of clients"


class BrokerProperty(NamedTuple):
    """A property that a broker does not have by default.  The value of a password is None."""

    value: str | None
    is_dynamic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """A replica in a log directory of a broker."""

    broker_id: int
    directory: str
    tp: TopicPartition
    is_future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFiles:
    """A log directory that was read on this machine."""

    path: str
    cluster_id: str | None = None
    broker_id: int | None = None
    problem: str | None = None
    """Why meta.properties could not be read."""
    logs: int = 0
    without_metadata: tuple[TopicPartition, ...] = ()
    """Logs without partition.metadata."""
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)
    """Of the logs with partition.metadata."""
    left_over: tuple[str, ...] = ()
    """Directories that end with -delete or -stray."""
    future: tuple[TopicPartition, ...] = ()
    old_format: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Logs with records before format 2: the lowest format."""
    free_bytes: int | None = None
    total_bytes: int | None = None


class SecurityCounts(NamedTuple):
    """How much of it is stored; None if unknown."""

    acls: int | None = None
    scram_users: int | None = None
    quotas: int | None = None
    tokens: int | None = None


_UNKNOWN = SecurityCounts()


class Missing(NamedTuple):
    """Why a source could not be read, wholly or in part, and how it could be."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Everything that the rules use."""

    target: str
    """A release of kctl.migration.target.property_table.TARGETS."""
    snapshot: Snapshot
    broker_properties: Mapping[int, Mapping[str, BrokerProperty]] = field(default_factory=dict)
    """The properties of each broker that are not defaults."""
    broker_values: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    """The values in force of all properties of each broker, also of defaults."""
    topic_properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Each topic's own properties."""
    written_formats: Mapping[str, str] = field(default_factory=dict)
    """message.format.version in force of each topic, if its brokers have the property."""
    stored_formats: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The format of the first batch of partitions that were looked at."""
    replicas: tuple[ReplicaPlace, ...] = ()
    files: tuple[DirectoryFiles, ...] = ()
    stored: StoredCluster | None = None
    security: SecurityCounts = _UNKNOWN
    missing: Mapping[Source, Missing] = field(default_factory=dict)

    def values_of(self, name: str) -> dict[int, str]:
        """Return the value in force on each broker that shows one."""
        return {
            broker_id: value
            for broker_id, values in self.broker_values.items()
            if (value := values.get(name)) is not None
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding of one kind.  Its severity is that of the kind, unless a rule of `kctl doctor` has found it."""

    kind: str
    finding: Finding

    @property
    def blocks(self) -> frozenset[Way]:
        """The ways that cannot be taken before it is repaired."""
        return KINDS[self.kind].blocks


Problems = Iterator[Problem]


def problem(
    kind: str,
    subject: str,
    cause: str,
    *evidence: str,
    look: str = "",
    repair: str | None = None,
    impact: int = 0,
) -> Problem:
    """Return a problem with the severity of its kind, and with its remedy unless `repair` is more exact."""
    row = KINDS[kind]
    return Problem(
        kind,
        Finding(
            severity=row.severity,
            subject=subject,
            cause=cause,
            evidence=tuple(text for text in evidence if text),
            look=look or command("cluster", "describe"),
            repair=row.remedy if repair is None else repair,
            impact=impact,
        ),
    )
