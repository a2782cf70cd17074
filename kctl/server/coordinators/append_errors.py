"""Maps errors of appends to the coordinator's log to errors that clients of the coordinator understand."""

from __future__ import annotations

from kctl.errors import ErrorCode

_LOG_UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

_COMMIT = _LOG_UNAVAILABLE | dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
_GROUP = (
    _LOG_UNAVAILABLE
    | dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
)
_TRANSACTION = _LOG_UNAVAILABLE | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def commit_error(error: ErrorCode) -> ErrorCode:
    """The error for OffsetCommit."""
    return _COMMIT.get(error, error)


def group_error(error: ErrorCode) -> ErrorCode:
    """The error for SyncGroup and JoinGroup; a timeout makes the member join again."""
    return _GROUP.get(error, error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """The error for every request to a transaction coordinator."""
    return _TRANSACTION.get(error, error)
