"""`kctl configs alter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security.quotas import alter_quotas
from kctl.admin.topics.configs import (
    ConfigChange,
    ConfigOperation,
    describe_configs,
    entry_named,
    value_after,
)
from kctl.admin.topics.overrides import alter_configs_of_any_broker
from kctl.commands.configs import describe
from kctl.commands.configs.describe import (
    ClientName,
    Type,
    requested_resources,
    topic_pattern,
    type_and_name,
)
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Pair, Property
from kctl.commands.frame.options.parameters import BootstrapController
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.quotas import number_text
from kctl.commands.topics.options import TopicRegex
from kctl.config.redaction import HIDDEN, is_secret
from kctl.errors import KctlError, UsageError
from kctl.output.console import ErrorName, ErrorText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.security.quotas import Entity, QuotaChange
    from kctl.admin.topics.configs import ConfigEntry, ConfigResource
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome

verbs = typer.Typer(add_completion=False)


class ConfigChangeRow(NamedTuple):
    """A property of a topic or broker that is changed."""

    type: str
    name: str
    property: str
    operation: str
    before: str | None
    after: str | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl configs alter topic orders --set retention.ms=86400000 --delete-config cleanup.policy",
        "kctl configs alter topic orders --append cleanup.policy=compact --dry-run",
        "kctl configs alter broker default --set log.cleaner.threads=2",
        "kctl configs alter group billing --set consumer.session.timeout.ms=60000",
        "kctl configs alter user alice --client app --set producer_byte_rate=1048576",
    ),
)
@shows(ConfigChangeRow)
def alter(
    ctx: typer.Context,
    type_: Type,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topics, groups, subscriptions to client metrics, or broker ids, or 'default' for all brokers; users,"
            " client ids or IP addresses, or '<default>'.",
            metavar="NAME",
        ),
    ] = None,
    *,
    set_: Annotated[
        list[Property] | None, typer.Option("--set", parser=Property, help="Set a property, such as retention.ms=7d.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="NAME", help="Remove the value of a property.")
    ] = None,
    append: Annotated[
        list[Pair] | None, typer.Option("--append", parser=Pair, help="Add an element to a list property.")
    ] = None,
    subtract: Annotated[
        list[Pair] | None,
        typer.Option("--subtract", parser=Pair, help="Remove an element from a list property."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the brokers validate the change without making it.")
    ] = False,
    topic_regex: TopicRegex = None,
    client: ClientName = None,
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Change properties; all others keep their values.

    One row per property.  The changes of one topic or broker are atomic.  AFTER is empty if the property has no value
    of its own any more and gets it from its next source, and a placeholder for a password.  Before Kafka 2.3, only
    properties of topics can be changed, and a change that somebody else makes at the same time is lost.

    The properties of users, clients and ips are quotas; they require Kafka 2.6 or later.  A user that is called
    <default> is '+<default>', and the client id * is --client '+*'.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    changes = _changes(set_, delete, append, subtract)
    pattern = topic_pattern(type_, names, topic_regex)
    if not names and pattern is None:
        raise UsageError("name what to change, or give --topic-regex")
    if type_ in describe.TYPES:
        return _alter_clients(run, type_, names or [], client, changes, dry_run=dry_run)
    if client is not None:
        raise UsageError("--client is for users, clients and ips")

    async def query(cluster: ClusterClient) -> list[ConfigChangeRow]:
        resources = await requested_resources(cluster, type_, names, pattern)
        if not resources:
            raise KctlError(f"no topic matches --topic-regex '{topic_regex}'")
        before = await describe_configs(cluster, resources, names=[change.name for change in changes])
        outcomes = await alter_configs_of_any_broker(cluster, dict.fromkeys(resources, changes), validate_only=dry_run)
        return [
            _change_row(resource, change, before[resource], outcomes[resource], dry_run=dry_run)
            for resource in resources
            for change in changes
        ]

    rows = run.on_brokers(query)
    run.console.show(ConfigChangeRow, rows)
    return run.status_of(rows)


def _alter_clients(
    run: Invocation,
    type_: str,
    names: list[str],
    client: str | None,
    changes: list[ConfigChange],
    *,
    dry_run: bool,
) -> ExitStatus:
    requested = describe.quota_changes(type_, changes)
    if client == describe.ALL_CLIENTS:
        raise UsageError("--client '*' names no single client id; name one, or '<default>'")
    filters = describe.filters(type_, list(dict.fromkeys(names)), client)
    entities = [tuple((part.type.value, part.name) for part in parts) for parts in filters]

    async def query(cluster: ClusterClient) -> list[ConfigChangeRow]:
        before = {quota.entity: quota.quotas for quota in await describe.quotas_of(cluster, filters)}
        outcomes = [await alter_quotas(cluster, entity, requested, validate_only=dry_run) for entity in entities]
        return [
            _quota_row(type_, entity, change, before.get(entity, {}), outcome, dry_run=dry_run)
            for entity, outcome in zip(entities, outcomes, strict=True)
            for change in requested
        ]

    rows = run.on_cluster(query)
    run.console.show(ConfigChangeRow, rows)
    return run.status_of(rows)


def _quota_row(
    type_: str, entity: Entity, change: QuotaChange, before: Mapping[str, float], outcome: Outcome, *, dry_run: bool
) -> ConfigChangeRow:
    present = str(number_text(before[change.key])) if change.key in before else None
    requested = None if change.value is None else str(number_text(change.value))
    return ConfigChangeRow(
        type=type_,
        name=describe.shown_name(entity),
        property=change.key,
        operation="delete" if change.value is None else "set",
        before=present,
        after=requested if outcome.is_done else present,
        status=("would be altered" if dry_run else "altered") if outcome.is_done else None,
        **outcome_error(outcome),
    )


def _changes(
    set_: Sequence[Pair] | None, delete: list[str] | None, append: list[Pair] | None, subtract: list[Pair] | None
) -> list[ConfigChange]:
    """Return the changes, by name.  Raises UsageError if there are none, or two for one property."""
    changes = [ConfigChange(name, ConfigOperation.DELETE) for name in delete or []]
    for pairs, operation in (
        (set_, ConfigOperation.SET),
        (append, ConfigOperation.APPEND),
        (subtract, ConfigOperation.SUBTRACT),
    ):
        changes += [ConfigChange(name, operation, value) for name, value in pairs or ()]
    if not changes:
        raise UsageError("nothing to alter; give --set, --delete, --append or --subtract")
    names = [change.name for change in changes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is given twice; a command can change a property once")
    return sorted(changes, key=lambda change: change.name)


def _change_row(
    resource: ConfigResource,
    change: ConfigChange,
    before: list[ConfigEntry] | Outcome,
    outcome: Outcome,
    *,
    dry_run: bool,
) -> ConfigChangeRow:
    type_, name = type_and_name(resource)
    entry = entry_named(before, change.name) if isinstance(before, list) else None
    value = entry.value if entry else None
    after = value_after(change, resource, entry) if outcome.is_done else value
    if after is not None and (is_secret(change.name) or (entry is not None and entry.is_sensitive)):
        after = HIDDEN
    return ConfigChangeRow(
        type=type_,
        name=name,
        property=change.name,
        operation=change.operation.name.lower(),
        before=value,
        after=after,
        status=("would be altered" if dry_run else "altered") if outcome.is_done else None,
        **outcome_error(outcome),
    )
