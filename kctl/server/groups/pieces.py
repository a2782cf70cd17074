"""Work for all members of a group, which is done in several steps if there are many members.

The rest of the work is part of the group, and the group gets no other event before it is done, so that no event sees a
group in between.  Work that begins while other work is unfinished is done after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX
from kctl.server.groups.actions import Action
from kctl.server.groups.group import Group

Work: TypeAlias = Iterator[Sequence[Action]]
"""Does a part for one member each time that it is continued."""


def begin(group: Group, size: int, work: Work, out: list[Action]) -> None:
    """Does the work now if it has at most GROUP_MEMBERS_PER_STEP_MAX parts, else with `Continue`."""
    if size > GROUP_MEMBERS_PER_STEP_MAX:
        group.unfinished.append(work)
        return
    for actions in work:
        out += actions


def go_on(group: Group, out: list[Action]) -> None:
    """Does the next GROUP_MEMBERS_PER_STEP_MAX parts."""
    left = GROUP_MEMBERS_PER_STEP_MAX
    while group.unfinished:
        for actions in group.unfinished[0]:
            out += actions
            left -= 1
            if left <= 0:
                return
        group.unfinished.popleft()
