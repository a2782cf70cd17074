"""`kctl acls add`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.acl_rules import Rules, bindings, filters
from kctl.admin.acls import create_acls, list_acls
from kctl.commands.acls.changes import show_as_kafka, show_changed, show_planned
from kctl.commands.acls.options import (
    Allow,
    Cluster,
    DelegationTokens,
    Deny,
    DryRun,
    Groups,
    Hosts,
    Operations,
    Prefix,
    Topics,
    TransactionalIds,
    Users,
    hosts_of_new_acls,
    resources_of,
    rules_of,
)
from kctl.commands.acls.rows import AclChangeRow
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat.acls import adding, adding_unless_present
from kctl.commands.compat.versions import KAFKA_4, Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.security.acls import PatternType

app = typer.Typer(add_completion=False)


@app.command(
    "add",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls add --allow User:bob --operation read --topic orders",
        "kctl acls add --allow User:app --producer --topic orders --transactional-id app",
        "kctl acls add --allow User:app --consumer --topic orders. --group app --prefix",
        "kctl acls add --deny User:bob --operation all --topic secret --host 10.0.0.7 --dry-run",
    ),
)
@shows(AclChangeRow)
def add(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user: Users = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    allow: Allow = None,
    deny: Deny = None,
    operation: Operations = None,
    host: Hosts = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs: write, describe and create on its topics.")
    ] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: IdempotentWrite, for brokers before 2.8.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs: read topics and groups, describe topics.")
    ] = False,
    dry_run: DryRun = False,
    compat: Compat = None,
) -> ExitStatus:
    """Add ACLs: one for each combination of the principals, hosts, operations and resources.

    It is not an error if an ACL already exists.  An operation that no ACL allows is denied, and ACLs that deny take
    precedence.  Without --host the ACL applies to all hosts.
    """
    run: Invocation = ctx.obj
    resources = resources_of(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        delegation_tokens=delegation_token,
        users=user,
        cluster=cluster,
        pattern_type=PatternType.PREFIXED if prefix else PatternType.LITERAL,
    )
    hosts = host if compat else hosts_of_new_acls(host)
    rules = rules_of(allow=allow, deny=deny, operations=operation, hosts=hosts)
    acls = bindings(resources, rules, is_producer=producer, is_consumer=consumer, is_idempotent=idempotent)
    if dry_run:
        return show_planned(run, acls, "would be added")
    if compat == KAFKA_4:
        present = set(run.on_cluster(lambda client: list_acls(client, filters(resources, Rules()))))
        run.console.verbatim(adding_unless_present(acls, present))
    elif compat:
        run.console.verbatim(adding(acls))
    outcomes = run.on_cluster(lambda client: create_acls(client, acls))
    if compat:
        return show_as_kafka(run, compat, resources, outcomes)
    return show_changed(run, acls, outcomes, "added")
