"""Consumer groups as rows and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.admin.group_description import GroupDescription
from kctl.commands.rows import NO_ERROR, code_error, known, outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kctl.admin.group_description import GroupDescription, GroupMember, GroupOffset
    from kctl.admin.groups import ListedGroup
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.model import TopicPartition

LIST_COLUMNS = (
    Column("group"),
    Column("state"),
    Column("protocol_type"),
    Column("coordinator", numeric=True),
    Column("type"),
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
    Column("member_epoch", numeric=True, is_rare=True),
    Column("target_assignment", wraps=True, is_rare=True),
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
    Column("type"),
    Column("group_epoch", numeric=True, is_rare=True),
    Column("target_assignment_epoch", numeric=True, is_rare=True),
    *ERROR_COLUMNS,
)
DELETE_COLUMNS = (Column("group"), Column("status"), *ERROR_COLUMNS)
DELETE_OFFSETS_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("offset", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)
RESET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("old_offset", numeric=True),
    Column("new_offset", numeric=True),
    Column("delta", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)


def list_rows(groups: Iterable[ListedGroup], failed: Iterable[Outcome]) -> list[dict[str, Any]]:
    """A row for each group, and one for each broker that could not tell its groups."""
    rows: list[dict[str, Any]] = [
        {
            "group": group.group_id,
            "state": group.state or None,
            "protocol_type": group.protocol_type or None,
            "coordinator": group.coordinator_id,
            "type": group.type or None,
            **NO_ERROR,
        }
        for group in sorted(groups, key=lambda group: group.group_id)
    ]
    rows.extend({"group": None, "coordinator": int(one.name), **outcome_error(one)} for one in failed)
    return rows


def group_item(group: GroupDescription) -> dict[str, Any]:
    """A group as JSON tells it."""
    owners = {tp: member for member in group.members for tp in member.assignment}
    lags = [offset.lag for offset in group.offsets if offset.lag is not None]
    return {
        "group": group.outcome.name,
        "type": group.type or None,
        "state": group.state or None,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator or None,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.target_assignment_epoch,
        "total_lag": sum(lags) if lags else None,
        "members": [_member(member) for member in sorted(group.members, key=lambda member: member.member_id)],
        "offsets": [_offset(offset, owners.get(offset.tp)) for offset in group.offsets],
        **outcome_error(group.outcome),
    }


def broker_item(failed: Outcome) -> dict[str, Any]:
    """A broker that could not tell its groups, among groups as JSON tells them."""
    message = f"broker {failed.name} cannot list its groups: {failed.message}"
    return group_item(GroupDescription(failed)) | {"group": None, "message": message}


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": _by_topic(member.assignment),
        "member_type": member.member_type,
        "member_epoch": member.member_epoch,
        "target_assignment": None if member.target_assignment is None else _by_topic(member.target_assignment),
        "subscribed_topics": None if member.subscribed_topics is None else list(member.subscribed_topics),
        "subscribed_regex": member.subscribed_regex,
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


def offset_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each partition."""
    if item["error"]:
        return _failed_row(item)
    return [{"group": item["group"], **offset} for offset in item["offsets"]]


def member_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each member."""
    if item["error"]:
        return _failed_row(item)
    return [
        {
            "group": item["group"],
            **member,
            "partition_count": sum(len(one["partitions"]) for one in member["assignment"]),
            "assignment": _assignment_cell(member["assignment"]),
            "target_assignment": _assignment_cell(member["target_assignment"] or ()),
        }
        for member in item["members"]
    ]


def _assignment_cell(topics: Iterable[dict[str, Any]]) -> str | None:
    return " ".join(f"{one['topic']}({','.join(map(str, one['partitions']))})" for one in topics) or None


def member_items(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of a group as JSON tells them one by one; one without a member for a group that failed."""
    if item["error"]:
        return _failed_row(item)
    return [{"group": item["group"], **member, "error": None, "message": None} for member in item["members"]]


def deleted_offset_row(
    group: str, tp: TopicPartition, offset: int | None, status: str, outcome: Outcome
) -> dict[str, Any]:
    """One committed offset that is deleted."""
    return {
        "group": group,
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "status": status if outcome.is_done else None,
        **outcome_error(outcome),
    }


def state_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    """One row."""
    return [{**item, "member_count": None if item["error"] else len(item["members"])}]


def reset_row(reset: Reset, status: str, outcome: Outcome | None = None) -> dict[str, Any]:
    """One partition of a group whose offset is reset; `outcome` is that of the commit, if there was one."""
    told = outcome or reset.outcome
    return {
        "group": reset.group,
        "topic": reset.topic,
        "partition": reset.partition,
        "old_offset": reset.old,
        "new_offset": reset.new,
        "delta": reset.delta,
        "log_start_offset": reset.held.start if reset.held else None,
        "log_end_offset": reset.held.end if reset.held else None,
        "status": status if told.is_done else None,
        **outcome_error(told),
    }
