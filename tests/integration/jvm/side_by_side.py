"""Sends the same requests to Apache Kafka and to kctl and makes their responses comparable.

Both brokers use one ZooKeeper, each with its own chroot, so that their znodes can be compared too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.protocol import registry
from kctl.server.broker.releases import versions_of_release
from tests.peers import probe
from tests.peers.apache_kafka import OLDEST_JUDGE, apache_kafka
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import kctl_broker

APACHE, OURS = "apache", "ours"
LEFT_OUT = {"throttle_time_ms", "topic_id", "cluster_id", "port"}
"""Fields that differ between two brokers."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One request; in the newest version by default.  `difference` is the reason why kctl's response is intended to
    differ.
    """

    name: str
    request: Any
    version: int | None = None
    difference: str | None = None


@dataclasses.dataclass(frozen=True)
class Responses:
    """The responses of both brokers to one case."""

    case: Case
    apache: Any
    ours: Any


class SideBySide:
    """Both brokers, by their bootstrap addresses, and the ZooKeeper that they share."""

    def __init__(self, bootstraps: dict[str, str], zookeeper: str) -> None:
        self.bootstraps = bootstraps
        self.zookeeper = zookeeper

    def call(self, cases: Sequence[Case]) -> list[Responses]:
        """Sends the requests to both brokers in this order, one after the other."""
        responses = {who: asyncio.run(_play(bootstrap, cases)) for who, bootstrap in self.bootstraps.items()}
        return [Responses(*case) for case in zip(cases, responses[APACHE], responses[OURS], strict=True)]

    @contextlib.contextmanager
    def zookeepers(self) -> Iterator[list[KazooClient]]:
        """A client of ZooKeeper for each broker, in its chroot."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(_kazoo(f"{self.zookeeper}/{who}")) for who in self.bootstraps]

    def stored(self, who: str, path: str) -> dict[str, bytes | None]:
        """The data of all znodes of one broker from `path` on."""
        with _kazoo(f"{self.zookeeper}/{who}") as client:
            return dict(_nodes(client, path))


@contextlib.contextmanager
def side_by_side(
    folder: Path,
    *,
    properties: Mapping[str, str] | None = None,
    apache_properties: Mapping[str, str] | None = None,
    apache_port: int | None = None,
    our_properties: Mapping[str, str] | None = None,
    our_port: int | None = None,
    version: str = OLDEST_JUDGE,
) -> Iterator[SideBySide]:
    """One broker of each, both with `properties`; Apache Kafka in the given version."""
    common = dict(properties or {})
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(embedded_zookeeper(folder / "zookeeper")).connect
        apache = stack.enter_context(
            apache_kafka(
                version,
                folder / APACHE,
                zookeeper=f"{zookeeper}/{APACHE}",
                port=apache_port,
                properties=common | dict(apache_properties or {}),
            )
        )
        ours = stack.enter_context(
            kctl_broker(
                folder / OURS / "data",
                zookeeper=f"{zookeeper}/{OURS}",
                port=our_port,
                properties={"broker.id": "0", **common, **(our_properties or {})},
            )
        )
        yield SideBySide({APACHE: apache, OURS: ours.bootstrap}, zookeeper)


def assert_same(responses: Sequence[Responses]) -> None:
    """Fails with all cases that differ without a reason, and with outdated reasons."""
    wrong = []
    for response in responses:
        apache, ours = comparable(response.apache), comparable(response.ours)
        if (apache != ours) != (response.case.difference is not None):
            wrong.append(f"{response.case.name} ({response.case.difference}):\n  apache {apache}\n  ours   {ours}")
    assert not wrong, "\n" + "\n".join(wrong)


def comparable(value: Any) -> Any:
    """The response without order and without fields that differ; for an error message only whether there is one."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: _message_kind(inner) if field.name == "error_message" else comparable(inner)
            for field in dataclasses.fields(value)
            if field.name not in LEFT_OUT
            for inner in [getattr(value, field.name)]
        }
    if isinstance(value, list):
        return sorted(map(comparable, value), key=repr)
    return "NaN" if value != value else value


def _message_kind(message: str | None) -> str:
    return "null" if message is None else "text" if message else "empty"


async def _play(bootstrap: str, cases: Sequence[Case]) -> list[Any]:
    connection = await _connect(bootstrap)
    responses: list[Any] = []
    try:
        for case in cases:
            api = registry.api_of(type(case.request))
            of_judge = versions_of_release("2.8").get(api.key, api.served)
            version = min(api.served[-1], of_judge[-1]) if case.version is None else case.version
            responses.append(await connection.send(case.request, api.response, version=version))
    finally:
        await connection.close()
    return responses


async def _connect(bootstrap: str) -> AsyncioConnection:
    host, port = probe.address(bootstrap)
    return await AsyncioTransport().connect(
        host, port, client_id="side-by-side", connect_timeout_ms=30_000, timeout_ms=60_000
    )


@contextlib.contextmanager
def _kazoo(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _nodes(client: KazooClient, path: str) -> Iterator[tuple[str, bytes | None]]:
    yield path, client.get(path)[0]
    for name in client.get_children(path):
        yield from _nodes(client, f"{path}/{name}")
