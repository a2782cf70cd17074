"""Rules about what ZooKeeper stores: znodes that do not map, and changes that have not ended.  Pure."""

from __future__ import annotations

import math
from collections import defaultdict

from kctl.admin.doctor.findings import command, listed
from kctl.migration.check.facts import ClusterFacts, Problems, problem
from kctl.migration.source.cluster import StoredCluster
from kctl.model import TopicPartition
from kctl.output.quantities import counted

ZNODES_NAMED_MAX = 20


def metadata(facts: ClusterFacts) -> Problems:
    """Find what cannot be carried over, and what should end before a migration."""
    stored = facts.stored
    if stored is not None:
        yield from _znodes(stored)
        yield from _topics(stored)
        yield from _quotas(stored)
        yield from _pending(stored)
        yield from _group_offsets(stored)
    yield from _moves(facts)


def _znodes(stored: StoredCluster) -> Problems:
    for bad in stored.problems[:ZNODES_NAMED_MAX]:
        yield problem("bad-znode", bad.path, f"{bad.path}: {bad.message}", look=_znode(bad.path))
    rest = len(stored.problems) - ZNODES_NAMED_MAX
    if rest > 0:
        yield problem("bad-znode", "znodes", f"{counted(rest, 'more znode')} cannot be read", look=_znode("/"))
    if stored.cluster_id is None and not any(bad.path == "/cluster/id" for bad in stored.problems):
        yield problem(
            "bad-znode",
            "/cluster/id",
            "/cluster/id does not exist: this is not the root of a cluster",
            look=command("broker", "zookeeper-ls", "/"),
            repair="name the chroot that zookeeper.connect of the brokers has: --zookeeper HOST:PORT/CHROOT",
        )
    if stored.unknown:
        yield problem(
            "unknown-znode",
            listed(stored.unknown),
            f"{counted(len(stored.unknown), 'znode')} below the root of the cluster "
            f"{'is' if len(stored.unknown) == 1 else 'are'} not Kafka's",
            listed(stored.unknown),
            look=command("broker", "zookeeper-ls", "/"),
            impact=len(stored.unknown),
        )
    if stored.is_migrating:
        yield problem("migration-begun", "/migration", "/migration exists", look=_znode("/migration"))


def _topics(stored: StoredCluster) -> Problems:
    without_id = [name for name, topic in stored.topics.items() if topic.assignment.topic_id is None]
    if without_id:
        yield problem(
            "no-topic-id",
            listed(without_id),
            f"{counted(len(without_id), 'topic')} {'has' if len(without_id) == 1 else 'have'} no id",
            listed(without_id),
            look=command("topics", "describe", without_id[0]),
            impact=len(without_id),
        )
    stateless = [
        TopicPartition(name, partition)
        for name, topic in stored.topics.items()
        for partition in topic.assignment.replicas
        if partition not in topic.states and name not in stored.pending_deletions
    ]
    if stateless:
        yield problem(
            "no-partition-state",
            listed(stateless),
            f"{counted(len(stateless), 'partition')} {'has' if len(stateless) == 1 else 'have'} no state",
            listed(stateless),
            look=command("topics", "describe", "--unavailable-partitions"),
            impact=len(stateless),
        )
    yield from _bad_states(stored)
    orphans = sorted(stored.topic_configs_without_topic)
    if orphans:
        yield problem(
            "orphan-properties",
            listed(orphans),
            f"properties are stored for {counted(len(orphans), 'topic')} that {'does' if len(orphans) == 1 else 'do'} "
            "not exist",
            listed(f"/config/topics/{name}" for name in orphans),
            look=command("broker", "zookeeper-ls", "/config/topics"),
            impact=len(orphans),
        )


def _bad_states(stored: StoredCluster) -> Problems:
    bad = [
        TopicPartition(name, partition)
        for name, topic in stored.topics.items()
        for partition, state in topic.states.items()
        if not state.isr or not set(state.isr) <= set(topic.assignment.replicas[partition])
    ]
    if bad:
        yield problem(
            "bad-partition-state",
            listed(bad),
            f"{counted(len(bad), 'partition')} {'has' if len(bad) == 1 else 'have'} in-sync replicas that are not "
            "replicas, or none",
            listed(f"{tp}: {list(stored.topics[tp.topic].states[tp.partition].isr)}" for tp in bad),
            look=command("topics", "describe", "--under-replicated-partitions"),
            impact=len(bad),
        )


def _quotas(stored: StoredCluster) -> Problems:
    for entity, values in stored.quotas.items():
        for name, value in values.items():
            if not _is_number(value):
                who = ", ".join(f"{kind} {part if part is not None else '<default>'}" for kind, part in entity.parts)
                yield problem(
                    "bad-quota", who, f"the quota {name} of {who} is not a number", look=command("quotas", "describe")
                )


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _pending(stored: StoredCluster) -> Problems:
    deletions = sorted(stored.pending_deletions)
    if deletions:
        yield problem(
            "pending-deletion",
            listed(deletions),
            f"{counted(len(deletions), 'topic')} {'is' if len(deletions) == 1 else 'are'} being deleted",
            listed(deletions),
            look=command("broker", "zookeeper-ls", "/admin/delete_topics"),
            impact=len(deletions),
        )
    if stored.pending_elections:
        yield problem(
            "pending-election",
            listed(stored.pending_elections),
            f"an election of preferred leaders of {counted(len(stored.pending_elections), 'partition')} has not ended",
            look=_znode("/admin/preferred_replica_election"),
            impact=len(stored.pending_elections),
        )


def _moves(facts: ClusterFacts) -> Problems:
    """Find moves, as the brokers list them (from 2.4 on) and as ZooKeeper has them."""
    moves = {move.tp for move in facts.snapshot.reassignments}
    if facts.stored is not None:
        moves |= facts.stored.pending_reassignment.keys()
        moves |= {
            TopicPartition(name, partition)
            for name, topic in facts.stored.topics.items()
            for partition in {**topic.assignment.adding_replicas, **topic.assignment.removing_replicas}
        }
    if moves:
        yield problem(
            "pending-reassignment",
            listed(sorted(moves)),
            f"{counted(len(moves), 'partition')} {'is' if len(moves) == 1 else 'are'} being moved",
            listed(sorted(moves)),
            look=command("reassign", "list"),
            impact=len(moves),
        )


def _group_offsets(stored: StoredCluster) -> Problems:
    offsets: dict[str, list[str]] = defaultdict(list)
    for key, offset in sorted(stored.group_offsets.items()):
        offsets[key.group].append(f"{key.topic}:{key.partition} {offset}")
    for group, positions in offsets.items():
        yield problem(
            "offsets-in-zookeeper",
            f"group {group}",
            f"group {group} has committed {counted(len(positions), 'offset')} to ZooKeeper",
            listed(positions),
            look=command("broker", "zookeeper-ls", f"/consumers/{group}/offsets"),
            impact=len(positions),
        )


def _znode(path: str) -> str:
    return command("broker", "zookeeper-get", path)
