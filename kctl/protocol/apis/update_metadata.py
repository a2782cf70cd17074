"""UpdateMetadata (key 6, versions 0-7): the controller sends a broker the metadata that it returns to clients.

0: one host and port per broker.  1: endpoints by security protocol (KIP-2).  2: racks (KIP-36).  3: listener names
(KIP-103).  4: offline replicas (KIP-112).  5: grouped by topic; broker epochs (KIP-380).  6: flexible.  7: topic ids
(KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class UpdateMetadataPartitionState:
    """The state of one partition."""

    topic_name: str = string("0-4", default="", ignorable=True, is_topic=True)
    """In the grouped versions it is in the topic."""
    partition_index: int = int32(is_partition=True)
    controller_epoch: int = int32()
    """Epoch of the controller that last wrote the state."""
    leader: int = int32()
    """-1 without a leader, -2 while the topic is being deleted."""
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    """Version of the state's znode."""
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+", default=[], ignorable=True)
    """Replicas on dead brokers or in offline log directories."""


@struct
class UpdateMetadataTopicState:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)


@struct
class UpdateMetadataEndpoint:
    """An endpoint of a broker."""

    port: int = int32()
    host: str = string()
    listener: str = string("3+", default="", ignorable=True)
    """Before version 3 the listener is named like its security protocol."""
    security_protocol: int = int16()
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


@struct
class UpdateMetadataBroker:
    """A live broker."""

    id: int = int32()
    v0_host: str = string("0", default="", ignorable=True)
    """The only endpoint of the broker, a PLAINTEXT one, in version 0."""
    v0_port: int = int32("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", default=[], ignorable=True)
    rack: str | None = string("2+", nullable="2+", default=None, ignorable=True)


@request(key=6, versions="0-7", flexible="6+", cost_max=CONTROL_REQUEST_COST_MAX)
class UpdateMetadataRequest:
    """Sent by the active controller."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    """Incremented by each election of a controller; a lower one than the last is refused."""
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    """The zxid of the registration of the receiver (KIP-380); -1 is not checked."""
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4", default=[]
    )
    """All partitions in one list; later versions group them by topic."""
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+", default=[])
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)
    """All live brokers; replaces the broker's list."""


@response(key=6, versions="0-7", flexible="6+")
class UpdateMetadataResponse:
    """The result."""

    error_code: int = int16()
