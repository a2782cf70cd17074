"""Replicas: fetching, in-sync sets, leadership, and fetch requests in general."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, one_of, prop
from kctl.config.kinds import BOOLEAN, INT, LONG, STRING

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationProperties:
    """Followers, leaders, controlled shutdown and the purgatories."""

    __slots__ = ()

    min_insync_replicas: int = prop(
        "min.insync.replicas",
        INT,
        at_least(1),
        default=1,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Minimum number of in-sync replicas for a write with acks=all.",
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Whether an out-of-sync replica may become leader if no in-sync replica is alive; this loses records.",
    )
    replica_lag_time_max_ms: int = prop(
        "replica.lag.time.max.ms",
        LONG,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        doc="Time after which a follower that has not caught up is removed from the ISR.",
    )
    replica_socket_timeout_ms: int = prop(
        "replica.socket.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        doc="Timeout of a follower's requests; must be larger than replica.fetch.wait.max.ms.",
    )
    replica_socket_receive_buffer_bytes: int = prop(
        "replica.socket.receive.buffer.bytes",
        INT,
        at_least(-1),
        default=64 << 10,
        importance=Importance.HIGH,
        doc="SO_RCVBUF of a follower's connections to leaders; applied if it is set, since the operating system "
        "adapts the buffer otherwise.",
    )
    replica_fetch_max_bytes: int = prop(
        "replica.fetch.max.bytes",
        INT,
        at_least(0),
        default=1 << 20,
        doc="Maximum bytes that a follower requests per partition; a larger first batch is returned whole.",
    )
    replica_fetch_wait_max_ms: int = prop(
        "replica.fetch.wait.max.ms",
        INT,
        at_least(0),
        default=500,
        importance=Importance.HIGH,
        doc="Maximum time that a leader delays the response to a follower without new records.",
    )
    replica_fetch_min_bytes: int = prop(
        "replica.fetch.min.bytes",
        INT,
        at_least(0),
        default=1,
        importance=Importance.HIGH,
        doc="Minimum bytes for which a leader responds to a follower before replica.fetch.wait.max.ms.",
    )
    replica_fetch_backoff_ms: int = prop(
        "replica.fetch.backoff.ms", INT, at_least(0), default=1000, doc="Pause after a partition's fetch failed."
    )
    replica_fetch_response_max_bytes: int = prop(
        "replica.fetch.response.max.bytes",
        INT,
        at_least(0),
        default=10 << 20,
        doc="Maximum bytes that a follower requests in one fetch.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = prop(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        at_least(1),
        default=5000,
        importance=Importance.HIGH,
        doc="Interval of the high watermark checkpoints.",
    )
    replica_selector_class: str | None = prop(
        "replica.selector.class",
        STRING,
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        default=None,
        doc="Selects the replica that a consumer fetches from: one in its rack (client.rack), by default the leader.",
    )
    num_replica_fetchers: int = prop(
        "num.replica.fetchers",
        INT,
        at_least(1),
        default=1,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Connections per leader from which a follower fetches.",
    )
    num_replica_alter_log_dirs_threads: int | None = prop(
        "num.replica.alter.log.dirs.threads",
        INT,
        at_least(1),
        default=None,
        importance=Importance.HIGH,
        doc="Replicas that move between log directories in parallel; by default the number of directories.",
    )

    auto_leader_rebalance_enable: bool = prop(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        default=True,
        importance=Importance.HIGH,
        doc="Whether the controller elects preferred leaders automatically.",
    )
    leader_imbalance_per_broker_percentage: int = prop(
        "leader.imbalance.per.broker.percentage",
        INT,
        at_least(0),
        default=10,
        importance=Importance.HIGH,
        doc="Percentage of partitions not led by their preferred leader that triggers preferred leader election.",
    )
    leader_imbalance_check_interval_seconds: int = prop(
        "leader.imbalance.check.interval.seconds",
        LONG,
        at_least(1),
        default=300,
        importance=Importance.HIGH,
        doc="Interval of the checks for leader imbalance.",
    )
    controller_socket_timeout_ms: int = prop(
        "controller.socket.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        doc="Timeout of the requests from and to the controller.",
    )
    controlled_shutdown_enable: bool = prop(
        "controlled.shutdown.enable",
        BOOLEAN,
        default=True,
        doc="Whether a broker moves its leaderships to other brokers before it stops.",
    )
    controlled_shutdown_max_retries: int = prop(
        "controlled.shutdown.max.retries",
        INT,
        at_least(0),
        default=3,
        doc="Attempts of a controlled shutdown before the broker stops without it.",
    )
    controlled_shutdown_retry_backoff_ms: int = prop(
        "controlled.shutdown.retry.backoff.ms",
        LONG,
        at_least(0),
        default=5000,
        doc="Pause between two attempts of a controlled shutdown.",
    )

    max_incremental_fetch_session_cache_slots: int = prop(
        "max.incremental.fetch.session.cache.slots",
        INT,
        at_least(0),
        default=1000,
        doc="Maximum number of incremental fetch sessions.",
    )
    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        at_least(1024),
        default=55 << 20,
        doc="Maximum bytes in the response to a fetch request.",
    )
    fetch_purgatory_purge_interval_requests: int = prop(
        "fetch.purgatory.purge.interval.requests",
        INT,
        default=1000,
        unused="a completed request leaves the purgatory at once",
        doc="Completed fetch requests in the purgatory that trigger its cleaning.",
    )
    producer_purgatory_purge_interval_requests: int = prop(
        "producer.purgatory.purge.interval.requests",
        INT,
        default=1000,
        unused="a completed request leaves the purgatory at once",
        doc="Completed produce requests in the purgatory that trigger its cleaning.",
    )
    delete_records_purgatory_purge_interval_requests: int = prop(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        default=1,
        unused="a completed request leaves the purgatory at once",
        doc="Completed DeleteRecords requests in the purgatory that trigger its cleaning.",
    )
