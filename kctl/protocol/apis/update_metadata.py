"""UpdateMetadata (key 6, versions 0-7): the controller tells a broker what Metadata requests are answered from.

0: brokers have one host and port.  1: endpoints by security protocol.  2: racks.  3: listener names.  4: offline
replicas.  5: grouped by topic; broker epochs (KIP-380).  6: flexible.  7: topic ids (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kctl.limits import CONTROL_REQUEST_COST_MAX
from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class UpdateMetadataPartitionState:
    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+", default=[], ignorable=True)


@struct
class UpdateMetadataTopicState:
    topic_name: str = string()
    topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)


@struct
class UpdateMetadataEndpoint:
    port: int = int32()
    host: str = string()
    # Before 3 a listener has the name of its security protocol.
    listener: str = string("3+", default="", ignorable=True)
    security_protocol: int = int16()


@struct
class UpdateMetadataBroker:
    id: int = int32()
    # The only endpoint in version 0, which cannot say more.
    v0_host: str = string("0", default="", ignorable=True)
    v0_port: int = int32("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", default=[], ignorable=True)
    rack: str | None = string("2+", nullable="2+", default=None, ignorable=True)


@request(key=6, versions="0-7", flexible="6+", cost_max=CONTROL_REQUEST_COST_MAX)
class UpdateMetadataRequest:
    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4", default=[]
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+", default=[])
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


@response(key=6, versions="0-7", flexible="6+")
class UpdateMetadataResponse:
    error_code: int = int16()
