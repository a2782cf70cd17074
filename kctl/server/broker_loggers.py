"""Describes and sets the levels of the broker's loggers, under their own and Kafka's names.  KIP-412.

Kafka: Log4jController.  A level stays set until the broker stops.
"""

from __future__ import annotations

import logging

from kctl.errors import ApiError, ErrorCode
from kctl.log_output.handler import INITIAL_LEVELS, TRACE
from kctl.server.authorization import audit

ROOT = "root"
_PACKAGE = "kctl"

KAFKA_LOGGERS: dict[str, tuple[str, ...]] = {
    "kafka": ("kctl",),
    "kafka.authorizer.logger": ("kctl.authorizer",),
    "kafka.cluster.Partition": ("kctl.server.replication",),
    "kafka.common.ZkNodeChangeNotificationListener": ("kctl.server.change_notifications",),
    "kafka.common.ZkNodeChangeNotificationListener$ChangeEventProcessThread": ("kctl.server.change_notifications",),
    "kafka.controller": ("kctl.server.controller",),
    "kafka.controller.ControllerChannelManager": ("kctl.server.controller.broker_channels",),
    "kafka.controller.ControllerEventManager$ControllerEventThread": ("kctl.server.controller.runner",),
    "kafka.controller.KafkaController": ("kctl.server.controller",),
    "kafka.controller.RequestSendThread": ("kctl.server.controller.broker_channels",),
    "kafka.controller.TopicDeletionManager": ("kctl.server.controller.runner",),
    "kafka.controller.ZkPartitionStateMachine": (
        "kctl.server.controller.runner",
        "kctl.server.controller.znode_writer",
    ),
    "kafka.controller.ZkReplicaStateMachine": ("kctl.server.controller.runner", "kctl.server.controller.znode_writer"),
    "kafka.coordinator.group.GroupCoordinator": ("kctl.server.groups",),
    "kafka.coordinator.group.GroupMetadata": ("kctl.server.groups",),
    "kafka.coordinator.group.GroupMetadataManager": ("kctl.server.groups.runner",),
    "kafka.coordinator.transaction.ProducerIdManager": (
        "kctl.server.producer_ids",
        "kctl.server.transactions.producer_id_allocations",
    ),
    "kafka.coordinator.transaction.TransactionCoordinator": ("kctl.server.transactions",),
    "kafka.coordinator.transaction.TransactionMarkerChannelManager": ("kctl.server.transactions.markers",),
    "kafka.coordinator.transaction.TransactionMarkerRequestCompletionHandler": ("kctl.server.transactions.markers",),
    "kafka.coordinator.transaction.TransactionMetadata": ("kctl.server.transactions",),
    "kafka.coordinator.transaction.TransactionStateManager": ("kctl.server.transactions",),
    "kafka.log.AbstractIndex": ("kctl.storage.segment",),
    "kafka.log.Log": ("kctl.storage",),
    "kafka.log.LogCleaner": ("kctl.server.cleaners", "kctl.storage.cleaner"),
    "kafka.log.LogCleanerManager": ("kctl.server.cleaners", "kctl.storage.cleaner"),
    "kafka.log.LogManager": ("kctl.storage.log_manager", "kctl.server.log_tasks"),
    "kafka.log.LogSegment": ("kctl.storage.segment",),
    "kafka.log.OffsetIndex": ("kctl.storage.segment",),
    "kafka.log.ProducerStateManager": ("kctl.storage.producer_snapshots",),
    "kafka.log.TimeIndex": ("kctl.storage.segment",),
    "kafka.log.TransactionIndex": ("kctl.storage.segment",),
    "kafka.network.Acceptor": ("kctl.server.network.acceptor",),
    "kafka.network.ConnectionQuotas": ("kctl.server.network.acceptor", "kctl.server.limit_updates"),
    "kafka.network.Processor": ("kctl.server.network.connection",),
    "kafka.network.RequestChannel": ("kctl.server.requests",),
    "kafka.network.RequestChannel$": ("kctl.server.requests",),
    "kafka.network.SocketServer": ("kctl.server.network",),
    "kafka.request.logger": ("kctl.request",),
    "kafka.security.authorizer.AclAuthorizer": ("kctl.server.authorization",),
    "kafka.server.AdminManager": ("kctl.server.topic_writer",),
    "kafka.server.BrokerMetadataCheckpoint": ("kctl.storage.log_directory",),
    "kafka.server.BrokerToControllerRequestThread": ("kctl.server.replication.state_stores",),
    "kafka.server.ClientQuotaManager": ("kctl.server.quotas",),
    "kafka.server.ClientQuotaManager$ThrottledChannelReaper": ("kctl.server.quotas",),
    "kafka.server.ClientRequestQuotaManager": ("kctl.server.quotas",),
    "kafka.server.ControllerMutationQuotaManager": ("kctl.server.quotas",),
    "kafka.server.DefaultAutoTopicCreationManager": ("kctl.server.auto_topics",),
    "kafka.server.DelayedCreatePartitions": ("kctl.server.topic_writer",),
    "kafka.server.DelayedDeleteRecords": ("kctl.server.requests",),
    "kafka.server.DelayedElectLeader": ("kctl.server.requests",),
    "kafka.server.DelayedFetch": ("kctl.server.requests",),
    "kafka.server.DelayedOperationPurgatory": ("kctl.server.requests",),
    "kafka.server.DelayedOperationPurgatory$ExpiredOperationReaper": ("kctl.server.requests",),
    "kafka.server.DelayedProduce": ("kctl.server.requests",),
    "kafka.server.DelegationTokenManager": ("kctl.server.tokens",),
    "kafka.server.DynamicBrokerConfig": ("kctl.server.config_changes", "kctl.server.broker_config_updates"),
    "kafka.server.DynamicConfigManager": ("kctl.server.config_changes",),
    "kafka.server.FetchManager": ("kctl.server.replication",),
    "kafka.server.FetchSessionCache": ("kctl.server.replication",),
    "kafka.server.FullFetchContext": ("kctl.server.replication",),
    "kafka.server.IncrementalFetchContext": ("kctl.server.replication",),
    "kafka.server.KafkaApis": ("kctl.server.handlers",),
    "kafka.server.KafkaConfig": ("kctl.server.config_changes", "kctl.server.broker_config_updates"),
    "kafka.server.KafkaRequestHandler": ("kctl.server.requests.dispatch",),
    "kafka.server.KafkaServer": ("kctl.server.broker",),
    "kafka.server.ReplicaAlterLogDirsManager": ("kctl.server.replication.log_dir_moves",),
    "kafka.server.ReplicaAlterLogDirsThread": ("kctl.server.replication.log_dir_moves",),
    "kafka.server.ReplicaFetcherManager": ("kctl.server.replication.fetcher",),
    "kafka.server.ReplicaFetcherThread": ("kctl.server.replication.fetcher",),
    "kafka.server.ReplicaManager": ("kctl.server.replication.replica_manager",),
    "kafka.server.ReplicaManager$LogDirFailureHandler": ("kctl.storage.log_directories", "kctl.server.broker_logs"),
    "kafka.server.ReplicationQuotaManager": ("kctl.server.replication",),
    "kafka.server.RequestHandlerHelper": ("kctl.server.requests.dispatch",),
    "kafka.server.SessionlessFetchContext": ("kctl.server.replication",),
    "kafka.server.ZkAdminManager": ("kctl.server.topic_writer",),
    "kafka.server.epoch.LeaderEpochFileCache": ("kctl.storage",),
    "kafka.utils.KafkaScheduler": ("kctl.server.schedule", "kctl.server.log_tasks"),
    "kafka.zk.AdminZkClient": ("kctl.server.topic_writer",),
    "kafka.zk.KafkaZkClient": ("kctl.zookeeper.session",),
    "kafka.zookeeper.ZooKeeperClient": ("kctl.zookeeper.session",),
    "org.apache.kafka": ("kctl",),
    "org.apache.kafka.clients.NetworkClient": (
        "kctl.server.controller.broker_channels",
        "kctl.server.replication.fetcher",
    ),
    "org.apache.kafka.common.network.ChannelBuilders": ("kctl.server.listeners", "kctl.server.listener_tls"),
    "org.apache.kafka.common.network.Selector": ("kctl.server.network",),
    "org.apache.zookeeper": ("kctl.zookeeper",),
    "org.apache.zookeeper.ClientCnxn": ("kctl.zookeeper.session", "kctl.zookeeper.kazoo_link"),
    "org.apache.zookeeper.ClientCnxnSocketNIO": ("kctl.zookeeper.kazoo_link",),
    "org.apache.zookeeper.ZooKeeper": ("kctl.zookeeper.session",),
    "state.change.logger": ("kctl.state_change",),
}
"""Kafka's loggers, by their names in its documentation and log4j.properties, and the loggers here that correspond.

Setting a level under Kafka's name sets all of these; the level of the first one is described.
"""

LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """The effective levels: of the root, of every kctl logger, and of each Kafka logger with a counterpart."""
    names = [_PACKAGE, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{_PACKAGE}."))]
    levels = {ROOT: _name_of(logging.root.level)}
    for name in sorted(names):
        levels[name] = _name_of(logging.getLogger(name).getEffectiveLevel())
    for name, (first, *_) in KAFKA_LOGGERS.items():
        levels[name] = _name_of(logging.getLogger(first).getEffectiveLevel())
    return levels


def check_logger(name: str, level: str | None) -> None:
    """Raises ApiError if the logger does not exist or cannot have this level (None: the inherited one)."""
    if name not in logger_levels():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The level of the root logger cannot be deleted")
    elif level not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Log level {level} is not one of {', '.join(LEVELS)}, for logger {name}"
        )


def set_logger(name: str, level: str | None) -> None:
    """Sets a level that `check_logger` accepted; None sets the one at the start, or removes it."""
    for own_name in KAFKA_LOGGERS.get(name, (name,)):
        logger = logging.root if own_name == ROOT else logging.getLogger(own_name)
        logger.setLevel(INITIAL_LEVELS.get(own_name, logging.NOTSET) if level is None else LEVELS[level])
    audit.levels_changed()


def _name_of(level: int) -> str:
    """The name of the highest Kafka level that is not above this number."""
    return next((name for name, number in reversed(LEVELS.items()) if number <= level), "TRACE")
