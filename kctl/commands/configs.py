"""`kctl configs`: look at and change properties of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, outcome_error
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import UsageError
from kctl.integers import parse_integer

if TYPE_CHECKING:
    from kctl.admin.configs import ConfigChange, ConfigEntry, ConfigResource
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

app = Group("configs", "Look at and change properties of topics and brokers.")

TYPES = ("topic", "broker")
DEFAULT_NAME = "default"
"""What people say for the broker that stands for all."""

DESCRIBE_COLUMNS = (
    Column("type"),
    Column("name"),
    Column("property"),
    Column("value"),
    Column("source"),
    Column("read_only"),
    Column("sensitive"),
    Column("synonyms"),
    *ERROR_COLUMNS,
)
ALTER_COLUMNS = (
    Column("type"),
    Column("name"),
    Column("property"),
    Column("operation"),
    Column("before"),
    Column("after"),
    Column("status"),
    *ERROR_COLUMNS,
)

Type = Annotated[str, Argument("What has the properties.", metavar="topic|broker", choices=TYPES)]


@app.command(
    "describe",
    cluster=True,
    examples=(
        "kctl configs describe topic orders",
        "kctl configs describe broker 1 --all",
        "kctl configs describe broker default --format json",
    ),
)
def describe(
    run: Invocation,
    type_: Type,
    names: Annotated[
        list[str] | None,
        Argument(
            "Topics, or ids of brokers, or 'default' for what is set for all brokers.  All topics or brokers when none"
            " is named.",
            metavar="NAME",
        ),
    ] = None,
    *,
    all_: Annotated[bool, Option("--all", help="Also what was not set for exactly this topic or broker.")] = False,
    property_: Annotated[
        list[str] | None, Option("--property", metavar="NAME", help="Only this property, wherever it comes from.")
    ] = None,
) -> ExitStatus:
    """Show properties, where their values come from, and which others would count without them.

    One row per property; under json and jsonl one object per topic or broker.  Values of sensitive properties are not
    told by brokers.
    """
    from kctl.admin.configs import describe_configs  # noqa: PLC0415 - help needs no client

    async def ask(client: ClusterClient) -> list[dict[str, Any]]:
        resources = await _resources(client, type_, names)
        found = await describe_configs(client, resources, names=property_)
        return [_item(one, found[one], everything=all_ or property_ is not None) for one in resources]

    items = run.on_brokers(ask)
    rows = [row for item in items for row in _property_rows(item)]
    shown = [column for column in DESCRIBE_COLUMNS if all_ or column.name != "synonyms"]
    run.console.show(shown if run.console.format is Format.TABLE else DESCRIBE_COLUMNS, items, rows=rows)
    return run.status_of(items)


@app.command(
    "alter",
    cluster=True,
    examples=(
        "kctl configs alter topic orders --set retention.ms=86400000 --delete cleanup.policy",
        "kctl configs alter topic orders --append cleanup.policy=compact --dry-run",
        "kctl configs alter broker default --set log.cleaner.threads=2",
    ),
)
def alter(
    run: Invocation,
    type_: Type,
    names: Annotated[
        list[str], Argument("Topics, or ids of brokers, or 'default' for all brokers at once.", metavar="NAME")
    ],
    *,
    set_: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE", help="Give it this value.")] = None,
    delete: Annotated[list[str] | None, Option("--delete", metavar="NAME", help="Take the value away.")] = None,
    append: Annotated[
        list[str] | None, Option("--append", metavar="NAME=VALUE", help="Add to a list, where it is not in it.")
    ] = None,
    subtract: Annotated[
        list[str] | None, Option("--subtract", metavar="NAME=VALUE", help="Take out of a list.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Let the brokers check it, show what would be done and do nothing.")
    ] = False,
) -> ExitStatus:
    """Change some properties and leave all others as they are.

    One row per property.  The changes of one topic or broker are made together or not at all.  Where AFTER is empty the
    value comes from the next source that has one.  Needs Kafka 2.3 or later, which can change single properties.
    """
    from kctl.admin.configs import alter_configs, describe_configs  # noqa: PLC0415 - help needs no client

    changes = _changes(set_, delete, append, subtract)

    async def ask(client: ClusterClient) -> list[dict[str, Any]]:
        resources = await _resources(client, type_, names)
        before = await describe_configs(client, resources, names=[change.name for change in changes])
        outcomes = await alter_configs(client, dict.fromkeys(resources, changes), validate_only=dry_run)
        return [
            _change_row(resource, change, before[resource], outcomes[resource], dry_run=dry_run)
            for resource in resources
            for change in changes
        ]

    rows = run.on_brokers(ask)
    run.console.show(ALTER_COLUMNS, rows)
    return run.status_of(rows)


def _changes(
    set_: list[str] | None, delete: list[str] | None, append: list[str] | None, subtract: list[str] | None
) -> list[ConfigChange]:
    """What was asked for, by name.  Raises UsageError for nothing and for a property that is named twice."""
    from kctl.admin.configs import ConfigChange, ConfigOperation  # noqa: PLC0415 - help needs no client
    from kctl.commands.values import parse_pairs  # noqa: PLC0415 - same

    changes = [ConfigChange(name, ConfigOperation.DELETE) for name in delete or []]
    for option, texts, operation in (
        ("--set", set_, ConfigOperation.SET),
        ("--append", append, ConfigOperation.APPEND),
        ("--subtract", subtract, ConfigOperation.SUBTRACT),
    ):
        pairs = [parse_pairs([text], option) for text in texts or []]
        changes += [ConfigChange(name, operation, value) for pair in pairs for name, value in pair.items()]
    if not changes:
        raise UsageError("nothing to alter; give --set, --delete, --append or --subtract")
    names = [change.name for change in changes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is to be changed twice; brokers take one change of a property at a time")
    return sorted(changes, key=lambda change: change.name)


async def _resources(client: ClusterClient, type_: str, names: list[str] | None) -> list[ConfigResource]:
    """What was named, else all that there is.  Raises UsageError for what cannot be a broker."""
    from kctl.admin.configs import BROKER_DEFAULTS, ConfigResource, ResourceType  # noqa: PLC0415 - help needs no client

    if type_ == "topic":
        if not names:
            metadata = await client.metadata()
            names = [topic.name for topic in metadata.topics.values() if not topic.is_internal]
        return [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
    if not names:
        names = [str(broker_id) for broker_id in (await client.metadata([])).brokers]
    what = f"the id of a broker (or '{DEFAULT_NAME}' for all of them)"
    ids = sorted({parse_integer(name, what) for name in names if name != DEFAULT_NAME})
    defaults = [ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS)] if DEFAULT_NAME in names else []
    return defaults + [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in ids]


def _item(resource: ConfigResource, found: list[ConfigEntry] | Outcome, *, everything: bool) -> dict[str, Any]:
    """A topic or broker as JSON tells it."""
    entries = found if isinstance(found, list) else []
    return {
        **_identity(resource),
        "configs": [
            {
                "property": entry.name,
                "value": entry.value,
                "source": entry.source,
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
                "synonyms": [
                    {"property": synonym.name, "value": synonym.value, "source": synonym.source}
                    for synonym in entry.synonyms
                ],
            }
            for entry in entries
            if everything or entry.source == resource.own_source
        ],
        **(NO_ERROR if isinstance(found, list) else outcome_error(found)),
    }


def _property_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    identity = {"type": item["type"], "name": item["name"]}
    if item["error"]:
        return [{**identity, "error": item["error"], "message": item["message"]}]
    return [
        {
            **identity,
            **config,
            "synonyms": [
                f"{one['source']}:{one['property']}={'' if one['value'] is None else one['value']}"
                for one in config["synonyms"]
            ],
        }
        for config in item["configs"]
    ]


def _change_row(
    resource: ConfigResource,
    change: ConfigChange,
    before: list[ConfigEntry] | Outcome,
    outcome: Outcome,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    from kctl.admin.configs import entry_named, value_after  # noqa: PLC0415 - help needs no client

    entry = entry_named(before, change.name) if isinstance(before, list) else None
    value = entry.value if entry else None
    return {
        **_identity(resource),
        "property": change.name,
        "operation": change.operation.name.lower(),
        "before": value,
        "after": value_after(change, resource, entry) if outcome.is_done else value,
        "status": ("would be altered" if dry_run else "altered") if outcome.is_done else None,
        **outcome_error(outcome),
    }


def _identity(resource: ConfigResource) -> dict[str, Any]:
    return {"type": resource.type.name.lower(), "name": resource.name or DEFAULT_NAME}
