"""The paths of Kafka's znodes; the session prepends the chroot of `zookeeper.connect`.

Names of users and clients are percent-encoded as by Kafka's Sanitizer; topics, broker ids and the default entity
`<default>` are not.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_ID_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATIONS = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATIONS = "/log_dir_event_notification"
LATEST_PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105 - a path

DEFAULT_ENTITY = "<default>"

ISR_CHANGE_PREFIX = f"{ISR_CHANGE_NOTIFICATIONS}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENT_NOTIFICATIONS}/log_dir_event_"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELEGATION_TOKEN_CHANGE_PREFIX = f"{DELEGATION_TOKEN_CHANGES}/token_change_"

PERSISTENT_AT_START = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_ID_SEQUENCE,
    ISR_CHANGE_NOTIFICATIONS,
    LATEST_PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATIONS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Created with null data by every broker at its start.  KafkaZkClient.createTopLevelPaths."""


def broker(broker_id: int) -> str:
    """Registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of the assignment of a topic."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """Parent of the partitions of a topic."""
    return f"{TOPICS}/{name}/partitions"


def partition(topic_name: str, partition_id: int) -> str:
    """Parent of the state of a partition."""
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}"


def partition_state(topic_name: str, partition_id: int) -> str:
    """Leader and ISR of a partition."""
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}/state"


def delete_topic(name: str) -> str:
    """Return the path of the deletion request of a topic."""
    return f"{DELETE_TOPICS}/{name}"


def config_entity(entity_path: str) -> str:
    """Return the path of the configuration of an entity, such as `topics/orders` or `users/alice/clients/<default>`."""
    return f"{CONFIG}/{entity_path}"


def topic_config(name: str) -> str:
    """Return the path of the configuration of a topic."""
    return f"{CONFIG}/topics/{name}"


def broker_config(broker_id: int | None) -> str:
    """Dynamic configuration of one broker; for None the default of all brokers."""
    return f"{CONFIG}/brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def consumer_offset(group: str, topic_name: str, partition_id: int) -> str:
    """Return the offset committed by OffsetCommit version 0."""
    return f"/consumers/{group}/offsets/{topic_name}/{partition_id}"


def parent(path: str) -> str:
    """Return the parent path; that of the root is the root."""
    return path.rpartition("/")[0] or "/"


def sequence_number(name: str) -> int:
    """Return the number at the end of a sequential znode's name.  Raises ValueError if there is none."""
    return int(sequence_digits(name))


def sequence_digits(name: str) -> str:
    """Return the end of a sequential znode's name, which sorts by age: ten digits."""
    return name[-10:]


def sanitize(name: str) -> str:
    """Encode a user or client name as a path element.  Kafka's Sanitizer: URL encoding with %20 for space."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(element: str) -> str:
    """Decode a path element to a user or client name."""
    return unquote(element)


def delegation_token(token_id: str) -> str:
    """Return a delegation token (KIP-48)."""
    return f"{DELEGATION_TOKENS}/{token_id}"
