"""`kctl groups`: look at consumer groups, delete them, and say where they read on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, outcome_error
from kctl.errors import UsageError
from kctl.integers import INT64_MAX

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = Group("groups", "Look at consumer groups, delete them, reset their offsets.")

SECTIONS = ("offsets", "members", "state")
STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady"),
    *("Stable", "Dead"),
)
TYPES = ("classic", "consumer", "share", "streams")
COMPATS = ("kafka-2.8", "kafka-4")
WOULD_RESET = "would be reset"

Names = Annotated[list[str] | None, Argument("Groups; all when none is named.", metavar="GROUP")]
All = Annotated[bool, Option("--all", help="All groups but those of type share and streams.")]
Topics = Annotated[
    list[str] | None,
    Option("--topic", metavar="TOPIC[:N,N-N]", help="This topic, or some of its partitions."),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")]
Compat = Annotated[
    str | None, Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints.")
]


@app.command(
    "list",
    cluster=True,
    examples=("kctl groups list", "kctl groups list --state Empty --format json", "kctl groups list --type consumer"),
)
def list_groups(
    run: Invocation,
    *,
    state: Annotated[list[str] | None, Option("--state", choices=STATES, help="Only groups in this state.")] = None,
    type_: Annotated[
        list[str] | None,
        Option("--type", choices=TYPES, help="Only groups of this type."),
    ] = None,
    compat: Compat = None,
    verbose: Annotated[
        bool, Option("--verbose", help="With --compat: the states, as --state of Kafka's tool.")
    ] = False,
) -> ExitStatus:
    """List the groups of all brokers.

    Members of a group of type classic share the partitions out among themselves; in one of type consumer
    (group.protocol=consumer) the broker does it.  Brokers before 2.6 do not tell the state of a group here, brokers
    before 3.8 not the type: they have classic groups only.
    """
    from kctl.admin.groups import list_groups as ask  # noqa: PLC0415 - help needs no client
    from kctl.commands.group_rows import LIST_COLUMNS, list_rows  # noqa: PLC0415 - same

    groups, failed = run.on_brokers(lambda client: ask(client, state or (), type_ or ()))
    if compat:
        from kctl.commands.group_compat import listed  # noqa: PLC0415 - rarely used

        run.console.verbatim(listed(compat, groups, with_states=verbose or bool(state), with_types=bool(type_)))
        for one in failed:
            run.console.warn(f"broker {one.name} cannot tell its groups: {one.message}")
        return ExitStatus.FAILED if failed else ExitStatus.DONE
    rows = list_rows(groups, failed)
    run.console.show(LIST_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "describe",
    cluster=True,
    examples=("kctl groups describe billing", "kctl groups describe --all --show state --format json"),
)
def describe(
    run: Invocation,
    names: Names = None,
    *,
    show: Annotated[
        str, Option("--show", choices=SECTIONS, help="What the rows tell; json and jsonl always tell all three.")
    ] = "offsets",
    all_: All = False,
    compat: Compat = None,
    verbose: Annotated[bool, Option("--verbose", help="With --compat: more columns, as in Kafka's tool.")] = False,
) -> ExitStatus:
    """Describe consumer groups: committed offsets and lag, members, state.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET; it is empty where nothing has been committed.
    """
    from kctl.admin.groups import describe_groups  # noqa: PLC0415 - help needs no client
    from kctl.commands import group_rows  # noqa: PLC0415 - same

    async def ask(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        wanted, failed = await _wanted(run, client, names, all_=all_)
        return await describe_groups(client, wanted), failed

    groups, failed = run.on_brokers(ask)
    if compat:
        from kctl.commands.group_compat import describe_as_kafka  # noqa: PLC0415 - rarely used

        status = describe_as_kafka(run, groups, show, compat, verbose=verbose) if groups or not failed else None
        for one in failed:
            run.console.warn(f"broker {one.name} cannot tell its groups: {one.message}")
        return ExitStatus.FAILED if failed or status is None else status
    items = [group_rows.group_item(group) for group in groups] + [group_rows.broker_item(one) for one in failed]
    columns, rows_of = {
        "offsets": (group_rows.OFFSET_COLUMNS, group_rows.offset_rows),
        "members": (group_rows.MEMBER_COLUMNS, group_rows.member_rows),
        "state": (group_rows.STATE_COLUMNS, group_rows.state_rows),
    }[show]
    run.console.show(columns, items, rows=[row for item in items for row in rows_of(item)])
    return run.status_of(items + [offset for item in items for offset in item["offsets"]])


@app.command("members", cluster=True, examples=("kctl groups members billing", "kctl groups members --all"))
def members(run: Invocation, names: Names = None, *, all_: All = False) -> ExitStatus:
    """List the members of consumer groups and what each was given to read."""
    from kctl.admin.groups import look_up_groups  # noqa: PLC0415 - help needs no client
    from kctl.commands import group_rows  # noqa: PLC0415 - same
    from kctl.commands.group_rows import MEMBER_COLUMNS, member_items, member_rows  # noqa: PLC0415 - same

    async def ask(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        wanted, failed = await _wanted(run, client, names, all_=all_)
        return await look_up_groups(client, wanted), failed

    found, failed = run.on_brokers(ask)
    groups = [group_rows.group_item(group) for group in found] + [group_rows.broker_item(one) for one in failed]
    items = [item for group in groups for item in member_items(group)]
    run.console.show(MEMBER_COLUMNS, items, rows=[row for group in groups for row in member_rows(group)])
    return run.status_of(items)


@app.command(
    "delete", cluster=True, examples=("kctl groups delete billing --yes", "kctl groups delete --all --dry-run")
)
def delete(
    run: Invocation,
    names: Annotated[list[str] | None, Argument("Groups to delete.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Delete empty consumer groups with their committed offsets.

    A group with members is refused by the broker.  One of type share or streams has to be named.  Without --yes it
    asks on the terminal; without a terminal it refuses (exit status 5).
    """
    from kctl.admin.groups import delete_groups, look_up_groups  # noqa: PLC0415 - help needs no client
    from kctl.commands.group_offsets import previewed_deletion  # noqa: PLC0415 - same
    from kctl.commands.group_rows import DELETE_COLUMNS  # noqa: PLC0415 - same

    if not names and not all_:
        raise UsageError("say which groups to delete, or --all")
    wanted = run.on_brokers(lambda client: _all_wanted(run, client, names, all_=all_))

    async def preview(client: ClusterClient) -> list[Outcome]:
        return [previewed_deletion(group) for group in await look_up_groups(client, wanted)]

    async def act(client: ClusterClient) -> list[Outcome]:
        return await delete_groups(client, wanted)

    if not dry_run:
        run.consent(f"Delete {', '.join(wanted)} with all committed offsets?", yes=yes)
    outcomes = run.on_brokers(preview if dry_run else act)
    status = "would be deleted" if dry_run else "deleted"
    rows = [{"group": one.name, "status": status if one.is_done else None, **outcome_error(one)} for one in outcomes]
    run.console.show(DELETE_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "delete-offsets",
    cluster=True,
    examples=(
        "kctl groups delete-offsets billing --topic orders --dry-run",
        "kctl groups delete-offsets billing --topic orders:0,3-5 --topic payments --yes",
    ),
)
def delete_offsets(
    run: Invocation,
    name: Annotated[str, Argument("Group that is to forget offsets.", metavar="GROUP")],
    *,
    topic: Topics = None,
    all_topics: Annotated[bool, Option("--all-topics", help="All that the group has committed.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Delete committed offsets of a group.

    An active group keeps the offsets of topics that its members read: the broker refuses those.  Without --yes it asks
    on the terminal; without a terminal it refuses (exit status 5).
    """
    from kctl.admin.group_offsets import delete_offsets as ask_for_deletion  # noqa: PLC0415 - help needs no client
    from kctl.admin.groups import look_up_group  # noqa: PLC0415 - same
    from kctl.commands.group_offsets import committed_in_scope, previewed_deletions  # noqa: PLC0415 - same
    from kctl.commands.group_reset import parse_scope  # noqa: PLC0415 - same
    from kctl.commands.group_rows import DELETE_OFFSETS_COLUMNS, deleted_offset_row  # noqa: PLC0415 - same

    scope = parse_scope(topic, all_topics=all_topics)
    group = run.on_brokers(lambda client: look_up_group(client, name))
    if not group.outcome.is_done:
        rows: list[dict[str, Any]] = [{"group": name, "status": None, **outcome_error(group.outcome)}]
        run.console.show(DELETE_OFFSETS_COLUMNS, rows)
        return ExitStatus.FAILED
    committed = {one.tp: one.committed_offset for one in group.offsets if one.committed_offset >= 0}
    wanted = committed_in_scope(committed, scope)
    if not dry_run:
        run.consent(f"Delete {len(wanted)} committed offsets of {name}?", yes=yes)
        outcomes = run.on_brokers(lambda client: ask_for_deletion(client, name, wanted)) if wanted else {}
    else:
        outcomes = previewed_deletions(group, wanted)
    status = "would be deleted" if dry_run else "deleted"
    rows = [deleted_offset_row(name, tp, committed.get(tp), status, outcomes[tp]) for tp in wanted]
    rows.extend(
        {"group": name, "topic": one, "partition": None, "offset": None, "status": "nothing committed", **NO_ERROR}
        for one in sorted(set(scope or ()) - {tp.topic for tp in wanted})
    )
    run.console.show(DELETE_OFFSETS_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "reset-offsets",
    cluster=True,
    examples=(
        "kctl groups reset-offsets billing --topic orders --to-earliest --dry-run",
        "kctl groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute",
        "kctl groups reset-offsets billing --all-topics --to-current --dry-run --export > before.csv",
        "kctl groups reset-offsets billing --from-file before.csv --execute",
    ),
)
def reset_offsets(
    run: Invocation,
    names: Annotated[list[str] | None, Argument("Groups to reset.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    topic: Topics = None,
    all_topics: Annotated[bool, Option("--all-topics", help="All that the group has committed.")] = False,
    to_earliest: Annotated[bool, Option("--to-earliest", help="To the first record that is there.")] = False,
    to_latest: Annotated[bool, Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, Option("--to-current", help="To the committed offset; to the end where there is none.")
    ] = False,
    to_offset: Annotated[
        int | None, Option("--to-offset", metavar="N", help="To this offset.", maximum=INT64_MAX)
    ] = None,
    shift_by: Annotated[
        int | None,
        Option(
            "--shift-by",
            metavar="N",
            help="By so many records on, or back where N is negative.",
            minimum=-INT64_MAX,
            maximum=INT64_MAX,
        ),
    ] = None,
    to_datetime: Annotated[
        str | None,
        Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record at or after that time: RFC 3339 (UTC without a zone), a date, 10 digits of epoch"
            " seconds or 13 of milliseconds, or a duration back from now such as -1h.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        Option("--by-duration", metavar="DURATION", help="To the time that is so long ago: PT1H30M, 90m, 2d."),
    ] = None,
    from_file: Annotated[
        str | None,
        Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in a CSV file as --export writes it.",
            complete="file",
        ),
    ] = None,
    export: Annotated[
        bool,
        Option(
            "--export",
            help="Print Kafka's CSV instead of rows: topic,partition,offset; of several groups with"
            " the group in front.",
        ),
    ] = False,
    execute: Annotated[bool, Option("--execute", help="Commit the new offsets.")] = False,
    dry_run: DryRun = False,
    compat: Annotated[
        str | None,
        Option(
            "--compat",
            choices=COMPATS,
            help="Print what Kafka's own tool of that version prints; it does nothing unless --execute is given.",
        ),
    ] = None,
) -> ExitStatus:
    """Set where groups without members read on; a group that does not exist yet comes into being.

    Exactly one of --to-..., --shift-by, --by-duration and --from-file says where to, and --topic or --all-topics what;
    a file says both.  Either --dry-run or --execute has to be given.  Offsets beyond what a partition holds are moved
    to its start or end, with a warning.

    DELTA is how many records are skipped; negative: how many are read again.  Nothing is committed unless all offsets
    can be found, and nothing while a group has members: that is refused (exit status 5) and names them.
    """
    from kctl.admin.group_offsets import commit_offsets  # noqa: PLC0415 - help needs no client
    from kctl.admin.offset_reset import Scenario, plan_resets  # noqa: PLC0415 - same
    from kctl.commands import group_reset  # noqa: PLC0415 - same
    from kctl.commands.group_rows import RESET_COLUMNS, reset_row  # noqa: PLC0415 - same

    if execute and dry_run:
        raise UsageError("--dry-run and --execute exclude each other")
    if not (execute or dry_run or compat):
        raise UsageError("say --dry-run to see what would be reset, or --execute to do it")
    if bool(names) is all_:
        raise UsageError("say which groups to reset, or --all")
    wanted = sorted(set(names)) if names else run.on_brokers(lambda client: _all_wanted(run, client, None, all_=True))
    target = group_reset.parse_target(
        wanted,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    scope = None
    if target.scenario is not Scenario.FILE:
        scope = group_reset.parse_scope(topic, all_topics=all_topics)
    elif topic or all_topics:
        raise UsageError("--from-file says which partitions are meant; --topic and --all-topics go without it")
    with_group = all_ or len(wanted) > 1
    if target.scenario is Scenario.FILE:
        wanted = group_reset.groups_in_file(run, wanted, target, all_=all_)

    async def plan(client: ClusterClient) -> list[Reset]:
        groups = await group_reset.look_up(client, wanted)
        group_reset.refuse_active(groups)
        return await plan_resets(client, groups, target, scope)

    resets = run.on_brokers(plan)
    for reset in resets:
        group_reset.warn_if_clamped(run, reset)
    outcomes: dict[tuple[str, TopicPartition], Outcome] = {}
    if execute and all(reset.outcome.is_done for reset in resets):

        async def act(client: ClusterClient) -> None:
            wanted = group_reset.by_group(resets)
            committed = await client.gather([commit_offsets(client, *one) for one in wanted.items()])
            for group, answers in zip(wanted, committed, strict=True):
                outcomes.update({(group, tp): outcome for tp, outcome in answers.items()})

        run.on_brokers(act)
    status = "reset" if outcomes else WOULD_RESET
    rows = [reset_row(one, status, outcomes.get((one.group, one.tp)) if outcomes else None) for one in resets]
    if compat:
        group_reset.show_as_kafka(
            run, resets, rows, compat, target.scenario, topics=topic or (), export=export, with_group=with_group
        )
    elif export:
        group_reset.show_as_csv(run, resets, rows, with_group=with_group)
    else:
        run.console.show(RESET_COLUMNS, rows)
    return run.status_of(rows)


async def _all_wanted(run: Invocation, client: ClusterClient, names: list[str] | None, *, all_: bool) -> list[str]:
    """What `_wanted` finds.  Raises ApiError when a broker cannot tell its groups."""
    from kctl.errors import ApiError  # noqa: PLC0415 - help needs no client

    wanted, failed = await _wanted(run, client, names, all_=all_)
    if failed:
        raise ApiError(failed[0].error, f"broker {failed[0].name} cannot tell its groups: {failed[0].message}")
    return wanted


async def _wanted(
    run: Invocation, client: ClusterClient, names: list[str] | None, *, all_: bool
) -> tuple[list[str], list[Outcome]]:
    """The groups that are named, else all of consumers, and the brokers that could not tell theirs.

    Groups of other types are left out with a warning.
    """
    from kctl.admin.group_description import OTHER_TYPES  # noqa: PLC0415 - help needs no client
    from kctl.admin.groups import list_groups as ask  # noqa: PLC0415 - same

    if names and all_:
        raise UsageError("name groups or give --all, not both")
    if names:
        return sorted(set(names)), []
    groups, failed = await ask(client)
    for group in groups:
        if group.type in OTHER_TYPES:
            run.console.warn(
                f"group '{group.group_id}' is left out: it is a {group.type} group, see {OTHER_TYPES[group.type]}"
            )
    return sorted(group.group_id for group in groups if group.type not in OTHER_TYPES), failed
