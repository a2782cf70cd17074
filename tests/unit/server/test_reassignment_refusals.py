"""Invalid reassignments are refused with a message."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.errors import ErrorCode
from kctl.model import Endpoint, TopicPartition
from kctl.server.cluster.controller.rules.reassignments import reason_to_refuse
from kctl.server.cluster.controller.state import ControllerState, LiveBroker
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.znodes import TopicAssignment
from tests.rows import for_rows


def cluster() -> ControllerState:
    """Brokers 0 to 2 are live, 3 is offline; `orders` exists, `going` is being deleted."""
    registration = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092),), 0)
    state = ControllerState(broker_id=0, is_active=True)
    state.brokers = {broker_id: LiveBroker(registration, broker_id) for broker_id in range(3)}
    state.topics = dict.fromkeys(("orders", "going"), TopicAssignment({0: (0, 3)}, None))
    state.deleting = {"going"}
    return state


@for_rows(
    "topic_partition, expected, code, words",
    [
        (TopicPartition("orders", 0), (0, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add: 9; live brokers: 0, 1, 2"),
        (
            TopicPartition("orders", 0),
            (0, 1, 1),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "twice in the replicas: 0, 1, 1",
        ),
        (TopicPartition("orders", 0), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (TopicPartition("orders", 0), (0, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "invalid broker id: 0, -1"),
        (TopicPartition("orders", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment"),
        (TopicPartition("orders", 7), (0, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition orders-7"),
        (TopicPartition("nothing", 0), (0, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition nothing-0"),
        (TopicPartition("nothing", 0), (0, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add: 9; live brokers: 0, 1, 2"),
        (TopicPartition("nothing", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment"),
        (TopicPartition("going", 0), (0, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "going is being deleted"),
    ],
)
def test_invalid_reassignments_are_refused_with_a_message(
    topic_partition: TopicPartition, expected: Sequence[int] | None, code: ErrorCode, words: str
) -> None:
    error = reason_to_refuse(cluster(), topic_partition, expected)
    assert error is not None
    assert error.code is code
    assert words in str(error)


def test_an_offline_broker_may_stay_in_the_assignment() -> None:
    """Only added replicas have to be alive, as in Kafka."""
    assert reason_to_refuse(cluster(), TopicPartition("orders", 0), (3, 1)) is None
