"""Bounds on what a peer can make the broker or a command allocate, compute or write.

Every bound is declared once, here: as a constant by `_limit`, or, if a Kafka property sets the value, as a row by
`_configured`.  Both add a row to LIMITS, from which `./dev docs` writes the table in docs/security.md.  A bound is
checked before the work that it limits, or while a request is decoded.
"""

from __future__ import annotations

from typing import NamedTuple


class Limit(NamedTuple):
    """One row of the table."""

    what: str
    """What is bounded, with the scope: "tagged fields in one request"."""
    value: int | str
    """The bound, or the name of the Kafka property that sets it."""
    unit: str
    """Unit of the bound: "bytes", "fields", "ms"; for a property, its default with the unit."""
    on_excess: str
    """The effect on the peer and its connection."""


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
_configured(
    "connections.max.idle.ms",
    "time without a byte from or to a client, including clients that do not read their responses",
    "10 minutes",
    on_excess="the connection is closed",
)
READ_AHEAD_BYTES_MAX = _limit(
    "bytes received from one connection while its request is handled",
    1 << 16,
    "bytes",
    on_excess="nothing more is read from the connection until the response has been sent",
)
RETAINED_BUFFER_BYTES_MAX = _limit(
    "unused receive buffers that the broker keeps for reuse",
    16 << 20,
    "bytes",
    on_excess="buffers are returned to the system",
)
MAPPED_BUFFERS_MAX = _limit(
    "receive buffers that are memory maps, of which the system allows a process about 65,000",
    8_192,
    "buffers",
    on_excess="further buffers come from the heap",
)
TURN_REQUESTS_MAX = _limit(
    "pipelined requests of one connection that are handled in a row",
    256,
    "requests",
    on_excess="the other connections get their turn first",
)
TURN_REQUEST_BYTES_MAX = _limit(
    "bytes of requests of one connection that are handled in a row, after the first",
    1 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
TURN_RESPONSE_BYTES_MAX = _limit(
    "bytes of responses of one connection that are made in a row, after the first",
    1 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
TURN_MS_MAX = _limit(
    "time for requests of one connection in a row, after the first",
    2,
    "ms",
    on_excess="the other connections get their turn first",
)
LOOP_SLICE_MS_MAX = _limit(
    "time for connections in one iteration of the event loop",
    10,
    "ms",
    on_excess="timers and other sockets are served first",
)
DELAYED_TRIED_MAX = _limit(
    "waiting requests that one change to a partition completes in a row",
    100,
    "requests",
    on_excess="the other connections get their turn first",
)
FLUSH_BYTES_MAX = _limit(
    "bytes sent to one connection in a row",
    8 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
LISTEN_BACKLOG = _limit(
    "connections that the system has accepted and the broker has not (listen backlog)",
    1_024,
    "connections",
    on_excess="the system delays further connections",
)
RESERVED_DESCRIPTORS = _limit(
    "file descriptors reserved for log files and checkpoints (at most a quarter of the process's limit)",
    2_048,
    "descriptors",
    on_excess="new connections are closed and logged",
)

# Files given to commands.

NAMED_FILE_BYTES_MAX = _limit(
    "size of a file that a command reads as a whole",
    64 << 20,
    "bytes",
    on_excess="the command fails; logs and indexes of any size are read in pieces",
)

PROBLEM_TEXT_MAX = _limit(
    "description of one damaged position in the output of dump-log",
    300,
    "characters",
    on_excess="the text is truncated and ends in three dots",
)

# Groups and transactions.

MEMBER_ID_PREFIX_BYTES_MAX = _limit(
    "client id or group.instance.id in a generated member id",
    32_767 - 37,
    "bytes",
    on_excess="truncated, so that the member id fits into a string of the protocol",
)

# Records.

_MIB = 1 << 20

DECOMPRESSED_BATCH_BYTES_MAX = _limit(
    "decompressed size of one record batch that the broker reads",
    128 * _MIB,
    "bytes",
    on_excess="MESSAGE_TOO_LARGE for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""Kafka has no bound.  Most clients limit a batch before compression, to 1 MB by default, and a request of more than
100 MiB is refused, so only a compressed batch can be larger.  Batches that the broker does not have to read are not
affected.  The Java client splits a batch that is refused with MESSAGE_TOO_LARGE."""

DECOMPRESSION_RATIO_MAX = _limit(
    "decompressed size of one record batch in relation to its compressed size, above 16 MiB",
    1000,
    "times",
    on_excess="as for the decompressed size",
)
"""The most repetitive logs reach several hundred.  Deflate ends at 1032; zstd reaches 30,000 with zeros."""

DECOMPRESSION_RATIO_FREE_BYTES = 16 * _MIB
"""Below this size every ratio is accepted, so that a large record of zeros, as in many tests, passes."""

RECORDS_PER_BATCH_MAX = _limit(
    "records in one record batch",
    1_000_000,
    "records",
    on_excess="MESSAGE_TOO_LARGE for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""The largest batch.num.messages that librdkafka accepts.  1 MB, the default max.message.bytes, holds 150,000 of the
smallest uncompressed records."""

GZIP_MEMBERS_MAX = _limit(
    "gzip members in one record batch",
    1000,
    "members",
    on_excess="INVALID_RECORD for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""Producers write one member."""

RECORD_WORK_BYTES_MAX = _limit(
    "decompressed records in memory, over all requests in flight",
    256 * _MIB,
    "bytes",
    on_excess="the request waits until others have finished",
)
"""Two batches of the largest decompressed size."""

RECORD_WORK_WAITING_BYTES_MAX = _limit(
    "produced records that wait to be decompressed or converted, over all requests",
    256 * _MIB,
    "bytes",
    on_excess="REQUEST_TIMED_OUT for the partition, which producers retry",
)
"""Includes requests whose connection has closed: with acks=0 a producer may disconnect before the append."""

RECORD_WORK_THREADS = _limit(
    "threads that decompress, convert and compress records",
    2,
    "threads",
    on_excess="the request waits until others have finished",
)
"""More would compete with the event loop for the interpreter lock."""

INLINE_RECORD_BYTES_MAX = _limit(
    "decompressed records of one request that are processed on the event loop",
    64 << 10,
    "bytes",
    on_excess="the work is done in a thread",
)
"""gzip compresses them in 2 ms to 4 ms."""

INLINE_RECORDS_MAX = _limit(
    "records of one request that are read on the event loop",
    1000,
    "records",
    on_excess="the work is done in a thread",
)
"""They are read in 1 ms to 2 ms."""

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
    on_excess="the connection is closed before decoding continues",
)
CONTROL_REQUEST_COST_MAX = _limit(
    "cost of decoding one LeaderAndIsr, StopReplica or UpdateMetadata request",
    8_000_000,
    "units",
    on_excess="the connection is closed before decoding continues",
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
    "partitions of one topic, at creation and after growth",
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
    "partitions of a cluster, checked when topics are created or grow",
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
    "automatic topic creations in progress",
    100,
    "topics",
    on_excess="LEADER_NOT_AVAILABLE; the topic is created when a client retries",
)

# Configuration.  A value that grew by IncrementalAlterConfigs must still fit into the response of DescribeConfigs, and
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

# Quotas.

QUOTA_GROUPS_MAX = _limit(
    "groups of clients whose usage is kept, for each kind of quota",
    10_000,
    "groups",
    on_excess="the usage of those that have been silent longest is forgotten",
)
QUOTA_CLIENTS_MAX = _limit(
    "pairs of user and client id whose quotas are kept ready for the next request",
    20_000,
    "pairs",
    on_excess="the quotas that apply are looked up again",
)
QUOTA_NAME_CHARACTERS_MAX = _limit(
    "user or client id under which usage is kept",
    256,
    "characters",
    on_excess="a digest takes the place of the rest",
)

# Responses.

ERROR_MESSAGE_CHARACTERS_MAX = _limit(
    "error message in a response",
    1_000,
    "characters",
    on_excess="the message is truncated",
)
LOG_MESSAGE_CHARACTERS_MAX = _limit(
    "message in the broker's log, which may repeat what a client sent",
    4_000,
    "characters",
    on_excess="the message is cut",
)
SLICE_OBJECTS = _limit(
    "topics and partitions that Metadata describes without a pause",
    2_000,
    "objects",
    on_excess="other connections are served in between",
)

# Commands and clients.

RESPONSE_BYTES_MAX = _limit(
    "size of one response that a client accepts",
    256 << 20,
    "bytes",
    on_excess="the client closes the connection and reports that the peer does not speak the Kafka protocol",
)
"""Above the 50 MiB of fetch.max.bytes, and above any message.max.bytes in use."""

RESPONSE_READ_BYTES_MAX = _limit(
    "memory that a client reserves for a response before its bytes have arrived",
    1 << 20,
    "bytes",
    on_excess="the buffer grows as bytes arrive, at most to twice their size",
)

CONCURRENT_REQUESTS_MAX = _limit(
    "concurrent requests of a command",
    64,
    "requests",
    on_excess="further requests are sent when one of them is answered",
)
