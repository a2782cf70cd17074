"""Translates operations to kazoo's requests, and its results and errors back; paths are relative to the chroot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as wire
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kctl import errors
from kctl.zookeeper import refusals
from kctl.zookeeper.embedded.codes import Code
from kctl.zookeeper.operations import Check, Create, Delete, Operation, OperationResult, SetData, ZnodeStat
from kctl.zookeeper.security import Access, ZooKeeperSecurity

_ERRORS_OF_OTHER_OPERATIONS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""The results of the operations before and after the failed one in a failed multi."""


class KazooRequests:
    """Requests below one chroot, with the ACLs that new znodes get."""

    def __init__(self, chroot: str, security: ZooKeeperSecurity) -> None:
        self._chroot = chroot
        self._security = security

    def full_path(self, path: str) -> str:
        """The path on the server.

        Raises ZooKeeperError for text that has no encoding: kazoo's thread, and with it the session, would end.
        """
        try:
            path.encode()
        except UnicodeEncodeError:
            raise refusals.refused(Code.BAD_ARGUMENTS, path) from None
        return self._chroot if path == "/" and self._chroot else self._chroot + path

    def relative_path(self, path: str) -> str:
        """The path relative to the chroot."""
        return path.removeprefix(self._chroot) or "/"

    def of(self, operation: Operation) -> Any:
        """The request of one operation."""
        path = self.full_path(operation.path)
        match operation:
            case Create():
                flags = (1 if operation.ephemeral else 0) | (2 if operation.sequence else 0)
                return wire.Create(path, operation.data, self._acls_of(operation.path), flags)
            case SetData():
                return wire.SetData(path, operation.data, operation.version)
            case Delete():
                return wire.Delete(path, operation.version)
            case Check():
                return wire.CheckVersion(path, operation.version)

    def multi(self, operations: Sequence[Operation]) -> Any:
        """The request that performs all operations or none."""
        return wire.Transaction([self.of(each) for each in operations])

    def multi_results(self, operations: Sequence[Operation], results: Sequence[Any]) -> list[OperationResult]:
        """The results of a multi.  Raises ZooKeeperError for the operation that failed."""
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _ERRORS_OF_OTHER_OPERATIONS):
                raise error_of(result, operation.path)
        return [self._result_of(each) for each in results]

    def chroot_creations(self) -> Iterator[tuple[str, Any]]:
        """The path and the request of each znode of the chroot, parents first."""
        end = self._chroot.find("/", 1)
        while self._chroot:
            path = self._chroot if end < 0 else self._chroot[:end]
            yield path, wire.Create(path, b"", self._acls_of("/"), 0)
            if end < 0:
                return
            end = self._chroot.find("/", end + 1)

    def _acls_of(self, path: str) -> Any:
        """The ACLs of a new znode."""
        match self._security.access_of(path):
            case Access.OPEN:
                return OPEN_ACL_UNSAFE
            case Access.READABLE:
                return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
            case Access.PRIVATE:
                return CREATOR_ALL_ACL

    def _result_of(self, result: Any) -> OperationResult:
        if isinstance(result, str):
            return self.relative_path(result)
        return True if result is True else ZnodeStat._make(result)


def error_of(error: Exception, path: str) -> errors.ZooKeeperError:
    """The error of a request for `path`, from kazoo's exception."""
    if isinstance(error, kazoo_errors.SessionExpiredError):  # kazoo's ConnectionClosedError is a subclass.
        return refusals.session_lost(path)
    if isinstance(error, kazoo_errors.ConnectionLoss):
        return refusals.connection_lost(path)
    if isinstance(error, kazoo_errors.ZookeeperError):
        return refusals.refused(error.code, path)
    return errors.ZooKeeperError(f"unexpected response from ZooKeeper for znode {path}: {error!r}", path)
