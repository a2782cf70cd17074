"""`kctl configs describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.admin.configs import describe_configs
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.configs.resources import Type, identity_of, requested_resources
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, outcome_error
from kctl.console import ERROR_COLUMNS, Column, Format

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
            help="Topics, or ids of brokers, or 'default' for what is set for all brokers.  Default: all topics or"
            " brokers.",
            metavar="NAME",
        ),
    ] = None,
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="Include properties that are not set on this topic or broker itself.")
    ] = False,
    property_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME", help="Only this property, wherever it comes from.")
    ] = None,
) -> ExitStatus:
    """Show properties, the sources of their values, and the values that they override.

    One row per property; under json and jsonl one object per topic or broker.  Brokers do not
    reveal the values of sensitive properties.
    """
    run: Invocation = ctx.obj

    async def ask(client: ClusterClient) -> list[dict[str, Any]]:
        resources = await requested_resources(client, type_, names)
        found = await describe_configs(client, resources, names=property_)
        return [_item(one, found[one], everything=all_ or property_ is not None) for one in resources]

    items = run.on_brokers(ask)
    rows = [row for item in items for row in _property_rows(item)]
    shown = [column for column in DESCRIBE_COLUMNS if all_ or column.name != "synonyms"]
    run.console.show(shown if run.console.format is Format.TABLE else DESCRIBE_COLUMNS, items, rows=rows)
    return run.status_of(items)


def _item(resource: ConfigResource, found: list[ConfigEntry] | Outcome, *, everything: bool) -> dict[str, Any]:
    """A topic or broker as JSON tells it."""
    entries = found if isinstance(found, list) else []
    return {
        **identity_of(resource),
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
