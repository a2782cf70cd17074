"""Bounds on what a peer can make the broker or a command allocate, compute or write.

Every bound is declared here, once: as a constant by `_limit`, or, where a Kafka property sets the value, as a row by
`_configured`.  Both add a row to LIMITS, from which `./dev docs` writes the table in docs/security.md.  A bound is
checked before the work that it limits, or while a request is decoded, never afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of the table."""

    what: str
    """What is bounded, with the scope: "tagged fields in one request"."""
    value: int | str
    """The bound, or the name of the Kafka property that sets it."""
    unit: str
    """Unit of the bound: "bytes", "fields", "ms"; for a property, its default with the unit."""
    on_excess: str
    """What the peer sees and what happens to its connection."""


LIMITS: list[Limit] = []
"""All bounds, in the order of declaration."""


def _limit(what: str, value: int, unit: str, *, on_excess: str) -> int:
    LIMITS.append(Limit(what, value, unit, on_excess))
    return value


def _configured(property_name: str, what: str, default: str, *, on_excess: str) -> None:
    LIMITS.append(Limit(what, property_name, default, on_excess))


# Requests to the broker.

_configured(
    "socket.request.max.bytes",
    "size of one request frame",
    "100 MiB",
    on_excess="the connection is closed before the frame is read",
)

# Decoding of requests.  Time and memory grow with the objects decoded, not with the bytes: an empty struct takes 1 byte
# of a frame, 100 bytes of memory and 0.5 us.  So decoding has a cost: 1 for a number in a struct and 4 for
# one in an array; 8 for a struct, a string, an array or a UUID; 1 for 64 bytes of a long string or 256 bytes of opaque
# data.  A cost of 1 is about 0.05 us.
#
# Clients name partitions: the longest requests that clients of clusters with 10,000 partitions send (a full fetch, a
# commit, a reassignment of all of them) cost about 200,000.  Controllers describe partitions with their replicas:
# LeaderAndIsr and UpdateMetadata cost about 70 for each, and Kafka with ZooKeeper has at most 200,000 in a cluster.

REQUEST_COST_MAX = _limit(
    "cost of decoding one request (1 for a number, 8 for a string, an array or a struct)",
    320_000,
    "units",
    on_excess="the connection is closed before more is decoded",
)
CONTROL_REQUEST_COST_MAX = _limit(
    "cost of decoding one LeaderAndIsr, StopReplica or UpdateMetadata request",
    8_000_000,
    "units",
    on_excess="the connection is closed before more is decoded",
)
TAGGED_FIELDS_MAX = _limit(
    "tagged fields in the header of a request, and in its body",
    1_000,
    "fields",
    on_excess="the connection is closed before they are read",
)

# Partitions.  Each is a directory with four files and three descriptors on each of its brokers, and is created on the
# event loop, about 1 ms each; the znode of a topic with 10,000 partitions of ten replicas is near ZooKeeper's 1 MB.
# 200,000 partitions are what Apache Kafka supports in a cluster with ZooKeeper.

PARTITIONS_PER_TOPIC_MAX = _limit(
    "partitions of one topic, however it is created or grows",
    10_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topic",
)
PARTITIONS_CREATED_PER_REQUEST_MAX = _limit(
    "partitions created by one CreateTopics or CreatePartitions request",
    10_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topics beyond it",
)
PARTITIONS_PER_CLUSTER_MAX = _limit(
    "partitions of a cluster, when topics are created or grow",
    200_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topics beyond it",
)
REPLICAS_PER_TOPIC_MAX = _limit(
    "replicas in the assignment of one topic",
    100_000,
    "replicas",
    on_excess="INVALID_REPLICA_ASSIGNMENT for the topic",
)
AUTO_CREATIONS_MAX = _limit(
    "topics that are being created because clients asked for them",
    100,
    "topics",
    on_excess="LEADER_NOT_AVAILABLE; the topic is created when a client asks again",
)

# Configuration.  A value that grew by IncrementalAlterConfigs must still fit into the answer of DescribeConfigs, and
# all overrides of a resource into its znode.

CONFIG_VALUE_BYTES_MAX = _limit(
    "value of one configuration property",
    32_767,
    "bytes",
    on_excess="INVALID_CONFIG for the resource",
)
CONFIG_BYTES_MAX = _limit(
    "all overrides of one topic or broker",
    500_000,
    "bytes",
    on_excess="INVALID_CONFIG for the resource",
)

# Answers.

ERROR_MESSAGE_CHARACTERS_MAX = _limit(
    "error message in a response",
    1_000,
    "characters",
    on_excess="the message is cut",
)
SLICE_OBJECTS = _limit(
    "topics and partitions that Metadata describes at a stretch",
    2_000,
    "objects",
    on_excess="other connections are served in between",
)
