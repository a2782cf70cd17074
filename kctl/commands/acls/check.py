"""`kctl acls check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.acls import list_acls
from kctl.admin.configs import ConfigResource, describe_configs, entry_named
from kctl.admin.configs import ResourceType as ConfigResourceType
from kctl.commands.acls.documents import read_acls
from kctl.commands.acls.options import operation_of
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows_one
from kctl.commands.values import parse_ip_address
from kctl.errors import UsageError
from kctl.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    Operation,
    ResourceType,
    principal_problem,
)
from kctl.security.authorization import AccessPolicy, AclIndex, Client, decide, java_address, parse_super_users

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)

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


@app.command(
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
    kind, name = _resource(resource)
    if requested not in SUPPORTED_OPERATIONS[kind]:
        names = ", ".join(each.label for each in SUPPORTED_OPERATIONS[kind])
        raise UsageError(f"{kind.label} has no operation {requested.label}, only {names}")
    address = None if host is None else _address(host)
    if from_ is None:
        acls, settings = run.on_cluster(_query)
    else:
        acls, settings = read_acls(from_), BrokerSettings(AccessPolicy(), ["super.users"])
    for property_name in settings.unknown:
        run.console.warn(f"the value of the broker property {property_name} is not known")
    decision = decide(AclIndex(acls), settings.policy, Client(principal, address or ANY_HOST), requested, kind, name)
    row = CheckRow(
        principal,
        address or ANY_HOST,
        requested.label,
        f"{kind.label}:{name}",
        decision.is_allowed,
        _reason(decision.reason.value, decision.acl, requested),
        None if decision.acl is None else str(decision.acl),
    )
    run.console.show_one(row)
    return ExitStatus.DONE if decision.is_allowed else ExitStatus.UNMET


def _address(host: str) -> str:
    """The address in the form of ACLs, which brokers compare as text.  Raises UsageError."""
    return java_address(parse_ip_address(host, "--host"))


def _reason(text: str, acl: AclBinding | None, requested: Operation) -> str:
    if acl is None or acl.entry.operation in {requested, Operation.ALL}:
        return text
    return f"{text}, because {acl.entry.operation.label} implies {requested.label}"


def _resource(text: str) -> tuple[ResourceType, str]:
    """Raises UsageError."""
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


async def _query(client: ClusterClient) -> tuple[list[AclBinding], BrokerSettings]:
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
    unknown = [each.name for each in (super_users, is_open) if each is not None and each.value is None]
    principals = parse_super_users((super_users.value if super_users else None) or "")
    allows = is_open is not None and (is_open.value or "").lower() == "true"
    return BrokerSettings(AccessPolicy(principals, allows_without_acl=allows), unknown)
