"""A Kafka cluster for unit tests: real sockets and encodings over state in memory.

It keeps records in memory, has leaders, a controller and groups, and can be made to respond otherwise: `intercept` a
request class to return another response, bytes in its place (b"": silence), or DROP to close the connection.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from kctl.client.connections.guard import is_change
from kctl.client.settings import ClientSettings
from kctl.errors import MalformedRequest
from kctl.model import TopicPartition, topic_name_problem
from kctl.protocol.apis import (
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from kctl.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from kctl.protocol.codec import decode, encode
from kctl.protocol.headers import decode_request_header, encode_response_header
from kctl.protocol.registry import all_apis, api
from kctl.records.batch import iterate_batches, iterate_records

DROP = object()
MAX_REQUEST_BYTES = 100 << 20
"""As socket.request.max.bytes."""
UNSUPPORTED_VERSION = 35
NOT_CONTROLLER = 41
UNKNOWN_TOPIC = 3
NOT_LEADER = 6
OUT_OF_RANGE = 1
UNKNOWN_TOPIC_ID = 100
NO_SUCH_GROUP = 69
NO_COORDINATOR = 15
OUT_OF_ORDER = 45
INVALID_PRODUCER_EPOCH = 47
FENCED_EPOCH = 74
UNKNOWN_EPOCH = 75

Response = Callable[[Any], Any]


@dataclass
class FakePartition:
    """One log as a sequence of bytes with correct offsets."""

    leader: int
    followers: tuple[int, ...] = ()
    """The in-sync replicas beside the leader."""
    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    end: int = 0
    last_stable_offset: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    producers: list[describe_producers.ProducerState] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(leader epoch, its first offset) in the log, ascending; the last one is the current epoch."""
    sequences: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """By producer id: the epoch, and (first sequence, next sequence, base offset) of the last five batches."""

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, batch: bytes) -> int:
        """Store a batch at the end and return its base offset."""
        base = self.end
        for header in iterate_batches(batch):
            one = bytearray(batch[header.position : header.end])
            one[:8] = struct.pack(">q", self.end)
            one[12:16] = struct.pack(">i", self.leader_epoch)
            self.data += one
            self.end += header.last_offset_delta + 1
        return base

    def produce(self, batch: bytes) -> tuple[int, int]:
        """Store a batch as `append` does, unless its sequence number says otherwise; (error code, base offset)."""
        header = next(iterate_batches(batch))
        if header.producer_id < 0:
            return 0, self.append(batch)
        epoch, known = self.sequences.get(header.producer_id, (-1, []))
        if header.producer_epoch < epoch:
            return INVALID_PRODUCER_EPOCH, -1
        first, following = header.base_sequence, (header.base_sequence + header.record_count) & 0x7FFFFFFF
        if header.producer_epoch > epoch:
            known = []
        for known_first, known_following, base in known:
            if (known_first, known_following) == (first, following):
                return 0, base
        if first != (known[-1][1] if known else 0):
            return OUT_OF_ORDER, -1
        base = self.append(batch)
        self.sequences[header.producer_id] = header.producer_epoch, [*known, (first, following, base)][-5:]
        return 0, base

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record, or the current one at the end of the log."""
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)

    def elect(self, leader: int, end: int | None = None) -> None:
        """A new leader, whose log ends at `end`, before that of its predecessor if the election is unclean."""
        end = self.end if end is None else end
        epoch = self.leader_epoch + 1
        data = bytes(self.data)
        size = max((header.end for header in iterate_batches(data) if header.next_offset <= end), default=0)
        del self.data[size:]
        self.leader, self.end = leader, end
        self.epochs = [entry for entry in self.epochs if entry[1] < end] + [(epoch, end)]

    def epoch_end(self, requested: int) -> tuple[int, int]:
        """The largest epoch up to `requested`, and its end.  Kafka's LeaderEpochFileCache.endOffsetFor."""
        if requested == self.leader_epoch:
            return requested, self.end
        above = [start for epoch, start in self.epochs if epoch > requested]
        if not above:
            return -1, -1
        return max((epoch for epoch, _ in self.epochs if epoch <= requested), default=requested), above[0]


@dataclass
class FakeGroup:
    """A group with offsets; members make it Stable.  The type of the group determines that of its members."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    members: list[Any] = field(default_factory=list)
    protocol_type: str = "consumer"
    type: str = "classic"
    state: str = ""
    """NON_EMPTY_GROUP unless it is Stable or Empty."""
    metadata: dict[TopicPartition, str] = field(default_factory=dict)
    """Of commits of clients."""
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs of commits of clients."""
    topic_ids: dict[TopicPartition, UUID] = field(default_factory=dict)
    """The topics of commits of clients."""

    @property
    def reported_state(self) -> str:
        return self.state or ("Stable" if self.members else "Empty")


def coordinators_found(request: Any, **found: Any) -> Any:
    """The same response for each key of a FindCoordinator request."""
    if not request.coordinator_keys:
        return find_coordinator.FindCoordinatorResponse(**found)
    coordinators = [find_coordinator.Coordinator(key=key, **found) for key in request.coordinator_keys]
    return find_coordinator.FindCoordinatorResponse(coordinators=coordinators)


def no_coordinator(request: Any) -> Any:
    """COORDINATOR_NOT_AVAILABLE for each key of a FindCoordinator request."""
    return coordinators_found(request, error_code=NO_COORDINATOR, node_id=-1, host="", port=-1)


class FakeCluster:
    """Brokers 0 .. n-1 on ports of their own; the controller and coordinator is the last one.  A context manager."""

    def __init__(self, brokers: int = 1, *, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, int] = {}
        """Without one a topic has none, as before Kafka 2.8."""
        self._created = 0
        self.configs: dict[str, dict[str, str]] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.transactions: dict[str, describe_transactions.TransactionState] = {}
        self.intercepts: dict[type, Response] = {}
        self.on_change: Response | None = None
        """Returns the response to a request that changes something; None means the usual one."""
        self.requests: list[tuple[int, Any]] = []
        """(broker, request) in the order of arrival."""
        supports = {key: (known.versions[0], known.versions[-1]) for key, known in all_apis().items()}
        self.versions = supports | (versions or {})
        self.cluster_id = "fake-cluster"
        self.advertised_host = "127.0.0.1"
        self.controller = brokers - 1
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._killed: set[int] = set()
        self._connections: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._accept, args=(broker,), daemon=True) for broker in range(brokers)
        ]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def settings(self) -> ClientSettings:
        """Settings of a client of this cluster, with timeouts for slow machines."""
        return ClientSettings((("127.0.0.1", self.ports[0]),), timeout_ms=30_000, connect_timeout_ms=30_000)

    def create(self, name: str, leaders: list[int] | int = 1) -> list[FakePartition]:
        """A topic with a partition for each leader, or with that many partitions spread over the brokers."""
        if isinstance(leaders, int):
            leaders = [index % len(self.ports) for index in range(leaders)]
        self.topics[name] = [FakePartition(leader) for leader in leaders]
        self.topic_ids[name] = self._created = self._created + 1
        self.configs[name] = {}
        return self.topics[name]

    def intercept(self, request_class: type, reply: Response) -> None:
        """`reply` returns the response; None means the usual one."""
        self.intercepts[request_class] = reply

    def records_of(self, name: str, partition: int) -> list[Any]:
        """The records of the topic."""
        data = bytes(self.topics[name][partition].data)
        return [record for header in iterate_batches(data) for record in iterate_records(data, header)]

    def requested(self, request_class: type) -> list[tuple[int, Any]]:
        """The requests of a class so far, with the broker that got them."""
        return [(broker, request) for broker, request in self.requests if isinstance(request, request_class)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in set(range(len(self.ports))) - self._killed:
            self.kill(broker)
        self.drop_connections()
        for thread in self._threads:
            thread.join(5)

    def kill(self, broker: int) -> None:
        """This broker refuses connections from now on; it stays in the metadata of the others."""
        self._listeners[broker].shutdown(socket.SHUT_RDWR)
        self._listeners[broker].close()
        self._killed.add(broker)

    def drop_connections(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._connections.clear()

    def _accept(self, broker: int) -> None:
        while True:
            try:
                connection, _ = self._listeners[broker].accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(broker, connection), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, broker: int, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while size := stream.read(4):
                    (length,) = struct.unpack(">i", size)
                    if not 0 <= length <= MAX_REQUEST_BYTES:  # for example the start of a TLS handshake
                        return
                    response = self._respond(broker, stream.read(length))
                    if response is DROP:
                        return
                    connection.sendall(response)
            except (OSError, ValueError, MalformedRequest):
                return

    def _respond(self, broker: int, frame: bytes) -> Any:
        header, position = decode_request_header(frame)
        known = api(header.api_key)
        assert known is not None
        lowest, highest = self.versions.get(header.api_key, (0, -1))
        version = header.api_version
        if not lowest <= version <= highest:
            if known.name != "api_versions":
                return DROP
            response: Any = ApiVersionsResponse(
                error_code=UNSUPPORTED_VERSION, api_keys=[_advertised(18, lowest, highest)]
            )
            version = 0
        else:
            request: Any = decode(known.request, frame, version, position)[0]
            self.requests.append((broker, request))
            intercept = self.intercepts.get(known.request)
            response = intercept(request) if intercept else None
            if response is None and self.on_change is not None and is_change(request):
                response = self.on_change(request)
            if response is None:
                response = getattr(self, f"_{known.name}")(broker, request)
        if response is DROP:
            return DROP
        if response == b"":
            return b""
        if isinstance(response, bytes):
            reply = struct.pack(">i", header.correlation_id) + response
            return struct.pack(">i", len(reply)) + reply
        body = b"".join(bytes(chunk) for chunk in encode(response, version))
        reply = encode_response_header(header.api_key, version, header.correlation_id) + body
        return struct.pack(">i", len(reply)) + reply

    def _serves(self, key: int) -> bool:
        """True for an API that this class or the test serves."""
        known = api(key)
        assert known is not None
        return hasattr(self, f"_{known.name}") or known.request in self.intercepts

    def _api_versions(self, _broker: int, _request: Any) -> Any:
        keys = [_advertised(key, *range_) for key, range_ in sorted(self.versions.items()) if self._serves(key)]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self, _broker: int, request: Any) -> Any:
        names = sorted(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=node_id, host=self.advertised_host, port=port)
                for node_id, port in enumerate(self.ports)
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller,
            topics=[self._topic_metadata(name) for name in names],
        )

    def _topic_metadata(self, name: str) -> Any:
        found = self.topics.get(name)
        return metadata.MetadataResponseTopic(
            error_code=UNKNOWN_TOPIC if found is None else 0,
            name=name,
            topic_id=UUID(int=self.topic_ids.get(name, 0) if found is not None else 0),
            is_internal=name.startswith("__"),
            partitions=[
                metadata.MetadataResponsePartition(
                    error_code=0 if element.leader >= 0 else 5,
                    partition_index=index,
                    leader_id=element.leader,
                    leader_epoch=element.leader_epoch,
                    replica_nodes=[max(element.leader, 0)],
                    isr_nodes=[*([element.leader] if element.leader >= 0 else []), *element.followers],
                )
                for index, element in enumerate(found or [])
            ],
        )

    def _find(self, broker: int, topic: str, partition: int, epoch: int = -1) -> tuple[FakePartition | None, int]:
        partitions = self.topics.get(topic, [])
        if partition >= len(partitions):
            return None, UNKNOWN_TOPIC
        if self._leader_of(TopicPartition(topic, partition)) != broker:
            return None, NOT_LEADER
        if epoch not in {-1, current := partitions[partition].leader_epoch}:
            return None, FENCED_EPOCH if epoch < current else UNKNOWN_EPOCH
        return partitions[partition], 0

    def _offset_for_leader_epoch(self, broker: int, request: Any) -> Any:
        def reply(topic: str, requested: Any) -> Any:
            found, error = self._find(broker, topic, requested.partition, requested.current_leader_epoch)
            epoch, end = (-1, -1) if found is None else found.epoch_end(requested.leader_epoch)
            return offset_for_leader_epoch.EpochEndOffset(
                error_code=error, partition=requested.partition, leader_epoch=epoch, end_offset=end
            )

        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[reply(topic.topic, requested) for requested in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _leader_of(self, tp: TopicPartition) -> int:
        return self.topics[tp.topic][tp.partition].leader

    def _list_offsets(self, broker: int, request: Any) -> Any:
        def reply(topic: str, requested: Any) -> Any:
            found, error = self._find(broker, topic, requested.partition_index)
            offset, timestamp = -1, -1
            if found is not None:
                offset, timestamp = self._offset_at(found, requested.timestamp, request.isolation_level)
            return list_offsets.ListOffsetsPartitionResponse(
                partition_index=requested.partition_index,
                error_code=error,
                offset=offset,
                timestamp=timestamp,
                leader_epoch=-1 if found is None else found.epoch_at(offset),
            )

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name, partitions=[reply(topic.name, requested) for requested in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _offset_at(self, found: FakePartition, timestamp: int, isolation: int) -> tuple[int, int]:
        if timestamp == -1:
            committed = isolation == 1 and found.last_stable_offset is not None
            return (found.last_stable_offset if committed else found.end), -1  # type: ignore[return-value]
        if timestamp == -2:
            return found.start, -1
        data = bytes(found.data)
        for header in iterate_batches(data):
            for record in iterate_records(data, header):
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        return -1, -1

    def _produce(self, broker: int, request: Any) -> Any:
        responses = []
        for topic in request.topic_data:
            partitions = []
            for part in topic.partition_data:
                found, error = self._find(broker, topic.name, part.index)
                base = -1
                if found is not None:
                    error, base = found.produce(bytes(part.records))
                partitions.append(
                    produce.PartitionProduceResponse(index=part.index, error_code=error, base_offset=base)
                )
            responses.append(produce.TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return b"" if request.acks == 0 else produce.ProduceResponse(responses=responses)

    def _fetch(self, broker: int, request: Any) -> Any:
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        self._fetch_one(broker, topic.topic, requested, request) for requested in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch_one(self, broker: int, topic: str, requested: Any, request: Any) -> Any:
        found, error = self._find(broker, topic, requested.partition, requested.current_leader_epoch)
        if found is not None and not found.start <= requested.fetch_offset <= found.end:
            found, error = None, OUT_OF_RANGE
        if found is None:
            return fetch.PartitionData(
                partition_index=requested.partition, error_code=error, high_watermark=-1, records=b""
            )
        data = bytes(found.data)
        first = next((header for header in iterate_batches(data) if header.next_offset > requested.fetch_offset), None)
        position = len(data) if first is None else first.position
        size = 0 if first is None else max(first.size, requested.partition_max_bytes)  # the first batch whole (KIP-74)
        aborted = [fetch.AbortedTransaction(producer_id=pid, first_offset=first) for first, pid in found.aborted]
        return fetch.PartitionData(
            partition_index=requested.partition,
            error_code=0,
            high_watermark=found.end,
            last_stable_offset=found.end if found.last_stable_offset is None else found.last_stable_offset,
            log_start_offset=found.start,
            aborted_transactions=aborted if request.isolation_level else None,
            records=data[position : position + size],
        )

    def _create_topics(self, broker: int, request: Any) -> Any:
        def create(topic: Any) -> Any:
            count = len(topic.assignments) or (1 if topic.num_partitions == -1 else topic.num_partitions)
            error, message = 0, None
            if broker != self.controller:
                error = NOT_CONTROLLER
            elif problem := topic_name_problem(topic.name):
                error, message = 17, problem
            elif topic.name in self.topics:
                error, message = 36, f"Topic '{topic.name}' already exists."
            elif not request.validate_only:
                self.create(topic.name, count)
                self.configs[topic.name] = {config.name: config.value for config in topic.configs}
            return create_topics.CreatableTopicResult(
                name=topic.name, error_code=error, error_message=message, num_partitions=count, replication_factor=1
            )

        return create_topics.CreateTopicsResponse(topics=[create(topic) for topic in request.topics])

    def _delete_topics(self, broker: int, request: Any) -> Any:
        def delete(name: str) -> Any:
            error = 0 if name in self.topics else UNKNOWN_TOPIC
            error = error if broker == self.controller else NOT_CONTROLLER
            if not error:
                del self.topics[name]
            return delete_topics.DeletableTopicResult(name=name, topic_id=UUID(int=0), error_code=error)

        names = [topic.name for topic in request.topics] or request.topic_names
        return delete_topics.DeleteTopicsResponse(responses=[delete(name) for name in names])

    def _delete_records(self, broker: int, request: Any) -> Any:
        def delete(topic: str, requested: Any) -> Any:
            found, error = self._find(broker, topic, requested.partition_index)
            if found is not None and requested.offset > found.end:
                found, error = None, OUT_OF_RANGE
            if found is not None:
                found.start = max(found.start, requested.offset)
            return delete_records.DeleteRecordsPartitionResult(
                partition_index=requested.partition_index,
                low_watermark=-1 if found is None else found.start,
                error_code=error,
            )

        return delete_records.DeleteRecordsResponse(
            topics=[
                delete_records.DeleteRecordsTopicResult(
                    name=topic.name, partitions=[delete(topic.name, partition) for partition in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _create_partitions(self, broker: int, request: Any) -> Any:
        results = []
        for topic in request.topics:
            present = self.topics.get(topic.name)
            error, message = 0, None
            if broker != self.controller:
                error = NOT_CONTROLLER
            elif present is None:
                error = UNKNOWN_TOPIC
            elif topic.count <= len(present):
                error, message = 37, f"Topic already has {len(present)} partitions."
            elif not request.validate_only:
                present.extend(FakePartition(0) for _ in range(topic.count - len(present)))
            results.append(
                create_partitions.CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message)
            )
        return create_partitions.CreatePartitionsResponse(results=results)

    def _describe_configs(self, _broker: int, request: Any) -> Any:
        results = []
        for resource in request.resources:
            overrides = self.configs.get(resource.resource_name, {})
            configs = [_config(name, value, source=1) for name, value in overrides.items()]
            configs.append(_config("segment.bytes", "1073741824", source=5))
            results.append(
                describe_configs.DescribeConfigsResult(
                    error_code=0,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=configs,
                )
            )
        return describe_configs.DescribeConfigsResponse(results=results)

    def _incremental_alter_configs(self, _broker: int, request: Any) -> Any:
        responses = []
        for resource in request.resources:
            overrides = self.configs.get(resource.resource_name)
            if overrides is not None and not request.validate_only:
                for config in resource.configs:
                    if config.config_operation == 0:
                        overrides[config.name] = config.value
                    else:
                        overrides.pop(config.name, None)
            responses.append(
                incremental_alter_configs.AlterConfigsResourceResponse(
                    error_code=UNKNOWN_TOPIC if overrides is None else 0,
                    resource_type=2,
                    resource_name=resource.resource_name,
                )
            )
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)

    def _find_coordinator(self, _broker: int, request: Any) -> Any:
        host, port = "127.0.0.1", self.ports[self.controller]
        return coordinators_found(request, node_id=self.controller, host=host, port=port, error_code=0)

    def _list_groups(self, broker: int, request: Any) -> Any:
        groups = self.groups if broker == self.controller else {}
        return list_groups.ListGroupsResponse(
            error_code=0,
            groups=[
                list_groups.ListedGroup(
                    group_id=name,
                    protocol_type=group.protocol_type,
                    group_state=group.reported_state,
                    group_type=group.type,
                )
                for name, group in groups.items()
                if group.type in (request.types_filter or [group.type])
            ],
        )

    def _describe_groups(self, _broker: int, request: Any) -> Any:
        described = []
        for name in request.groups:
            group = self.groups.get(name)
            if group is not None and group.type != "classic":
                group = None
            described.append(
                describe_groups.DescribedGroup(
                    error_code=NO_SUCH_GROUP if group is None and self.versions[15][1] >= 6 else 0,
                    group_id=name,
                    group_state="Dead" if group is None else group.reported_state,
                    protocol_type=group.protocol_type if group else "",
                    protocol_data="range" if group and group.members else "",
                    members=group.members if group else [],
                )
            )
        return describe_groups.DescribeGroupsResponse(groups=described)

    def _consumer_group_describe(self, _broker: int, request: Any) -> Any:
        """The epochs are 3 and, where the group is not Stable, 2."""
        described = []
        for name in request.group_ids:
            group = self.groups.get(name)
            if group is not None and group.type != "consumer":
                group = None
            described.append(
                consumer_group_describe.DescribedGroup(
                    error_code=NO_SUCH_GROUP if group is None else 0,
                    error_message=None if group else f"Group {name} not found.",
                    group_id=name,
                    group_state=group.reported_state if group else "",
                    group_epoch=3 if group else 0,
                    assignment_epoch=(2 if group.state else 3) if group else 0,
                    assignor_name="uniform" if group else "",
                    members=group.members if group else [],
                )
            )
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=described)

    def _offset_fetch(self, _broker: int, request: Any) -> Any:
        if not request.groups:
            return offset_fetch.OffsetFetchResponse(topics=self._committed(request.group_id, request.topics))
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=group.group_id, topics=self._committed(group.group_id, group.topics), error_code=0
                )
                for group in request.groups
            ],
        )

    def _committed(self, group_id: str, requested: Any) -> list[Any]:
        """All commits, but with topic ids none of an earlier topic of the same name."""
        group = self.groups.get(group_id, FakeGroup())
        has_ids = any(topic.topic_id.int for topic in requested or [])
        topics: dict[str, Any] = {}
        for tp, offset in group.offsets.items():
            topic_id = UUID(int=self.topic_ids.get(tp.topic, 0))
            if has_ids and group.topic_ids.get(tp, topic_id) != topic_id:
                continue
            topic = topics.setdefault(
                tp.topic, offset_fetch.OffsetFetchResponseTopic(name=tp.topic, topic_id=topic_id, partitions=[])
            )
            topic.partitions.append(
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=tp.partition,
                    committed_offset=offset,
                    committed_leader_epoch=group.epochs.get(tp, -1),
                    metadata=group.metadata.get(tp, ""),
                    error_code=0,
                )
            )
        return list(topics.values())

    def _offset_commit(self, _broker: int, request: Any) -> Any:
        group = self.groups.setdefault(request.group_id, FakeGroup())
        names = {number: name for name, number in self.topic_ids.items()}
        topics = []
        for topic in request.topics:
            name = topic.name or names.get(topic.topic_id.int, "")
            error = 25 if group.members else 0 if name else UNKNOWN_TOPIC_ID
            for partition in topic.partitions:
                if not error:
                    tp = TopicPartition(name, partition.partition_index)
                    group.offsets[tp], group.metadata[tp] = (
                        partition.committed_offset,
                        partition.committed_metadata or "",
                    )
                    group.epochs[tp] = partition.committed_leader_epoch
                    group.topic_ids[tp] = UUID(int=self.topic_ids.get(name, 0))
            partitions = [
                offset_commit.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ]
            topics.append(
                offset_commit.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return offset_commit.OffsetCommitResponse(topics=topics)

    def _offset_delete(self, _broker: int, request: Any) -> Any:
        """A member of an active group is assumed to read all partitions."""
        group = self.groups.get(request.group_id)
        if group is None:
            return offset_delete.OffsetDeleteResponse(error_code=NO_SUCH_GROUP, topics=[])
        error = 86 if group.members else 0
        topics = []
        for topic in request.topics:
            for partition in topic.partitions:
                if not error:
                    group.offsets.pop(TopicPartition(topic.name, partition.partition_index), None)
            partitions = [
                offset_delete.OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ]
            topics.append(offset_delete.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return offset_delete.OffsetDeleteResponse(error_code=0, topics=topics)

    def _describe_producers(self, broker: int, request: Any) -> Any:
        def describe(topic: str, number: int) -> Any:
            found, error = self._find(broker, topic, number)
            return describe_producers.PartitionResponse(
                partition_index=number, error_code=error, active_producers=found.producers if found else []
            )

        return describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResponse(
                    name=topic.name, partitions=[describe(topic.name, number) for number in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )

    def _list_transactions(self, broker: int, request: Any) -> Any:
        known = self.transactions.values() if broker == self.controller else ()
        return list_transactions.ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=[],
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=element.transactional_id,
                    producer_id=element.producer_id,
                    transaction_state=element.transaction_state,
                )
                for element in known
                if element.transaction_state in (request.state_filters or [element.transaction_state])
                and element.producer_id in (request.producer_id_filters or [element.producer_id])
            ],
        )

    def _describe_transactions(self, _broker: int, request: Any) -> Any:
        missing = {
            name: describe_transactions.TransactionState(
                error_code=105,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=-1,
                producer_id=-1,
                producer_epoch=-1,
                topics=[],
            )
            for name in request.transactional_ids
        }
        states = [self.transactions.get(name, missing[name]) for name in request.transactional_ids]
        return describe_transactions.DescribeTransactionsResponse(transaction_states=states)

    def _write_txn_markers(self, broker: int, request: Any) -> Any:
        """Only of transactions that are aborted in a single partition."""
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        found, error = self._find(broker, topic.name, number)
        for producer in found.producers if found else []:
            if producer.producer_id == marker.producer_id:
                producer.current_txn_start_offset = -1
        result = write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=number, error_code=error)
        topics = [write_txn_markers.WritableTxnMarkerTopicResult(name=topic.name, partitions=[result])]
        results = [write_txn_markers.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)]
        return write_txn_markers.WriteTxnMarkersResponse(markers=results)

    def _delete_groups(self, _broker: int, request: Any) -> Any:
        results = []
        for name in request.groups_names:
            group = self.groups.get(name)
            error = NO_SUCH_GROUP if group is None else 68 if group.members else 0
            if not error:
                del self.groups[name]
            results.append(delete_groups.DeletableGroupResult(group_id=name, error_code=error))
        return delete_groups.DeleteGroupsResponse(results=results)

    def _init_producer_id(self, _broker: int, _request: Any) -> Any:
        number = len(self.requested(init_producer_id.InitProducerIdRequest))
        return init_producer_id.InitProducerIdResponse(error_code=0, producer_id=4000 + number, producer_epoch=0)


def _advertised(key: int, lowest: int, highest: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=lowest, max_version=highest)


def _config(name: str, value: str, *, source: int) -> Any:
    return describe_configs.DescribeConfigsResourceResult(
        name=name, value=value, read_only=False, config_source=source, is_sensitive=False
    )
