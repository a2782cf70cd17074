"""Applies all rules to a snapshot, and orders what they find by what to do first.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kctl.admin.doctor import client_rules, cluster_rules, partition_rules, reader_rules
from kctl.admin.doctor.findings import Finding, Rule
from kctl.admin.doctor.snapshot import Snapshot

RULES: Mapping[str, Rule] = {
    "quorum": cluster_rules.quorum,
    "controller": cluster_rules.controller,
    "brokers": cluster_rules.brokers,
    "disks": cluster_rules.disks,
    "partitions": partition_rules.out_of_sync,
    "transactions": reader_rules.transactions,
    "groups": reader_rules.groups,
    "certificates": cluster_rules.certificates,
    "quotas": client_rules.throttled_clients,
    "one-failure-away": partition_rules.one_failure_away,
    "durability": partition_rules.durability,
    "moves": partition_rules.moves,
    "versions": cluster_rules.versions,
    "denials": client_rules.denials,
    "old-clients": client_rules.old_clients,
    "distribution": partition_rules.distribution,
    "unused-topics": partition_rules.unused_topics,
}
"""By the name that users give to silence one; in the order of findings of the same severity."""


class Ranked(NamedTuple):
    """A finding and the name of its rule."""

    rule: str
    finding: Finding


def diagnose(snapshot: Snapshot, silenced: Collection[str] = ()) -> list[Ranked]:
    """Return all findings of the rules that are not silenced: the most severe first, then by rule, then by impact."""
    order = {name: at for at, name in enumerate(RULES)}
    found = [
        Ranked(name, finding) for name, rule in RULES.items() if name not in silenced for finding in rule(snapshot)
    ]
    return sorted(found, key=lambda ranked: (-ranked.finding.severity, order[ranked.rule], -ranked.finding.impact))
