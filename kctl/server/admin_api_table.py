"""The handlers of requests about topics, configurations and log directories, put together."""

from __future__ import annotations

from collections.abc import Callable

from kctl.config.dynamic import ConfigView
from kctl.environment import Random
from kctl.model import TopicPartition
from kctl.server.config_resources import ConfigResources
from kctl.server.handlers.alter_configs import AlterConfigsHandler
from kctl.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from kctl.server.handlers.create_partitions import CreatePartitionsHandler
from kctl.server.handlers.create_topics import CreateTopicsHandler
from kctl.server.handlers.delete_records import DeleteRecordsHandler
from kctl.server.handlers.delete_topics import DeleteTopicsHandler
from kctl.server.handlers.describe_cluster import DescribeClusterHandler
from kctl.server.handlers.describe_configs import DescribeConfigsHandler
from kctl.server.handlers.describe_log_dirs import DescribeLogDirsHandler
from kctl.server.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from kctl.server.metadata_cache import MetadataCache
from kctl.server.metadata_waits import MetadataWaits
from kctl.server.replication.log_dir_moves import LogDirMoves
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.dispatch import Dispatcher
from kctl.server.requests.purgatory import Purgatory
from kctl.server.topic_writer import TopicWriter
from kctl.storage.log_manager import LogManager
from kctl.zookeeper.operations import ZooKeeper


def register_admin_handlers(
    dispatcher: Dispatcher,
    *,
    broker_id: int,
    cluster_id: str,
    configs: ConfigView,
    metadata: MetadataCache,
    waits: MetadataWaits,
    replicas: ReplicaManager,
    logs: LogManager,
    moves: LogDirMoves,
    topics: TopicWriter,
    zookeeper: ZooKeeper,
    partition_purgatory: Purgatory[TopicPartition],
    random: Random,
    is_controller: Callable[[], bool],
) -> None:
    """Serves them from now on; `partition_purgatory` is one that is checked when a partition moves."""
    serve = dispatcher.register
    resources = ConfigResources(broker_id, configs, metadata, topics)
    create = CreateTopicsHandler(topics, metadata, waits, configs, random, is_controller=is_controller)
    delete = DeleteTopicsHandler(topics, metadata, waits, configs, is_controller=is_controller)
    grow = CreatePartitionsHandler(topics, zookeeper, metadata, waits, is_controller=is_controller)
    serve("create_topics", create.handle)
    serve("delete_topics", delete.handle)
    serve("create_partitions", grow.handle)
    serve("delete_records", DeleteRecordsHandler(replicas, metadata, configs, partition_purgatory).handle)
    serve("describe_configs", DescribeConfigsHandler(broker_id, configs, metadata).handle)
    serve("alter_configs", AlterConfigsHandler(resources).handle)
    serve("incremental_alter_configs", IncrementalAlterConfigsHandler(broker_id, resources).handle)
    serve("alter_replica_log_dirs", AlterReplicaLogDirsHandler(moves).handle)
    serve("describe_log_dirs", DescribeLogDirsHandler(logs, replicas).handle)
    serve("describe_cluster", DescribeClusterHandler(cluster_id, metadata).handle)
