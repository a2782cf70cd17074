"""A model of a consumer group: Kafka's response to each request, written from Kafka's rules alone.

Nothing is shared with kctl.server.coordination.groups.  Time is a number; every member allows REBALANCE_MS for a
rebalance and is out when it was not heard of for SESSION_MS, unless a call of its waits.  Calls that wait are kept by
the key that the test gave them; what becomes of them is noted in `responses`: an error code, or for those that succeed
NONE with the generation or the assignment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

REBALANCE_MS = 5_001
SESSION_MS = 9_007
"""Neither is over at a moment at which a test looks: tests wait for whole tenths of a second."""
SESSION_MS_MIN = 6_000
METADATA_MAX = 10

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNSTABLE_OFFSET_COMMIT = 88

Call = int
At = tuple[str, int]
Protocols = tuple[tuple[str, str], ...]
"""Name of the protocol, and the topic that the member reads."""


class TieError(Exception):
    """A phase and another event are due at the same time, so their order is undefined."""


@dataclass
class Member:
    """A member; `join` and `sync` are its waiting calls."""

    protocols: Protocols
    instance: str | None
    join: Call | None = None
    sync: Call | None = None
    assignment: bytes = b""
    has_synced: bool = True
    session_end_ms: int = 0

    @property
    def is_waiting(self) -> bool:
        """Its session does not expire before this.  A new member has longer than any join phase here."""
        return self.join is not None or self.sync is not None


class Commit(NamedTuple):
    """A committed offset, its log position, and its expiry, if the client gave one."""

    offset: int
    place: int
    expires_ms: int | None = None


@dataclass
class Group:
    """The state of a group."""

    state: str = "Empty"
    generation: int = 0
    kind: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids that were assigned, and their expiry."""
    subscribed: set[str] | None = None
    offsets: dict[At, Commit] = field(default_factory=dict)
    in_transactions: dict[int, dict[At, Commit]] = field(default_factory=dict)
    """By producer.  A transaction keeps the group until it ends, also when its commits were deleted."""
    is_first: bool = False
    """A group that was empty gathers members until group.initial.rebalance.delay.ms is over, which is 0 here."""
    join_due_ms: int | None = None
    sync_due_ms: int | None = None

    @property
    def is_vacant(self) -> bool:
        return self.state == "Empty" and not (self.members or self.pending or self.offsets or self.in_transactions)


class GroupModel:
    """One group id; `group` is None where Kafka has no such group."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        """group.max.size."""
        self.group: Group | None = None
        self.now_ms = 0
        self.responses: dict[Call, tuple[int, object]] = {}
        self._log_end = 0

    def join(
        self,
        call: Call,
        member_id: str,
        fresh_id: str,
        *,
        version: int,
        instance: str | None,
        kind: str,
        protocols: Protocols,
    ) -> None:
        if self.group is None and member_id:
            self.responses[call] = UNKNOWN_MEMBER_ID, None
            return
        group = self.group or Group()
        if not self._has_room(group, member_id):
            self._turn_away(group, call, member_id)
        elif not self._fits(group, kind, protocols):
            self.responses[call] = INCONSISTENT_GROUP_PROTOCOL, None
        elif not member_id and instance is not None and (old := self._holder(group, instance)):
            self._replace(group, call, old, fresh_id, protocols)
        elif not member_id and instance is None and version >= 4:
            group.pending[fresh_id] = self.now_ms + SESSION_MS
            self.responses[call] = MEMBER_ID_REQUIRED, None
        elif not member_id or (member_id in group.pending and instance is None):
            self._admit(group, call, member_id or fresh_id, instance, kind, protocols)
        elif error := self._identity(group, member_id, instance, known_instance=True):
            self.responses[call] = error, None
        else:
            self._rejoin(group, call, member_id, protocols)
        self.group = None if group.is_vacant and self.group is None else group
        self._complete_if_all_joined()

    def sync(
        self,
        call: Call,
        member_id: str,
        generation: int,
        *,
        instance: str | None,
        kind: str | None,
        name: str | None,
        must_name: bool,
        plan: dict[str, bytes],
    ) -> None:
        group = self.group
        if must_name and (kind is None or name is None):
            error = INCONSISTENT_GROUP_PROTOCOL
        elif group is None:
            error = UNKNOWN_MEMBER_ID
        elif not (error := self._standing(group, member_id, generation, instance)):
            if kind not in {None, group.kind} or name not in {None, group.protocol}:
                error = INCONSISTENT_GROUP_PROTOCOL
            elif group.state == "PreparingRebalance":
                error = REBALANCE_IN_PROGRESS
        if error:
            self.responses[call] = error, None
            return
        assert group is not None
        member = group.members[member_id]
        member.has_synced = True
        if group.state == "Stable":
            self._observe(member)
            self.responses[call] = NONE, member.assignment
            return
        self._end_sync(member, REBALANCE_IN_PROGRESS)
        member.sync = call
        if member_id == group.leader:
            group.state = "Stable"
            for each, other in group.members.items():
                other.assignment = plan.get(each, b"")
                self._end_sync(other, NONE)

    def heartbeat(self, member_id: str, generation: int, instance: str | None) -> int:
        if self.group is None:
            return UNKNOWN_MEMBER_ID
        if error := self._standing(self.group, member_id, generation, instance):
            return error
        self._observe(self.group.members[member_id])
        return REBALANCE_IN_PROGRESS if self.group.state == "PreparingRebalance" else NONE

    def leave(self, member_id: str, instance: str | None) -> int:
        group = self.group
        if group is None:
            return UNKNOWN_MEMBER_ID
        holder = self._holder(group, instance)
        if member_id and holder and holder != member_id:
            return FENCED_INSTANCE_ID
        if member_id in group.pending:
            del group.pending[member_id]
        else:
            leaver = holder or member_id
            if leaver not in group.members:
                return UNKNOWN_MEMBER_ID
            self._remove(group, leaver)
            self._rebalance(group)
        self._complete_if_all_joined()
        return NONE

    def commit(
        self,
        member_id: str,
        generation: int,
        instance: str | None,
        offsets: dict[At, tuple[int, str]],
        *,
        retention_ms: int = -1,
    ) -> dict[At, int]:
        group = self.group
        if group is None and generation >= 0:
            return dict.fromkeys(offsets, ILLEGAL_GENERATION)
        group = group or Group()
        holder = self._holder(group, instance)
        if holder and holder != member_id:
            error = FENCED_INSTANCE_ID
        elif generation < 0 and group.state == "Empty":
            error = NONE
        else:
            error = self._standing(group, member_id, generation, instance)
            if not error and group.state == "CompletingRebalance":
                error = REBALANCE_IN_PROGRESS
        if not error and member_id in group.members:
            self._observe(group.members[member_id])
        expires_ms = None if retention_ms == -1 else self.now_ms + retention_ms
        return self._store(group, error, offsets, group.offsets, expires_ms)

    def commit_in_transaction(
        self, producer: int, member_id: str, generation: int, instance: str | None, offsets: dict[At, tuple[int, str]]
    ) -> dict[At, int]:
        group = self.group or Group()
        holder = self._holder(group, instance)
        if holder and holder != member_id:
            error = FENCED_INSTANCE_ID
        elif member_id and member_id not in group.members:
            error = UNKNOWN_MEMBER_ID
        elif generation >= 0 and generation != group.generation:
            error = ILLEGAL_GENERATION
        else:
            error = NONE
        staged = group.in_transactions.get(producer, {})
        errors = self._store(group, error, offsets, staged)
        if staged:
            group.in_transactions[producer] = staged
            self.group = group
        return errors

    def end_transaction(self, producer: int, *, committed: bool) -> None:
        if self.group is None:
            return
        for at, found in self.group.in_transactions.pop(producer, {}).items():
            if committed and self.group.offsets.get(at, Commit(0, -1)).place < found.place:
                self.group.offsets[at] = found

    def fetch(self, at: At, *, stable: bool) -> tuple[int, int]:
        if self.group is None:
            return NONE, -1
        if stable and any(at in staged for staged in self.group.in_transactions.values()):
            return UNSTABLE_OFFSET_COMMIT, -1
        return NONE, self.group.offsets.get(at, Commit(-1, 0)).offset

    def delete_offsets(self, partitions: list[At]) -> tuple[int, dict[At, int]]:
        group = self.group
        if group is None:
            return GROUP_ID_NOT_FOUND, {}
        if group.state != "Empty" and group.kind != "consumer":
            return NON_EMPTY_GROUP, {}
        errors = {}
        for at in partitions:
            is_read = group.state != "Empty" and (group.subscribed is None or at[0] in group.subscribed)
            errors[at] = GROUP_SUBSCRIBED_TO_TOPIC if is_read else NONE
            if not is_read:
                group.offsets.pop(at, None)
                for staged in group.in_transactions.values():
                    staged.pop(at, None)
        if group.is_vacant:
            self.group = None
        return NONE, errors

    def delete(self) -> int:
        if self.group is None:
            return GROUP_ID_NOT_FOUND
        if self.group.state != "Empty":
            return NON_EMPTY_GROUP
        self.group = None
        return NONE

    def expire(self) -> None:
        """KIP-211, without the retention of the broker, which is longer than a test."""
        group = self.group
        if group is None:
            return
        if group.kind is None or group.state == "Empty":
            spared: set[str] = set()
        elif group.kind == "consumer" and group.state == "Stable" and group.subscribed is not None:
            spared = group.subscribed
        else:
            return
        for at, commit in list(group.offsets.items()):
            is_undecided = any(at in staged for staged in group.in_transactions.values())
            is_over = commit.expires_ms is not None and commit.expires_ms <= self.now_ms
            if is_over and at[0] not in spared and not is_undecided:
                del group.offsets[at]
        if group.is_vacant:
            self.group = None

    def advance(self, milliseconds: int) -> None:
        """Advances the time; phases and sessions that time out end on the way.  Raises TieError."""
        end_ms = self.now_ms + milliseconds
        while self.group is not None:
            due = sorted((at_ms, what) for what, at_ms in self._deadlines(self.group) if at_ms <= end_ms)
            if not due:
                break
            at_ms, what = due[0]
            together = {what for other_ms, what in due if other_ms == at_ms}
            if len(together) > 1 and together & {"join", "sync"}:
                raise TieError
            self.now_ms = max(self.now_ms, at_ms)
            if what == "join":
                self._end_joins(self.group)
            elif what == "sync":
                self._end_syncs(self.group)
            else:
                self._end_session(self.group, what.removeprefix("session "))
        self.now_ms = end_ms

    def _deadlines(self, group: Group) -> list[tuple[str, int]]:
        sessions = {member_id: m.session_end_ms for member_id, m in group.members.items() if not m.is_waiting}
        phases = (("join", group.join_due_ms), ("sync", group.sync_due_ms))
        return [
            *((what, at_ms) for what, at_ms in phases if at_ms is not None),
            *((f"session {member_id}", at_ms) for member_id, at_ms in (sessions | group.pending).items()),
        ]

    def _end_session(self, group: Group, member_id: str) -> None:
        if group.pending.pop(member_id, None) is None:
            self._remove(group, member_id)
            self._rebalance(group)
        self._complete_if_all_joined()

    def _observe(self, member: Member) -> None:
        member.session_end_ms = self.now_ms + SESSION_MS

    def _has_room(self, group: Group, member_id: str) -> bool:
        """KIP-389: a preparing group accepts at most so many parked joins, a stable one so many members."""
        member = group.members.get(member_id)
        if group.state == "PreparingRebalance":
            waiting = sum(member.join is not None for member in group.members.values())
            return (member is not None and member.join is not None) or waiting < self.size_max
        return group.state == "Empty" or member is not None or len(group.members) < self.size_max

    def _turn_away(self, group: Group, call: Call, member_id: str) -> None:
        group.pending.pop(member_id, None)
        if member_id in group.members:
            self._remove(group, member_id)
        self.responses[call] = GROUP_MAX_SIZE_REACHED, None

    def _fits(self, group: Group, kind: str, protocols: Protocols) -> bool:
        if group.state == "Empty":
            return bool(kind and protocols)
        common = [{name for name, _ in member.protocols} for member in group.members.values()]
        return group.kind == kind and any(all(name in names for names in common) for name, _ in protocols)

    def _holder(self, group: Group, instance: str | None) -> str | None:
        if instance is None:
            return None
        return next((member_id for member_id, member in group.members.items() if member.instance == instance), None)

    def _identity(self, group: Group, member_id: str, instance: str | None, *, known_instance: bool = False) -> int:
        holder = self._holder(group, instance)
        if holder and holder != member_id:
            return FENCED_INSTANCE_ID
        if member_id not in group.members or (known_instance and instance is not None and holder is None):
            return UNKNOWN_MEMBER_ID
        return NONE

    def _standing(self, group: Group, member_id: str, generation: int, instance: str | None) -> int:
        if error := self._identity(group, member_id, instance):
            return error
        return NONE if generation == group.generation else ILLEGAL_GENERATION

    def _admit(
        self, group: Group, call: Call, member_id: str, instance: str | None, kind: str, protocols: Protocols
    ) -> None:
        if not group.members:
            group.kind = kind
        group.pending.pop(member_id, None)
        group.members[member_id] = Member(protocols, instance, join=call)
        group.leader = group.leader or member_id
        self._rebalance(group)

    def _rejoin(self, group: Group, call: Call, member_id: str, protocols: Protocols) -> None:
        member = group.members[member_id]
        is_settled = group.state == "CompletingRebalance" or (group.state == "Stable" and group.leader != member_id)
        if is_settled and member.protocols == protocols:
            self._observe(member)
            self.responses[call] = NONE, group.generation
            return
        self._end_join(member, REBALANCE_IN_PROGRESS)
        member.protocols, member.join = protocols, call
        self._rebalance(group)

    def _replace(self, group: Group, call: Call, old_id: str, new_id: str, protocols: Protocols) -> None:
        """KIP-345: a new process of a static member takes the place of the old one."""
        member = group.members[old_id]
        self._end_join(member, FENCED_INSTANCE_ID)
        self._end_sync(member, FENCED_INSTANCE_ID)
        group.members = {
            new_id if member_id == old_id else member_id: other for member_id, other in group.members.items()
        }
        group.leader = new_id if group.leader == old_id else group.leader
        member.protocols, member.join = protocols, call
        if group.state == "Stable" and self._vote(group) == group.protocol:
            self._end_join(member, NONE, group.generation)
        else:
            self._rebalance(group)

    def _rebalance(self, group: Group) -> None:
        if group.state == "PreparingRebalance":
            return
        for member in group.members.values():
            if group.state == "CompletingRebalance":
                member.assignment = b""
            self._end_sync(member, REBALANCE_IN_PROGRESS)
        group.is_first = group.state == "Empty"
        # An empty group does not wait.
        group.join_due_ms = self.now_ms + (0 if group.is_first or not group.members else REBALANCE_MS)
        group.sync_due_ms = None
        group.state = "PreparingRebalance"

    def _complete_if_all_joined(self) -> None:
        group = self.group
        if group is None or group.state != "PreparingRebalance" or group.is_first or group.pending:
            return
        if all(member.join is not None for member in group.members.values()):
            self._complete(group)

    def _end_joins(self, group: Group) -> None:
        for member_id, member in list(group.members.items()):
            if member.join is None and member.instance is None:
                self._remove(group, member_id)
        if group.members and all(member.join is None for member in group.members.values()):
            group.join_due_ms = self.now_ms + REBALANCE_MS
            return
        self._complete(group)

    def _end_syncs(self, group: Group) -> None:
        group.sync_due_ms = None
        silent = [member_id for member_id, member in group.members.items() if not member.has_synced]
        if silent:
            for member_id in sorted(silent):
                self._remove(group, member_id)
            self._rebalance(group)
            self._complete_if_all_joined()

    def _complete(self, group: Group) -> None:
        group.join_due_ms, group.is_first = None, False
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = "Empty", None, None
            group.subscribed = set() if group.kind == "consumer" else None
            return
        if group.leader is None or group.members[group.leader].join is None:
            group.leader = next(member_id for member_id, member in group.members.items() if member.join is not None)
        group.state, group.protocol = "CompletingRebalance", self._vote(group)
        if group.kind == "consumer":
            group.subscribed = {dict(member.protocols)[group.protocol] for member in group.members.values()}
        group.sync_due_ms = self.now_ms + REBALANCE_MS
        for member in group.members.values():
            member.has_synced = False
            self._observe(member)
            self._end_join(member, NONE, group.generation)

    def _vote(self, group: Group) -> str:
        supported = [{name for name, _ in member.protocols} for member in group.members.values()]
        votes = Counter(
            next(name for name, _ in member.protocols if all(name in names for names in supported))
            for member in group.members.values()
        )
        return votes.most_common(1)[0][0]

    def _remove(self, group: Group, member_id: str) -> None:
        member = group.members.pop(member_id)
        self._end_join(member, UNKNOWN_MEMBER_ID)
        self._end_sync(member, UNKNOWN_MEMBER_ID)
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)

    def _end_join(self, member: Member, error: int, generation: int | None = None) -> None:
        if member.join is not None:
            self.responses[member.join] = error, generation
            member.join = None
            self._observe(member)

    def _end_sync(self, member: Member, error: int) -> None:
        if member.sync is not None:
            self.responses[member.sync] = error, None if error else member.assignment
            member.sync = None
            self._observe(member)

    def _store(
        self,
        group: Group,
        error: int,
        offsets: dict[At, tuple[int, str]],
        target: dict[At, Commit],
        expires_ms: int | None = None,
    ) -> dict[At, int]:
        if error:
            return dict.fromkeys(offsets, error)
        errors = {}
        self._log_end += 1
        for at, (offset, metadata) in offsets.items():
            errors[at] = OFFSET_METADATA_TOO_LARGE if len(metadata) > METADATA_MAX else NONE
            if not errors[at]:
                target[at] = Commit(offset, self._log_end, expires_ms)
                self.group = group
        return errors
