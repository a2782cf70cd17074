"""The sticky assignor of streams groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kctl.server.coordination.streams_groups.assignor import TaskReader, TaskSource, assign_tasks
from kctl.server.coordination.streams_groups.state import TaskId, Tasks, TaskSets


def flat(tasks: Tasks) -> Iterator[TaskId]:
    return (TaskId(name, number) for name, numbers in tasks.items() for number in numbers)


def readers_of(chance: random.Random, count: int) -> list[TaskReader]:
    return [TaskReader(f"m{number}", f"p{chance.randrange(4)}", TaskSets()) for number in range(count)]


def sources_of(chance: random.Random) -> list[TaskSource]:
    return [TaskSource(str(name), chance.randrange(1, 9), chance.random() < 0.5) for name in range(3)]


def moved(readers: Sequence[TaskReader], targets: Mapping[str, TaskSets]) -> list[TaskReader]:
    return [TaskReader(reader.member_id, reader.process_id, targets[reader.member_id]) for reader in readers]


def check(
    readers: Sequence[TaskReader], sources: Sequence[TaskSource], replicas: int, targets: Mapping[str, TaskSets]
) -> None:
    """Each task is active once, and has a copy in each of so many other processes."""
    active = [task for target in targets.values() for task in flat(target.active)]
    assert sorted(active) == sorted(
        TaskId(source.subtopology, number) for source in sources for number in range(source.tasks)
    )
    places = Counter(
        (reader.process_id, task)
        for reader in readers
        for role in (targets[reader.member_id].active, targets[reader.member_id].standby)
        for task in flat(role)
    )
    assert set(places.values()) <= {1}
    copies = Counter(task for target in targets.values() for task in flat(target.standby))
    expected = min(replicas, len({reader.process_id for reader in readers}) - 1)
    stateful = [TaskId(source.subtopology, n) for source in sources if source.is_stateful for n in range(source.tasks)]
    assert copies == Counter({task: expected for task in stateful if expected})


def test_every_task_has_an_owner_and_its_standbys() -> None:
    chance = random.Random(1)
    for _ in range(300):
        readers, sources, replicas = readers_of(chance, chance.randrange(1, 9)), sources_of(chance), chance.randrange(3)
        for _ in range(4):
            targets = assign_tasks(readers, sources, replicas)
            check(readers, sources, replicas, targets)
            readers = moved(readers, targets)
            if chance.random() < 0.5:
                readers.append(TaskReader(f"n{chance.random()}", f"p{chance.randrange(5)}", TaskSets()))
            elif len(readers) > 1:
                readers.pop(chance.randrange(len(readers)))


def test_members_keep_their_tasks_and_give_a_new_one_its_share() -> None:
    chance = random.Random(2)
    for _ in range(200):
        readers = [TaskReader(f"m{number}", f"p{number}", TaskSets()) for number in range(chance.randrange(1, 7))]
        sources = [TaskSource("0", chance.randrange(1, 30), is_stateful=True)]
        targets = assign_tasks(readers, sources, 0)
        assert assign_tasks(moved(readers, targets), sources, 0) == targets
        more = [*moved(readers, targets), TaskReader("new", "new", TaskSets())]
        grown = assign_tasks(more, sources, 0)
        loads = [sum(1 for _ in flat(grown[reader.member_id].active)) for reader in more]
        assert max(loads) - min(loads) <= 1
        for reader in readers:
            assert set(flat(grown[reader.member_id].active)) <= set(flat(targets[reader.member_id].active))


def test_the_owner_of_a_standby_becomes_the_active_one() -> None:
    readers = [TaskReader("a", "p", TaskSets()), TaskReader("b", "q", TaskSets())]
    sources = [TaskSource("0", 4, is_stateful=True)]
    targets = assign_tasks(readers, sources, 1)
    assert targets["a"].active == targets["b"].standby
    left = moved(readers, targets)[1:]
    assert assign_tasks(left, sources, 1)["b"].active == {"0": frozenset(range(4))}
    back = [*moved(left, assign_tasks(left, sources, 1)), TaskReader("c", "r", TaskSets())]
    again = assign_tasks(back, sources, 1)
    assert set(flat(again["b"].active)) <= set(flat(targets["b"].active)) | set(flat(targets["b"].standby))
    check(back, sources, 1, again)
