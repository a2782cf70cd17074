"""Rules about partitions, topics, moves and the distribution over brokers.  Pure.

What follows from a broker that is down is in the finding about that broker (cluster_rules.brokers); here is the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from kctl.admin.doctor.findings import Finding, Findings, Severity, command, listed, named
from kctl.admin.doctor.snapshot import PartitionState, Snapshot, TopicState
from kctl.output.quantities import counted, format_size

LEADERS_MIN = 10
"""Fewer leaders than this are not compared."""
NOT_PREFERRED_SHARE = 0.1
SKEW = 1.5
"""A broker with this many times the mean is named."""
SKEW_BYTES_MIN = 1 << 30


def out_of_sync(snapshot: Snapshot) -> Findings:
    """Find partitions with a problem although all their replicas are on brokers that respond, by what they lack."""
    responding = snapshot.responding
    missing_of: dict[frozenset[int], list[tuple[TopicState, PartitionState]]] = defaultdict(list)
    leaderless = []
    for topic, partition in snapshot.partitions():
        if partition.leader not in responding:
            if set(partition.replicas) <= responding or not _is_explained(snapshot, partition):
                leaderless.append((topic, partition))
            continue
        missing = (frozenset(partition.replicas) - set(partition.isr)) & responding
        if missing and not _is_moving(snapshot, topic, partition):
            missing_of[missing].append((topic, partition))
    if leaderless:
        names = [f"{topic.name}-{partition.partition}" for topic, partition in leaderless]
        in_sync = {replica for _, partition in leaderless for replica in partition.isr}
        yield Finding(
            severity=Severity.CRITICAL,
            subject=listed(names),
            cause=f"{counted(len(names), 'partition')} cannot be written or read: none has a leader, although brokers "
            "with replicas are alive",
            evidence=(f"last in-sync replicas: {listed(sorted(in_sync))}",),
            look=command("topics", "describe", "--unavailable-partitions"),
            repair="start the last in-sync replicas; 'kctl elect --unclean' elects others, and loses records",
            impact=len(names),
        )
    for missing, partitions in sorted(missing_of.items(), key=lambda item: -len(item[1])):
        refusing = [topic for topic, partition in partitions if _refuses(topic, partition)]
        names = [f"{topic.name}-{partition.partition}" for topic, partition in partitions]
        yield Finding(
            severity=Severity.CRITICAL if refusing else Severity.ERROR,
            subject=named("broker", missing),
            cause=f"{named('broker', missing)} {'responds' if len(missing) == 1 else 'respond'}, and "
            f"{'is' if len(missing) == 1 else 'are'} not in sync for {counted(len(names), 'partition')}"
            + (f"; {len(refusing)} of them refuse acks=all" if refusing else ""),
            evidence=(listed(names),),
            look=command("topics", "describe", "--under-replicated-partitions"),
            repair=f"read the log of {named('broker', missing)}: replication from the leaders fails or is too slow "
            "(a throttle, a full or offline disk, the listener between brokers)",
            impact=len(names),
        )


def _is_explained(snapshot: Snapshot, partition: PartitionState) -> bool:
    """Return whether the finding about a broker that is down says that the partition has no leader."""
    down = {broker.broker_id for broker in snapshot.brokers} - snapshot.responding
    return not down.isdisjoint((*(partition.isr or partition.replicas), partition.leader))


def _is_moving(snapshot: Snapshot, topic: TopicState, partition: PartitionState) -> bool:
    return any(
        move.topic == topic.name and move.partition == partition.partition and move.adding
        for move in snapshot.reassignments
    )


def _refuses(topic: TopicState, partition: PartitionState) -> bool:
    return topic.min_insync_replicas is not None and len(partition.isr) < topic.min_insync_replicas


def one_failure_away(snapshot: Snapshot) -> Findings:
    """Find what the failure of one more broker stops, where a replica is missing already."""
    stops: dict[int, set[str]] = defaultdict(set)
    last_copy: Counter[int] = Counter()
    for topic, partition in snapshot.partitions():
        in_sync = [replica for replica in partition.isr if replica in snapshot.responding]
        if len(in_sync) >= len(partition.replicas) or partition.leader not in snapshot.responding:
            continue
        if topic.min_insync_replicas is not None and len(in_sync) == topic.min_insync_replicas:
            for replica in in_sync:
                stops[replica].add(topic.name)
        if len(in_sync) == 1:
            last_copy[in_sync[0]] += 1
    for broker_id in sorted(
        stops.keys() | last_copy.keys(), key=lambda broker: (-last_copy[broker], -len(stops[broker]), broker)
    ):
        effects = []
        if stops[broker_id]:
            effects.append(f"stops writes with acks=all to {counted(len(stops[broker_id]), 'topic')}")
        if last_copy[broker_id]:
            effects.append(f"takes away the last copy of {counted(last_copy[broker_id], 'partition')}")
        yield Finding(
            severity=Severity.WARNING,
            subject=f"broker {broker_id}",
            cause=f"one more failure, that of broker {broker_id}, {' and '.join(effects)}",
            evidence=(listed(sorted(stops[broker_id])),) if stops[broker_id] else (),
            look=command("topics", "describe", "--at-min-isr-partitions"),
            repair=f"do not restart broker {broker_id} before the missing replicas are in sync",
            impact=last_copy[broker_id] + len(stops[broker_id]),
        )


def durability(snapshot: Snapshot) -> Findings:
    """Find topics that lose records or stop with one failure even when everything is well."""
    yield from _topics_with(
        snapshot,
        lambda topic, factor: topic.min_insync_replicas is not None and topic.min_insync_replicas > factor,
        Severity.ERROR,
        "{topics} that can never be written with acks=all: min.insync.replicas is larger than the number of replicas",
        "lower min.insync.replicas ('kctl configs alter topic'), or add replicas ('kctl topics set-replication')",
    )
    if len(snapshot.brokers) > 1:
        yield from _topics_with(
            snapshot,
            lambda topic, factor: factor == 1 and topic.is_internal,
            Severity.ERROR,
            "{topics} of the brokers themselves with one replica: while its broker is down, groups and transactions "
            "stop; if its disk is lost, their state is lost",
            "add replicas: 'kctl topics set-replication TOPIC --factor 3'",
        )
        yield from _topics_with(
            snapshot,
            lambda topic, factor: factor == 1 and not topic.is_internal,
            Severity.WARNING,
            "{topics} with one replica: unavailable while its broker is down, and lost with its disk",
            "add replicas: 'kctl topics set-replication TOPIC --factor 3'",
        )
        yield from _topics_with(
            snapshot,
            lambda topic, factor: factor > 1 and topic.min_insync_replicas == factor,
            Severity.WARNING,
            "{topics} where acks=all is refused as soon as any broker fails or restarts: min.insync.replicas is the "
            "number of replicas",
            "lower min.insync.replicas to the number of replicas less one ('kctl configs alter topic')",
        )
    yield from _topics_with(
        snapshot,
        lambda topic, factor: bool(topic.unclean_election) and factor > 1,
        Severity.WARNING,
        "{topics} with unclean elections: acknowledged records are lost in silence when all in-sync replicas fail",
        "set unclean.leader.election.enable=false ('kctl configs alter topic'), unless losing them is intended",
    )


def _topics_with(
    snapshot: Snapshot, has: Callable[[TopicState, int], bool], severity: Severity, cause: str, repair: str
) -> Findings:
    """Yield one finding about all topics for which `has` is true of the topic and its smallest number of replicas."""
    found = [
        topic.name
        for topic in snapshot.topics
        if topic.partitions and has(topic, min(len(partition.replicas) for partition in topic.partitions))
    ]
    if found:
        yield Finding(
            severity=severity,
            subject=listed(found),
            cause=cause.format(topics=counted(len(found), "topic")),
            evidence=(listed(found),),
            look=command("topics", "describe", *found[:1]),
            repair=repair,
            impact=len(found),
        )


def moves(snapshot: Snapshot) -> Findings:
    """Find reassignments that do not move, and throttles that nothing needs any more."""
    stuck = [move for move in snapshot.reassignments if move.adding and move.moved_bytes == 0]
    if stuck:
        away = {broker for move in stuck for broker in move.adding} - snapshot.responding
        yield Finding(
            severity=Severity.ERROR if away else Severity.WARNING,
            subject=listed(str(move.tp) for move in stuck),
            cause=f"no progress in {counted(len(stuck), 'move')} within {snapshot.took_ms / 1000:.1f} s"
            + (f": {named('broker', away)} must take replicas and {'does' if len(away) == 1 else 'do'} not respond"
               if away else ""),
            evidence=tuple(
                f"{move.tp}: to {listed(move.adding)}, {format_size(move.copied_bytes or 0)} so far"
                for move in stuck[:3]
            ),
            look=command("reassign", "status"),
            repair=command("reassign", "cancel", "--dry-run"),
            impact=len(stuck),
        )  # fmt: skip
    if snapshot.reassignments:
        return
    topics = [topic.name for topic in snapshot.topics if topic.throttled]
    limited = [broker for broker in snapshot.brokers if broker.throttle_bytes_per_s is not None]
    if topics or limited:
        yield Finding(
            severity=Severity.WARNING,
            subject="throttles",
            cause="replication is throttled, and nothing is being moved: replicas that fall behind catch up slowly or "
            "not at all",
            evidence=(
                *((f"lists of throttled replicas: {listed(topics)}",) if topics else ()),
                *(
                    f"broker {broker.broker_id}: {format_size(broker.throttle_bytes_per_s or 0)}/s"
                    for broker in limited[:3]
                ),
            ),
            look=command("reassign", "status"),
            repair="; ".join(
                [command("configs", "alter", "topic", *topics[:1],
                         "--delete-config", "leader.replication.throttled.replicas",
                         "--delete-config", "follower.replication.throttled.replicas")] * bool(topics)
                + [command("configs", "alter", "broker", *(str(broker.broker_id) for broker in limited),
                           "--delete-config", "leader.replication.throttled.rate",
                           "--delete-config", "follower.replication.throttled.rate")] * bool(limited)
            ),
            impact=len(topics) + len(limited),
        )  # fmt: skip


def distribution(snapshot: Snapshot) -> Findings:
    """Find leaders that are not the preferred ones, and brokers with much more than their share."""
    led: Counter[int] = Counter()
    elsewhere = []
    for topic, partition in snapshot.partitions():
        if partition.leader in snapshot.responding:
            led[partition.leader] += 1
            first = partition.replicas[0]
            if partition.leader != first and first in partition.isr and first in snapshot.responding:
                elsewhere.append(f"{topic.name}-{partition.partition}")
    count = led.total()
    if count >= LEADERS_MIN and len(elsewhere) > count * NOT_PREFERRED_SHARE:
        yield Finding(
            severity=Severity.WARNING,
            subject="leaders",
            cause=f"{counted(len(elsewhere), 'partition')} of {count} not led by the first replica, in sync: some "
            "brokers do more than their share",
            evidence=tuple(
                f"broker {broker_id} leads {led[broker_id]}" for broker_id in sorted(snapshot.responding)[:9]
            ),
            look=command("cluster", "log-dirs", "--by", "broker"),
            repair=command("elect", "--preferred"),
            impact=len(elsewhere),
        )
    held: Counter[int] = Counter()
    for directory in snapshot.directories:
        held[directory.broker_id] += directory.used_bytes
    mean = held.total() / len(held) if held else 0
    if len(held) > 1 and mean >= SKEW_BYTES_MIN:
        for broker_id, size_bytes in held.most_common():
            if size_bytes > SKEW * mean:
                yield Finding(
                    severity=Severity.NOTE,
                    subject=f"broker {broker_id}",
                    cause=f"broker {broker_id} holds {format_size(size_bytes)}, {size_bytes / mean:.1f} times the mean",
                    look=command("cluster", "log-dirs", "--by", "broker", "--human"),
                    repair="plan a balanced distribution: 'kctl reassign plan rebalance'",
                )


def unused_topics(snapshot: Snapshot) -> Findings:
    """Find topics without records."""
    empty = [topic.name for topic in snapshot.topics if topic.records == 0 and not topic.is_internal]
    if empty:
        yield Finding(
            severity=Severity.NOTE,
            subject=listed(empty),
            cause=f"no records in {counted(len(empty), 'topic')}",
            look=command("topics", "list"),
            repair="delete those that nobody needs: 'kctl topics delete'",
            impact=len(empty),
        )
