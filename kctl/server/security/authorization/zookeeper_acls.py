"""ACLs in ZooKeeper, cached in memory: the authorizer of Kafka's ZooKeeper era.  Kafka: AclAuthorizer.

All ACLs of a resource pattern are in one znode.  A change reads it, writes it under its version, and announces it to
the other brokers, which read it again; any number of brokers, also Apache Kafka's, may do so at the same time.
A change always starts from the ACLs in ZooKeeper, not from the cache (CVE-2024-27309: ACLs were lost by changes based
on a cache).

A znode that cannot be read denies everything that its pattern applies to, except to super users; it is logged once.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kctl.errors import (
    ApiError,
    BadVersionError,
    ConnectionLossError,
    ErrorCode,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
)
from kctl.limits import ACL_ZNODE_BYTES_MAX, Subject, bound
from kctl.security.acls import AclBinding, AclEntry, AclFilter, Operation, ResourcePattern, ResourceType
from kctl.security.authorization import AccessPolicy, AclIndex, Client, Decision, Granted, decide, decide_on_any
from kctl.server.requests.outcomes import SUCCESS, Outcome
from kctl.server.znodes.large import decoded
from kctl.server.znodes.notifications import ChangeNotifications
from kctl.server.znodes.problem_log import ProblemLog
from kctl.system.environment import Clock
from kctl.zookeeper import security_znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

ACLS_MAX = bound(
    Subject.ACLS,
    "ACLs that the broker keeps in memory",
    100_000,
    "ACLs",
    on_excess="INVALID_REQUEST; if other brokers have stored more, operations on further resources are denied",
)
CACHED_DECISIONS_MAX = bound(
    Subject.ACLS,
    "cached decisions of the authorizer",
    10_000,
    "decisions",
    on_excess="all are forgotten",
)


log = logging.getLogger(__name__)

_TRIES_MAX = 11
_BACKOFF_S = 0.1
_READS_AT_ONCE = 100
_SLICE = 2_000

Change = Callable[[tuple[AclEntry, ...]], Iterable[AclEntry]]


class ZooKeeperAcls:
    """An Authorizer.  `on_watch` and `load` connect it to the broker's session."""

    def __init__(self, zookeeper: ZooKeeper, policy: AccessPolicy, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._policy = policy
        self._index = AclIndex()
        self._decisions: dict[tuple[Client, Operation, ResourceType, str], Decision] = {}
        self.granted: Granted = {}
        """See CachedAuthorizer.  What it has is in `_decisions` too, so that it has no other bound."""
        self._lock = asyncio.Lock()
        self._problems = ProblemLog(log, "cannot read ACLs, everything they apply to is denied path=%s error=%s")
        self._changes = [
            ChangeNotifications(zookeeper, parent, self._read_announced, clock) for parent in security_znodes.CHANGES
        ]

    # Decisions.

    def authorize(self, client: Client, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """See Authorizer."""
        key = (client, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = decide(self._index, self._policy, client, operation, kind, name)
            if len(self._decisions) >= CACHED_DECISIONS_MAX:
                self._forget_decisions()
            self._decisions[key] = decision
        return decision

    def authorize_on_any(self, client: Client, operation: Operation, kind: ResourceType) -> Decision:
        """See Authorizer."""
        return decide_on_any(self._index, self._policy, client, operation, kind)

    def acls(self) -> Iterable[AclBinding]:
        """See Authorizer."""
        return self._index.bindings()

    # The cache.

    async def start(self) -> None:
        """Create the parent znodes and read all ACLs.  Raises ZooKeeperError."""
        for path in security_znodes.PATHS_AT_START:
            try:
                if await self._zookeeper.exists(path) is None:
                    await self._zookeeper.create(path, None, make_parents=True)
            except NodeExistsError:
                continue
        await self.load()

    async def load(self) -> None:
        """Read all ACLs, at start and in each new session.  Raises ZooKeeperError."""
        for changes in self._changes:
            await changes.watch()
        async with self._lock:
            patterns = await self._stored_patterns()
            gone = set(self._index.patterns()).difference(patterns)
            for start in range(0, len(patterns), _READS_AT_ONCE):
                batch = patterns[start : start + _READS_AT_ONCE]
                await asyncio.gather(*(self._reread(pattern) for pattern in batch))
            for pattern in gone:
                self._store(pattern, ())
        log.info("acls loaded count=%s", self._index.count)

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; watches of other components are ignored."""
        for changes in self._changes:
            changes.on_watch(event)

    async def close(self) -> None:
        """Cancel pending reads."""
        for changes in self._changes:
            await changes.close()

    async def _stored_patterns(self) -> list[ResourcePattern]:
        found: list[ResourcePattern] = []
        for shape, store in security_znodes.STORES.items():
            for type_name in await self._zookeeper.children(store):
                try:
                    kind = ResourceType.of_label(type_name)
                except ValueError:
                    self._problems.report(f"{store}/{type_name}", "unknown resource type")
                    continue
                names = await self._zookeeper.children(f"{store}/{type_name}")
                found += [ResourcePattern(kind, name, shape) for name in names]
        return found

    async def _read_announced(self, path: str, data: bytes) -> None:
        """Read an announced change; raise ValueError for an invalid notification."""
        pattern = security_znodes.decode_change(path, data)
        async with self._lock:
            await self._reread(pattern)

    async def _reread(self, pattern: ResourcePattern) -> None:
        path = security_znodes.pattern_path(pattern)
        entries: tuple[AclEntry, ...] | None = None
        try:
            entries, _ = await self._read(pattern)
            others = self._index.count - len(self._index.entries(pattern))
            if others + len(entries) > ACLS_MAX:
                entries = None
                self._problems.report(path, f"there are more than {ACLS_MAX} ACLs")
            else:
                self._problems.report(path)
        except ValueError as error:
            self._problems.report(path, str(error))
        self._store(pattern, entries)

    async def _read(self, pattern: ResourcePattern) -> tuple[tuple[AclEntry, ...], int | None]:
        """Return the stored ACLs and the znode's version, None without a znode.  Raises ValueError, ZooKeeperError."""
        path = security_znodes.pattern_path(pattern)
        try:
            data, stat = await self._zookeeper.get(path)
        except NoNodeError:
            return (), None
        return await decoded(security_znodes.decode_entries, path, data), stat.version

    def _store(self, pattern: ResourcePattern, entries: Iterable[AclEntry] | None) -> None:
        self._index.replace(pattern, entries)
        self._forget_decisions()

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.granted.clear()

    # Changes.

    async def create(self, bindings: Sequence[AclBinding]) -> list[Outcome]:
        """See Authorizer."""
        results = [_refusal(security_znodes.stored_problem(binding)) for binding in bindings]
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for index, (binding, result) in enumerate(zip(bindings, results, strict=True)):
            if result.is_success:
                by_pattern.setdefault(binding.pattern, []).append(index)
        for pattern, indexes in by_pattern.items():
            added = [bindings[index].entry for index in indexes]
            result = await self._change(pattern, lambda entries, added=added: (*entries, *added))  # type: ignore[misc]
            for index in indexes:
                results[index] = result
        return results

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Outcome]]]:
        """See Authorizer."""
        results: list[list[tuple[AclBinding, Outcome]]] = [[] for _ in filters]
        for pattern, indexes in (await self._selected(filters)).items():
            deleted: dict[AclEntry, int] = {}

            def keep(
                entries: tuple[AclEntry, ...], indexes: list[int] = indexes, deleted: dict[AclEntry, int] = deleted
            ) -> list[AclEntry]:
                kept = []
                for entry in entries:
                    index = next(
                        (filter_index for filter_index in indexes if filters[filter_index].selects_entry(entry)), None
                    )
                    if index is None:
                        kept.append(entry)
                    else:
                        deleted[entry] = index
                return kept

            result = await self._change(pattern, keep)
            for entry, index in deleted.items():
                results[index].append((AclBinding(pattern, entry), result))
        return results

    async def _selected(self, filters: Sequence[AclFilter]) -> dict[ResourcePattern, list[int]]:
        """Return the patterns that the filters may select, with the indexes of those filters.

        Patterns that a filter names are read from ZooKeeper even if the cache does not have them yet.
        """
        named: dict[ResourcePattern, list[int]] = {}
        searching: list[int] = []
        for index, acl_filter in enumerate(filters):
            exact = acl_filter.exact_patterns()
            if not exact:
                searching.append(index)
            for pattern in exact:
                if security_znodes.name_problem(pattern.name) is None:
                    named.setdefault(pattern, []).append(index)
        seen = 0
        for pattern in list(self._index.patterns()) if searching else ():
            matching = [index for index in searching if filters[index].selects_pattern(pattern)]
            if matching:
                named[pattern] = sorted({*named.get(pattern, ()), *matching})
            seen += len(searching)
            if seen >= _SLICE:
                seen = 0
                await asyncio.sleep(0)
        return named

    async def _change(self, pattern: ResourcePattern, change: Change) -> Outcome:
        async with self._lock:
            try:
                await self._change_locked(pattern, change)
            except ApiError as error:
                return Outcome(error.code, error.message)
            except ValueError as error:
                return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            except ZooKeeperError as error:
                log.warning(
                    "cannot change ACLs, the client gets UNKNOWN_SERVER_ERROR pattern=%s error=%s", pattern, error
                )
                return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
        return SUCCESS

    async def _change_locked(self, pattern: ResourcePattern, change: Change) -> None:
        """Change the ACLs of a pattern; raise ApiError, ValueError if the stored ACLs cannot be read,
        ZooKeeperError.
        """
        may_be_written = False
        for attempt in range(_TRIES_MAX):
            if attempt:
                await asyncio.sleep(_BACKOFF_S)
            entries, version = await self._read(pattern)
            changed = tuple(dict.fromkeys(change(entries)))
            if set(changed) == set(entries):
                self._store(pattern, entries)
                if may_be_written:
                    await self._announce(pattern)
                return
            self._check_room(pattern, entries, changed)
            try:
                await self._write(pattern, changed, version)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                if isinstance(error, NoNodeError) and version is None:
                    raise  # The parent is missing.
                continue
            except ConnectionLossError:
                may_be_written = True
                continue
            self._store(pattern, changed)
            await self._announce(pattern)
            log.info("acls changed pattern=%s count=%s", pattern, len(changed))
            return
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The ACLs of {pattern} were changed concurrently {_TRIES_MAX} times; try again.",
        )

    def _check_room(
        self, pattern: ResourcePattern, entries: tuple[AclEntry, ...], changed: tuple[AclEntry, ...]
    ) -> None:
        """Raise ApiError if there are too many ACLs; fewer than before are always accepted."""
        if len(changed) <= len(entries):
            return
        if self._index.count - len(self._index.entries(pattern)) + len(changed) > ACLS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"There can be at most {ACLS_MAX} ACLs.")
        if len(security_znodes.encode_entries(changed)) > ACL_ZNODE_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The ACLs of {pattern} need more than {ACL_ZNODE_BYTES_MAX} bytes."
            )

    async def _write(self, pattern: ResourcePattern, entries: tuple[AclEntry, ...], version: int | None) -> None:
        path = security_znodes.pattern_path(pattern)
        if version is None:
            await self._zookeeper.create(path, security_znodes.encode_entries(entries))
        elif entries:
            await self._zookeeper.set(path, security_znodes.encode_entries(entries), version=version)
        else:
            await self._zookeeper.delete(path, version=version)

    async def _announce(self, pattern: ResourcePattern) -> None:
        data = security_znodes.encode_change(pattern)
        try:
            await self._zookeeper.create(security_znodes.change_path(pattern), data, sequence=True)
        except ConnectionLossError:
            # After a lost connection the notification may exist already; a second one is harmless.
            await self._zookeeper.create(security_znodes.change_path(pattern), data, sequence=True)


def _refusal(problem: str | None) -> Outcome:
    return SUCCESS if problem is None else Outcome(ErrorCode.INVALID_REQUEST, problem)
