"""A broker's nodes in ZooKeeper: the common nodes, the cluster id, its registration.

Only one process may be broker N, wherever it runs: two with the same properties on two hosts, or with copies of one
data folder, advertise the same id and may advertise the same address.  So nothing but its session tells whether the
owner of a registration is alive.  A registration is replaced

- by its own session;
- after its session has been closed, if `EndedSessions` has proof that its process has ended;
- when its session has expired, for which the start waits.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import NamedTuple, Protocol
from uuid import UUID

from kctl.config.broker import BrokerConfig
from kctl.errors import (
    BadVersionError,
    ConnectionLossError,
    KctlError,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
)
from kctl.model import uuid_text
from kctl.system.environment import MachineClock, Random
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import BrokerRegistration, decode_broker, encode_broker
from kctl.zookeeper.operations import Create, SessionKey, SetData, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_POLL_S = 0.25
EXPIRY_DELAY_MS = 6_000
"""How much later than after its timeout a session may expire: ZooKeeper rounds up to its tick, of 2 s by default."""


class BrokerIdInUse(KctlError):
    """Another live broker has this id."""


class EndedSessions(Protocol):
    """The sessions of earlier processes with the same data folder."""

    def latest_ended(self) -> SessionKey | None:
        """Return the session of the latest of them, if there is proof that this process has ended, else None."""
        ...

    def keep(self, key: SessionKey) -> None:
        """Keep the session, which this process uses from now on."""
        ...


class NoEndedSessions:
    """Knows no earlier process: each registration that is found is waited for."""

    def latest_ended(self) -> SessionKey | None:
        """None."""
        return None

    def keep(self, key: SessionKey) -> None:
        """Do nothing."""


class Registered(NamedTuple):
    """A registration: the epoch of the broker, and the time before it was asked for."""

    broker_epoch: int
    asked_ms: int


class _Owned(NamedTuple):
    """A registration that was found."""

    stat: ZnodeStat
    where: str
    """The endpoints in it."""


async def ensure_paths(zookeeper: ZooKeeper) -> None:
    """Create the nodes that every broker expects to exist."""
    for path in paths.PERSISTENT_AT_START:
        if await zookeeper.exists(path) is None:
            try:
                await zookeeper.create(path, None, make_parents=True)
            except NodeExistsError:
                continue


async def cluster_id(zookeeper: ZooKeeper, random: Random) -> str:
    """Return the cluster id; the first broker creates it."""
    while True:
        try:
            data, _ = await zookeeper.get(paths.CLUSTER_ID)
            return znodes.decode_cluster_id(paths.CLUSTER_ID, data)
        except NoNodeError:
            new_id = uuid_text(UUID(int=random.getrandbits(128), version=4))
            try:
                await zookeeper.create(paths.CLUSTER_ID, znodes.encode_cluster_id(new_id), make_parents=True)
            except NodeExistsError:
                continue


async def choose_broker_id(zookeeper: ZooKeeper, config: BrokerConfig, *, stored: int | None) -> int:
    """Return the configured id, the one in meta.properties, or a new one.  Raises KctlError if the first two differ."""
    configured = config.broker_id
    if configured >= 0 and stored is not None and configured != stored:
        raise KctlError(
            f"broker.id={configured} differs from {stored} in meta.properties of "
            f"{config.log_directories[0]}: set broker.id={stored}, "
            f"or use the folder that belongs to broker {configured}"
        )
    if configured >= 0:
        return configured
    if stored is not None:
        return stored
    return await _generate_broker_id(zookeeper, config.reserved_broker_max_id)


async def register(
    zookeeper: ZooKeeper,
    broker_id: int,
    registration: BrokerRegistration,
    *,
    sessions: EndedSessions,
    clock: MachineClock,
    patience_ms: int,
) -> Registered:
    """Register the broker for the duration of the session.

    Waits up to `patience_ms` for the session of an earlier registration to expire.  Raises BrokerIdInUse if that is
    alive, ZooKeeperError.
    """
    path = paths.broker(broker_id)
    data = encode_broker(registration)
    ended = sessions.latest_ended()
    sessions.keep(zookeeper.session_key)
    wait = _Wait(broker_id, ended, clock, patience_ms)
    while True:
        asked_ms = clock.elapsed_ms()
        try:
            # Two operations in one transaction: only the result of the second one has the zxid of the first.
            _, stat = await zookeeper.multi([Create(path, None, ephemeral=True), SetData(path, data, 0)])
        except NodeExistsError:
            found = await _found(zookeeper, path)
        else:
            assert isinstance(stat, ZnodeStat)
            log.info("registered broker=%s epoch=%s", broker_id, stat.czxid)
            return Registered(stat.czxid, asked_ms)
        if found is None:
            continue
        owner = found.stat.ephemeral_owner
        if owner in {0, zookeeper.session_id}:
            log.warning("replacing a registration broker=%s session_id=0x%x", broker_id, owner)
            with contextlib.suppress(NoNodeError, BadVersionError):
                await zookeeper.delete(path, version=found.stat.version)
        elif ended is not None and owner == ended.session_id:
            message = "closing the session of an earlier process of this broker broker=%s session_id=0x%x"
            log.info(message, broker_id, owner)
            await zookeeper.close_other(ended, patience_ms)
            ended = None
        else:
            await wait.for_end_of(found)


class _Wait:
    """The wait for the session of another registration to expire."""

    def __init__(self, broker_id: int, ended: SessionKey | None, clock: MachineClock, patience_ms: int) -> None:
        self._broker_id = broker_id
        self._ended = ended
        self._clock = clock
        self._patience_ms = patience_ms
        self._owner = 0
        self._until_ms = 0

    async def for_end_of(self, found: _Owned) -> None:
        """Wait a little.  Raises BrokerIdInUse if the session has not expired in time, or another one follows it."""
        owner, now_ms = found.stat.ephemeral_owner, self._clock.elapsed_ms()
        if not self._owner:
            self._owner, self._until_ms = owner, now_ms + self._patience_ms
            message = "waiting for the session of another registration to expire broker=%s endpoints=%s max_wait_ms=%d"
            log.warning(message, self._broker_id, found.where, self._patience_ms)
        if owner != self._owner or now_ms >= self._until_ms:
            raise BrokerIdInUse(
                f"broker.id={self._broker_id} is registered by another broker at {found.where}, whose ZooKeeper "
                f"session 0x{owner:x} is alive: stop that broker, or choose another broker.id (a broker that runs from "
                "a copy of this data folder has its id, too)"
            )
        await asyncio.sleep(_POLL_S)


async def _found(zookeeper: ZooKeeper, path: str) -> _Owned | None:
    """Return the registration, if there is one."""
    try:
        data, stat = await zookeeper.get(path)
    except NoNodeError:
        return None
    try:
        where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in decode_broker(path, data).endpoints)
    except ValueError as error:
        log.warning("the registration that was found is invalid path=%s error=%s", path, error)
        where = "an unknown address"
    return _Owned(stat, where)


async def update_registration(zookeeper: ZooKeeper, broker_id: int, registration: BrokerRegistration) -> None:
    """Replace the registration of this broker, whose epoch stays.  Kafka: KafkaController.updateBrokerInfo.

    Tries until the result is known.  Without a registration, or with one of another session, nothing is done: the
    broker registers again.
    """
    path = paths.broker(broker_id)
    while True:
        try:
            stat = await zookeeper.exists(path)
            if stat is None or stat.ephemeral_owner != zookeeper.session_id:
                return
            await zookeeper.set(path, encode_broker(registration), version=stat.version)
        except BadVersionError:
            continue
        except ConnectionLossError as error:
            message = "cannot change the registration of this broker, trying again broker=%s error=%s retry_ms=%d"
            log.warning(message, broker_id, error, _RETRY_S * 1000)
            await asyncio.sleep(_RETRY_S)
        except (NoNodeError, SessionLostError):
            return
        else:
            return


async def announce_failed_log_dir(zookeeper: ZooKeeper, broker_id: int) -> None:
    """Notify the controller, which then finds the offline replicas.  Raises ZooKeeperError."""
    event = znodes.encode_log_dir_event(znodes.LogDirEvent(broker_id))
    await zookeeper.create(paths.LOG_DIR_EVENT_PREFIX, event, sequence=True)


async def _generate_broker_id(zookeeper: ZooKeeper, reserved_max: int) -> int:
    """Return an id above reserved.broker.max.id, counted by the version of a node.

    That node may be older than some brokers, after a restore from a backup: ids of live brokers, and of those that have
    replicas, are skipped.
    """
    taken = {*await zookeeper.children(paths.BROKER_IDS)}
    for topic in await zookeeper.children(paths.TOPICS):
        with contextlib.suppress(NoNodeError, ValueError):
            assignment = znodes.decode_topic(paths.topic(topic), (await zookeeper.get(paths.topic(topic)))[0])
            taken.update(str(replica) for replicas in assignment.replicas.values() for replica in replicas)
    while True:
        stat = await zookeeper.set(paths.BROKER_ID_SEQUENCE, None)
        broker_id = reserved_max + stat.version
        if str(broker_id) not in taken:
            return broker_id
        log.warning("skipping a generated id that another broker has broker=%s", broker_id)
