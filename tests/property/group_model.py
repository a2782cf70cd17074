"""A consumer group as a few dictionaries: what Kafka answers to each request, written down from its rules alone.

Nothing is shared with kctl.server.groups.  Time is a number; every member allows REBALANCE_MS for a rebalance and more
for its session than a test lasts.  Calls that wait are kept by the key that the test gave them; what becomes of them is
noted in `answers`: an error code, or for those that succeed NONE with the generation or the assignment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

REBALANCE_MS = 5_000
SESSION_MS = 1_800_000
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
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNSTABLE_OFFSET_COMMIT = 88

Call = int
At = tuple[str, int]
Protocols = tuple[tuple[str, str], ...]
"""Name of the protocol, and the topic that the member reads."""


@dataclass
class Member:
    """A member; `join` and `sync` are its waiting calls."""

    protocols: Protocols
    instance: str | None
    join: Call | None = None
    sync: Call | None = None
    assignment: bytes = b""
    has_synced: bool = True


@dataclass
class Group:
    """A group as it stands."""

    state: str = "Empty"
    generation: int = 0
    kind: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    subscribed: set[str] | None = None
    offsets: dict[At, tuple[int, int]] = field(default_factory=dict)
    """Offset, and its place in the log."""
    in_transactions: dict[int, dict[At, tuple[int, int]]] = field(default_factory=dict)
    is_first: bool = False
    """A group that was empty gathers members until group.initial.rebalance.delay.ms is over, which is 0 here."""
    join_due_ms: int | None = None
    sync_due_ms: int | None = None

    @property
    def is_vacant(self) -> bool:
        return self.state == "Empty" and not (self.members or self.pending or self.offsets or self.in_transactions)


class GroupModel:
    """One group id; None in `group` where Kafka knows no such group."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.now_ms = 0
        self.answers: dict[Call, tuple[int, object]] = {}
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
            self.answers[call] = UNKNOWN_MEMBER_ID, None
            return
        group = self.group or Group()
        if not self._fits(group, kind, protocols):
            self.answers[call] = INCONSISTENT_GROUP_PROTOCOL, None
        elif not member_id and instance is not None and (old := self._holder(group, instance)):
            self._replace(group, call, old, fresh_id, protocols)
        elif not member_id and instance is None and version >= 4:
            group.pending.add(fresh_id)
            self.answers[call] = MEMBER_ID_REQUIRED, None
        elif not member_id or (member_id in group.pending and instance is None):
            self._admit(group, call, member_id or fresh_id, instance, kind, protocols)
        elif error := self._identity(group, member_id, instance, known_instance=True):
            self.answers[call] = error, None
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
            self.answers[call] = error, None
            return
        assert group is not None
        member = group.members[member_id]
        member.has_synced = True
        if group.state == "Stable":
            self.answers[call] = NONE, member.assignment
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
        error = self._standing(self.group, member_id, generation, instance)
        return error or (REBALANCE_IN_PROGRESS if self.group.state == "PreparingRebalance" else NONE)

    def leave(self, member_id: str, instance: str | None) -> int:
        group = self.group
        if group is None:
            return UNKNOWN_MEMBER_ID
        holder = self._holder(group, instance)
        if member_id and holder and holder != member_id:
            return FENCED_INSTANCE_ID
        if member_id in group.pending:
            group.pending.discard(member_id)
        else:
            leaver = holder or member_id
            if leaver not in group.members:
                return UNKNOWN_MEMBER_ID
            self._remove(group, leaver)
            self._rebalance(group)
        self._complete_if_all_joined()
        return NONE

    def commit(
        self, member_id: str, generation: int, instance: str | None, offsets: dict[At, tuple[int, str]]
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
        return self._store(group, error, offsets, group.offsets)

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
            if committed and self.group.offsets.get(at, (0, -1))[1] < found[1]:
                self.group.offsets[at] = found

    def fetch(self, at: At, *, stable: bool) -> tuple[int, int]:
        if self.group is None:
            return NONE, -1
        if stable and any(at in staged for staged in self.group.in_transactions.values()):
            return UNSTABLE_OFFSET_COMMIT, -1
        return NONE, self.group.offsets.get(at, (-1, 0))[0]

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
                for producer in list(group.in_transactions):
                    group.in_transactions[producer].pop(at, None)
                    if not group.in_transactions[producer]:
                        del group.in_transactions[producer]
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

    def advance(self, milliseconds: int) -> None:
        """Lets time pass; phases that wait too long end on the way."""
        end_ms = self.now_ms + milliseconds
        while self.group is not None:
            group = self.group
            due = [each for each in (group.join_due_ms, group.sync_due_ms) if each is not None and each <= end_ms]
            if not due:
                break
            self.now_ms = max(self.now_ms, min(due))
            if group.join_due_ms == min(due):
                self._end_joins(group)
            else:
                self._end_syncs(group)
        self.now_ms = end_ms

    def _fits(self, group: Group, kind: str, protocols: Protocols) -> bool:
        if group.state == "Empty":
            return bool(kind and protocols)
        common = [{name for name, _ in member.protocols} for member in group.members.values()]
        return group.kind == kind and any(all(name in each for each in common) for name, _ in protocols)

    def _holder(self, group: Group, instance: str | None) -> str | None:
        if instance is None:
            return None
        return next((each for each, member in group.members.items() if member.instance == instance), None)

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
        group.pending.discard(member_id)
        group.members[member_id] = Member(protocols, instance, join=call)
        group.leader = group.leader or member_id
        self._rebalance(group)

    def _rejoin(self, group: Group, call: Call, member_id: str, protocols: Protocols) -> None:
        member = group.members[member_id]
        is_settled = group.state == "CompletingRebalance" or (group.state == "Stable" and group.leader != member_id)
        if is_settled and member.protocols == protocols:
            self.answers[call] = NONE, group.generation
            return
        self._end_join(member, REBALANCE_IN_PROGRESS)
        member.protocols, member.join = protocols, call
        self._rebalance(group)

    def _replace(self, group: Group, call: Call, old_id: str, new_id: str, protocols: Protocols) -> None:
        """KIP-345: a new process of a static member takes the place of the old one."""
        member = group.members[old_id]
        self._end_join(member, FENCED_INSTANCE_ID)
        self._end_sync(member, FENCED_INSTANCE_ID)
        group.members = {new_id if each == old_id else each: other for each, other in group.members.items()}
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
        # Nobody is waited for where nobody is.
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
            group.leader = next(each for each, member in group.members.items() if member.join is not None)
        group.state, group.protocol = "CompletingRebalance", self._vote(group)
        if group.kind == "consumer":
            group.subscribed = {dict(member.protocols)[group.protocol] for member in group.members.values()}
        group.sync_due_ms = self.now_ms + REBALANCE_MS
        for member in group.members.values():
            member.has_synced = False
            self._end_join(member, NONE, group.generation)

    def _vote(self, group: Group) -> str:
        supported = [{name for name, _ in member.protocols} for member in group.members.values()]
        votes = Counter(
            next(name for name, _ in member.protocols if all(name in each for each in supported))
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
            self.answers[member.join] = error, generation
            member.join = None

    def _end_sync(self, member: Member, error: int) -> None:
        if member.sync is not None:
            self.answers[member.sync] = error, None if error else member.assignment
            member.sync = None

    def _store(
        self, group: Group, error: int, offsets: dict[At, tuple[int, str]], target: dict[At, tuple[int, int]]
    ) -> dict[At, int]:
        if error:
            return dict.fromkeys(offsets, error)
        errors = {}
        self._log_end += 1
        for at, (offset, metadata) in offsets.items():
            errors[at] = OFFSET_METADATA_TOO_LARGE if len(metadata) > METADATA_MAX else NONE
            if not errors[at]:
                target[at] = offset, self._log_end
                self.group = group
        return errors
