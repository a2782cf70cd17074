"""The fake cluster of the client tests with replicas, reassignments, elections, configs and sizes.

Nothing happens by itself: a move stays under way until `arrive` is called or `looks_until_arrival` looks have passed.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kctl.model import TopicPartition
from kctl.protocol.apis import (
    alter_partition_reassignments,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
)
from tests.unit.client.fake_cluster import FakeCluster

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2
UNKNOWN_TOPIC, INVALID_ASSIGNMENT, INVALID_CONFIG, NOT_NEEDED, NO_REASSIGNMENT = 3, 39, 40, 84, 85
STATIC = {"log.cleaner.threads": "1"}

OF_ANY_BROKER = {16: 7, 32: 8}
"""Resource types client metrics and group, and the source of what is set for one."""


class MovingCluster(FakeCluster):
    """Brokers 0 .. n-1; `away` are registered nowhere, although they may hold replicas."""

    def __init__(self, brokers: int = 3) -> None:
        super().__init__(brokers)
        self.replicas: dict[TopicPartition, list[int]] = {}
        self.isr: dict[TopicPartition, list[int]] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.moving: dict[TopicPartition, tuple[list[int], list[int]]] = {}
        """Partition -> (target, previous replicas)."""
        self.looks_until_arrival: int | None = None
        self.sizes: dict[tuple[int, TopicPartition], int] = {}
        self.usable_bytes: dict[int, int] = {}
        """Free space of the brokers that report it."""
        self.racks: dict[int, str] = {}
        self.overrides: dict[tuple[int, str], dict[str, str]] = {}
        """(type, name) -> the properties set for exactly that resource."""
        self.away: set[int] = set()

    def place(self, topic: str, *partitions: list[int], size: int = 0) -> None:
        """A topic with these replicas, all in sync, led by the first of each."""
        self.create(topic, [replicas[0] for replicas in partitions])
        for number, replicas in enumerate(partitions):
            tp = TopicPartition(topic, number)
            self.replicas[tp] = list(replicas)
            self.isr[tp] = list(replicas)
            self.leaders[tp] = replicas[0]
            self.sizes.update({(replica, tp): size for replica in replicas})

    def arrive(self) -> None:
        """Completes every move."""
        for tp, (target, _) in self.moving.items():
            self.replicas[tp] = self.isr[tp] = list(target)
            if self.leaders[tp] not in target:
                self.leaders[tp] = target[0]
        self.moving.clear()

    def set_for(self, kind: int, name: str, key: str) -> str | None:
        """The properties set for exactly that topic or broker."""
        return self.overrides.get((kind, name), {}).get(key)

    def _create_partitions(self, broker: int, request: Any) -> Any:
        response = super()._create_partitions(broker, request)
        for topic in request.topics:
            for number in range(len(self.topics.get(topic.name, ()))):
                tp = TopicPartition(topic.name, number)
                if tp not in self.replicas:
                    self.replicas[tp], self.isr[tp], self.leaders[tp] = [0], [0], 0
        return response

    def _metadata(self, broker: int, request: Any) -> Any:
        response = super()._metadata(broker, request)
        response.brokers = [broker for broker in response.brokers if broker.node_id not in self.away]
        for described_broker in response.brokers:
            described_broker.rack = self.racks.get(described_broker.node_id)
        return response

    def _topic_metadata(self, name: str) -> Any:
        tps = sorted(tp for tp in self.replicas if tp.topic == name)
        if not tps:
            return super()._topic_metadata(name)
        return metadata.MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=UUID(int=1),
            is_internal=False,
            partitions=[
                metadata.MetadataResponsePartition(
                    error_code=0 if self.leaders[tp] >= 0 else 5,
                    partition_index=tp.partition,
                    leader_id=self.leaders[tp],
                    leader_epoch=0,
                    replica_nodes=self._held_by(tp),
                    isr_nodes=self.isr[tp],
                    offline_replicas=[replica for replica in self.replicas[tp] if replica in self.away],
                )
                for tp in tps
            ],
        )

    def _leader_of(self, tp: TopicPartition) -> int:
        return self.leaders[tp]

    def _held_by(self, tp: TopicPartition) -> list[int]:
        """While it moves: the target, then the removed replicas, in the order of the controller."""
        if tp not in self.moving:
            return self.replicas[tp]
        target, origin = self.moving[tp]
        return target + [replica for replica in origin if replica not in target]

    def _list_partition_reassignments(self, _broker: int, _request: Any) -> Any:
        if self.looks_until_arrival is not None and self.moving:
            self.looks_until_arrival -= 1
            if self.looks_until_arrival < 0:
                self.arrive()
        topics: dict[str, Any] = {}
        for tp, (target, origin) in sorted(self.moving.items()):
            topic = topics.setdefault(
                tp.topic, list_partition_reassignments.OngoingTopicReassignment(name=tp.topic, partitions=[])
            )
            topic.partitions.append(
                list_partition_reassignments.OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=self._held_by(tp),
                    adding_replicas=[replica for replica in target if replica not in origin],
                    removing_replicas=[replica for replica in origin if replica not in target],
                )
            )
        return list_partition_reassignments.ListPartitionReassignmentsResponse(
            error_code=0, topics=list(topics.values())
        )

    def _alter_partition_reassignments(self, _broker: int, request: Any) -> Any:
        def alter(tp: TopicPartition, target: list[int] | None) -> int:
            if tp not in self.replicas:
                return UNKNOWN_TOPIC
            if target is None:
                if tp not in self.moving:
                    return NO_REASSIGNMENT
                # As the controllers of Kafka and kctl, which do not store the previous order of replicas.
                held, (_, before) = self._held_by(tp), self.moving.pop(tp)
                self.replicas[tp] = [replica for replica in held if replica in before]
                return 0
            if any(replica not in range(len(self.ports)) for replica in target):
                return INVALID_ASSIGNMENT
            origin = self.moving[tp][1] if tp in self.moving else self.replicas[tp]
            if tp in self.moving and sorted(origin) == sorted(target):
                del self.moving[tp]
                self.replicas[tp] = list(target)
                return 0
            self.moving[tp] = (list(target), list(origin))
            return 0

        return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
            error_code=0,
            responses=[
                alter_partition_reassignments.ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        alter_partition_reassignments.ReassignablePartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=alter(TopicPartition(topic.name, partition.partition_index), partition.replicas),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _elect_leaders(self, _broker: int, request: Any) -> Any:
        def elect(tp: TopicPartition) -> int:
            if tp not in self.replicas:
                return UNKNOWN_TOPIC
            preferred = self.replicas[tp][0]
            if request.election_type == 0 and self.leaders[tp] == preferred:
                return NOT_NEEDED
            if request.election_type == 1 and self.leaders[tp] >= 0:
                return NOT_NEEDED
            if request.election_type == 0 and preferred not in self.isr[tp]:
                return 80
            self.leaders[tp] = next(replica for replica in self.replicas[tp] if replica not in self.away)
            return 0

        named = request.topic_partitions
        tps = sorted(self.replicas) if named is None else [
            TopicPartition(topic.topic, number) for topic in named for number in topic.partitions
        ]  # fmt: skip
        results: dict[str, Any] = {}
        for tp in tps:
            code = elect(tp)
            if named is None and code == NOT_NEEDED:
                continue
            topic = results.setdefault(
                tp.topic, elect_leaders.ReplicaElectionResult(topic=tp.topic, partition_result=[])
            )
            topic.partition_result.append(elect_leaders.PartitionResult(partition_id=tp.partition, error_code=code))
        return elect_leaders.ElectLeadersResponse(error_code=0, replica_election_results=list(results.values()))

    def _describe_log_dirs(self, broker: int, request: Any) -> Any:
        expected = set(self.replicas)
        if request.topics is not None:
            expected = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
        topics: dict[str, Any] = {}
        for (holder, tp), size in sorted(self.sizes.items()):
            if holder == broker and tp in expected:
                topic = topics.setdefault(
                    tp.topic, describe_log_dirs.DescribeLogDirsTopic(name=tp.topic, partitions=[])
                )
                topic.partitions.append(
                    describe_log_dirs.DescribeLogDirsPartition(
                        partition_index=tp.partition, partition_size=size, offset_lag=0, is_future_key=False
                    )
                )
        result = describe_log_dirs.DescribeLogDirsResult(
            error_code=0, log_dir="/d", topics=list(topics.values()), usable_bytes=self.usable_bytes.get(broker, -1)
        )
        return describe_log_dirs.DescribeLogDirsResponse(results=[result])

    def _describe_configs(self, broker: int, request: Any) -> Any:
        results = []
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            code = self._config_error(broker, kind, name)
            own = {} if code else self.overrides.get((kind, name), {})
            source = OF_ANY_BROKER.get(kind) or (1 if kind == TOPIC else 2 if name else 3)
            configs = [_config(key, value, source) for key, value in own.items()]
            if not code and kind == BROKER and name:
                configs += [_config(key, value, 4) for key, value in STATIC.items() if key not in own]
            if not code and kind == TOPIC and "min.insync.replicas" not in own:
                configs.append(_config("min.insync.replicas", "1", 5))
            expected = resource.configuration_keys
            results.append(
                describe_configs.DescribeConfigsResult(
                    error_code=code,
                    resource_type=kind,
                    resource_name=name,
                    configs=[config for config in configs if expected is None or config.name in expected],
                )
            )
        return describe_configs.DescribeConfigsResponse(results=results)

    def _list_config_resources(self, _broker: int, request: Any) -> Any:
        kinds = request.resource_types or [16]
        return list_config_resources.ListConfigResourcesResponse(
            error_code=0,
            config_resources=[
                list_config_resources.ConfigResource(resource_name=name, resource_type=kind)
                for kind, name in sorted(self.overrides)
                if kind in kinds
            ],
        )

    def _incremental_alter_configs(self, broker: int, request: Any) -> Any:
        responses = []
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            code = self._config_error(broker, kind, name)
            if any(change.name == "no.such.property" for change in resource.configs):
                code = INVALID_CONFIG
            own = self.overrides.setdefault((kind, name), {})
            for change in [] if code or request.validate_only else resource.configs:
                if change.config_operation == DELETE:
                    own.pop(change.name, None)
                elif change.config_operation == APPEND:
                    own[change.name] = ",".join(filter(None, [own.get(change.name), change.value]))
                else:
                    own[change.name] = change.value
            responses.append(
                incremental_alter_configs.AlterConfigsResourceResponse(
                    error_code=code, resource_type=kind, resource_name=name
                )
            )
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)

    def _config_error(self, broker: int, kind: int, name: str) -> int:
        if kind == TOPIC:
            return 0 if name in self.topics else UNKNOWN_TOPIC
        if kind in OF_ANY_BROKER:
            return 0
        return 42 if name and int(name) != broker else 0


def _config(name: str, value: str, source: int) -> Any:
    synonyms = [describe_configs.DescribeConfigsSynonym(name=name, value=value, source=source)]
    if name in STATIC and source != 4:
        synonyms.append(describe_configs.DescribeConfigsSynonym(name=name, value=STATIC[name], source=4))
    return describe_configs.DescribeConfigsResourceResult(
        name=name, value=value, read_only=False, config_source=source, is_sensitive=False, synonyms=synonyms
    )
