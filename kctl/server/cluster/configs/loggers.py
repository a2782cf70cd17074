"""Describes and sets the levels of the broker's loggers, under their own and Kafka's names.  KIP-412.

Kafka: Log4jController.  A level stays set until the broker stops.
"""

from __future__ import annotations

import logging

from kctl.errors import ApiError, ErrorCode
from kctl.output.log_lines import INITIAL_LEVELS, TRACE
from kctl.server.security.authorization import access

ROOT = "root"
_PACKAGE = "kctl"

KAFKA_LOGGERS: dict[str, tuple[str, ...]] = {
    "kafka": ("kctl",),
    "kafka.authorizer.logger": ("kctl.authorizer",),
    "kafka.cluster.Partition": ("kctl.server.replication",),
    "kafka.common.ZkNodeChangeNotificationListener": ("kctl.server.znodes.notifications",),
    "kafka.common.ZkNodeChangeNotificationListener$ChangeEventProcessThread": ("kctl.server.znodes.notifications",),
    "kafka.controller": ("kctl.server.cluster.controller",),
    "kafka.controller.ControllerChannelManager": ("kctl.server.cluster.controller.channels",),
    "kafka.controller.ControllerEventManager$ControllerEventThread": ("kctl.server.cluster.controller.runner",),
    "kafka.controller.KafkaController": ("kctl.server.cluster.controller",),
    "kafka.controller.RequestSendThread": ("kctl.server.cluster.controller.channels",),
    "kafka.controller.TopicDeletionManager": ("kctl.server.cluster.controller.runner",),
    "kafka.controller.ZkPartitionStateMachine": (
        "kctl.server.cluster.controller.runner",
        "kctl.server.cluster.controller.znodes.znode_writer",
    ),
    "kafka.controller.ZkReplicaStateMachine": (
        "kctl.server.cluster.controller.runner",
        "kctl.server.cluster.controller.znodes.znode_writer",
    ),
    "kafka.coordinator.group.GroupCoordinator": ("kctl.server.coordination.groups",),
    "kafka.coordinator.group.GroupMetadata": ("kctl.server.coordination.groups",),
    "kafka.coordinator.group.GroupMetadataManager": ("kctl.server.coordination.groups.runner",),
    "kafka.coordinator.transaction.ProducerIdManager": (
        "kctl.server.coordination.transactions.producer_ids",
        "kctl.server.coordination.transactions.producer_ids",
    ),
    "kafka.coordinator.transaction.TransactionCoordinator": ("kctl.server.coordination.transactions",),
    "kafka.coordinator.transaction.TransactionMarkerChannelManager": ("kctl.server.coordination.transactions.markers",),
    "kafka.coordinator.transaction.TransactionMarkerRequestCompletionHandler": (
        "kctl.server.coordination.transactions.markers",
    ),
    "kafka.coordinator.transaction.TransactionMetadata": ("kctl.server.coordination.transactions",),
    "kafka.coordinator.transaction.TransactionStateManager": ("kctl.server.coordination.transactions",),
    "kafka.log.AbstractIndex": ("kctl.storage.segments.segment",),
    "kafka.log.Log": ("kctl.storage",),
    "kafka.log.LogCleaner": ("kctl.server.replication.logs.cleaners", "kctl.storage.cleaning.cleaner"),
    "kafka.log.LogCleanerManager": ("kctl.server.replication.logs.cleaners", "kctl.storage.cleaning.cleaner"),
    "kafka.log.LogManager": ("kctl.storage.log_manager", "kctl.server.replication.logs.broker_logs"),
    "kafka.log.LogSegment": ("kctl.storage.segments.segment",),
    "kafka.log.OffsetIndex": ("kctl.storage.segments.segment",),
    "kafka.log.ProducerStateManager": ("kctl.storage.state.producer_snapshots",),
    "kafka.log.TimeIndex": ("kctl.storage.segments.segment",),
    "kafka.log.TransactionIndex": ("kctl.storage.segments.segment",),
    "kafka.network.Acceptor": ("kctl.server.network.acceptor",),
    "kafka.network.ConnectionQuotas": ("kctl.server.network.acceptor", "kctl.server.network.limit_updates"),
    "kafka.network.Processor": ("kctl.server.network.connections.connection",),
    "kafka.network.RequestChannel": ("kctl.server.requests",),
    "kafka.network.RequestChannel$": ("kctl.server.requests",),
    "kafka.network.SocketServer": ("kctl.server.network",),
    "kafka.request.logger": ("kctl.request",),
    "kafka.security.authorizer.AclAuthorizer": ("kctl.server.security.authorization",),
    "kafka.server.AdminManager": ("kctl.server.cluster.topics.writer",),
    "kafka.server.BrokerMetadataCheckpoint": ("kctl.storage.directories.log_directory",),
    "kafka.server.BrokerToControllerRequestThread": ("kctl.server.replication.isr_changes",),
    "kafka.server.ClientQuotaManager": ("kctl.server.requests.quotas",),
    "kafka.server.ClientQuotaManager$ThrottledChannelReaper": ("kctl.server.requests.quotas",),
    "kafka.server.ClientRequestQuotaManager": ("kctl.server.requests.quotas",),
    "kafka.server.ControllerMutationQuotaManager": ("kctl.server.requests.quotas",),
    "kafka.server.DefaultAutoTopicCreationManager": ("kctl.server.cluster.topics.automatic",),
    "kafka.server.DelayedCreatePartitions": ("kctl.server.cluster.topics.writer",),
    "kafka.server.DelayedDeleteRecords": ("kctl.server.requests",),
    "kafka.server.DelayedElectLeader": ("kctl.server.requests",),
    "kafka.server.DelayedFetch": ("kctl.server.requests",),
    "kafka.server.DelayedOperationPurgatory": ("kctl.server.requests",),
    "kafka.server.DelayedOperationPurgatory$ExpiredOperationReaper": ("kctl.server.requests",),
    "kafka.server.DelayedProduce": ("kctl.server.requests",),
    "kafka.server.DelegationTokenManager": ("kctl.server.security.tokens",),
    "kafka.server.DynamicBrokerConfig": ("kctl.server.cluster.configs.changes", "kctl.server.cluster.configs.broker"),
    "kafka.server.DynamicConfigManager": ("kctl.server.cluster.configs.changes",),
    "kafka.server.FetchManager": ("kctl.server.replication",),
    "kafka.server.FetchSessionCache": ("kctl.server.replication",),
    "kafka.server.FullFetchContext": ("kctl.server.replication",),
    "kafka.server.IncrementalFetchContext": ("kctl.server.replication",),
    "kafka.server.KafkaApis": ("kctl.server.handlers",),
    "kafka.server.KafkaConfig": ("kctl.server.cluster.configs.changes", "kctl.server.cluster.configs.broker"),
    "kafka.server.KafkaRequestHandler": ("kctl.server.network.dispatch",),
    "kafka.server.KafkaServer": ("kctl.server.broker.broker",),
    "kafka.server.ReplicaAlterLogDirsManager": ("kctl.server.replication.logs.log_dir_moves",),
    "kafka.server.ReplicaAlterLogDirsThread": ("kctl.server.replication.logs.log_dir_moves",),
    "kafka.server.ReplicaFetcherManager": ("kctl.server.replication.follower.fetcher",),
    "kafka.server.ReplicaFetcherThread": ("kctl.server.replication.follower.fetcher",),
    "kafka.server.ReplicaManager": ("kctl.server.replication.replica_manager",),
    "kafka.server.ReplicaManager$LogDirFailureHandler": (
        "kctl.storage.directories.log_directories",
        "kctl.server.replication.logs.broker_logs",
    ),
    "kafka.server.ReplicationQuotaManager": ("kctl.server.replication",),
    "kafka.server.RequestHandlerHelper": ("kctl.server.network.dispatch",),
    "kafka.server.SessionlessFetchContext": ("kctl.server.replication",),
    "kafka.server.ZkAdminManager": ("kctl.server.cluster.topics.writer",),
    "kafka.server.epoch.LeaderEpochFileCache": ("kctl.storage",),
    "kafka.utils.KafkaScheduler": ("kctl.server.loop.tasks", "kctl.server.replication.logs.broker_logs"),
    "kafka.zk.AdminZkClient": ("kctl.server.cluster.topics.writer",),
    "kafka.zk.KafkaZkClient": ("kctl.zookeeper.session",),
    "kafka.zookeeper.ZooKeeperClient": ("kctl.zookeeper.session",),
    "org.apache.kafka": ("kctl",),
    "org.apache.kafka.clients.NetworkClient": (
        "kctl.server.cluster.controller.channels",
        "kctl.server.replication.follower.fetcher",
    ),
    "org.apache.kafka.common.network.ChannelBuilders": (
        "kctl.server.broker.listeners",
        "kctl.server.network.tls.listeners",
    ),
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
    """Return the effective levels: of the root, of every kctl logger, and of each Kafka logger with a counterpart."""
    names = [_PACKAGE, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{_PACKAGE}."))]
    levels = {ROOT: _name_of(logging.root.level)}
    for name in sorted(names):
        levels[name] = _name_of(logging.getLogger(name).getEffectiveLevel())
    for name, (first, *_) in KAFKA_LOGGERS.items():
        levels[name] = _name_of(logging.getLogger(first).getEffectiveLevel())
    return levels


def check_logger(name: str, level: str | None) -> None:
    """Raise ApiError if the logger does not exist or cannot have this level (None: the inherited one)."""
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
    """Set a level that `check_logger` accepted; None sets the one at the start, or removes it."""
    for own_name in KAFKA_LOGGERS.get(name, (name,)):
        logger = logging.root if own_name == ROOT else logging.getLogger(own_name)
        logger.setLevel(INITIAL_LEVELS.get(own_name, logging.NOTSET) if level is None else LEVELS[level])
    access.levels_changed()


def _name_of(level: int) -> str:
    """Return the name of the highest Kafka level that is not above this number."""
    return next((name for name, number in reversed(LEVELS.items()) if number <= level), "TRACE")
