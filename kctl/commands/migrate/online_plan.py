"""`kctl migrate copy-plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.placement.log_dirs import describe_log_dirs, replica_sizes, usable_bytes
from kctl.admin.topics.offsets import offset_ranges
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.migrate.online import CLUSTERS_PANEL, SideOptions, Sides
from kctl.commands.migrate.plan import require_new, write_document
from kctl.config.addresses import address_text
from kctl.errors import KctlError, UsageError
from kctl.migration.online.group_offsets import groups_of, with_members
from kctl.migration.online.mirroring import CUT_OVER, phase_in, read_commits
from kctl.migration.online.plan import OnlinePlan, Selection, format_plan
from kctl.migration.online.settings import plan_settings, read_carried, refused_properties
from kctl.model import TopicPartition
from kctl.output.console import Column
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kctl.client.cluster import ClusterClient
    from kctl.migration.online.mirroring import Mirror
    from kctl.migration.online.settings import Carried

verbs = typer.Typer(add_completion=False)

PROBLEM, NOTE = "problem", "note"


class PlannedItem(NamedTuple):
    """Something that the migration does, does not carry, or cannot do."""

    kind: Annotated[str, "topic, acl, quota, user, group, transaction, room or cluster."]
    name: str
    action: Annotated[str, "copy, create, alter, carry, not carried, note or problem."]
    item: str | None = None
    value: str | None = None
    detail: Annotated[str | None, Column(drop_order=1)] = None


@verbs.command(
    "copy-plan",
    cls=ClusterCommand,
    epilog=examples(
        "kctl migrate copy-plan --from-cluster old:9092 --to-cluster new:9092 --output move.json",
        "kctl migrate copy-plan --from-cluster old:9092 --to-cluster new:9092 --topics 'shop-*' --groups 'shop-*'",
    ),
)
@shows(PlannedItem)
@with_groups
def copy_plan(
    ctx: typer.Context,
    *,
    from_cluster: Annotated[
        str | None,
        typer.Option(
            "--from-cluster",
            metavar="HOST:PORT[,...]",
            help="Brokers of the cluster to move from.  Default: --bootstrap-server.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    to_cluster: Annotated[
        str | None,
        typer.Option(
            "--to-cluster",
            metavar="HOST:PORT[,...]",
            help="Brokers of the cluster to move to.  Default: --bootstrap-server.",
            rich_help_panel=CLUSTERS_PANEL,
        ),
    ] = None,
    sides: SideOptions,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="PATTERN", help="Topics to copy; * and ? are wildcards.  Repeatable; all."),
    ] = None,
    exclude_topics: Annotated[
        list[str] | None, typer.Option("--exclude-topics", metavar="PATTERN", help="Topics to leave out.  Repeatable.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option("--groups", metavar="PATTERN", help="Groups whose offsets are carried.  Repeatable; all."),
    ] = None,
    exclude_groups: Annotated[
        list[str] | None, typer.Option("--exclude-groups", metavar="PATTERN", help="Groups to leave out.  Repeatable.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Where to write the document for the other steps.")
    ] = None,
) -> ExitStatus:
    """Plan a move to another cluster without a stop; changes nothing in either cluster.

    Reads both clusters, and shows what is copied, what the target refuses or cannot get, and what stands in the way:
    topics with their properties, ACLs, quotas, SCRAM users, groups with their offsets, open transactions, and the room
    that the copy needs.  The target is asked which properties it accepts, without creating anything.

    The document names both clusters, the topics and the groups, and has the settings of the source, without passwords.
    With problems the exit status is 3, and no document is written.
    """
    run: Invocation = ctx.obj
    require_new(output)
    source_side = run.of_side(from_cluster, sides.from_config, sides.from_profile)
    target_side = run.of_side(to_cluster, sides.to_config, sides.to_profile)
    choice = (
        Selection(tuple(topics or ("*",)), tuple(exclude_topics or ())),
        Selection(tuple(groups or ("*",)), tuple(exclude_groups or ())),
    )
    if source_side is target_side:
        raise UsageError("give --from-cluster and --to-cluster: a cluster is not moved to itself")

    async def work(source: ClusterClient, target: ClusterClient) -> tuple[OnlinePlan, list[PlannedItem]]:
        plan = OnlinePlan(
            _servers(source_side),
            _servers(target_side),
            (await source.metadata([])).cluster_id or "",
            (await target.metadata([])).cluster_id or "",
            *choice,
        )
        return await _read(plan, Sides(plan, source_side, target_side), source, target)

    plan, rows = Sides(OnlinePlan("", "", "", "", *choice), source_side, target_side).run(work)
    run.console.show(PlannedItem, rows)
    if problems := [row for row in rows if row.action == PROBLEM]:
        run.console.note(f"{counted(len(problems), 'problem')}: no plan was written")
        return ExitStatus.UNMET
    if output is not None:
        write_document(output, format_plan(plan))
        run.console.note(f"next: kctl migrate copy-start --plan {output}")
    return ExitStatus.DONE


def _servers(side: Invocation) -> str:
    return ",".join(address_text(host, port) for host, port in side.client_settings().bootstrap)


async def _read(
    plan: OnlinePlan, sides: Sides, source: ClusterClient, target: ClusterClient
) -> tuple[OnlinePlan, list[PlannedItem]]:
    if plan.source_cluster == plan.target_cluster:
        text = f"both addresses are of the cluster {plan.source_cluster}"
        return plan, [PlannedItem("cluster", plan.source_cluster, PROBLEM, detail=text)]
    carried = await read_carried(source, target, plan.topics.has)
    plan = replace(plan, state=carried.state)
    mirror = sides._replace(plan=plan).mirror(source, target)
    await mirror.look()
    rows = [
        *await _topics(source, mirror, carried),
        *await _settings(target, carried),
        *await _groups(source, plan),
        *await _transactions(source, mirror),
        *await _room(source, target, carried),
    ]
    progress = await read_commits(target, mirror.names.group)
    if phase_in(progress) == CUT_OVER:
        text = "the migration was cut over: 'kctl migrate copy-back' goes back"
        rows.append(PlannedItem("cluster", plan.target_cluster, PROBLEM, detail=text))
    return plan, rows


async def _topics(source: ClusterClient, mirror: Mirror, carried: Carried) -> list[PlannedItem]:
    tps = [
        TopicPartition(name, number)
        for name, topic in carried.state.topics.items()
        for number in range(topic.partitions or 0)
    ]
    ranges = await offset_ranges(source, tps)
    rows = []
    for name, topic in sorted(carried.state.topics.items()):
        offsets = sum(ranges[tp].end - ranges[tp].start for tp in tps if tp.topic == name)
        numbers = f"{counted(topic.partitions or 0, 'partition')}, {counted(topic.replication_factor or 0, 'replica')}"
        rows.append(PlannedItem("topic", name, "copy", None, None, f"{numbers}, {counted(offsets, 'offset')}"))
        problem = mirror.problems.get(name)
        if problem is not None and not problem.startswith("the target does not have"):
            rows.append(PlannedItem("topic", name, PROBLEM, detail=problem))
    return rows


async def _settings(target: ClusterClient, carried: Carried) -> list[PlannedItem]:
    rows = []
    refusals = {}
    for change in await plan_settings(target, carried, carried.state):
        action = PROBLEM if change.problem else change.action.value
        rows.append(PlannedItem(change.kind.value, change.name, action, change.item, change.after, change.problem))
        if change.item is None and change.name in carried.state.topics and change.kind.value == "topic":
            topic = carried.state.topics[change.name]
            refusals[change.name] = await refused_properties(target, change.name, topic)
    for name, refused in refusals.items():
        configs = carried.state.topics[name].configs or {}
        rows += [PlannedItem("topic", name, "not carried", key, configs[key], why) for key, why in refused.items()]
    rows += [
        PlannedItem(
            item.kind, item.name, NOTE if item.kind == "cluster" else "not carried", item.item, item.value, item.reason
        )
        for item in carried.not_carried
    ]
    return rows


async def _groups(source: ClusterClient, plan: OnlinePlan) -> list[PlannedItem]:
    listed = await groups_of(source, plan.groups.has)
    active = set(with_members(listed))
    rows = []
    for group in listed:
        commits = [tp for tp in await read_commits(source, group.group_id) if plan.topics.has(tp.topic)]
        text = "has members, which must be stopped before the cut over" if group.group_id in active else None
        if commits or active:
            offsets = counted(len(commits), "offset")
            rows.append(PlannedItem("group", group.group_id, "carry", None, offsets, text))
    return rows


async def _transactions(source: ClusterClient, mirror: Mirror) -> Iterator[PlannedItem]:
    tps = [
        TopicPartition(topic.name, partition.partition)
        for topic in (await source.metadata()).topics.values()
        if mirror.selects(topic.name) and not topic.is_internal
        for partition in topic.partitions
    ]
    ends = await offset_ranges(source, tps)
    stable = await offset_ranges(source, tps, isolation=IsolationLevel.READ_COMMITTED)
    text = "open: its records are copied when it is committed; 'kctl transactions find-hanging'"
    return (
        PlannedItem("transaction", str(tp), NOTE, "offset", str(stable[tp].end), text)
        for tp in tps
        if stable[tp].end < ends[tp].end
    )


async def _room(source: ClusterClient, target: ClusterClient, carried: Carried) -> list[PlannedItem]:
    """Return the bytes that the copies need, and what the brokers of the target have."""
    of_source, of_target = await source.metadata(), await target.metadata([])
    topics = carried.state.topics
    try:
        sizes = await replica_sizes(source, of_source.brokers, None)
        directories, _ = await describe_log_dirs(target, of_target.brokers)
    except KctlError as error:
        return [PlannedItem("room", "", NOTE, detail=f"unknown: {error}")]
    needed = 0
    for (broker, tp), size in sizes.bytes.items():
        leader, _ = of_source.leader_of(tp)
        if tp.topic in topics and broker == leader:
            needed += size * (topics[tp.topic].replication_factor or 1)
    usable = usable_bytes(directories)
    rows = [
        PlannedItem("room", "all brokers", NOTE, "bytes needed", str(needed), "with all replicas, as the source has")
    ]
    if not usable:
        text = "the brokers of the target do not tell their free space (before Kafka 3.3)"
        return [*rows, PlannedItem("room", "all brokers", NOTE, "bytes free", None, text)]
    free = sum(usable.values())
    action = PROBLEM if free < needed else NOTE
    return [*rows, PlannedItem("room", "all brokers", action, "bytes free", str(free), None)]
