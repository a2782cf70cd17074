"""A broker's nodes in ZooKeeper: the common nodes, the cluster id, its registration.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from kctl.config.broker import BrokerConfig
from kctl.environment import Random
from kctl.errors import ConnectionLossError, KctlError, NodeExistsError, NoNodeError, SessionLostError
from kctl.model import uuid_text
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import BrokerRegistration, decode_broker, encode_broker
from kctl.zookeeper.operations import Create, Delete, Operation, SetData, ZnodeStat, ZooKeeper

log = logging.getLogger(__name__)

_RETRY_S = 1.0


class BrokerIdInUse(KctlError):
    """Another live broker has this id."""


async def ensure_paths(zookeeper: ZooKeeper) -> None:
    """Creates the nodes that every broker expects to exist."""
    for path in paths.PERSISTENT_AT_START:
        if await zookeeper.exists(path) is None:
            try:
                await zookeeper.create(path, None, make_parents=True)
            except NodeExistsError:
                continue


async def cluster_id(zookeeper: ZooKeeper, random: Random) -> str:
    """The cluster id; the first broker creates it."""
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
    """The configured id, the one in meta.properties, or a new one.  Raises KctlError if the first two differ."""
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


async def register(zookeeper: ZooKeeper, broker_id: int, registration: BrokerRegistration) -> int:
    """Registers the broker for the duration of the session; returns its epoch.

    The registration of a killed process of this broker is replaced: this process holds the broker's port and data
    folder, so that one cannot be alive.  Raises BrokerIdInUse for the registration of any other broker.
    """
    path = paths.broker(broker_id)
    data = encode_broker(registration)
    while True:
        try:
            # Two operations in one transaction: only the result of the second one has the zxid of the first.
            _, stat = await zookeeper.multi([Create(path, None, ephemeral=True), SetData(path, data, 0)])
        except NodeExistsError:
            await _clear_leftover(zookeeper, broker_id, registration)
            continue
        assert isinstance(stat, ZnodeStat)
        log.info("registered broker=%s epoch=%s", broker_id, stat.czxid)
        return stat.czxid


async def update_registration(zookeeper: ZooKeeper, broker_id: int, registration: BrokerRegistration) -> None:
    """Replaces the registration of this broker, whose epoch stays.  Kafka: KafkaController.updateBrokerInfo.

    Tries until the result is known.  Without a registration, or with another session, nothing is done: the broker
    registers again.
    """
    while True:
        try:
            await zookeeper.set(paths.broker(broker_id), encode_broker(registration))
        except ConnectionLossError as error:
            message = "cannot change the registration of this broker, trying again broker=%s error=%s retry_ms=%d"
            log.warning(message, broker_id, error, _RETRY_S * 1000)
            await asyncio.sleep(_RETRY_S)
        except (NoNodeError, SessionLostError):
            return
        else:
            return


async def announce_failed_log_dir(zookeeper: ZooKeeper, broker_id: int) -> None:
    """Notifies the controller, which then finds the offline replicas.  Raises ZooKeeperError."""
    event = znodes.encode_log_dir_event(znodes.LogDirEvent(broker_id))
    await zookeeper.create(paths.LOG_DIR_EVENT_PREFIX, event, sequence=True)


async def _generate_broker_id(zookeeper: ZooKeeper, reserved_max: int) -> int:
    """An id above reserved.broker.max.id, counted by the version of a node."""
    stat = await zookeeper.set(paths.BROKER_ID_SEQUENCE, None)
    return reserved_max + stat.version


async def _clear_leftover(zookeeper: ZooKeeper, broker_id: int, own: BrokerRegistration) -> None:
    path = paths.broker(broker_id)
    try:
        data, stat = await zookeeper.get(path)
    except NoNodeError:
        return
    try:
        other = decode_broker(path, data)
    except ValueError as error:
        log.error("replacing the invalid registration of this broker broker=%s error=%s", broker_id, error)
        await zookeeper.delete(path, recursive=True)
        return
    if set(other.endpoints).isdisjoint(own.endpoints) and stat.ephemeral_owner != zookeeper.session_id:
        where = ", ".join(f"{e.host}:{e.port}" for e in other.endpoints)
        raise BrokerIdInUse(
            f"broker.id={broker_id} is registered by another broker at {where}: "
            "choose another broker.id, or wait for that broker's session to end"
        )
    operations: list[Operation] = [Delete(path, stat.version)]
    try:
        _, controller_stat = await zookeeper.get(paths.CONTROLLER)
        if controller_stat.ephemeral_owner == stat.ephemeral_owner:
            operations.append(Delete(paths.CONTROLLER, controller_stat.version))
    except NoNodeError:
        pass
    log.info("replacing the registration of a dead process broker=%s", broker_id)
    try:
        await zookeeper.multi(operations)
    except NoNodeError:
        return
