"""The sticky assignor: each member keeps the tasks that it has, as far as the tasks stay balanced.

1. A task stays with the member that has it active, until that has its share of active tasks.
2. It goes to a member that has it as a standby task, whose state is warm, until that has its share.
3. Others go to the process with the fewest tasks per member, and there to the member with the fewest.
4. Standby tasks of stateful subtopologies follow in the same way; a process has a task once.

Warm-up tasks are not assigned: Kafka 4.3 has none yet.  Pure.  Kafka: StickyTaskAssignor, ProcessState.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kctl.server.coordination.streams_groups.state import TaskId, Tasks, TaskSets

STICKY = "sticky"


@dataclass(frozen=True, slots=True)
class TaskReader:
    """A member to which tasks are assigned, with its last target assignment."""

    member_id: str
    process_id: str
    last: TaskSets


@dataclass(frozen=True, slots=True)
class TaskSource:
    """A subtopology whose tasks are assigned."""

    subtopology: str
    tasks: int
    is_stateful: bool


class _Process:
    """The members of one instance of the application, and their tasks."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self._by_load: list[tuple[int, int, str]] | None = None

    @property
    def load(self) -> float:
        """The number of tasks per member."""
        return sum(self.counts.values()) / len(self.counts)

    def add(self, member_id: str, task: TaskId) -> int:
        """Add a task; return how many the member has then."""
        self.tasks.add(task)
        self.counts[member_id] += 1
        self._by_load = None
        return self.counts[member_id]

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Add a task to the member with the fewest; return the member and how many it has then."""
        if self._by_load is None:
            self._by_load = [(count, order, name) for order, (name, count) in enumerate(self.counts.items())]
            heapq.heapify(self._by_load)
        by_load = self._by_load
        count, order, member_id = by_load[0]
        heapq.heapreplace(by_load, (count + 1, order, member_id))
        self.tasks.add(task)
        self.counts[member_id] += 1
        return member_id, count + 1


class _Share:
    """How many tasks a member gets: the rest is divided again whenever a member has its share."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.size = self._divided()

    def has(self, count: int) -> None:
        """Note that a member has so many tasks now."""
        if count == self.size:
            self._members -= 1
            self._tasks -= count
            self.size = self._divided()

    def _divided(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    """Tasks that are being assigned."""

    def __init__(self, readers: Sequence[TaskReader], active_count: int, standby_count: int) -> None:
        self.processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self.active: defaultdict[str, set[TaskId]] = defaultdict(set)
        self.standby: defaultdict[str, set[TaskId]] = defaultdict(set)
        self.last_active: dict[TaskId, str] = {}
        self.last_standby: defaultdict[TaskId, list[str]] = defaultdict(list)
        for reader in readers:
            process = self.processes.setdefault(reader.process_id, _Process(len(self.processes)))
            process.counts[reader.member_id] = 0
            self._process_of[reader.member_id] = process
            for task in _flat(reader.last.active):
                self.last_active[task] = reader.member_id
            for task in _flat(reader.last.standby):
                self.last_standby[task].append(reader.member_id)
        self.active_share = _Share(active_count, len(readers))
        self.share = _Share(active_count + standby_count, len(readers))

    def keep_active(self, task: TaskId, member_id: str | None) -> bool:
        """Give a task to a member unless it has its share of active tasks; return whether it was given."""
        if member_id is None:
            return False
        process = self._process_of[member_id]
        if process.counts[member_id] >= self.active_share.size:
            return False
        self._count_active(process.add(member_id, task))
        self.active[member_id].add(task)
        return True

    def keep_standby(self, task: TaskId, member_id: str | None) -> bool:
        """Give a standby task to a member unless it has its share; return whether it was given."""
        if member_id is None:
            return False
        process = self._process_of[member_id]
        if task in process.tasks or process.counts[member_id] >= self.share.size:
            return False
        self.share.has(process.add(member_id, task))
        self.standby[member_id].add(task)
        return True

    def warm_member(self, task: TaskId, *, is_free: bool) -> str | None:
        """Return the member that had the standby task and has the least to do; `is_free` if its process must not have
        the task.
        """
        members = self.last_standby.get(task, ())
        if is_free:
            members = [name for name in members if task not in self._process_of[name].tasks]
        return min(members, key=self._load_of, default=None)

    def _load_of(self, member_id: str) -> tuple[float, int]:
        process = self._process_of[member_id]
        return process.load, process.counts[member_id]

    def spread_active(self, tasks: Iterable[TaskId]) -> None:
        """Give tasks to the members with the least to do."""
        by_load = self._by_load()
        for task in tasks:
            process = by_load[0][-1]
            member_id, count = process.add_to_least_loaded(task)
            self.active[member_id].add(task)
            self._count_active(count)
            heapq.heapreplace(by_load, (process.load, process.order, process))

    def spread_standby(self, task: TaskId, by_load: list[tuple[float, int, _Process]]) -> bool:
        """Give a standby task to a member of a process without the task; return False if there is none."""
        passed = []
        while by_load and task in by_load[0][-1].tasks:
            passed.append(heapq.heappop(by_load))
        is_given = bool(by_load)
        if is_given:
            process = by_load[0][-1]
            member_id, count = process.add_to_least_loaded(task)
            self.standby[member_id].add(task)
            self.share.has(count)
            heapq.heapreplace(by_load, (process.load, process.order, process))
        for entry in passed:
            heapq.heappush(by_load, entry)
        return is_given

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        by_load = [(process.load, process.order, process) for process in self.processes.values()]
        heapq.heapify(by_load)
        return by_load

    def _count_active(self, count: int) -> None:
        self.active_share.has(count)
        self.share.has(count)

    def assign_active(self, tasks: list[TaskId]) -> None:
        """Assign the active tasks."""
        tasks.sort(key=lambda task: (task.partition, task.subtopology))
        tasks = [task for task in tasks if not self.keep_active(task, self.last_active.get(task))]
        tasks = [task for task in tasks if not self.keep_active(task, self.warm_member(task, is_free=False))]
        self.spread_active(sorted(tasks))

    def assign_standby(self, tasks: list[TaskId], replicas: int) -> None:
        """Assign as many standby tasks of each as there are processes for."""
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology), reverse=True):
            given = 0
            while given < replicas and (
                self.keep_standby(task, self.last_active.get(task))
                or self.keep_standby(task, self.warm_member(task, is_free=True))
            ):
                given += 1
            if given < replicas:
                left.append((task, replicas - given))
        by_load = self._by_load()
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                if not self.spread_standby(task, by_load):
                    break


def _flat(tasks: Tasks) -> Iterable[TaskId]:
    return (TaskId(subtopology, number) for subtopology, numbers in tasks.items() for number in numbers)


def _grouped(tasks: Iterable[TaskId]) -> Tasks:
    grouped: defaultdict[str, set[int]] = defaultdict(set)
    for subtopology, number in tasks:
        grouped[subtopology].add(number)
    return {subtopology: frozenset(numbers) for subtopology, numbers in sorted(grouped.items())}


def assign_tasks(
    readers: Sequence[TaskReader], sources: Sequence[TaskSource], standby_replicas: int
) -> Mapping[str, TaskSets]:
    """Return the tasks of each member."""
    if not readers:
        return {}
    active = [TaskId(source.subtopology, number) for source in sources for number in range(source.tasks)]
    stateful = [
        TaskId(source.subtopology, number) for source in sources if source.is_stateful for number in range(source.tasks)
    ]
    assignment = _Assignment(readers, len(active), len(stateful) * standby_replicas)
    assignment.assign_active(active)
    if standby_replicas:
        assignment.assign_standby(stateful, standby_replicas)
    return {
        reader.member_id: TaskSets(
            _grouped(assignment.active[reader.member_id]), _grouped(assignment.standby[reader.member_id])
        )
        for reader in readers
    }
