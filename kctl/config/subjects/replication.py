"""Replicas: fetching, in-sync sets, leadership, and fetch requests in general."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, prop
from kctl.config.kinds import BOOLEAN, INT, LONG, STRING
from kctl.config.rules import at_least, one_of

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
        doc="Replicas that must be in sync for a write with acks=all to be taken.",
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Whether a replica that is not in sync may become leader when no other is left, which loses records.",
    )
    replica_lag_time_max_ms: int = prop(
        "replica.lag.time.max.ms",
        LONG,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        doc="Time a follower may stay behind the log's end before it leaves the in-sync set.",
    )
    replica_socket_timeout_ms: int = prop(
        "replica.socket.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        doc="Time that a follower's request may take; longer than replica.fetch.wait.max.ms.",
    )
    replica_socket_receive_buffer_bytes: int = prop(
        "replica.socket.receive.buffer.bytes",
        INT,
        at_least(-1),
        default=64 << 10,
        importance=Importance.HIGH,
        inert=True,
        doc="SO_RCVBUF of a follower's connection to a leader.",
    )
    replica_fetch_max_bytes: int = prop(
        "replica.fetch.max.bytes",
        INT,
        at_least(0),
        default=1 << 20,
        doc="Bytes a follower asks for per partition; a larger first batch comes whole all the same.",
    )
    replica_fetch_wait_max_ms: int = prop(
        "replica.fetch.wait.max.ms",
        INT,
        at_least(0),
        default=500,
        importance=Importance.HIGH,
        doc="Time that a leader may hold back the answer to a follower while there is nothing new.",
    )
    replica_fetch_min_bytes: int = prop(
        "replica.fetch.min.bytes",
        INT,
        at_least(0),
        default=1,
        importance=Importance.HIGH,
        doc="Bytes for which a leader answers a follower before replica.fetch.wait.max.ms is over.",
    )
    replica_fetch_backoff_ms: int = prop(
        "replica.fetch.backoff.ms", INT, at_least(0), default=1000, doc="Pause after a partition's fetch failed."
    )
    replica_fetch_response_max_bytes: int = prop(
        "replica.fetch.response.max.bytes",
        INT,
        at_least(0),
        default=10 << 20,
        doc="Bytes a follower asks for in one request.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = prop(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        at_least(1),
        default=5000,
        importance=Importance.HIGH,
        doc="Time between two writings of the high watermarks to disk.",
    )
    replica_selector_class: str | None = prop(
        "replica.selector.class",
        STRING,
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        default=None,
        doc="Which replica a consumer reads from: one of its rack (client.rack), or, without it, the leader.",
    )
    num_replica_fetchers: int = prop(
        "num.replica.fetchers",
        INT,
        at_least(1),
        default=1,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Connections that a follower fetches from one leader with.",
    )
    num_replica_alter_log_dirs_threads: int | None = prop(
        "num.replica.alter.log.dirs.threads",
        INT,
        at_least(1),
        default=None,
        importance=Importance.HIGH,
        doc="Replicas that move between log directories at once; as many as directories when not set.",
    )

    auto_leader_rebalance_enable: bool = prop(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        default=True,
        importance=Importance.HIGH,
        doc="Whether the controller gives leadership back to preferred replicas by itself.",
    )
    leader_imbalance_per_broker_percentage: int = prop(
        "leader.imbalance.per.broker.percentage",
        INT,
        at_least(0),
        default=10,
        importance=Importance.HIGH,
        doc="Percentage of a broker's partitions led elsewhere above which leadership is given back.",
    )
    leader_imbalance_check_interval_seconds: int = prop(
        "leader.imbalance.check.interval.seconds",
        LONG,
        at_least(1),
        default=300,
        importance=Importance.HIGH,
        doc="Seconds between two checks for leadership to give back.",
    )
    controller_socket_timeout_ms: int = prop(
        "controller.socket.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        inert=True,
        doc="Time that a request of the controller may take.",
    )
    controlled_shutdown_enable: bool = prop(
        "controlled.shutdown.enable",
        BOOLEAN,
        default=True,
        doc="Whether a broker that stops first has its leaderships moved elsewhere.",
    )
    controlled_shutdown_max_retries: int = prop(
        "controlled.shutdown.max.retries",
        INT,
        at_least(0),
        default=3,
        doc="Tries to have leaderships moved elsewhere before the broker stops anyway.",
    )
    controlled_shutdown_retry_backoff_ms: int = prop(
        "controlled.shutdown.retry.backoff.ms",
        LONG,
        at_least(0),
        default=5000,
        doc="Pause between two tries to have leaderships moved elsewhere.",
    )

    max_incremental_fetch_session_cache_slots: int = prop(
        "max.incremental.fetch.session.cache.slots",
        INT,
        at_least(0),
        default=1000,
        doc="Fetch sessions kept at a time.",
    )
    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        at_least(1024),
        default=55 << 20,
        doc="Bytes in the answer to one fetch request, whoever asks.",
    )
    fetch_purgatory_purge_interval_requests: int = prop(
        "fetch.purgatory.purge.interval.requests",
        INT,
        default=1000,
        inert=True,
        doc="Finished fetch requests that may pile up in the purgatory before they are swept out.",
    )
    producer_purgatory_purge_interval_requests: int = prop(
        "producer.purgatory.purge.interval.requests",
        INT,
        default=1000,
        inert=True,
        doc="Finished produce requests that may pile up in the purgatory before they are swept out.",
    )
    delete_records_purgatory_purge_interval_requests: int = prop(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        default=1,
        inert=True,
        doc="Finished requests to delete records that may pile up in the purgatory before they are swept out.",
    )
