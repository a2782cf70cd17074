"""Bounds on what a peer can make the broker or a command allocate, compute or write.

Every bound is declared once, here: as a constant by `_limit`, or, if a Kafka property sets the value, as a row by
`_configured`.  Both add it to the subject that `_subject` has begun; `./dev docs` writes a table for each subject into
docs/security.md.  A bound is checked before the work that it limits, or while a request is decoded.
"""

from __future__ import annotations

from typing import NamedTuple


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


LIMITS: dict[str, list[Limit]] = {}
"""All bounds by subject, in the order of declaration."""


def _subject(title: str) -> None:
    """Begins the bounds of a subject."""
    LIMITS[title] = []


def _limit(what: str, value: int, unit: str, *, on_excess: str) -> int:
    _add(Limit(what, value, unit, on_excess))
    return value


def _configured(property_name: str, what: str, default: str, *, on_excess: str) -> None:
    _add(Limit(what, property_name, default, on_excess))


def _add(limit: Limit) -> None:
    LIMITS[next(reversed(LIMITS))].append(limit)


_subject("Connections and requests")

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
LONE_FRAME_BYTES_MAX = _limit(
    "size, with its length, of a request that is received into the buffer that all connections share",
    1 << 14,
    "bytes",
    on_excess="the connection gets a buffer of its own",
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
WAITING_PRODUCES_MAX = _limit(
    "Produce requests of one connection that wait for replicas at the same time",
    16,
    "requests",
    on_excess="the next request is not handled before the first response has been sent",
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
ROUND_MS_MAX = _limit(
    "time for one turn of each connection that waits for one",
    50,
    "ms",
    on_excess="turns are shorter, down to one request each",
)
LOOP_SLICE_MS_MAX = _limit(
    "time for connections in one iteration of the event loop",
    10,
    "ms",
    on_excess="timers and other sockets are served first",
)
RECEIVED_PER_ITERATION_MAX = _limit(
    "bytes that connections receive in one iteration of the event loop, before they take turns",
    4 << 20,
    "bytes",
    on_excess="they receive in turns, within the time for connections",
)
RECEIVED_UNTIMED_MAX = _limit(
    "as above, without a look at the time that it takes",
    256 << 10,
    "bytes",
    on_excess="connections receive in turns when the time for connections is over",
)
URGENT_RECEIVED_PER_ITERATION_MAX = _limit(
    "bytes that connections receive in one iteration before those of the control plane take turns",
    5 << 20,
    "bytes",
    on_excess="they receive in turns, as the others",
)
RECEIVED_AT_ONCE_MAX = _limit(
    "bytes that one connection receives in a row",
    1 << 20,
    "bytes",
    on_excess="the rest is received afterwards",
)
READ_PER_SLICE_MAX = _limit(
    "partitions of one Fetch or ListOffsets request that are read without a pause",
    250,
    "partitions",
    on_excess="other connections are served in between; one iteration of the event loop does one slice of such work",
)
"""Fetch and the search by timestamp take 5 us to 20 us for each."""

BUSY_SLICE_MS_MAX = _limit(
    "time in one iteration for connections that use more than a quarter of the event loop or need several turns",
    2,
    "ms",
    on_excess="connections that use little are served first",
)
DELAYED_TRIED_MAX = _limit(
    "waiting requests that one change completes in a row; one that waits for 50 partitions counts as two",
    100,
    "requests",
    on_excess="the other connections get their turn first",
)
TIMERS_PER_ITERATION_MAX = _limit(
    "timeouts of requests, members and transactions that are handled in one iteration of the event loop",
    50,
    "timeouts",
    on_excess="the others are handled in the next iterations",
)
"""One of a group's member takes 0.1 ms."""
UNREAD_RESPONSE_BYTES_MAX = _limit(
    "responses in memory that clients have not read, over all connections; records in files are not counted",
    512 << 20,
    "bytes",
    on_excess="connections are closed, first those whose clients have not read for the longest time",
)
FLUSH_BYTES_MAX = _limit(
    "bytes sent to one connection in a row",
    8 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
SEND_BYTES_MAX = _limit(
    "bytes from memory given to the operating system in one call",
    1 << 20,
    "bytes",
    on_excess="further calls send the rest",
)
"""While the peer reads, Linux takes more than its send buffer holds: 23 MB in one call, which took 12 ms."""
READY_SOCKETS_MAX = _limit(
    "sockets with an event that are served in one iteration of the event loop",
    200,
    "sockets",
    on_excess="the others are served in the next iterations, in turn",
)
"""Closing a connection takes 0.02 ms: 5,000 clients that leave at once would take 0.1 s."""
LISTEN_BACKLOG = _limit(
    "connections that the system has accepted and the broker has not (listen backlog)",
    1_024,
    "connections",
    on_excess="the system delays further connections",
)
_configured(
    "queued.max.request.bytes",
    "requests that are received or handled, in memory, over all connections; as much again for the control plane",
    "no limit",
    on_excess="the broker stops reading from connections that begin a request; the last one admitted may exceed it",
)
_configured(
    "max.connections",
    "connections of the broker; listener.name.NAME.max.connections: of one listener",
    "no limit",
    on_excess="nothing more is accepted; the inter-broker listener closes an idle connection of another listener",
)
_configured(
    "max.connections.per.ip",
    "connections from one address",
    "no limit",
    on_excess="the connection is closed",
)
_configured(
    "max.connection.creation.rate",
    "new connections per second of the broker; listener.name.NAME.max.connection.creation.rate: of one listener",
    "no limit",
    on_excess="nothing is accepted for a time",
)
LIMITED_HOSTS_MAX = _limit(
    "host names in max.connections.per.ip.overrides",
    64,
    "names",
    on_excess="the broker does not start, or keeps the old limits; addresses are not counted",
)
CONNECTION_RATES_MAX = _limit(
    "addresses whose connection rate is counted",
    10_000,
    "addresses",
    on_excess="the address that has not connected for the longest time starts from zero",
)
REFUSED_SOCKETS_MAX = _limit(
    "refused connections that stay open for a time, so that their clients do not return at once",
    1_000,
    "connections",
    on_excess="further ones are closed at once",
)
TLS_HANDSHAKE_TIMEOUT_MS = _limit(
    "time for a TLS handshake",
    10_000,
    "ms",
    on_excess="the connection is closed",
)
TLS_HANDSHAKES_MAX = _limit(
    "unfinished TLS handshakes",
    1_024,
    "connections",
    on_excess="the oldest one is closed",
)
TLS_REFUSED_MS_MAX = _limit(
    "time for a client whose TLS handshake is refused to read the reason and close",
    2_000,
    "ms",
    on_excess="the connection is closed, and the client may see no reason",
)
TLS_REFUSED_BYTES_MAX = _limit(
    "bytes that are received and dropped from a client whose TLS handshake is refused",
    65_536,
    "bytes",
    on_excess="the connection is closed, and the client may see no reason",
)
TLS_HANDSHAKE_BYTES_MAX = _limit(
    "bytes from a client in one TLS handshake; the certificates of a chain take 0.1 ms each to read",
    1 << 15,
    "bytes",
    on_excess="the connection is closed",
)
"""As in Java: jdk.tls.maxHandshakeMessageSize.  OpenSSL reads 100 KB of certificates, which take it 60 ms."""

TLS_HANDSHAKE_STEPS_MAX = _limit(
    "steps of TLS handshakes in one iteration of the event loop, of about 1 ms each",
    4,
    "steps",
    on_excess="other connections are served first",
)
TLS_HANDSHAKES_MS_MAX = _limit(
    "time for steps of TLS handshakes in one iteration of the event loop, after the first",
    4,
    "ms",
    on_excess="other connections are served first",
)
TLS_RECEIVE_BYTES_MAX = _limit(
    "bytes of one TLS connection that are received and decrypted in a row",
    1 << 18,
    "bytes",
    on_excess="other connections are served first",
)
TLS_RECORDS_MAX = _limit(
    "records of one TLS connection that are decrypted in a row; a client may change its keys with each",
    250,
    "records",
    on_excess="other connections are served first",
)
TLS_UNSENT_BYTES_MAX = _limit(
    "encrypted bytes that one TLS connection holds until its client reads them",
    1 << 18,
    "bytes",
    on_excess="responses are encrypted later; a client that makes TLS itself send more is disconnected",
)
KEY_STORE_FILE_BYTES_MAX = _limit(
    "size of a key store or trust store",
    4 << 20,
    "bytes",
    on_excess="it is refused",
)
KEY_DERIVATION_ITERATIONS_MAX = _limit(
    "iterations of the password of a key store or private key",
    1_000_000,
    "iterations",
    on_excess="it is refused before the password is tried",
)
KEY_DERIVATION_SCRYPT_MAX = _limit(
    "work of scrypt for the password of a private key, as N * r * p; it needs 128 bytes each",
    1 << 20,
    "blocks",
    on_excess="it is refused before the password is tried",
)
RESERVED_DESCRIPTORS = _limit(
    "file descriptors reserved for log files and checkpoints (at most a quarter of the process's limit)",
    2_048,
    "descriptors",
    on_excess="new connections are closed and logged",
)

SCARCE_DESCRIPTORS = _limit(
    "the part of them that is left for other files than segments (at most an eighth of the process's limit)",
    1_024,
    "descriptors",
    on_excess="the segments that were opened first are closed until they are used again",
)
CLOSED_SEGMENTS_PER_FLUSH = _limit(
    "closed segments of one log that are flushed together, with three open files for each",
    8,
    "segments",
    on_excess="further ones are flushed afterwards",
)

_subject("Files and names given to commands")

NAMED_FILE_BYTES_MAX = _limit(
    "size of a file that a command reads as a whole",
    64 << 20,
    "bytes",
    on_excess="the command fails; logs and indexes of any size are read in pieces",
)
DUMP_INPUT_BYTES_MAX = _limit(
    "size, decompressed, of what `kctl dump-log` reads from standard input, a pipe or a compressed file",
    (2 << 30) + (64 << 20),
    "bytes",
    on_excess="the command fails; a segment of a broker has at most 2 GiB",
)
NAMES_FROM_INPUT_MAX = _limit(
    "names that `-` reads from standard input",
    100_000,
    "names",
    on_excess="the command fails before it does anything",
)

PROFILES_MAX = _limit(
    "profiles of one user",
    1_000,
    "profiles",
    on_excess="the command that adds another one fails",
)

NAME_CACHE_NAMES_MAX = _limit(
    "names of one kind and cluster that commands store for completion by the shell",
    10_000,
    "names",
    on_excess="the first ones by name are stored",
)
NAME_CACHE_AGE_MAX_S = _limit(
    "age of names that the shell completes",
    3_600,
    "s",
    on_excess="they are not completed until a command lists them again",
)
NAME_CACHE_FILES_MAX = _limit(
    "files with names for completion by the shell",
    200,
    "files",
    on_excess="the oldest ones are deleted",
)
YAML_BYTES_MAX = _limit(
    "document of `kctl plan` and `kctl apply`",
    8 << 20,
    "bytes",
    on_excess="it is refused",
)
YAML_DEPTH_MAX = _limit(
    "mappings and lists inside each other in a document of `kctl plan` and `kctl apply`",
    20,
    "levels",
    on_excess="the document is refused",
)
DEPENDENTS_TIME_MAX_S = _limit(
    "time in which `kctl topics delete` looks for each kind of what depends on the topics",
    10,
    "s",
    on_excess="the output names what was not checked",
)
DEPENDENTS_GROUPS_MAX = _limit(
    "groups in which `kctl topics delete` looks for the topics",
    5_000,
    "groups",
    on_excess="the output states how many were not checked",
)
PROBLEM_TEXT_MAX = _limit(
    "description of one damaged position in the output of dump-log",
    300,
    "characters",
    on_excess="the text is truncated and ends in three dots",
)

FORMATTED_RECORD_BYTES_MAX = _limit(
    "text of one record that `kctl produce -f` reads",
    256 << 20,
    "bytes",
    on_excess="the command fails",
)
FORMATTED_HEADERS_MAX = _limit(
    "headers of one record that `kctl produce -f` reads",
    100_000,
    "headers",
    on_excess="the command fails",
)

_subject("Groups and transactions")

MEMBER_ID_PREFIX_BYTES_MAX = _limit(
    "client id or group.instance.id in a generated member id",
    32_767 - 37,
    "bytes",
    on_excess="truncated, so that the member id fits into a string of the protocol",
)

GROUPS_MAX = _limit(
    "groups of one coordinator; those without members and offsets are removed",
    200_000,
    "groups",
    on_excess="COORDINATOR_NOT_AVAILABLE for calls that would create a group",
)
_configured(
    "group.max.size",
    "members of one group",
    "2,147,483,647, that is, the bound below",
    on_excess="GROUP_MAX_SIZE_REACHED",
)
GROUP_MEMBERS_MAX = _limit(
    "members of one group, static members and members that have only received their id included",
    10_000,
    "members",
    on_excess="GROUP_MAX_SIZE_REACHED",
)
GROUP_MEMBERS_PER_STEP_MAX = _limit(
    "members of one group that are handled in a row at the end of each phase of a rebalance",
    200,
    "members",
    on_excess="other connections are served in between; requests for the group wait",
)
GROUP_SUBSCRIBED_TOPICS_MAX = _limit(
    "topics to which the members of a consumer group subscribe, for the rules that keep offsets in use",
    100_000,
    "topics",
    on_excess="the offsets of all topics are kept while the group has members",
)
MEMBER_METADATA_BYTES_MAX = _limit(
    "protocols of one member with their metadata",
    1 << 20,
    "bytes",
    on_excess="INVALID_REQUEST",
)
"""A group is stored in one record, which has to fit into a batch of 1 MB by default."""

MEMBER_PROTOCOLS_MAX = _limit(
    "protocols of one member",
    100,
    "protocols",
    on_excess="INVALID_REQUEST",
)
"""Each member votes for one of them when a generation begins; consumers have one or two."""
MEMBERS_METADATA_BYTES_MAX = _limit(
    "members of the groups of one coordinator: their ids, also before they have joined, protocols and metadata, and "
    "1,000 bytes for each",
    128 << 20,
    "bytes",
    on_excess="COORDINATOR_NOT_AVAILABLE for members that join",
)
"""Freeing 256 MB at once, when all members of a group have gone, took 28 ms."""

GROUP_OFFSETS_MAX = _limit(
    "partitions with a committed offset in one group",
    200_000,
    "partitions",
    on_excess="OFFSET_METADATA_TOO_LARGE for all partitions of the request",
)
_configured(
    "offset.metadata.max.bytes",
    "metadata of one committed offset",
    "4,096 bytes",
    on_excess="OFFSET_METADATA_TOO_LARGE for the partition",
)
_configured(
    "offsets.retention.minutes",
    "time for which the offsets of a group without members are kept",
    "7 days",
    on_excess="the offsets expire, and the group with them",
)
TRANSACTIONAL_IDS_MAX = _limit(
    "transactional ids of one coordinator",
    500_000,
    "ids",
    on_excess="COORDINATOR_NOT_AVAILABLE for new ids",
)
TRANSACTION_GROUPS_MAX = _limit(
    "groups of one partition of `__consumer_offsets` with commits in one transaction",
    1_000,
    "groups",
    on_excess="OFFSET_METADATA_TOO_LARGE for commits of further groups",
)
TRANSACTION_PARTITIONS_MAX = _limit(
    "partitions in one transaction",
    10_000,
    "partitions",
    on_excess="INVALID_REQUEST, and none of the partitions is added",
)
"""Each addition writes all partitions of the transaction into one record: 10,000 take 13 ms."""
_configured(
    "transactional.id.expiration.ms",
    "time for which an unused transactional id is kept",
    "7 days",
    on_excess="the state is removed",
)
_configured(
    "producer.id.expiration.ms",
    "time for which a partition keeps the sequence numbers of an idle producer without an open transaction",
    "1 day",
    on_excess="the state is removed; the producer may continue with any sequence number",
)
PRODUCERS_MAX = _limit(
    "producer ids whose sequence numbers a broker keeps, counted in each partition (0.5 KB each); checked every 10 s",
    1_000_000,
    "producers",
    on_excess="those without an open transaction that have been idle the longest, at least 15 minutes, are forgotten "
    "earlier; if that is not enough, batches of further producers get THROTTLING_QUOTA_EXCEEDED, which clients retry, "
    "and none that is in use is forgotten",
)
PRODUCERS_PER_PARTITION_MAX = _limit(
    "producer ids whose sequence numbers one partition keeps",
    100_000,
    "producers",
    on_excess="the producer without an open transaction that wrote least recently is forgotten, as if it had expired",
)

LOOKUP_CLIENTS_MAX = _limit(
    "clients and groups whose lookups of a coordinator are counted, for the log line about the consumer group protocol",
    1_000,
    "pairs",
    on_excess="the oldest pair is forgotten, and counted from zero",
)

_subject("Fetch sessions")

_configured(
    "max.incremental.fetch.session.cache.slots",
    "fetch sessions",
    "1,000",
    on_excess="unused sessions are evicted; else the response has no session",
)
FETCH_SESSION_PARTITIONS_MAX = _limit(
    "partitions in all fetch sessions together",
    2_000_000,
    "partitions",
    on_excess="no new session; a session that grows beyond it is closed with FETCH_SESSION_ID_NOT_FOUND",
)

_subject("The embedded ZooKeeper server")

ZOOKEEPER_CONNECTIONS_MAX = _limit(
    "connections to the embedded ZooKeeper server",
    1_000,
    "connections",
    on_excess="the connection is closed",
)
ZOOKEEPER_FRAME_BYTES_MAX = _limit(
    "size of one request to the embedded ZooKeeper server (jute.maxbuffer)",
    0xFFFFF,
    "bytes",
    on_excess="the connection is closed before the frame is read",
)
ZOOKEEPER_SESSIONS_MAX = _limit(
    "sessions of the embedded ZooKeeper server; one without a connection expires after its timeout, at most 40 s",
    20_000,
    "sessions",
    on_excess="the connection is closed",
)
ZOOKEEPER_PATH_CHARACTERS_MAX = _limit(
    "path of a znode of the embedded ZooKeeper server",
    10_000,
    "characters",
    on_excess="BAD_ARGUMENTS",
)
ZOOKEEPER_DUMP_LINES_MAX = _limit(
    "sessions, and ephemeral znodes, in the output of the word `dump` of the embedded ZooKeeper server",
    2_000,
    "lines of each kind",
    on_excess="further ones are left out; the output has the number of all sessions",
)
ZOOKEEPER_WATCHES_MAX = _limit(
    "paths on which one connection to the embedded ZooKeeper server has data or child watches",
    500_000,
    "paths of each kind",
    on_excess="the connection is closed",
)
"""A controller watches the state of each partition that is reassigned, and each topic."""

ZOOKEEPER_IDENTITIES_MAX = _limit(
    "digest identities of one connection to the embedded ZooKeeper server",
    100,
    "identities",
    on_excess="AUTH_FAILED, and the connection is closed",
)
ZOOKEEPER_MULTI_READ_BYTES_MAX = _limit(
    "data and names in the response to one multiRead of the embedded ZooKeeper server",
    16 << 20,
    "bytes",
    on_excess="RUNTIME_INCONSISTENCY for the remaining operations",
)
ZOOKEEPER_OPERATIONS_MAX = _limit(
    "operations of one multi or multiRead to the embedded ZooKeeper server",
    500,
    "operations",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_OPERATIONS_PER_STEP = _limit(
    "operations of one multi that the embedded ZooKeeper server executes without a pause",
    100,
    "operations",
    on_excess="other connections are served in between, but no other operation is executed",
)
ZOOKEEPER_ACL_ENTRIES_MAX = _limit(
    "entries of the ACL of one znode of the embedded ZooKeeper server; each operation on it looks at all of them",
    100,
    "entries",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_MULTI_ACL_ENTRIES_MAX = _limit(
    "entries of all ACLs in one multi to the embedded ZooKeeper server",
    2_000,
    "entries",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_SET_WATCHES_MAX = _limit(
    "paths of one kind in a setWatches to the embedded ZooKeeper server; clients send at most 128 KB at once",
    10_000,
    "paths",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_PATHS_PER_STEP = _limit(
    "ephemeral znodes of a session, watches of a connection or containers that the embedded ZooKeeper server removes, "
    "watches that it sets, and events about changes of one request or session that it sends, without a pause",
    500,
    "paths or events",
    on_excess="other connections are served in between",
)
ZOOKEEPER_NAMES_PER_STEP = _limit(
    "children that the embedded ZooKeeper server encodes without a pause",
    4_000,
    "names",
    on_excess="other connections are served in between",
)
ZOOKEEPER_UNREAD_BYTES_MAX = _limit(
    "responses and events that a client of the embedded ZooKeeper server has not read",
    64 << 20,
    "bytes",
    on_excess="the connection is closed",
)

_subject("Records")

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
    "produced records that wait to be checked, decompressed or converted in a thread, over all requests; also the size "
    "of one record batch",
    256 * _MIB,
    "bytes",
    on_excess="REQUEST_TIMED_OUT for the partition, which producers retry; MESSAGE_TOO_LARGE for a larger batch",
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

APPENDED_INLINE_BYTES_MAX = _limit(
    "batches of one partition in a Produce request, or fetched by a follower, that are checked and written on the "
    "event loop",
    4 << 20,
    "bytes",
    on_excess="both are done in a thread, in pieces; the batches begin a segment",
)
"""Takes up to 8 ms."""

INLINE_RECORDS_MAX = _limit(
    "records of one request that are read on the event loop",
    1000,
    "records",
    on_excess="the work is done in a thread",
)
"""So many records are read in 1 ms to 2 ms."""

_subject("Decoding of requests")
# Time and memory grow with the objects decoded, not with the bytes: an empty struct takes 1 byte of a frame, 100 bytes
# of memory and 0.5 us.  So decoding has a cost: 1 for a number in a struct and 4 for one in an array; 8 for a struct, a
# string, an array or a UUID; 1 for 64 bytes of a long string or 256 bytes of opaque data.  A cost of 1 is about 50 ns.
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
REQUEST_BYTES_MAX = _limit(
    "size of one request that is neither Produce nor Fetch; strings of this size exceed the cost of decoding",
    20 << 20,
    "bytes",
    on_excess="the connection is closed before the request is decoded",
)
CONTROL_REQUEST_BYTES_MAX = _limit(
    "size of one LeaderAndIsr, StopReplica or UpdateMetadata request, about 400,000 partitions",
    32 << 20,
    "bytes",
    on_excess="the connection is closed before the request is decoded",
)
"""Requests are copied to be decoded in a thread; 100 MiB took 50 ms."""

TAGGED_FIELDS_MAX = _limit(
    "tagged fields in the header of a request, and in its body",
    1_000,
    "fields",
    on_excess="the connection is closed before they are read",
)

_subject("Partitions")
# Each is a directory with four files and three descriptors on each of its brokers, and is created in about 1 ms; the
# znode of a topic with 10,000 partitions of ten replicas is near ZooKeeper's 1 MB.  200,000 partitions are what Apache
# Kafka supports in a cluster with ZooKeeper.

PARTITIONS_PER_TOPIC_MAX = _limit(
    "partitions of one topic, at creation and after growth",
    10_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topic; a znode with more is ignored and logged",
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
DECISIONS_PER_SLICE_MAX = _limit(
    "partitions about which the controller decides without a pause",
    1_000,
    "partitions",
    on_excess="other connections are served in between; later events of the controller wait",
)
LOGS_CREATED_PER_SLICE_MAX = _limit(
    "logs that a LeaderAndIsr request creates together",
    20,
    "logs",
    on_excess="other connections are served in between; later requests of the controller wait",
)
ROLES_PER_SLICE_MAX = _limit(
    "roles of existing replicas that a LeaderAndIsr request changes without a pause",
    20,
    "partitions",
    on_excess="other connections are served in between; later requests of the controller wait",
)
"""A new leader epoch is written to a file, which takes 0.2 ms to 0.5 ms."""
ROLES_FOLLOWED_TOGETHER = _limit(
    "partitions of a LeaderAndIsr request that a broker begins to follow together",
    500,
    "partitions",
    on_excess="it begins to follow these while it applies the rest",
)
APPENDS_PER_SLICE_MAX = _limit(
    "partitions of a Produce request that are appended to without a pause",
    200,
    "partitions",
    on_excess="the records of the others are copied, and other connections are served in between",
)
LOGS_STOPPED_PER_SLICE_MAX = _limit(
    "replicas that a StopReplica request stops or deletes without a pause",
    50,
    "partitions",
    on_excess="other connections are served in between; later requests of the controller wait",
)
ISR_CHANGES_PER_REQUEST_MAX = _limit(
    "partitions in one AlterIsr request of a leader to the controller",
    500,
    "partitions",
    on_excess="the changes of further partitions are in the next request",
)
CREATIONS_AWAITING_DELETION_MAX = _limit(
    "creations that wait until a topic of the same name is deleted",
    1000,
    "topics",
    on_excess="TOPIC_ALREADY_EXISTS, as when the time of the request is over",
)
AUTO_CREATIONS_MAX = _limit(
    "automatic topic creations in progress",
    100,
    "topics",
    on_excess="LEADER_NOT_AVAILABLE; the topic is created when a client retries",
)

_subject("Configuration")
# A value that grew by IncrementalAlterConfigs must still fit into the response of DescribeConfigs, and
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
CONFIG_PROPERTIES_MAX = _limit(
    "overrides of one topic or broker",
    1_000,
    "properties",
    on_excess="INVALID_CONFIG for the resource; a znode with more is ignored, and the former values stay in use",
)
"""Kafka has no bound.  A broker accepts names that it does not know, and reads all of them at each change: 50,000 held
the event loop for 0.6 s."""
PROPERTY_HINTS_MAX = _limit(
    "unknown properties of a broker for which a similar name is searched",
    100,
    "properties",
    on_excess="further ones are reported without a suggestion",
)
"""One search takes 1 ms."""

_subject("Access control lists")
# All ACLs of a resource pattern are in one znode, for which ZooKeeper accepts one MiB.

ACL_ZNODE_BYTES_MAX = _limit(
    "all ACLs of one resource pattern, as JSON",
    1_000_000,
    "bytes",
    on_excess="INVALID_REQUEST; if another program has stored them, operations on the resource are denied",
)
ACLS_MAX = _limit(
    "ACLs that the broker keeps in memory",
    100_000,
    "ACLs",
    on_excess="INVALID_REQUEST; if other brokers have stored more, operations on further resources are denied",
)
ACL_NAME_CHARACTERS_MAX = _limit(
    "resource name, principal or host in an ACL",
    1_024,
    "characters",
    on_excess="INVALID_REQUEST for the ACL",
)
ACL_CHANGES_MAX = _limit(
    "ACLs or filters in one CreateAcls or DeleteAcls request",
    10_000,
    "ACLs",
    on_excess="INVALID_REQUEST for all of them",
)
CACHED_DECISIONS_MAX = _limit(
    "cached decisions of the authorizer",
    10_000,
    "decisions",
    on_excess="all are forgotten",
)
_subject("Quotas")

QUOTA_GROUPS_MAX = _limit(
    "groups of clients whose usage is kept, for each kind of quota",
    10_000,
    "groups",
    on_excess="the usage of some that are not in use is dropped, or of one that is",
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

_subject("Authentication")

_configured(
    "sasl.server.max.receive.size",
    "size of one request frame or token before and during authentication on a SASL listener",
    "512 KiB",
    on_excess="the connection is closed before the frame is read",
)
SCRAM_MESSAGE_BYTES_MAX = _limit(
    "one SCRAM message",
    16_384,
    "bytes",
    on_excess="the authentication fails before the message is read",
)
SCRAM_ITERATIONS_MAX = _limit(
    "iterations of a SCRAM credential that clients and the broker accept",
    1_000_000,
    "iterations",
    on_excess="the authentication fails before the password is hashed",
)
"""So many iterations take a client 0.3 s to 1 s.  Apache Kafka creates credentials with at most 16,384."""

SCRAM_SALT_BYTES_MAX = _limit(
    "salt of a SCRAM credential",
    1_024,
    "bytes",
    on_excess="the credential is refused",
)
OAUTHBEARER_MESSAGE_BYTES_MAX = _limit(
    "one OAUTHBEARER message with its token",
    65_536,
    "bytes",
    on_excess="the authentication fails before the message is read",
)
JWKS_BYTES_MAX = _limit(
    "key set that verifies tokens",
    1 << 20,
    "bytes",
    on_excess="the keys are not replaced, and the failure is logged",
)
JWKS_KEYS_MAX = _limit(
    "keys in a key set that verifies tokens",
    1_000,
    "keys",
    on_excess="the keys are not replaced, and the failure is logged",
)
JWKS_FETCH_MS_MAX = _limit(
    "time to fetch a key set that verifies tokens",
    10_000,
    "ms",
    on_excess="the keys are not replaced, and the failure is logged",
)
DELEGATION_TOKENS_MAX = _limit(
    "delegation tokens of a cluster",
    100_000,
    "tokens",
    on_excess="no further tokens are created, with POLICY_VIOLATION",
)
TOKEN_RENEWERS_MAX = _limit(
    "renewers of one delegation token",
    100,
    "principals",
    on_excess="INVALID_REQUEST",
)
JAAS_CHARACTERS_MAX = _limit(
    "value of sasl.jaas.config",
    1 << 20,
    "characters",
    on_excess="the configuration is refused",
)

_subject("Responses, log lines and long work")

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
    on_excess="the message is truncated",
)
RECONFIGURED_LOGS_PER_TURN = _limit(
    "logs to which a change of the broker's properties is applied without a pause",
    200,
    "logs",
    on_excess="other connections are served in between",
)
PEER_ADDRESSES_MAX = _limit(
    "addresses of other brokers whose failed connection attempts are counted",
    10_000,
    "addresses",
    on_excess="all are forgotten, and the timeouts for connecting start anew",
)
LOG_LINES_OF_EVENT_MAX = _limit(
    "different lines in a server's log in 10 s about one kind of failure, or about one kind of event that clients of a "
    "listener cause, and as many whose errors differ from those of earlier lines",
    100,
    "lines",
    on_excess="further ones are counted, and one line has their number; equal lines are written once and counted",
)
LOG_EVENTS_FOLDED_MAX = _limit(
    "kinds of log lines whose repetitions are counted at a time",
    256,
    "events",
    on_excess="further kinds are counted as one",
)
LOG_LINES_FOLDED_MAX = _limit(
    "log lines whose repetitions are counted one by one at a time",
    2_000,
    "lines",
    on_excess="only the first line of each further event is written, the others are counted",
)
LOG_FIELDS_MAX = _limit(
    "fields of a log line in JSON",
    32,
    "fields",
    on_excess="further ones are left out",
)
CONFIGS_READ_TOGETHER = _limit(
    "configurations of new topics that are read from ZooKeeper at the same time",
    100,
    "topics",
    on_excess="those of the others are read afterwards",
)
CONFIGS_APPLIED_PER_SLICE = _limit(
    "configurations of topics that are applied without a pause, after they have been read from ZooKeeper",
    20,
    "topics",
    on_excess="other connections are served in between",
)
REQUEST_ELEMENTS_PER_SLICE_MAX = _limit(
    "topics, partitions, groups, resources or users of one request that are handled without a pause",
    500,
    "elements",
    on_excess="other connections are served in between",
)
COSTLY_ELEMENTS_PER_SLICE_MAX = _limit(
    "topics of one request that are created, deleted, planned or described with their configuration, or groups of one "
    "that are deleted, without a pause",
    50,
    "topics or groups",
    on_excess="other connections are served in between",
)
"""Each takes 0.05 ms to 0.2 ms."""
DECODED_AT_ONCE_BYTES_MAX = _limit(
    "a request, other than Produce and Fetch, that is decoded on the event loop",
    16 << 10,
    "bytes",
    on_excess="it is decoded in a thread",
)
DECODED_AT_ONCE_COST_MAX = _limit(
    "cost of decoding a Produce or Fetch request on the event loop, which is 1,100 partitions to produce to",
    20_000,
    "units",
    on_excess="it is copied and decoded in a thread",
)
HANDLED_AT_ONCE_BYTES_MAX = _limit(
    "size of a Produce request whose batches are appended without a pause, unless they are many or compressed",
    4 << 20,
    "bytes",
    on_excess="it is handled in slices of half of this",
)
COPIED_FRAME_BYTES_MAX = _limit(
    "size of a request that is copied to be decoded in a thread",
    1 << 20,
    "bytes",
    on_excess="the receive buffer is not used again, and is freed after the request",
)
SLICE_OBJECTS = _limit(
    "topics, partitions, groups or members that are described in a response, or stored from an UpdateMetadata request, "
    "without a pause (its topics are converted in parts and stored as a whole)",
    2_000,
    "objects",
    on_excess="other connections are served in between; a response with more is encoded in a thread, one at a time",
)
ENCODED_AT_ONCE_BYTES_MAX = _limit(
    "strings and bytes of a response, other than Produce and Fetch, that is encoded on the event loop",
    1 << 20,
    "bytes",
    on_excess="it is encoded in a thread, one at a time",
)
DESCRIBED_AT_ONCE = _limit(
    "resources of one DescribeConfigs request that are described at the same time, with reads from ZooKeeper",
    16,
    "resources",
    on_excess="the others are read afterwards; other connections are served in between",
)
KEPT_TOPIC_CONFIGS_MAX = _limit(
    "topics whose overrides a broker keeps in memory, with a watch in ZooKeeper, for long DescribeConfigs requests",
    10_000,
    "topics",
    on_excess="those of the others are read from ZooKeeper for each request",
)
KEPT_TOPIC_CONFIG_BYTES_MAX = _limit(
    "overrides of a topic that a broker keeps in memory for long DescribeConfigs requests",
    1 << 10,
    "bytes",
    on_excess="they are read from ZooKeeper for each request",
)
DESCRIBED_BYTES_MAX = _limit(
    "names, values, documentation, metadata and partitions in one DescribeConfigs, DescribeGroups, OffsetFetch or "
    "DescribeTransactions response",
    64 << 20,
    "bytes",
    on_excess="INVALID_REQUEST for the remaining resources, groups or transactions, or for the group whose offsets are "
    "requested",
)

_subject("The HTTP endpoint for metrics")

METRICS_CONNECTIONS_MAX = _limit(
    "concurrent connections to the HTTP endpoint for metrics",
    32,
    "connections",
    on_excess="the one that has waited longest for its client, and at least one second, is closed; if there is none, "
    "further connections are closed at once",
)
METRICS_HEAD_BYTES_MAX = _limit(
    "request line and headers of one HTTP request",
    8 << 10,
    "bytes",
    on_excess="HTTP status 431, and the connection is closed",
)
METRICS_HEAD_MS_MAX = _limit(
    "time until an HTTP request has arrived, counted from the end of the last response",
    75_000,
    "ms",
    on_excess="the connection is closed",
)
METRICS_SEND_MS_MAX = _limit(
    "time to make and send one HTTP response",
    30_000,
    "ms",
    on_excess="the connection is closed",
)
METRICS_SLICE_MS = _limit(
    "time to make metrics without a pause",
    1,
    "ms",
    on_excess="other connections are served in between",
)
METRICS_LAG_TIMEOUT_MS = _limit(
    "time to read the lag of groups for one scrape of a broker",
    5_000,
    "ms",
    on_excess="the scrape has no lag",
)
METRICS_LAG_CACHE_MS = _limit(
    "time for which the lag of groups in the metrics of a broker is used, at least",
    5_000,
    "ms",
    on_excess="it is read again, and used for ten times as long as that took",
)
METRICS_LAG_WAIT_MS = _limit(
    "time for which a scrape of a broker waits for the lag of groups, if there is an earlier one",
    50,
    "ms",
    on_excess="the scrape has the earlier one",
)
METRICS_CLIENT_SOFTWARE_MAX = _limit(
    "names and versions of client software that are counted apart",
    200,
    "pairs",
    on_excess="further ones are counted together as `other`",
)

_subject("Commands and clients")

RESPONSE_BYTES_MAX = _limit(
    "size of one response that a client accepts",
    256 << 20,
    "bytes",
    on_excess="the client closes the connection and reports that the peer does not use the Kafka protocol",
)
"""Above the 50 MiB of fetch.max.bytes, and above any message.max.bytes in use."""

OPENING_RESPONSE_BYTES_MAX = _limit(
    "size of one response that a client accepts before the connection is open and authenticated",
    1 << 20,
    "bytes",
    on_excess="the client closes the connection and reports that the peer does not use the Kafka protocol",
)

SASL_ROUNDS_MAX = _limit(
    "messages of a client in one SASL authentication",
    16,
    "messages",
    on_excess="the client closes the connection and reports that the authentication failed",
)

TOKEN_BYTES_MAX = _limit(
    "OAuth token that a client sends, and response of the token endpoint that it reads",
    1 << 18,
    "bytes",
    on_excess="the authentication fails before the rest is read",
)

TOP_GROUPS_MAX = _limit(
    "groups that kctl top reads in one refresh",
    1_000,
    "groups",
    on_excess="the first by name are shown, with a note",
)
TOP_RETENTIONS_MAX = _limit(
    "topics whose limits kctl top reads in one refresh",
    500,
    "topics",
    on_excess="the others are read in the next refreshes",
)
TOP_UNREAD_BYTES_MAX = _limit(
    "records that kctl top fetches in one refresh, for the age of what groups have not read",
    4 << 20,
    "bytes",
    on_excess="further partitions are read in the next refreshes",
)
METRICS_READ_BYTES_MAX = _limit(
    "response of an endpoint for metrics that `kctl metrics show` reads",
    256 << 20,
    "bytes",
    on_excess="the command ends with an error",
)

RESPONSE_READ_BYTES_MAX = _limit(
    "memory that a client reserves for a response before its bytes have arrived",
    1 << 20,
    "bytes",
    on_excess="the buffer grows as bytes arrive, at most to twice their size",
)

VERIFY_FETCH_BYTES_MAX = _limit(
    "records that `kctl verify replicas` fetches at once, over all brokers; a larger batch is fetched whole",
    64 << 20,
    "bytes",
    on_excess="the rest is fetched when these records have been compared",
)
VERIFY_RECORD_BYTES_MAX = _limit(
    "decompressed records of one batch of a compacted topic that `kctl verify replicas` compares",
    64 << 20,
    "bytes",
    on_excess="the partition is reported as not compared",
)
PERF_PAYLOAD_BYTES_MAX = _limit(
    "size of a test record of `kctl perf`, and of its payload file",
    64 << 20,
    "bytes",
    on_excess="the command ends with an error before it writes",
)
PERF_BUFFERED_BYTES_MAX = _limit(
    "records that `kctl perf` has sent without acknowledgement, or received and not counted",
    64 << 20,
    "bytes",
    on_excess="it waits for acknowledgements, or fetches later",
)

CONCURRENT_REQUESTS_MAX = _limit(
    "concurrent requests of a command",
    64,
    "requests",
    on_excess="further requests are sent when one of them is complete",
)
LAG_FETCH_BYTES_MAX = _limit(
    "records that `kctl groups lag` fetches to find the first unread ones",
    64 << 20,
    "bytes",
    on_excess="the lag in time of further partitions is unknown",
)
LAG_HISTORY_BYTES_MAX = _limit(
    "records of __consumer_offsets that `kctl groups lag`, and `kctl top` for each sample, fetches",
    32 << 20,
    "bytes",
    on_excess="the commits of groups in partitions that were not read to the end are unknown",
)
OFFSET_BACKUPS_MAX = _limit(
    "backups of committed offsets that `kctl groups` keeps for each cluster",
    200,
    "files",
    on_excess="the oldest one is deleted",
)
GROUP_HISTORY_BYTES_MAX = _limit(
    "records of __consumer_offsets that `kctl groups history` and `restore --at` fetch",
    1 << 30,
    "bytes",
    on_excess="history ends with a warning, and restore is refused; both suggest a later time or a backup file",
)
GROUP_HISTORY_COMMITS_MAX = _limit(
    "commits that `kctl groups history` shows, and partitions that `restore --at` finds",
    100_000,
    "items",
    on_excess="history omits the oldest commits with a warning, and restore is refused",
)
LAG_HISTORY_RECORDS_MAX = _limit(
    "records of __consumer_offsets that `kctl groups lag` and `kctl top` read for the latest commits",
    20_000,
    "records",
    on_excess="the known history of commits is shorter than --window",
)
LAG_COMMITS_MAX = _limit(
    "commits of a group in a partition that `kctl groups lag` and `kctl top` keep",
    32,
    "commits",
    on_excess="every second one is dropped",
)
LAG_LOOKS_MAX = _limit(
    "earlier observations of a partition that `kctl groups lag --watch` keeps",
    64,
    "observations",
    on_excess="every second one is dropped",
)

REGISTRY_RESPONSE_BYTES_MAX = _limit(
    "response of a schema registry",
    4 << 20,
    "bytes",
    on_excess="the response is not used, and records with the schema are shown undecoded",
)
REGISTRY_TIMEOUT_MS = _limit(
    "time to get a schema and those that it uses from a registry",
    10_000,
    "ms",
    on_excess="records are shown undecoded, and the registry is not tried again for 30 s",
)
REGISTRY_VERSIONS_MAX = _limit(
    "versions of a subject of a registry that an export decodes",
    500,
    "schemas",
    on_excess="the export is refused before it starts",
)
REGISTRY_REFERENCES_MAX = _limit(
    "schemas that a schema of a registry uses, also indirectly",
    200,
    "schemas",
    on_excess="records with the schema are shown undecoded",
)

TOOL_OUTPUT_BYTES_MAX = _limit(
    "output of one tool call of `kctl mcp`",
    1 << 20,
    "bytes",
    on_excess="the command is ended, and the result is an error that suggests to select less",
)
TOOL_MESSAGES_BYTES_MAX = _limit(
    "warnings and errors in the result of one tool call of `kctl mcp`",
    16 << 10,
    "bytes",
    on_excess="the others are dropped",
)
TOOL_TIMEOUT_MS = _limit(
    "time for one tool call of `kctl mcp`",
    120_000,
    "ms",
    on_excess="the command is ended, and the result is an error",
)
TOOL_CALLS_MAX = _limit(
    "commands that `kctl mcp` runs at the same time",
    4,
    "commands",
    on_excess="further calls wait",
)

_subject("Reports about a broker")

DUMPED_TASKS_MAX = _limit(
    "tasks that a broker describes in its dump (SIGUSR1)",
    500,
    "tasks",
    on_excess="the number of the others is written",
)
DUMPED_FRAMES_MAX = _limit(
    "frames that a broker describes for each task and thread in its dump (SIGUSR1)",
    40,
    "frames",
    on_excess="further frames are left out",
)
SAMPLED_FRAMES_MAX = _limit(
    "functions in a stack of the log line about a long iteration of the event loop",
    16,
    "functions",
    on_excess="the outer ones are left out",
)
BUNDLE_LOG_BYTES_MAX = _limit(
    "end of a log file in the archive of `kctl broker bundle`",
    8 << 20,
    "bytes",
    on_excess="earlier lines are left out",
)
BUNDLE_FILE_BYTES_MAX = _limit(
    "checkpoint or dump in the archive of `kctl broker bundle`",
    1 << 20,
    "bytes",
    on_excess="only its end is in the archive",
)
BUNDLE_METRICS_BYTES_MAX = _limit(
    "metrics in the archive of `kctl broker bundle`",
    16 << 20,
    "bytes",
    on_excess="the archive has no metrics, and its overview has the reason",
)
BUNDLE_LISTED_FILES_MAX = _limit(
    "files in one directory listing of the archive of `kctl broker bundle`",
    20_000,
    "files",
    on_excess="the listing ends with the number that it has",
)
_subject("Exports")

EXPORT_COLUMNS_MAX = _limit(
    "columns of the keys or values of a topic in an export",
    1_000,
    "columns",
    on_excess="further fields of JSON stay in the rest; other schemas are refused",
)
EXPORT_COLUMN_DEPTH_MAX = _limit(
    "levels of nested columns in an export",
    20,
    "levels",
    on_excess="deeper values of JSON stay in the rest; other schemas are refused",
)
EXPORT_SCHEMA_TYPES_MAX = _limit(
    "types in a schema of keys or values in an export, counted at each place that uses them",
    10_000,
    "types",
    on_excess="the export is refused",
)
EXPORT_JSON_DEPTH_MAX = _limit(
    "levels of objects and lists in a key or value of JSON in an export",
    500,
    "levels",
    on_excess="the record cannot be decoded: --on-bad-record",
)
EXPORT_VARIANT_BYTES_MAX = _limit(
    "size of a key or value in an export as variant: its text, its value and the names of its members, each",
    16 << 20,
    "bytes",
    on_excess="the record cannot be decoded: --on-bad-record",
)
EXPORT_VARIANT_DEPTH_MAX = _limit(
    "levels of objects and lists in a key or value in an export as variant",
    128,
    "levels",
    on_excess="the record cannot be decoded: --on-bad-record",
)
EXPORT_SAMPLE_RECORDS_MAX = _limit(
    "records per topic from which an export infers columns",
    5_000,
    "records",
    on_excess="the others are not in the sample",
)
EXPORT_PARTITIONS_PER_TASK_MAX = _limit(
    "partitions in one task of an export with --partition-by",
    10_000,
    "partitions",
    on_excess="records of further partitions cannot be exported: --on-bad-record",
)
COMPACTED_FILES_PER_FILE_MAX = _limit(
    "files that `kctl tables compact` merges into one",
    1_000,
    "files",
    on_excess="the others are merged into another file",
)
EXPORT_WHERE_CHARACTERS_MAX = _limit(
    "characters of --where of an export",
    4_096,
    "characters",
    on_excess="the export is refused",
)
EXPORT_WHERE_DEPTH_MAX = _limit(
    "levels of parentheses in --where of an export",
    50,
    "levels",
    on_excess="the export is refused",
)
EXPORT_OPEN_FILES_PER_TASK_MAX = _limit(
    "files that a task of an export with --partition-by has open, because their records exceed its memory",
    400,
    "files",
    on_excess="the export fails and suggests a smaller --target-file-size",
)
PROFILE_DISTINCT_KEYS_MAX = _limit(
    "keys that `kctl tables profile` keeps to count distinct keys, with 32 bytes each",
    1 << 16,
    "keys",
    on_excess="the number of distinct keys is an estimate with a standard error of 0.4 %",
)
PROFILE_FREQUENT_KEYS_MAX = _limit(
    "candidates for the most frequent keys in a profile",
    4_096,
    "keys",
    on_excess="counts of frequent keys are lower bounds, whose error is shown",
)
PROFILE_KEY_BYTES_MAX = _limit(
    "bytes of a frequent key in a profile",
    100,
    "bytes",
    on_excess="the rest of the key is cut off",
)
PROFILE_TIME_BUCKETS_MAX = _limit(
    "buckets of a profile's records by time",
    2_048,
    "buckets",
    on_excess="the width of the buckets is doubled",
)
PROFILE_SAMPLED_VALUES_MAX = _limit(
    "values that a profile examines, or two of each partition if that is more",
    10_000,
    "values",
    on_excess="the others are not in the sample",
)
PROFILE_SAMPLED_VALUE_BYTES_MAX = _limit(
    "bytes of a value that a profile examines",
    1 << 20,
    "bytes",
    on_excess="the value is counted as too large to examine",
)
PROFILE_VALUE_FIELDS_MAX = _limit(
    "fields of one JSON value that a profile examines",
    10_000,
    "fields",
    on_excess="the others are left out",
)
PROFILE_FIELDS_MAX = _limit(
    "fields of JSON values in a profile",
    1_000,
    "fields",
    on_excess="further fields are left out, which the profile says",
)
PROFILE_SCHEMA_IDS_MAX = _limit(
    "ids of a schema registry in a profile",
    1_000,
    "ids",
    on_excess="further ids are counted together",
)
VERIFIED_OFFSETS_PER_ROUND_MAX = _limit(
    "offsets that `kctl tables verify` compares at once, with 22 bytes each",
    1 << 20,
    "offsets",
    on_excess="the topic is compared in several rounds",
)
SOURCE_TASKS_PER_PARTITION_MAX = _limit(
    'tasks of one partition of a topic in a query with `format("kctl")`',
    10_000,
    "tasks",
    on_excess="the query fails before it starts; increase maxOffsetsPerTask",
)
CHECKED_EXECUTOR_CORES_MAX = _limit(
    "cores of Spark's executors whose Python packages are checked before an export is planned",
    256,
    "cores",
    on_excess="the others are checked by the tasks",
)
