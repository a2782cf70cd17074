"""A Kafka client of our own: for applications (docs/client.md), the commands, the exporter and connections between
brokers.

Applications import the names in `__all__` from here; they are loaded when they are used, so that importing this package
costs nothing.  Everything else in this package may change in any version.

Reading order: settings; connections/transport (the port: connections, waiting, the deadline of a command) and its two
implementations, asyncio_transport and blocking_transport; connections/framing and versions (what a connection does,
without IO); retrying; cluster (routing); leaders (requests to partition leaders and coordinators); consuming/fetching,
positions and read_history (whether the log still has what was read), consumer (one poll after the other, for
commands), fetcher and fetch_runner (fetches in the background, for applications and groups), membership/,
group_consumer; producing/accumulator (which batches are sent when, without IO) and producer; then application/, the
face for applications, whose blocking clients run the asynchronous ones on a connections/loop_thread.

Everything is written as coroutines over the transport.  On the blocking transport they never suspend, so `run_blocking`
runs them without an event loop: that is what one-shot commands and Spark's workers use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.client.application.async_consumer import AsyncConsumer, WokenUp
    from kctl.client.application.async_producer import AsyncProducer
    from kctl.client.application.blocking_consumer import BlockingRebalanceListener, Consumer
    from kctl.client.application.blocking_producer import Producer
    from kctl.client.application.consumer_records import ConsumerInterceptor, ConsumerRecord
    from kctl.client.application.settings import ConsumerConfig, ProducerConfig
    from kctl.client.consuming.committed_offsets import CommittedOffset
    from kctl.client.consuming.group_metadata import CommitFailed, GroupMetadata, RebalanceListener
    from kctl.client.consuming.list_offsets import OffsetAt
    from kctl.client.consuming.positions import Divergence, LogTruncated, Position
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
    "AdaptivePartitioner",
    "AsyncConsumer",
    "AsyncProducer",
    "BlockingRebalanceListener",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "Crc32Partitioner",
    "DefaultPartitioner",
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
    "StickyPartitioner",
    "TopicPartition",
    "TopicRecreated",
    "WokenUp",
]

_MODULES = {
    "AdaptivePartitioner": "kctl.client.producing.partitioners",
    "AsyncConsumer": "kctl.client.application.async_consumer",
    "AsyncProducer": "kctl.client.application.async_producer",
    "BlockingRebalanceListener": "kctl.client.application.blocking_consumer",
    "CommitFailed": "kctl.client.consuming.group_metadata",
    "CommittedOffset": "kctl.client.consuming.committed_offsets",
    "Consumer": "kctl.client.application.blocking_consumer",
    "ConsumerConfig": "kctl.client.application.settings",
    "ConsumerInterceptor": "kctl.client.application.consumer_records",
    "ConsumerRecord": "kctl.client.application.consumer_records",
    "Crc32Partitioner": "kctl.client.producing.partitioners",
    "DefaultPartitioner": "kctl.client.producing.partitioners",
    "Divergence": "kctl.client.consuming.positions",
    "GroupMetadata": "kctl.client.consuming.group_metadata",
    "LogTruncated": "kctl.client.consuming.positions",
    "OffsetAt": "kctl.client.consuming.list_offsets",
    "Partitioner": "kctl.client.producing.partitioners",
    "Position": "kctl.client.consuming.positions",
    "Producer": "kctl.client.application.blocking_producer",
    "ProducerConfig": "kctl.client.application.settings",
    "ProducerInterceptor": "kctl.client.producing.interceptors",
    "ProducerRecord": "kctl.client.producing.interceptors",
    "RebalanceListener": "kctl.client.consuming.group_metadata",
    "RecordMetadata": "kctl.client.producing.batches",
    "RoundRobinPartitioner": "kctl.client.producing.partitioners",
    "StickyPartitioner": "kctl.client.producing.partitioners",
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
