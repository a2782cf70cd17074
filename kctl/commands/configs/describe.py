"""`kctl configs describe`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.groups.groups import list_groups
from kctl.admin.security.quotas import (
    SCRAM_MECHANISMS,
    Entity,
    EntityQuotas,
    FilterPart,
    QuotaChange,
    ScramUser,
    describe_quotas,
    describe_scram_users,
)
from kctl.admin.topics.configs import (
    BROKER_DEFAULTS,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    describe_configs,
    list_client_metrics,
    list_groups_with_configs,
)
from kctl.client.outcome import Outcome
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import BootstrapController
from kctl.commands.frame.output.rows import code_error, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.quotas import number_text
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.options import TopicRegex
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.output.console import Column, ErrorName, ErrorText, Format, columns_of
from kctl.output.quantities import parse_integer
from kctl.security.quotas import CLIENT_KEYS, IP_KEYS, EntityType, joined_names, parse_name

if TYPE_CHECKING:
    from kctl.admin.topics.configs import ConfigEntry
    from kctl.client.cluster import ClusterClient


# `kctl configs` for users, client ids and IP addresses: their quotas, and whether users have SCRAM credentials.


ALL_CLIENTS = "*"
TYPES = {"user": EntityType.USER, "client": EntityType.CLIENT_ID, "ip": EntityType.IP}
"""Entity types by their names on the command line."""


def shown_name(entity: Entity) -> str:
    """Return the name in a row: of a user's client id as in Kafka's path, such as `alice/clients/app`.

    In a name, `/clients/` is `+/clients/`.
    """
    return joined_names(entity, "/clients/")


def filters(type_: str, names: Sequence[str] | None, client: str | None) -> list[list[FilterPart]]:
    """Return one filter for each name, or one for all entities of the type.  Raises UsageError for --client without
    users.

    The texts are those of `name_text`; as a client, `*` is any one, and `+*` the one with this name.
    """
    if client is not None and type_ != "user":
        raise UsageError("--client names a client id of a user; it needs the type 'user'")
    more = [] if client is None else [_client_part(client)]
    requested: Sequence[str | None] = names or [None]
    return [[_part(TYPES[type_], name), *more] for name in requested]


async def quotas_of(client: ClusterClient, requested: Sequence[Sequence[FilterPart]]) -> list[EntityQuotas]:
    """Return the quotas that match the filters and have no further parts."""
    quotas: list[EntityQuotas] = []
    for parts in requested:
        quotas += (await describe_quotas(client, parts, is_strict=True))[0]
    return quotas


async def scram_users_of(client: ClusterClient, requested: Sequence[Sequence[FilterPart]]) -> list[ScramUser]:
    """Return the SCRAM credentials of the users that the filters name; none for filters of anything else, as in
    Kafka.
    """
    if any(len(parts) > 1 or parts[0].type is not EntityType.USER for parts in requested):
        return []
    if any(part.name is None and not part.is_any for (part,) in requested):
        return []
    return await describe_scram_users(client, [part.name for (part,) in requested if part.name is not None])


def quota_changes(type_: str, changes: Sequence[ConfigChange]) -> list[QuotaChange]:
    """Return the changes as quotas.

    Raises UsageError for a name that is not a quota of the type, and an invalid number.
    """
    known = IP_KEYS if type_ == "ip" else CLIENT_KEYS
    requested: list[QuotaChange] = []
    for change in changes:
        if type_ == "user" and change.name.upper() in SCRAM_MECHANISMS.values():
            raise UsageError(
                f"{change.name} is a credential, not a quota; `kctl users create`, `alter` and `delete` change it"
            )
        if change.name not in known:
            raise UsageError(f"'{change.name}' is not a quota of a {type_}; use one of {', '.join(known)}")
        if change.operation not in {ConfigOperation.SET, ConfigOperation.DELETE}:
            raise UsageError("quotas are not lists; give --set or --delete")
        try:
            value = None if change.value is None else float(change.value)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{change.name} must be a number, not '{change.value}'")
        requested.append(QuotaChange(change.name, value))
    return requested


def _part(kind: EntityType, text: str | None) -> FilterPart:
    return FilterPart(kind, None if text is None else parse_name(text), is_any=text is None)


def _client_part(text: str) -> FilterPart:
    return _part(EntityType.CLIENT_ID, None if text == ALL_CLIENTS else parse_name(text, ALL_CLIENTS) or text)


# The topics, brokers, groups and so on that a command applies to.


ResourceKind = Literal["topic", "broker", "logger", "group", "client-metrics", "user", "client", "ip"]
RESOURCE_TYPES = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "logger": ResourceType.BROKER_LOGGER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}
"""Types of resources by their names on the command line; the other ones are entities of quotas."""
_NAMES = {type_: name for name, type_ in RESOURCE_TYPES.items()}
DEFAULT_NAME = "default"
"""The name on the command line for the defaults of all brokers."""
Type = Annotated[
    ResourceKind,
    typer.Argument(help="Type of the resources.", metavar="topic|broker|logger|group|client-metrics|user|client|ip"),
]
ClientName = Annotated[
    str | None,
    typer.Option(
        "--client", metavar="ID", help="With user: quotas for this client id ('+*' for *), '<default>', or '*' for all."
    ),
]


def topic_pattern(type_: str, names: list[str] | None, topic_regex: str | None) -> NamePattern | None:
    """Return the pattern of --topic-regex.  Raises UsageError beside names or for another type than topic."""
    if topic_regex is None:
        return None
    if type_ != "topic" or names:
        raise UsageError("--topic-regex is for type topic, without names")
    return NamePattern("--topic-regex", topic_regex)


async def requested_resources(
    client: ClusterClient, type_: str, names: list[str] | None, pattern: NamePattern | None = None
) -> list[ConfigResource]:
    """Return the named resources, the topics that match, or all.

    Raises UsageError for an invalid broker id, and ApiError if unnamed client metrics cannot be listed.
    """
    kind = RESOURCE_TYPES[type_]
    if pattern is not None:
        return [ConfigResource(kind, name) for name in sorted(pattern.select(await _all_names(client, kind)))]
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return await _brokers(client, kind, names)
    if not names:
        names = await _all_names(client, kind)
    return [ConfigResource(kind, name) for name in sorted(set(names))]


async def _all_names(client: ClusterClient, kind: ResourceType) -> list[str]:
    if kind is ResourceType.TOPIC:
        metadata = await client.metadata()
        return [topic.name for topic in metadata.topics.values() if not topic.is_internal]
    if kind is ResourceType.GROUP:
        groups, failed = await list_groups(client, (), ())
        if failed:
            raise ApiError(failed[0].error, f"broker {failed[0].name} cannot list its groups: {failed[0].message}")
        return [*(group.group_id for group in groups), *await list_groups_with_configs(client)]
    return await list_client_metrics(client)


async def _brokers(client: ClusterClient, kind: ResourceType, names: list[str] | None) -> list[ConfigResource]:
    if not names:
        names = [str(broker_id) for broker_id in (await client.metadata([])).brokers]
    has_defaults = kind is ResourceType.BROKER
    what = f"the id of a broker (or '{DEFAULT_NAME}' for all of them)" if has_defaults else "the id of a broker"
    ids = sorted({parse_integer(name, what) for name in names if not (has_defaults and name == DEFAULT_NAME)})
    defaults = [ConfigResource(kind, BROKER_DEFAULTS)] if has_defaults and DEFAULT_NAME in names else []
    return defaults + [ConfigResource(kind, str(broker_id)) for broker_id in ids]


def type_and_name(resource: ConfigResource) -> tuple[str, str]:
    """Return the first two columns of the rows about a resource."""
    is_default = resource.type is ResourceType.BROKER and resource.name == BROKER_DEFAULTS
    return _NAMES[resource.type], DEFAULT_NAME if is_default else resource.name


verbs = typer.Typer(add_completion=False)


class SynonymItem(NamedTuple):
    """Another source that has a value for a property."""

    property: str
    value: str | None
    source: str


class ConfigItem(NamedTuple):
    """A property within the JSON object of a topic or broker."""

    property: str
    value: str | None
    source: Annotated[str | None, "Null for quotas and credentials."]
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

    type: Annotated[str, Column(drop_order=4)]
    name: str
    property: str | None = None
    value: Annotated[str | None, Column(wraps=True, spills=True)] = None
    source: Annotated[str | None, Column(drop_order=5)] = None
    read_only: Annotated[bool | None, Column(drop_order=3)] = None
    sensitive: Annotated[bool | None, Column(drop_order=2)] = None
    synonyms: Annotated[list[str] | None, Column(drop_order=1)] = None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl configs describe topic orders",
        "kctl configs describe broker 1 --all",
        "kctl configs describe broker default --format json",
        "kctl configs describe logger 1 --property kctl.server.cluster.controller",
        "kctl configs describe group billing",
        "kctl configs describe user alice --client app",
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
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Show properties, the sources of their values, and the values that they override.

    One row per property; with json, jsonl and yaml one object per topic or broker.  Brokers do not return the values of
    sensitive properties.

    The properties of users, clients and ips are quotas; users also have SCRAM credentials.  `user --client` shows the
    quotas of users' client ids.  Requires Kafka 2.6 or later, for credentials and IP addresses 2.7, for loggers 2.4,
    for client metrics 3.7, and for groups 4.0.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    pattern = topic_pattern(type_, names, topic_regex)
    check_selection(type_, client, all_=all_, property_=property_)
    if type_ in TYPES:
        return _describe_clients(run, filters(type_, names, client), type_)

    with_synonyms = all_ or run.console.format is not Format.TABLE

    async def query(cluster: ClusterClient) -> list[ResourceItem]:
        resources = await requested_resources(cluster, type_, names, pattern)
        described = await describe_configs(
            cluster, resources, names=property_, synonyms=with_synonyms, own_only=not all_ and property_ is None
        )
        return [_item(resource, described[resource]) for resource in resources]

    return _show(run, run.on_brokers(query), with_synonyms=all_)


def check_selection(type_: str, client: str | None, *, all_: bool, property_: list[str] | None) -> None:
    """Raise UsageError for options that are not for this type."""
    if type_ in TYPES and (all_ or property_):
        raise UsageError("--all and --property are not for users, clients and ips")
    if type_ not in TYPES and client is not None:
        raise UsageError("--client is for users, clients and ips")


def _show(run: Invocation, items: list[ResourceItem], *, with_synonyms: bool) -> ExitStatus:
    rows = [row for item in items for row in _property_rows(item)]
    if run.console.format is Format.TABLE:
        is_one = len(items) == 1 and not items[0].error  # The command line names it.
        omitted = [*([] if with_synonyms else ["synonyms"]), *(["type", "name"] if is_one else [])]
        run.console.show(columns_of(ConfigRow, *omitted), items, rows=rows)
    else:
        run.console.show(ConfigRow, items, rows=rows)
    return run.status_of(items)


async def read_clients(
    cluster: ClusterClient, requested: list[list[FilterPart]]
) -> tuple[list[EntityQuotas], list[ScramUser]]:
    """Return the quotas and the SCRAM credentials that the filters select."""
    return await quotas_of(cluster, requested), await scram_users_of(cluster, requested)


def _describe_clients(run: Invocation, requested: list[list[FilterPart]], type_: str) -> ExitStatus:
    quotas, users = run.on_cluster(lambda cluster: read_clients(cluster, requested))
    items = {
        name: ResourceItem(
            type_, name, [_client_item(key, str(number_text(quota.quotas[key]))) for key in quota.quotas]
        )
        for quota in quotas
        for name in [shown_name(quota.entity)]
    }
    for user in users:
        name = shown_name(((EntityType.USER, user.outcome.name),))
        item = items.setdefault(name, ResourceItem(type_, name, []))
        item.configs.extend(_client_item(mechanism, f"iterations={count}") for mechanism, count in user.credentials)
        if not user.outcome.is_done:
            items[name] = item._replace(**outcome_error(user.outcome))
    return _show(run, [items[name] for name in sorted(items)], with_synonyms=False)


def _client_item(name: str, value: str) -> ConfigItem:
    return ConfigItem(name, value, None, read_only=False, sensitive=False, synonyms=[])


def _item(resource: ConfigResource, entries: list[ConfigEntry] | Outcome) -> ResourceItem:
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
                synonyms=[SynonymItem(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
            )
            for entry in (entries if isinstance(entries, list) else [])
        ],
        **(code_error(ErrorCode.NONE) if isinstance(entries, list) else outcome_error(entries)),
    )


def _property_rows(item: ResourceItem) -> list[ConfigRow]:
    if item.error:
        return [ConfigRow(item.type, item.name, error=item.error, message=item.message)]
    return [
        ConfigRow(item.type, item.name, **(config._asdict() | {"synonyms": _synonym_texts(config)}))
        for config in item.configs
    ]


def _synonym_texts(config: ConfigItem) -> list[str]:
    return [
        f"{synonym.source}:{synonym.property}={'' if synonym.value is None else synonym.value}"
        for synonym in config.synonyms
    ]
