"""WriteTxnMarkers (key 27, versions 0-2): writes commit or abort markers of transactions to partitions (KIP-98).

1: flexible.  2: the version of the transaction (KIP-1228).
"""

from __future__ import annotations

from kctl.protocol.message import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    partition_number,
    request,
    response,
    string,
    struct,
)


@struct
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partition_indexes: list[int] = array(partition_number)


@struct
class WritableTxnMarker:
    """A marker and the partitions that it is written to."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True for commit, False for abort."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    """Leader epoch of the coordinator's partition of __transaction_state; fences former coordinators."""
    transaction_version: int = int8("2+", default=0, ignorable=True)
    """2 if the producer gets a new epoch with each end (KIP-890): the marker has the raised epoch."""


@request(key=27, versions="0-2", flexible="1+", sent="0-1")
class WriteTxnMarkersRequest:
    """Sent by a transaction coordinator to the leaders of the partitions."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    """The results for one topic."""

    name: str = string(is_topic=True)
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    """The results for one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@response(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    """The result for each marker and partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
