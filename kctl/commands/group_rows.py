"""Consumer groups as rows and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.commands.rows import code_error, known, outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from kctl.admin.groups import GroupDescription, GroupMember, GroupOffset
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.model import TopicPartition

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


def group_item(group: GroupDescription) -> dict[str, Any]:
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
        "members": [_member(member) for member in sorted(group.members, key=lambda member: member.member_id)],
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
            "assignment": " ".join(
                f"{one['topic']}({','.join(map(str, one['partitions']))})" for one in member["assignment"]
            ),
        }
        for member in item["members"]
    ]


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
