"""`kctl streams`: reset applications of Kafka Streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.groups.resets import Scenario, Target
from kctl.admin.groups.streams import StreamsReset, execute_streams_reset, plan_streams_reset
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import SignedDuration, Time
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.groups.resets import back_up, look_up, parse_target, refuse_active
from kctl.commands.groups.selection import BackupDir, DryRun, NoBackup, warn_of_clamped
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import ErrorName, ErrorText
from kctl.output.quantities import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.groups.resets import Reset
    from kctl.client.cluster import ClusterClient
    from kctl.lag.facts import GroupDescription
    from kctl.model import TopicPartition


# `kctl groups reset-streams`.


verbs = typer.Typer(add_completion=False)

_NOT_ATTEMPTED = Outcome("", ErrorCode.OPERATION_NOT_ATTEMPTED, "not attempted, because an offset was not committed")


class ActionRow(NamedTuple):
    """One step of the reset."""

    action: str
    topic: str
    partition: int | None
    old_offset: int | None
    new_offset: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "reset-streams",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups reset-streams word-count --input-topic lines",
        "kctl groups reset-streams word-count --input-topic lines --yes",
        "kctl groups reset-streams word-count --input-topic lines --to-datetime 2026-11-21T09:30:00Z --yes",
        "kctl groups reset-streams word-count --intermediate-topic words --internal-topic counts-changelog --yes",
    ),
)
@shows(ActionRow)
def reset(
    ctx: typer.Context,
    application_id: Annotated[
        str, typer.Argument(help="The application.id, which is also the name of its group.", metavar="APPLICATION")
    ],
    *,
    input_topic: Annotated[
        list[str] | None,
        typer.Option("--input-topic", metavar="TOPIC", help="A topic that the application reads."),
    ] = None,
    intermediate_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--intermediate-topic",
            metavar="TOPIC",
            help="A topic that the application writes and reads; its offsets go to the end.",
        ),
    ] = None,
    internal_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--internal-topic",
            metavar="TOPIC",
            help="Delete only this internal topic.  Default: all internal topics.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset input topics to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset input topics to the end.")] = False,
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", metavar="N", help="Reset input topics to this offset.", max=INT64_MAX, min=0),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            help="Move the offsets of input topics by N records, back if N is negative.",
            min=-INT64_MAX,
            max=INT64_MAX,
        ),
    ] = None,
    to_datetime: Annotated[
        Time | None,
        typer.Option(
            "--to-datetime",
            parser=Time,
            help="Reset input topics to the first record at or after that time (RFC 3339).",
        ),
    ] = None,
    by_duration: Annotated[
        SignedDuration | None,
        typer.Option("--by-duration", parser=SignedDuration, help="Reset input topics to the time that long ago."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", metavar="FILE", help="Reset to the offsets in a CSV file with lines topic,partition,offset."
        ),
    ] = None,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Perform the reset; without it, it is only shown.")] = False,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Reset an application of Kafka Streams, so that it processes its input topics again.

    Resets the offsets of input topics (--to-earliest by default), sets those of intermediate topics to the end, and
    deletes the internal topics: changelogs, repartition topics and those of foreign-key joins.  Output topics stay.
    Without --yes nothing is changed, and the rows show what would be.

    All instances must be stopped: an application with members is refused (exit status 5).  If a topic is missing or no
    internal one, nothing is done.  The committed offsets are first saved to a file; 'kctl groups restore' restores
    them.  Deleted topics cannot be restored.  Delete the local state of the instances (state.dir) too.
    """
    run: Invocation = ctx.obj
    inputs, intermediates = set(input_topic or ()), set(intermediate_topic or ())
    if both := inputs & intermediates:
        raise UsageError(f"{', '.join(sorted(both))}: give --input-topic or --intermediate-topic, not both")
    scenario = {
        "to_earliest": to_earliest,
        "to_latest": to_latest,
        "to_offset": to_offset,
        "shift_by": shift_by,
        "to_datetime": to_datetime,
        "by_duration": by_duration,
        "from_file": from_file,
    }
    target = Target(Scenario.EARLIEST)
    if any(given is not None and given is not False for given in scenario.values()):
        target = parse_target(
            [application_id],
            to_earliest=to_earliest,
            to_latest=to_latest,
            to_current=False,
            to_offset=to_offset,
            shift_by=shift_by,
            to_datetime=to_datetime,
            by_duration=by_duration,
            from_file=from_file,
        )
        if (target.scenario is Scenario.FILE) is bool(inputs):
            raise UsageError("these options are for --input-topic, and --from-file lists the partitions itself")
    if yes and dry_run:
        raise UsageError("--dry-run and --yes cannot be combined")

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], StreamsReset]:
        groups = await look_up(client, [application_id])
        refuse_active(groups)
        return groups, await plan_streams_reset(
            client,
            groups[0],
            inputs=inputs,
            intermediates=intermediates,
            target=target,
            internal=internal_topic,
        )

    groups, planned = run.on_brokers(plan)
    warn_of_clamped(run, [*planned.inputs, *planned.intermediates])
    is_done = yes and planned.is_possible
    committed: Mapping[TopicPartition, Outcome] = {}
    deleted: Mapping[str, Outcome] = {}
    if is_done:
        if not no_backup:
            back_up(run, groups, "streams-reset", backup_dir=backup_dir)
        committed, deleted = run.on_brokers(lambda client: execute_streams_reset(client, application_id, planned))
    rows = _rows(planned, committed, deleted, is_done=is_done)
    run.console.show(ActionRow, rows)
    if not is_done:
        run.console.note("nothing was changed" + ("; repeat with --yes" if planned.is_possible and not dry_run else ""))
    return run.status_of(rows)


def _rows(
    planned: StreamsReset,
    committed: Mapping[TopicPartition, Outcome],
    deleted: Mapping[str, Outcome],
    *,
    is_done: bool,
) -> list[ActionRow]:
    would = "" if is_done else "would be "
    rows = [
        *(_offset_row("reset offset", input_, committed, f"{would}reset") for input_ in planned.inputs),
        *(
            _offset_row("seek to end", intermediate, committed, f"{would}reset")
            for intermediate in planned.intermediates
        ),
        *(_topic_row(problem.name, problem, None) for problem in planned.problems),
    ]
    for topic in planned.internal_topics:
        outcome = deleted.get(topic, _NOT_ATTEMPTED) if is_done else Outcome(topic)
        rows.append(_topic_row(topic, outcome, f"{would}deleted"))
    return rows


def _offset_row(action: str, planned: Reset, committed: Mapping[TopicPartition, Outcome], status: str) -> ActionRow:
    outcome = planned.outcome
    if outcome.is_done and committed:
        outcome = committed[planned.tp]
    return ActionRow(
        action=action,
        topic=planned.topic,
        partition=planned.partition,
        old_offset=planned.old,
        new_offset=planned.new,
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )


def _topic_row(topic: str, outcome: Outcome, status: str | None) -> ActionRow:
    shown = status if outcome.is_done else None
    return ActionRow("delete topic", topic, None, None, None, shown, **outcome_error(outcome))
