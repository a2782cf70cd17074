"""The output of Kafka's kafka-consumer-groups about groups, byte for byte, for scripts that parse it.  Pure.

ConsumerGroupCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kctl.admin.groups.groups import ListedGroup
from kctl.client.outcome import outcome_of
from kctl.commands.compat.texts.java import (
    KAFKA_3,
    KAFKA_4,
    KAFKA_28,
    java_copy_order,
    java_length,
    java_order,
    padded,
    scala_map_order,
    scala_mutable_order,
)
from kctl.errors import ErrorCode
from kctl.lag.facts import CLASSIC, CONSUMER, GroupDescription, GroupMember, GroupOffset
from kctl.model import TopicPartition
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE

_MISSING = "-"
_NAME_WIDTH = 15
_INSTANCE_WIDTH = 17
_ASSIGNMENT_WIDTH = 20
_COORDINATOR_WIDTH = 25
_STATES_28 = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
_UPGRADED = {CLASSIC: "false", CONSUMER: "true", None: _MISSING}


def listed(compat: str, groups: Iterable[ListedGroup], *, with_states: bool, with_types: bool) -> str:
    """Return the output of --list, with --state and since 3.8 --type; groups in the order of the brokers' responses."""
    known = {
        known_group.group_id: known_group for known_group in groups if known_group.protocol_type in ("", PROTOCOL_TYPE)
    }
    names = java_order(known)
    with_types = with_types and compat != KAFKA_28
    if not with_states and not with_types:
        return "".join(f"{name}\n" for name in names)
    rows = [["GROUP", *["TYPE"] * with_types, *["STATE"] * with_states]]
    for name in names:
        group = known[name]
        state = "Unknown" if compat == KAFKA_28 and group.state not in _STATES_28 else group.state
        rows.append([name, *[group.type.capitalize() or "Unknown"] * with_types, *[state] * with_states])
    width = _width(names, _NAME_WIDTH)
    if compat != KAFKA_28:
        return "".join(
            f"{padded(name, width + 10)} {' '.join(f'{cell:<20}' for cell in more)}\n" for name, *more in rows
        )
    return "".join(f"{padded(name, width)} {state}\n" for name, state in rows)


def offsets(compat: str, group: GroupDescription, *, verbose: bool) -> str:
    """Return the output of --describe --offsets; `verbose` adds a column since 4.  3.9 does not end the last line."""
    rows = list(_offset_rows(compat, group))
    if not rows:
        return ""
    with_epoch = verbose and compat == KAFKA_4
    titles = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    table = [titles, *([group.outcome.name, *_offset_cells(offset, member)] for offset, member in rows)]
    widths = [_width(column, _NAME_WIDTH) for column in zip(*table[1:], strict=True)]
    widths = [widths[0], widths[1], 10, 15, 15, 15, widths[6], widths[7], 0]
    if with_epoch:
        epochs = ["LEADER-EPOCH", *(_number(offset.leader_epoch) for offset, _ in rows)]
        table = [[*cells[:3], epoch, *cells[3:]] for cells, epoch in zip(table, epochs, strict=True)]
        widths.insert(3, 15)
    lines = [_line(cells, widths) for cells in table]
    return "\n" + "\n".join(lines) + ("" if compat == KAFKA_3 else "\n")


def members(compat: str, group: GroupDescription, *, verbose: bool) -> str:
    """Return the output of --describe --members; `verbose` adds the assignments.

    Since 3.9 the titles are printed also without members.
    """
    if compat == KAFKA_28 and not group.members:
        return ""
    has_instances = any(member.group_instance_id for member in group.members)
    table = [["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]]
    table.extend(
        [
            *(group.outcome.name, member.member_id, member.group_instance_id or ""),
            *(_host(member), member.client_id, str(len(member.assignment))),
        ]
        for member in group.members
    )
    minima = [_NAME_WIDTH, _NAME_WIDTH, _INSTANCE_WIDTH, _NAME_WIDTH, _NAME_WIDTH]
    columns = list(zip(*table[1:], strict=True)) or [()] * len(table[0])
    widths = [*(_width(column, least) for column, least in zip(columns, minima, strict=False)), 15]
    if not has_instances:
        table = [cells[:2] + cells[3:] for cells in table]
        del widths[2]
    assignments = [""] * len(table)
    if verbose:
        assignments = _assignments_4(group) if compat == KAFKA_4 else _assignments(compat, group.members)
    lines = [_line(cells, widths) + " " + more for cells, more in zip(table, assignments, strict=True)]
    return "\n" + "".join(f"{line}\n" for line in lines)


def state(compat: str, group: GroupDescription, coordinator_id: int, *, verbose: bool) -> str:
    """Return the output of --describe --state; `verbose` adds columns since 4 that are set for the consumer protocol
    only.
    """
    name, count = group.outcome.name, str(len(group.members))
    is_4 = compat == KAFKA_4
    coordinator = f"{group.coordinator} {'' if compat == KAFKA_28 else ' '}({coordinator_id})"
    width = max(_COORDINATOR_WIDTH, len(coordinator))
    strategy = group.protocol or _MISSING if is_4 else group.protocol
    table = [
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        [name, coordinator, strategy, group.state, count],
    ]
    widths = [max(_NAME_WIDTH, java_length(name)), width, 20, 20, 0] if is_4 else [width, _COORDINATOR_WIDTH, 20, 15, 0]
    if verbose and is_4:
        epochs = [_cell(group.group_epoch), _cell(group.target_assignment_epoch)]
        table = [
            [*cells[:4], *more, cells[4]]
            for cells, more in zip(table, (["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"], epochs), strict=True)
        ]
        widths[4:4] = [15, 25]
    return "\n" + "".join(_line(cells, widths) + "\n" for cells in table)


def as_in(compat: str, group: GroupDescription) -> GroupDescription:
    """Return the group as the tool of a version describes it: to older ones, those that only Kafka 4 reports as missing
    or of another type do not exist, nor do those of newer types to 2.8.
    """
    is_known = compat == KAFKA_4 or group.refusal is None
    if is_known and (compat != KAFKA_28 or group.type in {"", CLASSIC}):
        return group
    return GroupDescription(outcome_of(group.outcome.name, ErrorCode.GROUP_ID_NOT_FOUND))


def unknown(name: str) -> str:
    return f"\nError: Consumer group '{name}' does not exist.\n"


def failure_of(groups: Iterable[GroupDescription]) -> str | None:
    """Return the error with which Kafka's tool ends: a group is not one of consumers, or Kafka 4 does not have it.

    None if there is none.
    """
    by_name = {group.outcome.name: group for group in groups}
    for name in java_order(by_name):
        group = by_name[name]
        if group.refusal:
            return f"org.apache.kafka.common.errors.GroupIdNotFoundException: {group.refusal}"
        if group.protocol_type not in {"", PROTOCOL_TYPE}:
            return (
                f"java.lang.IllegalArgumentException: GroupId {name} is not a consumer group ({group.protocol_type})."
            )
    return None


def _offset_rows(compat: str, group: GroupDescription) -> Iterator[tuple[GroupOffset, GroupMember | None]]:
    """Yield the members with the most partitions first, then the partitions without a member."""
    known = {offset.tp: offset for offset in group.offsets}
    unread = {offset.tp for offset in group.offsets if offset.committed_offset >= 0}
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        unread.difference_update(member.assignment)
        partitions: Sequence[TopicPartition] = member.assignment
        if compat == KAFKA_28:  # It sorts by partition only, and then copies into a map.
            partitions = scala_map_order(_by_partition(java_copy_order(partitions)))
        elif compat == KAFKA_3:
            partitions = java_order(_by_partition(java_copy_order(partitions)))
        for tp in partitions:
            yield known[tp], member
    rest = sorted(unread)
    if compat == KAFKA_28:
        rest = scala_mutable_order(rest)
    elif compat == KAFKA_3:
        rest = java_order(_by_partition(java_order(rest)))
    for tp in rest:
        yield known[tp], None


def _by_partition(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted(partitions, key=lambda tp: tp.partition)


def _offset_cells(offset: GroupOffset, member: GroupMember | None) -> list[str]:
    lag = (
        offset.log_end_offset - offset.committed_offset
        if offset.committed_offset >= 0 <= offset.log_end_offset
        else None
    )
    return [
        *(offset.tp.topic, str(offset.tp.partition), _number(offset.committed_offset), _number(offset.log_end_offset)),
        _MISSING if lag is None else str(lag),
        *((member.member_id, _host(member), member.client_id) if member else (_MISSING,) * 3),
    ]


def _assignments(compat: str, members: Iterable[GroupMember]) -> list[str]:
    """3.9 omits the topics, and sorts the partitions as texts."""
    texts = (
        sorted(
            f"({','.join(sorted(map(str, them)))})" if compat == KAFKA_3 else f"{topic}({_numbers(them)})"
            for topic, them in _by_topic(member.assignment).items()
        )
        for member in members
    )
    return ["ASSIGNMENT", *(", ".join(names) or _MISSING for names in texts)]


def _assignments_4(group: GroupDescription) -> list[str]:
    """Return the epochs and assignments, which are empty for classic groups, and whether a member uses the new protocol
    while members differ.
    """
    columns = [
        ["CURRENT-EPOCH", *(_cell(member.member_epoch) for member in group.members)],
        ["CURRENT-ASSIGNMENT", *(_assignment_4(member.assignment) for member in group.members)],
        ["TARGET-EPOCH", *[_cell(group.target_assignment_epoch)] * len(group.members)],
        ["TARGET-ASSIGNMENT", *(_assignment_4(member.target_assignment or ()) for member in group.members)],
    ]
    widths = [15, _width(columns[1][1:], _ASSIGNMENT_WIDTH), 15, _width(columns[3][1:], _ASSIGNMENT_WIDTH)]
    kinds = {member.member_type for member in group.members}
    if kinds >= {CLASSIC, CONSUMER}:
        columns.append(["UPGRADED", *(_UPGRADED[member.member_type] for member in group.members)])
        widths.append(0)
    return [_line(cells, widths) for cells in zip(*columns, strict=True)]


def _assignment_4(partitions: Iterable[TopicPartition]) -> str:
    texts = sorted(f"{topic}:{_numbers(them)}" for topic, them in _by_topic(partitions).items())
    return ";".join(texts) or _MISSING


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _numbers(partitions: Iterable[int]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _host(member: GroupMember) -> str:
    """Return the host as brokers return it: Java writes a slash in front of an address."""
    return f"/{member.host}"


def _cell(value: int | None) -> str:
    return _MISSING if value is None else str(value)


def _number(value: int) -> str:
    return str(value) if value >= 0 else _MISSING


def _width(cells: Iterable[str], least: int) -> int:
    return max([least, *map(java_length, cells)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(padded(cell, width) for cell, width in zip(cells, widths, strict=True))
