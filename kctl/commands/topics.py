"""`kctl topics`: list, describe, create, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import code_error, known, outcome_error
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import ErrorCode, UsageError
from kctl.integers import INT16_MAX, parse_integer

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic

app = Group("topics", "List, describe, create, alter and delete topics.")

TOPIC_COLUMNS = (
    Column("topic"),
    Column("partitions", numeric=True),
    Column("replication_factor", numeric=True),
    *ERROR_COLUMNS,
)
OVERVIEW_COLUMNS = (*TOPIC_COLUMNS[:3], Column("topic_id"), Column("configs", wraps=True), *ERROR_COLUMNS)
PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("leader", numeric=True),
    Column("leader_epoch", numeric=True),
    Column("replicas", wraps=True),
    Column("isr", wraps=True),
    Column("offline", wraps=True),
    *ERROR_COLUMNS,
)
CHANGE_COLUMNS = (*TOPIC_COLUMNS[:3], Column("status"), *ERROR_COLUMNS)

YES = Option("--yes", "-y", help="Do it without asking.")
DRY_RUN = Option("--dry-run", help="Show what would be done and do nothing.")


@app.command("list", cluster=True, examples=("kctl topics list", "kctl topics list --internal --format jsonl"))
def list_topics(
    run: Invocation,
    *,
    internal: Annotated[bool, Option("--internal", help="Also topics that the brokers keep for themselves.")] = False,
) -> ExitStatus:
    """List topics."""
    from kctl.admin.topics import list_topics as ask  # noqa: PLC0415 - help needs no client

    topics = run.on_cluster(ask)
    rows = [_topic_row(topic) for topic in topics if internal or not topic.is_internal]
    run.console.show(TOPIC_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "describe",
    cluster=True,
    examples=(
        "kctl topics describe orders",
        "kctl topics describe --format json",
        "kctl topics describe --unavailable --under-min-isr",
    ),
)
def describe(
    run: Invocation,
    names: Annotated[
        list[str] | None,
        Argument("Topics; all when none is named, internal ones only together with a filter.", metavar="TOPIC"),
    ] = None,
    *,
    under_replicated: Annotated[
        bool, Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
    ] = False,
    unavailable: Annotated[bool, Option("--unavailable", help="Only partitions without a live leader.")] = False,
    under_min_isr: Annotated[
        bool, Option("--under-min-isr", help="Only partitions with less in sync than min.insync.replicas.")
    ] = False,
) -> ExitStatus:
    """Describe topics: their partitions, leaders, replicas and overridden properties.

    One row per partition; under json and jsonl one object per topic.  With several filters a partition is shown when
    any of them holds; exit status 3 when one is shown.
    """
    from kctl.admin.partition_health import PartitionProblem  # noqa: PLC0415 - help needs no client
    from kctl.admin.topic_configs import topic_overrides  # noqa: PLC0415 - same
    from kctl.admin.topics import describe_topics, list_topics  # noqa: PLC0415 - same

    flags = {
        PartitionProblem.UNDER_REPLICATED: under_replicated,
        PartitionProblem.UNAVAILABLE: unavailable,
        PartitionProblem.UNDER_MIN_ISR: under_min_isr,
    }
    problems = {problem for problem, wanted in flags.items() if wanted}

    async def ask(client: ClusterClient) -> tuple[list[Topic], dict[str, Any], dict[str, list[int]]]:
        if names:
            topics = await describe_topics(client, names)
        else:
            topics = [topic for topic in await list_topics(client) if problems or not topic.is_internal]
        filtered: dict[str, list[int]] = {}
        if problems:
            from kctl.admin.health import partitions_with_problems  # noqa: PLC0415 - rarely needed

            filtered = await partitions_with_problems(client, topics, problems)
            topics = [topic for topic in topics if topic.name in filtered or not topic.partitions]
        found = [topic.name for topic in topics if topic.error is ErrorCode.NONE]
        return topics, await topic_overrides(client, found) if found else {}, filtered

    topics, overrides, filtered = run.on_cluster(ask)
    items = [_topic_item(topic, overrides.get(topic.name)) for topic in topics]
    for item in items if problems else []:
        shown = filtered.get(item["topic"], [])
        item["partitions"] = [partition for partition in item["partitions"] if partition["partition"] in shown]
    if run.console.format is Format.TABLE and items and not problems:
        run.console.show(OVERVIEW_COLUMNS, [{**item, "partitions": item["partition_count"]} for item in items])
        run.console.text("")
    run.console.show(PARTITION_COLUMNS, items, rows=[row for item in items for row in _partition_rows(item)])
    status = run.status_of(items)
    return ExitStatus.UNMET if filtered and status is ExitStatus.DONE else status


@app.command(
    "create",
    cluster=True,
    examples=(
        "kctl topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000",
        "kctl topics create orders --replica-assignment 0:1,1:2,2:0",
    ),
)
def create(
    run: Invocation,
    name: Annotated[str, Argument("Name of the topic.", metavar="TOPIC")],
    *,
    partitions: Annotated[
        int | None,
        Option(
            "--partitions", metavar="N", help="Number of partitions.  Default: the broker's num.partitions.", minimum=1
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        Option(
            "--replication-factor",
            metavar="N",
            help="Number of replicas.  Default: the broker's default.replication.factor.",
            minimum=1,
            maximum=INT16_MAX,
        ),
    ] = None,
    config: Annotated[list[str] | None, Option("--config", metavar="NAME=VALUE", help="Set a property.")] = None,
    replica_assignment: Annotated[
        str | None,
        Option(
            "--replica-assignment",
            metavar="B:B,...",
            help="Instead of the two numbers, the broker ids of each partition's replicas, preferred leader first.",
        ),
    ] = None,
    if_not_exists: Annotated[bool, Option("--if-not-exists", help="No failure if it exists already.")] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Create a topic.

    It is done when every live broker knows the topic, so that the next command finds it whichever broker that asks; it
    waits 5 s for that at most.
    """
    from kctl.admin.topic_changes import BROKER_DEFAULT, NewTopic, create_topics  # noqa: PLC0415 - help needs no client
    from kctl.commands.values import parse_pairs  # noqa: PLC0415 - same

    if replica_assignment and (partitions is not None or replication_factor is not None):
        raise UsageError("--replica-assignment says all; leave out --partitions and --replication-factor")
    topic = NewTopic(
        name,
        BROKER_DEFAULT if partitions is None else partitions,
        BROKER_DEFAULT if replication_factor is None else replication_factor,
        parse_assignment(replica_assignment) if replica_assignment else (),
        parse_pairs(config, "--config"),
    )
    created = run.on_cluster(lambda client: create_topics(client, [topic], validate_only=dry_run))
    rows = []
    for one in created:
        row = _change_row(one.outcome, "would be created" if dry_run else "created")
        row["partitions"] = known(one.partitions)
        row["replication_factor"] = known(one.replication_factor)
        if if_not_exists and one.outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            row |= {"status": "exists", "error": None, "message": None}
        rows.append(row)
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "alter",
    cluster=True,
    examples=(
        "kctl topics alter orders --partitions 12",
        "kctl topics alter orders --config retention.ms=3600000 --delete-config cleanup.policy",
    ),
)
def alter(
    run: Invocation,
    name: Annotated[str, Argument("Name of the topic.", metavar="TOPIC")],
    *,
    partitions: Annotated[
        int | None, Option("--partitions", metavar="N", help="Add partitions until there are N.", minimum=1)
    ] = None,
    replica_assignment: Annotated[
        str | None,
        Option("--replica-assignment", metavar="B:B,...", help="Broker ids of the replicas of each added partition."),
    ] = None,
    config: Annotated[list[str] | None, Option("--config", metavar="NAME=VALUE", help="Set a property.")] = None,
    delete_config: Annotated[
        list[str] | None, Option("--delete-config", metavar="NAME", help="Let a property follow the default again.")
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Add partitions to a topic, change its properties, or both.

    Keys go to other partitions than before once partitions are added.
    """
    from kctl.commands.values import parse_pairs  # noqa: PLC0415 - help needs no client

    set_ = parse_pairs(config, "--config")
    if partitions is None and not set_ and not delete_config:
        raise UsageError("nothing to alter; give --partitions, --config or --delete-config")
    if replica_assignment and partitions is None:
        raise UsageError("--replica-assignment places added partitions; give --partitions as well")

    async def ask(client: ClusterClient) -> list[dict[str, Any]]:
        rows = []
        if set_ or delete_config:
            from kctl.admin.topic_configs import alter_topic_configs  # noqa: PLC0415 - help needs no client

            outcome = await alter_topic_configs(
                client, name, set_=set_, delete=delete_config or [], validate_only=dry_run
            )
            rows.append(_change_row(outcome, "properties would be altered" if dry_run else "properties altered"))
        if partitions is not None:
            from kctl.admin.topic_changes import create_partitions  # noqa: PLC0415 - help needs no client

            assignment = parse_assignment(replica_assignment) if replica_assignment else ()
            outcome = await create_partitions(client, name, partitions, assignment=assignment, validate_only=dry_run)
            row = _change_row(outcome, "partitions would be added" if dry_run else "partitions added")
            rows.append(row | {"partitions": partitions if outcome.is_done else None})
        return rows

    rows = run.on_cluster(ask)
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


@app.command(
    "delete", cluster=True, examples=("kctl topics delete orders --dry-run", "kctl topics delete orders payments --yes")
)
def delete(
    run: Invocation,
    names: Annotated[list[str], Argument("Topics to delete.", metavar="TOPIC")],
    *,
    if_exists: Annotated[bool, Option("--if-exists", help="No failure if it does not exist.")] = False,
    yes: Annotated[bool, YES] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Delete topics with all their records.

    Names are taken literally.  Without --yes it asks on the terminal; without a terminal it refuses (exit status 5).
    """
    from kctl.admin.topic_changes import delete_topics  # noqa: PLC0415 - help needs no client
    from kctl.admin.topics import describe_topics  # noqa: PLC0415 - same

    def forgive(row: dict[str, Any]) -> dict[str, Any]:
        if if_exists and row["error"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            return row | {"status": "does not exist", "error": None, "message": None}
        return row

    if dry_run:
        topics = run.on_cluster(lambda client: describe_topics(client, names))
        rows = [_topic_row(topic) for topic in topics]
        rows = [forgive({**row, "status": None if row["error"] else "would be deleted"}) for row in rows]
    else:
        run.consent(f"Delete {', '.join(sorted(set(names)))} with all records?", yes=yes)
        outcomes = run.on_cluster(lambda client: delete_topics(client, set(names)))
        rows = [forgive(_change_row(outcome, "deleted")) for outcome in outcomes]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


def parse_assignment(text: str) -> list[list[int]]:
    """Read `1:2,2:3`: the replicas of each partition.  Raises UsageError."""
    what = f"a broker in '{text}', which is to be like 1:2,2:3,"
    return [[parse_integer(replica, what) for replica in part.split(":")] for part in text.split(",")]


def _topic_row(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions) if topic.partitions else None,
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else None,
        "internal": topic.is_internal,
        **code_error(topic.error),
    }


def _topic_item(topic: Topic, overrides: dict[str, str | None] | Outcome | None) -> dict[str, Any]:
    """A topic as JSON tells it."""
    row = _topic_row(topic)
    configs = overrides if isinstance(overrides, dict) else None
    if overrides is not None and configs is None:
        row |= outcome_error(overrides)  # type: ignore[arg-type]  # what is not a dict is an outcome
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "internal": topic.is_internal,
        "partition_count": row["partitions"],
        "replication_factor": row["replication_factor"],
        "configs": configs,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": known(partition.leader),
                "leader_epoch": known(partition.leader_epoch),
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline_replicas),
                **code_error(partition.error),
            }
            for partition in topic.partitions
        ],
        "error": row["error"],
        "message": row["message"],
    }


def _partition_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    if not item["partitions"]:
        return [{"topic": item["topic"], "error": item["error"], "message": item["message"]}]
    return [{"topic": item["topic"], **partition} for partition in item["partitions"]]


def _change_row(outcome: Outcome, status: str) -> dict[str, Any]:
    return {
        "topic": outcome.name,
        "partitions": None,
        "replication_factor": None,
        "status": status if outcome.is_done else None,
        **outcome_error(outcome),
    }


def _topic_id(topic: Topic) -> str | None:
    """As Kafka's tools write it: base64 without padding."""
    import base64  # noqa: PLC0415 - rarely used

    if not topic.topic_id.int:
        return None
    return base64.urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
