"""`kctl acls`: who-can, what-can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security import access
from kctl.commands.acls.rules import acls_and_policy, check_operation, operation_of, reason_text, resource_named
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.errors import UsageError
from kctl.output.console import Column
from kctl.security.acls import Operation, ResourceType, principal_problem
from kctl.security.authorization import Reason

if TYPE_CHECKING:
    from kctl.admin.security.access import PrincipalAccess, ResourceAccess

verbs = typer.Typer(add_completion=False)

From = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="Use a document of 'kctl acls export' instead of a cluster."),
]


BY_WRITE = ", because write on any topic is enough since Kafka 2.8"


def _comma_separated(names: Sequence[str]) -> str | None:
    return ",".join(names) or None


# `kctl acls who-can`.


class WhoCanRow(NamedTuple):
    """A principal; User:* stands for all that have no row of their own."""

    principal: str
    allowed: bool
    hosts: Annotated[list[str], Column(shown=_comma_separated), "Addresses of clients, or * for all other hosts."]
    denied_hosts: Annotated[list[str], Column(shown=_comma_separated, is_rare=True), "The exceptions from *."]
    reason: str
    rule: Annotated[str | None, Column(wraps=True)]


@verbs.command(
    "who-can",
    cls=QueryCommand,
    epilog=examples(
        "kctl acls who-can read orders",
        "kctl acls who-can read group:billing",
        "kctl acls who-can alter cluster --from acls.json",
    ),
)
@shows(WhoCanRow)
def who_can(
    ctx: typer.Context,
    operation: Annotated[str, typer.Argument(help="Operation, such as read.", metavar="OPERATION")],
    resource: Annotated[
        str,
        typer.Argument(help="Topic, or another resource as TYPE:NAME, such as group:billing; or cluster."),
    ],
    *,
    from_: From = None,
) -> ExitStatus:
    """Show the principals that may perform an operation on a resource, the hosts, and the ACL that allows it.

    User:* stands for every user without a row; users whom an ACL denies what User:* may do are shown as not allowed.
    Idempotent producers (idempotentwrite on cluster) also need no more than write on any topic, on brokers since 2.8.
    The rules are those of 'kctl acls check'.  Super users and allow.everyone.if.no.acl.found are properties of the
    brokers; they are used if DescribeConfigs returns them; otherwise there is a warning.
    """
    run: Invocation = ctx.obj
    requested = operation_of(operation)
    is_topic = ":" not in resource and resource != "cluster"
    kind, name = (ResourceType.TOPIC, resource) if is_topic else resource_named(resource)
    check_operation(requested, kind)
    acls, policy = acls_and_policy(run, from_)

    def row(found: PrincipalAccess) -> WhoCanRow:
        hosts, decision = found.hosts, found.decision
        reason = reason_text(decision, requested)
        if requested is Operation.IDEMPOTENT_WRITE and decision.is_allowed and decision.acl is None:
            reason += BY_WRITE if decision.reason is Reason.ALLOWED_BY_ACL else ""
        return WhoCanRow(
            found.principal,
            bool(hosts.allowed),
            list(hosts.allowed),
            list(hosts.denied),
            reason,
            None if decision.acl is None else str(decision.acl),
        )

    rows = [row(found) for found in access.who_can(acls, policy, requested, kind, name)]
    if not rows:
        run.console.note(f"no ACL allows {requested.label} on {kind.label}:{name}")
    run.console.show(WhoCanRow, rows)
    return ExitStatus.DONE


# `kctl acls what-can`.


class WhatCanRow(NamedTuple):
    """Resources, and what the principal may do with those that no more specific row selects."""

    resource_type: str
    resource_name: str
    pattern_type: str
    operations: Annotated[list[str], Column(shown=_comma_separated, wraps=True), "Empty if none is allowed."]
    hosts: Annotated[list[str], Column(shown=_comma_separated), "Addresses of clients, or * for all other hosts."]
    denied_hosts: Annotated[list[str], Column(shown=_comma_separated, is_rare=True), "The exceptions from *."]
    reason: str


@verbs.command(
    "what-can",
    cls=QueryCommand,
    epilog=examples("kctl acls what-can User:alice", "kctl acls what-can 'User:*' --from acls.json"),
)
@shows(WhatCanRow)
def what_can(
    ctx: typer.Context,
    principal: Annotated[str, typer.Argument(help="Principal, such as User:alice.", metavar="PRINCIPAL")],
    *,
    from_: From = None,
) -> ExitStatus:
    """Show what a principal may do, also by ACLs for User:*.

    The most specific row of a resource counts: its name, then the longest prefix of its name, then the name *.  A row
    without operations is an exception in which nothing is allowed.  Implied operations are shown too: Read, Write,
    Delete and Alter imply Describe, and AlterConfigs implies DescribeConfigs.  Super users and
    allow.everyone.if.no.acl.found are read from a broker, as by 'kctl acls check'.
    """
    run: Invocation = ctx.obj
    problem = principal_problem(principal)
    if problem is not None:
        raise UsageError(problem)
    acls, policy = acls_and_policy(run, from_)

    def row(found: ResourceAccess) -> WhatCanRow:
        return WhatCanRow(
            found.pattern.type.label,
            found.pattern.name,
            found.pattern.pattern_type.label,
            [operation.label for operation in found.operations],
            list(found.hosts.allowed),
            list(found.hosts.denied),
            found.decision.reason.value,
        )

    rows = [row(found) for found in access.what_can(acls, policy, principal)]
    if not rows:
        run.console.note(f"no ACL allows {principal} anything")
    run.console.show(WhatCanRow, rows)
    return ExitStatus.DONE
