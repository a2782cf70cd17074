"""`kctl cluster`: add-broker, remove-broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.cluster.membership import look_at_remains, unregister_broker
from kctl.admin.placement.goals import plan_add, plan_drain
from kctl.client.outcome import absent_broker
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.reassign.rows import PlanRow, broker_ids
from kctl.commands.reassign.tasks import TaskOptions, carry_out
from kctl.output.quantities import INT32_MAX, counted

if TYPE_CHECKING:
    from kctl.admin.cluster.membership import Remains
    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.goals import PlacementReading
    from kctl.admin.placement.state import PlacementState

verbs = typer.Typer(add_completion=False)


@verbs.command(
    "add-broker",
    cls=ChangingCommand,
    epilog=examples(
        "kctl cluster add-broker 4",
        "kctl cluster add-broker 4,5 --throttle 50m --max-moves 20 --yes",
    ),
)
@shows(PlanRow)
@with_groups
def add_broker(
    ctx: typer.Context,
    brokers: Annotated[str, typer.Argument(help="Brokers that have joined the cluster.", metavar="ID[,ID...]")],
    *,
    options: TaskOptions = TaskOptions(),  # noqa: B008 - immutable
) -> ExitStatus:
    """Move to new brokers their share of the partitions; a dry run without --yes.

    A broker is empty when it has joined.  Only what balances it is copied: other brokers receive nothing, and no
    partition gets into fewer racks.  The command waits until the replicas are copied; executed again after an
    interruption, it continues.  The reverse moves are saved in --state-dir for 'kctl reassign execute'.

    Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    added = broker_ids(brokers) or []

    def plan(_: PlacementReading, state: PlacementState) -> Assignment:
        for broker in added:
            if broker not in state.racks:
                raise absent_broker(broker, state.racks)
        return plan_add(state, added, sorted(state.replicas), sorted(state.racks))

    return carry_out(run, options, plan, lambda _, move: not set(added).isdisjoint(move.adding))


@verbs.command(
    "remove-broker",
    cls=ChangingCommand,
    epilog=examples(
        "kctl cluster remove-broker 3",
        "kctl cluster remove-broker 3 --throttle 50m --yes",
    ),
)
@shows(PlanRow)
@with_groups
def remove_broker(
    ctx: typer.Context,
    broker: Annotated[int, typer.Argument(help="The broker, which may be down.", min=0, max=INT32_MAX)],
    *,
    options: TaskOptions = TaskOptions(),  # noqa: B008 - immutable
) -> ExitStatus:
    """Move all replicas and leaders of a broker away, and remove it from the cluster; a dry run without --yes.

    The command waits until the replicas are copied, and checks that the broker has none left, also on its disks.
    Executed again after an interruption, it continues.  Then the process of the broker can be stopped.  In a KRaft
    cluster the broker stays registered: the same command, executed again when it is down, removes its registration.
    While the broker runs it is not removed, because it could not end its shutdown.

    It is an error if a partition has as many replicas as there are brokers: 'kctl topics set-replication' reduces
    their number.  Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj

    holds = False

    def plan(_: PlacementReading, state: PlacementState) -> Assignment:
        nonlocal holds
        holds = any(broker in replicas for replicas in state.replicas.values())
        return plan_drain(state, [broker], sorted(state.replicas), sorted(state.racks.keys() - {broker}))

    status = carry_out(run, options, plan, lambda _, move: broker in move.removing)
    executes = run.has_consent and not options.dry_run
    if status is not ExitStatus.DONE or (holds and (options.no_wait or not executes)):
        return status
    remains = run.on_cluster_concurrently(lambda client: look_at_remains(client, broker))
    if remains.partitions or remains.on_disk:
        run.console.warn(_unfinished(remains))
        return ExitStatus.UNMET
    if remains.is_alive:
        _note_empty(run, remains)
    elif remains.quorum.is_kraft and executes:
        if run.on_brokers(lambda client: unregister_broker(client, broker)):
            run.console.note(f"broker {broker} is removed: it holds nothing, and its registration was deleted")
        elif not holds:
            raise absent_broker(broker, remains.alive)
    elif remains.is_fenced:
        run.console.note(f"the registration of broker {broker} would be deleted: repeat with --yes")
    elif not holds:
        raise absent_broker(broker, remains.alive)
    else:
        run.console.note(f"broker {broker} is removed: it is down, and holds nothing")
    return ExitStatus.DONE


def _unfinished(remains: Remains) -> str:
    """Return what is left although the moves have ended."""
    if remains.partitions:
        count = counted(len(remains.partitions), "partition")
        return (
            f"{count} ({remains.partitions[0]}, ...) came to broker {remains.broker} while it was emptied: repeat the "
            "command"
        )
    count = counted(len(remains.on_disk), "replica")
    return (
        f"broker {remains.broker} has not deleted {count} ({remains.on_disk[0]}, ...) that were moved away: repeat the "
        "command"
    )


def _note_empty(run: Invocation, remains: Remains) -> None:
    """Say what to do with the process of a broker that holds nothing."""
    broker = remains.broker
    if not remains.quorum.is_kraft:
        run.console.note(f"broker {broker} holds nothing: its process can be stopped")
        return
    if remains.is_voter:
        run.console.warn(
            f"node {broker} is also a voter of the metadata quorum, which has one voter less without it: "
            "'kctl cluster quorum --replication' shows the others"
        )
    run.console.note(
        f"broker {broker} holds nothing: stop its process, then repeat the command, which deletes its registration"
    )
