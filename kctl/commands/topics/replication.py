"""`kctl topics set-replication`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.cluster.health import min_insync_replicas
from kctl.admin.placement.goals import plan_replication_factor
from kctl.admin.placement.tasks import too_few_for_writes
from kctl.client.outcome import topic_error
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.reassign.rows import PlanRow
from kctl.commands.reassign.tasks import TaskOptions, carry_out
from kctl.commands.topics.list import selected_names
from kctl.commands.topics.options import Expect, TopicRegex
from kctl.errors import ErrorCode
from kctl.output.quantities import INT16_MAX, counted

if TYPE_CHECKING:
    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.goals import PlacementReading
    from kctl.admin.placement.state import PlacementState

verbs = typer.Typer(add_completion=False)


@verbs.command(
    "set-replication",
    cls=ChangingCommand,
    epilog=examples(
        "kctl topics set-replication orders --factor 3",
        "kctl topics set-replication orders payments --factor 3 --throttle 50m --yes",
        "kctl topics set-replication --topic-regex 'test-.*' --factor 1 --yes",
    ),
)
@shows(PlanRow)
@with_groups
def set_replication(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Names of topics.", metavar="TOPIC")] = None,
    *,
    factor: Annotated[int, typer.Option("--factor", metavar="N", help="Number of replicas.", min=1, max=INT16_MAX)],
    topic_regex: TopicRegex = None,
    expect: Expect = None,
    options: TaskOptions = TaskOptions(),  # noqa: B008 - immutable
) -> ExitStatus:
    """Give topics another replication factor, higher or lower; a dry run without --yes.

    Existing replicas stay, and so do leaders and preferred leaders.  Replicas are added on brokers in other racks, with
    space and little load; those that are removed are first the dead ones, then those not in sync, never the leader.
    The command waits until the replicas are copied; executed again after an interruption, it continues.  The reverse
    moves are saved in --state-dir for 'kctl reassign execute'.

    Refused (exit status 5) if min.insync.replicas of a topic would be larger than its number of replicas.  Requires
    Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    selected = selected_names(run, names, topic_regex, expect, PlanRow)
    if selected is None:
        return ExitStatus.UNMET
    minimums = run.on_brokers(lambda client: min_insync_replicas(client, selected))

    def plan(reading: PlacementReading, state: PlacementState) -> Assignment:
        for name in selected:
            if name not in reading.metadata.topics:
                raise topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _check_minimums(run, factor, selected, minimums)
        movable = [tp for tp in sorted(state.replicas) if tp.topic in selected]
        return plan_replication_factor(state, factor, movable, sorted(state.racks))

    return carry_out(run, options, plan, lambda tp, _: tp.topic in selected)


def _check_minimums(run: Invocation, factor: int, selected: list[str], minimums: dict[str, int]) -> None:
    """Raise Refused if writes with acks=all would be impossible; warn if the next failure makes them impossible."""
    if low := too_few_for_writes(factor, minimums):
        name, minimum = next(iter(low.items()))
        more = f" (and {counted(len(low) - 1, 'more topic')})" if len(low) > 1 else ""
        remedy = f"kctl topics alter {' '.join(low)} --set min.insync.replicas={max(1, factor - 1)}"
        raise Refused(
            f"min.insync.replicas of {name}{more} is {minimum}: with {counted(factor, 'replica')} no write with "
            f"acks=all would succeed; first: {remedy}{run.cluster_options()}"
        )
    exact = [name for name in selected if factor > 1 and minimums.get(name) == factor]
    if exact:
        run.console.warn(
            f"min.insync.replicas of {', '.join(exact)} is {factor} too: writes with acks=all stop when a broker fails"
        )
    unread = [name for name in selected if name not in minimums]
    if unread:
        run.console.warn(f"min.insync.replicas not checked: {', '.join(unread)} cannot be described")
