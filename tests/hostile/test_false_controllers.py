"""Control-plane requests from a sender that is not the controller registered in ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kctl.errors import ApiError, ErrorCode, UnansweredRequestFailed
from kctl.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from kctl.protocol.apis.stop_replica import StopReplicaResponse
from kctl.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataResponse
from kctl.server.cluster.control.authority import NO_BROKER_EPOCH, Claim, ControllerAuthority
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, WatchEventType, ZnodeStat, ZooKeeper
from tests.hostile.conftest import Impostor
from tests.hostile.control_requests import (
    FIRST_EPOCH,
    LEADER_AND_ISR_VERSION,
    STOP_REPLICA_VERSION,
    UPDATE_METADATA_VERSION,
    controller_id,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.hostile.raw_client import Attacker
from tests.unit.handlers.world import BROKER_ID, World, play

STALE = ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize(
    ("id_offset", "epoch"), [(0, 2**31 - 1), (0, FIRST_EPOCH + 1), (0, 0), (0, -1), (1, 1), (1, 2)]
)
def test_a_controller_that_zookeeper_does_not_name_is_refused(attacker: Attacker, id_offset: int, epoch: int) -> None:
    false = controller_id(attacker) + id_offset
    roles = leader_and_isr("orders", 0, controller=false, epoch=epoch)
    stops = stop_replica("orders", 0, controller=false, epoch=epoch)
    updates = update_metadata("orders", 0, controller=false, brokers=[], epoch=epoch)
    responses = [
        attacker.call(roles, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION).error_code,
        attacker.call(stops, StopReplicaResponse, STOP_REPLICA_VERSION).error_code,
        attacker.call(updates, UpdateMetadataResponse, UPDATE_METADATA_VERSION).error_code,
    ]
    assert responses == [STALE, STALE, STALE]


def test_the_real_controller_is_accepted_after_a_false_highest_epoch(attacker: Attacker) -> None:
    false = leader_and_isr("orders", 0, controller=controller_id(attacker), epoch=2**31 - 1)
    assert attacker.call(false, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION).error_code == STALE
    topic = CreatableTopic(name="after-the-claim", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    created = attacker.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 4)
    assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_controlled_shutdown_without_the_epoch_of_the_broker_is_refused(attacker: Attacker, epoch: int) -> None:
    request = ControlledShutdownRequest(broker_id=controller_id(attacker), broker_epoch=epoch)
    response = attacker.call(request, ControlledShutdownResponse, 2)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_update_metadata_with_impossible_brokers_is_refused(impostor: Impostor) -> None:
    endpoint = UpdateMetadataEndpoint(port=2**31 - 1, host="localhost", listener="PLAINTEXT", security_protocol=0)
    for broker in (UpdateMetadataBroker(id=-1), UpdateMetadataBroker(id=impostor.broker_id, endpoints=[endpoint])):
        request = update_metadata(
            "orders",
            0,
            controller=impostor.controller_id,
            brokers=[broker],
            epoch=impostor.controller_epoch,
            broker_epoch=impostor.broker_epoch,
        )
        reply = impostor.attacker.call(request, UpdateMetadataResponse, UPDATE_METADATA_VERSION)
        assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_in_the_name_of_the_broker_itself_is_refused(attacker: Attacker) -> None:
    request = leader_and_isr("orders", 0, controller=controller_id(attacker), epoch=FIRST_EPOCH)
    assert attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION).error_code == STALE


@pytest.mark.parametrize("difference", [-1, 1, 2**40])
def test_a_request_with_another_broker_epoch_is_refused(impostor: Impostor, difference: int) -> None:
    request = leader_and_isr(
        "orders",
        0,
        controller=impostor.controller_id,
        epoch=impostor.controller_epoch,
        broker_epoch=impostor.broker_epoch + difference,
    )
    response = impostor.attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_request_without_the_broker_epoch_that_the_controller_sends_is_refused(impostor: Impostor) -> None:
    request = leader_and_isr("orders", 0, controller=impostor.controller_id, epoch=impostor.controller_epoch)
    response = impostor.attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


# The rule by itself, on a simulated ZooKeeper, whose controller is broker 0 in epoch 1 and which has a broker 1.  The
# requests are sent to broker 9.

OTHER_ID = 1
RECEIVER_ID = 9


class CountingZooKeeper:
    """Counts how often the controller epoch is read."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.reads = 0

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, ZnodeStat]:
        self.reads += path == paths.CONTROLLER_EPOCH
        return await self._zookeeper.get(path, watch=watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zookeeper, name)


def authority_over(world: World) -> tuple[ControllerAuthority, CountingZooKeeper]:
    zookeeper = CountingZooKeeper(world.zookeeper)
    return ControllerAuthority(RECEIVER_ID, cast("ZooKeeper", zookeeper)), zookeeper


async def is_confirmed(authority: ControllerAuthority, controller_id: int, epoch: int) -> bool:
    try:
        await authority.check(Claim(controller_id, epoch, NO_BROKER_EPOCH))
    except ApiError as error:
        return error.code is not STALE
    return True


async def elect_other(world: World) -> None:
    """Makes broker 1 the controller in epoch 2."""
    session = world.ensemble.session()
    await session.start(10_000)
    await world.controller.close()
    await session.delete(paths.CONTROLLER)
    await session.set(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(2))
    await session.create(paths.CONTROLLER, znodes.encode_controller(znodes.Controller(OTHER_ID, 0)), ephemeral=True)


def test_a_new_controller_is_accepted_before_the_watch_event() -> None:
    async def scene(world: World) -> None:
        authority, _ = authority_over(world)
        assert await is_confirmed(authority, BROKER_ID, 1)
        await elect_other(world)
        assert await is_confirmed(authority, OTHER_ID, 2)
        assert not await is_confirmed(authority, BROKER_ID, 1)

    play(scene, others=1)


def test_an_epoch_counts_only_with_the_controller_that_has_it() -> None:
    async def scene(world: World) -> None:
        authority, _ = authority_over(world)
        assert not await is_confirmed(authority, OTHER_ID, 1)
        await elect_other(world)
        assert not await is_confirmed(authority, BROKER_ID, 2)

    play(scene, others=1)


def test_a_controller_that_is_not_registered_is_refused() -> None:
    async def scene(world: World) -> None:
        authority, _ = authority_over(world)
        await elect_other(world)
        assert not await is_confirmed(authority, OTHER_ID, 2)

    play(scene, others=0)


def test_a_confirmed_controller_is_looked_up_again_when_the_controller_node_changes() -> None:
    async def scene(world: World) -> None:
        authority, _ = authority_over(world)
        assert await is_confirmed(authority, BROKER_ID, 1)
        await elect_other(world)
        authority.on_watch(WatchEvent(WatchEventType.DELETED, paths.CONTROLLER))
        assert not await is_confirmed(authority, BROKER_ID, 1)

    play(scene, others=1)


def test_a_thousand_false_requests_at_once_cost_two_readings_of_zookeeper() -> None:
    async def scene(world: World) -> int:
        authority, zookeeper = authority_over(world)
        confirmed = await asyncio.gather(*(is_confirmed(authority, BROKER_ID, 2 + n) for n in range(1000)))
        assert not any(confirmed)
        return zookeeper.reads

    assert play(scene) <= 2


def test_a_thousand_requests_of_the_controller_cost_one_reading_of_zookeeper() -> None:
    async def scene(world: World) -> int:
        authority, zookeeper = authority_over(world)
        for _ in range(1000):
            assert await is_confirmed(authority, BROKER_ID, 1)
        return zookeeper.reads

    assert play(scene) == 1


def test_a_request_is_not_answered_while_zookeeper_cannot_be_read() -> None:
    """A refused role would be lost: the controller sends a request again only when its connection was closed."""

    async def scene(world: World) -> None:
        authority, _ = authority_over(world)
        await world.controller.close()
        await world.zookeeper.close()
        with pytest.raises(UnansweredRequestFailed):
            await is_confirmed(authority, BROKER_ID, 1)

    play(scene)
