"""What a rule returns: a cause with its evidence, and the commands to look deeper and to repair it.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from kctl.admin.doctor.snapshot import Snapshot
from kctl.output.quantities import counted

NAMES_SHOWN_MAX = 5
"""A list of names in a text is cut to this many."""


class Severity(IntEnum):
    """How soon somebody has to act, from the least urgent."""

    NOTE = 0
    """A choice to know about; nothing is wrong."""
    WARNING = 1
    """Works now; one more event, or time, makes it fail."""
    ERROR = 2
    """Something fails or stands still, and other parts work."""
    CRITICAL = 3
    """Records are being lost, or cannot be written or read."""

    @property
    def label(self) -> str:
        """The name as it is shown and given to options."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause.  `look` is a command line; `repair` is empty, a text, or command lines separated by `; `."""

    severity: Severity
    subject: str
    """What it is about, such as `broker 2`."""
    cause: str
    evidence: tuple[str, ...] = ()
    look: str
    repair: str = ""
    impact: int = 0
    """The number of affected partitions, records or other items: orders findings of one severity and rule."""


Findings = Iterator[Finding]
Rule = Callable[[Snapshot], Findings]


def command(*words: str) -> str:
    """Return a kctl command line, with each word quoted for a shell."""
    return shlex.join(["kctl", *words])


def listed(names: Iterable[object]) -> str:
    """Return some of the names, and how many there are beside them."""
    shown = [str(name) for name in names]
    rest = len(shown) - NAMES_SHOWN_MAX
    return ", ".join(shown[:NAMES_SHOWN_MAX]) + (f" and {rest:,} more" if rest > 0 else "")


def named(noun: str, ids: Collection[int]) -> str:
    """Return `broker 2`, or `brokers 2, 3`."""
    text = listed(sorted(ids))
    return f"{noun} {text}" if len(ids) == 1 else f"{noun}s {text}"


def parts(counts: Iterable[tuple[int, str, str]]) -> str:
    """`3 partitions have no leader, 1 partition refuses writes` from (count, verb of one, verb of several)."""
    return ", ".join(
        f"{counted(count, 'partition')} {singular if count == 1 else plural}"
        for count, singular, plural in counts
        if count
    )
