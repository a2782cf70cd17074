r"""How long this broker may act as the leader of its partitions.

A broker that does not hear from ZooKeeper cannot know whether its session has expired and the controller has elected
other leaders.  Its registration is therefore a lease:

    ended ---registered---> held ---not verified in time---> lapsed
      ^                      ^  \                               |
      |                      |   +---verified: held longer      |
      |                      +--------------verified------------+
      +-----session expired, registration deleted or replaced---+

To verify it is a `sync` followed by a read that finds /brokers/ids/N of this session.  The ensemble heard from the
session after that was asked, so that the session lives for its whole timeout from then.  The lease is three quarters of
that: a server of an ensemble notifies its leader of sessions up to half a tick later, and only the verification before
this one, a quarter of the timeout ago, is certain to have been passed on.

A role that the controller sent to an earlier registration of this broker does not count: the partition may have another
leader.  So a broker that has registered again waits for the controller to send it the role again.

Kafka has no such rule: its brokers lead until a controller tells them otherwise.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kctl.errors import SessionLostError, ZooKeeperError
from kctl.system.environment import MachineClock
from kctl.zookeeper import paths
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

NOT_REGISTERED = -1
_ENDED_MS = -(1 << 62)
_PART_OF_TIMEOUT = 3 / 4
_VERIFICATIONS_PER_TIMEOUT = 4
_NO_RESPONSE = "ZooKeeper has not confirmed the registration of this broker within its session timeout"


def _never(_: int) -> bool:
    return False


class LeaderLease:
    """The rule.  Pure, except that `covers` and `is_held` read the clock."""

    def __init__(self, clock: MachineClock, *, is_session_open: Callable[[int], bool] = _never) -> None:
        """`is_session_open` tells of sessions of a ZooKeeper in this process, which needs no time limit: while the
        process is paused, it cannot end a session.
        """
        self.broker_epoch = NOT_REGISTERED
        """Zxid of the latest registration of this broker, also after it has ended."""
        self._now_ms = clock.elapsed_ms
        self._is_session_open = is_session_open
        self._session_id = 0
        self._until_ms = _ENDED_MS
        self._reason = "the broker is not registered in ZooKeeper"

    @property
    def is_held(self) -> bool:
        """Whether this broker may act as leader now."""
        return self._now_ms() < self._until_ms or self._is_session_open(self._session_id)

    @property
    def is_registered(self) -> bool:
        """False before the registration, and after its end."""
        return self._until_ms != _ENDED_MS

    def is_of(self, session_id: int) -> bool:
        """Return whether the broker is registered in this session."""
        return self.is_registered and self._session_id == session_id

    @property
    def left_ms(self) -> int:
        """For how long it is held without another verification."""
        return max(self._until_ms - self._now_ms(), 0)

    @property
    def problem(self) -> str:
        """Why this broker does not act as leader; empty if it does."""
        return "" if self.is_held else self._reason

    def covers(self, broker_epoch: int) -> bool:
        """Return whether it may act in a role that the controller sent to the registration with this epoch."""
        return broker_epoch == self.broker_epoch and (
            self._now_ms() < self._until_ms or self._is_session_open(self._session_id)
        )

    def begin(self, broker_epoch: int, session_id: int, *, asked_ms: int, timeout_ms: int) -> None:
        """Begin the lease of a broker that has registered in this session; `asked_ms` is the time before the
        request.
        """
        self.broker_epoch, self._session_id = broker_epoch, session_id
        self._until_ms = _ENDED_MS
        self.extend(asked_ms=asked_ms, timeout_ms=timeout_ms)

    def extend(self, *, asked_ms: int, timeout_ms: int) -> None:
        """Extend the lease: a verification of the registration, asked for at that time, has succeeded."""
        self._until_ms = max(self._until_ms, asked_ms + int(timeout_ms * _PART_OF_TIMEOUT))
        self._reason = _NO_RESPONSE

    def end(self, reason: str) -> None:
        """End the lease: the registration exists no longer."""
        self._until_ms, self._session_id, self._reason = _ENDED_MS, 0, reason


class UnlimitedLease(LeaderLease):
    """A lease that is always held, for replicas without a ZooKeeper."""

    def __init__(self) -> None:
        """Begin without a registration; no clock is read."""
        self.broker_epoch = NOT_REGISTERED
        self._now_ms = lambda: 0
        self._is_session_open = _never
        self._session_id, self._until_ms, self._reason = 0, -_ENDED_MS, ""

    def covers(self, broker_epoch: int) -> bool:
        """Return True for every epoch."""
        return True


class LeaseKeeper:
    """Verifies the registration, and calls `on_change` when the lease lapses, ends or is held again."""

    def __init__(
        self,
        lease: LeaderLease,
        broker_id: int,
        zookeeper: ZooKeeper,
        clock: MachineClock,
        *,
        register_again: Callable[[], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """`register_again` is called when the registration was deleted in a session that has not expired."""
        self._lease = lease
        self._broker_id = broker_id
        self._path = paths.broker(broker_id)
        self._zookeeper = zookeeper
        self._clock = clock
        self._register_again = register_again
        self._on_change = on_change
        self._was_held = True
        self._is_due = asyncio.Event()
        self._watched_session_id = 0
        """The session in which a watch is set on the registration."""
        self._was_deleted_in = 0
        """The session in which the registration was found deleted or replaced."""
        self._check: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start after the registration."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="leader-lease")
        self._is_due.set()
        self.check()

    async def close(self) -> None:
        """Stop verifying; the lease lapses."""
        if self._check is not None:
            self._check.cancel()
            self._check = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_watch(self, event: WatchEvent) -> None:
        """Verify the registration at once when it was changed or deleted."""
        if event.path == self._path:
            self._watched_session_id = 0
            self._is_due.set()

    def check(self) -> None:
        """Notice that the lease has lapsed, ended, or is held again."""
        if self._check is not None:
            self._check.cancel()
        is_held, problem = self._lease.is_held, self._lease.problem
        # A lease without a time limit is checked as often as it is verified.
        delay_ms = self._lease.left_ms if is_held else 0
        delay_ms = delay_ms or self._zookeeper.session_timeout_ms // _VERIFICATIONS_PER_TIMEOUT
        self._check = asyncio.get_running_loop().call_later(delay_ms / 1000 + 0.001, self.check)
        if is_held is self._was_held:
            return
        self._was_held = is_held
        if is_held:
            log.warning("acting as leader again broker=%s", self._broker_id)
        else:
            message = "not acting as leader broker=%s reason=%s consequence=%s"
            consequence = "clients get NOT_LEADER_OR_FOLLOWER until ZooKeeper has confirmed the registration"
            log.error(message, self._broker_id, problem, consequence)
        self._on_change()

    async def _run(self) -> None:
        while True:
            interval_s = self._zookeeper.session_timeout_ms / 1000 / _VERIFICATIONS_PER_TIMEOUT
            try:
                async with asyncio.timeout(interval_s):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            self._is_due.clear()
            try:
                if self._lease.is_registered:
                    await self._verify()
                elif self._was_deleted_in == self._zookeeper.session_id:
                    await self._register_again()
                # Otherwise the session has expired: its renewal registers again.
            except SessionLostError:
                continue
            except ZooKeeperError as error:
                log.warning("cannot verify the registration broker=%s error=%s", self._broker_id, error)

    async def _verify(self) -> None:
        lease, zookeeper = self._lease, self._zookeeper
        epoch, asked_ms, session_id = lease.broker_epoch, self._clock.elapsed_ms(), zookeeper.session_id
        await zookeeper.sync(self._path)
        sets_watch = self._watched_session_id != session_id
        stat = await zookeeper.exists(self._path, watch=sets_watch)
        if sets_watch:
            self._watched_session_id = session_id
        if lease.broker_epoch != epoch or not lease.is_registered:
            return
        if stat is not None and (stat.ephemeral_owner, stat.czxid) == (session_id, epoch):
            lease.extend(asked_ms=asked_ms, timeout_ms=zookeeper.session_timeout_ms)
            self.check()
            return
        lease.end(f"{self._path} was {'deleted' if stat is None else 'replaced by another session'} in ZooKeeper")
        self._was_deleted_in = session_id
        self.check()
        await self._register_again()
