"""Copies several topics, each to a topic of its own, which is created if it does not exist."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.copy.copying import Pacer
from kctl.admin.copy.targets import create_targets, plan_targets
from kctl.admin.topics.offsets import START, offset_ranges
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.positions import LogTruncated
from kctl.client.outcome import failure_of
from kctl.commands.acls.rules import AclChangeRow
from kctl.commands.copy.copied_acls import read_acls
from kctl.commands.copy.rows import MirroredInTopic, TopicRow
from kctl.commands.copy.running import Sides, committed_in, prepare, remedy_for
from kctl.commands.copy.verifying import Verification
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.reading.topics import NAMES_SHOWN, named_topics
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kctl.admin.copy.targets import Target, TopicSets
    from kctl.client.cluster import ClusterClient
    from kctl.commands.copy.rows import Mirrored
    from kctl.commands.copy.running import Copying, Prepared
    from kctl.commands.frame.invocation import Invocation
    from kctl.commands.reading.topics import TopicSelection
    from kctl.output.console import Console

TOPICS_AT_ONCE = bound(
    Subject.COMMANDS,
    "topics that kctl copy copies at the same time, each with two connections to each broker",
    4,
    "topics",
    on_excess="the others wait",
)
LIMITS = FetchLimits(max_bytes=2 << 20, partition_max_bytes=1 << 20)
"""Of each topic: together they hold as much as a copy of one topic."""


class Several(NamedTuple):
    """The options of a copy of several topics."""

    selection: TopicSelection
    prefix: str
    verifies: bool
    copies_acls: bool


def copy_topics(
    run: Invocation, source_side: Invocation, target_side: Invocation, copying: Copying, several: Several
) -> ExitStatus:
    """Copy the topics; return FAILED if one has failed, UNMET if one differs.  Raises KctlError and Refused."""
    sides = Sides.of(source_side, target_side, copying, LIMITS)

    async def work(source: ClusterClient) -> ExitStatus:
        async with sides.target_client() as target:
            return await _copy_topics(run.console, source, target, copying, sides, several)

    return source_side.on_cluster_concurrently(work)


async def _copy_topics(
    console: Console,
    source: ClusterClient,
    target: ClusterClient,
    copying: Copying,
    sides: Sides,
    several: Several,
) -> ExitStatus:
    names = await several.selection.look_up(source)
    if not names:
        raise several.selection.no_match()
    if several.selection.pattern is not None:
        console.note(f"copying {named_topics(names)}")
    with source.one_deadline(follows_elections=True), target.one_deadline(follows_elections=True):
        sets = await plan_targets(source, target, names, several.prefix)
    _check(sets)
    _note_changes(console, sets.targets)
    copying = _with_progress(console, copying, sets, several.prefix)
    groups = await _groups_by_topic(source, sets.targets, copying.groups)
    acls = await read_acls(source, target, names, several.prefix) if several.copies_acls else None
    await _create(target, sets.targets, validate_only=True)
    # Before the topics: without them, records could be read by users who may not read the source.
    acl_rows = {} if acls is None else await acls.create(target, is_dry_run=copying.is_dry_run)
    _check_acls(list(acl_rows.values()))
    if not copying.is_dry_run:
        await _create(target, sets.targets, validate_only=False)
    work = _Work(console, sides, copying, several.verifies, groups, deque(sets.targets))
    try:
        await work.run()
    except BaseException:
        console.note(f"interrupted: {len(work.rows)} of {counted(len(names), 'topic')} done; {_continuing(copying)}")
        raise
    rows = work.rows
    if acls is not None:
        rows = [
            row._replace(acls=[acl_rows[acl] for acl, topics in acls.topics.items() if row.topic in topics])
            for row in rows
        ]
    return _report(console, rows, list(acl_rows.values()), copying)


def _check(sets: TopicSets) -> None:
    """Raise Refused for topics that cannot be copied to their targets."""
    if sets.source_cluster == sets.target_cluster:
        own = [target.source for target in sets.targets if target.name == target.source]
        if own:
            raise Refused(f"{named_topics(own)} would be copied onto itself; give --prefix or another cluster")
    problems = [target.problem for target in sets.targets if target.problem]
    if problems:
        more = [f"and {len(problems) - NAMES_SHOWN} more topics"] if len(problems) > NAMES_SHOWN else []
        raise Refused(f"nothing was written: {'; '.join([*problems[:NAMES_SHOWN], *more])}")


def _note_changes(console: Console, targets: Collection[Target]) -> None:
    """Say what new topics do not have of their sources."""
    fewer = [target.name for target in targets if target.has_fewer_replicas]
    if fewer:
        console.note(f"fewer replicas than in the source, because the target has fewer brokers: {named_topics(fewer)}")
    lowered = [target.name for target in targets if target.is_min_insync_lowered]
    if lowered:
        console.note(f"min.insync.replicas lowered to the number of replicas: {named_topics(lowered)}")
    for name in sorted({name for target in targets for name in target.not_copied}):
        console.note(f"{name} is not copied: {named_topics([t.source for t in targets if name in t.not_copied])}")


def _with_progress(console: Console, copying: Copying, sets: TopicSets, prefix: str) -> Copying:
    """Return the copy with a group for its progress, unless only some of the records are copied."""
    if copying.resume_group is None and not copying.has_bound and copying.lower == START:
        parts = ["kctl-copy", sets.source_cluster or "", prefix]
        copying = copying._replace(resume_group="-".join(part for part in parts if part))
        if not copying.is_dry_run:
            console.note(f"the progress is kept in the group '{copying.resume_group}' of the target")
    if copying.resume_group is None and (copying.transactional_id is not None or copying.progress != "check"):
        raise UsageError("--transactional-id and --progress require --resume-group if not all records are copied")
    return copying


async def _groups_by_topic(
    source: ClusterClient, targets: Collection[Target], groups: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return those of the groups that have offsets in each topic.  Raises ApiError for one that has none."""
    tps = {TopicPartition(target.source, number) for target in targets for number in range(target.partitions)}
    topics_by_group = {group: {tp.topic for tp in await committed_in(source, group, tps)} for group in groups}
    for group, topics in topics_by_group.items():
        if not topics:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group}' has no committed offset in these topics")
    return {
        target.source: tuple(group for group in groups if target.source in topics_by_group[group]) for target in targets
    }


async def _create(client: ClusterClient, targets: Iterable[Target], *, validate_only: bool) -> None:
    """Create the topics that do not exist.  Raises ApiError."""
    failed = await create_targets(client, targets, validate_only=validate_only)
    if failed:
        first = failed[0]
        more = f" (and {counted(len(failed) - 1, 'more topic')})" if len(failed) > 1 else ""
        raise ApiError(first.error, f"topic '{first.name}'{more} cannot be created in the target: {first.message}")


def _check_acls(rows: list[AclChangeRow]) -> None:
    """Raise ApiError if ACLs were refused; others, which may have been created, stay."""
    refused = [row for row in rows if row.error is not None]
    if not refused:
        return
    first = refused[0]
    done = counted(sum(row.status == "created" for row in rows), "ACL")
    raise ApiError(
        ErrorCode[str(first.error)],
        f"{counted(len(refused), 'ACL')} cannot be created in the target, such as that of {first.principal} for topic "
        f"'{first.resource_name}': {first.message}; {done} created, no topic was created and no record copied",
    )


def _continuing(copying: Copying) -> str:
    if copying.is_dry_run:
        return "nothing was written"
    if copying.resume_group is None:
        return "there is no --resume-group, so that the command would copy all records again"
    return "repeat the command to continue"


@dataclass(slots=True)
class _Work:
    """The topics that are left, and the rows of those that are done.  Owner: event loop."""

    console: Console
    sides: Sides
    copying: Copying
    verifies: bool
    groups: Mapping[str, tuple[str, ...]]
    """The groups with offsets in each topic."""
    left: deque[Target]
    rows: list[TopicRow] = field(default_factory=list)
    pacer: Pacer | None = None

    async def run(self) -> None:
        """Copy all topics, some at the same time."""
        workers = min(TOPICS_AT_ONCE, len(self.left))
        total = len(self.left)
        progress = self.console.progress("copied", total, unit="topics")
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._copy_some(lambda: progress.update(len(self.rows), note=self._note())))
        finally:
            progress.hide()

    def _note(self) -> str:
        return counted(sum(row.copied for row in self.rows), "record")

    async def _copy_some(self, on_poll: Callable[[], None]) -> None:
        """Copy topics until none is left."""
        async with self.sides.source_client() as source, self.sides.target_client() as target:
            if self.copying.bytes_per_s is not None and self.pacer is None:
                self.pacer = Pacer(self.copying.bytes_per_s, source.transport.monotonic_ms())
            while self.left:
                topic = self.left.popleft()
                copy = _TopicCopy(self, topic, source, target)
                try:
                    row = await copy.run(on_poll)
                except KctlError as error:
                    row = copy.failed(error)
                    if isinstance(error, ClusterUnreachable):
                        await self._stop_if_unreachable(source, target)
                self.rows.append(row)

    async def _stop_if_unreachable(self, *clients: ClusterClient) -> None:
        """Leave out the topics that are left if a cluster does not respond: each would wait for --timeout."""
        try:
            for client in clients:
                await client.metadata([])
        except KctlError as error:
            while self.left:
                topic = self.left.popleft()
                outcome = failure_of(topic.source, error)
                self.rows.append(
                    TopicRow(topic.source, topic.name, 0, 0, 0, 0, None, "not copied", **outcome_error(outcome))
                )


@dataclass(slots=True)
class _TopicCopy:
    """The copy of one topic."""

    work: _Work
    topic: Target
    source: ClusterClient
    target: ClusterClient
    prepared: Prepared | None = None

    async def run(self, on_poll: Callable[[], None]) -> TopicRow:
        """Copy and verify the topic.  Raises KctlError."""
        work, topic = self.work, self.topic
        copying = work.copying._replace(
            source=topic.source,
            target=topic.name,
            groups=work.groups[topic.source],
            transactional_id=_transactional_id(work.copying, topic.name),
            creates_target=work.copying.is_dry_run and topic.new is not None,
        )
        prepared = await prepare(work.console, self.source, self.target, copying, work.sides, work.pacer)
        self.prepared = prepared
        prepared.copier.on_poll = on_poll
        verification = None
        if work.verifies and not copying.is_dry_run:
            plan = prepared.copier.plan
            verification = await Verification.begin(self.source, self.target, copying, plan, LIMITS)
        try:
            await prepared.copier.run()
        except LogTruncated as truncated:
            raise ApiError(truncated.code, f"{truncated}: {remedy_for(copying)}") from truncated
        of_groups = await prepared.offsets_of_groups()
        if copying.is_dry_run:
            status = "would be copied" if topic.new is None else "would be created"
            return self._row(status, groups=of_groups)
        return await self._finished(verification, of_groups)

    async def _finished(self, verification: Verification | None, of_groups: list[Mirrored]) -> TopicRow:
        assert self.prepared is not None
        positions = self.prepared.copier.counts.positions
        status, verified, message = "copied", None, None
        if verification is not None:
            status, verified, message = await verification.run(positions)
        ends = await offset_ranges(self.source, positions)
        lag = sum(max(0, ends[tp].end - position) for tp, position in positions.items())
        row = self._row(status, groups=of_groups)._replace(lag=lag, verified=verified, message=message)
        failed = next((group for group in of_groups if group.error), None)
        if failed is not None:
            text = f"the offset of group {failed.group} in partition {failed.partition}: {failed.message}"
            row = row._replace(error=failed.error, message=message or text)
        return row

    def failed(self, error: KctlError) -> TopicRow:
        """Return the row after an error."""
        return self._row("failed")._replace(**outcome_error(failure_of(self.topic.source, error)))

    def _row(self, status: str, groups: list[Mirrored] | None = None) -> TopicRow:
        counts = [] if self.prepared is None else self.prepared.copier.counts.partitions.values()
        return TopicRow(
            self.topic.source,
            self.topic.name,
            len(counts),
            sum(partition.read for partition in counts),
            sum(partition.selected for partition in counts),
            sum(partition.size for partition in counts),
            None,
            status,
            groups=groups or [],
        )


def _transactional_id(copying: Copying, topic: str) -> str | None:
    """Return the id for one topic: several transactions are open at the same time."""
    return None if copying.transactional_id is None else f"{copying.transactional_id}-{topic}"


def _report(console: Console, rows: list[TopicRow], acls: list[AclChangeRow], copying: Copying) -> ExitStatus:
    rows = sorted(rows, key=lambda row: row.topic)
    console.show(TopicRow, rows)
    of_groups = [MirroredInTopic(row.topic, *group) for row in rows for group in row.groups]
    if of_groups and not console.is_machine_readable:
        console.show(MirroredInTopic, of_groups)
    if acls and not console.is_machine_readable:
        console.show(AclChangeRow, acls)
    failed = [row for row in rows if row.error is not None]
    unmet = [row for row in rows if row.status in {"different", "not verified"}]
    verb = "would be copied" if copying.is_dry_run else "copied"
    records = counted(sum(row.copied for row in rows), "record")
    problems = [f"{len(failed)} failed"] if failed else []
    problems += [f"{len(unmet)} not equal"] if unmet else []
    done = counted(len(rows) - len({row.topic for row in [*failed, *unmet]}), "topic")
    console.note(f"{done} {verb}, {records}" + (f"; {', '.join(problems)}; {_continuing(copying)}" if problems else ""))
    return ExitStatus.FAILED if failed else ExitStatus.UNMET if unmet else ExitStatus.DONE
