"""Port for the log of an export: where it is, and what it has published."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from kctl.tables.commits.inventory import Inventory
from kctl.tables.exec.outcome import FileOutcome
from kctl.tables.plans.plan import Plan, Positions
from kctl.tables.upserts.changed_keys import ChangedKeys


class ExportLog(Protocol):
    """The log of one target.  Methods that write expect the lock to be held."""

    @property
    def changed_keys(self) -> Mapping[str, ChangedKeys]:
        """What the last commits of topics have changed in the current state by key; empty for other exports."""
        ...

    def is_new(self) -> bool:
        """Return whether nothing has been exported to the target."""
        ...

    def create(self) -> None:
        """Prepare the target; an existing one is fine."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Hold the lock during the returned context.  Raises Locked if another exporter has it."""
        ...

    def positions(self) -> Positions:
        """Return the positions after the last commit; empty for a new target."""
        ...

    def pending(self, positions: Positions) -> Plan | None:
        """Return the plan of an interrupted run that has to be carried out unchanged, or None."""
        ...

    def inventory(self, positions: Positions, pending: Plan | None, topics: Collection[str]) -> Inventory:
        """Compare the data files of the topics with the commits."""
        ...

    def placed(self, plan: Plan) -> Plan:
        """Return the plan with the paths that files of this log have."""
        ...

    def commits_of(self, plan: Plan) -> list[Plan]:
        """Return the parts of the plan that are committed each by itself: one, or one per table."""
        ...

    def write_plan(self, plan: Plan) -> None:
        """Record the plan, if interrupted plans are carried out again.  Raises LostRace."""
        ...

    def write_commit(
        self,
        plan: Plan,
        outcomes: Mapping[str, FileOutcome],
        positions: Positions,
        *,
        now_ms: int,
        dropped: Collection[str] = (),
    ) -> Positions:
        """Publish a batch; return the positions after it.  Raises LostRace if another exporter was first.

        `dropped` are finished files that a plan before had and this part of it has not: they are removed.
        """
        ...

    def abandon(self, plan: Plan, positions: Positions, *, now_ms: int, dropped: Collection[str]) -> Positions:
        """End a written plan of which no part could be carried out, so that another one can be written."""
        ...

    def remove_unfinished(self, topics: Collection[str]) -> None:
        """Delete what interrupted tasks and exporters have left."""
        ...
