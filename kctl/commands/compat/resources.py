"""What the verbs of `kctl configs` and `kctl acls` print with --compat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.admin.security import acls as operations
from kctl.admin.security.acls import Resources, Rules, bindings, filters
from kctl.admin.topics.configs import (
    BROKER_DEFAULTS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    own_entry,
)
from kctl.admin.topics.configs import describe_configs as query_configs
from kctl.client.outcome import Outcome
from kctl.commands.acls.changes import confirm_removal, resources_to_remove, show_planned
from kctl.commands.acls.rules import ResourceOptions, RuleOptions, listed_pattern_type, resources_of, rules_of
from kctl.commands.compat.registration import Call
from kctl.commands.compat.texts import resources as texts
from kctl.commands.compat.texts.java import KAFKA_4, KAFKA_28, java_order
from kctl.commands.configs import describe
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.parameters import with_groups
from kctl.errors import ApiError, KctlError, UsageError
from kctl.security.acls import PatternType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.admin.security.quotas import FilterPart
    from kctl.client.cluster import ClusterClient
    from kctl.commands.frame.invocation import Invocation


def describe_configs(
    call: Call,
    *,
    type_: str,
    names: list[str] | None,
    all_: bool,
    property_: list[str] | None,
    topic_regex: str | None,
    client: str | None,
    **_: Any,
) -> ExitStatus:
    """`kctl configs describe`.  Raises UsageError for --property, which Kafka's tool does not have."""
    run, console = call.run, call.run.console
    pattern = describe.topic_pattern(type_, names, topic_regex)
    describe.check_selection(type_, client, all_=all_, property_=property_)
    if property_:
        raise UsageError("--compat and --property cannot be combined")
    if type_ in describe.TYPES:
        requested = describe.filters(type_, names, client)
        quotas, users = run.on_cluster(lambda cluster: describe.read_clients(cluster, requested))
        console.verbatim(texts.quotas(quotas) + texts.scram_users(users))
        return ExitStatus.DONE if all(user.outcome.is_done for user in users) else ExitStatus.FAILED

    async def query(cluster: ClusterClient) -> list[tuple[ConfigResource, list[ConfigEntry] | Outcome]]:
        if type_ == "topic" and not names and pattern is None:
            # Kafka's tool includes internal topics, and has the names in a HashMap.
            metadata = await cluster.metadata()
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in java_order(metadata.topics)]
        else:
            resources = await describe.requested_resources(cluster, type_, names, pattern)
        if type_ == "broker" and not names:
            resources.append(ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS))
        described = await query_configs(cluster, resources, is_sorted=False)
        return [(resource, described[resource]) for resource in resources]

    status = ExitStatus.DONE
    for resource, entries in run.on_brokers(query):
        if isinstance(entries, Outcome):
            console.verbatim(texts.not_described(call.version, resource))
            console.warn(f"{resource.type.name.lower()} '{resource.name}': {entries.message}")
            status = ExitStatus.FAILED
        else:
            console.verbatim(texts.described(call.version, resource, entries, with_inherited=all_))
    return status


def alter_configs(
    call: Call,
    *,
    type_: str,
    names: list[str] | None,
    delete: list[str] | None,
    topic_regex: str | None,
    client: str | None,
    dry_run: bool,
    **_: Any,
) -> Any:
    """`kctl configs alter`; a dry run shows rows.

    Raises KctlError for the removal of a property that has no value of its own, as Kafka's tool does: for quotas in all
    versions, for others before 4.
    """
    removed = sorted(delete or [])
    if type_ in describe.TYPES and removed and names:
        describe.quota_changes(type_, [ConfigChange(name, ConfigOperation.DELETE) for name in removed])
        _refuse(_unset_quotas(call.run, describe.filters(type_, names, client), removed))
    elif type_ not in describe.TYPES and removed and call.version != KAFKA_4:
        _refuse(_unset_properties(call.run, type_, names, topic_regex, removed))
    if dry_run:
        return call.carry_out()
    status, rows = call.collect_rows()
    failed = {row.name for row in rows if row.error}
    console = call.run.console
    if type_ in describe.TYPES:
        filters_of_names = describe.filters(type_, list(dict.fromkeys(names or ())), client)
        entities = [tuple((part.type.value, part.name) for part in parts) for parts in filters_of_names]
        done = [entity[0][1] for entity in entities if describe.shown_name(entity) not in failed]
    else:
        is_default = type_ == "broker"
        altered = dict.fromkeys(row.name for row in rows if not row.error)
        done = [None if is_default and name == describe.DEFAULT_NAME else name for name in altered]
    console.verbatim("".join(texts.altered(type_, name) for name in done))
    for row in rows:
        if row.error:
            console.warn(f"{row.type} '{row.name}', {row.property}: {row.error}: {row.message}")
    return status


def _unset_quotas(run: Invocation, requested: list[list[FilterPart]], removed: Sequence[str]) -> list[str]:
    """Return the quotas that one of the entities does not have."""
    known = run.on_cluster(lambda cluster: describe.quotas_of(cluster, requested))
    present = {quota.entity: quota.quotas for quota in known}
    entities = [tuple((part.type.value, part.name) for part in parts) for parts in requested]
    return [name for name in removed if any(name not in present.get(entity, {}) for entity in entities)]


def _unset_properties(
    run: Invocation, type_: str, names: list[str] | None, topic_regex: str | None, removed: Sequence[str]
) -> list[str]:
    """Return the properties that have no value of their own on one of the resources."""
    pattern = describe.topic_pattern(type_, names, topic_regex)
    if not names and pattern is None:
        return []  # The verb refuses this.

    async def query(client: ClusterClient) -> list[str]:
        resources = await describe.requested_resources(client, type_, names, pattern)
        described = await query_configs(client, resources, names=removed) if resources else {}
        known = [(resource, entries) for resource, entries in described.items() if isinstance(entries, list)]
        return [
            name for name in removed if any(own_entry(entries, resource, name) is None for resource, entries in known)
        ]

    return run.on_brokers(query)


def _refuse(names: Iterable[str]) -> None:
    """Raise KctlError, with the text of ConfigCommand, if there are any."""
    if invalid := ",".join(names):
        raise KctlError(f"Invalid config(s): {invalid}")


@with_groups
def list_acls(
    *,
    call: Call,
    resource: ResourceOptions,
    prefix: bool,
    literal: bool,
    match: bool,
    rule: RuleOptions,
    **_: Any,
) -> ExitStatus:
    """`kctl acls list`; hosts are compared as texts."""
    pattern_type = listed_pattern_type(prefix=prefix, literal=literal, match=match)
    selected = filters(resources_of(resource, pattern_type), rules_of(rule, rule.host))
    acls = call.run.on_cluster(lambda client: operations.list_acls(client, selected))
    principals = dict.fromkeys([*(rule.allow or ()), *(rule.deny or ())])
    if principals:
        call.run.console.verbatim(texts.listed_by_principal(call.version, principals, acls))
    else:
        call.run.console.verbatim(texts.listed(call.version, acls))
    return ExitStatus.DONE


@with_groups
def add_acls(
    *,
    call: Call,
    resource: ResourceOptions,
    prefix: bool,
    rule: RuleOptions,
    producer: bool,
    idempotent: bool,
    consumer: bool,
    dry_run: bool,
    **_: Any,
) -> ExitStatus:
    """`kctl acls add`, which stores hosts as they are given; a dry run shows rows."""
    run = call.run
    resources = resources_of(resource, PatternType.PREFIXED if prefix else PatternType.LITERAL)
    acls = bindings(
        resources, rules_of(rule, rule.host), is_producer=producer, is_consumer=consumer, is_idempotent=idempotent
    )
    if dry_run:
        return show_planned(run, acls, "would be added")
    if call.version == KAFKA_4:
        present = set(run.on_cluster(lambda client: operations.list_acls(client, filters(resources, Rules()))))
        run.console.verbatim(texts.adding_unless_present(acls, present))
    else:
        run.console.verbatim(texts.adding(acls))
    return _show_changed(call, resources, run.on_cluster(lambda client: operations.create_acls(client, acls)))


@with_groups
def remove_acls(
    *,
    call: Call,
    resource: ResourceOptions,
    prefix: bool,
    any_resource: bool,
    rule: RuleOptions,
    dry_run: bool,
    **_: Any,
) -> ExitStatus:
    """`kctl acls remove`; hosts are compared as texts, and a dry run shows rows."""
    run = call.run
    resources = resources_to_remove(resource, rule, prefix=prefix, any_resource=any_resource)
    selected = filters(resources, rules_of(rule, rule.host))
    acls = run.on_cluster(lambda client: operations.list_acls(client, selected))
    if dry_run:
        return show_planned(run, acls, "would be removed")
    outcomes: list[Outcome] = []
    if confirm_removal(run, acls):
        outcomes = run.on_cluster(lambda client: operations.delete_acls(client, acls))
    return _show_changed(call, resources, outcomes)


def _show_changed(call: Call, resources: Resources, outcomes: Sequence[Outcome]) -> ExitStatus:
    """Print the ACLs of the resources after a change, as kafka-acls of 2.8 does; later ones print nothing.

    Raises ApiError if a change failed.
    """
    failed = next((outcome for outcome in outcomes if not outcome.is_done), None)
    if failed is not None:
        raise ApiError(failed.error, failed.message)
    if call.version == KAFKA_28:
        selected = filters(resources, Rules())
        acls = call.run.on_cluster(lambda client: operations.list_acls(client, selected))
        call.run.console.verbatim(texts.listed(call.version, acls))
    return ExitStatus.DONE
