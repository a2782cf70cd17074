"""Error codes of the Kafka protocol and the exceptions of kctl.

KctlError
  ApiError            an expected outcome of a request, identified by its code
    PositionLost      the log does not have the history of a position any more
  MalformedRequest    bytes that cannot be decoded as a request; the connection is closed
  CorruptLog          a file of a log has invalid contents
  LogDirFailure       an IO error in a log directory, which goes offline
  ConfigError         an invalid property value; names the Kafka property
  UsageError          invalid usage that typer does not detect
  ClusterUnreachable  no broker responded in time
  ZooKeeperError      ZooKeeper refused an operation, or the session has ended
"""

from __future__ import annotations

import re
from enum import IntEnum

from kctl.limits import Subject, bound

ERROR_MESSAGE_CHARACTERS_MAX = bound(
    Subject.LONG_WORK,
    "error message in a response",
    1_000,
    "characters",
    on_excess="the message is truncated",
)


class ErrorCode(IntEnum):
    """Error codes of the Kafka protocol up to 3.9 (org.apache.kafka.common.protocol.Errors).

    Codes from 106 on are newer than 2.8 and are never sent by this broker.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed when it is repeated.  Subclasses of Kafka's RetriableException."""
        return self in _RETRIABLE

    @property
    def description(self) -> str:
        """One sentence that explains the error to a user."""
        return _DESCRIPTIONS.get(self) or self.name.replace("_", " ").capitalize() + "."

    @classmethod
    def of(cls, number: int) -> ErrorCode:
        """Return the code with this number, or UNKNOWN_SERVER_ERROR for a number from a newer broker."""
        return _BY_NUMBER.get(number, cls.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {code.value: code for code in ErrorCode}
"""Faster than the call of the class, which responses about thousands of partitions need for each."""

_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

_DESCRIPTIONS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker failed with an unexpected error; see its log.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the range of the partition.",
    ErrorCode.CORRUPT_MESSAGE: "The record batch fails its checksum or is malformed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The broker does not have this topic or partition.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The broker is not the leader of the partition.",
    ErrorCode.REQUEST_TIMED_OUT: "The request was accepted but did not complete in time.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record batch is larger than max.message.bytes.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata of the offset commit is larger than offset.metadata.max.bytes.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading its state.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available yet.",
    ErrorCode.NOT_COORDINATOR: "The broker is not the coordinator of this group.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "The topic name is not allowed for this operation; names have letters, digits, '.', '_' and '-'."
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "The records are larger than segment.bytes.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas requires.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1.",
    ErrorCode.ILLEGAL_GENERATION: "The generation is not the group's current one.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member has no protocol in common with the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not allowed.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The member id is unknown to the coordinator.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the range that the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member has to rejoin.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this version of the API.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not allowed.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or above the number of live brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is invalid.",
    ErrorCode.INVALID_CONFIG: "A configuration name or value is not valid.",
    ErrorCode.NOT_CONTROLLER: "The broker is not the active controller.",
    ErrorCode.INVALID_REQUEST: "The request is inconsistent or violates the protocol.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The message format of the topic does not allow this.",
    ErrorCode.POLICY_VIOLATION: "A policy of the broker forbids this.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The producer's sequence number does not follow its last one.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer instance of this producer exists.",
    ErrorCode.KAFKA_STORAGE_ERROR: "A disk of the broker failed.",
    ErrorCode.SECURITY_DISABLED: "The broker has no authorizer.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Requests about delegation tokens need a listener with SASL or client certificates, and no token as credential."
    ),
    ErrorCode.NON_EMPTY_GROUP: "The group has active members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker does not have this fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session's epoch is not the expected one.",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's.",
    ErrorCode.MEMBER_ID_REQUIRED: "The member has to join again with the member id given to it.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has group.max.size members already.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member took over this group.instance.id.",
    ErrorCode.INVALID_RECORD: "A record violates the format or the configuration of the topic.",
    ErrorCode.UNKNOWN_TOPIC_ID: "The topic id is unknown to the broker.",
}


def shortened(message: str | None) -> str | None:
    """Return the message, at most ERROR_MESSAGE_CHARACTERS_MAX characters long.  It may quote up to 32 KB that a peer
    sent.
    """
    if message is None or len(message) <= ERROR_MESSAGE_CHARACTERS_MAX:
        return message
    return message[: ERROR_MESSAGE_CHARACTERS_MAX - 3] + "..."


class KctlError(Exception):
    """Base class of expected errors; the text can be shown to a user."""


class ApiError(KctlError):
    """An error code other than NONE; the message, if any, explains the specific case."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        message = shortened(message)
        super().__init__(message or code.description)
        self.code = code
        self.message = message


class PositionLost(ApiError):
    """The records before a position are not in the log any more, or are of another topic: continuing there would skip
    or repeat records.  The code is OFFSET_OUT_OF_RANGE, the base class of Java's LogTruncationException.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class MalformedRequest(KctlError):
    """The bytes cannot be decoded as a request.  Only the connection that sent them is closed."""


class UnansweredRequestFailed(KctlError):
    """A request that has no response, Produce with acks=0, failed; its connection is closed to notify the client."""


class CorruptLog(KctlError):
    """A file of a log has invalid contents at `position` (bytes); the caller decides how to recover."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogDirFailure(KctlError):
    """An IO error in a log directory, which goes offline.  Kafka's KafkaStorageException."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


_USER_IN_URL = re.compile(r"://[^/?#\s]*@")


def shown_value(value: object) -> str:
    """Return the value of a property for an error text: without the user and the password of a URL."""
    return _USER_IN_URL.sub("://[hidden]@", str(value))


class ConfigError(KctlError):
    """An invalid value of a property; `name` is Kafka's name of the property."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name}={shown_value(value)}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class UsageError(KctlError):
    """Invalid usage of the command line; exit status 2."""


class TextTooLong(UsageError, ValueError):
    """A text of a request, which comes from the user, is longer than a string of the protocol can be."""


class GuardRefused(KctlError):
    """The client refused to send a request: it is connected to another cluster than expected, or may not change it."""


class AuthenticationFailed(KctlError):
    """A broker refused this client, or this client refused the broker's certificate or proof.

    A retry does not help until a property, a credential or a certificate has been changed.
    """


class ClusterUnreachable(KctlError):
    """No broker responded within the timeout; exit status 4."""


class ZooKeeperError(KctlError):
    """ZooKeeper is unreachable, has ended the session or refused an operation; `path` is the znode, if any."""

    def __init__(self, message: str = "", path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NoNodeError(ZooKeeperError):
    """The znode does not exist."""


class NodeExistsError(ZooKeeperError):
    """The znode exists already."""


class BadVersionError(ZooKeeperError):
    """The znode has another version than the operation expects."""


class NotEmptyError(ZooKeeperError):
    """The znode has children."""


class SessionLostError(ZooKeeperError):
    """The session ended; its ephemeral nodes are gone."""


class ConnectionLossError(ZooKeeperError):
    """The connection was lost before the response: a write may have been applied, and the session may still exist."""
