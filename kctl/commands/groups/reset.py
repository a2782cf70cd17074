"""Parsing, checks, warnings and output of `kctl groups reset-offsets`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kctl.admin.group_offsets import commit_offsets
from kctl.admin.groups import look_up_groups
from kctl.admin.offset_reset import Reset, Scenario, Target
from kctl.admin.reset_file import format_offsets, parse_offsets
from kctl.client.committed_offsets import CommittedOffset
from kctl.commands.compat import resets as reset_compat
from kctl.commands.exit_status import Refused
from kctl.commands.times import check_time_ms, parse_duration_ms, parse_time_ms
from kctl.commands.values import parse_partitions
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.input_files import read_text
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_document import GroupOffsets
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.commands.groups.change_rows import ResetRow
    from kctl.commands.invocation import Invocation

MEMBERS_NAMED_MAX = 10
AWAY = ", has left, but is static: its place is kept until its session times out"


def parse_scope(
    topics: Sequence[str] | None, topic_regex: str | None = None, *, all_topics: bool
) -> dict[str, list[int] | None] | None:
    """The selected partitions by topic; None for all partitions, or for all topics and --topic-regex.

    Raises UsageError.
    """
    if bool(topics) + all_topics + (topic_regex is not None) != 1:
        raise UsageError("give --topic TOPIC[:N,N-N], --topic-regex or --all-topics")
    if not topics:
        return None
    scope: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not name:
            raise UsageError(f"'{text}' names no topic; use TOPIC or TOPIC:0,1,2")
        partitions = parse_partitions(numbers) if colon else None
        before = scope.get(name, [])
        scope[name] = None if partitions is None or before is None else sorted({*before, *partitions})
    return scope


def parse_target(
    groups: Sequence[str],
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
) -> Target:
    """The selected scenario.  Raises UsageError unless there is exactly one."""
    now_ms = round(time.time() * 1000)
    targets: list[Target] = []
    for is_given, scenario in (
        (to_earliest, Scenario.EARLIEST),
        (to_latest, Scenario.LATEST),
        (to_current, Scenario.CURRENT),
    ):
        if is_given:
            targets.append(Target(scenario))
    if to_offset is not None:
        targets.append(Target(Scenario.OFFSET, to_offset))
    if shift_by is not None:
        targets.append(Target(Scenario.SHIFT, shift_by))
    if to_datetime is not None:
        targets.append(Target(Scenario.TIME, parse_time_ms(to_datetime, now_ms=now_ms)))
    if by_duration is not None:
        time_ms = now_ms - parse_duration_ms(by_duration, may_be_negative=True)
        targets.append(Target(Scenario.TIME, check_time_ms(time_ms, by_duration)))
    if from_file is not None:
        targets.append(Target(Scenario.FILE, file=_read(from_file, groups)))
    if len(targets) != 1:
        raise UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime, --by-duration and --from-file"
        )
    return targets[0]


def _read(path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    text = read_text(path)
    try:
        return parse_offsets(text, groups)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def groups_in_file(run: Invocation, groups: Sequence[str], target: Target, *, all_: bool) -> list[str]:
    """The groups among these that are in the file.  Raises UsageError if none is."""
    listed = [group for group in groups if target.file[group]]
    if not listed:
        raise UsageError("the file has no offsets of " + ("any group" if all_ else ", ".join(groups)))
    for group in groups if not all_ else ():
        if group not in listed:
            run.console.warn(f"the file has no offsets of {group}")
    return listed


async def look_up(client: ClusterClient, names: Iterable[str]) -> list[GroupDescription]:
    """The groups; one that does not exist has no members and no offsets.  Raises ApiError for other errors."""
    found = await look_up_groups(client, list(names))
    for one in found:
        if not one.outcome.is_done and one.outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise ApiError(one.outcome.error, f"{one.outcome.name}: {one.outcome.message}")
    return found


def refuse_active(groups: Iterable[GroupDescription]) -> None:
    """Raises Refused if a group has members: they would continue from their positions and overwrite the new offsets."""
    problems = []
    for group in groups:
        if not group.members:
            continue
        names = [
            f"{member.member_id} ({member.host}{AWAY if member.is_away else ''})"
            for member in sorted(group.members, key=lambda one: one.member_id)
        ]
        more = f" and {len(names) - MEMBERS_NAMED_MAX} more" if len(names) > MEMBERS_NAMED_MAX else ""
        problems.append(
            f"group '{group.outcome.name}' is active ({group.state}) with {', '.join(names[:MEMBERS_NAMED_MAX])}{more}"
        )
    if problems:
        raise Refused(f"{'; '.join(problems)}: stop the members first")


async def commit(
    client: ClusterClient, resets: Sequence[Reset], saved: GroupOffsets | None = None
) -> dict[tuple[str, TopicPartition], Outcome]:
    """Commits the new offsets; the outcomes by group and partition.

    An offset that is that of the partition in `saved` is committed with its metadata.  Leader epochs are left out:
    that of a topic that has been deleted and created again would stop its consumers.
    """
    requested: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for reset in resets:
        assert reset.new is not None
        known = (saved or {}).get(reset.group, {}).get(reset.tp)
        metadata = known.metadata if known is not None and known.offset == reset.new else ""
        requested.setdefault(reset.group, {})[reset.tp] = CommittedOffset(reset.new, metadata=metadata)
    committed = await client.gather([commit_offsets(client, *one) for one in requested.items()])
    return {
        (group, tp): outcome
        for group, responses in zip(requested, committed, strict=True)
        for tp, outcome in responses.items()
    }


def show_as_csv(run: Invocation, resets: Sequence[Reset], rows: Iterable[ResetRow], *, with_group: bool) -> None:
    """Kafka's CSV; errors are written to stderr."""
    _warn_of_failures(run, rows)
    offsets = [(one.group, one.tp, one.new) for one in resets if one.outcome.is_done and one.new is not None]
    run.console.verbatim(format_offsets(offsets, with_group=with_group))


def show_as_kafka(
    run: Invocation,
    resets: Sequence[Reset],
    rows: Sequence[ResetRow],
    compat: str,
    scenario: Scenario,
    *,
    topics: Sequence[str],
    export: bool,
    with_group: bool,
) -> None:
    """The CSV or the table of Kafka's tool, in its order; errors are written to stderr."""
    _warn_of_failures(run, rows)
    done = [one for one, row in zip(resets, rows, strict=True) if not row.error]
    done = reset_compat.in_order(compat, scenario, done, topics)
    run.console.verbatim(reset_compat.warnings(compat, scenario, done))
    if export:
        run.console.verbatim(reset_compat.exported(done, with_group=with_group))
    else:
        run.console.verbatim(reset_compat.table(compat, done))


def _warn_of_failures(run: Invocation, rows: Iterable[ResetRow]) -> None:
    for row in rows:
        if row.error:
            where = row.topic if row.partition is None else f"{row.topic}-{row.partition}"
            run.console.warn(f"{row.group}: {where}: {row.error}: {row.message}")
