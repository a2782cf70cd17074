"""`kctl configs describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.configs import BROKER_DEFAULTS, ConfigResource, ResourceType, describe_configs
from kctl.admin.outcome import Outcome
from kctl.commands.command import examples
from kctl.commands.compat import configs as config_compat
from kctl.commands.compat.hash_order import java_order
from kctl.commands.compat.versions import Compat
from kctl.commands.configs import clients
from kctl.commands.configs.resources import ClientName, Type, requested_resources, topic_pattern, type_and_name
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.quotas.rows import number_text
from kctl.commands.rows import code_error, outcome_error
from kctl.commands.shown import shows
from kctl.commands.topics.options import TopicRegex
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import ErrorCode, UsageError
from kctl.security.quotas import EntityType

if TYPE_CHECKING:
    from kctl.admin.configs import ConfigEntry
    from kctl.admin.quotas import EntityQuotas, FilterPart, ScramUser
    from kctl.client.cluster import ClusterClient
    from kctl.commands.timed_search import NamePattern

app = typer.Typer(add_completion=False)


DESCRIBE_COLUMNS = (
    Column("type"),
    Column("name"),
    Column("property"),
    Column("value"),
    Column("source"),
    Column("read_only", drop_order=3),
    Column("sensitive", drop_order=2),
    Column("synonyms", drop_order=1),
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
    source: str | None
    """Null for quotas and credentials."""
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
    cls=QueryCommand,
    epilog=examples(
        "kctl configs describe topic orders",
        "kctl configs describe broker 1 --all",
        "kctl configs describe broker default --format json",
        "kctl configs describe logger 1 --property kctl.server.controller",
        "kctl configs describe group billing",
        "kctl configs describe user alice --client app",
        "kctl configs describe user --compat kafka-2.8",
    ),
)
@shows(ResourceItem)
def describe(
    ctx: typer.Context,
    type_: Type,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topics, groups, subscriptions to client metrics, or broker ids, or 'default' for the properties that"
            " are set for all brokers; users, client ids or IP addresses, or '<default>'.  Default: all of the type.",
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
    topic_regex: TopicRegex = None,
    client: ClientName = None,
    compat: Compat = None,
) -> ExitStatus:
    """Show properties, the sources of their values, and the values that they override.

    One row per property; with json, jsonl and yaml one object per topic or broker.  Brokers do not return the values of
    sensitive properties.

    The properties of users, clients and ips are quotas; users also have SCRAM credentials.  `user --client` shows the
    quotas of users' client ids.  Requires Kafka 2.6 or later, for credentials and IP addresses 2.7, for loggers 2.4,
    for client metrics 3.7, and for groups 4.0.
    """
    run: Invocation = ctx.obj
    pattern = topic_pattern(type_, names, topic_regex)
    if type_ in clients.TYPES:
        if all_ or property_:
            raise UsageError("--all and --property are not for users, clients and ips")
        return _describe_clients(run, clients.filters(type_, names, client), type_, compat=compat is not None)
    if client is not None:
        raise UsageError("--client is for users, clients and ips")
    if compat:
        return _describe_as_kafka(run, compat, type_, names, pattern, everything=all_, only=property_)

    with_synonyms = all_ or run.console.format is not Format.TABLE

    async def query(cluster: ClusterClient) -> list[ResourceItem]:
        resources = await requested_resources(cluster, type_, names, pattern)
        found = await describe_configs(
            cluster, resources, names=property_, synonyms=with_synonyms, own_only=not all_ and property_ is None
        )
        return [_item(one, found[one]) for one in resources]

    return _show(run, run.on_brokers(query), with_synonyms=all_)


def _describe_as_kafka(
    run: Invocation,
    compat: str,
    type_: str,
    names: list[str] | None,
    pattern: NamePattern | None,
    *,
    everything: bool,
    only: list[str] | None,
) -> ExitStatus:
    if only:
        raise UsageError("--compat and --property cannot be combined")

    async def query(cluster: ClusterClient) -> list[tuple[ConfigResource, list[ConfigEntry] | Outcome]]:
        if type_ == "topic" and not names and pattern is None:
            # Kafka's tool includes internal topics, and has the names in a HashMap.
            metadata = await cluster.metadata()
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in java_order(metadata.topics)]
        else:
            resources = await requested_resources(cluster, type_, names, pattern)
        if type_ == "broker" and not names:
            resources.append(ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS))
        found = await describe_configs(cluster, resources, is_sorted=False)
        return [(one, found[one]) for one in resources]

    status = ExitStatus.DONE
    for resource, entries in run.on_brokers(query):
        if isinstance(entries, Outcome):
            run.console.verbatim(config_compat.not_described(compat, resource))
            run.console.warn(f"{resource.type.name.lower()} '{resource.name}': {entries.message}")
            status = ExitStatus.FAILED
        else:
            text = config_compat.described(compat, resource, entries, with_inherited=everything)
            run.console.verbatim(text)
    return status


def _show(run: Invocation, items: list[ResourceItem], *, with_synonyms: bool) -> ExitStatus:
    rows = [row for item in items for row in _property_rows(item)]
    shown = [column for column in DESCRIBE_COLUMNS if with_synonyms or column.name != "synonyms"]
    run.console.show(shown if run.console.format is Format.TABLE else DESCRIBE_COLUMNS, items, rows=rows)
    return run.status_of(items)


def _describe_clients(run: Invocation, requested: list[list[FilterPart]], type_: str, *, compat: bool) -> ExitStatus:
    async def query(cluster: ClusterClient) -> tuple[list[EntityQuotas], list[ScramUser]]:
        return await clients.quotas_of(cluster, requested), await clients.scram_users_of(cluster, requested)

    quotas, users = run.on_cluster(query)
    if compat:
        run.console.verbatim(config_compat.quotas(quotas) + config_compat.scram_users(users))
        return ExitStatus.DONE if all(one.outcome.is_done for one in users) else ExitStatus.FAILED
    items = {
        name: ResourceItem(type_, name, [_client_item(key, str(number_text(one.quotas[key]))) for key in one.quotas])
        for one in quotas
        for name in [clients.shown_name(one.entity)]
    }
    for user in users:
        name = clients.shown_name(((EntityType.USER, user.outcome.name),))
        item = items.setdefault(name, ResourceItem(type_, name, []))
        item.configs.extend(_client_item(mechanism, f"iterations={count}") for mechanism, count in user.credentials)
        if not user.outcome.is_done:
            items[name] = item._replace(**outcome_error(user.outcome))
    return _show(run, [items[name] for name in sorted(items)], with_synonyms=False)


def _client_item(name: str, value: str) -> ConfigItem:
    return ConfigItem(name, value, None, read_only=False, sensitive=False, synonyms=[])


def _item(resource: ConfigResource, found: list[ConfigEntry] | Outcome) -> ResourceItem:
    type_, name = type_and_name(resource)
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
            for entry in (found if isinstance(found, list) else [])
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
