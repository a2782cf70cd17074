"""One group with an implementation of what `step` needs: timers in virtual time, a log, and the responses.

It implements the runner without an event loop: unit tests, scenarios and property tests drive groups with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    CommitOutcome,
    Discard,
    JoinOutcome,
    LeaveOutcome,
    Outcome,
    PersistGroup,
    PersistOffsets,
    PersistTombstones,
    Respond,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    AppendDone,
    CommitRequest,
    Continue,
    Event,
    Heartbeat,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Now,
    SyncRequest,
    TimerFired,
    TimerKey,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.step import step

START_MS = 1_600_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that reads these topics."""
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)))


def protocols(*names: str, topics: tuple[str, ...] = ("t",)) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a consumer with these assignors."""
    return tuple((name, subscription(*topics)) for name in names)


OutcomeT = TypeVar("OutcomeT")


@dataclass
class Token(Generic[OutcomeT]):
    """A parked request with the type of its outcome; compares by identity."""

    name: str
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Responses(dict[Token[Any], Any]):
    """The outcomes by token; checks that each has the type of its request."""

    def __getitem__(self, token: Token[OutcomeT]) -> OutcomeT:
        outcome: OutcomeT = super().__getitem__(token)
        return outcome


Persist = PersistGroup | PersistOffsets | PersistTombstones


class GroupWorld:
    """Stores responses by token; `advance` moves the time."""

    def __init__(self, group: Group | None = None, **config: Any) -> None:
        self.group = group if group is not None else Group("g", GroupConfig(**config))
        self.responses = Responses()
        self.given: list[tuple[Token[Any], Outcome]] = []
        self.requested: list[Token[Any]] = []
        self.held: list[tuple[PersistGroup | PersistOffsets, int]] = []
        self.holds_appends = False
        self.append_error = ErrorCode.NONE
        self.is_discarded = False
        self.elapsed_ms = 0
        self.wall_jump_ms = 0
        self._timers: dict[TimerKey, int] = {}
        self._written: list[Persist | None] = []
        self._ids = 0
        self._waiting: deque[Event] = deque()

    @property
    def now(self) -> Now:
        return Now(self.elapsed_ms, START_MS + self.elapsed_ms + self.wall_jump_ms)

    @property
    def timers(self) -> dict[TimerKey, int]:
        """The time at which each running timer fires."""
        return dict(self._timers)

    @property
    def log(self) -> list[Persist]:
        """Records that were appended and not refused, in order; includes held appends, as in a real log."""
        return [entry for entry in self._written if entry is not None]

    def load_log(self, entries: list[Persist]) -> None:
        """Sets the log from which this group was loaded."""
        self._written = list(entries)

    def advance(self, milliseconds: int) -> None:
        """Advances the time and fires due timers."""
        end_ms = self.elapsed_ms + milliseconds
        while self._timers:
            key, due_ms = min(self._timers.items(), key=lambda item: (item[1], item[0]))
            if due_ms > end_ms:
                break
            del self._timers[key]
            self.elapsed_ms = max(self.elapsed_ms, due_ms)
            self.do(TimerFired(key))
        self.elapsed_ms = end_ms

    def do(self, event: Event) -> None:
        """Feeds the event to the group and performs the resulting actions."""
        if self.group.unfinished:
            self._waiting.append(event)
            return
        self._step(event)
        while self.group.unfinished or self._waiting:
            self._step(Continue() if self.group.unfinished else self._waiting.popleft())

    def _step(self, event: Event) -> None:
        for action in step(self.group, event, self.now):
            self._perform(action)

    def join(
        self,
        member_id: str = "",
        *,
        name: str = "",
        instance: str | None = None,
        needs_id: bool = False,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        supports: tuple[tuple[str, bytes], ...] | None = None,
    ) -> Token[JoinOutcome]:
        name = name or instance or member_id or "m"
        self._ids += 1
        token: Token[JoinOutcome] = self._call(name)
        self.do(
            JoinRequest(
                token=token,
                member_id=member_id,
                fresh_member_id=f"{name}-{self._ids}",
                group_instance_id=instance,
                requires_known_member_id=needs_id,
                client_id=name,
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols("range") if supports is None else supports,
            )
        )
        return token

    def sync(
        self,
        member_id: str,
        *,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Token[SyncOutcome]:
        token: Token[SyncOutcome] = self._call(member_id)
        self.do(
            SyncRequest(
                token=token,
                member_id=member_id,
                group_instance_id=instance,
                generation=self.group.generation if generation is None else generation,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            )
        )
        return token

    def heartbeat(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        token: Token[ErrorCode] = self._call(member_id)
        self.do(Heartbeat(token, member_id, instance, self.group.generation if generation is None else generation))
        return self.responses[token]

    def leave(self, *leavers: Leaver | str) -> LeaveOutcome:
        token: Token[LeaveOutcome] = self._call("leave")
        named = tuple(Leaver(leaver) if isinstance(leaver, str) else leaver for leaver in leavers)
        self.do(LeaveRequest(token, named))
        return self.responses[token]

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
    ) -> Token[CommitOutcome]:
        token: Token[CommitOutcome] = self._call(member_id or "commit")
        values = {
            tp: OffsetAndMetadata(value, commit_timestamp_ms=self.now.wall_ms) if isinstance(value, int) else value
            for tp, value in offsets.items()
        }
        self.do(
            CommitRequest(
                token=token,
                member_id=member_id,
                group_instance_id=instance,
                generation=generation,
                offsets=values,
            )
        )
        return token

    def call(self, make_event: Callable[..., Event], *arguments: object) -> Any:
        """Performs an event with a token that completes at once; returns the outcome."""
        token: Token[Any] = self._call(make_event.__name__)
        self.do(make_event(token, *arguments))
        return self.responses[token]

    def finish_append(self, error: ErrorCode = ErrorCode.NONE, index: int = 0) -> None:
        """Completes one held append."""
        action, position = self.held.pop(index)
        self._finish(action, position, error)

    def stable_group(self, *names: str, **join_options: Any) -> list[str]:
        """Brings the group to Stable with these members; returns their ids, the leader's first."""
        tokens = [self.join(name=name, **join_options) for name in names]
        self.advance(self.group.config.group_initial_rebalance_delay_ms)
        while any(token not in self.responses for token in tokens):
            self.advance(self.group.config.group_initial_rebalance_delay_ms)
        member_ids = [self.responses[token].member_id for token in tokens]
        for member_id in member_ids:
            self.sync(member_id, assignments={id_: id_.encode() for id_ in member_ids})
        return member_ids

    def _perform(self, action: Action) -> None:
        match action:
            case Respond(token, outcome):
                assert isinstance(token, Token)
                assert token not in self.responses, f"{token.name} was answered twice"
                self.responses[token] = outcome
                self.given.append((token, outcome))
            case ScheduleTimer(key, delay_ms):
                assert delay_ms >= 0
                self._timers[key] = self.elapsed_ms + delay_ms
            case CancelTimer(key):
                self._timers.pop(key, None)
            case PersistTombstones():
                self._written.append(action)
            case PersistGroup() | PersistOffsets():
                self._written.append(action)
                position = len(self._written) - 1
                if self.holds_appends:
                    self.held.append((action, position))
                else:
                    self._finish(action, position, self.append_error)
            case Discard():
                self.is_discarded = True
                self._timers.clear()

    def _finish(self, action: PersistGroup | PersistOffsets, position: int, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._written[position] = None
        self.do(AppendDone(action.append_id, error, position if error is ErrorCode.NONE else -1))

    def _call(self, name: str) -> Token[Any]:
        token: Token[Any] = Token(name)
        self.requested.append(token)
        return token
