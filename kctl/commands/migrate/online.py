"""What the commands of a migration without a stop share: the plan, the two clusters, and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.commands.frame.exit_status import Refused
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.migrate.plan import read_document
from kctl.migration.online.mirroring import Mirror, Names
from kctl.migration.online.plan import OnlinePlan, parse_plan
from kctl.output.console import Column, ErrorName, ErrorText

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from kctl.commands.frame.invocation import Invocation
    from kctl.migration.online.group_offsets import GroupOffset
    from kctl.migration.online.switching import Verified

    T = TypeVar("T")

CLUSTERS_PANEL = "Clusters"

PlanFile = Annotated[str, typer.Option("--plan", metavar="FILE", help="Document of 'kctl migrate copy-plan'.")]


def _side(option: str, metavar: str, text: str) -> typer.models.OptionInfo:
    option_info: typer.models.OptionInfo = typer.Option(
        option, metavar=metavar, help=text, rich_help_panel=CLUSTERS_PANEL
    )
    return option_info


FromConfig = Annotated[
    str | None, _side("--from-config", "FILE", "Properties file with client settings for the cluster to move from.")
]
ToConfig = Annotated[
    str | None, _side("--to-config", "FILE", "Properties file with client settings for the cluster to move to.")
]
FromProfile = Annotated[str | None, _side("--from-profile", "PROFILE", "Profile of the cluster to move from.")]
ToProfile = Annotated[str | None, _side("--to-profile", "PROFILE", "Profile of the cluster to move to.")]


class SideOptions(NamedTuple):
    """The settings of the clients of both clusters."""

    from_config: FromConfig = None
    to_config: ToConfig = None
    from_profile: FromProfile = None
    to_profile: ToProfile = None


class Sides(NamedTuple):
    """The two clusters of a plan."""

    plan: OnlinePlan
    source: Invocation
    target: Invocation

    def change(self, run: Invocation, work: Callable[[ClusterClient, ClusterClient], Awaitable[T]]) -> T:
        """Run work that changes the clusters; say what an interruption means.  Raises KctlError."""
        run.changes = None
        try:
            return self.run(work)
        except KeyboardInterrupt:
            run.console.note("interrupted: what was copied is complete; the same command continues")
            raise

    def run(self, work: Callable[[ClusterClient, ClusterClient], Awaitable[T]]) -> T:
        """Run work with clients of the source and of the target.  Raises KctlError."""

        async def with_both(source: ClusterClient) -> T:
            async with ClusterClient(self.target.client_settings(), AsyncioTransport(), None) as target:
                await self._check(source, target)
                return await work(source, target)

        return self.source.on_cluster_concurrently(with_both)

    async def _check(self, source: ClusterClient, target: ClusterClient) -> None:
        """Raise Refused if the addresses are those of other clusters than when the plan was made."""
        if not self.plan.source_cluster:
            return  # The plan is being made.
        with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
            for client, side, expected in (
                (source, "from", self.plan.source_cluster),
                (target, "to", self.plan.target_cluster),
            ):
                cluster = (await client.metadata([])).cluster_id
                if cluster != expected:
                    raise Refused(
                        f"the cluster to move {side} has the id {cluster}, in the plan {expected}: make a new plan"
                    )

    def mirror(self, source: ClusterClient, target: ClusterClient, *, is_back: bool = False) -> Mirror:
        """Return the copy from the source to the target, or back."""
        names = Names.of(self.plan.source_cluster, is_back=is_back)
        if is_back:
            source, target = target, source
        return Mirror(source, target, names, self.plan.topics.has)


def sides_of(run: Invocation, plan_file: str, options: SideOptions) -> Sides:
    """Return the clusters of a plan.  Raises UsageError."""
    plan = parse_plan(read_document(plan_file), plan_file)
    return Sides(
        plan,
        run.of_side(plan.source_servers, options.from_config, options.from_profile),
        run.of_side(plan.target_servers, options.to_config, options.to_profile),
    )


class TopicState(NamedTuple):
    """A topic of the migration."""

    topic: str
    partitions: int
    lag: Annotated[int | None, "Offsets that are left to copy."]
    open_transactions: Annotated[int, "Partitions with open transactions.", Column(drop_order=2)]
    deleted: Annotated[int, "Offsets that were deleted before they were copied, in this run.", Column(drop_order=1)]
    status: Annotated[str, "copied, behind, verified, different, or not copied."]
    verified: Annotated[
        int | None, "Records that are equal on both sides; with compaction, keys.", Column(drop_order=3)
    ]
    message: ErrorText = None


class GroupState(NamedTuple):
    """The offset of a group in one partition, on both sides."""

    group: str
    topic: str | None
    partition: int | None
    source_offset: int | None
    target_offset: int | None
    status: Annotated[
        str,
        "carried; early (some records are read again); kept (the group has committed in the target itself); behind; or "
        "failed.",
    ]
    error: ErrorName = None
    message: ErrorText = None


class MigrationState(NamedTuple):
    """The JSON document of the state of a migration."""

    phase: Annotated[str, "copying, cut over, or gone back."]
    ready: Annotated[bool, "Whether the migration can be cut over now."]
    reasons: Annotated[list[str], "Why not."]
    synced_ms: Annotated[int | None, "When the source was last read, in ms since 1970."]
    bootstrap: Annotated[str | None, "The addresses for the clients, after a cut over or back."]
    topics: list[TopicState]
    groups: list[GroupState]


def topic_states(mirror: Mirror, verified: Sequence[Verified] = ()) -> list[TopicState]:
    """Return the rows of the topics, also of those that are not copied."""
    by_topic: dict[str, list[TopicState]] = {}
    comparisons: Mapping[str, Verified] = {item.topic: item for item in verified}
    for tp, partition in mirror.partitions.items():
        state = TopicState(tp.topic, 1, partition.lag, int(partition.is_open), partition.deleted, "copied", None)
        by_topic.setdefault(tp.topic, []).append(state)
    rows = [TopicState(name, 0, None, 0, 0, "not copied", None, problem) for name, problem in mirror.problems.items()]
    for topic, states in by_topic.items():
        lag = sum(state.lag or 0 for state in states)
        comparison = comparisons.get(topic)
        status = "behind" if lag else "copied"
        if comparison is not None:
            status = "verified" if comparison.problem is None else "different"
        rows.append(
            TopicState(
                topic,
                len(states),
                lag,
                sum(state.open_transactions for state in states),
                sum(state.deleted for state in states),
                status,
                None if comparison is None else comparison.records,
                None if comparison is None else comparison.problem or comparison.note,
            )
        )
    return sorted(rows)


def group_states(items: Iterable[GroupOffset]) -> list[GroupState]:
    """Return the rows of the offsets of groups."""
    return [
        GroupState(
            item.group,
            None if item.tp is None else item.tp.topic,
            None if item.tp is None else item.tp.partition,
            item.source_offset,
            item.target_offset,
            item.status,
            **outcome_error(item.outcome),
        )
        for item in items
    ]


def show_state(run: Invocation, state: MigrationState) -> None:
    """Show the state: a document, or tables of the topics and groups with the reasons on stderr."""
    if run.console.format.is_document:
        run.console.show_one(state)
        return
    run.console.show(TopicState, state.topics)
    if state.groups and not run.console.is_machine_readable:
        run.console.show(GroupState, state.groups)
    for reason in state.reasons:
        run.console.note(f"not ready: {reason}")
