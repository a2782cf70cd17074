"""`kctl groups`: list, describe, members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.groups.groups import ListedGroup, describe_groups, look_up_groups
from kctl.admin.groups.groups import list_groups as query
from kctl.client.outcome import Outcome
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand, note_omissions
from kctl.commands.groups.selection import (
    All,
    EmptyName,
    GroupRegex,
    Names,
    group_pattern,
    selected_groups,
    with_empty_name,
)
from kctl.lag.facts import GroupDescription
from kctl.output.console import Column, ErrorName, ErrorText, TypedRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.client.cluster import ClusterClient
    from kctl.lag.facts import GroupMember, GroupOffset
    from kctl.model import TopicPartition


# `kctl groups list`.


verbs = typer.Typer(add_completion=False)


class ListedGroupRow(NamedTuple):
    """A group in the list of all groups."""

    group: str
    state: str | None
    protocol_type: str | None
    coordinator: int
    type: str | None
    error: ErrorName = None
    message: ErrorText = None


class CoordinatorFailureRow(NamedTuple):
    """A broker that could not list its groups."""

    group: None
    coordinator: int
    error: str | None
    message: str | None


class State(StrEnum):
    """States by which --state selects."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    """Types by which --type selects."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@verbs.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl groups list", "kctl groups list --state Empty --format json", "kctl groups list --type consumer"
    ),
)
@shows(ListedGroupRow, CoordinatorFailureRow)
def list_groups(
    ctx: typer.Context,
    *,
    state: Annotated[list[State] | None, typer.Option("--state", help="Only groups in this state.")] = None,
    type_: Annotated[
        list[GroupType] | None,
        typer.Option("--type", help="Only groups of this type."),
    ] = None,
    group_regex: GroupRegex = None,
) -> ExitStatus:
    """List the groups of all brokers.

    In a group of type classic, a member assigns the partitions; in a group of type consumer (group.protocol=consumer),
    the broker does.  The state requires Kafka 2.6 or later, the type Kafka 3.8 or later; earlier versions have only
    classic groups.
    """
    run: Invocation = ctx.obj
    rows = _rows(*read_groups(run, state, type_, group_regex))
    run.console.show(ListedGroupRow, rows)
    if group_regex is None:
        note_omissions(run, rows, "groups")
    return run.status_of(rows)


def read_groups(
    run: Invocation, states: list[State] | None, types: list[GroupType] | None, group_regex: str | None
) -> tuple[list[ListedGroup], list[Outcome]]:
    """Return the selected groups in the order of the brokers' responses, and the brokers that could not list theirs."""
    pattern = group_pattern(None, group_regex)
    groups, failed = run.on_brokers(lambda client: query(client, states or (), types or ()))
    if pattern is not None:
        chosen = set(pattern.select(group.group_id for group in groups))
        groups = [group for group in groups if group.group_id in chosen]
    return groups, failed


def _rows(groups: Iterable[ListedGroup], failed: Iterable[Outcome]) -> list[ListedGroupRow | CoordinatorFailureRow]:
    """Return a row for each group, and one for each broker that could not list its groups."""
    rows: list[ListedGroupRow | CoordinatorFailureRow] = [
        ListedGroupRow(
            group=group.group_id,
            state=group.state or None,
            protocol_type=group.protocol_type or None,
            coordinator=group.coordinator_id,
            type=group.type or None,
        )
        for group in sorted(groups, key=lambda group: group.group_id)
    ]
    rows += [CoordinatorFailureRow(None, int(outcome.name), **outcome_error(outcome)) for outcome in failed]
    return rows


# Descriptions of groups as rows and as JSON: offsets, members and states.


class AssignedTopicItem(NamedTuple):
    """The partitions of one topic that a member is assigned."""

    topic: str
    partitions: list[int]


class MemberItem(NamedTuple):
    """A member within the JSON object of its group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: list[AssignedTopicItem]
    member_type: str | None
    member_epoch: int | None
    target_assignment: list[AssignedTopicItem] | None
    subscribed_topics: list[str] | None
    subscribed_regex: str | None


class OffsetItem(NamedTuple):
    """A committed offset within the JSON object of its group."""

    topic: str
    partition: int
    current_offset: int | None
    leader_epoch: int | None
    log_end_offset: int | None
    lag: int | None
    metadata: str | None
    member_id: str | None
    host: str | None
    client_id: str | None
    error: str | None = None
    message: str | None = None


class GroupItem(NamedTuple):
    """A group as a JSON object; without a name for a broker that could not list its groups."""

    group: str | None
    type: str | None
    state: str | None
    protocol_type: str | None
    protocol: str | None
    coordinator: str | None
    group_epoch: int | None
    target_assignment_epoch: int | None
    total_lag: int | None
    members: list[MemberItem]
    offsets: list[OffsetItem]
    error: str | None = None
    message: str | None = None


class GroupFailureRow(NamedTuple):
    """A group that could not be described."""

    group: str | None
    error: str | None
    message: str | None


class OffsetRow(NamedTuple):
    """A partition of a group."""

    group: str | None
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: Annotated[str | None, Column(drop_order=3)]
    host: Annotated[str | None, Column(drop_order=2)]
    client_id: Annotated[str | None, Column(drop_order=1)]
    error: ErrorName
    message: ErrorText


class MemberRow(NamedTuple):
    """A member of a group in the table."""

    group: str | None
    member_id: str
    group_instance_id: str | None
    host: str
    client_id: str
    partition_count: int
    assignment: Annotated[str | None, Column(wraps=True), "For example `orders(0,1) payments(3)`."]
    member_epoch: Annotated[int | None, Column(is_rare=True)]
    target_assignment: Annotated[str | None, Column(wraps=True, is_rare=True)]
    member_type: Annotated[str | None, Column(is_rare=True), "The protocol, if members of the group use several."]
    error: ErrorName = None
    message: ErrorText = None


class GroupMemberItem(NamedTuple):
    """A member as a JSON object of its own."""

    group: str | None
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: list[AssignedTopicItem]
    member_type: str | None
    member_epoch: int | None
    target_assignment: list[AssignedTopicItem] | None
    subscribed_topics: list[str] | None
    subscribed_regex: str | None
    error: str | None = None
    message: str | None = None


class StateRow(NamedTuple):
    """The state of a group in the table."""

    group: str | None
    state: str | None
    protocol_type: Annotated[str | None, Column(drop_order=1)]
    protocol: Annotated[str | None, Column(drop_order=4)]
    coordinator: Annotated[str | None, Column(drop_order=3)]
    member_count: int | None
    total_lag: int | None
    type: Annotated[str | None, Column(drop_order=2)]
    group_epoch: Annotated[int | None, Column(is_rare=True)]
    target_assignment_epoch: Annotated[int | None, Column(is_rare=True)]
    error: ErrorName
    message: ErrorText


def group_item(group: GroupDescription) -> GroupItem:
    """Return a group with its members and offsets."""
    owners = {tp: member for member in group.members for tp in member.assignment}
    lags = [offset.lag for offset in group.offsets if offset.lag is not None]
    return GroupItem(
        group=group.outcome.name,
        type=group.type or None,
        state=group.state or None,
        protocol_type=group.protocol_type or None,
        protocol=group.protocol or None,
        coordinator=group.coordinator or None,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.target_assignment_epoch,
        total_lag=sum(lags) if lags else None,
        members=[_member(member) for member in sorted(group.members, key=lambda member: member.member_id)],
        offsets=[_offset(offset, owners.get(offset.tp)) for offset in group.offsets],
        **outcome_error(group.outcome),
    )


def broker_item(failed: Outcome) -> GroupItem:
    """Return a broker that could not list its groups, as an object among those of the groups."""
    message = f"broker {failed.name} cannot list its groups: {failed.message}"
    return group_item(GroupDescription(failed))._replace(group=None, message=message)


def _member(member: GroupMember) -> MemberItem:
    return MemberItem(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.host,
        assignment=_by_topic(member.assignment),
        member_type=member.member_type,
        member_epoch=member.member_epoch,
        target_assignment=None if member.target_assignment is None else _by_topic(member.target_assignment),
        subscribed_topics=None if member.subscribed_topics is None else list(member.subscribed_topics),
        subscribed_regex=member.subscribed_regex,
    )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[AssignedTopicItem]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [AssignedTopicItem(topic, numbers) for topic, numbers in topics.items()]


def _offset(offset: GroupOffset, owner: GroupMember | None) -> OffsetItem:
    return OffsetItem(
        topic=offset.tp.topic,
        partition=offset.tp.partition,
        current_offset=known(offset.committed_offset),
        leader_epoch=known(offset.leader_epoch),
        log_end_offset=known(offset.log_end_offset),
        lag=offset.lag,
        metadata=offset.metadata,
        member_id=owner.member_id if owner else None,
        host=owner.host if owner else None,
        client_id=owner.client_id if owner else None,
        **code_error(offset.error),
    )


def _failure_row(item: GroupItem) -> GroupFailureRow:
    return GroupFailureRow(item.group, item.error, item.message)


def offset_rows(item: GroupItem) -> Sequence[OffsetRow | GroupFailureRow]:
    """Return a row for each partition, or one for a group that could not be described."""
    if item.error:
        return [_failure_row(item)]
    return [
        OffsetRow(
            group=item.group,
            topic=offset.topic,
            partition=offset.partition,
            current_offset=offset.current_offset,
            log_end_offset=offset.log_end_offset,
            lag=offset.lag,
            member_id=offset.member_id,
            host=offset.host,
            client_id=offset.client_id,
            error=offset.error,
            message=offset.message,
        )
        for offset in item.offsets
    ]


def member_rows(item: GroupItem) -> Sequence[MemberRow | GroupFailureRow]:
    """Return a row for each member, or one for a group that could not be described."""
    if item.error:
        return [_failure_row(item)]
    is_mixed = len({member.member_type for member in item.members}) > 1
    return [
        MemberRow(
            group=item.group,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            host=member.host,
            client_id=member.client_id,
            partition_count=sum(len(topic.partitions) for topic in member.assignment),
            assignment=_assignment_cell(member.assignment),
            member_epoch=member.member_epoch,
            target_assignment=_assignment_cell(member.target_assignment or ()),
            member_type=member.member_type if is_mixed else None,
        )
        for member in item.members
    ]


def _assignment_cell(topics: Iterable[AssignedTopicItem]) -> str | None:
    return " ".join(f"{topic}({','.join(map(str, partitions))})" for topic, partitions in topics) or None


def member_items(item: GroupItem) -> Sequence[GroupMemberItem | GroupFailureRow]:
    """Return the members of a group as JSON objects, or one object for a group that could not be described."""
    if item.error:
        return [_failure_row(item)]
    return [GroupMemberItem(item.group, *member) for member in item.members]


def state_rows(item: GroupItem) -> Sequence[StateRow]:
    """Return one row for the group."""
    return [
        StateRow(
            group=item.group,
            state=item.state,
            protocol_type=item.protocol_type,
            protocol=item.protocol,
            coordinator=item.coordinator,
            member_count=None if item.error else len(item.members),
            total_lag=item.total_lag,
            type=item.type,
            group_epoch=item.group_epoch,
            target_assignment_epoch=item.target_assignment_epoch,
            error=item.error,
            message=item.message,
        )
    ]


# `kctl groups describe`.


Section = Literal["offsets", "members", "state"]


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples("kctl groups describe billing", "kctl groups describe --all --show state --format json"),
)
@shows(GroupItem)
def describe(
    ctx: typer.Context,
    names: Names = None,
    *,
    show: Annotated[
        Section, typer.Option("--show", help="What the rows show; json, jsonl and yaml always include all three.")
    ] = "offsets",
    all_: All = False,
    group_regex: GroupRegex = None,
    empty_name: EmptyName = False,
) -> ExitStatus:
    """Describe consumer groups: committed offsets and lag, members, state.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET; it is empty where nothing has been committed.
    """
    run: Invocation = ctx.obj
    groups, failed = read_descriptions(run, with_empty_name(names, empty_name=empty_name), group_regex, all_=all_)
    items = [group_item(group) for group in groups] + [broker_item(broker) for broker in failed]
    views: dict[Section, tuple[type[TypedRow], Callable[[GroupItem], Iterable[TypedRow]]]] = {
        "offsets": (OffsetRow, offset_rows),
        "members": (MemberRow, member_rows),
        "state": (StateRow, state_rows),
    }
    row, rows_of = views[show]
    run.console.show(row, items, rows=[row for item in items for row in rows_of(item)])
    return run.status_of([*items, *(offset for item in items for offset in item.offsets)])


def read_descriptions(
    run: Invocation, names: list[str] | None, group_regex: str | None, *, all_: bool
) -> tuple[list[GroupDescription], list[Outcome]]:
    """Return the selected groups, and the brokers that could not list theirs.  Raises UsageError."""
    pattern = group_pattern(names, group_regex, all_=all_)

    async def query(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        requested, failed = await selected_groups(run, client, names, pattern)
        return await describe_groups(client, requested), failed

    return run.on_brokers(query)


# `kctl groups members`.


@verbs.command("members", cls=QueryCommand, epilog=examples("kctl groups members billing", "kctl groups members --all"))
@shows(GroupMemberItem)
def members(
    ctx: typer.Context, names: Names = None, *, all_: All = False, group_regex: GroupRegex = None
) -> ExitStatus:
    """List the members of consumer groups and their assigned partitions."""
    run: Invocation = ctx.obj
    pattern = group_pattern(names, group_regex, all_=all_)

    async def query(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        requested, failed = await selected_groups(run, client, names, pattern)
        return await look_up_groups(client, requested), failed

    found, failed = run.on_brokers(query)
    groups = [group_item(group) for group in found] + [broker_item(outcome) for outcome in failed]
    items = [item for group in groups for item in member_items(group)]
    run.console.show(MemberRow, items, rows=[row for group in groups for row in member_rows(group)])
    return run.status_of(items)
