"""A client of the keeper without a connection that records its watch events."""

from __future__ import annotations

from kctl.system.steps import run_at_once
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, Acl, Id
from kctl.zookeeper.embedded.keeper import Keeper, StoredState
from kctl.zookeeper.embedded.messages import requests, responses
from kctl.zookeeper.embedded.messages.codes import Code, CreateMode, EventType, KeeperError
from kctl.zookeeper.operations import ZnodeStat

TIMEOUT_MS = 10_000


def new_keeper() -> Keeper:
    """An empty keeper; the first zxid is 1."""
    return Keeper(StoredState(), now_ms=0, wall_ms=0)


class Player:
    """Results are short texts: a path, a stat, data, or the name of the error."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.session_id = keeper.open_session(bytes(16), TIMEOUT_MS, now_ms=0).id
        self.identities: tuple[Id, ...] = (Id("ip", "127.0.0.1"),)
        self.received: list[tuple[str, str]] = []
        self.received_zxids: list[int] = []

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        self.received.append((event.name, path))
        self.received_zxids.append(zxid)

    def take_received(self) -> list[tuple[str, str]]:
        received, self.received = self.received, []
        return received

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: tuple[Acl, ...] | None = OPEN_ACL_UNSAFE,
    ) -> str:
        return self._path(self._write(requests.Create(path, data, acl, mode)))

    def create_container(self, path: str) -> str:
        flags = CreateMode.CONTAINER
        return self._path(self._write(requests.Create(path, b"", OPEN_ACL_UNSAFE, flags, is_container=True)))

    def delete(self, path: str, version: int = -1) -> str:
        return self._path(self._write(requests.Delete(path, version)))

    def set(self, path: str, data: bytes | None, version: int = -1) -> str:
        return self._path(self._write(requests.SetData(path, data, version)))

    def multi(self, *operations: requests.Create | requests.Delete | requests.SetData | requests.Check) -> list[str]:
        response = run_at_once(self.keeper.multi(self, requests.Multi(operations), wall_ms=5))
        return [result.code.name if isinstance(result, responses.Failed) else "ok" for result in response.results]

    def get(self, path: str, *, watch: bool = False) -> bytes | str | None:
        response = self._read(requests.GetData(path, watch))
        return response.data if isinstance(response, responses.Data) else str(response)

    def children(self, path: str, *, watch: bool = False) -> list[str] | str:
        response = self._read(requests.GetChildren(path, watch))
        return sorted(response.names) if isinstance(response, responses.Children) else str(response)

    def exists(self, path: str, *, watch: bool = False) -> str:
        response = self._read(requests.Exists(path, watch))
        return "yes" if isinstance(response, responses.Changed) else str(response)

    def stat(self, path: str) -> ZnodeStat:
        return self.keeper.tree.stat(path)

    def call(self, request: requests.Read | requests.LongRead) -> responses.Response | str | None:
        if isinstance(request, requests.LongRead):
            return run_at_once(self.keeper.read_in_steps(self, request))
        return self._read(request)

    def _write(self, request: requests.Write) -> responses.Response | str:
        try:
            return self.keeper.write(self, request, wall_ms=5)
        except KeeperError as refused:
            return refused.code.name

    def _read(self, request: requests.Read) -> responses.Response | str | None:
        try:
            return self.keeper.read(self, request)
        except KeeperError as refused:
            return refused.code.name

    def _path(self, response: responses.Response | str) -> str:
        if isinstance(response, str):
            return response
        return response.path if isinstance(response, responses.Created) else Code.OK.name
