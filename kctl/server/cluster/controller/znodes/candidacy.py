"""Controller election: /controller is an ephemeral node with the controller's id, /controller_epoch counts elections.

Invariant: the node and the next epoch are written in one transaction, so each epoch has exactly one controller and all
writes with an older epoch are refused.  Losing an election is not an error and is not logged; a watch on /controller
fires when the next election is due.

Owner: event loop.  Kafka: KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from kctl.errors import BadVersionError, KctlError, NodeExistsError, NoNodeError
from kctl.server.cluster.controller.znodes.znode_writer import ControllerMoved
from kctl.system.environment import Clock
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Create, SetData, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)


class ControllerLease(NamedTuple):
    """The result of a won election: the controller's epoch and the version of /controller_epoch."""

    epoch: int
    epoch_version: int


class ElectionImpossible(KctlError):
    """No broker can become controller until an operator has corrected a znode."""


class Candidacy:
    """Takes part in controller elections for one broker."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._clock = clock

    async def run(self, *, is_controller: bool) -> ControllerLease | None:
        """Read /controller and, if it does not exist, run for election; return the lease if this broker won now.

        Raises ControllerMoved when this broker is the controller (`is_controller`) and another one is registered, and
        ElectionImpossible.
        """
        path = paths.CONTROLLER
        while True:
            try:
                data, stat = await self._zookeeper.get(path, watch=True)
            except NoNodeError:
                won = await self._try()
                if won is not None:
                    return won
                continue
            winner = _decoded_broker_id(data)
            is_mine = stat.ephemeral_owner == self._zookeeper.session_id
            if is_controller:
                if is_mine and winner == self._broker_id:
                    return None
                raise ControllerMoved
            if not is_mine:
                if not stat.ephemeral_owner:
                    log.error("no election is possible, since no session owns the znode; delete it path=%s", path)
                return None
            # Left by an election whose response was lost, by a resignation, or overwritten by another program.
            log.info("deleting stale controller znode path=%s broker=%s", path, winner)
            with contextlib.suppress(NoNodeError, BadVersionError):
                await self._zookeeper.delete(path, version=stat.version)

    async def _try(self) -> ControllerLease | None:
        epoch, stat = await self._last_epoch()
        claim = znodes.Controller(self._broker_id, self._clock.now_ms())
        try:
            _, written = await self._zookeeper.multi(
                [
                    Create(paths.CONTROLLER, znodes.encode_controller(claim), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), stat.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return None
        assert isinstance(written, ZnodeStat)
        log.info("elected as controller epoch=%s", epoch + 1)
        # Sets the watch that fires when the node is deleted.
        await self._zookeeper.get(paths.CONTROLLER, watch=True)
        return ControllerLease(epoch + 1, written.version)

    async def _last_epoch(self) -> tuple[int, ZnodeStat]:
        while True:
            try:
                data, stat = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
                return znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data), stat
            except ValueError as error:
                remedy = "write a number into it that is above controller_epoch in the states of all partitions"
                raise ElectionImpossible(f"{error}; {remedy}") from None
            except NoNodeError:
                try:
                    await self._zookeeper.create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
                except NodeExistsError:
                    continue


def _decoded_broker_id(data: bytes) -> int | None:
    """Return the broker id in /controller; None if the data is invalid, which is logged."""
    try:
        return znodes.decode_controller(paths.CONTROLLER, data).broker_id
    except ValueError as error:
        log.error("ignoring invalid controller znode path=%s error=%s", paths.CONTROLLER, error)
        return None
