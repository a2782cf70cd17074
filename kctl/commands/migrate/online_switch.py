"""`kctl migrate`: copy-cutover, copy-back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.shown import shows_one
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
from kctl.commands.migrate.online_copy import Upkeep, read_state_of, require_copying
from kctl.migration.online.group_offsets import groups_of, take_over, with_members
from kctl.migration.online.mirroring import CUT_OVER, phase_in, read_commits
from kctl.migration.online.switching import blocking, growing, mark_cut_over, mark_gone_back, verify_records
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.migration.online.mirroring import Mirror
    from kctl.migration.online.switching import Verified
    from kctl.output.console import Console

verbs = typer.Typer(add_completion=False)

GONE_BACK = "gone back"

Quiet = Annotated[
    Duration,
    typer.Option(
        "--quiet-time", parser=Duration, help="How long no partition may get records: producers have stopped."
    ),
]
Verify = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Compare all records of both clusters, which takes the time to read."),
]


async def _settle(upkeep: Upkeep, quiet_ms: int, *, verifies: bool) -> tuple[list[str], list[Verified]]:
    """Copy the rest; return why the clients cannot be switched now, and the comparison of the records.

    Raises KctlError.
    """
    mirror = upkeep.mirror
    await upkeep.run(once=True, patience_ms=0)
    if tps := await growing(mirror, quiet_ms):
        names = ", ".join(map(str, tps[:5])) + (f" and {len(tps) - 5} more" if len(tps) > 5 else "")
        return [f"records are still written to {names}: stop the producers"], []
    await upkeep.run(once=True, patience_ms=0)
    groups = await groups_of(mirror.source, upkeep.sides.plan.groups.has)
    reasons = blocking(mirror, upkeep.offsets, with_members(groups))
    verified = await verify_records(mirror) if verifies and not reasons else []
    reasons += [f"topic {item.topic}: {item.problem}" for item in verified if item.problem is not None]
    return reasons, verified


def _state(
    upkeep: Upkeep, phase: str, reasons: list[str], verified: list[Verified], bootstrap: str | None
) -> MigrationState:
    mirror = upkeep.mirror
    return MigrationState(
        phase,
        not reasons,
        reasons,
        mirror.clock_ms(),
        bootstrap,
        topic_states(mirror, verified),
        group_states(upkeep.offsets),
    )


def _show(console: Console, run: Invocation, state: MigrationState) -> ExitStatus:
    show_state(run, state)
    if state.bootstrap is None:
        return ExitStatus.UNMET
    console.note(f"start consumers and producers with bootstrap.servers={state.bootstrap}")
    return ExitStatus.DONE


@verbs.command(
    "copy-cutover",
    cls=ChangingCommand,
    epilog=examples(
        "kctl migrate copy-cutover --plan move.json --dry-run",
        "kctl migrate copy-cutover --plan move.json --yes",
    ),
)
@shows_one(MigrationState, lines=TopicState)
@with_groups
def copy_cutover(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    sides: SideOptions,
    quiet_time: Quiet = Duration("5s"),
    verify: Verify = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show whether it can be done now; change nothing.")
    ] = False,
) -> ExitStatus:
    """Finish the copy, and let the target go on.  Stop the producers and consumers first.

    Takes over from a running 'kctl migrate copy-start', copies the rest, and checks that no partition of the source
    gets records any more, that nothing is left to copy, that no transaction is open, that no group has members, that
    the offsets of all groups are carried, and that all records are equal in both clusters.  If one of these does not
    hold, the exit status is 3 with the reason, and the copy can go on.

    Then it notes in both clusters that the target goes on, where 'kctl migrate copy-back' will begin, and shows the
    addresses for the clients.  The source keeps its records.
    """
    run: Invocation = ctx.obj
    both = sides_of(run, plan, sides)
    if not dry_run:
        for side in (both.source, both.target):
            side.authorize_change(ctx.command_path)
        run.consent(f"Cut over from cluster {both.plan.source_cluster} to {both.plan.target_cluster}?")

    async def work(source: ClusterClient, target: ClusterClient) -> MigrationState:
        mirror = both.mirror(source, target)
        if dry_run:
            return await _dry_run(both, mirror, quiet_time)
        await require_copying(both, mirror)
        upkeep = Upkeep(run.console, both, mirror, 0)
        reasons, verified = await _settle(upkeep, quiet_time, verifies=verify)
        if reasons:
            return _state(upkeep, "copying", reasons, verified, None)
        await mark_cut_over(mirror, both.plan.source_cluster)
        return _state(upkeep, CUT_OVER, [], verified, both.plan.target_servers)

    state = both.change(run, work)
    if dry_run:
        show_state(run, state)
        return ExitStatus.DONE if state.ready else ExitStatus.UNMET
    return _show(run.console, run, state)


async def _dry_run(sides: Sides, mirror: Mirror, quiet_ms: int) -> MigrationState:
    state = await read_state_of(sides, mirror)
    tps = await growing(mirror, quiet_ms)
    if not tps:
        return state
    reasons = [*state.reasons, f"{counted(len(tps), 'partition')} of the source still get records"]
    return state._replace(ready=False, reasons=reasons)


@verbs.command(
    "copy-back",
    cls=ChangingCommand,
    epilog=examples(
        "kctl migrate copy-back --plan move.json --dry-run",
        "kctl migrate copy-back --plan move.json --yes",
    ),
)
@shows_one(MigrationState, lines=TopicState)
@with_groups
def copy_back(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    sides: SideOptions,
    quiet_time: Quiet = Duration("5s"),
    verify: Verify = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied back; change nothing.")] = False,
) -> ExitStatus:
    """Go back to the source after a cut over.  Stop the producers and consumers of the target first.

    Copies what was written to the target since the cut over, each record once, with the offsets of the groups; creates
    topics and partitions that were added since.  The checks are those of 'kctl migrate copy-cutover', in the other
    direction.  It can be killed and repeated.  Afterwards the clients use the source again, and 'kctl migrate
    copy-start' can go on copying to the target.
    """
    run: Invocation = ctx.obj
    both = sides_of(run, plan, sides)
    if not dry_run:
        for side in (both.source, both.target):
            side.authorize_change(ctx.command_path)
        run.consent(f"Go back from cluster {both.plan.target_cluster} to {both.plan.source_cluster}?")

    async def work(source: ClusterClient, target: ClusterClient) -> MigrationState:
        forward = both.mirror(source, target)
        if phase_in(await read_commits(target, forward.names.group)) != CUT_OVER:
            raise Refused("the migration was not cut over, so that there is nothing to go back from")
        back = both.mirror(source, target, is_back=True)
        upkeep = Upkeep(run.console, both, back, 0, only_creates=True)
        if dry_run:
            await back.look()
            return _state(upkeep, CUT_OVER, blocking(back, [], []), [], None)
        reasons, verified = await _settle(upkeep, quiet_time, verifies=verify)
        if reasons:
            return _state(upkeep, CUT_OVER, reasons, verified, None)
        await take_over(back, upkeep.offsets)
        await mark_gone_back(back, both.plan.source_cluster)
        return _state(upkeep, GONE_BACK, [], verified, both.plan.source_servers)

    state = both.change(run, work)
    if dry_run:
        show_state(run, state)
        return ExitStatus.DONE
    return _show(run.console, run, state)
