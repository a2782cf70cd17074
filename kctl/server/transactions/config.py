"""The broker properties of the transaction coordinator, as one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is the Kafka property given beside it."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    abort_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionConfig:
        """The settings in the broker's configuration."""
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
