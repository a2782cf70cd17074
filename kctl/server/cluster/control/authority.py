"""Checks that a request is from the controller elected in ZooKeeper.

Kafka compares controller epochs only, so that any client can send a huge one and fence the real controller.  Here a
request is accepted after ZooKeeper has confirmed its claim: /controller_epoch has the epoch, /controller has the id or
does not exist, the controller is registered under /brokers/ids, and the broker epoch, if the request has one, is that
of this broker's registration (KIP-380).  A confirmed claim is cached until /controller changes, so that a controller's
requests cost one read, not one each.

Two claims are refused without a read.  This broker's own controller does not send requests to itself over the network.
And a controller that has sent the broker epoch once sends it always, because it depends on its
inter.broker.protocol.version; clients do not get the epoch.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode, NoNodeError, UnansweredRequestFailed, ZooKeeperError
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

NO_BROKER_EPOCH = -1


class Claim(NamedTuple):
    """The sender and the receiver as a control request names them."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    """-1 from controllers before inter.broker.protocol.version 2.2."""


class _Elected(NamedTuple):
    """The state of the controller election in ZooKeeper."""

    controller_epoch: int
    controller_id: int | None
    """None if there is no controller at the moment."""
    broker_ids: frozenset[str]
    broker_epoch: int | None
    """Zxid of this broker's registration; None while it is not registered."""

    def refusal(self, claim: Claim) -> ErrorCode:
        """NONE if ZooKeeper confirms the claim, else the error for the request."""
        if (
            claim.controller_epoch != self.controller_epoch
            or self.controller_id not in {None, claim.controller_id}
            or str(claim.controller_id) not in self.broker_ids
        ):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if claim.broker_epoch not in {NO_BROKER_EPOCH, self.broker_epoch}:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE


_NO_CONTROLLER = _Elected(-1, None, frozenset(), None)


class ControllerAuthority:
    """Call `check` before processing a request from a controller."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._confirmed: Claim | None = None
        self._reading: asyncio.Task[_Elected | None] | None = None

    def on_watch(self, event: WatchEvent) -> None:
        """Clear the cached claim when /controller changes; the next request reads ZooKeeper again."""
        if event.path == paths.CONTROLLER:
            self._confirmed = None

    async def check(self, claim: Claim) -> None:
        """Return at once for the cached claim.

        Raises ApiError: STALE_CONTROLLER_EPOCH if the sender is not the elected controller, STALE_BROKER_EPOCH if it
        is for an earlier registration of this broker.  Raises UnansweredRequestFailed while ZooKeeper cannot be read: a
        controller sends a request again when its connection was closed, but does not when it was refused.
        """
        if claim == self._confirmed:
            return
        refusal = self._obvious_refusal(claim) or await self._looked_up(claim)
        if refusal:
            log.warning(
                "refusing a control request controller=%s controller_epoch=%s broker_epoch=%s error=%s",
                *claim,
                refusal.name,
            )
            raise ApiError(refusal)
        self._confirmed = claim

    def _obvious_refusal(self, claim: Claim) -> ErrorCode:
        if claim.controller_id == self._broker_id:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        confirmed = self._confirmed
        if confirmed is not None and claim == confirmed._replace(broker_epoch=NO_BROKER_EPOCH):
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    async def _looked_up(self, claim: Claim) -> ErrorCode:
        """Return the result of reading ZooKeeper; however many requests wait, there is one pending read.

        A read that was started before this call may not include a new controller, so it can confirm but not refuse.
        """
        if self._reading is not None:
            earlier = await self._read()
            if earlier is not None and earlier.refusal(claim) is ErrorCode.NONE:
                return ErrorCode.NONE
        elected = await self._read()
        if elected is None:
            raise UnansweredRequestFailed("the controller cannot be read in ZooKeeper")
        return elected.refusal(claim)

    async def _read(self) -> _Elected | None:
        """Return the result of the pending read, or of a new one."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._elected(), name="controller-authority")
            self._reading.add_done_callback(self._read_is_done)
        return await asyncio.shield(self._reading)

    def _read_is_done(self, _: asyncio.Task[_Elected | None]) -> None:
        self._reading = None

    async def _elected(self) -> _Elected | None:
        """Read the epoch before the controller: both change in one transaction, so the pair is never older.

        None if ZooKeeper does not respond.
        """
        try:
            await self._zookeeper.sync(paths.CONTROLLER)
            data, _ = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
            epoch = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, data)
            controller_id: int | None = None
            broker_epoch: int | None = None
            try:
                data, _ = await self._zookeeper.get(paths.CONTROLLER)
                controller_id = znodes.decode_controller(paths.CONTROLLER, data).broker_id
            except NoNodeError:
                pass
            try:
                _, stat = await self._zookeeper.get(paths.broker(self._broker_id))
                broker_epoch = stat.czxid
            except NoNodeError:
                pass
            broker_ids = frozenset(await self._zookeeper.children(paths.BROKER_IDS))
            return _Elected(epoch, controller_id, broker_ids, broker_epoch)
        except (ZooKeeperError, ValueError) as error:
            log.warning(
                "cannot read the controller in ZooKeeper, refusing its request path=%s error=%s",
                paths.CONTROLLER,
                error,
            )
            return None if isinstance(error, ZooKeeperError) else _NO_CONTROLLER
