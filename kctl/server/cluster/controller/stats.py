"""Counts and durations of the controller's work, for metrics.  Kafka: ControllerStats, ControllerState.

Owner: event loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from enum import Enum

from kctl.server.cluster.controller.actions import WriteStates
from kctl.server.cluster.controller.events import (
    ControlledShutdownRequested,
    ElectionRequested,
    Event,
    IsrAlterationsRequested,
    LeaderAndIsrResponseReceived,
    ReassignmentsRequested,
    RebalanceDue,
    Resigned,
)
from kctl.server.cluster.controller.state import ControllerState
from kctl.zookeeper import paths

SAMPLES_MAX = 1028


class Work(Enum):
    """The kinds of work of the controller, with Kafka's number of the state and name of the rate."""

    IDLE = (0, "")
    CONTROLLER_CHANGE = (1, "ControllerChange")
    BROKER_CHANGE = (2, "LeaderElection")
    """Kafka reports the time of changes of brokers as the time of leader elections."""
    TOPIC_CHANGE = (3, "TopicChange")
    TOPIC_DELETION = (4, "TopicDeletion")
    PARTITION_REASSIGNMENT = (5, "PartitionReassignment")
    AUTO_LEADER_BALANCE = (6, "AutoLeaderBalance")
    MANUAL_LEADER_BALANCE = (7, "ManualLeaderBalance")
    CONTROLLED_SHUTDOWN = (8, "ControlledShutdown")
    ISR_CHANGE = (9, "IsrChange")
    LEADER_AND_ISR_RESPONSE_RECEIVED = (10, "LeaderAndIsrResponseReceived")
    LOG_DIR_CHANGE = (11, "LogDirChange")
    CONTROLLER_SHUTDOWN = (12, "ControllerShutdown")
    UNCLEAN_LEADER_ELECTION_ENABLE = (13, "UncleanLeaderElectionEnable")

    @property
    def number(self) -> int:
        """Kafka's number of the state, the value of ControllerState."""
        return self.value[0]

    @property
    def label(self) -> str:
        """The beginning of the name of Kafka's rate."""
        return self.value[1]


_BY_PATH: Mapping[str, Work] = {
    paths.CONTROLLER: Work.CONTROLLER_CHANGE,
    paths.BROKER_IDS: Work.BROKER_CHANGE,
    paths.TOPICS: Work.TOPIC_CHANGE,
    paths.DELETE_TOPICS: Work.TOPIC_DELETION,
    paths.REASSIGN_PARTITIONS: Work.PARTITION_REASSIGNMENT,
    paths.PREFERRED_REPLICA_ELECTION: Work.MANUAL_LEADER_BALANCE,
    paths.ISR_CHANGE_NOTIFICATIONS: Work.ISR_CHANGE,
    paths.LOG_DIR_EVENT_NOTIFICATIONS: Work.LOG_DIR_CHANGE,
}
_BY_EVENT: Mapping[type, Work] = {
    ReassignmentsRequested: Work.PARTITION_REASSIGNMENT,
    RebalanceDue: Work.AUTO_LEADER_BALANCE,
    ElectionRequested: Work.MANUAL_LEADER_BALANCE,
    ControlledShutdownRequested: Work.CONTROLLED_SHUTDOWN,
    IsrAlterationsRequested: Work.ISR_CHANGE,
    LeaderAndIsrResponseReceived: Work.LEADER_AND_ISR_RESPONSE_RECEIVED,
    Resigned: Work.CONTROLLER_SHUTDOWN,
}


def work_of(cause: str | Event) -> Work:
    """Return the kind of work that a path in ZooKeeper, or an event, leads to."""
    if not isinstance(cause, str):
        return _BY_EVENT.get(type(cause), Work.UNCLEAN_LEADER_ELECTION_ENABLE)
    if cause.startswith(paths.CONFIG):
        return Work.UNCLEAN_LEADER_ELECTION_ENABLE
    found = _BY_PATH.get(cause)
    if found is None:
        found = Work.TOPIC_CHANGE if cause.startswith(paths.TOPICS) else Work.BROKER_CHANGE
    return found


class ControllerStats:
    """The counters of one controller."""

    def __init__(self) -> None:
        self.current = Work.IDLE
        self.counts: defaultdict[Work, int] = defaultdict(int)
        self.latest_ms: defaultdict[Work, deque[float]] = defaultdict(lambda: deque(maxlen=SAMPLES_MAX))
        self.unclean_elections = 0

    def done(self, work: Work, took_ms: float) -> None:
        """Work is done."""
        self.counts[work] += 1
        self.latest_ms[work].append(took_ms)
        self.current = Work.IDLE

    def elected(self, state: ControllerState, action: WriteStates) -> None:
        """Leaders are about to be written; counts those that were not in sync."""
        for topic_partition, new in action.changed.items():
            old = state.leaders.get(topic_partition)
            if old is not None and new.leader >= 0 and new.leader not in old.isr:
                self.unclean_elections += 1
