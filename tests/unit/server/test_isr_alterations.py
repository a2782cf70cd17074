"""AlterIsr: the controller's writes on request of a leader, and the leader's requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode
from kctl.model import Endpoint, LeaderAndIsr, TopicPartition
from kctl.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from kctl.server.cluster.controller.actions import AlterStates, CompleteRequest, SendUpdateMetadata
from kctl.server.cluster.controller.events import Elected, IsrAlterationsRequested, StatesAltered
from kctl.server.cluster.controller.state import ControllerState, LiveBroker
from kctl.server.cluster.controller.step import step
from kctl.server.handlers.alter_partition import AlterPartitionHandler
from kctl.server.replication.isr_changes import ISR_CHANGES_PER_REQUEST_MAX, ControllerStates
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.znodes import TopicAssignment
from tests.unit.handlers.world import World, exchange
from tests.unit.handlers.world import play as play_world

A0 = TopicPartition("a", 0)
KNOWN = LeaderAndIsr(1, 5, (1, 2, 3), 7, partition_epoch=10)


def controller() -> ControllerState:
    """Broker 1 is the controller and leads a-0 with 2 and 3 in sync."""
    state = ControllerState(broker_id=1)
    registration = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092),), 0)
    brokers = {number: LiveBroker(registration, number + 100) for number in (1, 2, 3)}
    step(state, Elected(7, 0, brokers, {"a": TopicAssignment({0: (1, 2, 3)}, UUID(int=1))}, {A0: KNOWN}), 0)
    return state


def new_state(**changes: Any) -> LeaderAndIsr:
    return replace(KNOWN, isr=(1, 2), controller_epoch=0, **changes)


def checked(expected: LeaderAndIsr, topic_partition: TopicPartition = A0) -> tuple[ErrorCode, bool]:
    """The controller's immediate response, and whether it writes."""
    (action,) = step(controller(), IsrAlterationsRequested({topic_partition: expected}), 0)
    assert isinstance(action, AlterStates)
    return action.outcome[topic_partition], bool(action.changed)


def test_the_controller_writes_a_requested_isr_based_on_the_current_state() -> None:
    assert checked(new_state()) == (ErrorCode.NONE, True)


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        (new_state(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (new_state(leader_epoch=6), ErrorCode.INVALID_REQUEST),
        (new_state(leader=2), ErrorCode.INVALID_REQUEST),
        (new_state(partition_epoch=9), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(new_state(), isr=(2, 3)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_controller_refuses_isr_changes_from_stale_states_or_non_leaders(
    expected: LeaderAndIsr, code: ErrorCode
) -> None:
    assert checked(expected) == (code, False)


def test_an_unknown_partition_gets_unknown_topic_or_partition() -> None:
    assert checked(new_state(), TopicPartition("b", 0)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)


def test_a_repeated_isr_change_gets_the_current_state() -> None:
    assert checked(replace(KNOWN, partition_epoch=9)) == (ErrorCode.NONE, False)


def test_isr_changes_are_sent_to_all_brokers_as_update_metadata_only() -> None:
    state = controller()
    written = new_state(partition_epoch=11)
    actions = step(state, StatesAltered({A0: written}, {}, (), {A0: ErrorCode.NONE}, "token"), 0)
    assert actions[0] == CompleteRequest("token", {A0: ErrorCode.NONE})
    assert {type(action) for action in actions[1:]} == {SendUpdateMetadata}
    assert state.leaders[A0] == written


def test_a_concurrent_foreign_write_of_the_partition_state_wins() -> None:
    state = controller()
    theirs = replace(KNOWN, isr=(1,), partition_epoch=11)
    response, *_ = step(state, StatesAltered({}, {A0: theirs}, (), {A0: ErrorCode.NONE}, None), 0)
    assert isinstance(response, CompleteRequest)
    assert response.outcome == {A0: ErrorCode.INVALID_UPDATE_VERSION}
    assert state.leaders[A0] == theirs


# The API


def test_the_leader_gets_the_written_state_and_non_leaders_cannot_write() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        known = world.controller.state.leaders[A0]
        assert known.isr == (0, 1)

        async def call(broker_epoch: int, isr: list[int], partition_epoch: int) -> AlterPartitionResponse:
            requested = RequestPartitionData(
                partition_index=0, leader_epoch=known.leader_epoch, new_isr=isr, partition_epoch=partition_epoch
            )
            topics = [RequestTopicData(topic_name="a", partitions=[requested])]
            request = AlterPartitionRequest(broker_id=0, broker_epoch=broker_epoch, topics=topics)
            return await exchange(AlterPartitionHandler(world.controller).handle, request, 0)  # type: ignore[no-any-return]

        epoch = world.controller.state.brokers[0].epoch
        assert (await call(epoch - 1, [0], known.partition_epoch)).error_code == ErrorCode.STALE_BROKER_EPOCH
        response = (await call(epoch, [0], known.partition_epoch)).topics[0].partitions[0]
        assert (response.error_code, response.isr, response.partition_epoch) == (0, [0], known.partition_epoch + 1)
        await world.until(lambda: (world.metadata.partitions("a") or {})[0].isr == (0,))
        again = (await call(epoch, [0, 1], known.partition_epoch)).topics[0].partitions[0]
        assert again.error_code == ErrorCode.INVALID_UPDATE_VERSION

    play_world(scene, others=1)


# The leader


class FakeController:
    """A kctl.client.connections.transport.Connection to a controller with prepared responses."""

    address = "controller"
    is_open = True

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.responses: list[AlterPartitionResponse | ConnectionLost] = []

    async def connect(self) -> Any:
        return self

    async def send(self, request: AlterPartitionRequest, *_: object, **__: object) -> Any:
        self.requests.append(request)
        await asyncio.sleep(1)
        response = self.responses.pop(0)
        if isinstance(response, ConnectionLost):
            raise response
        return response

    async def close(self) -> None:
        """Nothing to close."""


def response(*partitions: int, code: ErrorCode = ErrorCode.NONE, leader_epoch: int = 5) -> AlterPartitionResponse:
    data = [
        ResponsePartitionData(
            partition_index=number,
            error_code=code,
            leader_id=1,
            leader_epoch=leader_epoch,
            isr=[1, 2],
            partition_epoch=11,
        )
        for number in partitions
    ]
    return AlterPartitionResponse(
        error_code=ErrorCode.NONE, topics=[ResponseTopicData(topic_name="a", partitions=data)]
    )


def play(scene: Callable[[FakeController, ControllerStates], Awaitable[None]]) -> None:
    async def main(_loop: SimLoop) -> None:
        peer = FakeController()
        states = ControllerStates(1, peer.connect, broker_epoch=lambda: 101)
        await scene(peer, states)
        await states.close()

    simulate(main, seed=1)


def test_isr_changes_during_a_request_are_batched_into_the_next() -> None:
    async def scene(peer: FakeController, states: ControllerStates) -> None:
        peer.responses = [response(0), response(1, 2)]

        async def later(number: int) -> LeaderAndIsr | None:
            await asyncio.sleep(0.1 * number)
            return await states.put(TopicPartition("a", number), new_state())

        written = await asyncio.gather(*(later(number) for number in range(3)))
        assert written == [LeaderAndIsr(1, 5, (1, 2), partition_epoch=11)] * 3
        assert [len(request.topics[0].partitions) for request in peer.requests] == [1, 2]

    play(scene)


def test_many_isr_changes_are_divided_into_several_requests() -> None:
    """The controller closes the connection of a request for tens of thousands of partitions."""
    bound = ISR_CHANGES_PER_REQUEST_MAX
    count = 2 * bound + 1

    async def scene(peer: FakeController, states: ControllerStates) -> None:
        peer.responses = [response(*range(start, min(start + bound, count))) for start in range(0, count, bound)]
        written = await asyncio.gather(
            *(states.put(TopicPartition("a", number), new_state()) for number in range(count))
        )
        assert None not in written
        assert [len(request.topics[0].partitions) for request in peer.requests] == [bound, bound, 1]

    play(scene)


@pytest.mark.parametrize(
    "reported",
    [
        response(0, leader_epoch=6),
        response(0, code=ErrorCode.FENCED_LEADER_EPOCH),
        response(0, code=ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_an_isr_change_waits_for_a_newer_leader_and_isr(reported: AlterPartitionResponse) -> None:
    async def scene(peer: FakeController, states: ControllerStates) -> None:
        peer.responses = [reported]
        assert await states.put(A0, new_state()) is None

    play(scene)


@pytest.mark.parametrize(
    ("reported", "raised"),
    [
        (ConnectionLost("gone"), ConnectionLost),
        (AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[]), ApiError),
        (response(0, code=ErrorCode.UNKNOWN_SERVER_ERROR), ApiError),
    ],
)
def test_an_isr_change_with_an_unknown_outcome_is_retried(
    reported: AlterPartitionResponse | ConnectionLost, raised: type[Exception]
) -> None:
    async def scene(peer: FakeController, states: ControllerStates) -> None:
        peer.responses = [reported, response(0)]
        with pytest.raises(raised):
            await states.put(A0, new_state())
        assert await states.put(A0, new_state()) is not None

    play(scene)


def test_isr_change_replaced_by_one_of_another_epoch_gets_a_response() -> None:
    """Such a change never got a response, and the partition waited for it until its leader changed."""

    async def scene(peer: FakeController, states: ControllerStates) -> None:
        peer.responses = [response(1), response(0, code=ErrorCode.FENCED_LEADER_EPOCH)]
        sending = asyncio.ensure_future(states.put(TopicPartition("a", 1), new_state()))
        await asyncio.sleep(0.1)
        present = asyncio.ensure_future(states.put(A0, new_state()))
        await asyncio.sleep(0.1)
        late = asyncio.ensure_future(states.put(A0, new_state(leader_epoch=4)))
        with pytest.raises(ApiError):
            await asyncio.wait_for(present, 10)
        assert await late is None
        assert await sending is not None

    play(scene)
