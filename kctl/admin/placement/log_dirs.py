"""Log directories: sizes of replicas, and moves of replicas between the directories of a broker (KIP-113)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kctl.admin.placement.reassignment import by_topic
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.outcome import Outcome, failure_of, outcome_of
from kctl.errors import ApiError, AuthenticationFailed, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

Replica = tuple[int, TopicPartition]
"""(broker, partition)."""

TO_BE_CREATED = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of a broker without the replica; it stores the directory and uses it when the replica is created."""


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """A replica in a log directory; `is_future` marks a copy being made, `offset_lag` is its lag."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker; offline if it has an error."""

    broker_id: int
    path: str
    error: ErrorCode
    replicas: tuple[LogDirReplica, ...] = ()
    usable_bytes: int | None = None
    """Free space of its file system; None if the broker does not report it (before Kafka 3.3, KIP-827)."""
    total_bytes: int | None = None
    """Size of its file system, likewise."""


@dataclass(frozen=True, slots=True)
class ReplicaSizes:
    """Size and directory of each replica, copies being made, and the brokers with an error."""

    bytes: dict[Replica, int]
    failed: tuple[Outcome, ...] = ()
    places: dict[Replica, str] = field(default_factory=dict)
    copies: dict[Replica, tuple[str, int]] = field(default_factory=dict)
    """Directory and bytes of the copies that will replace their replicas."""
    directories: dict[tuple[int, str], ErrorCode] = field(default_factory=dict)
    usable_bytes: dict[int, int] = field(default_factory=dict)
    """Free space of the brokers that report it for all their log directories in use."""

    def of(self, broker_id: int, tp: TopicPartition) -> int | None:
        """Return the size of the replica on the broker in bytes; None if it does not exist or is unknown."""
        return self.bytes.get((broker_id, tp))


async def describe_log_dirs(
    client: ClusterClient, brokers: Iterable[int], partitions: Collection[TopicPartition] | None = None
) -> tuple[list[LogDir], list[Outcome]]:
    """Return the log directories of the brokers with the given partitions, or all; and the brokers with an error."""
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]

    async def send_to(broker_id: int) -> list[LogDir] | Outcome:
        try:
            connection = await client.broker(broker_id)
            response = await connection.send(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
            if response.error_code:
                raise ApiError(ErrorCode.of(response.error_code))
            if not response.results:
                # Versions before 3 have no error code for it; every broker has a log directory.
                text = "the broker shows no log directories: this needs the operation Describe on the cluster"
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
        except (ConnectionLost, AuthenticationFailed, ApiError) as error:
            return failure_of(str(broker_id), error)
        return [
            LogDir(
                broker_id,
                result.log_dir,
                ErrorCode.of(result.error_code),
                tuple(
                    LogDirReplica(
                        TopicPartition(topic.name, partition.partition_index),
                        partition.partition_size,
                        partition.offset_lag,
                        partition.is_future_key,
                    )
                    for topic in result.topics
                    for partition in topic.partitions
                ),
                result.usable_bytes if result.usable_bytes >= 0 else None,
                result.total_bytes if result.total_bytes >= 0 else None,
            )
            for result in response.results
        ]

    found: list[LogDir] = []
    failed: list[Outcome] = []
    for reply in await client.gather([send_to(broker_id) for broker_id in sorted(set(brokers))]):
        if isinstance(reply, Outcome):
            failed.append(reply)
        else:
            found += reply
    return found, failed


async def replica_sizes(
    client: ClusterClient, brokers: Iterable[int], partitions: Collection[TopicPartition] | None
) -> ReplicaSizes:
    """Return the sizes of the partitions' replicas, or all, on these brokers; an error of one broker affects only its
    own.
    """
    return sizes_in(*await describe_log_dirs(client, brokers, partitions))


def sizes_in(log_dirs: Collection[LogDir], failed: Iterable[Outcome] = ()) -> ReplicaSizes:
    """Return the sizes and places of the replicas in these directories; `failed` are the brokers with an error."""
    sizes = ReplicaSizes({}, tuple(failed))
    for log_dir in log_dirs:
        sizes.directories[log_dir.broker_id, log_dir.path] = log_dir.error
        for held in log_dir.replicas:
            replica = log_dir.broker_id, held.tp
            if held.is_future:
                sizes.copies[replica] = log_dir.path, held.size_bytes
            else:
                sizes.bytes[replica], sizes.places[replica] = held.size_bytes, log_dir.path
    sizes.usable_bytes.update(usable_bytes(log_dirs))
    return sizes


SAME_FREE_BYTES = 64 << 20
"""By how much the free space of one file system may differ between two directories of one response: others write."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system of a broker with the log directories on it."""

    broker_id: int
    paths: tuple[str, ...]
    usable_bytes: int
    total_bytes: int | None

    @property
    def used_share(self) -> float | None:
        """From 0 to 1; None if its size is unknown."""
        return 1 - self.usable_bytes / self.total_bytes if self.total_bytes else None


def file_systems_of(log_dirs: Iterable[LogDir]) -> list[FileSystem]:
    """Return the file systems of the directories that are online and report their free space (KIP-827), in order.

    No request names the file system of a directory.  Directories of one broker with the same size and the same free
    space, up to what is written while the broker responds, are taken to share one: free space is then rather counted
    too low, for two disks that are equally full, than twice.
    """
    found: list[FileSystem] = []
    for log_dir in sorted(log_dirs, key=lambda log_dir: (log_dir.broker_id, log_dir.path)):
        if log_dir.error is not ErrorCode.NONE or log_dir.usable_bytes is None:
            continue
        free = log_dir.usable_bytes
        place = next((place for place, known in enumerate(found) if _share(known, log_dir)), None)
        if place is None:
            found.append(FileSystem(log_dir.broker_id, (log_dir.path,), free, log_dir.total_bytes))
        else:
            known = found[place]
            found[place] = replace(
                known, paths=(*known.paths, log_dir.path), usable_bytes=min(known.usable_bytes, free)
            )
    return found


def _share(known: FileSystem, log_dir: LogDir) -> bool:
    if known.broker_id != log_dir.broker_id or known.total_bytes != log_dir.total_bytes:
        return False
    assert log_dir.usable_bytes is not None
    total = log_dir.total_bytes
    limit = SAME_FREE_BYTES if total is None else min(SAME_FREE_BYTES, total // 100)
    return abs(known.usable_bytes - log_dir.usable_bytes) <= limit


def usable_bytes(log_dirs: Collection[LogDir]) -> dict[int, int]:
    """Free space of the brokers that report it for all their directories, each file system counted once."""
    unknown = {
        log_dir.broker_id for log_dir in log_dirs if log_dir.error is ErrorCode.NONE and log_dir.usable_bytes is None
    }
    free: dict[int, int] = {}
    for file_system in file_systems_of(log_dirs):
        if file_system.broker_id not in unknown:
            free[file_system.broker_id] = free.get(file_system.broker_id, 0) + file_system.usable_bytes
    return free


async def move_replicas(client: ClusterClient, targets: Mapping[Replica, str]) -> dict[Replica, Outcome]:
    """Move replicas to log directories of their brokers; replicas that do not exist yet will be created there.

    Replaces an ongoing move to another directory, and cancels it if the replica is already in the directory.
    """

    async def send_to(broker_id: int) -> dict[Replica, Outcome]:
        here = {replica: path for replica, path in targets.items() if replica[0] == broker_id}
        try:
            connection = await client.broker(broker_id)
            response = await connection.send(_request(here), AlterReplicaLogDirsResponse)
        except (ConnectionLost, AuthenticationFailed, ApiError) as error:
            return {replica: failure_of(_name(replica), error) for replica in here}
        outcomes: dict[Replica, Outcome] = {}
        for topic in response.results:
            for partition in topic.partitions:
                replica = broker_id, TopicPartition(topic.topic_name, partition.partition_index)
                is_remembered = ErrorCode.of(partition.error_code) in TO_BE_CREATED
                code = ErrorCode.NONE if is_remembered else partition.error_code
                outcomes[replica] = outcome_of(_name(replica), code, None)
        return outcomes

    responses = await client.gather(
        [send_to(broker_id) for broker_id in sorted({broker_id for broker_id, _ in targets})]
    )
    return {replica: outcome for reply in responses for replica, outcome in reply.items()}


def _request(targets: Mapping[Replica, str]) -> AlterReplicaLogDirsRequest:
    paths: dict[str, list[TopicPartition]] = {}
    for (_, tp), path in targets.items():
        paths.setdefault(path, []).append(tp)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(tps).items()
                ],
            )
            for path, tps in paths.items()
        ]
    )


def _name(replica: Replica) -> str:
    """Return the name of a replica in the format of Kafka's tools."""
    broker_id, tp = replica
    return f"{tp}-{broker_id}"
