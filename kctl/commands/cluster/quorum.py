"""`kctl cluster quorum`: describe the controllers of a KRaft cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.observation import describe_metadata_quorum
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import BootstrapController
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.model import uuid_text
from kctl.output.console import JSON_ONLY, Column

if TYPE_CHECKING:
    from kctl.admin.cluster.quorum import QuorumReplica


# `kctl cluster quorum`.


verbs = typer.Typer(add_completion=False)


class ReplicaRow(NamedTuple):
    """A controller, or a broker that reads the metadata log."""

    node: int
    role: str
    log_end_offset: int | None
    lag: int | None
    last_fetch_ms: Annotated[int | None, JSON_ONLY]
    last_fetch: str | None
    last_caught_up_ms: Annotated[int | None, JSON_ONLY]
    last_caught_up: str | None
    directory_id: str | None
    endpoints: Annotated[list[str], Column(wraps=True, is_rare=True)]


class QuorumItem(NamedTuple):
    """The state of the quorum."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    max_follower_lag: int | None
    max_follower_lag_ms: int | None
    voters: list[int]
    observers: list[int]


@verbs.command(
    "quorum",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster quorum",
        "kctl cluster quorum --replication",
        "kctl cluster quorum --replication --format json",
        "kctl cluster quorum --bootstrap-controller controller1:9093",
    ),
)
@shows(ReplicaRow, instead=QuorumItem)
def describe(
    ctx: typer.Context,
    *,
    replication: Annotated[
        bool, typer.Option("--replication", help="One row per controller and broker, with its lag.")
    ] = False,
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Describe the quorum of controllers: the leader, its epoch, voters and observers.

    Voters are the controllers that elect the leader; observers are the brokers, which read the metadata log.  A lag is
    in offsets of this log.  A cluster whose metadata is in ZooKeeper has no quorum: exit status 1.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    quorum = run.on_brokers(describe_metadata_quorum)
    if replication:
        run.console.show(ReplicaRow, [_row(replica) for replica in quorum.replicas])
        return ExitStatus.DONE
    run.console.show_one(
        QuorumItem(
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            max_follower_lag=quorum.max_follower_lag,
            max_follower_lag_ms=quorum.max_follower_lag_ms,
            voters=sorted(replica.node_id for replica in quorum.replicas if replica.is_voter),
            observers=sorted(replica.node_id for replica in quorum.replicas if not replica.is_voter),
        )
    )
    return ExitStatus.DONE


def _row(replica: QuorumReplica) -> ReplicaRow:
    return ReplicaRow(
        node=replica.node_id,
        role=replica.role,
        log_end_offset=replica.log_end_offset,
        lag=replica.lag,
        last_fetch_ms=replica.last_fetch_ms,
        last_fetch=None if replica.last_fetch_ms is None else format_time(replica.last_fetch_ms),
        last_caught_up_ms=replica.last_caught_up_ms,
        last_caught_up=None if replica.last_caught_up_ms is None else format_time(replica.last_caught_up_ms),
        directory_id=None if replica.directory_id is None else uuid_text(replica.directory_id),
        endpoints=list(replica.endpoints),
    )
