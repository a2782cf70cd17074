"""How a broker announces itself in ZooKeeper."""

from __future__ import annotations

from kctl.errors import NodeExistsError, NoNodeError, ZooKeeperError
from kctl.zookeeper import paths
from kctl.zookeeper.operations import Create, Delete, Operation, SetData, ZnodeStat, ZooKeeper
from kctl.zookeeper.znodes import BrokerRegistration, encode_broker


async def register_broker(
    zookeeper: ZooKeeper, broker_id: int, registration: BrokerRegistration, *, previous_session_id: int = 0
) -> int:
    """Write /brokers/ids/N as an ephemeral node and return its czxid, which is the broker epoch.

    The node is created empty and filled in one multi, because only the answer to setData carries the stat.  A node
    that a former session of this process left behind (`previous_session_id`) is replaced, one of this session kept; a
    node of anybody else raises ZooKeeperError: two brokers with one id.  KafkaZkClient.registerBroker.
    """
    path = paths.broker(broker_id)
    create = ephemeral_with_stat(path, encode_broker(registration))
    try:
        return _czxid(await zookeeper.multi(create))
    except NodeExistsError:
        stat = await zookeeper.exists(path)
    if stat is None:  # its session expired while we looked
        return _czxid(await zookeeper.multi(create))
    if stat.ephemeral_owner == zookeeper.session_id:
        return stat.czxid
    if stat.ephemeral_owner == previous_session_id:
        try:
            return _czxid((await zookeeper.multi([Delete(path), *create]))[1:])
        except NoNodeError:
            return _czxid(await zookeeper.multi(create))
    raise ZooKeeperError(
        f"broker.id={broker_id} is taken: session 0x{stat.ephemeral_owner:x} holds {path}; give this broker another "
        "id, or wait until the session of a broker that died has expired (zookeeper.session.timeout.ms)",
        path,
    )


def ephemeral_with_stat(path: str, data: bytes) -> list[Operation]:
    """A multi whose second result is the stat of the ephemeral node that it creates."""
    return [Create(path, None, ephemeral=True), SetData(path, data, version=0)]


def _czxid(results: list[str | ZnodeStat | bool]) -> int:
    stat = results[1]
    assert isinstance(stat, ZnodeStat)
    return stat.czxid
