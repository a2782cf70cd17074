"""ControlledShutdown (key 7, versions 0-3): a broker requests that the controller moves leadership away from it.

The only request whose header in version 0 has no client id.  2: broker epoch (KIP-380).  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@request(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    """Sent to the active controller by a broker that is about to stop; repeated until no partition remains."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    """The zxid of the registration of the sender (KIP-380); -1 is not checked."""


@struct
class RemainingPartition:
    """A partition that the broker still leads."""

    topic_name: str = string(is_topic=True)
    partition_index: int = int32(is_partition=True)


@response(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The result of one attempt."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
    """Partitions without another in-sync replica; empty when the broker may stop."""
