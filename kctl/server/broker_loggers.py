"""The levels of the broker's loggers, under our names and under Kafka's, described and set while it runs.  KIP-412.

Kafka's Log4jController.  A level that is set lasts until the broker stops.
"""

from __future__ import annotations

import logging

from kctl.errors import ApiError, ErrorCode

ROOT = "root"
_PACKAGE = "kctl"
_TRACE = 5

KAFKA_LOGGERS: dict[str, tuple[str, ...]] = {
    "kafka": ("kctl",),
    "kafka.cluster.Partition": ("kctl.server.replication",),
    "kafka.controller": ("kctl.server.controller",),
    "kafka.controller.ControllerChannelManager": ("kctl.server.controller.broker_channels",),
    "kafka.controller.KafkaController": ("kctl.server.controller",),
    "kafka.controller.RequestSendThread": ("kctl.server.controller.broker_channels",),
    "kafka.coordinator.group.GroupCoordinator": ("kctl.server.groups",),
    "kafka.coordinator.group.GroupMetadataManager": ("kctl.server.groups.offsets_writer",),
    "kafka.coordinator.transaction.ProducerIdManager": (
        "kctl.server.producer_ids",
        "kctl.server.transactions.producer_id_allocations",
    ),
    "kafka.coordinator.transaction.TransactionCoordinator": ("kctl.server.transactions",),
    "kafka.coordinator.transaction.TransactionMarkerChannelManager": ("kctl.server.transactions.markers",),
    "kafka.log.Log": ("kctl.storage",),
    "kafka.log.LogCleaner": ("kctl.server.cleaners", "kctl.storage.cleaner"),
    "kafka.log.LogManager": ("kctl.storage.log_manager", "kctl.server.log_chores"),
    "kafka.network.Acceptor": ("kctl.server.network.acceptor",),
    "kafka.network.Processor": ("kctl.server.network.connection",),
    "kafka.network.RequestChannel$": ("kctl.server.requests",),
    "kafka.network.SocketServer": ("kctl.server.network",),
    "kafka.request.logger": ("kctl.server.requests",),
    "kafka.server.DynamicConfigManager": ("kctl.server.config_changes",),
    "kafka.server.KafkaApis": ("kctl.server.handlers",),
    "kafka.server.KafkaServer": ("kctl.server.broker",),
    "kafka.server.ReplicaAlterLogDirsManager": ("kctl.server.replication.log_dir_moves",),
    "kafka.server.ReplicaFetcherManager": ("kctl.server.replication.fetcher",),
    "kafka.server.ReplicaManager": ("kctl.server.replication.replica_manager",),
    "kafka.zk.KafkaZkClient": ("kctl.zookeeper.session",),
    "kafka.zookeeper.ZooKeeperClient": ("kctl.zookeeper.session",),
    "org.apache.zookeeper": ("kctl.zookeeper",),
    "state.change.logger": ("kctl.state_change",),
}
"""Kafka's loggers, by the names that its documentation and its log4j.properties use, and ours that log the same.

A level that is set under Kafka's name is set for all of ours; the level of the first is the one that is described.
"""

LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """The level in force: of the root, of every logger of kctl, and of each of Kafka's that has a counterpart."""
    names = [_PACKAGE, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{_PACKAGE}."))]
    levels = {ROOT: _name_of(logging.root.level)}
    for name in sorted(names):
        levels[name] = _name_of(logging.getLogger(name).getEffectiveLevel())
    for name, (first, *_) in KAFKA_LOGGERS.items():
        levels[name] = _name_of(logging.getLogger(first).getEffectiveLevel())
    return levels


def check_logger(name: str, level: str | None) -> None:
    """Raises ApiError for a level (None: back to what is inherited) that this logger cannot take."""
    if name not in logger_levels():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The root logger cannot be without a level")
    elif level not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Log level {level} is not one of {', '.join(LEVELS)}, for logger {name}"
        )


def set_logger(name: str, level: str | None) -> None:
    """Sets a level that `check_logger` let through."""
    for ours in KAFKA_LOGGERS.get(name, (name,)):
        logger = logging.root if ours == ROOT else logging.getLogger(ours)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(level: int) -> str:
    """The name of the highest of Kafka's levels that is not above this one."""
    return next((name for name, number in reversed(LEVELS.items()) if number <= level), "TRACE")
