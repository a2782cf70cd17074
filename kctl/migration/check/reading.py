"""Reads the facts about a running cluster: reads only, side by side, and names what could not be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from time import monotonic

from kctl.admin.cluster.clients import CLIENT_NAMES, client_metrics
from kctl.admin.cluster.metrics import read_metrics
from kctl.admin.doctor.client_reading import SCRAPE_S_MAX
from kctl.admin.doctor.findings import named
from kctl.admin.doctor.parts import Parts
from kctl.admin.doctor.reading import take_snapshot
from kctl.admin.doctor.snapshot import OldRequestState, Snapshot
from kctl.admin.placement.log_dirs import describe_log_dirs
from kctl.admin.security.acls import list_acls
from kctl.admin.security.quotas import describe_quotas
from kctl.admin.security.tokens import describe_tokens
from kctl.admin.security.users import describe_users
from kctl.admin.topics.configs import SOURCES, ConfigEntry, ConfigResource, ResourceType, describe_configs
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.list_offsets import EARLIEST, list_offsets
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.limits import Subject, bound
from kctl.migration.check.directory_reading import MAGIC_POSITION
from kctl.migration.check.facts import (
    BrokerProperty,
    ClusterFacts,
    DirectoryFiles,
    Missing,
    ReplicaPlace,
    SecurityCounts,
    Source,
)
from kctl.migration.check.security_rules import MASTER_KEY, SECRET_KEY
from kctl.migration.source.cluster import StoredCluster
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.security.tls import TlsSettings

SAMPLED_PARTITIONS_MAX = bound(
    Subject.COMMANDS,
    "partitions whose first record `kctl migrate check` reads",
    500,
    "partitions",
    on_excess="the report says how many were not looked at",
)
SAMPLE_BYTES_MAX = 1 << 16
"""Of one partition; a larger batch is returned whole for one partition of a request only."""
SAMPLES_PER_REQUEST = 50

_FORMAT = "message.format.version"
_DYNAMIC = (SOURCES[2], SOURCES[3])
_DEFAULT = SOURCES[5]

_HOW_TO_SEE_REQUESTS = (
    "name the endpoints of Prometheus's JMX exporter, --endpoint BROKER=HOST:PORT, or read the MBeans kafka.network:"
    "type=RequestMetrics,name=RequestsPerSec,request=*,version=* (from 3.7 on DeprecatedRequestsPerSec); before 2.0 "
    "they have no version, and the request log has (kafka.request.logger=DEBUG)"
)


async def read_facts(
    client: ClusterClient,
    tls: TlsSettings | None,
    *,
    target: str,
    timeout_ms: int,
    stored: StoredCluster | None,
    files: tuple[DirectoryFiles, ...],
    endpoints: Mapping[int, tuple[str, int]],
) -> ClusterFacts:
    """Return what the brokers say, with what was read from ZooKeeper and from directories.

    `endpoints` are the addresses of metrics of brokers that do not name theirs, by broker id.

    Raises ClusterUnreachable if no broker returns metadata.
    """
    snapshot = await take_snapshot(client, tls, timeout_ms=timeout_ms)
    reader = _Reader(client, snapshot)
    with client.one_deadline():
        await asyncio.gather(
            reader.read_broker_properties(),
            reader.read_topic_properties(),
            reader.read_log_dirs(),
            reader.read_formats(),
        )
        if stored is None:
            await reader.read_security()
    missing = {**reader.missing, **_unseen(snapshot)}
    if endpoints:
        old_requests, blind = await _read_endpoints(endpoints)
        blind |= dict.fromkeys(snapshot.responding - endpoints.keys(), "--endpoint does not name it")
        reader.add_old_requests(old_requests)
        missing.pop(Source.REQUESTS, None)
        if blind:
            reasons = "; ".join(f"broker {broker_id}: {reason}" for broker_id, reason in sorted(blind.items()))
            missing[Source.REQUESTS] = Missing(reasons, _HOW_TO_SEE_REQUESTS)
    facts = reader.facts(target)
    if stored is None:
        named_by_brokers = next(iter(facts.values_of("zookeeper.connect").values()), "HOST:PORT[,...][/CHROOT]")
        missing[Source.ZOOKEEPER] = Missing("--zookeeper was not given", f"--zookeeper {named_by_brokers}")
    missing |= _unread_files(snapshot, files)
    if files and Source.FILES not in missing:
        # The files say more than the brokers do, for all brokers.
        for source in (Source.FREE_SPACE, Source.FORMATS):
            missing.pop(source, None)
    return replace(facts, stored=stored, files=files, missing=missing)


def _unread_files(snapshot: Snapshot, files: Collection[DirectoryFiles]) -> dict[Source, Missing]:
    """Return whether there are brokers none of whose directories was read."""
    unread = {broker.broker_id for broker in snapshot.brokers} - {directory.broker_id for directory in files}
    if not unread:
        return {}
    reason = f"those of {named('broker', unread)} were not read (-stray and -future directories, partition.metadata)"
    return {Source.FILES: Missing(reason, "run it on each host of a broker with --log-dirs and its log.dirs")}


async def _read_endpoints(
    endpoints: Mapping[int, tuple[str, int]],
) -> tuple[list[OldRequestState], dict[int, str]]:
    """Return the requests that the target refuses, and the brokers whose metrics do not say, with the reason."""
    old: list[OldRequestState] = []
    blind: dict[int, str] = {}

    async def read(broker_id: int, host: str, port: int) -> None:
        end_s = monotonic() + SCRAPE_S_MAX
        try:
            samples = await asyncio.to_thread(read_metrics, host, port, lambda: end_s - monotonic(), names=CLIENT_NAMES)
        except (ClusterUnreachable, TimeoutError) as error:
            blind[broker_id] = str(error) or f"{host}:{port} does not respond within {SCRAPE_S_MAX:.0f} s"
            return
        if not any(sample.labels.get("version", "").isdecimal() for sample in samples):
            blind[broker_id] = f"the metrics of {host}:{port} have no versions of requests"
        old.extend(
            OldRequestState(broker_id=broker_id, api=found.api, version=found.version, count=found.requests)
            for found in client_metrics(samples).old_requests
        )

    await asyncio.gather(*(read(broker_id, *address) for broker_id, address in endpoints.items()))
    return old, blind


def _unseen(snapshot: Snapshot) -> dict[Source, Missing]:
    """Return the sources that the snapshot lacks, wholly or in part."""
    missing = {}
    silent = [
        str(broker.broker_id) for broker in snapshot.brokers if broker.problem is not None or not broker.is_listed
    ]
    if silent:
        missing[Source.METADATA] = Missing(f"no response from broker {', '.join(silent)}", "start it")
    sources = {
        "versions of clients": (Source.REQUESTS, _HOW_TO_SEE_REQUESTS),
        "open transactions": (Source.TRANSACTIONS, ""),
        "offsets of partitions": (Source.TRANSACTIONS, ""),
        "producers of": (Source.TRANSACTIONS, ""),
    }
    for unseen in snapshot.unseen:
        for name, (source, remedy) in sources.items():
            if unseen.what.startswith(name):
                missing[source] = Missing(unseen.reason, remedy or unseen.remedy)
    apis = [broker.apis for broker in snapshot.brokers if broker.apis]
    if not all("DescribeProducers" in names for names in apis):
        missing[Source.TRANSACTIONS] = Missing(
            "brokers before 2.8 do not describe producers",
            "compare the last stable offset of each partition with its end ('kctl topics offsets'): one that does not "
            "move is held by a transaction",
        )
    elif not all("ListTransactions" in names for names in apis):
        missing[Source.TRANSACTIONS] = Missing(
            "brokers before 3.0 do not list transactions, so that the owner of an open one is unknown",
            "stop the producers before the migration: what is open then hangs",
        )
    return missing


class _Reader:
    """Collects facts; each method reads one source."""

    def __init__(self, client: ClusterClient, snapshot: Snapshot) -> None:
        self._client = client
        self._snapshot = snapshot
        self._broker_ids = sorted(snapshot.responding)
        self.missing: dict[Source, Missing] = {}
        self._properties: dict[int, dict[str, BrokerProperty]] = {}
        self._values: dict[int, dict[str, str | None]] = {}
        self._topics: dict[str, dict[str, str]] = {}
        self._written: dict[str, str] = {}
        self._samples: dict[TopicPartition, int] = {}
        self._replicas: tuple[ReplicaPlace, ...] = ()
        self._security = SecurityCounts()

    def facts(self, target: str) -> ClusterFacts:
        return ClusterFacts(
            target=target,
            snapshot=self._snapshot,
            broker_properties=self._properties,
            broker_values=self._values,
            topic_properties=self._topics,
            written_formats=self._written,
            stored_formats=self._samples,
            replicas=self._replicas,
            security=self._security,
        )

    def add_old_requests(self, requests: Sequence[OldRequestState]) -> None:
        """Add requests that metrics of brokers have counted."""
        self._snapshot = replace(self._snapshot, old_requests=(*self._snapshot.old_requests, *requests))

    def _note(self, source: Source, reason: str, remedy: str = "") -> None:
        self.missing.setdefault(source, Missing(reason, remedy))

    def _note_error(self, source: Source, error: KctlError) -> None:
        parts = Parts(0)
        parts.note_error(source.value, error)
        remedy = parts.unseen[0].remedy if parts.unseen else ""
        self._note(source, str(error), remedy)

    async def _entries(self, resources: list[ConfigResource], source: Source) -> dict[str, list[ConfigEntry]]:
        try:
            described = await describe_configs(self._client, resources, synonyms=False)
        except KctlError as error:
            self._note_error(source, error)
            return {}
        for resource, outcome in described.items():
            if isinstance(outcome, Outcome):
                self._note_error(source, ApiError(outcome.error, f"{resource.name}: {outcome.message}"))
        return {resource.name: entries for resource, entries in described.items() if isinstance(entries, list)}

    async def read_broker_properties(self) -> None:
        resources = [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in self._broker_ids]
        for name, entries in (await self._entries(resources, Source.BROKER_PROPERTIES)).items():
            self._values[int(name)] = {entry.name: entry.value for entry in entries}
            self._properties[int(name)] = {
                entry.name: BrokerProperty(entry.value, entry.source in _DYNAMIC)
                for entry in entries
                if entry.source != _DEFAULT
            }
        silent = [broker_id for broker_id in self._broker_ids if broker_id not in self._values]
        if silent:
            self._note(Source.BROKER_PROPERTIES, f"not shown by broker {', '.join(map(str, silent))}")

    async def read_topic_properties(self) -> None:
        resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in self._snapshot.topics]
        for name, entries in (await self._entries(resources, Source.TOPIC_PROPERTIES)).items():
            own = ConfigResource(ResourceType.TOPIC, name).own_source
            self._topics[name] = {
                entry.name: entry.value for entry in entries if entry.source == own and entry.value is not None
            }
            written = next((entry.value for entry in entries if entry.name == _FORMAT), None)
            if written is not None:
                self._written[name] = written

    async def read_log_dirs(self) -> None:
        try:
            log_dirs, failed = await describe_log_dirs(self._client, self._broker_ids)
        except KctlError as error:
            self._note_error(Source.LOG_DIRS, error)
            self._note_error(Source.FREE_SPACE, error)
            return
        for outcome in failed:
            failure = ApiError(outcome.error, f"broker {outcome.name}: {outcome.message or outcome.error.name}")
            self._note_error(Source.LOG_DIRS, failure)
            self._note_error(Source.FREE_SPACE, failure)
        if any(log_dir.error is ErrorCode.NONE and log_dir.usable_bytes is None for log_dir in log_dirs):
            self._note(
                Source.FREE_SPACE,
                "brokers before 3.3 do not say how much of their disks is free (KIP-827)",
                "look with df, or run it on each host of a broker with --log-dirs",
            )
        self._replicas = tuple(
            ReplicaPlace(
                broker_id=log_dir.broker_id, directory=log_dir.path, tp=replica.tp, is_future=replica.is_future
            )
            for log_dir in log_dirs
            for replica in log_dir.replicas
        )

    async def read_formats(self) -> None:
        """Read the first batch of the partitions that have records, first one partition of each topic."""
        chosen = sorted(
            (partition.partition, topic.name)
            for topic, partition in self._snapshot.partitions()
            if topic.records != 0 and partition.leader in self._snapshot.responding
        )
        tps = [TopicPartition(topic, partition) for partition, topic in chosen[:SAMPLED_PARTITIONS_MAX]]
        try:
            starts = {
                tp: start.offset
                for tp, start in (await list_offsets(self._client, dict.fromkeys(tps, EARLIEST))).items()
                if not isinstance(start, ApiError)
            }
            first = await on_leaders(
                self._client, starts, lambda connection, some: _first_formats(connection, some, starts)
            )
        except KctlError as error:
            self._note_error(Source.FORMATS, error)
            return
        self._samples = {tp: magic for tp, magic in first.items() if isinstance(magic, int) and magic >= 0}
        failed = next((error for error in first.values() if isinstance(error, ApiError)), None)
        if failed is not None:
            self._note_error(Source.FORMATS, failed)
        self._note(
            Source.FORMATS,
            f"only the first batch of {len(self._samples):,} of {sum(1 for _ in self._snapshot.partitions()):,} "
            "partitions was read",
            "run it on each host of a broker with --log-dirs: it reads the first batch of each segment",
        )

    async def read_security(self) -> None:
        """Count what is stored; after the properties of the brokers, which say whether there can be tokens."""
        acls, users, quotas, tokens = await asyncio.gather(
            self._count("ACLs", list_acls(self._client)),
            self._count("SCRAM users", describe_users(self._client)),
            self._count("quotas", _all_quotas(self._client)),
            self._count("tokens", describe_tokens(self._client) if self._may_have_tokens() else _none()),
        )
        self._security = SecurityCounts(acls, users, quotas, tokens)

    def _may_have_tokens(self) -> bool:
        is_known = set(self._broker_ids) <= self._properties.keys()
        return not is_known or any({MASTER_KEY, SECRET_KEY} & values.keys() for values in self._properties.values())

    async def _count(self, what: str, work: Awaitable[Sequence[object]]) -> int | None:
        try:
            return len(await work)
        except ApiError as error:
            if error.code is ErrorCode.SECURITY_DISABLED:
                return 0
            self._note(Source.SECURITY, f"{what}: {error}", "--zookeeper HOST:PORT[,...][/CHROOT]")
        except KctlError as error:
            self._note(Source.SECURITY, f"{what}: {error}", "--zookeeper HOST:PORT[,...][/CHROOT]")
        return None


async def _none() -> Sequence[object]:
    return ()


async def _all_quotas(client: ClusterClient) -> Sequence[object]:
    found, _ = await describe_quotas(client)
    return found


async def _first_formats(
    connection: Connection, tps: Collection[TopicPartition], starts: Mapping[TopicPartition, int]
) -> Outcomes[int]:
    """Return the format of the first batch of each partition, -1 for none."""
    formats: Outcomes[int] = {}
    ordered = sorted(tps)
    for at in range(0, len(ordered), SAMPLES_PER_REQUEST):
        some = ordered[at : at + SAMPLES_PER_REQUEST]
        topics: dict[str, FetchTopic] = {}
        for tp in some:
            topic = topics.setdefault(tp.topic, FetchTopic(topic=tp.topic, partitions=[]))
            topic.partitions.append(
                FetchPartition(partition=tp.partition, fetch_offset=starts[tp], partition_max_bytes=SAMPLE_BYTES_MAX)
            )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=list(topics.values()))
        response = await connection.send(request, FetchResponse)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code))
        for answered in response.responses:
            for data in answered.partitions:
                tp = TopicPartition(answered.topic, data.partition_index)
                if data.error_code:
                    formats[tp] = ApiError(ErrorCode.of(data.error_code), f"{tp}: its first record cannot be read")
                    continue
                records = data.records
                assert records is None or isinstance(records, (bytes, memoryview))
                formats[tp] = records[MAGIC_POSITION] if records and len(records) > MAGIC_POSITION else -1
    return formats
