"""Request versions between brokers: fixed by inter.broker.protocol.version, not negotiated.

In a mixed cluster every broker has to use exactly these, or a rolling upgrade fails.  Kafka: ApiVersion.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.subjects.versions import version_rank

UNSUPPORTED = -1
FIRST_REGISTRATION_WITH_FEATURES = 5
"""Version of the nodes in /brokers/ids that brokers write from inter.broker.protocol.version 2.7 on."""


@dataclass(frozen=True, slots=True)
class InterBrokerVersions:
    """One version per API that brokers send to each other; UNSUPPORTED for an API that did not exist then."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int
    fetch: int
    list_offsets: int
    offset_for_leader_epoch: int
    controlled_shutdown: int


_TABLE: tuple[tuple[str, InterBrokerVersions], ...] = (
    ("0.8.0", InterBrokerVersions(0, 0, 0, 0, 0, UNSUPPORTED, 0)),
    ("0.10.0", InterBrokerVersions(0, 2, 0, 2, 1, UNSUPPORTED, 1)),
    ("0.11.0", InterBrokerVersions(0, 3, 0, 5, 2, 0, 1)),
    ("1.0-IV0", InterBrokerVersions(1, 4, 0, 5, 2, 0, 1)),
    ("1.1-IV0", InterBrokerVersions(1, 4, 0, 7, 2, 0, 1)),
    ("2.0-IV1", InterBrokerVersions(1, 4, 0, 8, 3, 1, 1)),
    ("2.1-IV2", InterBrokerVersions(1, 4, 0, 10, 4, 2, 1)),
    ("2.2-IV1", InterBrokerVersions(2, 5, 1, 10, 5, 2, 2)),
    ("2.3-IV1", InterBrokerVersions(2, 5, 1, 11, 5, 3, 2)),
    ("2.4-IV0", InterBrokerVersions(3, 5, 1, 11, 5, 3, 2)),
    ("2.4-IV1", InterBrokerVersions(4, 6, 2, 11, 5, 3, 3)),
    ("2.6-IV0", InterBrokerVersions(4, 6, 3, 11, 5, 3, 3)),
    ("2.7-IV1", InterBrokerVersions(4, 6, 3, 12, 5, 3, 3)),
    ("2.8-IV0", InterBrokerVersions(4, 6, 3, 12, 6, 4, 3)),
    ("2.8-IV1", InterBrokerVersions(5, 7, 3, 12, 6, 4, 3)),
)


def inter_broker_versions(protocol_version: str) -> InterBrokerVersions:
    """Return the versions for a value of inter.broker.protocol.version."""
    rank = version_rank(protocol_version)
    return [versions for name, versions in _TABLE if version_rank(name) <= rank][-1]


def write_txn_markers_version(protocol_version: str, transaction_level: int = 0) -> int:
    """Return the version of WriteTxnMarkers requests to other brokers; 1 is flexible, 2 has the transaction's version.

    `transaction_level` is that of transaction.version: brokers that support level 2 serve version 2.
    """
    if transaction_level >= 2:
        return 2
    return 1 if version_rank(protocol_version) >= version_rank("2.8-IV0") else 0


def alters_isr_at_controller(protocol_version: str) -> bool:
    """Return whether leaders change in-sync replicas through the controller instead of in ZooKeeper (KIP-497)."""
    return version_rank(protocol_version) >= version_rank("2.7-IV2")


def allows_zstd(protocol_version: str) -> bool:
    """Return whether batches may be stored with zstd, which followers of an older version cannot read (KIP-110)."""
    return version_rank(protocol_version) >= version_rank("2.1-IV0")


def uses_topic_ids(protocol_version: str) -> bool:
    """Return whether topics have ids in ZooKeeper and in the controller's requests (KIP-516)."""
    return version_rank(protocol_version) >= version_rank("2.8-IV0")


def has_features(protocol_version: str) -> bool:
    """Return whether the cluster keeps finalized features in ZooKeeper (KIP-584)."""
    return version_rank(protocol_version) >= version_rank("2.7-IV0")


def registration_version(protocol_version: str) -> int:
    """Return the version of a broker's node in /brokers/ids; 5 has its features (KIP-584)."""
    return FIRST_REGISTRATION_WITH_FEATURES if has_features(protocol_version) else 4


def allows_static_members(protocol_version: str) -> bool:
    """Return whether all coordinators keep group.instance.id across a change of coordinator (KIP-345)."""
    return version_rank(protocol_version) >= version_rank("2.3-IV0")


def offset_commit_value_version(protocol_version: str) -> int:
    """Return the version of commits in __consumer_offsets, which all coordinators must support; 3 has leader epochs."""
    return _newest(protocol_version, ("2.1-IV1", 3), ("2.1-IV0", 2), oldest=1)


def group_metadata_value_version(protocol_version: str) -> int:
    """Return the version of groups in __consumer_offsets, which all coordinators must support; 3 has static members."""
    return _newest(protocol_version, ("2.3-IV0", 3), ("2.1-IV0", 2), ("0.10.1-IV0", 1), oldest=0)


def _newest(protocol_version: str, *since: tuple[str, int], oldest: int) -> int:
    rank = version_rank(protocol_version)
    return next((version for name, version in since if rank >= version_rank(name)), oldest)
