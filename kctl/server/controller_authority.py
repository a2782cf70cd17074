"""Checks that a request is from the controller elected in ZooKeeper.

Kafka compares controller epochs only, so that any client can send a huge one and fence the real controller.  Here a new
pair of controller and epoch is accepted after ZooKeeper has confirmed it: /controller_epoch has the epoch, /controller
has the id or does not exist, and the controller is registered under /brokers/ids.  The pair is cached until
/controller changes, so that a controller's requests cost one read, not one each.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode, NoNodeError, ZooKeeperError
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)


class _Elected(NamedTuple):
    """The state of the controller election in ZooKeeper."""

    epoch: int
    controller_id: int | None
    """None if there is no controller at the moment."""
    broker_ids: frozenset[str]

    def confirms(self, controller_id: int, epoch: int) -> bool:
        return (
            epoch == self.epoch
            and self.controller_id in {None, controller_id}
            and str(controller_id) in self.broker_ids
        )


_NO_CONTROLLER = _Elected(-1, None, frozenset())


class ControllerAuthority:
    """Call `check` before processing a request from a controller."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._confirmed: tuple[int, int] | None = None
        self._reading: asyncio.Task[_Elected] | None = None

    def on_watch(self, event: WatchEvent) -> None:
        """Clears the cached controller when /controller changes; the next request reads ZooKeeper again."""
        if event.path == paths.CONTROLLER:
            self._confirmed = None

    async def check(self, controller_id: int, epoch: int) -> None:
        """Returns at once for the cached controller.  Raises ApiError(STALE_CONTROLLER_EPOCH) for any other.

        However many requests wait, there is one pending read of ZooKeeper.  A read that was started before this call
        may not include a new controller, so it can confirm but not refuse.
        """
        if self._confirmed == (controller_id, epoch):
            return
        elected = _NO_CONTROLLER
        if self._reading is not None:
            elected = await self._read()
        if not elected.confirms(controller_id, epoch):
            elected = await self._read()
        if not elected.confirms(controller_id, epoch):
            log.warning("control request refused controller=%s epoch=%s", controller_id, epoch)
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._confirmed = controller_id, epoch

    async def _read(self) -> _Elected:
        """The result of the pending read, or of a new one."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._elected(), name="controller-authority")
            self._reading.add_done_callback(self._read_is_done)
        return await asyncio.shield(self._reading)

    def _read_is_done(self, _: asyncio.Task[_Elected]) -> None:
        self._reading = None

    async def _elected(self) -> _Elected:
        """Reads the epoch before the controller: both change in one transaction, so the pair is never older."""
        try:
            await self._zookeeper.sync(paths.CONTROLLER)
            data, _ = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
            epoch = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data)
            try:
                data, _ = await self._zookeeper.get(paths.CONTROLLER)
                controller_id: int | None = znodes.decode_controller(paths.CONTROLLER, data).broker_id
            except NoNodeError:
                controller_id = None
            return _Elected(epoch, controller_id, frozenset(await self._zookeeper.children(paths.BROKER_IDS)))
        except (ZooKeeperError, ValueError) as error:
            log.warning("cannot read the controller from zookeeper error=%s", error)
            return _NO_CONTROLLER
