"""The checks: what each examines, which sources it needs, and the report that they make together.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kctl.admin.doctor import client_rules, cluster_rules, partition_rules, reader_rules
from kctl.admin.doctor.findings import Finding, Rule, Severity
from kctl.migration.check.facts import ClusterFacts, Problem, Problems, Source
from kctl.migration.check.kinds import KINDS, Way
from kctl.migration.check.metadata_rules import metadata
from kctl.migration.check.property_rules import properties
from kctl.migration.check.release_rules import formats, releases
from kctl.migration.check.security_rules import security
from kctl.migration.check.storage_rules import directories, disks


class Check(NamedTuple):
    """A check.  What it does not find is only said to be absent if all its sources were read."""

    examines: str
    needs: tuple[Source, ...]
    rule: Callable[[ClusterFacts], Problems]


class NotChecked(NamedTuple):
    """A check that could not be made, or only in part."""

    check: str
    reason: str
    remedy: str


class Report(NamedTuple):
    """All problems, those that block first, and the checks that were not made."""

    problems: list[Problem]
    not_checked: list[NotChecked]

    def blocking(self, way: Way | None) -> list[Problem]:
        """Return what blocks the way; what blocks any way if None."""
        return [found for found in self.problems if (found.blocks if way is None else way in found.blocks)]


def _adopted(*rules: tuple[str, Rule]) -> Callable[[ClusterFacts], Problems]:
    """Return a check that reports what rules of `kctl doctor` find as problems of these kinds."""

    def rule(facts: ClusterFacts) -> Problems:
        for kind, found in rules:
            yield from (Problem(kind, finding) for finding in found(facts.snapshot))

    return rule


def _replication(facts: ClusterFacts) -> Problems:
    for finding in partition_rules.out_of_sync(facts.snapshot):
        is_offline = finding.severity is Severity.CRITICAL and "leader" in finding.cause
        yield Problem("unavailable-partitions" if is_offline else "under-replicated", finding)


def _old_clients(facts: ClusterFacts) -> Problems:
    for finding in client_rules.old_clients(facts.snapshot):
        yield Problem("old-clients", _with_severity(finding, KINDS["old-clients"].severity))


def _with_severity(finding: Finding, severity: Severity) -> Finding:
    return Finding(
        severity=severity,
        subject=finding.subject,
        cause=finding.cause,
        evidence=finding.evidence,
        look=finding.look,
        repair=finding.repair,
        impact=finding.impact,
    )


CHECKS: Mapping[str, Check] = {
    "releases": Check(
        "release of each broker, and the protocol between them", (Source.METADATA, Source.BROKER_PROPERTIES), releases
    ),
    "brokers": Check(
        "brokers that are down, and the controller",
        (Source.METADATA,),
        _adopted(("broker-away", cluster_rules.brokers), ("no-controller", cluster_rules.controller)),
    ),
    "replication": Check("partitions without a leader or with replicas out of sync", (Source.METADATA,), _replication),
    "properties": Check(
        "properties that the target refuses, has forgotten or changed",
        (Source.BROKER_PROPERTIES, Source.TOPIC_PROPERTIES),
        properties,
    ),
    "clients": Check("versions of requests that the target refuses (KIP-896)", (Source.REQUESTS,), _old_clients),
    "metadata": Check(
        "znodes that do not map, topic ids, changes that have not ended, offsets in ZooKeeper",
        (Source.ZOOKEEPER,),
        metadata,
    ),
    "directories": Check(
        "log directories: offline, several, left over, unknown logs, partition.metadata",
        (Source.LOG_DIRS, Source.FILES),
        directories,
    ),
    "formats": Check(
        "records in message formats 0 and 1", (Source.TOPIC_PROPERTIES, Source.FORMATS), formats
    ),
    "security": Check(
        "authorizer, listeners, credentials, quotas, tokens, passwords",
        (Source.BROKER_PROPERTIES, Source.SECURITY),
        security,
    ),
    "transactions": Check(
        "transactions that nobody will end",
        (Source.TRANSACTIONS,),
        _adopted(("hanging-transactions", reader_rules.transactions)),
    ),
    "disks": Check("free space", (Source.FREE_SPACE,), disks),
}  # fmt: skip
"""By name; in the order of problems of the same severity."""


def judge(facts: ClusterFacts, silenced: Collection[str] = ()) -> Report:
    """Return what stands in the way of a migration: what blocks first, then the most severe, then by check."""
    order = {name: at for at, name in enumerate(KINDS)}
    problems = [found for check in CHECKS.values() for found in check.rule(facts) if found.kind not in silenced]
    if any(found.kind == "not-zookeeper" for found in problems):
        return Report([found for found in problems if found.kind == "not-zookeeper"], [])
    problems.sort(
        key=lambda found: (
            not found.blocks,
            -len(found.blocks),
            -found.finding.severity,
            order[found.kind],
            -found.finding.impact,
        )
    )
    return Report(
        problems,
        [
            NotChecked(name, f"{source.value}: {facts.missing[source].reason}", facts.missing[source].remedy)
            for name, check in CHECKS.items()
            for source in check.needs
            if source in facts.missing
        ],
    )
