"""Registers the handlers of requests about topics, configurations, quotas and log directories."""

from __future__ import annotations

from kctl.server.config_resources import ConfigResources
from kctl.server.handlers.alter_client_quotas import AlterClientQuotasHandler
from kctl.server.handlers.alter_configs import AlterConfigsHandler
from kctl.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from kctl.server.handlers.create_partitions import CreatePartitionsHandler
from kctl.server.handlers.create_topics import CreateTopicsHandler
from kctl.server.handlers.delete_records import DeleteRecordsHandler
from kctl.server.handlers.delete_topics import DeleteTopicsHandler
from kctl.server.handlers.describe_client_quotas import DescribeClientQuotasHandler
from kctl.server.handlers.describe_cluster import DescribeClusterHandler
from kctl.server.handlers.describe_configs import DescribeConfigsHandler
from kctl.server.handlers.describe_log_dirs import DescribeLogDirsHandler
from kctl.server.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from kctl.server.handlers.update_features import UpdateFeaturesHandler
from kctl.server.host_names import resolves
from kctl.server.inter_broker import has_features
from kctl.server.parts import BrokerParts, Foundations
from kctl.server.requests.dispatch import Dispatcher


def register_admin_handlers(dispatcher: Dispatcher, base: Foundations, parts: BrokerParts) -> None:
    """Registers the handlers."""
    configs, metadata, waits, random = base.configs, base.metadata, base.metadata_waits, base.world.random
    broker_id, zookeeper, topics, replicas = parts.broker_id, parts.zookeeper, parts.topics, parts.replicas

    def is_controller() -> bool:
        return parts.controller.state.is_active

    serve = dispatcher.register
    resources = ConfigResources(broker_id, configs, metadata, topics)
    create = CreateTopicsHandler(topics, metadata, waits, configs, random, is_controller=is_controller)
    delete = DeleteTopicsHandler(topics, metadata, waits, configs, is_controller=is_controller)
    grow = CreatePartitionsHandler(topics, zookeeper, metadata, waits, is_controller=is_controller)
    serve("create_topics", create.handle)
    serve("delete_topics", delete.handle)
    serve("create_partitions", grow.handle)
    serve("delete_records", DeleteRecordsHandler(replicas, metadata, configs, base.produce_purgatory).handle)
    serve("describe_configs", DescribeConfigsHandler(broker_id, configs, metadata, resources).handle)
    serve("alter_configs", AlterConfigsHandler(resources).handle)
    serve("incremental_alter_configs", IncrementalAlterConfigsHandler(broker_id, resources).handle)
    serve("alter_replica_log_dirs", AlterReplicaLogDirsHandler(parts.moves).handle)
    serve("describe_log_dirs", DescribeLogDirsHandler(base.logs, replicas).handle)
    features = UpdateFeaturesHandler(
        has_features=has_features(configs.current.inter_broker_protocol_version), is_controller=is_controller
    )
    serve("describe_client_quotas", DescribeClientQuotasHandler(topics).handle)
    serve("alter_client_quotas", AlterClientQuotasHandler(topics, resolves).handle)
    serve("update_features", features.handle)
    serve("describe_cluster", DescribeClusterHandler(parts.cluster_id, metadata).handle)
