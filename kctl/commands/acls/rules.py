"""`kctl acls`: list, check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security.acls import Resources, Rules, filters, list_acls, read_document
from kctl.admin.security.acls import list_acls as query
from kctl.admin.topics.configs import ConfigResource, describe_configs, entry_named
from kctl.admin.topics.configs import ResourceType as ConfigResourceType
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import BootstrapController, with_groups
from kctl.commands.frame.options.values import parse_ip_address
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.errors import UsageError
from kctl.output.console import ErrorName, ErrorText
from kctl.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    ResourceType,
    principal_problem,
)
from kctl.security.authorization import (
    AccessPolicy,
    AclIndex,
    Client,
    Decision,
    decide,
    java_address,
    parse_super_users,
)
from kctl.system.user_files import read_input

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome


# Options that several verbs of `kctl acls` share.


RESOURCES = "Resources"
RULES = "Rules"


class ResourceOptions(NamedTuple):
    """The resources of ACLs."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic; * for all.", rich_help_panel=RESOURCES)
    ] = None
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Group; * for all.", rich_help_panel=RESOURCES)
    ] = None
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(
            "--transactional-id", metavar="ID", help="Transactional id; * for all.", rich_help_panel=RESOURCES
        ),
    ] = None
    delegation_token: Annotated[
        list[str] | None,
        typer.Option(
            "--delegation-token", metavar="ID", help="Delegation token id; * for all.", rich_help_panel=RESOURCES
        ),
    ] = None
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            metavar="PRINCIPAL",
            help="Delegation tokens of the user User:NAME (Kafka 3.3 or later).",
            rich_help_panel=RESOURCES,
        ),
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster resource.", rich_help_panel=RESOURCES)] = False


class RuleOptions(NamedTuple):
    """What ACLs allow and deny."""

    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="PRINCIPAL", help="Principal to allow, such as User:bob.", rich_help_panel=RULES
        ),
    ] = None
    deny: Annotated[
        list[str] | None,
        typer.Option(
            "--deny", metavar="PRINCIPAL", help="Principal to deny; this overrides --allow.", rich_help_panel=RULES
        ),
    ] = None
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="NAME", help="Operation, such as read or all.", rich_help_panel=RULES),
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="ADDRESS", help="Address of the clients; * for all.", rich_help_panel=RULES),
    ] = None


Prefix = Annotated[
    bool, typer.Option("--prefix", help="The names are prefixes (Kafka 2.0 or later).", rich_help_panel=RESOURCES)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]


def resources_of(options: ResourceOptions, pattern_type: PatternType) -> Resources:
    """Return the resources in the options."""
    return Resources(
        topics=tuple(options.topic or ()),
        groups=tuple(options.group or ()),
        transactional_ids=tuple(options.transactional_id or ()),
        delegation_tokens=tuple(options.delegation_token or ()),
        users=tuple(options.user or ()),
        is_cluster=options.cluster,
        pattern_type=pattern_type,
    )


def rules_of(options: RuleOptions, hosts: list[str] | None) -> Rules:
    """Return the rules in the options, with these hosts.  Raises UsageError."""
    return Rules(
        allowed=tuple(options.allow or ()),
        denied=tuple(options.deny or ()),
        operations=tuple(operation_of(text) for text in options.operation or ()),
        hosts=tuple(hosts or ()),
    )


def hosts_of_new_acls(hosts: list[str] | None) -> list[str]:
    """Return the hosts as brokers compare them with the addresses of clients.

    Raises UsageError for a text that is the address of no client: the ACL would never apply, also one that denies.
    """
    found = []
    for host in hosts or ():
        if (address := _host_address(host)) is None:
            raise UsageError(f"--host takes * or an IP address, such as 192.0.2.4, not '{host}'")
        found.append(address)
    return found


def hosts_of_stored_acls(hosts: list[str] | None) -> list[str]:
    """Return the hosts as given and as brokers compare them: Kafka's tools store what was given."""
    given = hosts or []
    return list(dict.fromkeys([*given, *(address for host in given if (address := _host_address(host)) is not None)]))


def hosts_without_effect(acls: Iterable[AclBinding]) -> list[str]:
    """Return a sentence for each host of the ACLs that is the address of no client."""
    sentences = []
    for host in sorted({acl.entry.host for acl in acls}):
        if (address := _host_address(host)) != host:
            remedy = "" if address is None else f"; write {address}"
            sentences.append(f"ACLs with the host '{host}' never apply, because no client has this address{remedy}")
    return sentences


def _host_address(host: str) -> str | None:
    """Return the address in the form of ACLs, or `*`; None for other texts."""
    try:
        return host if host == WILDCARD else java_address(parse_ip_address(host, "--host"))
    except UsageError:
        return None


def operation_of(text: str) -> Operation:
    """Return an operation by its name.  Raises UsageError."""
    try:
        operation = Operation.of_label(text)
    except ValueError:
        operation = Operation.ANY
    if operation is Operation.ANY:
        names = ", ".join(known.label for known in Operation if known is not Operation.ANY)
        raise UsageError(f"'{text}' is not an operation; use one of {names}")
    return operation


# ACLs as rows.


class AclRow(NamedTuple):
    """An ACL, in the fields of an exported document."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclChangeRow(NamedTuple):
    """An ACL that was changed, or that would be changed without --dry-run."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


def acl_row(binding: AclBinding) -> AclRow:
    """Return the row of an ACL."""
    pattern, entry = binding
    return AclRow(
        pattern.type.label,
        pattern.name,
        pattern.pattern_type.label,
        entry.principal,
        entry.host,
        entry.operation.label,
        entry.permission.label,
    )


def change_row(binding: AclBinding, status: str, outcome: Outcome | None = None) -> AclChangeRow:
    """Return the row of a changed ACL with its outcome; without an outcome for a dry run."""
    row = AclChangeRow(*acl_row(binding), status=status)
    if outcome is None or outcome.is_done:
        return row
    return row._replace(status=None, **outcome_error(outcome))


# `kctl acls list`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl acls list",
        "kctl acls list --topic orders --match",
        "kctl acls list --allow User:bob --operation write --format json",
    ),
)
@shows(AclRow)
@with_groups
def list_verb(
    ctx: typer.Context,
    *,
    resource: ResourceOptions,
    prefix: Annotated[bool, typer.Option("--prefix", help="Only rules about prefixes.")] = False,
    literal: Annotated[bool, typer.Option("--literal", help="Only rules about exact names.")] = False,
    match: Annotated[
        bool, typer.Option("--match", help="All rules that apply to the resource: exact names, prefixes and *.")
    ] = False,
    rule: RuleOptions,
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """List ACLs; without options all of them.

    An ACL is listed if it matches one value of each option that is given.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    resources = resources_of(resource, listed_pattern_type(prefix=prefix, literal=literal, match=match))
    selected = filters(resources, rules_of(rule, hosts_of_stored_acls(rule.host)))
    acls = run.on_cluster(lambda client: query(client, selected))
    run.console.show(AclRow, [acl_row(binding) for binding in acls])
    return ExitStatus.DONE


def listed_pattern_type(*, prefix: bool, literal: bool, match: bool) -> PatternType:
    """Return the pattern type of the ACLs to list.  Raises UsageError for more than one option."""
    if prefix + literal + match > 1:
        raise UsageError("give only one of --prefix, --literal and --match")
    if prefix:
        return PatternType.PREFIXED
    if literal:
        return PatternType.LITERAL
    return PatternType.MATCH if match else PatternType.ANY


# Reads documents of ACLs.


def read_acls(path: str) -> list[AclBinding]:
    """Return the ACLs of a document.  Raises UsageError."""
    try:
        return read_document(read_input(path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


# `kctl acls check`.


ANY_HOST = "any other host"
"""The host for the decision if --host is not given: no ACL names it."""


class CheckRow(NamedTuple):
    """The decision and the rule that decides."""

    principal: str
    host: str
    operation: str
    resource: str
    allowed: bool
    reason: str
    rule: str | None


class BrokerSettings(NamedTuple):
    """The broker's properties; None for those that it does not return."""

    policy: AccessPolicy
    unknown: list[str]


@verbs.command(
    "check",
    cls=ClusterCommand,
    epilog=examples(
        "kctl acls check User:bob read topic:orders",
        "kctl acls check User:bob write topic:orders --host 10.0.0.7",
        "kctl acls check User:bob alter cluster --from acls.json",
    ),
)
@shows_one(CheckRow)
def check(
    ctx: typer.Context,
    principal: Annotated[str, typer.Argument(help="Principal, such as User:bob.", metavar="PRINCIPAL")],
    operation: Annotated[str, typer.Argument(help="Operation, such as read.", metavar="OPERATION")],
    resource: Annotated[
        str, typer.Argument(help="Resource as TYPE:NAME, such as topic:orders, or cluster.", metavar="RESOURCE")
    ],
    *,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="ADDRESS", help="Address of the client.  Default: a host without ACLs of its own."
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Use a document of 'kctl acls export' instead of a cluster."),
    ] = None,
) -> ExitStatus:
    """Check whether an operation is allowed, and show the rule that decides; the exit status is 3 if it is denied.

    The rules are those of Kafka's AclAuthorizer.  Super users and allow.everyone.if.no.acl.found are properties of the
    brokers; they are used if DescribeConfigs returns them; otherwise there is a warning.
    """
    run: Invocation = ctx.obj
    problem = principal_problem(principal)
    if problem is not None:
        raise UsageError(problem)
    requested = operation_of(operation)
    kind, name = resource_named(resource)
    check_operation(requested, kind)
    address = None if host is None else _address(host)
    acls, policy = acls_and_policy(run, from_)
    decision = decide(AclIndex(acls), policy, Client(principal, address or ANY_HOST), requested, kind, name)
    row = CheckRow(
        principal,
        address or ANY_HOST,
        requested.label,
        f"{kind.label}:{name}",
        decision.is_allowed,
        reason_text(decision, requested),
        None if decision.acl is None else str(decision.acl),
    )
    run.console.show_one(row)
    return ExitStatus.DONE if decision.is_allowed else ExitStatus.UNMET


def _address(host: str) -> str:
    """Return the address in the form of ACLs, which brokers compare as text.  Raises UsageError."""
    return java_address(parse_ip_address(host, "--host"))


def reason_text(decision: Decision, requested: Operation) -> str:
    """Return the kind of rule that decided; for an implied operation, also which one implies it."""
    text, acl = decision.reason.value, decision.acl
    if acl is None or acl.entry.operation in {requested, Operation.ALL}:
        return text
    return f"{text}, because {acl.entry.operation.label} implies {requested.label}"


def check_operation(requested: Operation, kind: ResourceType) -> None:
    """Raise UsageError if resources of the type do not have the operation."""
    if requested not in SUPPORTED_OPERATIONS[kind]:
        names = ", ".join(known.label for known in SUPPORTED_OPERATIONS[kind])
        raise UsageError(f"{kind.label} has no operation {requested.label}, only {names}")


def acls_and_policy(run: Invocation, path: str | None) -> tuple[list[AclBinding], AccessPolicy]:
    """Return all ACLs of the document or the cluster, and the properties that matter.

    Warns of those that a client cannot read.
    """
    if path is None:
        acls, settings = run.on_cluster(read_all)
    else:
        acls, settings = read_acls(path), BrokerSettings(AccessPolicy(), ["super.users"])
    for name in settings.unknown:
        run.console.warn(f"the value of the broker property {name} is not known")
    return acls, settings.policy


def resource_named(text: str) -> tuple[ResourceType, str]:
    """Return the type and name of a resource, such as topic:orders or cluster.  Raises UsageError."""
    if text == "cluster":
        return ResourceType.CLUSTER, CLUSTER_NAME
    type_name, separator, name = text.partition(":")
    try:
        kind = ResourceType.of_label(type_name)
    except ValueError:
        kind = ResourceType.ANY
    if kind is ResourceType.ANY or not separator or not name:
        raise UsageError(f"'{text}' is not a resource; use TYPE:NAME, such as topic:orders, or cluster")
    return kind, name


async def read_all(client: ClusterClient) -> tuple[list[AclBinding], BrokerSettings]:
    return await list_acls(client), await _settings(client)


async def _settings(client: ClusterClient) -> BrokerSettings:
    metadata = await client.metadata([])
    broker = ConfigResource(ConfigResourceType.BROKER, str(min(metadata.brokers)))
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    described = (await describe_configs(client, [broker], names=names))[broker]
    if not isinstance(described, list):
        return BrokerSettings(AccessPolicy(), names)
    super_users, is_open = (entry_named(described, name) for name in names)
    # A broker without the property does not return it; sensitive properties are returned without a value.
    unknown = [given.name for given in (super_users, is_open) if given is not None and given.value is None]
    principals = parse_super_users((super_users.value if super_users else None) or "")
    allows = is_open is not None and (is_open.value or "").lower() == "true"
    return BrokerSettings(AccessPolicy(principals, allows_without_acl=allows), unknown)
