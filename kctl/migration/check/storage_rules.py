"""Rules about log directories and disks.  Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from kctl.admin.doctor import cluster_rules
from kctl.admin.doctor.findings import command, listed, named
from kctl.admin.doctor.snapshot import Snapshot
from kctl.migration.check.facts import ClusterFacts, DirectoryFiles, Problem, Problems, problem
from kctl.model import TopicPartition, uuid_text
from kctl.output.quantities import counted, format_size

FREE_SHARE_MIN = 0.1


def directories(facts: ClusterFacts) -> Problems:
    """Find what brokers say about their log directories, and what is in those of this machine."""
    yield from _as_brokers_say(facts)
    for directory in facts.files:
        yield from _files(facts, directory)


def _as_brokers_say(facts: ClusterFacts) -> Problems:
    paths: dict[int, list[str]] = defaultdict(list)
    for state in facts.snapshot.directories:
        paths[state.broker_id].append(state.path)
        if state.error is not None:
            yield problem(
                "offline-directory",
                f"broker {state.broker_id}",
                f"the log directory {state.path} of broker {state.broker_id} is offline",
                state.error,
                look=_log_dirs(state.broker_id),
            )
    several = {broker_id: names for broker_id, names in paths.items() if len(names) > 1}
    if several:
        yield problem(
            "several-directories",
            named("broker", several),
            f"{named('broker', several)} {'has' if len(several) == 1 else 'have'} several log directories",
            *(f"broker {broker_id}: {listed(names)}" for broker_id, names in several.items()),
            look=command("cluster", "log-dirs"),
        )
    future = sorted({(place.broker_id, place.tp) for place in facts.replicas if place.is_future})
    if future:
        yield problem(
            "future-replica",
            named("broker", {broker_id for broker_id, _ in future}),
            f"{counted(len(future), 'replica')} {'is' if len(future) == 1 else 'are'} being moved between log "
            "directories",
            listed(f"{tp} on broker {broker_id}" for broker_id, tp in future),
            look=command("cluster", "log-dirs"),
            impact=len(future),
        )
    yield from _unknown_replicas(facts)
    places = Counter((place.broker_id, place.tp) for place in facts.replicas if not place.is_future)
    doubled = sorted(place for place, count in places.items() if count > 1)
    if doubled:
        yield problem(
            "doubled-log",
            named("broker", {broker_id for broker_id, _ in doubled}),
            f"{counted(len(doubled), 'partition')} {'has' if len(doubled) == 1 else 'have'} two logs on one broker",
            listed(f"{tp} on broker {broker_id}" for broker_id, tp in doubled),
            look=command("cluster", "log-dirs"),
            impact=len(doubled),
        )


def _unknown_replicas(facts: ClusterFacts) -> Problems:
    assigned = {
        (replica, TopicPartition(topic.name, partition.partition))
        for topic, partition in facts.snapshot.partitions()
        for replica in partition.replicas
    } | {
        (replica, move.tp) for move in facts.snapshot.reassignments for replica in (*move.adding, *move.removing)
    }  # fmt: skip
    unknown = sorted(
        {
            (place.broker_id, place.tp, place.directory)
            for place in facts.replicas
            if (place.broker_id, place.tp) not in assigned
        }
    )
    if unknown and facts.snapshot.topics:
        yield problem(
            "unknown-replica",
            named("broker", {broker_id for broker_id, _, _ in unknown}),
            f"{counted(len(unknown), 'log')} {'is' if len(unknown) == 1 else 'are'} on brokers that the metadata does "
            "not assign",
            listed(f"{directory}/{tp} on broker {broker_id}" for broker_id, tp, directory in unknown),
            look=command("cluster", "log-dirs"),
            impact=len(unknown),
        )


def _files(facts: ClusterFacts, directory: DirectoryFiles) -> Problems:
    look = f"ls {directory.path}"
    cluster_id = facts.snapshot.cluster_id
    if directory.problem is not None or (cluster_id is not None and directory.cluster_id not in {None, cluster_id}):
        yield problem(
            "other-cluster",
            directory.path,
            f"{directory.path} {directory.problem}"
            if directory.problem is not None
            else f"{directory.path} belongs to the cluster {directory.cluster_id}, not to {cluster_id}",
            look=look,
        )
    if directory.left_over:
        yield problem(
            "left-over-directory",
            directory.path,
            f"{directory.path} has {counted(len(directory.left_over), 'directory', 'directories')} of deleted or "
            "unknown logs",
            listed(directory.left_over),
            look=look,
            impact=len(directory.left_over),
        )
    if directory.future:
        yield problem(
            "future-replica",
            directory.path,
            f"{directory.path} has {counted(len(directory.future), 'copy', 'copies')} of logs that are being moved",
            listed(directory.future),
            look=look,
            impact=len(directory.future),
        )
    yield from _topic_ids(facts, directory, look)
    if directory.without_metadata:
        yield problem(
            "no-partition-metadata",
            directory.path,
            f"{len(directory.without_metadata)} of {counted(directory.logs, 'log')} in {directory.path} have no "
            "partition.metadata",
            listed(directory.without_metadata),
            look=look,
            impact=len(directory.without_metadata),
        )


def _topic_ids(facts: ClusterFacts, directory: DirectoryFiles, look: str) -> Problems:
    if facts.stored is None:
        return
    topics = facts.stored.topics
    wrong = sorted(
        tp
        for tp, topic_id in directory.topic_ids.items()
        if tp.topic in topics and topics[tp.topic].assignment.topic_id not in {None, topic_id}
    )
    if wrong:
        yield problem(
            "other-topic-id",
            directory.path,
            f"{counted(len(wrong), 'log')} in {directory.path} {'has' if len(wrong) == 1 else 'have'} the id of "
            "another topic",
            listed(f"{tp}: {uuid_text(directory.topic_ids[tp])}" for tp in wrong),
            look=look,
            impact=len(wrong),
        )


def disks(facts: ClusterFacts) -> Problems:
    """Find disks that are almost full."""
    for finding in cluster_rules.disks(_without_offline(facts.snapshot)):
        yield Problem("disk-room", finding)
    for directory in facts.files:
        free, total = directory.free_bytes, directory.total_bytes
        if free is not None and total and free / total < FREE_SHARE_MIN:
            yield problem(
                "disk-room",
                directory.path,
                f"{format_size(free)} of {format_size(total)} are free for {directory.path}",
                look=f"df {directory.path}",
            )


def _without_offline(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without offline directories, which have a finding of their own."""
    return replace(
        snapshot, directories=tuple(directory for directory in snapshot.directories if directory.error is None)
    )


def _log_dirs(broker_id: int) -> str:
    return command("cluster", "log-dirs", "--broker", str(broker_id))
