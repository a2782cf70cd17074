"""Bounds on what a peer can make the broker or a command allocate, compute or write.

A bound is declared once, by `bound`, in the module that checks it, or here if several modules do; if a Kafka property
sets its value, by `configured`.  `./dev docs` writes a table of all for each subject into docs/reference.  A
bound is checked before the work that it limits, or while a request is decoded.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Subject(Enum):
    """What a bound is about; the value is the title of its table."""

    CONNECTIONS = "Connections and requests"
    NAMED_FILES = "Files and names given to commands"
    COORDINATION = "Groups and transactions"
    FETCH_SESSIONS = "Fetch sessions"
    EMBEDDED_ZOOKEEPER = "The embedded ZooKeeper server"
    RECORDS = "Records"
    DECODING = "Decoding of requests"
    PARTITIONS = "Partitions"
    CONFIGURATION = "Configuration"
    ACLS = "Access control lists"
    QUOTAS = "Quotas"
    AUTHENTICATION = "Authentication"
    LONG_WORK = "Responses, log lines and long work"
    METRICS_ENDPOINT = "The HTTP endpoint for metrics"
    COMMANDS = "Commands and clients"
    REPORTS = "Reports about a broker"
    EXPORTS = "Exports"
    TESTS = "Brokers of tests"
    SCHEMA_REGISTRY = "The schema registry"


class Limit(NamedTuple):
    """One row of the table."""

    what: str
    """The bounded quantity, with its scope: "tagged fields in one request"."""
    value: int | str
    """The bound, or the name of the Kafka property that sets it."""
    unit: str
    """Unit of the bound: "bytes", "fields", "ms"; for a property, its default with the unit."""
    on_excess: str
    """The effect on the peer and its connection."""


LIMITS: dict[Subject, list[Limit]] = {subject: [] for subject in Subject}
"""The bounds of all modules that have been imported."""


def bound(subject: Subject, what: str, value: int, unit: str, *, on_excess: str) -> int:
    """Declare a bound and return its value."""
    LIMITS[subject].append(Limit(what, value, unit, on_excess))
    return value


def configured(subject: Subject, property_name: str, what: str, default: str, *, on_excess: str) -> None:
    """Declare a bound that a property sets."""
    LIMITS[subject].append(Limit(what, property_name, default, on_excess))


configured(
    Subject.CONNECTIONS,
    "socket.request.max.bytes",
    "size of one request frame",
    "100 MiB",
    on_excess="the connection is closed before the frame is read",
)
configured(
    Subject.CONNECTIONS,
    "connections.max.idle.ms",
    "time without a byte from or to a client, including clients that do not read their responses",
    "10 minutes",
    on_excess="the connection is closed",
)
LONE_FRAME_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "size, with its length, of a request that is received into the buffer that all connections share",
    1 << 14,
    "bytes",
    on_excess="the connection gets a buffer of its own",
)
TURN_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time for requests of one connection in a row, after the first",
    2,
    "ms",
    on_excess="the other connections get their turn first",
)
READ_PER_SLICE_MAX = bound(
    Subject.CONNECTIONS,
    "partitions of one Fetch or ListOffsets request that are read without a pause",
    250,
    "partitions",
    on_excess="other connections are served in between; one iteration of the event loop does one slice of such work",
)
"""Fetch and the search by timestamp take 5 us to 20 us for each."""

LISTEN_BACKLOG = bound(
    Subject.CONNECTIONS,
    "connections that the system has accepted and the broker has not (listen backlog)",
    1_024,
    "connections",
    on_excess="the system delays further connections",
)
configured(
    Subject.CONNECTIONS,
    "queued.max.request.bytes",
    "requests that are received or handled, in memory, over all connections; as much again for the control plane",
    "no limit",
    on_excess="the broker stops reading from connections that begin a request; the last one admitted may exceed it",
)
configured(
    Subject.CONNECTIONS,
    "max.connections",
    "connections of the broker; listener.name.NAME.max.connections: of one listener",
    "no limit",
    on_excess="nothing more is accepted; the inter-broker listener closes an idle connection of another listener",
)
configured(
    Subject.CONNECTIONS,
    "max.connections.per.ip",
    "connections from one address",
    "no limit",
    on_excess="the connection is closed",
)
configured(
    Subject.CONNECTIONS,
    "max.connection.creation.rate",
    "new connections per second of the broker; listener.name.NAME.max.connection.creation.rate: of one listener",
    "no limit",
    on_excess="nothing is accepted for a time",
)

configured(
    Subject.COORDINATION,
    "group.max.size",
    "members of one group",
    "2,147,483,647, that is, the bound below",
    on_excess="GROUP_MAX_SIZE_REACHED",
)
GROUP_MEMBERS_PER_STEP_MAX = bound(
    Subject.COORDINATION,
    "members of one group that are handled in a row at the end of each phase of a rebalance",
    200,
    "members",
    on_excess="other connections are served in between; requests for the group wait",
)

configured(
    Subject.COORDINATION,
    "offset.metadata.max.bytes",
    "metadata of one committed offset",
    "4,096 bytes",
    on_excess="OFFSET_METADATA_TOO_LARGE for the partition",
)
configured(
    Subject.COORDINATION,
    "offsets.retention.minutes",
    "time for which the offsets of a group without members are kept",
    "7 days",
    on_excess="the offsets expire, and the group with them",
)
configured(
    Subject.COORDINATION,
    "transactional.id.expiration.ms",
    "time for which an unused transactional id is kept",
    "7 days",
    on_excess="the state is removed",
)
configured(
    Subject.COORDINATION,
    "producer.id.expiration.ms",
    "time for which a partition keeps the sequence numbers of an idle producer without an open transaction",
    "1 day",
    on_excess="the state is removed; the producer may continue with any sequence number",
)
PRODUCERS_MAX = bound(
    Subject.COORDINATION,
    "producer ids whose sequence numbers a broker keeps, counted in each partition (0.5 KB each); checked every 10 s",
    1_000_000,
    "producers",
    on_excess="those without an open transaction that have been idle the longest, at least 15 minutes, are forgotten "
    "earlier; if that is not enough, batches of further producers get THROTTLING_QUOTA_EXCEEDED, which clients retry, "
    "and none that is in use is forgotten",
)
PRODUCERS_PER_PARTITION_MAX = bound(
    Subject.COORDINATION,
    "producer ids whose sequence numbers one partition keeps",
    100_000,
    "producers",
    on_excess="the producer without an open transaction that wrote least recently is forgotten, as if it had expired",
)

configured(
    Subject.FETCH_SESSIONS,
    "max.incremental.fetch.session.cache.slots",
    "fetch sessions",
    "1,000",
    on_excess="unused sessions are evicted; else the response has no session",
)

ZOOKEEPER_PATHS_PER_STEP = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "ephemeral znodes of a session, watches of a connection or containers that the embedded ZooKeeper server removes, "
    "watches that it sets, and events about changes of one request or session that it sends, without a pause",
    500,
    "paths or events",
    on_excess="other connections are served in between",
)
ZOOKEEPER_NAMES_PER_STEP = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "children that the embedded ZooKeeper server encodes without a pause",
    4_000,
    "names",
    on_excess="other connections are served in between",
)

_MIB = 1 << 20

DECOMPRESSED_BATCH_BYTES_MAX = bound(
    Subject.RECORDS,
    "decompressed size of one record batch that the broker reads",
    128 * _MIB,
    "bytes",
    on_excess="MESSAGE_TOO_LARGE for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""Kafka has no bound.  Most clients limit a batch before compression, to 1 MB by default, and a request of more than
100 MiB is refused, so only a compressed batch can be larger.  Batches that the broker does not have to read are not
affected.  The Java client splits a batch that is refused with MESSAGE_TOO_LARGE."""

DECOMPRESSION_RATIO_FREE_BYTES = 16 * _MIB
"""Below this size every ratio is accepted, so that a large record of zeros, as in many tests, passes."""

RECORDS_PER_BATCH_MAX = bound(
    Subject.RECORDS,
    "records in one record batch",
    1_000_000,
    "records",
    on_excess="MESSAGE_TOO_LARGE for the partition of a Produce request, CORRUPT_MESSAGE for a stored batch",
)
"""The largest batch.num.messages that librdkafka accepts.  1 MB, the default max.message.bytes, holds 150,000 of the
smallest uncompressed records."""

RECORD_WORK_BYTES_MAX = bound(
    Subject.RECORDS,
    "decompressed records in memory, over all requests in flight",
    256 * _MIB,
    "bytes",
    on_excess="the request waits until others have finished",
)
"""Two batches of the largest decompressed size."""

RECORD_WORK_WAITING_BYTES_MAX = bound(
    Subject.RECORDS,
    "produced records that wait to be checked, decompressed or converted in a thread, over all requests; also the size "
    "of one record batch",
    256 * _MIB,
    "bytes",
    on_excess="REQUEST_TIMED_OUT for the partition, which producers retry; MESSAGE_TOO_LARGE for a larger batch",
)
"""Includes requests whose connection has closed: with acks=0 a producer may disconnect before the append."""

APPENDED_INLINE_BYTES_MAX = bound(
    Subject.RECORDS,
    "batches of one partition in a Produce request, or fetched by a follower, that are checked and written on the "
    "event loop",
    4 << 20,
    "bytes",
    on_excess="both are done in a thread, in pieces; the batches begin a segment",
)
"""Takes up to 8 ms."""

# Time and memory grow with the objects decoded, not with the bytes: an empty struct takes 1 byte of a frame, 100 bytes
# of memory and 0.5 us.  So decoding has a cost: 1 for a number in a struct and 4 for one in an array; 8 for a struct, a
# string, an array or a UUID; 1 for 64 bytes of a long string or 256 bytes of opaque data.  A cost of 1 is about 50 ns.
#
# Clients name partitions: the longest requests that clients of clusters with 10,000 partitions send (a full fetch, a
# commit, a reassignment of all of them) cost about 200,000.  Controllers describe partitions with their replicas:
# LeaderAndIsr and UpdateMetadata cost about 70 for each, and Kafka with ZooKeeper has at most 200,000 in a cluster.

REQUEST_COST_MAX = bound(
    Subject.DECODING,
    "cost of decoding one request (1 for a number, 8 for a string, an array or a struct)",
    320_000,
    "units",
    on_excess="the connection is closed before decoding continues",
)
CONTROL_REQUEST_COST_MAX = bound(
    Subject.DECODING,
    "cost of decoding one LeaderAndIsr, StopReplica or UpdateMetadata request",
    8_000_000,
    "units",
    on_excess="the connection is closed before decoding continues",
)

TAGGED_FIELDS_MAX = bound(
    Subject.DECODING,
    "tagged fields in the header of a request, and in its body",
    1_000,
    "fields",
    on_excess="the connection is closed before they are read",
)

# Each is a directory with four files and three descriptors on each of its brokers, and is created in about 1 ms; the
# znode of a topic with 10,000 partitions of ten replicas is near ZooKeeper's 1 MB.  200,000 partitions are what Apache
# Kafka supports in a cluster with ZooKeeper.

PARTITIONS_PER_TOPIC_MAX = bound(
    Subject.PARTITIONS,
    "partitions of one topic, at creation and after growth",
    10_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topic; a znode with more is ignored and logged",
)

# A value that grew by IncrementalAlterConfigs must still fit into the response of DescribeConfigs, and
# all overrides of a resource into its znode.

CONFIG_PROPERTIES_MAX = bound(
    Subject.CONFIGURATION,
    "overrides of one topic or broker",
    1_000,
    "properties",
    on_excess="INVALID_CONFIG for the resource; a znode with more is ignored, and the former values stay in use",
)
"""Kafka has no bound.  A broker accepts names that it does not know, and reads all of them at each change: 50,000 held
the event loop for 0.6 s."""

# All ACLs of a resource pattern are in one znode, for which ZooKeeper accepts one MiB.

ACL_ZNODE_BYTES_MAX = bound(
    Subject.ACLS,
    "all ACLs of one resource pattern, as JSON",
    1_000_000,
    "bytes",
    on_excess="INVALID_REQUEST; if another program has stored them, operations on the resource are denied",
)
ACL_CHANGES_MAX = bound(
    Subject.ACLS,
    "ACLs or filters in one CreateAcls or DeleteAcls request",
    10_000,
    "ACLs",
    on_excess="INVALID_REQUEST for all of them",
)

QUOTA_NAME_CHARACTERS_MAX = bound(
    Subject.QUOTAS,
    "user or client id under which usage is kept",
    256,
    "characters",
    on_excess="a digest takes the place of the rest",
)

configured(
    Subject.AUTHENTICATION,
    "sasl.server.max.receive.size",
    "size of one request frame or token before and during authentication on a SASL listener",
    "512 KiB",
    on_excess="the connection is closed before the frame is read",
)
SCRAM_ITERATIONS_MAX = bound(
    Subject.AUTHENTICATION,
    "iterations of a SCRAM credential that clients and the broker accept",
    1_000_000,
    "iterations",
    on_excess="the authentication fails before the password is hashed",
)
"""So many iterations take a client 0.3 s to 1 s.  Apache Kafka creates credentials with at most 16,384."""

SCRAM_SALT_BYTES_MAX = bound(
    Subject.AUTHENTICATION,
    "salt of a SCRAM credential",
    1_024,
    "bytes",
    on_excess="the credential is refused",
)

REQUEST_ELEMENTS_PER_SLICE_MAX = bound(
    Subject.LONG_WORK,
    "topics, partitions, groups, resources or users of one request that are handled without a pause",
    500,
    "elements",
    on_excess="other connections are served in between",
)
COSTLY_ELEMENTS_PER_SLICE_MAX = bound(
    Subject.LONG_WORK,
    "topics of one request that are created, deleted, planned or described with their configuration, or groups of one "
    "that are deleted, without a pause",
    50,
    "topics or groups",
    on_excess="other connections are served in between",
)
"""Each takes 0.05 ms to 0.2 ms."""
DECODED_AT_ONCE_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "a request, other than Produce and Fetch, that is decoded on the event loop",
    16 << 10,
    "bytes",
    on_excess="it is decoded in a thread",
)
HANDLED_AT_ONCE_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "size of a Produce request whose batches are appended without a pause, unless they are many or compressed",
    4 << 20,
    "bytes",
    on_excess="it is handled in slices of half of this",
)
SLICE_OBJECTS = bound(
    Subject.LONG_WORK,
    "topics, partitions, groups or members that are described in a response, or stored from an UpdateMetadata request, "
    "without a pause (its topics are converted in parts and stored as a whole)",
    2_000,
    "objects",
    on_excess="other connections are served in between; a response with more is encoded in a thread, one at a time",
)
DESCRIBED_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "names, values, documentation, metadata and partitions in one DescribeConfigs, DescribeGroups, OffsetFetch or "
    "DescribeTransactions response",
    64 << 20,
    "bytes",
    on_excess="INVALID_REQUEST for the remaining resources, groups or transactions, or for the group whose offsets are "
    "requested",
)

METRICS_SEND_MS_MAX = bound(
    Subject.METRICS_ENDPOINT,
    "time to make and send one HTTP response",
    30_000,
    "ms",
    on_excess="the connection is closed",
)

RESPONSE_BYTES_MAX = bound(
    Subject.COMMANDS,
    "size of one response that a client accepts",
    256 << 20,
    "bytes",
    on_excess="the client closes the connection and reports that the peer does not use the Kafka protocol",
)
"""Above the 50 MiB of fetch.max.bytes, and above any message.max.bytes in use."""

OPENING_RESPONSE_BYTES_MAX = bound(
    Subject.COMMANDS,
    "size of one response that a client accepts before the connection is open and authenticated",
    1 << 20,
    "bytes",
    on_excess="the client closes the connection and reports that the peer does not use the Kafka protocol",
)

PERF_PAYLOAD_BYTES_MAX = bound(
    Subject.COMMANDS,
    "size of a test record of `kctl perf`, and of its payload file",
    64 << 20,
    "bytes",
    on_excess="the command ends with an error before it writes",
)
PERF_BUFFERED_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records that `kctl perf` has sent without acknowledgement, or received and not counted",
    64 << 20,
    "bytes",
    on_excess="it waits for acknowledgements, or fetches later",
)

LAG_FETCH_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records that `kctl groups lag` fetches to find the first unread ones",
    64 << 20,
    "bytes",
    on_excess="the lag in time of further partitions is unknown",
)
GROUP_HISTORY_COMMITS_MAX = bound(
    Subject.COMMANDS,
    "commits that `kctl groups history` shows, and partitions that `restore --at` finds",
    100_000,
    "items",
    on_excess="history omits the oldest commits with a warning, and restore is refused",
)

BUNDLE_FILE_BYTES_MAX = bound(
    Subject.REPORTS,
    "checkpoint or dump in the archive of `kctl broker bundle`",
    1 << 20,
    "bytes",
    on_excess="only its end is in the archive",
)

EXPORT_COLUMNS_MAX = bound(
    Subject.EXPORTS,
    "columns of the keys or values of a topic in an export",
    1_000,
    "columns",
    on_excess="further fields of JSON stay in the rest; other schemas are refused",
)
EXPORT_COLUMN_DEPTH_MAX = bound(
    Subject.EXPORTS,
    "levels of nested columns in an export",
    20,
    "levels",
    on_excess="deeper values of JSON stay in the rest; other schemas are refused",
)
PROFILE_KEY_BYTES_MAX = bound(
    Subject.EXPORTS,
    "bytes of a frequent key in a profile",
    100,
    "bytes",
    on_excess="the rest of the key is cut off",
)
