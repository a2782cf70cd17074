"""A minimal ZooKeeper and brokers for the controller's decisions."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.model import Endpoint, LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    Continue,
    DeleteTopicNodes,
    RejectTopicDeletion,
    SendStopReplica,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.cluster.controller.events import (
    BrokersRead,
    DeletionsRead,
    Elected,
    Event,
    StatesRead,
    StatesWritten,
    StopReplicaResponseReceived,
    TopicNodesDeleted,
    TopicsRead,
)
from kctl.server.cluster.controller.state import ControllerState, LiveBroker
from kctl.server.cluster.controller.step import step
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.znodes import TopicAssignment

ID = UUID(int=7)


def broker(epoch: int) -> LiveBroker:
    return LiveBroker(BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092),), 0), epoch)


def brokers(*ids: int) -> dict[int, LiveBroker]:
    return {broker_id: broker(broker_id + 100) for broker_id in ids}


def topic(*partitions: tuple[int, ...]) -> TopicAssignment:
    return TopicAssignment(dict(enumerate(partitions)), ID)


class World:
    """ZooKeeper and brokers that perform every action at once, so that its results can be observed."""

    def __init__(self, *ids: int, topics: dict[str, TopicAssignment] | None = None) -> None:
        self.state = ControllerState(broker_id=ids[0])
        self.topics = dict(topics or {})
        self.znodes: dict[TopicPartition, LeaderAndIsr] = {}
        self.reported: list[Action] = []
        self.brokers = brokers(*ids)
        self.deletions: set[str] = set()
        self.refuses_deletion: set[int] = set()
        self.feed(Elected(1, 1, self.brokers, self.topics, {}))

    def feed(self, event: Event) -> list[Action]:
        pending, seen = [event], []
        while pending:
            for action in step(self.state, pending.pop(0), 0):
                seen.append(action)
                result = self.perform(action)
                if result is not None:
                    pending.append(result)
        self.reported += seen
        return seen

    def perform(self, action: Action) -> Event | None:
        match action:
            case WriteStates():
                written = dict(action.created)
                for tp, leader in action.changed.items():
                    assert leader.partition_epoch == self.znodes[tp].partition_epoch
                    written[tp] = replace(leader, partition_epoch=leader.partition_epoch + 1)
                self.znodes.update(written)
                return StatesWritten(written)
            case SendStopReplica(is_deleting=True):
                refused = action.broker_id in self.refuses_deletion
                code = ErrorCode.KAFKA_STORAGE_ERROR if refused else ErrorCode.NONE
                return StopReplicaResponseReceived(action.broker_id, dict.fromkeys(action.partitions, code))
            case WriteAssignments():
                self.topics.update(action.topics)
            case WatchStates():
                return StatesRead({tp: self.znodes[tp] for tp in action.partitions})
            case Continue():
                return action.event
            case DeleteTopicNodes():
                del self.topics[action.topic]
                self.deletions.discard(action.topic)
                for tp in [tp for tp in self.znodes if tp.topic == action.topic]:
                    del self.znodes[tp]
                return TopicNodesDeleted(action.topic)
            case RejectTopicDeletion():
                self.deletions.discard(action.topic)
            case _:
                pass
        return None

    def create(self, name: str, assignment: TopicAssignment) -> list[Action]:
        self.topics[name] = assignment
        return self.feed(TopicsRead(dict(self.topics)))

    def live(self, *ids: int) -> list[Action]:
        self.brokers = {b: self.brokers.get(b, broker(b + 200)) for b in ids}
        return self.feed(BrokersRead(dict(self.brokers)))

    def delete(self, name: str) -> list[Action]:
        self.deletions.add(name)
        return self.feed(DeletionsRead(frozenset(self.deletions)))
