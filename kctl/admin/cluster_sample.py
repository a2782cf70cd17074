"""One sample of a cluster, the input of `activity`.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.admin.broker_reading import BrokerReading
from kctl.admin.lag_facts import Position, Retention, Unread
from kctl.admin.reassignment import Ongoing
from kctl.client.metadata import ClusterMetadata
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group at one time."""

    state: str
    members: int
    committed: Mapping[TopicPartition, int]
    assigned: frozenset[TopicPartition] = frozenset()
    """The partitions that its members read."""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The state of a cluster at one time.  What could not be read is missing, and named in `problems`."""

    at_ms: int
    """Time of the sample by the monotonic clock."""
    metadata: ClusterMetadata
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first offsets of the partitions in which a group had committed, or that its members read, in the sample
    before."""
    sizes: Mapping[tuple[int, TopicPartition], int] = field(default_factory=dict)
    """Bytes of each replica, by broker and partition."""
    offline_directories: Mapping[int, int] = field(default_factory=dict)
    """Number of failed log directories by broker, of brokers that have described theirs."""
    usable_bytes: Mapping[int, int] = field(default_factory=dict)
    """Free space of the brokers that report it for all their log directories in use."""
    ongoing: Mapping[TopicPartition, Ongoing] = field(default_factory=dict)
    groups: Mapping[str, GroupReading] = field(default_factory=dict)
    retentions: Mapping[str, Retention] = field(default_factory=dict)
    """The limits of topics that groups have not read to the end."""
    unread: Mapping[tuple[TopicPartition, int], Unread] = field(default_factory=dict)
    """The unread records after each committed offset; timestamps are converted to the monotonic clock."""
    commits: Mapping[tuple[str, TopicPartition], tuple[Position, ...]] = field(default_factory=dict)
    """The latest commits of groups that had unread records in the sample before, by the monotonic clock."""
    commits_since_ms: Mapping[str, int] = field(default_factory=dict)
    """`commits` has all commits of the group since this time, by the monotonic clock."""
    readings: Mapping[int, BrokerReading] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
