"""Which offsets a member may commit, and which it must drop."""

from __future__ import annotations

from kctl.client.consuming.groups.progress import GroupProgress
from kctl.model import TopicPartition

T0, T1 = (TopicPartition("t", number) for number in range(2))
OWNED = (T0, T1)


def begun() -> GroupProgress:
    """One partition at offset 5, the other without a committed offset."""
    progress = GroupProgress()
    assert progress.missing(OWNED) == [T0, T1]
    progress.begin(OWNED, {T0: 5})
    assert progress.missing(OWNED) == []
    return progress


def test_only_changed_positions_are_committed() -> None:
    progress = begun()
    assert progress.uncommitted(OWNED) == {}
    progress.confirm({T0: 5, T1: 0})
    assert progress.uncommitted(OWNED) == {T1: 0}
    progress.note_committed({T1: 0})
    progress.confirm({T0: 7, T1: 0})
    assert progress.uncommitted(OWNED) == {T0: 7}


def test_reassigned_partition_starts_at_the_committed_offset() -> None:
    progress = begun()
    progress.confirm({T0: 7, T1: 3})
    progress.forget([T0])
    progress.confirm({T0: 8})
    assert progress.uncommitted(OWNED) == {T1: 3}
    assert progress.missing(OWNED) == [T0]
    progress.note_committed({T0: 8, T1: 3})
    progress.begin([T0], {T0: 100})
    assert progress.uncommitted(OWNED) == {}
    progress.confirm({T0: 101})
    assert progress.uncommitted(OWNED) == {T0: 101}


def test_partition_of_another_member_is_not_committed() -> None:
    progress = begun()
    progress.confirm({T0: 7, T1: 3})
    assert progress.uncommitted([T1]) == {T1: 3}
    progress.keep_only([T1])
    assert progress.missing(OWNED) == [T0]
    assert progress.done == {T1: 3}
