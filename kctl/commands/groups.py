"""`kctl groups`: list, describe and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, code_error, known, outcome_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.groups import GroupDescription, GroupMember, GroupOffset
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = Group("groups", "List, describe and delete consumer groups.")

LIST_COLUMNS = (
    Column("group"),
    Column("state"),
    Column("protocol_type"),
    Column("coordinator", numeric=True),
    *ERROR_COLUMNS,
)
OFFSET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("current_offset", numeric=True),
    Column("log_end_offset", numeric=True),
    Column("lag", numeric=True),
    Column("member_id"),
    Column("host"),
    Column("client_id"),
    *ERROR_COLUMNS,
)
MEMBER_COLUMNS = (
    Column("group"),
    Column("member_id"),
    Column("group_instance_id"),
    Column("host"),
    Column("client_id"),
    Column("partition_count", numeric=True),
    Column("assignment", wraps=True),
    *ERROR_COLUMNS,
)
STATE_COLUMNS = (
    Column("group"),
    Column("state"),
    Column("protocol_type"),
    Column("protocol"),
    Column("coordinator"),
    Column("member_count", numeric=True),
    Column("total_lag", numeric=True),
    *ERROR_COLUMNS,
)
DELETE_COLUMNS = (Column("group"), Column("status"), *ERROR_COLUMNS)

SECTIONS = ("offsets", "members", "state")


@app.command("list", cluster=True, examples=("kctl groups list", "kctl groups list --format json"))
def list_groups(run: Invocation) -> ExitStatus:
    """List consumer groups of all brokers.

    Brokers before 2.6 do not tell the state of a group here.
    """
    from kctl.admin.groups import list_groups as ask  # noqa: PLC0415 - help needs no client

    groups, failed = run.on_cluster(ask)
    rows: list[dict[str, Any]] = [
        {
            "group": group.group_id,
            "state": group.state or None,
            "protocol_type": group.protocol_type or None,
            "coordinator": group.coordinator_id,
            **NO_ERROR,
        }
        for group in groups
    ]
    rows.extend({"group": None, "coordinator": int(one.name), **outcome_error(one)} for one in failed)
    run.console.show(LIST_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "describe",
    cluster=True,
    examples=("kctl groups describe billing", "kctl groups describe billing audit --show state --format json"),
)
def describe(
    run: Invocation,
    names: Annotated[list[str] | None, Argument("Groups; all when none is named.", metavar="GROUP")] = None,
    *,
    show: Annotated[
        str, Option("--show", choices=SECTIONS, help="What the rows tell; json and jsonl always tell all three.")
    ] = "offsets",
) -> ExitStatus:
    """Describe consumer groups: committed offsets and lag, members, state.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET; it is empty where nothing has been committed.
    """
    from kctl.admin.groups import describe_group, list_groups  # noqa: PLC0415 - help needs no client

    async def ask(client: ClusterClient) -> list[GroupDescription]:
        wanted = sorted(set(names)) if names else [group.group_id for group in (await list_groups(client))[0]]
        return [await describe_group(client, name) for name in wanted]

    items = [_item(group) for group in run.on_cluster(ask)]
    columns, rows_of = {
        "offsets": (OFFSET_COLUMNS, _offset_rows),
        "members": (MEMBER_COLUMNS, _member_rows),
        "state": (STATE_COLUMNS, _state_rows),
    }[show]
    run.console.show(columns, items, rows=[row for item in items for row in rows_of(item)])
    return run.status_of(items + [offset for item in items for offset in item["offsets"]])


@app.command("delete", cluster=True, examples=("kctl groups delete billing --yes",))
def delete(
    run: Invocation,
    names: Annotated[list[str], Argument("Groups to delete.", metavar="GROUP")],
    *,
    yes: Annotated[bool, Option("--yes", "-y", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")] = False,
) -> ExitStatus:
    """Delete empty consumer groups with their committed offsets.

    A group with members is refused by the broker.  Without --yes it asks on the terminal; without a terminal it refuses
    (exit status 5).
    """
    from kctl.admin.groups import delete_group, describe_group  # noqa: PLC0415 - help needs no client
    from kctl.admin.outcome import Outcome  # noqa: PLC0415 - same

    wanted = sorted(set(names))

    async def preview(client: ClusterClient) -> list[Outcome]:
        found = [await describe_group(client, name) for name in wanted]
        return [
            Outcome(one.outcome.name, ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.description)
            if one.members
            else one.outcome
            for one in found
        ]

    async def act(client: ClusterClient) -> list[Outcome]:
        return [await delete_group(client, name) for name in wanted]

    if not dry_run:
        run.consent(f"Delete {', '.join(wanted)} with all committed offsets?", yes=yes)
    outcomes = run.on_cluster(preview if dry_run else act)
    status = "would be deleted" if dry_run else "deleted"
    rows = [{"group": one.name, "status": status if one.is_done else None, **outcome_error(one)} for one in outcomes]
    run.console.show(DELETE_COLUMNS, rows)
    return run.status_of(rows)


def _item(group: GroupDescription) -> dict[str, Any]:
    """A group as JSON tells it."""
    owners = {tp: member for member in group.members for tp in member.assignment}
    lags = [offset.lag for offset in group.offsets if offset.lag is not None]
    return {
        "group": group.outcome.name,
        "state": group.state or None,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator or None,
        "total_lag": sum(lags) if lags else None,
        "members": [_member(member) for member in group.members],
        "offsets": [_offset(offset, owners.get(offset.tp)) for offset in group.offsets],
        **outcome_error(group.outcome),
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": _by_topic(member.assignment),
    }


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def _offset(offset: GroupOffset, owner: GroupMember | None) -> dict[str, Any]:
    return {
        "topic": offset.tp.topic,
        "partition": offset.tp.partition,
        "current_offset": known(offset.committed_offset),
        "leader_epoch": known(offset.leader_epoch),
        "log_end_offset": known(offset.log_end_offset),
        "lag": offset.lag,
        "metadata": offset.metadata,
        "member_id": owner.member_id if owner else None,
        "host": owner.host if owner else None,
        "client_id": owner.client_id if owner else None,
        **code_error(offset.error),
    }


def _failed_row(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"group": item["group"], "error": item["error"], "message": item["message"]}]


def _offset_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    if item["error"]:
        return _failed_row(item)
    return [{"group": item["group"], **offset} for offset in item["offsets"]]


def _member_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    if item["error"]:
        return _failed_row(item)
    return [
        {
            "group": item["group"],
            **member,
            "partition_count": sum(len(one["partitions"]) for one in member["assignment"]),
            "assignment": " ".join(
                f"{one['topic']}({','.join(map(str, one['partitions']))})" for one in member["assignment"]
            ),
        }
        for member in item["members"]
    ]


def _state_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**item, "member_count": None if item["error"] else len(item["members"])}]
