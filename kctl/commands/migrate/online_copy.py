"""`kctl migrate`: copy-start, copy-status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.commands.migrate.online import (
    MigrationState,
    PlanFile,
    SideOptions,
    Sides,
    TopicState,
    group_states,
    show_state,
    sides_of,
    topic_states,
)
from kctl.errors import KctlError
from kctl.migration.online.group_offsets import carry_offsets, describe, groups_of, with_members
from kctl.migration.online.mirroring import CUT_OVER, Superseded, phase_in, read_commits
from kctl.migration.online.settings import carry_settings, read_carried
from kctl.migration.online.switching import survey
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.state.document import DesiredState
    from kctl.client.cluster import ClusterClient
    from kctl.migration.online.group_offsets import GroupOffset
    from kctl.migration.online.mirroring import Mirror
    from kctl.migration.online.settings import NotCarried
    from kctl.output.console import Console

verbs = typer.Typer(add_completion=False)

POLL_MS = 500
"""How long to wait when there is nothing to copy."""
NOTE_MS = 10_000
"""How often a line says what was copied."""


@dataclass(slots=True)
class Upkeep:
    """Keeps the target up to date: settings, records, offsets of groups.  Owner: event loop."""

    console: Console
    sides: Sides
    mirror: Mirror
    interval_ms: int
    only_creates: bool = False
    """Whether settings are carried only for topics and partitions that are missing."""
    offsets: list[GroupOffset] = field(default_factory=list)
    _before: DesiredState | None = None
    _refused: set[NotCarried] = field(default_factory=set)
    _settled_ms: int = -(1 << 62)
    _noted_ms: int = 0
    _noted: tuple[int, str] = (0, "")

    async def run(self, *, once: bool, patience_ms: int) -> None:
        """Copy until the target has everything, with `once`, or for ever.

        An error is tried again until nothing has succeeded for `patience_ms`.  Raises KctlError.
        """
        now_ms = self.mirror.source.transport.monotonic_ms
        succeeded_ms = now_ms()
        while True:
            try:
                copied = await self.pass_once()
                succeeded_ms = now_ms()
            except Superseded:
                raise
            except KctlError as error:
                if once or now_ms() - succeeded_ms >= patience_ms:
                    raise
                self.console.warn(f"{error}; trying again")
                await self.mirror.source.transport.sleep(POLL_MS)
                continue
            self._note(now_ms())
            if once and not copied:
                await self.carry_groups()
                return
            if not copied:
                await self.mirror.source.transport.sleep(POLL_MS)

    async def pass_once(self) -> int:
        """Copy what there is now; return the number of records.  Raises KctlError."""
        now_ms = self.mirror.source.transport.monotonic_ms
        is_due = now_ms() - self._settled_ms >= self.interval_ms
        if is_due:
            await self._carry_settings()
        copied = await self.mirror.round(looks=is_due)
        if is_due:
            await self.carry_groups()
            self._settled_ms = now_ms()
        return copied

    async def carry_groups(self) -> None:
        """Carry the offsets of all groups of the plan.  Raises KctlError."""
        groups = await groups_of(self.mirror.source, self.sides.plan.groups.has)
        self.offsets = await carry_offsets(
            self.mirror, [group.group_id for group in groups], replaces=self.only_creates
        )

    async def _carry_settings(self) -> None:
        mirror = self.mirror
        carried = await read_carried(mirror.source, mirror.target, mirror.selects)
        before = self.sides.plan.state if self._before is None else self._before
        done, refused = await carry_settings(mirror.target, carried, before, only_creates=self.only_creates)
        self._before = carried.state
        if done:
            self.console.note(f"{counted(done, 'setting')} of the target changed")
        for item in [item for item in refused if item not in self._refused]:
            self._refused.add(item)
            value = "" if item.item is None else f" {item.item}={item.value}"
            self.console.warn(f"not carried: {item.kind} {item.name}{value}: {item.reason}")

    def _note(self, now_ms: int) -> None:
        state = self.mirror.copied, describe(self.offsets)
        if now_ms - self._noted_ms < NOTE_MS or state == self._noted:
            return
        self._noted_ms, self._noted = now_ms, state
        lag = counted(self.mirror.lag, "offset")
        self.console.note(f"{counted(state[0], 'record')} copied, {lag} left; offsets of groups: {state[1]}")


async def require_copying(sides: Sides, mirror: Mirror) -> None:
    """Raise Refused after the cut over: records of both clusters would be mixed."""
    if phase_in(await read_commits(mirror.target, mirror.names.group)) == CUT_OVER:
        raise Refused(
            "the migration was cut over, and the target may have records of its own: 'kctl migrate copy-back' goes "
            f"back to {sides.plan.source_servers}"
        )


@verbs.command(
    "copy-start",
    cls=ChangingCommand,
    epilog=examples(
        "kctl migrate copy-start --plan move.json --dry-run",
        "kctl migrate copy-start --plan move.json --yes",
        "kctl migrate copy-start --plan move.json --once --yes --format json",
    ),
)
@shows_one(MigrationState, lines=TopicState)
@with_groups
def copy_start(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    sides: SideOptions,
    once: Annotated[
        bool, typer.Option("--once", help="End when the target has what the source has, instead of going on.")
    ] = False,
    interval: Annotated[
        Duration,
        typer.Option("--interval", parser=Duration, help="How often settings and offsets of groups are compared."),
    ] = Duration("10s"),
    patience: Annotated[
        Duration,
        typer.Option(
            "--patience", parser=Duration, help="How long errors, such as an unreachable cluster, are retried."
        ),
    ] = Duration("10m"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is left to copy; change nothing.")] = False,
) -> ExitStatus:
    """Copy a cluster to another one, and keep the copy up to date until it is stopped.

    Creates topics that are missing, also those that appear later, and follows properties, partitions, ACLs and quotas.
    Copies each record once, with key, value, headers, timestamp and partition, and carries the offsets of groups, each
    to the same record.  What the target has of its own stays.

    It can be killed at any time: the same command continues, and nothing is lost or doubled, because records and
    progress are one transaction.  A second command for the same clusters takes over, and the first one ends.  Memory
    does not depend on the amount of data.
    """
    run: Invocation = ctx.obj
    both = sides_of(run, plan, sides)
    if not dry_run:
        both.target.authorize_change(ctx.command_path)
        run.consent(f"Copy cluster {both.plan.source_cluster} to {both.plan.target_cluster}?")

    async def work(source: ClusterClient, target: ClusterClient) -> MigrationState:
        mirror = both.mirror(source, target)
        await require_copying(both, mirror)
        if not dry_run:
            upkeep = Upkeep(run.console, both, mirror, interval)
            await upkeep.run(once=once, patience_ms=patience)
        return await read_state_of(both, mirror)

    state = both.change(run, work)
    show_state(run, state)
    has_failed = any(topic.lag is None for topic in state.topics) or any(item.error for item in state.groups)
    return ExitStatus.FAILED if has_failed and not dry_run else ExitStatus.DONE


async def read_state_of(sides: Sides, mirror: Mirror) -> MigrationState:
    """Return the state of the migration; changes nothing.  Raises KctlError."""
    groups = await groups_of(mirror.source, sides.plan.groups.has)
    state = await survey(mirror, [group.group_id for group in groups], with_members(groups))
    return MigrationState(
        state.phase or "copying",
        not state.reasons,
        state.reasons,
        state.synced_ms or None,
        sides.plan.target_servers if state.phase == CUT_OVER else None,
        topic_states(mirror),
        group_states(state.offsets),
    )


@verbs.command(
    "copy-status",
    cls=QueryCommand,
    epilog=examples(
        "kctl migrate copy-status --plan move.json",
        "kctl migrate copy-status --plan move.json --format json",
    ),
)
@shows_one(MigrationState, lines=TopicState)
@with_groups
def copy_status(ctx: typer.Context, *, plan: PlanFile, sides: SideOptions) -> ExitStatus:
    """Show how far a copy is, and whether it can be cut over now; changes nothing.

    Per topic what is left to copy, per group and partition the offset on both sides.  The exit status is 0 if the
    migration can be cut over now, and 3 with the reasons if it cannot.
    """
    run: Invocation = ctx.obj
    both = sides_of(run, plan, sides)
    state = both.run(lambda source, target: read_state_of(both, both.mirror(source, target)))
    show_state(run, state)
    return ExitStatus.DONE if state.ready else ExitStatus.UNMET
