"""A Kafka client of our own: for applications (docs/client.md), the commands, the exporter and connections between
brokers.

Applications import the names in `__all__` from here; they are loaded when they are used, so that importing this package
costs nothing.  Everything else in this package may change in any version.

Reading order: settings; connections/transport (the port: connections, waiting, the deadline of a command) and its two
implementations, asyncio_transport and blocking_transport; connections/framing and versions (what a connection does,
without IO); retrying; cluster (routing); leaders (requests to partition leaders and coordinators); consuming/positions
and read_history (whether the log still has what was read), consumer (one poll after the other, for commands), fetching/
(fetches in the background, for applications and groups), membership/ (both protocols of groups), groups/, sharing/
(share groups); producing/accumulator (which batches are sent when, without IO), sender (carries out its
plans) and producer (adds records, flushes, stops); then application/, the face for applications, whose blocking clients
run the asynchronous ones on a connections/loop_thread.

Everything is written as coroutines over the transport.  On the blocking transport they never suspend, so `run_blocking`
runs them without an event loop: that is what one-shot commands and Spark's workers use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.client.application.async_consumer import AsyncConsumer, WokenUp
    from kctl.client.application.async_producer import AsyncProducer
    from kctl.client.application.async_share_consumer import AsyncShareConsumer, ShareRecord
    from kctl.client.application.blocking_consumer import BlockingRebalanceListener, Consumer
    from kctl.client.application.blocking_producer import Producer
    from kctl.client.application.blocking_share_consumer import ShareConsumer
    from kctl.client.application.consumer_records import ConsumerInterceptor, ConsumerRecord, DeserializationFailed
    from kctl.client.application.settings import ConsumerConfig, ProducerConfig
    from kctl.client.application.share_settings import ShareConsumerConfig
    from kctl.client.consuming.committed_offsets import CommittedOffset
    from kctl.client.consuming.groups.metadata import CommitFailed, GroupMetadata, RebalanceListener
    from kctl.client.consuming.list_offsets import OffsetAt
    from kctl.client.consuming.membership.member import SubscriptionPattern
    from kctl.client.consuming.positions import Divergence, LogTruncated, Position
    from kctl.client.consuming.sharing.session import AcknowledgeType
    from kctl.client.metadata import TopicRecreated
    from kctl.client.producing.batches import RecordMetadata
    from kctl.client.producing.interceptors import ProducerInterceptor, ProducerRecord
    from kctl.client.producing.partitioners import (
        AdaptivePartitioner,
        Crc32Partitioner,
        DefaultPartitioner,
        Partitioner,
        RoundRobinPartitioner,
        StickyPartitioner,
    )
    from kctl.model import TopicPartition

__all__ = [
    "AcknowledgeType",
    "AdaptivePartitioner",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "BlockingRebalanceListener",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "Crc32Partitioner",
    "DefaultPartitioner",
    "DeserializationFailed",
    "Divergence",
    "GroupMetadata",
    "LogTruncated",
    "OffsetAt",
    "Partitioner",
    "Position",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "RebalanceListener",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "ShareConsumer",
    "ShareConsumerConfig",
    "ShareRecord",
    "StickyPartitioner",
    "SubscriptionPattern",
    "TopicPartition",
    "TopicRecreated",
    "WokenUp",
]

_MODULES = {
    "AcknowledgeType": "kctl.client.consuming.sharing.session",
    "AdaptivePartitioner": "kctl.client.producing.partitioners",
    "AsyncConsumer": "kctl.client.application.async_consumer",
    "AsyncProducer": "kctl.client.application.async_producer",
    "AsyncShareConsumer": "kctl.client.application.async_share_consumer",
    "BlockingRebalanceListener": "kctl.client.application.blocking_consumer",
    "CommitFailed": "kctl.client.consuming.groups.metadata",
    "CommittedOffset": "kctl.client.consuming.committed_offsets",
    "Consumer": "kctl.client.application.blocking_consumer",
    "ConsumerConfig": "kctl.client.application.settings",
    "ConsumerInterceptor": "kctl.client.application.consumer_records",
    "ConsumerRecord": "kctl.client.application.consumer_records",
    "Crc32Partitioner": "kctl.client.producing.partitioners",
    "DefaultPartitioner": "kctl.client.producing.partitioners",
    "DeserializationFailed": "kctl.client.application.consumer_records",
    "Divergence": "kctl.client.consuming.positions",
    "GroupMetadata": "kctl.client.consuming.groups.metadata",
    "LogTruncated": "kctl.client.consuming.positions",
    "OffsetAt": "kctl.client.consuming.list_offsets",
    "Partitioner": "kctl.client.producing.partitioners",
    "Position": "kctl.client.consuming.positions",
    "Producer": "kctl.client.application.blocking_producer",
    "ProducerConfig": "kctl.client.application.settings",
    "ProducerInterceptor": "kctl.client.producing.interceptors",
    "ProducerRecord": "kctl.client.producing.interceptors",
    "RebalanceListener": "kctl.client.consuming.groups.metadata",
    "RecordMetadata": "kctl.client.producing.batches",
    "RoundRobinPartitioner": "kctl.client.producing.partitioners",
    "ShareConsumer": "kctl.client.application.blocking_share_consumer",
    "ShareConsumerConfig": "kctl.client.application.share_settings",
    "ShareRecord": "kctl.client.application.async_share_consumer",
    "StickyPartitioner": "kctl.client.producing.partitioners",
    "SubscriptionPattern": "kctl.client.consuming.membership.member",
    "TopicPartition": "kctl.model",
    "TopicRecreated": "kctl.client.metadata",
    "WokenUp": "kctl.client.application.async_consumer",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only applications need it

    return getattr(import_module(_MODULES[name]), name)
