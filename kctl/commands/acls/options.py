"""Options that several verbs of `kctl acls` share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from kctl.admin.acl_rules import Resources, Rules
from kctl.commands.values import parse_ip_address
from kctl.errors import UsageError
from kctl.security.acls import WILDCARD, AclBinding, Operation, PatternType
from kctl.security.authorization import java_address

RESOURCES = "Resources"
RULES = "Rules"

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic; * for all.", rich_help_panel=RESOURCES)
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Group; * for all.", rich_help_panel=RESOURCES)
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", help="Transactional id; * for all.", rich_help_panel=RESOURCES),
]
DelegationTokens = Annotated[
    list[str] | None,
    typer.Option("--delegation-token", metavar="ID", help="Delegation token id; * for all.", rich_help_panel=RESOURCES),
]
Users = Annotated[
    list[str] | None,
    typer.Option(
        "--user",
        metavar="PRINCIPAL",
        help="Delegation tokens of the user User:NAME (Kafka 3.3 or later).",
        rich_help_panel=RESOURCES,
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster resource.", rich_help_panel=RESOURCES)]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="The names are prefixes (Kafka 2.0 or later).", rich_help_panel=RESOURCES)
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="PRINCIPAL", help="Principal to allow, such as User:bob.", rich_help_panel=RULES),
]
Deny = Annotated[
    list[str] | None,
    typer.Option(
        "--deny", metavar="PRINCIPAL", help="Principal to deny; this overrides --allow.", rich_help_panel=RULES
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help="Operation, such as read or all.", rich_help_panel=RULES),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="ADDRESS", help="Address of the clients; * for all.", rich_help_panel=RULES),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]


def resources_of(
    *,
    topics: list[str] | None,
    groups: list[str] | None,
    transactional_ids: list[str] | None,
    delegation_tokens: list[str] | None,
    users: list[str] | None,
    cluster: bool,
    pattern_type: PatternType,
) -> Resources:
    """The resources in the options."""
    return Resources(
        topics=tuple(topics or ()),
        groups=tuple(groups or ()),
        transactional_ids=tuple(transactional_ids or ()),
        delegation_tokens=tuple(delegation_tokens or ()),
        users=tuple(users or ()),
        is_cluster=cluster,
        pattern_type=pattern_type,
    )


def rules_of(
    *,
    allow: list[str] | None,
    deny: list[str] | None,
    operations: list[str] | None,
    hosts: list[str] | None,
) -> Rules:
    """The rules in the options.  Raises UsageError."""
    return Rules(
        allowed=tuple(allow or ()),
        denied=tuple(deny or ()),
        operations=tuple(operation_of(text) for text in operations or ()),
        hosts=tuple(hosts or ()),
    )


def hosts_of_new_acls(hosts: list[str] | None) -> list[str]:
    """The hosts as brokers compare them with the addresses of clients.

    Raises UsageError for a text that is the address of no client: the ACL would never apply, also one that denies.
    """
    found = []
    for host in hosts or ():
        if (address := _address(host)) is None:
            raise UsageError(f"--host takes * or an IP address, such as 192.0.2.4, not '{host}'")
        found.append(address)
    return found


def hosts_of_stored_acls(hosts: list[str] | None) -> list[str]:
    """The hosts as given and as brokers compare them: Kafka's tools store what was given."""
    given = hosts or []
    return list(dict.fromkeys([*given, *(address for host in given if (address := _address(host)) is not None)]))


def hosts_without_effect(acls: Iterable[AclBinding]) -> list[str]:
    """A sentence for each host of the ACLs that is the address of no client."""
    sentences = []
    for host in sorted({each.entry.host for each in acls}):
        if (address := _address(host)) != host:
            remedy = "" if address is None else f"; write {address}"
            sentences.append(f"ACLs with the host '{host}' never apply, because no client has this address{remedy}")
    return sentences


def _address(host: str) -> str | None:
    """The address in the form of ACLs, or `*`; None for other texts."""
    try:
        return host if host == WILDCARD else java_address(parse_ip_address(host, "--host"))
    except UsageError:
        return None


def operation_of(text: str) -> Operation:
    """An operation by its name.  Raises UsageError."""
    try:
        operation = Operation.of_label(text)
    except ValueError:
        operation = Operation.ANY
    if operation is Operation.ANY:
        names = ", ".join(each.label for each in Operation if each is not Operation.ANY)
        raise UsageError(f"'{text}' is not an operation; use one of {names}")
    return operation
