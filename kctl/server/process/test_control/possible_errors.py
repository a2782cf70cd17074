"""The errors that a response of each API can have, so that a test gets none that its client never meets.

From the comments "Possible error codes" of Kafka's response classes (2.8, org.apache.kafka.common.requests), and what
the handlers of this broker respond.  Requests between brokers are not here, nor those of which no response with errors
can be derived: AlterClientQuotas, AlterReplicaLogDirs, AlterUserScramCredentials, DescribeLogDirs.

Pure: values only.
"""

from __future__ import annotations

from kctl.errors import ErrorCode as E

_ALWAYS = frozenset({E.UNKNOWN_SERVER_ERROR, E.INVALID_REQUEST})
"""What Kafka responds to any request in which something unexpected happens."""
_COORDINATOR = frozenset({E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR})
_GROUP = _COORDINATOR | {E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID}
_MEMBER = _GROUP | {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID}
_TRANSACTION = _COORDINATOR | {
    E.CONCURRENT_TRANSACTIONS,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.INVALID_TXN_STATE,
    E.PRODUCER_FENCED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LEADER = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE})
_LEADER_EPOCH = _LEADER | {
    E.FENCED_LEADER_EPOCH,
    E.KAFKA_STORAGE_ERROR,
    E.REPLICA_NOT_AVAILABLE,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.UNKNOWN_LEADER_EPOCH,
}
_CLUSTER = frozenset({E.CLUSTER_AUTHORIZATION_FAILED, E.NOT_CONTROLLER, E.REQUEST_TIMED_OUT})
_TOPIC_CHANGE = _CLUSTER | {
    E.INVALID_TOPIC_EXCEPTION,
    E.POLICY_VIOLATION,
    E.THROTTLING_QUOTA_EXCEEDED,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.UNKNOWN_TOPIC_OR_PARTITION,
}
_CONFIG = _CLUSTER | {E.INVALID_CONFIG, E.POLICY_VIOLATION, E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION}
_TOKEN = _CLUSTER | {
    E.DELEGATION_TOKEN_AUTH_DISABLED,
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    E.DELEGATION_TOKEN_EXPIRED,
    E.DELEGATION_TOKEN_NOT_FOUND,
    E.DELEGATION_TOKEN_OWNER_MISMATCH,
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    E.INVALID_PRINCIPAL_TYPE,
}
_SHARE_GROUP = _GROUP | {
    E.FENCED_MEMBER_EPOCH,
    E.GROUP_MAX_SIZE_REACHED,
    E.UNKNOWN_MEMBER_ID,
    E.TOPIC_AUTHORIZATION_FAILED,
}
_SHARE_FETCH = _LEADER_EPOCH | {
    E.GROUP_AUTHORIZATION_FAILED,
    E.INVALID_RECORD_STATE,
    E.INVALID_SHARE_SESSION_EPOCH,
    E.SHARE_SESSION_NOT_FOUND,
    E.SHARE_SESSION_LIMIT_REACHED,
    E.UNKNOWN_TOPIC_ID,
}

OF_FETCH_SESSIONS = frozenset({E.FETCH_SESSION_ID_NOT_FOUND, E.INVALID_FETCH_SESSION_EPOCH})
"""The errors of a Fetch request as a whole; the others are those of partitions."""

_BY_API: dict[str, frozenset[E]] = {
    "produce": _LEADER
    | {
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.CORRUPT_MESSAGE,
        E.DUPLICATE_SEQUENCE_NUMBER,
        E.INVALID_PRODUCER_EPOCH,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.INVALID_RECORD,
        E.INVALID_REQUIRED_ACKS,
        E.INVALID_TIMESTAMP,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_TXN_STATE,
        E.KAFKA_STORAGE_ERROR,
        E.MESSAGE_TOO_LARGE,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.RECORD_LIST_TOO_LARGE,
        E.REQUEST_TIMED_OUT,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.UNKNOWN_PRODUCER_ID,
        E.UNSUPPORTED_COMPRESSION_TYPE,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    },
    "fetch": _LEADER_EPOCH
    | OF_FETCH_SESSIONS
    | {E.CORRUPT_MESSAGE, E.OFFSET_NOT_AVAILABLE, E.OFFSET_OUT_OF_RANGE, E.UNSUPPORTED_COMPRESSION_TYPE},
    "list_offsets": _LEADER_EPOCH | {E.OFFSET_NOT_AVAILABLE, E.UNSUPPORTED_FOR_MESSAGE_FORMAT},
    "metadata": _LEADER | {E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED},
    "offset_commit": _MEMBER
    | {
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.OFFSET_METADATA_TOO_LARGE,
        E.REQUEST_TIMED_OUT,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    },
    "offset_fetch": _GROUP | {E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNSTABLE_OFFSET_COMMIT},
    "find_coordinator": frozenset(
        {
            E.COORDINATOR_LOAD_IN_PROGRESS,
            E.COORDINATOR_NOT_AVAILABLE,
            E.GROUP_AUTHORIZATION_FAILED,
            E.INVALID_GROUP_ID,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }
    ),
    "join_group": _GROUP
    | {
        E.FENCED_INSTANCE_ID,
        E.GROUP_MAX_SIZE_REACHED,
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_SESSION_TIMEOUT,
        E.MEMBER_ID_REQUIRED,
        E.REBALANCE_IN_PROGRESS,
        E.UNKNOWN_MEMBER_ID,
    },
    "heartbeat": _MEMBER,
    "leave_group": _GROUP | {E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID},
    "sync_group": _MEMBER | {E.INCONSISTENT_GROUP_PROTOCOL},
    "describe_groups": _GROUP,
    "list_groups": _COORDINATOR,
    "api_versions": frozenset(),
    "create_topics": _TOPIC_CHANGE
    | {
        E.INVALID_CONFIG,
        E.INVALID_PARTITIONS,
        E.INVALID_REPLICATION_FACTOR,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.TOPIC_ALREADY_EXISTS,
    },
    "delete_topics": _TOPIC_CHANGE | {E.TOPIC_DELETION_DISABLED},
    "delete_records": _LEADER
    | {E.OFFSET_OUT_OF_RANGE, E.POLICY_VIOLATION, E.REQUEST_TIMED_OUT}
    | {E.TOPIC_AUTHORIZATION_FAILED},
    "init_producer_id": _TRANSACTION | {E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TRANSACTION_TIMEOUT},
    "offset_for_leader_epoch": _LEADER_EPOCH,
    "add_partitions_to_txn": _TRANSACTION
    | {E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION},
    "add_offsets_to_txn": _TRANSACTION | {E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID},
    "end_txn": _TRANSACTION,
    "txn_offset_commit": _MEMBER
    | {
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.INVALID_PRODUCER_EPOCH,
        E.OFFSET_METADATA_TOO_LARGE,
        E.REQUEST_TIMED_OUT,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    },
    "describe_acls": _CLUSTER | {E.SECURITY_DISABLED},
    "create_acls": _CLUSTER | {E.SECURITY_DISABLED},
    "delete_acls": _CLUSTER | {E.SECURITY_DISABLED},
    "describe_configs": _CONFIG,
    "alter_configs": _CONFIG,
    "incremental_alter_configs": _CONFIG,
    "create_partitions": _TOPIC_CHANGE
    | {E.INVALID_PARTITIONS, E.INVALID_REPLICA_ASSIGNMENT, E.REASSIGNMENT_IN_PROGRESS},
    "create_delegation_token": _TOKEN,
    "renew_delegation_token": _TOKEN,
    "expire_delegation_token": _TOKEN,
    "describe_delegation_token": _TOKEN,
    "delete_groups": _GROUP | {E.GROUP_ID_NOT_FOUND, E.NON_EMPTY_GROUP},
    "elect_leaders": _CLUSTER
    | {E.ELECTION_NOT_NEEDED, E.ELIGIBLE_LEADERS_NOT_AVAILABLE, E.PREFERRED_LEADER_NOT_AVAILABLE}
    | {E.UNKNOWN_TOPIC_OR_PARTITION},
    "alter_partition_reassignments": _CLUSTER
    | {E.INVALID_REPLICA_ASSIGNMENT, E.NO_REASSIGNMENT_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION},
    "list_partition_reassignments": _CLUSTER,
    "offset_delete": _GROUP
    | {E.GROUP_ID_NOT_FOUND, E.GROUP_SUBSCRIBED_TO_TOPIC, E.NON_EMPTY_GROUP, E.TOPIC_AUTHORIZATION_FAILED}
    | {E.UNKNOWN_TOPIC_OR_PARTITION},
    "describe_client_quotas": _CLUSTER,
    "describe_user_scram_credentials": _CLUSTER | {E.RESOURCE_NOT_FOUND},
    "update_features": _CLUSTER | {E.FEATURE_UPDATE_FAILED},
    "describe_cluster": frozenset({E.CLUSTER_AUTHORIZATION_FAILED}),
    "describe_producers": _LEADER | {E.TOPIC_AUTHORIZATION_FAILED},
    "describe_transactions": _COORDINATOR | {E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.TRANSACTIONAL_ID_NOT_FOUND},
    "list_transactions": _COORDINATOR,
    "consumer_group_heartbeat": _GROUP
    | {
        E.FENCED_INSTANCE_ID,
        E.FENCED_MEMBER_EPOCH,
        E.GROUP_MAX_SIZE_REACHED,
        E.UNKNOWN_MEMBER_ID,
        E.UNRELEASED_INSTANCE_ID,
        E.UNSUPPORTED_ASSIGNOR,
    },
    "consumer_group_describe": _GROUP | {E.GROUP_ID_NOT_FOUND},
    "share_group_heartbeat": _SHARE_GROUP,
    "share_group_describe": _GROUP | {E.GROUP_ID_NOT_FOUND},
    "share_fetch": _SHARE_FETCH,
    "share_acknowledge": _SHARE_FETCH,
}


def possible_errors(api_name: str) -> frozenset[E]:
    """Return the errors of an API, by its name in snake case; none for APIs that clients do not use."""
    errors = _BY_API.get(api_name)
    return frozenset() if errors is None else errors | _ALWAYS
