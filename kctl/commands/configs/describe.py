"""`kctl configs describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.configs import describe_configs
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.configs.resources import Type, requested_resources, type_and_name
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import code_error, outcome_error
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.configs import ConfigEntry, ConfigResource
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


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


class SynonymItem(NamedTuple):
    """Another source that has a value for a property."""

    property: str
    value: str | None
    source: str


class ConfigItem(NamedTuple):
    """A property within the JSON object of a topic or broker."""

    property: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[SynonymItem]


class ResourceItem(NamedTuple):
    """A topic or broker as a JSON object."""

    type: str
    name: str
    configs: list[ConfigItem]
    error: str | None = None
    message: str | None = None


class ConfigRow(NamedTuple):
    """A property in the table, or a topic or broker that could not be described."""

    type: str
    name: str
    property: str | None = None
    value: str | None = None
    source: str | None = None
    read_only: bool | None = None
    sensitive: bool | None = None
    synonyms: list[str] | None = None
    error: str | None = None
    message: str | None = None


@app.command(
    "describe",
    cls=ClusterCommand,
    epilog=examples(
        "kctl configs describe topic orders",
        "kctl configs describe broker 1 --all",
        "kctl configs describe broker default --format json",
    ),
)
def describe(
    ctx: typer.Context,
    type_: Type,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topics, or broker ids, or 'default' for the properties that are set for all brokers.  "
            "Default: all topics or brokers.",
            metavar="NAME",
        ),
    ] = None,
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="Include properties that are not set on this topic or broker itself.")
    ] = False,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME", help="Only this property, whatever the source of its value."),
    ] = None,
) -> ExitStatus:
    """Show properties, the sources of their values, and the values that they override.

    One row per property; with json and jsonl one object per topic or broker.  Brokers do not return the values of
    sensitive properties.
    """
    run: Invocation = ctx.obj

    async def ask(client: ClusterClient) -> list[ResourceItem]:
        resources = await requested_resources(client, type_, names)
        found = await describe_configs(client, resources, names=property_)
        return [_item(one, found[one], everything=all_ or property_ is not None) for one in resources]

    items = run.on_brokers(ask)
    rows = [row for item in items for row in _property_rows(item)]
    shown = [column for column in DESCRIBE_COLUMNS if all_ or column.name != "synonyms"]
    run.console.show(shown if run.console.format is Format.TABLE else DESCRIBE_COLUMNS, items, rows=rows)
    return run.status_of(items)


def _item(resource: ConfigResource, found: list[ConfigEntry] | Outcome, *, everything: bool) -> ResourceItem:
    type_, name = type_and_name(resource)
    entries = found if isinstance(found, list) else []
    return ResourceItem(
        type=type_,
        name=name,
        configs=[
            ConfigItem(
                property=entry.name,
                value=entry.value,
                source=entry.source,
                read_only=entry.is_read_only,
                sensitive=entry.is_sensitive,
                synonyms=[SynonymItem(one.name, one.value, one.source) for one in entry.synonyms],
            )
            for entry in entries
            if everything or entry.source == resource.own_source
        ],
        **(code_error(ErrorCode.NONE) if isinstance(found, list) else outcome_error(found)),
    )


def _property_rows(item: ResourceItem) -> list[ConfigRow]:
    if item.error:
        return [ConfigRow(item.type, item.name, error=item.error, message=item.message)]
    return [
        ConfigRow(item.type, item.name, **(config._asdict() | {"synonyms": _synonym_texts(config)}))
        for config in item.configs
    ]


def _synonym_texts(config: ConfigItem) -> list[str]:
    return [f"{one.source}:{one.property}={'' if one.value is None else one.value}" for one in config.synonyms]
