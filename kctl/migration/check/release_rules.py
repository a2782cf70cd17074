"""Rules about releases, the protocol between brokers, and the format of records.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

from kctl.admin.doctor.findings import command, listed, named
from kctl.admin.doctor.snapshot import BrokerState
from kctl.migration.check.facts import ClusterFacts, Problems, problem
from kctl.output.quantities import counted

K = TypeVar("K", int, str)
BRIDGE_RELEASE = (3, 9)
FORMAT_2_RELEASE = (0, 11)
PROTOCOL = "inter.broker.protocol.version"
OWN_PROPERTY = "metrics.consumer.lag"
"""A property of kctl's broker that Apache Kafka does not have."""

_MARKS = (
    ((3, 9), "Fetch", 17),
    ((3, 7), "Fetch", 16),
    ((3, 5), "Fetch", 15),
    ((3, 1), "Fetch", 13),
    ((3, 0), "ListTransactions", 0),
    ((2, 8), "DescribeProducers", 0),
    ((2, 7), "DescribeUserScramCredentials", 0),
    ((2, 6), "DescribeClientQuotas", 0),
    ((2, 4), "ListPartitionReassignments", 0),
    ((2, 3), "IncrementalAlterConfigs", 0),
    ((2, 1), "Fetch", 10),
    ((2, 0), "Fetch", 8),
    ((1, 1), "Fetch", 7),
    ((1, 0), "Fetch", 6),
)
"""Releases, and a version of an API that brokers have since then: no request returns the release of a broker."""


def least_release(broker: BrokerState) -> tuple[int, int] | None:
    """Return the newest release of whose APIs the broker has those of _MARKS; (0, 11) for none of them, and None if
    its APIs are unknown.
    """
    if not broker.apis:
        return None
    highest = {name: int(versions.rpartition("-")[2]) for name, versions in broker.apis.items()}
    return next((release for release, api, version in _MARKS if highest.get(api, -1) >= version), (0, 11))


def release_of(text: str) -> tuple[int, int] | None:
    """Return major and minor of a version such as 2.8-IV1 or 0.10.2-IV0; None if it is not one."""
    numbers = text.partition("-")[0].split(".")
    if len(numbers) < 2 or not all(number.isascii() and number.isdigit() and len(number) < 6 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def release_text(release: tuple[int, int]) -> str:
    """Return the text of a release."""
    return f"{release[0]}.{release[1]}"


def is_own(facts: ClusterFacts) -> bool:
    """Return whether the brokers are kctl's."""
    return any(OWN_PROPERTY in values for values in facts.broker_values.values())


def releases(facts: ClusterFacts) -> Problems:
    """Find what the releases of the brokers and the protocol between them mean for a migration."""
    snapshot = facts.snapshot
    if snapshot.is_kraft:
        yield problem("not-zookeeper", "cluster", "the cluster has no ZooKeeper: its metadata is in a KRaft quorum")
        return
    by_release: dict[tuple[int, int], list[int]] = defaultdict(list)
    for broker in snapshot.brokers:
        release = least_release(broker)
        if release is not None:
            by_release[release].append(broker.broker_id)
    look = command("cluster", "api-versions")
    protocols = facts.values_of(PROTOCOL)
    evidence = [
        f"{named('broker', ids)}: has the APIs of {release_text(release)}" for release, ids in by_release.items()
    ]
    if len(by_release) > 1:
        yield problem("mixed-releases", "brokers", "the brokers are of different releases", *evidence, look=look)
    by_protocol = by_value(protocols)
    if len(by_protocol) > 1:
        yield problem(
            "mixed-protocols",
            "brokers",
            f"the brokers have different {PROTOCOL}",
            *(f"{named('broker', ids)}: {value}" for value, ids in by_protocol.items()),
            look=command("configs", "describe", "broker", "--property", PROTOCOL),
        )
    if is_own(facts):
        yield problem("kctl-broker", "brokers", "the brokers are kctl's own", look=look)
    elif by_release and min(by_release) < BRIDGE_RELEASE:
        shown = [f"{PROTOCOL}={value} on {named('broker', ids)}" for value, ids in by_protocol.items()]
        yield problem(
            "before-bridge",
            "brokers",
            f"the oldest broker has the APIs of {release_text(min(by_release))}, and the official migration needs "
            f"{release_text(BRIDGE_RELEASE)}",
            *evidence,
            *shown,
            look=look,
        )


def formats(facts: ClusterFacts) -> Problems:
    """Find records in formats before 2: those that are written now, and those that are stored."""
    written = {
        topic: value
        for topic, value in facts.written_formats.items()
        if (release := release_of(value)) is not None and release < FORMAT_2_RELEASE and not _is_raised(facts)
    }
    for value, topics in by_value(written).items():
        yield problem(
            "old-format-written",
            listed(topics),
            f"{counted(len(topics), 'topic')} {'is' if len(topics) == 1 else 'are'} written in the message format of "
            f"{value}",
            listed(topics),
            look=command("configs", "describe", "topic", topics[0], "--property", "message.format.version"),
            impact=len(topics),
        )
    stored = {**facts.stored_formats}
    for directory in facts.files:
        stored |= directory.old_format
    old = sorted(tp for tp, magic in stored.items() if magic < 2)
    if old:
        yield problem(
            "old-format-stored",
            listed(old),
            f"{counted(len(old), 'partition')} {'has' if len(old) == 1 else 'have'} records in message format 0 or 1",
            listed(f"{tp}: format {stored[tp]}" for tp in old),
            look=command("topics", "describe"),
            impact=len(old),
        )


def _is_raised(facts: ClusterFacts) -> bool:
    """Return whether all brokers ignore message.format.version: from protocol 3.0 on (KIP-724)."""
    protocols = [release_of(value) for value in facts.values_of(PROTOCOL).values()]
    return bool(protocols) and all(release is not None and release >= (3, 0) for release in protocols)


def by_value(values: Mapping[K, str]) -> dict[str, list[K]]:
    """Return the keys that have each value."""
    groups: dict[str, list[K]] = defaultdict(list)
    for key, value in values.items():
        groups[value].append(key)
    return groups
