"""Takes a snapshot of a cluster: many small reads side by side, each with a time of its own.

What cannot be read is named in the snapshot with the permission that is missing; it never hides what can.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import monotonic, time

from kctl.admin.cluster.features import describe_features
from kctl.admin.cluster.health import MIN_INSYNC_REPLICAS, brokers_not_leading, zookeeper_problem
from kctl.admin.cluster.observation import read_quorum
from kctl.admin.cluster.quorum import MetadataQuorum
from kctl.admin.doctor.client_reading import read_clients
from kctl.admin.doctor.parts import Parts
from kctl.admin.doctor.snapshot import (
    BrokerState,
    CertificateState,
    DirectoryState,
    FeatureState,
    GroupState,
    NodeState,
    PartitionState,
    QuorumState,
    ReassignmentState,
    Snapshot,
    TopicState,
    TransactionState,
)
from kctl.admin.groups.groups import list_groups
from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.admin.placement.log_dirs import LogDir, describe_log_dirs
from kctl.admin.placement.reassignment import Ongoing, list_reassignments
from kctl.admin.security.tls_check import server_certificate
from kctl.admin.topics.configs import ConfigEntry, ConfigResource, ResourceType, describe_configs
from kctl.admin.topics.transactions import (
    ActiveProducer,
    OpenTransaction,
    Transaction,
    describe_producers,
    describe_transactions,
    is_coordinated,
    list_transactions,
)
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets, list_offsets_at
from kctl.client.metadata import ClusterMetadata
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.lag.rules import GroupLag, Verdict
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.protocol.registry import all_apis
from kctl.security.tls import TlsSettings

DOCTOR_GROUPS_MAX = bound(
    Subject.COMMANDS,
    "groups that `kctl doctor` reads",
    5_000,
    "groups",
    on_excess="the others are named as not seen",
)
BLOCKED_PARTITIONS_MAX = bound(
    Subject.COMMANDS,
    "partitions with open transactions whose producers `kctl doctor` describes",
    2_000,
    "partitions",
    on_excess="the others are named as not seen",
)
PART_SHARE = 3
"""Each part of the snapshot may take this fraction of --timeout."""
SPAN_S_MIN = 1.0
"""Time between the two reads whose difference is the growth."""
PLACES_MAX = 20

_UNCLEAN = "unclean.leader.election.enable"
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


async def take_snapshot(client: ClusterClient, tls: TlsSettings | None, *, timeout_ms: int) -> Snapshot:
    """Return the state of the cluster.  `tls` are the settings of connections with TLS.

    Raises ClusterUnreachable if no broker returns metadata.
    """
    start_s, taken_ms = monotonic(), round(time() * 1000)
    parts = Parts(timeout_ms / 1000 / PART_SHARE)
    with client.one_deadline():
        metadata = await client.metadata()
        brokers = await parts.read("brokers", _brokers(client, metadata), ())
        alive = {broker.broker_id for broker in brokers if broker.problem is None}
        led = {
            TopicPartition(topic.name, partition.partition)
            for topic in metadata.topics.values()
            for partition in topic.partitions
            if partition.leader in alive
        }
        no_offsets = _Offsets({}, {}, {})
        async with asyncio.TaskGroup() as tasks:
            controllers_task = tasks.create_task(_controllers(client, parts))
            first_task = tasks.create_task(_log_dirs(client, alive, parts))
            certificates_task = tasks.create_task(_certificates(metadata, alive, tls, parts))
            properties_task = tasks.create_task(
                parts.read("properties of topics", _properties(client, metadata, parts), {})
            )
            limits_task = tasks.create_task(parts.read("properties of brokers", _limits(client, alive, parts), {}))
            offsets_task = tasks.create_task(
                parts.read("offsets of partitions", _offsets(client, led, metadata), no_offsets)
            )
            features_task = tasks.create_task(parts.read("features", _features(client), ()))
            clients_task = tasks.create_task(read_clients(client, metadata, brokers, parts))
        is_kraft, quorum, ongoing = controllers_task.result()
        first, limits, offsets = first_task.result(), limits_task.result(), offsets_task.result()
        async with asyncio.TaskGroup() as tasks:
            groups_task = tasks.create_task(parts.read("groups", _groups(client, taken_ms, parts), ()))
            transactions_task = tasks.create_task(
                parts.read("open transactions", _transactions(client, offsets, taken_ms, parts), ())
            )
        not_leading = await parts.read(
            "leaders", brokers_not_leading(client, metadata, metadata.brokers.keys() - alive), {}
        )
        span_s = monotonic() - start_s
        if first and span_s < SPAN_S_MIN:
            await asyncio.sleep(SPAN_S_MIN - span_s)
        last = await _log_dirs(client, alive, parts)
    span_s = monotonic() - start_s
    holders = {
        replica
        for topic in metadata.topics.values()
        for partition in topic.partitions
        for replica in partition.replicas
    }
    return Snapshot(
        taken_ms=taken_ms,
        took_ms=round(span_s * 1000),
        cluster_id=metadata.cluster_id,
        is_kraft=is_kraft,
        controller=metadata.controller_id if metadata.controller_id >= 0 else None,
        quorum=quorum,
        brokers=(
            *(_with(broker, not_leading.get(broker.broker_id), limits.get(broker.broker_id)) for broker in brokers),
            *(BrokerState(broker_id=replica, is_listed=False) for replica in sorted(holders - metadata.brokers.keys())),
        ),
        topics=_topics(metadata, properties_task.result(), offsets),
        directories=_directories(first, last, span_s),
        reassignments=_reassignments(ongoing, first, last),
        groups=groups_task.result(),
        transactions=transactions_task.result(),
        certificates=certificates_task.result(),
        features=features_task.result(),
        **clients_task.result()._asdict(),
        unseen=tuple(parts.unseen),
    )


def _with(broker: BrokerState, refused: TopicPartition | None, limit: int | None) -> BrokerState:
    return BrokerState(
        broker_id=broker.broker_id,
        address=broker.address,
        rack=broker.rack,
        problem=broker.problem,
        refuses_to_lead=None if refused is None else str(refused),
        no_changes=broker.no_changes,
        apis=broker.apis,
        throttle_bytes_per_s=limit,
    )


async def _brokers(client: ClusterClient, metadata: ClusterMetadata) -> tuple[BrokerState, ...]:
    names = {key: api.kafka_name for key, api in all_apis().items()}

    async def look_at(broker_id: int) -> BrokerState:
        known = metadata.brokers[broker_id]
        try:
            connection = await client.broker(broker_id)
            no_changes = await zookeeper_problem(connection)
        except KctlError as error:
            return BrokerState(broker_id=broker_id, address=known.address, rack=known.rack, problem=str(error))
        return BrokerState(
            broker_id=broker_id,
            address=known.address,
            rack=known.rack,
            no_changes=no_changes,
            apis={names.get(key, str(key)): f"{low}-{high}" for key, (low, high) in connection.versions.items()},
        )

    return tuple(await client.gather([look_at(broker_id) for broker_id in metadata.brokers]))


async def _controllers(
    client: ClusterClient, parts: Parts
) -> tuple[bool, QuorumState | None, Mapping[TopicPartition, Ongoing]]:
    """Return what only controllers know: whether there is a quorum, its state if it may be seen, and the reassignments.

    Uses a connection of its own: a broker that waits for a controller handles no other request of the connection.
    """
    async with ClusterClient(client.settings, client.transport, client.budget) as own:
        reading = await read_quorum(own)
        quorum: QuorumState | None = None
        if reading.frozen is not None:
            parts.note("reassignments", reading.frozen)
            return True, QuorumState(problem=reading.frozen), {}
        if reading.refused is not None:
            parts.note_error("metadata quorum", reading.refused)
        elif reading.quorum is not None:
            quorum = _quorum_state(reading.quorum)
        return reading.is_kraft, quorum, await parts.read("reassignments", list_reassignments(own), {})


def _quorum_state(quorum: MetadataQuorum) -> QuorumState:
    now_ms = max((node.last_fetch_ms or node.last_caught_up_ms or 0 for node in quorum.replicas), default=0)
    return QuorumState(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        nodes=tuple(
            NodeState(
                node_id=node.node_id,
                is_voter=node.is_voter,
                lag=node.lag,
                fetched_ms_ago=0
                if node.node_id == quorum.leader_id
                else None
                if node.last_fetch_ms is None
                else max(0, now_ms - node.last_fetch_ms),
            )
            for node in quorum.replicas
        ),
    )


# Topics and their properties.


async def _properties(
    client: ClusterClient, metadata: ClusterMetadata, parts: Parts
) -> Mapping[str, Mapping[str, str | None]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in metadata.topics]
    described = await describe_configs(
        client, resources, names=[MIN_INSYNC_REPLICAS, _UNCLEAN, *_THROTTLED], synonyms=False
    )
    return _values(described, "properties of topic", parts)


async def _limits(client: ClusterClient, alive: Collection[int], parts: Parts) -> Mapping[int, int]:
    """Return the lower limit of replication of the brokers that have one."""
    resources = [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in alive]
    described = await describe_configs(client, resources, names=list(_RATES), synonyms=False)
    limits = {}
    for name, values in _values(described, "properties of broker", parts).items():
        given = [int(value) for value in values.values() if value is not None and value.isdecimal()]
        if given and min(given) < 2**62:  # The default is the largest long.
            limits[int(name)] = min(given)
    return limits


def _values(
    described: Mapping[ConfigResource, list[ConfigEntry] | Outcome], what: str, parts: Parts
) -> dict[str, dict[str, str | None]]:
    parts.note_outcomes(what, [outcome for outcome in described.values() if isinstance(outcome, Outcome)])
    return {
        resource.name: {entry.name: entry.value for entry in entries}
        for resource, entries in described.items()
        if isinstance(entries, list)
    }


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Start, last stable offset and high watermark of the partitions that could be read."""

    starts: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


async def _offsets(client: ClusterClient, led: Collection[TopicPartition], metadata: ClusterMetadata) -> _Offsets:
    if not led:
        return _Offsets({}, {}, {})
    # Stable offsets first: they are never above a high watermark that was read later.
    committed = await list_offsets(
        client, dict.fromkeys(led, LATEST), isolation=IsolationLevel.READ_COMMITTED, known=metadata
    )
    ranges = await list_offsets_at(client, led, (EARLIEST, LATEST), known=metadata)
    known = {tp: bounds for tp, bounds in ranges.items() if not isinstance(bounds, ApiError)}
    return _Offsets(
        {tp: bounds[0].offset for tp, bounds in known.items()},
        {tp: offset.offset for tp, offset in committed.items() if not isinstance(offset, ApiError)},
        {tp: bounds[1].offset for tp, bounds in known.items()},
    )


def _topics(
    metadata: ClusterMetadata, properties: Mapping[str, Mapping[str, str | None]], offsets: _Offsets
) -> tuple[TopicState, ...]:
    states = []
    for topic in metadata.topics.values():
        if topic.error is not ErrorCode.NONE:
            continue
        values = properties.get(topic.name)
        tps = [TopicPartition(topic.name, partition.partition) for partition in topic.partitions]
        is_read = all(tp in offsets.ends for tp in tps)
        minimum = None if values is None else values.get(MIN_INSYNC_REPLICAS)
        states.append(
            TopicState(
                name=topic.name,
                is_internal=topic.is_internal,
                partitions=tuple(
                    PartitionState(
                        partition.partition,
                        partition.leader,
                        partition.replicas,
                        partition.isr,
                        partition.offline_replicas,
                    )
                    for partition in topic.partitions
                ),
                min_insync_replicas=int(minimum) if minimum and minimum.isdecimal() else None,
                unclean_election=None if values is None else values.get(_UNCLEAN) == "true",
                throttled=None if values is None else any(values.get(name) for name in _THROTTLED),
                records=sum(offsets.ends[tp] - offsets.starts[tp] for tp in tps) if is_read else None,
            )
        )
    return tuple(states)


# Directories and moves.


async def _log_dirs(client: ClusterClient, alive: Collection[int], parts: Parts) -> list[LogDir]:
    """Return the directories of the brokers that respond."""
    nothing: tuple[list[LogDir], list[Outcome]] = ([], [])
    log_dirs, failed = await parts.read("log directories", describe_log_dirs(client, alive), nothing)
    parts.note_outcomes("log directories of broker", failed)
    return log_dirs


def _directories(before: list[LogDir], after: list[LogDir], span_s: float) -> tuple[DirectoryState, ...]:
    sizes = {(directory.broker_id, directory.path): _size(directory) for directory in before}
    return tuple(
        DirectoryState(
            broker_id=directory.broker_id,
            path=directory.path,
            error=None if directory.error is ErrorCode.NONE else directory.error.name,
            used_bytes=_size(directory),
            usable_bytes=directory.usable_bytes,
            total_bytes=directory.total_bytes,
            growth_bytes_per_s=None
            if (directory.broker_id, directory.path) not in sizes
            else max(0, _size(directory) - sizes[directory.broker_id, directory.path]) / span_s,
        )
        for directory in after or before
    )


def _size(directory: LogDir) -> int:
    return sum(replica.size_bytes for replica in directory.replicas)


def _reassignments(
    ongoing: Mapping[TopicPartition, Ongoing], before: list[LogDir], after: list[LogDir]
) -> tuple[ReassignmentState, ...]:
    first, last = _copied(ongoing, before), _copied(ongoing, after)
    return tuple(
        ReassignmentState(
            topic=tp.topic,
            partition=tp.partition,
            adding=tuple(reassignment.adding),
            removing=tuple(reassignment.removing),
            copied_bytes=last[tp] if after else None,
            moved_bytes=last[tp] - first[tp] if after and before else None,
        )
        for tp, reassignment in sorted(ongoing.items())
    )


def _copied(ongoing: Mapping[TopicPartition, Ongoing], directories: list[LogDir]) -> Counter[TopicPartition]:
    copied: Counter[TopicPartition] = Counter()
    for directory in directories:
        for replica in directory.replicas:
            move = ongoing.get(replica.tp)
            if move is not None and directory.broker_id in move.adding and not replica.is_future:
                copied[replica.tp] += replica.size_bytes
    return copied


# Groups and transactions.


async def _groups(client: ClusterClient, now_ms: int, parts: Parts) -> tuple[GroupState, ...]:
    listed, failed = await list_groups(client)
    parts.note_outcomes("groups of broker", failed)
    types = {group.group_id: group.type for group in listed}
    names = sorted(types)
    if len(names) > DOCTOR_GROUPS_MAX:
        parts.note(f"{len(names) - DOCTOR_GROUPS_MAX} groups", f"at most {DOCTOR_GROUPS_MAX} are read")
        names = names[:DOCTOR_GROUPS_MAX]
    reader = LagReader(LagOptions())
    lags = await reader.read(client, names, now_ms) if names else []
    if reader.history.problem:
        parts.note("commits of groups", reader.history.problem)
    parts.note_outcomes("group", [group.outcome for group in lags if not group.outcome.is_done])
    return tuple(_group(group, types.get(group.outcome.name, "")) for group in lags if group.outcome.is_done)


def _group(group: GroupLag, kind: str) -> GroupState:
    judged = [(part, part.judgement) for part in group.partitions if part.judgement is not None]
    ordered = sorted(judged, key=lambda pair: (-pair[1].verdict, -(pair[1].lag or 0)))
    worst, judgement = ordered[0] if ordered else (None, None)
    uncommitted = [partition.uncommitted_records for partition, _ in judged if partition.uncommitted_records]
    return GroupState(
        group_id=group.outcome.name,
        type=kind,
        state=group.state,
        members=group.member_count,
        unread=sum(judged_lag.lag or 0 for _, judged_lag in judged),
        uncommitted_partitions=len(uncommitted),
        uncommitted_records=sum(uncommitted),
        verdict=group.verdict.name,
        reason=judgement.reason if judgement else "",
        topic=worst.tp.topic if worst else None,
        partition=worst.tp.partition if worst else None,
        committed=worst.committed if worst else None,
        lag=judgement.lag if judgement else None,
        lag_partitions=tuple(
            (lag.tp.topic, lag.tp.partition, lag.committed)
            for lag, judged_lag in ordered[:PLACES_MAX]
            if lag.committed is not None and (judged_lag.lag or judged_lag.verdict is not Verdict.OK)
        ),
        client_ids=tuple(sorted({lag.member.client_id for lag, _ in judged if lag.member is not None}))[:PLACES_MAX],
    )


async def _transactions(
    client: ClusterClient, offsets: _Offsets, now_ms: int, parts: Parts
) -> tuple[TransactionState, ...]:
    """Return the open transactions of partitions whose last stable offset is below their high watermark."""
    blocked = sorted(tp for tp, stable in offsets.stable.items() if tp in offsets.ends and stable < offsets.ends[tp])
    if len(blocked) > BLOCKED_PARTITIONS_MAX:
        parts.note(
            f"{len(blocked) - BLOCKED_PARTITIONS_MAX} partitions with open transactions",
            f"at most {BLOCKED_PARTITIONS_MAX} are read",
        )
        blocked = blocked[:BLOCKED_PARTITIONS_MAX]
    if not blocked:
        return ()
    opened: list[tuple[TopicPartition, ActiveProducer]] = []
    failed = []
    for tp, producers in (await describe_producers(client, blocked)).items():
        if isinstance(producers, ApiError):
            failed.append(Outcome(str(tp), producers.code, str(producers)))
        else:
            opened += [(tp, producer) for producer in producers if producer.has_transaction]
    parts.note_outcomes("producers of", failed)
    listed, failed = await list_transactions(
        client, producer_ids=sorted({transaction.producer_id for _, transaction in opened})
    )
    described = await describe_transactions(client, [transaction.transactional_id for transaction in listed])
    failed += [transaction.outcome for transaction in described if not transaction.outcome.is_done]
    parts.note_outcomes("transactions of", failed)
    owners = {transaction.producer_id: transaction for transaction in described if transaction.outcome.is_done}
    return tuple(
        _transaction(tp, transaction, owners.get(transaction.producer_id), offsets, now_ms, is_owner_known=not failed)
        for tp, transaction in opened
    )


def _transaction(
    tp: TopicPartition,
    producer: ActiveProducer,
    owner: Transaction | None,
    offsets: _Offsets,
    now_ms: int,
    *,
    is_owner_known: bool,
) -> TransactionState:
    is_ours = is_coordinated(OpenTransaction(tp, producer), owner)
    return TransactionState(
        topic=tp.topic,
        partition=tp.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.txn_start_offset,
        idle_ms=max(0, now_ms - producer.last_timestamp_ms) if producer.last_timestamp_ms >= 0 else None,
        blocked_records=offsets.ends[tp] - offsets.stable[tp],
        transactional_id=owner.outcome.name if owner else None,
        state=owner.state if owner and is_ours else None,
        timeout_ms=owner.timeout_ms if owner and is_ours else None,
        running_ms=max(0, now_ms - owner.start_ms) if owner and is_ours and owner.start_ms >= 0 else None,
        is_owner_known=is_owner_known,
    )


# Certificates and features.


async def _certificates(
    metadata: ClusterMetadata, alive: Collection[int], tls: TlsSettings | None, parts: Parts
) -> tuple[CertificateState, ...]:
    if tls is None:
        return ()
    end_s = monotonic() + parts.part_s

    def read(broker_id: int) -> CertificateState | KctlError:
        broker = metadata.brokers[broker_id]
        try:
            certificate = server_certificate(broker.host, broker.port, tls, left_s=lambda: end_s - monotonic())
        except KctlError as error:
            return error
        return CertificateState(
            broker_id=broker_id,
            subject=certificate.subject,
            expires_ms=round(certificate.valid_until.timestamp() * 1000),
        )

    outcomes = await asyncio.gather(*(asyncio.to_thread(read, broker_id) for broker_id in sorted(alive)))
    for error in outcomes:
        if isinstance(error, KctlError):
            parts.note_error("certificates", error)
    return tuple(certificate for certificate in outcomes if isinstance(certificate, CertificateState))


async def _features(client: ClusterClient) -> tuple[FeatureState, ...]:
    features = await describe_features(client)
    return tuple(
        FeatureState(name=feature.name, finalized=feature.finalized, supported_max=feature.supported_max)
        for feature in features.features
    )
