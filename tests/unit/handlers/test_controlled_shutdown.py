"""ControlledShutdown: which requests take a broker out of service."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from kctl.server.handlers.controlled_shutdown import ControlledShutdownHandler
from tests.unit.handlers.world import BROKER_ID, World, exchange, play

OTHER = 1


async def shut_down(world: World, broker_id: int, version: int, epoch_difference: int = 0) -> ErrorCode:
    epoch = world.controller.state.brokers[broker_id].epoch + epoch_difference if version >= 2 else -1
    handler = ControlledShutdownHandler(world.controller)
    answer = await exchange(handler.handle, ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch), version)
    return ErrorCode.of(answer.error_code)


def test_a_broker_leads_no_new_partition_after_its_own_request() -> None:
    async def scene(world: World) -> None:
        assert await shut_down(world, OTHER, 3) is ErrorCode.NONE
        await world.topic("orders", (OTHER, BROKER_ID))
        info = world.metadata.partitions("orders")
        assert info is not None
        assert info[0].leader == BROKER_ID

    play(scene, others=1)


@pytest.mark.parametrize("difference", [-1, 1, 2**40])
def test_a_request_with_another_epoch_is_refused(difference: int) -> None:
    async def scene(world: World) -> None:
        assert await shut_down(world, OTHER, 2, difference) is ErrorCode.STALE_BROKER_EPOCH
        assert not world.controller.state.shutting_down

    play(scene, others=1)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("broker_id", [BROKER_ID, OTHER])
def test_a_request_without_an_epoch_is_refused_for_a_broker_that_sends_it(broker_id: int, version: int) -> None:
    async def scene(world: World) -> None:
        assert await shut_down(world, broker_id, version) is ErrorCode.STALE_BROKER_EPOCH
        assert not world.controller.state.shutting_down

    play(scene, others=1)


def test_a_request_without_an_epoch_is_accepted_from_another_broker_with_an_old_protocol() -> None:
    async def scene(world: World) -> None:
        assert await shut_down(world, OTHER, 1) is ErrorCode.NONE
        assert await shut_down(world, BROKER_ID, 1) is ErrorCode.STALE_BROKER_EPOCH
        assert world.controller.state.shutting_down == {OTHER}

    play(scene, others=1, registration_version=4)
