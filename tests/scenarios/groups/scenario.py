"""Scenarios about one group: a line is an event or an expectation.

    config initial_delay_ms=0 max_size=2     before anything else
    join NAME [new] [needs_id] [topics=t,u] [protocols=range,sticky] [instance=I] [session_ms=N] [rebalance_ms=N]
    sync NAME [MEMBER=ASSIGNMENT ...]        the leader's brings the assignments
    heartbeat NAME        leave NAME ...     commit NAME|no-member TOPIC-PARTITION=OFFSET ...
    wait 3s | 500ms
    log holds | log releases | log refuses ERROR | log accepts
    expire | delete group | delete offsets TP ... | forget TOPIC | restart
    expect ...

A NAME is one process; it uses the member id that it was given last, unless it joins `new`.  Every answer that a process
gets must be expected, in its order: `expect a joined generation=1 leader=a` holds if the answer has all these words.
`expect nothing` requires that no response is left, which is checked at the end of a scenario too.
`expect group STATE words...`, `expect offset TP=N` and `expect log words...` look at the group, at a commit, and at the
newest record.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.coordination.groups.actions import JoinOutcome, LeaveOutcome, PersistGroup, PersistOffsets, SyncOutcome
from kctl.server.coordination.groups.events import (
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    ForgetTopics,
    GroupLoaded,
    Leaver,
    Unload,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.offsets import AppendedOffset, Packed, pack
from tests.scenarios.script import Script, expect_that, expect_words, partition_of
from tests.unit.groups.world import GroupWorld, Token, protocols

CONFIG_NAMES = {
    "initial_delay_ms": "group_initial_rebalance_delay_ms",
    "max_size": "group_max_size",
    "retention_ms": "offsets_retention_ms",
    "metadata_max_bytes": "offset_metadata_max_bytes",
}


class Scenario(Script):
    """Runs the lines of one scenario."""

    def __init__(self) -> None:
        self._world = GroupWorld()
        self._member_ids: dict[str, str] = {}
        self._instances: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._processes: dict[int, tuple[str, str]] = {}
        self._seen = 0
        self._responses: defaultdict[str, list[str]] = defaultdict(list)

    def _config(self, words: list[str]) -> None:
        options = _options(words)
        config: dict[str, Any] = {CONFIG_NAMES[name]: int(value) for name, value in options.items()}
        self._world = GroupWorld(**config)

    def _join(self, words: list[str]) -> None:
        name, options = words[0], _options(words)
        names = options.get("protocols", "range").split(",")
        topics = tuple(options.get("topics", "t").split(","))
        if "instance" in options:
            self._instances[name] = options["instance"]
        token = self._world.join(
            "" if "new" in words else self._member_ids.get(name, ""),
            name=name,
            instance=self._instances.get(name),
            needs_id="needs_id" in words,
            session_ms=int(options.get("session_ms", 10_000)),
            rebalance_ms=int(options.get("rebalance_ms", 60_000)),
            supports=protocols(*names, topics=topics),
        )
        self._processes[id(token)] = name, "join"

    def _sync(self, words: list[str]) -> None:
        name = words[0]
        assignments = {self._member_ids[member]: text.encode() for member, text in _options(words).items()}
        token = self._world.sync(
            self._member_ids[name],
            generation=self._generations[name],
            assignments=assignments,
            instance=self._instances.get(name),
        )
        self._processes[id(token)] = name, "sync"

    def _heartbeat(self, words: list[str]) -> None:
        (name,) = words
        self._world.heartbeat(
            self._member_ids[name], generation=self._generations[name], instance=self._instances.get(name)
        )
        self._processes[id(self._world.requested[-1])] = name, "heartbeat"

    def _leave(self, words: list[str]) -> None:
        self._world.leave(*(Leaver(self._member_ids[name], self._instances.get(name)) for name in words))
        self._processes[id(self._world.requested[-1])] = words[0], "leave"

    def _commit(self, words: list[str]) -> None:
        name = words[0]
        token = self._world.commit(
            {partition_of(tp): int(offset) for tp, offset in _options(words).items()},
            member_id=self._member_ids.get(name, ""),
            generation=self._generations.get(name, -1),
            instance=self._instances.get(name),
        )
        self._processes[id(token)] = name, "commit"

    def _wait(self, words: list[str]) -> None:
        (time,) = words
        self._world.advance(int(time[:-2]) if time.endswith("ms") else int(time[:-1]) * 1000)

    def _log(self, words: list[str]) -> None:
        match words:
            case ["holds"]:
                self._world.holds_appends = True
            case ["releases"]:
                self._world.holds_appends = False
                while self._world.held:
                    self._world.finish_append()
            case ["refuses", error]:
                self._world.append_error = ErrorCode[error]
            case _:
                self._world.append_error = ErrorCode.NONE

    def _expire(self, _words: list[str]) -> None:
        self._world.do(ExpireOffsets())

    def _delete(self, words: list[str]) -> None:
        if words == ["group"]:
            self._world.call(DeleteGroup)
        else:
            self._world.call(DeleteOffsets, tuple(partition_of(word) for word in words[1:]))
        self._processes[id(self._world.requested[-1])] = "admin", "delete"

    def _forget(self, words: list[str]) -> None:
        self._world.do(ForgetTopics(frozenset(words)))

    def _restart(self, _words: list[str]) -> None:
        """Replaces the coordinator by one that loads the log."""
        old = self._world
        old.do(Unload())
        self._collect()
        group = Group("g", old.group.config)
        for entry in old.log:
            if isinstance(entry, PersistGroup):
                group = Group.restored("g", old.group.config, entry.snapshot)
        committed: dict[TopicPartition, Packed] = {}
        for position, entry in enumerate(old.log):
            if isinstance(entry, PersistOffsets):
                committed |= {tp: pack(AppendedOffset(value, position)) for tp, value in entry.offsets.items()}
        group.offsets.load(committed)
        self._world = GroupWorld(group)
        self._world.elapsed_ms = old.elapsed_ms
        self._world.load_log(old.log)
        self._seen = 0
        self._world.do(GroupLoaded())

    def _expect(self, words: list[str]) -> None:
        self._collect()
        match words:
            case ["nothing"]:
                left = [text for texts in self._responses.values() for text in texts]
                expect_that(not left, "there are answers:\n" + "\n".join(left))
            case ["group", *claims]:
                expect_words(claims, self._group_text())
            case ["offset", claim]:
                tp, _, offset = claim.partition("=")
                committed = self._world.group.offsets.get(partition_of(tp))
                expect_that(str(committed and committed.offset) == offset, f"it is {committed}")
            case ["log", *claims]:
                expect_that(bool(self._world.log), "the log is empty")
                expect_words(claims, self._log_text())
            case [name, *claims]:
                expect_that(bool(self._responses[name]), f"{name} has no answer")
                expect_words([name, *claims], self._responses[name].pop(0))

    def _collect(self) -> None:
        for token, outcome in self._world.given[self._seen :]:
            name, call = self._processes[id(token)]
            self._responses[name].append(self._response_text(name, call, token, outcome))
        self._seen = len(self._world.given)

    def _response_text(self, name: str, call: str, _token: Token[Any], outcome: object) -> str:
        match outcome:
            case JoinOutcome(error=ErrorCode.NONE):
                self._member_ids[name] = outcome.member_id
                self._generations[name] = outcome.generation
                members = ",".join(sorted(self._name_of(member.member_id) for member in outcome.members))
                return (
                    f"{name} joined generation={outcome.generation} protocol={outcome.protocol_name}"
                    f" leader={self._name_of(outcome.leader)} members={members}"
                )
            case JoinOutcome():
                if outcome.error is ErrorCode.MEMBER_ID_REQUIRED:
                    self._member_ids[name] = outcome.member_id
                return f"{name} join {outcome.error.name}"
            case SyncOutcome(error=ErrorCode.NONE):
                return f"{name} synced {outcome.assignment.decode() or 'nothing'}"
            case SyncOutcome():
                return f"{name} sync {outcome.error.name}"
            case LeaveOutcome():
                return f"{name} left {' '.join(error.name for error in outcome.leavers) or outcome.error.name}"
            case ErrorCode():
                return f"{name} {call} {outcome.name}"
            case dict():
                return f"{name} committed " + " ".join(f"{tp}={error.name}" for tp, error in outcome.items())
            case _:
                partitions = outcome.partitions.items()  # type: ignore[attr-defined]
                return f"{name} deleted " + " ".join(f"{tp}={error.name}" for tp, error in partitions)

    def _group_text(self) -> str:
        group = self._world.group
        members = ",".join(sorted(self._name_of(member_id) for member_id in group.members))
        leader = self._name_of(group.leader or "no-member")
        gone = " gone" if self._world.is_discarded else ""
        return f"{group.state} generation={group.generation} leader={leader} members={members}{gone}"

    def _log_text(self) -> str:
        entry = self._world.log[-1]
        match entry:
            case PersistGroup(_, snapshot):
                members = ",".join(
                    sorted(f"{self._name_of(m.member_id)}:{m.assignment.decode()}" for m in snapshot.members)
                )
                return f"group generation={snapshot.generation} members={members}"
            case PersistOffsets(_, offsets):
                return "offsets " + " ".join(f"{tp}={value.offset}" for tp, value in offsets.items())
            case _:
                group = " group" if entry.is_group_gone else ""
                return "tombstones " + " ".join(str(tp) for tp in entry.partitions) + group

    def _name_of(self, member_id: str) -> str:
        """Member ids are made of the process name, or of the instance id of a static member, and a number."""
        for name, known in self._member_ids.items():
            if known == member_id:
                return name
        return member_id.rpartition("-")[0] or member_id


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)
