"""Who is the controller: /controller names it, and its session holds the node; /controller_epoch counts elections.

Invariant: the node and the next epoch are written in one transaction, so that each epoch has one controller and every
write of an older one is refused.  Losing an election is normal and silent.  While somebody is controller, a watch tells
when that ends.

Owner: event loop.  Kafka: KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from kctl.environment import Clock
from kctl.errors import BadVersionError, NodeExistsError, NoNodeError
from kctl.server.controller.znode_writer import ControllerMoved
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Create, SetData, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)


class Office(NamedTuple):
    """What a won election gives: the controller's epoch, and the version of the node that says so."""

    epoch: int
    epoch_version: int


class Candidacy:
    """One broker's part in elections."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._clock = clock

    async def run(self, *, holds_office: bool) -> Office | None:
        """Looks who is controller, and runs for it when nobody is; the office if it was won now.

        Raises ControllerMoved when this broker believes to hold the office and somebody else is in it.
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
            winner = _named_in(data)
            is_mine = stat.ephemeral_owner == self._zookeeper.session_id
            if holds_office:
                if is_mine and winner == self._broker_id:
                    return None
                raise ControllerMoved
            if not is_mine:
                if not stat.ephemeral_owner:
                    log.error("znode %s is not of any session: nobody is controller until it is deleted", path)
                return None
            # Of an election whose answer got lost, of an office given up, or written over by somebody.
            log.info("making %s anew, which named broker=%s", path, winner)
            with contextlib.suppress(NoNodeError, BadVersionError):
                await self._zookeeper.delete(path, version=stat.version)

    async def _try(self) -> Office | None:
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
        # The watch that tells when the node is taken away.
        await self._zookeeper.get(paths.CONTROLLER, watch=True)
        return Office(epoch + 1, written.version)

    async def _last_epoch(self) -> tuple[int, ZnodeStat]:
        while True:
            try:
                data, stat = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
                return znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data), stat
            except NoNodeError:
                try:
                    await self._zookeeper.create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
                except NodeExistsError:
                    continue


def _named_in(data: bytes) -> int | None:
    """The broker that /controller names; None, with a log line, when it makes no sense."""
    try:
        return znodes.decode_controller(paths.CONTROLLER, data).broker_id
    except ValueError as error:
        log.error("somebody wrote over the controller's name: %s", error)
        return None
