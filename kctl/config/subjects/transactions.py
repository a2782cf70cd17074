"""Transactional ids, their timeouts, and the topic with their state."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, prop
from kctl.config.kinds import BOOLEAN, INT, SHORT


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionProperties:
    """Transactional ids and their state topic."""

    __slots__ = ()

    transactional_id_expiration_ms: int = prop(
        "transactional.id.expiration.ms",
        INT,
        at_least(1),
        default=604800000,
        importance=Importance.HIGH,
        doc="Idle time after which a transactional id is forgotten.",
    )
    transaction_partition_verification_enable: bool = prop(
        "transaction.partition.verification.enable",
        BOOLEAN,
        default=True,
        doc="Verify with the transaction coordinator that a partition is in the transaction of the first records of "
        "clients that add partitions themselves, while transaction.version is 2 (KIP-890).",
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms",
        INT,
        at_least(1),
        default=86_400_000,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        doc="Idle time after which a partition forgets the sequence numbers of a producer without an open transaction "
        "(KIP-854). It should be longer than delivery.timeout.ms of the producers: a batch that is repeated later is "
        "not recognised. Apache Kafka before 3.4 uses transactional.id.expiration.ms.",
    )
    producer_id_expiration_check_interval_ms: int = prop(
        "producer.id.expiration.check.interval.ms",
        INT,
        at_least(1),
        default=600_000,
        importance=Importance.LOW,
        doc="How often idle producers are looked for.",
    )
    transaction_max_timeout_ms: int = prop(
        "transaction.max.timeout.ms",
        INT,
        at_least(1),
        default=900000,
        importance=Importance.HIGH,
        doc="Maximum transaction.timeout.ms of a producer.",
    )
    transaction_state_log_min_isr: int = prop(
        "transaction.state.log.min.isr",
        INT,
        at_least(1),
        default=2,
        importance=Importance.HIGH,
        doc="min.insync.replicas of __transaction_state.",
    )
    transaction_state_log_load_buffer_size: int = prop(
        "transaction.state.log.load.buffer.size",
        INT,
        at_least(1),
        default=5 << 20,
        importance=Importance.HIGH,
        doc="Bytes read at a time while a coordinator loads a partition of __transaction_state.",
    )
    transaction_state_log_replication_factor: int = prop(
        "transaction.state.log.replication.factor",
        SHORT,
        at_least(1),
        default=3,
        importance=Importance.HIGH,
        doc="Replication factor of __transaction_state.",
    )
    transaction_state_log_num_partitions: int = prop(
        "transaction.state.log.num.partitions",
        INT,
        at_least(1),
        default=50,
        importance=Importance.HIGH,
        doc="Partitions of __transaction_state; must not change after its creation.",
    )
    transaction_state_log_segment_bytes: int = prop(
        "transaction.state.log.segment.bytes",
        INT,
        at_least(1),
        default=100 << 20,
        importance=Importance.HIGH,
        doc="Segment size of __transaction_state.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = prop(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        at_least(1),
        default=10000,
        importance=Importance.LOW,
        doc="Interval of the checks for timed-out transactions.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = prop(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        at_least(1),
        default=3600000,
        importance=Importance.LOW,
        doc="Interval of the checks for expired transactional ids.",
    )
